//! Asking an engine for the ids of a probe: by its renderer, which shares the code of its generation path, else by
//! `/tokenize`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kvasir_core::{
    Address, Endpoint, EngineKind, InferenceRequest, SideClient, SideError, SideRequest, SideResponse,
    UpstreamTls,
};
use serde::{Deserialize, Serialize};

use super::ProbeTarget;
use crate::remote;

/// How long one call may take. Nobody waits for it; an engine under load answers late.
const PATIENCE: Duration = Duration::from_secs(5);

/// Most bytes of an answer: the ids of a page of text, with sampling parameters around them.
const MAX_BYTES: usize = 1 << 20;

/// Which of the engine's endpoints told its ids.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Via {
    /// `/v1/*/render`
    Render,
    /// `/tokenize`
    Tokenize,
}

impl Via {
    /// Lower-case name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Render => "render",
            Self::Tokenize => "tokenize",
        }
    }
}

/// Where one engine listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EngineUrls {
    /// Base URL of the inference port.
    pub base: String,
    /// URL of `/tokenize`.
    pub tokenize: String,
    /// How the certificate behind an `https://` URL is checked; `None` is by its host.
    pub tls: Option<UpstreamTls>,
}

impl EngineUrls {
    /// Everything on one port.
    pub fn of_base(url: &str) -> Self {
        let base = url.trim_end_matches('/').to_owned();
        Self { tokenize: format!("{base}/tokenize"), base, tls: None }
    }

    /// An endpoint's, with `/tokenize` on another port where one is configured.
    pub fn of(endpoint: &Endpoint, port: Option<u16>) -> Self {
        Self {
            base: endpoint.address.url(),
            tokenize: remote::tokenize_url(endpoint, port),
            tls: endpoint.address.tls.clone(),
        }
    }
}

/// What the engine said.
#[derive(Debug)]
pub enum Answer {
    /// Its ids.
    Ids(Vec<u32>, Via),
    /// It does not take such requests.
    Refused,
    /// It could not be asked.
    Failed(String),
}

/// The engine's ids for a request.
pub async fn ids(client: &Arc<dyn SideClient>, target: &ProbeTarget, request: &InferenceRequest) -> Answer {
    if target.engine == EngineKind::Vllm {
        let url = format!("{}{}/render", target.urls.base, request.kind.path_label());
        match call(client, http::Method::POST, url, &target.urls.tls, request.body.clone()).await {
            Err(error) => return Answer::Failed(error.to_string()),
            Ok(answer) => match read(&answer, rendered, Via::Render) {
                // Without a parser of tool calls the renderer takes no tools; older engines have none at all. The other
                // endpoint knows the template, too, and agrees with the renderer on all that probes hold.
                Answer::Refused => {}
                other => return other,
            },
        }
    }
    let Ok(body) = remote::body::build(target.engine, request) else { return Answer::Refused };
    match call(client, http::Method::POST, target.urls.tokenize.clone(), &target.urls.tls, body).await {
        Err(error) => Answer::Failed(error.to_string()),
        Ok(answer) => read(&answer, |body| remote::answer::ids(body).ok(), Via::Tokenize),
    }
}

/// The engine's version; none when it does not tell.
///
/// # Errors
/// When the engine cannot be reached.
pub async fn engine_version(
    client: &Arc<dyn SideClient>,
    address: &Address,
    engine: EngineKind,
) -> Result<Option<String>, SideError> {
    #[derive(Deserialize)]
    struct Version {
        version: String,
    }
    let path = match engine {
        EngineKind::Vllm => "/version",
        EngineKind::Sglang => "/server_info",
    };
    let url = format!("{}{path}", address.url());
    let answer = call(client, http::Method::GET, url, &address.tls, Bytes::new()).await?;
    let known = answer.status.is_success().then(|| serde_json::from_slice::<Version>(&answer.body).ok());
    Ok(known.flatten().map(|known| known.version))
}

async fn call(
    client: &Arc<dyn SideClient>,
    method: http::Method,
    url: String,
    tls: &Option<UpstreamTls>,
    body: Bytes,
) -> Result<SideResponse, SideError> {
    let tls = tls.clone();
    client.call(SideRequest { method, url, tls, body, timeout: PATIENCE, max_bytes: MAX_BYTES }).await
}

fn read(answer: &SideResponse, ids: impl Fn(&[u8]) -> Option<Vec<u32>>, via: Via) -> Answer {
    match answer.status.as_u16() {
        200 => match ids(&answer.body) {
            Some(ids) => Answer::Ids(ids, via),
            None => Answer::Failed(format!("the answer of {} is not understood", via.as_str())),
        },
        // 403: `vllm serve` keeps its render endpoints shut unless it was started with --enable-scale-out.
        400 | 403 | 404 | 405 | 413 | 422 | 501 => Answer::Refused,
        status => Answer::Failed(format!("status {status} of {}", via.as_str())),
    }
}

/// The ids of a renderer's answer: an object for a chat, a list of one for a prompt.
fn rendered(body: &[u8]) -> Option<Vec<u32>> {
    #[derive(Deserialize)]
    struct Rendered {
        token_ids: Vec<u32>,
    }
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Shape {
        One(Rendered),
        List(Vec<Rendered>),
    }
    match serde_json::from_slice(body).ok()? {
        Shape::One(rendered) => Some(rendered.token_ids),
        Shape::List(mut list) if list.len() == 1 => list.pop().map(|rendered| rendered.token_ids),
        Shape::List(_) => None,
    }
}
