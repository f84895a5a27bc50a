//! Asks one engine what it is, for the start-up lines and the event sources.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};
use kvasir_core::{AdapterName, Address, EngineKind, ModelName, SideClient, SideError, SideRequest};
use serde::Deserialize;

use crate::model_list::{ListedModel, read_model_list};

/// Every answer asked for here is small; SGLang's `/server_info` is the largest, some 20 kB.
const MAX_BYTES: usize = 1 << 20;
/// Longest version text kept, bytes.
const MAX_VERSION_BYTES: usize = 100;

/// An adapter that an engine lists.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AdapterListing {
    /// Its name.
    pub name: AdapterName,
    /// The model it adapts, as the engine lists it.
    pub parent: ModelName,
}

/// What one engine said about itself.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Discovery {
    /// Its version; `None` when it does not say.
    pub engine_version: Option<String>,
    /// The names it serves, adapters apart.
    pub served_models: Vec<ModelName>,
    /// The adapters it lists.
    pub adapters: Vec<AdapterListing>,
    /// The body of `/kv_event_sources` as it came; `None` where the engine has no such path (vLLM before 0.32,
    /// SGLang). The event subscriber reads it.
    pub event_sources_body: Option<Bytes>,
    /// What an operator should know: one sentence with the fix. The first of several.
    pub problem: Option<String>,
}

/// Asks the engine at `address`. Never fails: what could not be had is `None` or empty, and `problem` says why.
///
/// Takes at most twice `timeout`. Safe to repeat.
pub async fn discover(
    client: &dyn SideClient,
    address: &Address,
    engine: EngineKind,
    timeout: Duration,
) -> Discovery {
    let asker = Asker { client, address, url: address.url(), timeout };
    let mut found = Discovery::default();
    match asker.get("/v1/models").await {
        Ok((StatusCode::OK, body)) => match read_model_list(&body) {
            Ok(models) => take_models(&mut found, models, engine, &asker.url),
            Err(reason) => {
                found.problem =
                    Some(format!("{}/v1/models: {reason}; is this an OpenAI-compatible engine?", asker.url));
            }
        },
        Ok((status, _)) => {
            found.problem = Some(format!(
                "{}/v1/models answered {}; is this an OpenAI-compatible engine?",
                asker.url,
                status.as_u16()
            ));
        }
        Err(error) => {
            found.problem = Some(format!("{} cannot be asked: {error}; is the engine up?", asker.url));
            return found;
        }
    }
    match engine {
        EngineKind::Vllm => {
            let (version, sources) = tokio::join!(asker.get("/version"), asker.get("/kv_event_sources"));
            found.engine_version = ok_body(version).and_then(|body| read_version(&body));
            found.event_sources_body = ok_body(sources);
        }
        EngineKind::Sglang => {
            found.engine_version =
                ok_body(asker.get("/server_info").await).and_then(|body| read_version(&body));
        }
    }
    found
}

struct Asker<'a> {
    client: &'a dyn SideClient,
    address: &'a Address,
    url: String,
    timeout: Duration,
}

impl Asker<'_> {
    async fn get(&self, path: &str) -> Result<(StatusCode, Bytes), SideError> {
        let request = SideRequest {
            method: Method::GET,
            url: format!("{}{path}", self.url),
            tls: self.address.tls.clone(),
            body: Bytes::new(),
            timeout: self.timeout,
            max_bytes: MAX_BYTES,
        };
        self.client.call(request).await.map(|answer| (answer.status, answer.body))
    }
}

fn ok_body(answer: Result<(StatusCode, Bytes), SideError>) -> Option<Bytes> {
    answer.ok().filter(|(status, _)| *status == StatusCode::OK).map(|(_, body)| body)
}

fn take_models(found: &mut Discovery, models: Vec<ListedModel>, engine: EngineKind, url: &str) {
    for model in models {
        if let Some(other) = model.owned_by.as_deref().and_then(other_engine(engine)) {
            found.problem.get_or_insert_with(|| {
                format!("{url} is {other}, but is set up as {}; set its engine to {other}", engine.as_str())
            });
        }
        // SGLang lists an adapter's parent too; both list none for a base model.
        match model.is_adapter().then_some(model.parent).flatten() {
            Some(parent) => found
                .adapters
                .push(AdapterListing { name: AdapterName::from(model.id), parent: ModelName::from(parent) }),
            None => found.served_models.push(ModelName::from(model.id)),
        }
    }
    if found.served_models.is_empty() {
        found.problem.get_or_insert_with(|| format!("{url}/v1/models lists no model; is it still loading?"));
    }
}

