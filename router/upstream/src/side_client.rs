//! The pooled HTTP client for small calls beside the inference traffic.

mod secure;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::uri::Scheme;
use http::{HeaderValue, Request, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Builder, Client};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kvasir_core::{BoxFuture, SideClient, SideError, SideRequest, SideResponse};
use secure::{Roots, SecureClients};

/// How engines know us in their access logs.
const USER_AGENT: HeaderValue = HeaderValue::from_static(concat!("kvasir/", env!("CARGO_PKG_VERSION")));

/// What is read at once, bytes. A connection keeps its buffer while it is idle, and thousands of engines have one each;
/// hyper's own choice would grow to several times this.
const READ_BUFFER: usize = 16 << 10;

/// Sizes and times of the connection pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SideClientOptions {
    /// Longest time to establish one connection; a call's own limit may end it earlier.
    pub connect_timeout: Duration,
    /// Idle connections are dropped after this. The default is below the 5 s after which uvicorn, the server in
    /// front of vLLM and SGLang, closes them, so that a call seldom meets a connection that is just being closed.
    pub idle_timeout: Duration,
    /// Idle connections kept to one host.
    pub idle_per_host: usize,
}

impl Default for SideClientOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(2),
            idle_timeout: Duration::from_secs(4),
            idle_per_host: 32,
        }
    }
}

/// [`SideClient`] over hyper-util's pooled client: straight to the host in the URL, never by way of a proxy from the
/// environment, no redirects followed. Certificates are checked against the system's roots (`SSL_CERT_FILE`), where it
/// has some, else against Mozilla's.
#[derive(Clone, Debug)]
pub struct HyperSideClient {
    plain: Client<HttpConnector, Full<Bytes>>,
    secure: Arc<SecureClients>,
}

impl HyperSideClient {
    /// A client with its own pool.
    pub fn new(options: SideClientOptions) -> Self {
        Self::with_roots(options, Roots::System)
    }

    fn with_roots(options: SideClientOptions, roots: Roots) -> Self {
        let plain = pooled(options).build(connector(options));
        Self { plain, secure: Arc::new(SecureClients::new(options, roots)) }
    }

    async fn exchange(&self, call: SideRequest) -> Result<SideResponse, SideError> {
        let (max_bytes, tls) = (call.max_bytes, call.tls.clone());
        let request = build(call)?;
        let answered = if request.uri().scheme() == Some(&Scheme::HTTPS) {
            self.secure.client(request.uri(), tls.as_ref()).await?.request(request).await
        } else {
            self.plain.request(request).await
        };
        let response = answered.map_err(|error| describe(&error))?;
        let (head, body) = response.into_parts();
        let body = read_bounded(body, max_bytes).await?;
        Ok(SideResponse { status: head.status, headers: head.headers, body })
    }
}

impl Default for HyperSideClient {
    fn default() -> Self {
        Self::new(SideClientOptions::default())
    }
}

impl SideClient for HyperSideClient {
    fn call(&self, request: SideRequest) -> BoxFuture<'_, Result<SideResponse, SideError>> {
        Box::pin(async move {
            let limit = request.timeout;
            tokio::time::timeout(limit, self.exchange(request)).await.unwrap_or(Err(SideError::Timeout))
        })
    }
}

fn connector(options: SideClientOptions) -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(options.connect_timeout));
    connector
}

fn pooled(options: SideClientOptions) -> Builder {
    let mut builder = Client::builder(TokioExecutor::new());
    builder
        .http1_read_buf_exact_size(READ_BUFFER)
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(options.idle_timeout)
        .pool_max_idle_per_host(options.idle_per_host);
    builder
}

fn build(call: SideRequest) -> Result<Request<Full<Bytes>>, SideError> {
    let uri: Uri = call.url.parse().map_err(|error| SideError::Bad(format!("URL: {error}")))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err(SideError::Bad("URL: only http:// and https:// are spoken here".to_owned()));
    }
    if uri.authority().is_none_or(|authority| authority.as_str().contains('@')) {
        return Err(SideError::Bad("URL: a host without user information is needed".to_owned()));
    }
    let mut request = Request::builder().method(call.method).uri(uri).header(header::USER_AGENT, USER_AGENT);
    if !call.body.is_empty() {
        request = request.header(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    request.body(Full::new(call.body)).map_err(|error| SideError::Bad(error.to_string()))
}

/// Reads the body, at most `max_bytes` of it. What is left unread closes its connection.
async fn read_bounded(mut body: Incoming, max_bytes: usize) -> Result<Bytes, SideError> {
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > max_bytes {
        return Err(SideError::TooLarge(max_bytes));
    }
    let mut whole = BytesMut::with_capacity(announced);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| describe(&error))?;
        let Some(data) = frame.data_ref() else { continue };
        if whole.len().saturating_add(data.len()) > max_bytes {
            return Err(SideError::TooLarge(max_bytes));
        }
        whole.extend_from_slice(data);
    }
    Ok(whole.freeze())
}

/// The innermost cause says what happened ("Connection refused"), the outer ones only where.
fn describe(error: &(dyn Error + 'static)) -> SideError {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    SideError::Connect(innermost.to_string())
}

#[cfg(test)]
mod tests;
