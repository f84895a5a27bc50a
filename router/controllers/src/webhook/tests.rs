use std::io::ErrorKind;
use std::time::SystemTime;

use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Body, Bytes, Frame};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_rustls::rustls::version;

use super::authority::names_of;
use super::stored::{Decision, decide};
use super::testing::{CONFIGURATION, FakeApi, SECRET, Visitor, configuration, days};
use super::*;

const HTTP_1: &[u8] = b"http/1.1";
const HTTP_2: &[u8] = b"h2";

/// What no wait of these tests comes near, unless something is broken.
const AGES: Duration = Duration::from_secs(20);

/// A webhook that serves files.
struct Room {
    webhook: Webhook,
    folder: tempfile::TempDir,
    authorities: Vec<u8>,
    stop: CancellationToken,
}

struct Said {
    status: StatusCode,
    headers: HeaderMap,
    body: String,
}

async fn room() -> Room {
    room_within(Limits::default(), Bounds::default()).await
}

async fn room_within(limits: Limits, bounds: Bounds) -> Room {
    let folder = tempfile::tempdir().unwrap();
    let authorities = write_files(&folder);
    let stop = CancellationToken::new();
    let webhook = Webhook::start_within(None, options(&folder), stop.clone(), limits, bounds);
    until(|| webhook.status().certificate.is_some()).await;
    Room { webhook, folder, authorities, stop }
}

fn options(folder: &tempfile::TempDir) -> WebhookOptions {
    WebhookOptions {
        listen: "127.0.0.1:0".parse().unwrap(),
        cert_file: folder.path().join("tls.crt"),
        key_file: folder.path().join("tls.key"),
        secret: ObjectName::new("models", "certs"),
        service_name: "webhook".to_owned(),
        configuration_name: "hooks".to_owned(),
        manage_certificate: true,
    }
}

/// Writes a new certificate with its key; gives the authority that issued it.
fn write_files(folder: &tempfile::TempDir) -> Vec<u8> {
    let now = SystemTime::now();
    let Decision::Issue(order) = decide(None, true, "", now) else { panic!("nothing issued") };
    let (stored, _) = order.issue(&names_of("webhook", "models"), now).unwrap();
    let data = stored.secret(&ObjectName::new("models", "certs"), None).data.unwrap();
    for name in ["tls.crt", "tls.key"] {
        std::fs::write(folder.path().join(name), &data[name].0).unwrap();
    }
    data["ca.crt"].0.clone()
}

async fn until(mut holds: impl FnMut() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    };
    timeout(AGES, waiting).await.expect("it never came to hold");
}

impl Room {
    fn address(&self) -> SocketAddr {
        self.webhook.address().unwrap()
    }

    async fn say<B>(&self, protocol: &[u8], request: Request<B>) -> Said
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: std::error::Error + Send + Sync,
    {
        let visitor = Visitor::trusting(&self.authorities, protocol);
        let stream = TokioIo::new(visitor.connect(self.address()).await.unwrap());
        let response = if protocol == HTTP_2 {
            let executor = TokioExecutor::new();
            let (mut sender, connection) =
                hyper::client::conn::http2::handshake(executor, stream).await.unwrap();
            tokio::spawn(connection);
            sender.send_request(request).await.unwrap()
        } else {
            let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
            tokio::spawn(connection);
            sender.send_request(request).await.unwrap()
        };
        let (head, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Said { status: head.status, headers: head.headers, body: String::from_utf8(body.to_vec()).unwrap() }
    }
}

fn post(path: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    Request::post(format!("https://webhook.models.svc{path}"))
        .header("content-type", "application/json")
        .header("host", "webhook.models.svc")
        .body(Full::new(body.into()))
        .unwrap()
}

fn review_of(spec: Value) -> String {
    json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {
        "uid": "u1", "operation": "CREATE",
        "object": {"kind": "ModelRoute", "metadata": {"name": "r", "namespace": "n"}, "spec": spec},
    }})
    .to_string()
}

fn good() -> String {
    review_of(json!({"modelName": "m", "rules": [{"targetModels": [{"modelServerName": "s"}]}]}))
}

#[tokio::test]
async fn a_good_object_is_allowed_and_a_bad_one_refused_over_either_version_of_http() {
    let room = room().await;
    for protocol in [HTTP_1, HTTP_2] {
        let said = room.say(protocol, post("/validate/modelroute", good())).await;
        assert_eq!(
            (said.status, &said.headers["content-type"]),
            (StatusCode::OK, &"application/json".parse().unwrap())
        );
        let mut expected: Value = serde_json::from_str(&good()).unwrap();
        expected["response"] = json!({"uid": "u1", "allowed": true});
        assert_eq!(serde_json::from_str::<Value>(&said.body).unwrap(), expected);

        let said = room.say(protocol, post("/validate/modelroute", review_of(json!({"rules": []})))).await;
        assert_eq!(said.status, StatusCode::OK);
        let answer: Value = serde_json::from_str(&said.body).unwrap();
        assert_eq!(
            answer["response"],
            json!({"uid": "u1", "allowed": false, "status": {"message": "validation failed:\n  - spec: \
                Required value: either modelName or loraAdapters must be specified"}})
        );
    }
    room.stop.cancel();
    room.webhook.ended().await;
}

