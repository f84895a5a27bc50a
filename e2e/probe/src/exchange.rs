//! One request and its answer, timed.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::Full;
use kvasir_core::Usage;
use tokio::time::Instant;

use crate::answer::{Said, StreamReader, read_whole};
use crate::base_url::BaseUrl;
use crate::client::{Client, Reply};
use crate::config::{Api, Target};
use crate::error::ProbeError;
use crate::failure::{Failure, FailureKind};

/// Names the endpoint that served; the router sends it when it is told to.
const ENDPOINT_HEADER: HeaderName = HeaderName::from_static("x-kvasir-endpoint");

/// Largest answer that comes in one piece, bytes.
const MAX_ANSWER_BYTES: usize = 16 * 1024 * 1024;

/// How much of an error body is read, bytes.
const MAX_ERROR_BYTES: usize = 16 * 1024;

/// Longest endpoint name kept, bytes.
const MAX_ENDPOINT_BYTES: usize = 200;

/// A whole answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// When the first generated content arrived; `None` without a stream, or without content.
    pub(crate) first_content: Option<Instant>,
    /// When the answer was complete.
    pub(crate) finished: Instant,
    /// Generated text, when it was asked for.
    pub(crate) text: String,
    /// Token counts, when the engine gave them.
    pub(crate) usage: Option<Usage>,
    /// Who served, when the router says so.
    pub(crate) endpoint: Option<Arc<str>>,
}

/// Sends one body and waits for the whole answer. A seam, so that the load runner is tested without a network.
pub(crate) trait Caller: Send + Sync + 'static {
    /// One exchange. `keep_text` asks for the generated text.
    fn call(&self, body: Bytes, keep_text: bool) -> impl Future<Output = Result<Answer, Failure>> + Send;
}

/// Calls the target over HTTP.
#[derive(Debug)]
pub(crate) struct HttpCaller {
    client: Client,
    uri: Uri,
    headers: HeaderMap,
    stream: bool,
    timeout: Duration,
}

impl HttpCaller {
    /// Checks the target's URL and headers.
    pub(crate) fn new(target: &Target) -> Result<Self, ProbeError> {
        let url = BaseUrl::parse(&target.base_url)?;
        let path = match target.api {
            Api::Chat => "/v1/chat/completions",
            Api::Completions => "/v1/completions",
        };
        let accept = if target.stream { "text/event-stream" } else { "application/json" };
        let mut headers = base_headers(&url)?;
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        headers.extend(target.header_map()?);
        Ok(Self {
            uri: url.target(path)?,
            client: Client::new(url),
            headers,
            stream: target.stream,
            timeout: target.timeout,
        })
    }

    async fn exchange(&self, body: Bytes, keep_text: bool) -> Result<Answer, Failure> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        let mut reply = self.client.send(request).await?;
        if reply.status() != StatusCode::OK {
            let body = reply.beginning(MAX_ERROR_BYTES).await;
            return Err(Failure::status(reply.status().as_u16(), &body));
        }
        let endpoint = reply
            .header(&ENDPOINT_HEADER)
            .filter(|name| !name.is_empty() && name.len() <= MAX_ENDPOINT_BYTES)
            .map(Arc::from);
        let (said, first_content) = if self.stream {
            read_stream(&mut reply, keep_text).await?
        } else {
            (read_whole(&reply.whole(MAX_ANSWER_BYTES).await?, keep_text)?, None)
        };
        Ok(Answer { first_content, finished: Instant::now(), text: said.text, usage: said.usage, endpoint })
    }
}

impl Caller for HttpCaller {
    async fn call(&self, body: Bytes, keep_text: bool) -> Result<Answer, Failure> {
        match tokio::time::timeout(self.timeout, self.exchange(body, keep_text)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Failure::timeout(self.timeout)),
        }
    }
}

/// The headers that every request to a server has.
pub(crate) fn base_headers(url: &BaseUrl) -> Result<HeaderMap, ProbeError> {
    let host = HeaderValue::try_from(url.authority.as_str())
        .map_err(|_| ProbeError::BadUrl { url: url.to_string(), reason: "its host is not usable" })?;
    let mut headers = HeaderMap::new();
    headers.insert(HOST, host);
    Ok(headers)
}

async fn read_stream(reply: &mut Reply<'_>, keep_text: bool) -> Result<(Said, Option<Instant>), Failure> {
    let is_stream = reply.header(&CONTENT_TYPE).is_some_and(|kind| kind.starts_with("text/event-stream"));
    if !is_stream {
        let message = "a stream was asked for, and the answer is no text/event-stream";
        return Err(Failure::new(FailureKind::BadAnswer, message));
    }
    let mut reader = StreamReader::new(keep_text);
    let mut first_content = None;
    while let Some(bytes) = reply.chunk().await? {
        reader.feed(&bytes)?;
        if first_content.is_none() && reader.has_content() {
            first_content = Some(Instant::now());
        }
    }
    Ok((reader.end()?, first_content))
}

#[cfg(test)]
mod tests;