/// The engine that an `owned_by` names, when that is not the one expected. Users may set the field freely in
/// other servers, so only the two known words count.
fn other_engine(expected: EngineKind) -> impl Fn(&str) -> Option<&'static str> {
    move |owner| {
        [EngineKind::Vllm, EngineKind::Sglang]
            .into_iter()
            .find(|kind| kind.as_str() == owner && *kind != expected)
            .map(EngineKind::as_str)
    }
}

fn read_version(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Answer {
        version: String,
    }
    let answer: Answer = serde_json::from_slice(body).ok()?;
    let plain = !answer.version.is_empty()
        && answer.version.len() <= MAX_VERSION_BYTES
        && answer.version.bytes().all(|byte| byte.is_ascii_graphic());
    plain.then_some(answer.version)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use kvasir_core::{BoxFuture, SideResponse};

    use super::*;

    /// Answers by path; a path that is missing is a 404, an empty map refuses connections.
    struct Canned(BTreeMap<&'static str, &'static str>);

    impl SideClient for Canned {
        fn call(&self, request: SideRequest) -> BoxFuture<'_, Result<SideResponse, SideError>> {
            let path = request.url.strip_prefix("http://a:8000/p").unwrap_or_default().to_owned();
            let answer = self.0.get(path.as_str()).copied();
            Box::pin(async move {
                if self.0.is_empty() {
                    return Err(SideError::Connect("Connection refused".to_owned()));
                }
                let status = if answer.is_some() { StatusCode::OK } else { StatusCode::NOT_FOUND };
                let body = Bytes::from_static(answer.unwrap_or("{\"detail\":\"Not Found\"}").as_bytes());
                Ok(SideResponse { status, headers: http::HeaderMap::new(), body })
            })
        }
    }

    /// Path and body.
    type Answer = (&'static str, &'static str);

    async fn ask(engine: EngineKind, answers: &[Answer]) -> Discovery {
        let client = Canned(answers.iter().copied().collect());
        let address = Address::parse("http://a:8000/p").expect("a good URL");
        discover(&client, &address, engine, Duration::from_secs(1)).await
    }

    const VLLM_LIST: &str = r#"{"data":[{"id":"base","owned_by":"vllm","parent":null},
        {"id":"sql","owned_by":"vllm","parent":"base"}]}"#;

    #[tokio::test]
    async fn a_vllm_engine_tells_everything() {
        let sources = r#"{"0":{"endpoint":"tcp://*:15557"}}"#;
        let found = ask(
            EngineKind::Vllm,
            &[
                ("/v1/models", VLLM_LIST),
                ("/version", r#"{"version":"0.32.0"}"#),
                ("/kv_event_sources", sources),
            ],
        )
        .await;
        assert_eq!(found.engine_version.as_deref(), Some("0.32.0"));
        assert_eq!(found.served_models, [ModelName::from("base")]);
        assert_eq!(found.adapters, [AdapterListing { name: "sql".into(), parent: "base".into() }]);
        assert_eq!(found.event_sources_body.as_deref(), Some(sources.as_bytes()));
        assert_eq!(found.problem, None);
    }

    #[tokio::test]
    async fn an_older_engine_has_no_event_sources() {
        let found = ask(EngineKind::Vllm, &[("/v1/models", VLLM_LIST), ("/version", "0.18")]).await;
        assert_eq!((found.engine_version, found.event_sources_body, found.problem), (None, None, None));
    }

    #[tokio::test]
    async fn sglang_tells_its_version_elsewhere() {
        let list = r#"{"data":[{"id":"m","owned_by":"sglang"}]}"#;
        let found =
            ask(EngineKind::Sglang, &[("/v1/models", list), ("/server_info", r#"{"version":"0.5.23"}"#)])
                .await;
        assert_eq!((found.engine_version.as_deref(), found.problem), (Some("0.5.23"), None));
    }

    #[tokio::test]
    async fn problems_name_the_fix() {
        let cases: [(&[Answer], EngineKind, &str); 5] = [
            (&[], EngineKind::Vllm, "is the engine up?"),
            (&[("/version", "{}")], EngineKind::Vllm, "answered 404"),
            (&[("/v1/models", "<html>")], EngineKind::Vllm, "not a model list"),
            (&[("/v1/models", "{\"data\":[]}")], EngineKind::Vllm, "lists no model"),
            (&[("/v1/models", VLLM_LIST)], EngineKind::Sglang, "set its engine to vllm"),
        ];
        for (answers, engine, part) in cases {
            let problem = ask(engine, answers).await.problem.unwrap_or_default();
            assert!(problem.contains(part) && problem.contains("http://a:8000/p"), "{part:?}: {problem:?}");
        }
    }
}