#[tokio::test]
async fn every_path_is_there_for_any_method() {
    let room = room().await;
    for (path, kind) in [
        ("/validate/modelroute", "ModelRoute"),
        ("/validate/modelserver", "ModelServer"),
        ("/validate/externalmodelprovider", "ExternalModelProvider"),
    ] {
        let mut request = post(path, good().replace("ModelRoute", "Other"));
        *request.method_mut() = Method::PUT;
        let said = room.say(HTTP_2, request).await;
        assert_eq!(said.body, format!("this path reviews a {kind}, not a Other"));
    }
    let said =
        room.say(HTTP_1, Request::get("/healthz").header("host", "x").body(Full::default()).unwrap()).await;
    assert_eq!((said.status, said.body.as_str()), (StatusCode::OK, "ok"));
    let said = room.say(HTTP_1, post("/validate", "")).await;
    assert_eq!(said.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_call_that_is_wrong_itself_gets_400_and_the_reason() {
    let room = room().await;
    let path = "/validate/modelserver";
    for (kind, shown) in [
        (Some("application/json; charset=utf-8"), "application/json; charset=utf-8"),
        (Some("text/plain"), "text/plain"),
        (None, ""),
    ] {
        let mut request = post(path, good());
        request.headers_mut().remove("content-type");
        if let Some(kind) = kind {
            request.headers_mut().insert("content-type", kind.parse().unwrap());
        }
        let said = room.say(HTTP_1, request).await;
        assert_eq!(said.status, StatusCode::BAD_REQUEST);
        assert_eq!(said.body, format!("invalid Content-Type, expected application/json, got {shown}"));
        assert!(said.headers["content-type"].to_str().unwrap().starts_with("text/plain"));
    }
    for (body, reason) in [
        ("{", "cannot read the admission review: EOF while parsing"),
        ("{}", "the admission review has no request"),
        (r#"{"request":{"operation":"CREATE"}}"#, "the request has no object"),
        (r#"{"request":{"object":{"spec":{"inferenceEngine":"TGI"}}}}"#, "cannot read the object: spec"),
    ] {
        let said = room.say(HTTP_2, post(path, body)).await;
        assert_eq!(said.status, StatusCode::BAD_REQUEST, "{body}");
        assert!(said.body.starts_with(reason), "{body}: {}", said.body);
    }
}

#[tokio::test]
async fn a_body_that_is_too_large_gets_413_whether_it_says_so_or_not() {
    let limits = Limits { body_bytes: 50_000, ..Limits::default() };
    let room = room_within(limits, Bounds::default()).await;
    let large = vec![b' '; 60_000];
    for protocol in [HTTP_1, HTTP_2] {
        let said = room.say(protocol, post("/validate/modelroute", large.clone())).await;
        assert_eq!(said.status, StatusCode::PAYLOAD_TOO_LARGE);
        let pieces = futures_util::stream::iter(vec![
            Ok::<_, std::io::Error>(Frame::data(Bytes::from(vec![b' '; 30_000]))),
            Ok(Frame::data(Bytes::from(vec![b' '; 30_000]))),
        ]);
        let request = post("/validate/modelroute", "").map(|_| StreamBody::new(pieces));
        let said = room.say(protocol, request).await;
        assert_eq!(said.status, StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(said.body, "the body is larger than 50000 bytes");
    }
    let just = [good().as_bytes(), &vec![b' '; 50_000 - good().len()]].concat();
    assert_eq!(room.say(HTTP_2, post("/validate/modelroute", just)).await.status, StatusCode::OK);
}

#[tokio::test]
async fn objects_as_large_as_an_api_server_holds_are_reviewed() {
    let room = room().await;
    let rules: Vec<Value> =
        (0..40_000).map(|_| json!({"targetModels": [{"modelServerName": "s"}]})).collect();
    let body = review_of(json!({"modelName": "m", "rules": rules}));
    assert!(body.len() > 1 << 20 && body.len() < 3 << 20, "{}", body.len());
    let said = room.say(HTTP_2, post("/validate/modelroute", body)).await;
    assert!(said.status == StatusCode::OK && said.body.ends_with(r#"{"uid":"u1","allowed":true}}"#));
}

#[tokio::test]
async fn all_bodies_together_are_bounded() {
    let limits = Limits { held_bytes: 10_000, ..Limits::default() };
    let room = room_within(limits, Bounds::default()).await;
    let (pieces, rest) = mpsc::channel::<Result<Frame<Bytes>, std::io::Error>>(1);
    let slow =
        futures_util::stream::unfold(rest, async |mut rest| rest.recv().await.map(|piece| (piece, rest)));
    let request = post("/validate/modelroute", "").map(|_| StreamBody::new(Box::pin(slow)));
    let small = || post("/validate/modelroute", format!("{}{}", good(), " ".repeat(5_000)));
    let said = tokio::join!(room.say(HTTP_2, request), async {
        pieces.send(Ok(Frame::data(Bytes::from(vec![b' '; 6_000])))).await.unwrap();
        loop {
            let said = room.say(HTTP_2, small()).await;
            if said.status == StatusCode::SERVICE_UNAVAILABLE {
                break;
            }
            assert_eq!(said.status, StatusCode::OK);
        }
        drop(pieces);
    });
    assert_eq!(said.0.status, StatusCode::BAD_REQUEST);
    // What was held is free again.
    assert_eq!(room.say(HTTP_2, small()).await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_client_that_is_slow_anywhere_is_cut() {
    let short = Duration::from_millis(100);
    let limits = Limits { read: short, ..Limits::default() };
    let bounds = Bounds { handshake: short, quiet: short, ..Bounds::default() };
    let room = room_within(limits, bounds).await;
    // Says nothing at all.
    let mut stream = TcpStream::connect(room.address()).await.unwrap();
    assert_eq!(ended(&mut stream).await, "");
    for protocol in [HTTP_1, HTTP_2] {
        // Says nothing after the handshake.
        let visitor = Visitor::trusting(&room.authorities, protocol);
        let mut stream = visitor.connect(room.address()).await.unwrap();
        ended(&mut stream).await;
    }
    let visitor = Visitor::trusting(&room.authorities, HTTP_1);
    let mut stream = visitor.connect(room.address()).await.unwrap();
    stream.write_all(b"POST /validate/modelroute HTTP/1.1\r\nhost: x\r\n").await.unwrap();
    ended(&mut stream).await;
    // Stops within the body.
    let mut stream = visitor.connect(room.address()).await.unwrap();
    let head = b"POST /validate/modelroute HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
        content-length: 10\r\n\r\n{";
    stream.write_all(head).await.unwrap();
    let answer = ended(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    until(|| room.webhook.status().connections == 0).await;
}

#[tokio::test]
async fn an_answer_that_nobody_takes_ends_the_connection() {
    let bounds = Bounds { quiet: Duration::from_millis(300), ..Bounds::default() };
    let room = room_within(Limits::default(), bounds).await;
    let visitor = Visitor::trusting(&room.authorities, HTTP_2);
    let stream = TokioIo::new(visitor.connect(room.address()).await.unwrap());
    // A window smaller than the answer, and nobody who reads it.
    let (mut sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(100)
        .handshake(stream)
        .await
        .unwrap();
    let client = tokio::spawn(connection);
    let response = sender.send_request(post("/validate/modelroute", good())).await.unwrap();
    timeout(AGES, client).await.expect("the connection must end").unwrap().ok();
    drop(response);
    until(|| room.webhook.status().connections == 0).await;
}

/// What comes until the other side ends the connection.
async fn ended(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> String {
    let mut content = Vec::new();
    let read = timeout(AGES, stream.read_to_end(&mut content)).await.expect("the connection must end");
    if let Err(error) = read {
        assert!(matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset), "{error}");
    }
    String::from_utf8_lossy(&content).into_owned()
}

#[tokio::test]
async fn connections_are_counted_and_the_next_waits() {
    let bounds = Bounds { connections: 2, ..Bounds::default() };
    let room = room_within(Limits::default(), bounds).await;
    let visitor = Visitor::trusting(&room.authorities, HTTP_1);
    let first = visitor.connect(room.address()).await.unwrap();
    let second = visitor.connect(room.address()).await.unwrap();
    until(|| room.webhook.status().connections == 2).await;
    let mut third = Box::pin(visitor.connect(room.address()));
    let waited = timeout(Duration::from_millis(200), &mut third).await;
    assert!(waited.is_err(), "a third connection must wait");
    assert_eq!(room.webhook.status().connections, 2);
    drop(first);
    let third = timeout(AGES, third).await.expect("it has a place now").unwrap();
    drop((second, third));
    until(|| room.webhook.status().connections == 0).await;
}

#[tokio::test]
async fn another_certificate_is_served_to_new_connections_while_old_ones_go_on() {
    let room = room().await;
    let before = Visitor::trusting(&room.authorities, HTTP_2);
    let stream = TokioIo::new(before.connect(room.address()).await.unwrap());
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    let authorities = write_files(&room.folder);
    room.keeper().look(SystemTime::now()).await;
    let after = Visitor::trusting(&authorities, HTTP_2);
    after.connect(room.address()).await.unwrap();
    let fresh = Visitor::trusting(&room.authorities, HTTP_2);
    assert_eq!(fresh.connect(room.address()).await.unwrap_err().kind(), ErrorKind::InvalidData);
    let response = sender.send_request(post("/validate/modelroute", good())).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
}

impl Room {
    /// A look at any time: the running one looks once a minute.
    fn keeper(&self) -> Keeper {
        let served = Arc::clone(&self.webhook.served);
        Keeper::new(None, options(&self.folder), served, Arc::clone(&self.webhook.board))
    }
}

#[tokio::test]
async fn tls_1_2_is_spoken_too() {
    let room = room().await;
    let visitor = Visitor::with_versions(&room.authorities, HTTP_1, &[&version::TLS12]);
    visitor.connect(room.address()).await.unwrap();
}

#[tokio::test]
async fn a_cluster_alone_is_enough_and_the_configuration_trusts_what_is_served() {
    let api = FakeApi::default();
    api.put(CONFIGURATION, configuration());
    let folder = tempfile::tempdir().unwrap();
    let stop = CancellationToken::new();
    let webhook = Webhook::start(Some(api.client().await), options(&folder), stop.clone());
    until(|| webhook.status().trusted == Trusted::Yes && webhook.status().certificate.is_some()).await;
    let configuration = api.get(CONFIGURATION).unwrap();
    let bundle = configuration["webhooks"][0]["clientConfig"]["caBundle"].clone();
    assert_eq!(bundle, api.get(SECRET).unwrap()["data"]["ca.crt"]);
    let bundle: k8s_openapi::ByteString = serde_json::from_value(bundle).unwrap();
    Visitor::trusting(&bundle.0, HTTP_2).connect(webhook.address().unwrap()).await.unwrap();
    let status = webhook.status();
    assert!(status.certificate.is_some_and(|certificate| certificate.until > SystemTime::now() + days(360)));
    stop.cancel();
    timeout(AGES, webhook.ended()).await.unwrap();
}

#[tokio::test]
async fn nothing_is_fatal() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let options = WebhookOptions { listen: taken.local_addr().unwrap(), ..options(&folder) };
    let stop = CancellationToken::new();
    let webhook = Webhook::start(None, options, stop.clone());
    until(|| webhook.status().problems.len() == 2).await;
    let status = webhook.status();
    assert_eq!((status.address, status.certificate), (None, None));
    assert!(status.problems[0].starts_with("cannot listen at 127.0.0.1:"), "{status:?}");
    assert!(status.problems[1].ends_with("the certificate or its key does not exist"), "{status:?}");
    stop.cancel();
    timeout(AGES, webhook.ended()).await.unwrap();
}

#[tokio::test]
async fn a_stop_waits_for_what_is_being_answered_and_not_for_ever() {
    for (drain, finishes) in [(AGES, true), (Duration::from_millis(100), false)] {
        let room = room_within(Limits::default(), Bounds { drain, ..Bounds::default() }).await;
        let (pieces, rest) = mpsc::channel::<Result<Frame<Bytes>, std::io::Error>>(1);
        let slow =
            futures_util::stream::unfold(rest, async |mut rest| rest.recv().await.map(|piece| (piece, rest)));
        let request = post("/validate/modelroute", "").map(|_| StreamBody::new(Box::pin(slow)));
        let visitor = Visitor::trusting(&room.authorities, HTTP_1);
        let stream = TokioIo::new(visitor.connect(room.address()).await.unwrap());
        let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let answer = tokio::spawn(async move { sender.send_request(request).await });
        let body = good();
        let (first, second) = body.split_at(20);
        pieces.send(Ok(Frame::data(Bytes::copy_from_slice(first.as_bytes())))).await.unwrap();
        // The server has begun to read: its part of the held bytes is taken.
        until(|| room.webhook.desk.is_holding(first.len())).await;
        room.stop.cancel();
        if finishes {
            pieces.send(Ok(Frame::data(Bytes::copy_from_slice(second.as_bytes())))).await.unwrap();
            drop(pieces);
            assert_eq!(answer.await.unwrap().unwrap().status(), StatusCode::OK);
        } else {
            assert!(answer.await.unwrap().is_err());
        }
        timeout(AGES, room.webhook.ended()).await.unwrap();
    }
}
