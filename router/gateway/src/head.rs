//! What a request's first line asks for.

use http::Method;
use kvasir_core::RequestKind;
use pingora_http::RequestHeader;

use crate::service::Door;

/// Which of the router's doors a request comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// `GET /healthz`
    Health,
    /// `GET /readyz`
    Ready,
    /// `GET /metrics`, where it is shown.
    Metrics,
    /// `GET /v1/models`
    Models,
    /// `GET /v1/models/{id}`
    Model(String),
    /// A request about a stored response: `GET` or `DELETE /v1/responses/{id}`, `POST /v1/responses/{id}/cancel`, ...
    StoredResponse(String),
    /// A body that names a model.
    Inference(RequestKind),
    /// A known path with a method it does not take.
    WrongMethod,
    /// WebSocket and other upgrades.
    Upgrade,
    /// Anything else.
    Unknown,
}

/// What a request wants of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Errand {
    /// A body that names a model.
    Call(RequestKind),
    /// Something about a stored response.
    Stored(String),
    /// What only an HTTPRoute can know.
    Forward,
}

impl Errand {
    /// The API it speaks, as far as the head tells.
    pub(crate) fn kind(&self) -> RequestKind {
        match self {
            Self::Call(kind) => *kind,
            Self::Stored(_) => RequestKind::Responses,
            Self::Forward => RequestKind::Other,
        }
    }

    /// The id of the stored response it is about.
    pub(crate) fn stored(&self) -> Option<&str> {
        if let Self::Stored(id) = self { Some(id) } else { None }
    }
}

/// Sorts a request by its head alone.
pub(crate) fn classify(header: &RequestHeader, door: Door) -> Entry {
    if header.headers.contains_key(http::header::UPGRADE) {
        return Entry::Upgrade;
    }
    if door.shows_metrics && header.method == Method::GET && header.uri.path() == "/metrics" {
        return Entry::Metrics;
    }
    match entry_of(&header.method, header.uri.path()) {
        Entry::Health | Entry::Ready if !door.is_own => Entry::Unknown,
        entry => entry,
    }
}

/// Sorts a request by its method and path.
pub(crate) fn entry_of(method: &Method, path: &str) -> Entry {
    let get = *method == Method::GET;
    match path {
        "/healthz" if get => return Entry::Health,
        "/readyz" if get => return Entry::Ready,
        "/v1/models" => return if get { Entry::Models } else { Entry::WrongMethod },
        _ => {}
    }
    let Some(rest) = path.strip_prefix("/v1/") else { return Entry::Unknown };
    if let Some(id) = rest.strip_prefix("models/") {
        return if get && !id.is_empty() { Entry::Model(decode(id)) } else { Entry::WrongMethod };
    }
    if let Some(id) = rest.strip_prefix("responses/").filter(|id| !id.is_empty()) {
        let id = id.split('/').next().unwrap_or_default();
        return Entry::StoredResponse(decode(id));
    }
    if rest.is_empty() {
        return Entry::Unknown;
    }
    if *method != Method::POST {
        return Entry::WrongMethod;
    }
    Entry::Inference(match rest {
        "chat/completions" => RequestKind::Chat,
        "completions" => RequestKind::Completions,
        "responses" => RequestKind::Responses,
        "messages" => RequestKind::Messages,
        "embeddings" => RequestKind::Embeddings,
        _ => RequestKind::Other,
    })
}

/// Percent-decodes a path segment; what is no valid escape stays as it is.
pub(crate) fn decode(segment: &str) -> String {
    let bytes = segment.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let escape = bytes.get(at + 1..at + 3).and_then(|hex| std::str::from_utf8(hex).ok());
        match escape.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(value) if *byte == b'%' => {
                decoded.push(value);
                at += 3;
            }
            _ => {
                decoded.push(*byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Door = Door { port: 8080, is_own: true, shows_metrics: false };

    #[test]
    fn paths_lead_to_their_doors() {
        let cases = [
            ("GET", "/healthz", Entry::Health),
            ("POST", "/healthz", Entry::Unknown),
            ("GET", "/readyz", Entry::Ready),
            ("GET", "/v1/models", Entry::Models),
            ("POST", "/v1/models", Entry::WrongMethod),
            ("GET", "/v1/models/Qwen%2FQwen2.5", Entry::Model("Qwen/Qwen2.5".into())),
            ("GET", "/v1/models/a/b", Entry::Model("a/b".into())),
            ("GET", "/v1/responses/resp_1", Entry::StoredResponse("resp_1".into())),
            ("POST", "/v1/responses/resp_1/cancel", Entry::StoredResponse("resp_1".into())),
            ("POST", "/v1/responses", Entry::Inference(RequestKind::Responses)),
            ("POST", "/v1/chat/completions?x=1", Entry::Inference(RequestKind::Chat)),
            ("GET", "/v1/chat/completions", Entry::WrongMethod),
            ("POST", "/v1/audio/transcriptions", Entry::Inference(RequestKind::Other)),
            ("POST", "/v1/", Entry::Unknown),
            ("POST", "/V1/completions", Entry::Unknown),
            ("POST", "//v1/completions", Entry::Unknown),
        ];
        for (method, path, entry) in cases {
            let header = RequestHeader::build(method, path.as_bytes(), None).unwrap();
            assert_eq!(classify(&header, OWN), entry, "{method} {path}");
        }
        let mut header = RequestHeader::build("GET", b"/v1/realtime", None).unwrap();
        header.insert_header("upgrade", "websocket").unwrap();
        assert_eq!(classify(&header, OWN), Entry::Upgrade);
    }

    #[test]
    fn health_is_a_path_like_any_other_at_the_ports_of_gateways() {
        for path in ["/healthz", "/readyz"] {
            let header = RequestHeader::build("GET", path.as_bytes(), None).unwrap();
            assert_eq!(classify(&header, Door { is_own: false, ..OWN }), Entry::Unknown, "{path}");
        }
    }

    #[test]
    fn metrics_are_a_path_like_any_other_unless_they_are_shown() {
        for (method, path, shown, entry) in [
            ("GET", "/metrics", true, Entry::Metrics),
            ("GET", "/metrics?name=x", true, Entry::Metrics),
            ("GET", "/metrics", false, Entry::Unknown),
            ("POST", "/metrics", true, Entry::Unknown),
            ("GET", "/metrics/x", true, Entry::Unknown),
        ] {
            let header = RequestHeader::build(method, path.as_bytes(), None).unwrap();
            assert_eq!(classify(&header, Door { shows_metrics: shown, ..OWN }), entry, "{method} {path}");
        }
    }

    #[test]
    fn broken_escapes_stay_as_they_are() {
        assert_eq!(decode("a%2"), "a%2");
        assert_eq!(decode("%zz"), "%zz");
        assert_eq!(decode("%25"), "%");
    }
}
