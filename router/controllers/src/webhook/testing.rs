//! What tests of the webhook share: an API server that knows two objects, and clients that speak TLS.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, version};

use super::material::{certificates, provider};

pub const SECRET: &str = "/api/v1/namespaces/models/secrets/certs";
pub const CONFIGURATION: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/hooks";

/// 2026-01-01.
pub fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_767_225_600)
}

pub fn days(count: u64) -> Duration {
    Duration::from_secs(count * 24 * 60 * 60)
}

/// An API server over plain HTTP, with optimistic concurrency as the real one has.
#[derive(Clone, Default)]
pub struct FakeApi {
    inner: Arc<Mutex<FakeInner>>,
}

#[derive(Default)]
struct FakeInner {
    objects: BTreeMap<String, Value>,
    version: u64,
    forbidden: Vec<(Method, &'static str)>,
    calls: Vec<(Method, String)>,
    /// Put in place, once, just before the next write is looked at: another replica is faster.
    faster: Option<(String, Value)>,
}

impl FakeApi {
    /// Serves it; gives a client.
    pub async fn client(&self) -> kube::Client {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let api = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let api = api.clone();
                tokio::spawn(http1::Builder::new().serve_connection(
                    TokioIo::new(stream),
                    service_fn(move |request| {
                        let api = api.clone();
                        async move { Ok::<_, Infallible>(api.answer(request).await) }
                    }),
                ));
            }
        });
        kube::Client::try_from(kube::Config::new(uri)).unwrap()
    }

    pub fn put(&self, path: &str, object: Value) {
        self.inner.lock().put(path, object);
    }

    pub fn get(&self, path: &str) -> Option<Value> {
        self.inner.lock().objects.get(path).cloned()
    }

    pub fn remove(&self, path: &str) {
        self.inner.lock().objects.remove(path);
    }

    pub fn forbid(&self, method: Method, part: &'static str) {
        self.inner.lock().forbidden.push((method, part));
    }

    pub fn permit_all(&self) {
        self.inner.lock().forbidden.clear();
    }

    pub fn be_faster(&self, path: &str, object: Value) {
        self.inner.lock().faster = Some((path.to_owned(), object));
    }

    /// Writes since the last call of this.
    pub fn writes(&self) -> Vec<(Method, String)> {
        let calls = std::mem::take(&mut self.inner.lock().calls);
        calls.into_iter().filter(|(method, _)| method != Method::GET).collect()
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let sent = serde_json::from_slice::<Value>(&body).unwrap_or_default();
        let (status, answer) = self.inner.lock().answer(&head.method, head.uri.path(), sent);
        Response::builder()
            .status(status)
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(answer.to_string())))
            .unwrap()
    }
}

impl FakeInner {
    fn put(&mut self, path: &str, mut object: Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.objects.insert(path.to_owned(), object);
    }

    fn answer(&mut self, method: &Method, path: &str, sent: Value) -> (StatusCode, Value) {
        self.calls.push((method.clone(), path.to_owned()));
        if self.forbidden.iter().any(|(verb, part)| verb == method && path.contains(part)) {
            return failure(StatusCode::FORBIDDEN);
        }
        if method != Method::GET
            && let Some((path, object)) = self.faster.take()
        {
            self.put(&path, object);
        }
        if method == Method::POST {
            let path = format!("{path}/{}", sent["metadata"]["name"].as_str().unwrap());
            if self.objects.contains_key(&path) {
                return failure(StatusCode::CONFLICT);
            }
            self.put(&path, sent);
            return (StatusCode::CREATED, self.objects[&path].clone());
        }
        let Some(there) = self.objects.get(path).cloned() else { return failure(StatusCode::NOT_FOUND) };
        if method == Method::PUT {
            if there["metadata"]["resourceVersion"] != sent["metadata"]["resourceVersion"] {
                return failure(StatusCode::CONFLICT);
            }
            self.put(path, sent);
        } else if method == Method::PATCH {
            let mut patched = there;
            for patch in sent["webhooks"].as_array().unwrap() {
                let hooks = patched["webhooks"].as_array_mut().unwrap();
                let hook = hooks.iter_mut().find(|hook| hook["name"] == patch["name"]).unwrap();
                hook["clientConfig"]["caBundle"] = patch["clientConfig"]["caBundle"].clone();
            }
            self.put(path, patched);
        }
        (StatusCode::OK, self.objects[path].clone())
    }
}

fn failure(code: StatusCode) -> (StatusCode, Value) {
    let reason = match code {
        StatusCode::NOT_FOUND => "NotFound",
        StatusCode::CONFLICT => "Conflict",
        _ => "Forbidden",
    };
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code.as_u16(),
        "message": "as told", "reason": reason});
    (code, status)
}

/// A configuration with two hooks, as the chart has it before anybody patched it.
pub fn configuration() -> Value {
    let hook = |name: &str| {
        json!({"name": name, "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 30,
            "clientConfig": {"service": {"name": "webhook", "namespace": "models", "path": "/validate/x"}}})
    };
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "hooks"}, "webhooks": [hook("a.test"), hook("b.test")],
    })
}

/// How a client comes.
pub struct Visitor {
    config: ClientConfig,
}

impl Visitor {
    /// One that trusts these authorities, PEM, and speaks one version of HTTP.
    pub fn trusting(authorities: &[u8], protocol: &[u8]) -> Self {
        Self::with_versions(authorities, protocol, &[&version::TLS13, &version::TLS12])
    }

    pub fn with_versions(
        authorities: &[u8],
        protocol: &[u8],
        versions: &[&'static tokio_rustls::rustls::SupportedProtocolVersion],
    ) -> Self {
        let mut roots = RootCertStore::empty();
        for authority in certificates(authorities).unwrap() {
            roots.add(authority).unwrap();
        }
        let mut config = ClientConfig::builder_with_provider(Arc::new(provider()))
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![protocol.to_vec()];
        Self { config }
    }

    /// A connection to the server of that name. The server's clock is the real one here, and so is the client's.
    pub async fn connect(&self, to: SocketAddr) -> std::io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(to).await?;
        let name = ServerName::try_from("webhook.models.svc").unwrap();
        TlsConnector::from(Arc::new(self.config.clone())).connect(name, stream).await
    }
}
