//! Which headers cross the router: rules on names, without a proxy.

use http::HeaderMap;
use http::header::{self, HeaderName, HeaderValue};
use smallvec::SmallVec;

/// Most names taken out of `Connection`. Real ones list one or two; the rest of a longer list passes as ordinary.
const MAX_CONNECTION_NAMES: usize = 32;

/// Headers that tell a router, a sidecar or an engine where a request is to go. From a client they are dropped: only
/// the router chooses.
const STEERING: [&str; 5] = [
    // vLLM: which data-parallel rank takes the request.
    "x-data-parallel-rank",
    // llm-d's sidecar: where to prefill, and the rank's own address.
    "x-prefiller-url",
    "x-prefiller-host-port",
    "x-data-parallel-host-port",
    // Envoy's original-destination cluster.
    "x-envoy-original-dst-host",
];

/// Families of such headers: our own, the endpoint picker's, and what SGLang may be set up to take in the place of a
/// body's members, among them where to meet a prefill engine.
const STEERING_PREFIXES: [&str; 3] = ["x-kvasir-", "x-gateway-", "x-override-"];

/// The names that a message's `Connection` header declares hop-by-hop.
#[derive(Clone, Debug, Default)]
pub struct ConnectionNames(SmallVec<[HeaderName; 2]>);

impl ConnectionNames {
    /// Reads all values of `Connection`. What is no header name is passed over.
    pub fn read<'a>(values: impl IntoIterator<Item = &'a HeaderValue>) -> Self {
        let names = values
            .into_iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok())
            .take(MAX_CONNECTION_NAMES)
            .collect();
        Self(names)
    }

    /// The names in the `Connection` values of `headers`.
    pub fn of(headers: &HeaderMap) -> Self {
        Self::read(headers.get_all(header::CONNECTION))
    }

    /// Whether `name` is declared.
    pub fn contains(&self, name: &HeaderName) -> bool {
        self.0.contains(name)
    }
}

/// Whether a header is about this connection only (RFC 9110 7.6.1, with the older names still met in the wild).
/// The same in requests and in answers.
pub fn is_hop_by_hop(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "connection"
            | "keep-alive"
            | "proxy-authenticate"
            | "proxy-authorization"
            | "proxy-connection"
            | "te"
            | "trailer"
            | "transfer-encoding"
            | "upgrade"
    )
}

/// Whether a header carries a client's credentials.
pub fn is_credential(name: &HeaderName) -> bool {
    matches!(name.as_str(), "authorization" | "proxy-authorization" | "cookie" | "x-api-key" | "api-key")
}

