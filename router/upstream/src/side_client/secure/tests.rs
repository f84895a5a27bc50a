use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::Method;
use kvasir_core::{SideClient as _, SideRequest};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use super::*;
use crate::HyperSideClient;

/// An engine whose certificate is of `engine.test`, signed by itself.
struct Engine {
    address: SocketAddr,
    roots: Arc<RootCertStore>,
    handshakes: Arc<AtomicUsize>,
}

impl Engine {
    async fn start() -> Self {
        let made = rcgen::generate_simple_self_signed(["engine.test".to_owned()]).unwrap();
        let certificate = made.cert.der().clone();
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).unwrap();
        let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
        let config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let handshakes = Arc::new(AtomicUsize::new(0));
        tokio::spawn(serve(listener, TlsAcceptor::from(Arc::new(config)), Arc::clone(&handshakes)));
        Self { address, roots: Arc::new(roots), handshakes }
    }

    fn client(&self) -> HyperSideClient {
        HyperSideClient::with_roots(SideClientOptions::default(), Roots::Only(Arc::clone(&self.roots)))
    }

    fn ask(&self, tls: Option<UpstreamTls>) -> SideRequest {
        SideRequest {
            method: Method::GET,
            url: format!("https://{}/metrics", self.address),
            tls,
            body: Bytes::new(),
            timeout: Duration::from_secs(20),
            max_bytes: 1000,
        }
    }
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, handshakes: Arc<AtomicUsize>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, handshakes) = (acceptor.clone(), Arc::clone(&handshakes));
        tokio::spawn(async move {
            let Ok(mut stream) = acceptor.accept(stream).await else { return };
            handshakes.fetch_add(1, Ordering::SeqCst);
            let mut seen = Vec::new();
            while stream.read_buf(&mut seen).await.is_ok_and(|read| read > 0) {
                if seen.ends_with(b"\r\n\r\n") {
                    seen.clear();
                    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
                    let _ = stream.write_all(answer).await;
                    let _ = stream.flush().await;
                }
            }
        });
    }
}

fn of(name: &str) -> Option<UpstreamTls> {
    Some(UpstreamTls::Verified(name.into()))
}

#[tokio::test]
async fn a_certificate_must_be_of_the_name_that_was_asked_for() {
    let engine = Engine::start().await;
    let client = engine.client();
    let answer = client.call(engine.ask(of("engine.test"))).await.unwrap();
    assert_eq!((answer.status.as_u16(), &*answer.body), (200, b"ok".as_slice()));
    // It is not of this address, nor of another name.
    for tls in [None, of("127.0.0.1"), of("other.test")] {
        let refused = client.call(engine.ask(tls.clone())).await;
        assert!(matches!(&refused, Err(SideError::Connect(text)) if text.contains("certificate")), "{tls:?}");
    }
    let bad = client.call(engine.ask(of("no name"))).await;
    assert!(matches!(bad, Err(SideError::Bad(_))), "{bad:?}");
}

#[tokio::test]
async fn the_system_does_not_trust_what_signed_itself() {
    let engine = Engine::start().await;
    let client = HyperSideClient::default();
    let refused = client.call(engine.ask(of("engine.test"))).await;
    assert!(matches!(&refused, Err(SideError::Connect(text)) if text.contains("certificate")), "{refused:?}");
}

#[tokio::test]
async fn an_unverified_engine_is_reached_over_connections_of_its_own() {
    let engine = Engine::start().await;
    let client = HyperSideClient::default();
    let answer = client.call(engine.ask(Some(UpstreamTls::Unverified))).await.unwrap();
    assert_eq!(answer.status.as_u16(), 200);
    // The connection that nobody checked must not answer a call that asks for a check.
    assert!(client.call(engine.ask(of("engine.test"))).await.is_err());
    assert!(client.call(engine.ask(None)).await.is_err());
    assert_eq!(engine.handshakes.load(Ordering::SeqCst), 1);
}

#[test]
fn the_host_of_the_url_is_one_way_however_it_is_said() {
    let uri: Uri = "https://a:8443/x".parse().unwrap();
    assert_eq!(Way::of(&uri, None), Way::OfHost);
    assert_eq!(Way::of(&uri, of("a").as_ref()), Way::OfHost);
    assert_eq!(Way::of(&uri, of("b").as_ref()), Way::Of("b".into()));
    assert_eq!(Way::of(&uri, Some(&UpstreamTls::Unverified)), Way::Unverified);
}
