use std::time::Duration;

use kvasir_core::{Address, EndpointId, EngineKind, OwnerSlot, Role};
use pingora_core::listeners::tls::{Acceptor, TlsSettings};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::*;
use crate::connection::Connection;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

fn endpoint(socket: SocketAddr, tls: Option<UpstreamTls>) -> Endpoint {
    let plain = Address::parse(&format!("http://{socket}")).unwrap();
    Endpoint {
        id: EndpointId::new("default", "engine", socket.port(), 0),
        slot: OwnerSlot(0),
        address: Address { tls, ..plain },
        engine: EngineKind::Vllm,
        role: Role::Both,
        model: "m".into(),
        pin_rank: false,
        adapters: Vec::new(),
        labels: Default::default(),
        started_at: None,
    }
}

fn connections() -> Connections {
    let limits =
        Limits { connect_timeout: Duration::from_secs(5), ..kvasir_settings::Settings::default().limits };
    Connections::new(&limits, 1)
}

fn head() -> RequestHeader {
    let mut head = RequestHeader::build("GET", b"/health", None).unwrap();
    head.insert_header("host", "engine").unwrap();
    head
}

async fn ask(
    connections: &Connections,
    to: SocketAddr,
    tls: UpstreamTls,
    limit: Option<Duration>,
) -> Result<Leg, LegError> {
    connections.send(&endpoint(to, Some(tls)), limit, head(), Bytes::new(), false).await
}

fn acceptor() -> Acceptor {
    let file = |name| format!("{}/tests/data/{name}", env!("CARGO_MANIFEST_DIR"));
    TlsSettings::intermediate(&file("engine-certificate.pem"), &file("engine-key.pem")).unwrap().build()
}

/// An engine behind TLS that answers every request; counts the handshakes that succeeded.
async fn engine_with_tls() -> (SocketAddr, JoinHandle<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let task = tokio::spawn(async move {
        let (acceptor, mut shaken) = (acceptor(), 0);
        while let Ok((stream, _)) = listener.accept().await {
            let stream = Connection::new(stream, Duration::from_secs(5));
            let Ok(mut stream) = acceptor.tls_handshake(stream).await else { continue };
            shaken += 1;
            let mut request = vec![0; 4096];
            let mut answered = 0;
            while answered < 2 && stream.read(&mut request).await.is_ok_and(|read| read > 0) {
                stream.write_all(ANSWER).await.unwrap();
                stream.flush().await.unwrap();
                answered += 1;
            }
            if answered == 2 {
                break;
            }
        }
        shaken
    });
    (address, task)
}

#[tokio::test]
async fn an_engine_behind_tls_is_spoken_to_and_its_connection_kept() {
    let (address, engine) = engine_with_tls().await;
    let connections = connections();
    let verified = ask(&connections, address, UpstreamTls::Verified("engine.test".into()), None).await;
    assert!(matches!(verified, Err(LegError::Connect)), "nobody trusted signed it: {verified:?}");
    for _ in 0..2 {
        let limit = Some(Duration::from_secs(5));
        let mut leg = ask(&connections, address, UpstreamTls::Unverified, limit).await.unwrap();
        assert_eq!(leg.header().unwrap().status, 200);
        assert_eq!(leg.chunk().await.unwrap().as_deref(), Some(&b"ok"[..]));
        assert_eq!(leg.chunk().await.unwrap(), None);
        leg.release().await;
    }
    assert_eq!(engine.await.unwrap(), 1, "both requests went over one connection");
}

/// The limit covers sending, even to an engine that reads nothing.
#[tokio::test]
async fn the_limit_of_an_attempt_ends_it() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, connections) = (listener.local_addr().unwrap(), connections());
    let limit = Some(Duration::from_millis(50));
    for body in [Bytes::new(), Bytes::from(vec![0; 64 << 20])] {
        let mut head = head();
        head.insert_header("content-length", body.len().to_string()).unwrap();
        let ended = connections.send(&endpoint(address, None), limit, head, body, true).await;
        assert!(matches!(ended, Err(LegError::FirstByte)), "{ended:?}");
    }
}

#[tokio::test]
async fn without_an_answer_to_the_handshake_there_is_no_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let limit = Some(Duration::from_millis(50));
    let ended = ask(&connections(), address, UpstreamTls::Unverified, limit).await;
    assert!(matches!(ended, Err(LegError::Connect)), "{ended:?}");
}