/// Whether a header would let a client choose where its request goes.
pub fn is_steering(name: &HeaderName) -> bool {
    let name = name.as_str();
    STEERING.contains(&name) || STEERING_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Whether the router writes this request header itself: the engine's host, the length of the body as sent, and no
/// expectation, which was answered here.
pub fn is_rewritten(name: &HeaderName) -> bool {
    matches!(name.as_str(), "host" | "content-length" | "expect")
}

/// Whether a client's header goes on to an engine. `connection` is of the client's request.
///
/// `Content-Encoding` passes: a caller that decoded the body drops it itself, so that bytes and label stay together.
pub fn passes_to_engine(name: &HeaderName, connection: &ConnectionNames, forward_credentials: bool) -> bool {
    !(is_hop_by_hop(name)
        || connection.contains(name)
        || is_steering(name)
        || is_rewritten(name)
        || (!forward_credentials && is_credential(name)))
}

/// Whether an engine's header goes on to the client. `connection` is of the engine's answer.
///
/// An engine cannot speak in the router's name, and `Content-Length` is as true as the body, which passes untouched;
/// the caller drops it where usage is taken out of a stream.
pub fn passes_to_client(name: &HeaderName, connection: &ConnectionNames) -> bool {
    !(is_hop_by_hop(name) || connection.contains(name) || name.as_str().starts_with("x-kvasir-"))
}

/// Whether an answer is a stream of events. Parameters, case and white space do not matter.
pub fn is_event_stream(content_type: &str) -> bool {
    essence(content_type).eq_ignore_ascii_case("text/event-stream")
}

/// Whether a body is JSON: `application/json`, or a type that ends in `+json`.
pub fn is_json(content_type: &str) -> bool {
    let essence = essence(content_type);
    let suffix = essence.len().checked_sub(5).and_then(|at| essence.get(at..));
    essence.eq_ignore_ascii_case("application/json")
        || suffix.is_some_and(|suffix| suffix.eq_ignore_ascii_case("+json"))
}

/// Whether a body is a form with parts.
pub fn is_multipart_form(content_type: &str) -> bool {
    essence(content_type).eq_ignore_ascii_case("multipart/form-data")
}

/// The type without its parameters.
fn essence(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let lines = lines.iter();
        lines.map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
    }

    fn names(map: &HeaderMap, keep: impl Fn(&HeaderName) -> bool) -> Vec<String> {
        map.keys().filter(|name| keep(name)).map(ToString::to_string).collect()
    }

    #[test]
    fn a_request_loses_hops_credentials_and_steering() {
        let sent = headers(&[
            ("host", "public.example"),
            ("connection", "keep-alive, X-Foo , bad name,"),
            ("keep-alive", "timeout=5"),
            ("x-foo", "1"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("content-length", "5"),
            ("expect", "100-continue"),
            ("upgrade", "websocket"),
            ("proxy-connection", "close"),
            ("proxy-authorization", "Basic x"),
            ("authorization", "Bearer x"),
            ("cookie", "a=b"),
            ("x-api-key", "x"),
            ("api-key", "x"),
            ("x-data-parallel-rank", "1"),
            ("x-kvasir-endpoint", "x"),
            ("x-gateway-destination-endpoint", "x"),
            ("x-prefiller-host-port", "x"),
            ("x-override-bootstrap-host", "x"),
            ("x-gatewayish", "stays"),
            ("content-type", "application/json"),
            ("content-encoding", "gzip"),
            ("x-request-id", "r"),
            ("traceparent", "t"),
            ("anthropic-version", "v"),
        ]);
        let connection = ConnectionNames::of(&sent);
        let kept = [
            "x-gatewayish",
            "content-type",
            "content-encoding",
            "x-request-id",
            "traceparent",
            "anthropic-version",
        ];
        assert_eq!(names(&sent, |name| passes_to_engine(name, &connection, false)), kept);
        let with_credentials = names(&sent, |name| passes_to_engine(name, &connection, true));
        for name in ["authorization", "cookie", "x-api-key", "api-key"] {
            assert!(with_credentials.iter().any(|kept| kept == name), "{name}");
        }
        assert!(!with_credentials.iter().any(|name| name == "proxy-authorization"), "meant for this hop");
    }

    /// HDR-01: hop-by-hop and `Connection`-named headers go, encoded bytes keep their label.
    #[test]
    fn an_answer_loses_hops_only() {
        let sent = headers(&[
            ("connection", "x-foo"),
            ("x-foo", "1"),
            ("transfer-encoding", "chunked"),
            ("trailer", "x"),
            ("proxy-authenticate", "Basic"),
            ("x-kvasir-endpoint", "spoofed"),
            ("content-encoding", "gzip"),
            ("content-length", "20"),
            ("content-type", "audio/wav"),
            ("server", "uvicorn"),
            ("retry-after", "1"),
            ("set-cookie", "a=b"),
        ]);
        let connection = ConnectionNames::of(&sent);
        let kept =
            ["content-encoding", "content-length", "content-type", "server", "retry-after", "set-cookie"];
        assert_eq!(names(&sent, |name| passes_to_client(name, &connection)), kept);
    }

    #[test]
    fn connection_names_come_from_every_value_and_are_bounded() {
        let mut map = headers(&[("connection", "a, B")]);
        map.append(header::CONNECTION, HeaderValue::from_static("c"));
        map.append(header::CONNECTION, HeaderValue::from_bytes(b"\xff").unwrap());
        let found = ConnectionNames::of(&map);
        for name in ["a", "b", "c"] {
            assert!(found.contains(&HeaderName::from_static(name)));
        }
        let many = HeaderValue::from_str(&"a,".repeat(1000)).unwrap();
        assert_eq!(ConnectionNames::read([&many]).0.len(), MAX_CONNECTION_NAMES);
    }

    /// STR-01: every way to write the type is a stream.
    #[test]
    fn event_streams_are_told_by_their_type() {
        for yes in [
            "text/event-stream",
            "text/event-stream; charset=utf-8",
            "TEXT/Event-Stream",
            " text/event-stream ;x",
        ] {
            assert!(is_event_stream(yes), "{yes}");
        }
        for no in
            ["", "application/json", "text/event-streams", "audio/wav", "text/plain; x=text/event-stream"]
        {
            assert!(!is_event_stream(no), "{no}");
        }
    }

    #[test]
    fn json_and_forms_are_told_by_their_type() {
        for yes in ["application/json", "Application/JSON; charset=utf-8", "application/problem+json"] {
            assert!(is_json(yes), "{yes}");
        }
        for no in ["", "json", "text/json-seq", "é+jso", "application/jsonl"] {
            assert!(!is_json(no), "{no}");
        }
        assert!(is_multipart_form("Multipart/Form-Data; boundary=x"));
        assert!(!is_multipart_form("multipart/mixed; boundary=x"));
    }
}
