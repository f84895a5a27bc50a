//! Asks a server which model it serves.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::Full;
use serde::Deserialize;

use crate::base_url::BaseUrl;
use crate::client::Client;
use crate::config::Target;
use crate::error::ProbeError;
use crate::exchange::base_headers;
use crate::failure::{Failure, FailureKind};

/// Longest wait for a small page.
const PAGE_TIMEOUT: Duration = Duration::from_secs(10);

/// Largest page, bytes. The metrics of a vLLM with many models are some hundred kB.
const MAX_PAGE_BYTES: usize = 16 * 1024 * 1024;

/// How much of an error page is read, bytes.
const MAX_ERROR_BYTES: usize = 16 * 1024;

#[derive(Deserialize)]
struct ModelList {
    data: Vec<ListedModel>,
}

#[derive(Deserialize)]
struct ListedModel {
    id: String,
}

/// The first model that the target's `/v1/models` names. Only the URL and the headers of the target are used.
pub async fn first_model(target: &Target) -> Result<String, ProbeError> {
    let client = Client::new(BaseUrl::parse(&target.base_url)?);
    let no_model = |reason: String| ProbeError::NoModel { url: client.url().to_string(), reason };
    let headers = target.header_map()?;
    let page = fetch(&client, "/v1/models", &headers).await.map_err(|failure| no_model(failure.message))?;
    let list: ModelList =
        serde_json::from_slice(&page).map_err(|_| no_model("its answer is no list of models".to_owned()))?;
    list.data.into_iter().next().map(|model| model.id).ok_or_else(|| no_model("the list is empty".to_owned()))
}

/// A small page: its body, or why it cannot be had.
pub(crate) async fn fetch(client: &Client, path: &str, headers: &HeaderMap) -> Result<Bytes, Failure> {
    let unusable = |error: ProbeError| Failure::new(FailureKind::Connect, &error.to_string());
    let mut request = Request::new(Full::default());
    *request.method_mut() = Method::GET;
    *request.uri_mut() = client.url().target(path).map_err(unusable)?;
    *request.headers_mut() = base_headers(client.url()).map_err(unusable)?;
    request.headers_mut().extend(headers.clone());
    let exchange = async {
        let mut reply = client.send(request).await?;
        if reply.status() != StatusCode::OK {
            let body = reply.beginning(MAX_ERROR_BYTES).await;
            return Err(Failure::status(reply.status().as_u16(), &body));
        }
        reply.whole(MAX_PAGE_BYTES).await
    };
    match tokio::time::timeout(PAGE_TIMEOUT, exchange).await {
        Ok(outcome) => outcome,
        Err(_) => Err(Failure::timeout(PAGE_TIMEOUT)),
    }
}
