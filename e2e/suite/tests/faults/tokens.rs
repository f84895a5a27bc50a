//! Tokens: each model its own tokenizer, every form of prompt, and sources that fail without anybody waiting.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kvasir_core::TokenSource;
use kvasir_mock_engine::{Engine, EngineConfig, HuggingFace};
use kvasir_suite::client::{post, send};
use kvasir_suite::paths::{Paths, Reply, answer};
use kvasir_suite::router::{MODEL, Router, model, settings};
use kvasir_suite::{GUARD, eventually};
use serde_json::{Value, json};

use crate::fleet::{complete, completion, pair, quick, served, text};
use crate::sources;

/// TOK-08. One model's engines split words, the other's use a real vocabulary; both counts must be their engine's.
#[tokio::test(flavor = "multi_thread")]
async fn each_model_is_tokenized_as_its_own_engines_do() -> anyhow::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo/tokenizer");
    let words = Engine::start(quick()).await?;
    let vocabulary: Arc<HuggingFace> = Arc::new(HuggingFace::load(&folder)?);
    let other =
        Engine::start(EngineConfig { model: "other".to_owned(), tokenizer: vocabulary, ..quick() }).await?;
    let mut settings = settings(&[words.url()])?;
    settings.models.push(model("other", &[other.url()])?);
    settings.models[1].tokenizer = Some(folder);
    let router = Router::start(settings).await?;
    let proof = |name: &str, source: &str, result: &str| {
        let labels = format!("{{model=\"{name}\",result=\"{result}\",source=\"{source}\"}}");
        router.metric(&format!("kvasir_prompt_tokens_proof_total{labels}")).unwrap_or(0.0)
    };
    // An engine that is asked for tokens has ten milliseconds; on a busy machine some calls take longer.
    let deadline = Instant::now() + GUARD;
    for number in 0.. {
        for name in [MODEL, "other", MODEL] {
            complete(router.inference, completion(name, &text(&format!("tokenization{number}"), 100)))
                .await?;
        }
        if proof(MODEL, "engine", "equal") >= 4.0 && proof("other", "local", "equal") >= 2.0 {
            break;
        }
        assert!(Instant::now() < deadline, "not proven: {}", router.metrics_page());
    }
    assert_eq!((proof(MODEL, "engine", "differs"), proof("other", "local", "differs")), (0.0, 0.0));
    Ok(())
}

/// TOK-09.
#[tokio::test(flavor = "multi_thread")]
async fn every_legal_form_of_prompt_passes_unchanged() -> anyhow::Result<()> {
    let engine = Engine::start(quick()).await?;
    let router = Router::start(settings(&[engine.url()])?).await?;
    let ids: Vec<String> = (1..=40).map(|id| id.to_string()).collect();
    let flat = format!("[ {} ]", ids.join(", "));
    let tokenize_calls = || engine.requests().iter().filter(|one| one.path == "/tokenize").count();
    for (prompt, asked) in [(r#""x""#, 1), (r#"["x","y"]"#, 0), (flat.as_str(), 0), ("[[1,2],[3,4]]", 0)] {
        let before = (served(&engine), tokenize_calls());
        let body = completion(MODEL, prompt);
        let answer = complete(router.inference, body.clone()).await?;
        let id =
            answer.headers().get("x-request-id").and_then(|value| value.to_str().ok()).unwrap_or_default();
        let requests = engine.requests();
        let arrived = requests.iter().rfind(|one| one.path == "/v1/completions").map(|one| one.body.clone());
        assert_eq!(arrived, Some(body.into()), "{prompt}");
        assert_eq!((served(&engine), tokenize_calls()), (before.0 + 1, before.1 + asked), "{prompt}");
        eventually("the decision is recorded", || router.gateway.ring.get(id).is_some()).await;
        let record = router.gateway.ring.get(id);
        let source = record.as_ref().and_then(|record| record.tokens.source);
        let missing = record.as_ref().and_then(|record| record.tokens.missing.as_deref()).unwrap_or_default();
        match prompt {
            // On a busy machine the engine's tokens may come too late.
            r#""x""# => {
                assert!(source == Some(TokenSource::Engine.as_str()) || missing.contains("timed out"))
            }
            prompt if prompt == flat => assert_eq!(source, Some(TokenSource::Given.as_str())),
            _ => assert_eq!((source, missing), (None, "requests of this kind are not tokenized"), "{prompt}"),
        }
        if prompt == flat {
            assert_eq!(record.map(|record| record.tokens.prompt_tokens), Some(40));
        }
    }
    for illegal in ["null", "[]", "{}", "7"] {
        let answer = send(router.inference, post("/v1/completions", completion(MODEL, illegal))?).await?;
        assert_eq!(answer.status(), 400, "{illegal}");
        assert!(serde_json::from_slice::<Value>(answer.body())?["error"].is_object(), "{illegal}");
    }
    let missing =
        send(router.inference, post("/v1/completions", format!(r#"{{"model":"{MODEL}"}}"#))?).await?;
    assert_eq!(missing.status(), 400);
    Ok(())
}

/// TOK-12. The service is asked once, and while it is left alone nobody waits for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_source_that_fails_costs_little_and_is_left_alone() -> anyhow::Result<()> {
    let json = "application/json";
    let cases = [
        ("hangs", Some(Reply::Hang)),
        ("500", Some(answer("500 Internal Server Error", json, r#"{"error":"boom"}"#))),
        ("invalid", Some(answer("200 OK", json, r#"{"tokens":"no"#))),
        ("401", Some(answer("401 Unauthorized", json, r#"{"error":"who?"}"#))),
        ("cut", Some(Reply::Cut("HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\n{\"tokens\":[1,".into()))),
        ("refused", None),
    ];
    for (name, reply) in cases {
        let service = Paths::start().await?;
        let url = service.url();
        let service = reply.map(|reply| {
            service.tell("/tokenize", reply);
            service
        });
        let (engines, mut settings) = pair(&EngineConfig { events: None, ..quick() }).await?;
        let args = &mut settings.scheduler.args.kvcache_aware;
        args.order = vec![TokenSource::Service];
        args.tokenizer_service.enabled = true;
        args.tokenizer_service.endpoint = url;
        let router = Router::start(settings).await?;
        let began = Instant::now();
        let mut waited = Vec::new();
        for number in 0..10 {
            let mut request = post("/v1/completions", completion(MODEL, &text(&format!("p{number}"), 60)))?;
            request.headers_mut().insert("x-request-id", format!("r-{number}").parse()?);
            assert_eq!(send(router.inference, request).await?.status(), 200, "{name}");
            let id = format!("r-{number}");
            eventually("the decision is recorded", || router.gateway.ring.get(&id).is_some()).await;
            waited.extend(router.gateway.ring.get(&id).map(|record| record.gather_us));
        }
        let took = began.elapsed();
        assert!(waited[0] < 150_000, "{name}: {waited:?} us");
        // The first pause is half a second; after it one call may try again.
        if took < Duration::from_millis(500) {
            let asked = service.as_ref().map_or(1, |service| service.asked("/tokenize"));
            assert_eq!(asked, 1, "{name}: asked again in {took:?}");
            assert!(waited.iter().skip(1).all(|us| *us < 50_000), "{name}: {waited:?} us");
        }
        let failed =
            format!("kthena_router_kvcache_aware_errors_total{{model=\"{MODEL}\",stage=\"tokenize\"}}");
        assert_eq!(router.metric(&failed), Some(10.0), "{name}");
        let reason = format!("kvasir_untokenized_total{{model=\"{MODEL}\",reason=\"remote\"}}");
        assert_eq!(router.metric(&reason), Some(10.0), "{name}");
        let got = engines.each_ref().map(served);
        assert_eq!(got.iter().sum::<usize>(), 10, "{name}: {got:?}");
    }
    Ok(())
}

/// TPL-04. What is before an image is known; that is no count of the whole prompt, and is not taken for one.
#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_with_an_image_has_the_tokens_before_it_and_proves_nothing() -> anyhow::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo/tokenizer");
    let tokenizer: Arc<HuggingFace> = Arc::new(HuggingFace::load(&folder)?);
    let engine = Engine::start(EngineConfig { tokenizer, ..quick() }).await?;
    let mut settings = settings(&[engine.url()])?;
    settings.models[0].tokenizer = Some(folder);
    let router = Router::start(settings).await?;
    router.gateway.tokens.loaded().await;
    let rules = "Answer in one word. ".repeat(40);
    let ask = |content: Value| {
        let messages = json!([{"role": "system", "content": rules}, {"role": "user", "content": content}]);
        json!({"model": MODEL, "max_tokens": 2, "messages": messages}).to_string()
    };
    let picture = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}});
    let mut lengths = Vec::new();
    for content in [json!([{"type": "text", "text": "What is it?"}, picture]), json!("What is it?")] {
        let answer = send(router.inference, post("/v1/chat/completions", ask(content.clone()))?).await?;
        assert_eq!(answer.status(), 200, "{:?}", answer.body());
        let id = answer.headers().get("x-request-id").and_then(|id| id.to_str().ok()).unwrap_or_default();
        eventually("the decision is recorded", || router.gateway.ring.get(id).is_some()).await;
        let record = router.gateway.ring.get(id).map(|record| record.tokens.clone());
        let tokens = record.ok_or_else(|| anyhow::anyhow!("no record"))?;
        assert_eq!(tokens.source, Some("local"), "{content}: {:?}", tokens.missing);
        lengths.push(tokens.prompt_tokens);
    }
    let proof = |result: &str| {
        let labels = format!("{{model=\"{MODEL}\",result=\"{result}\",source=\"local\"}}");
        router.metric(&format!("kvasir_prompt_tokens_proof_total{labels}")).unwrap_or(0.0)
    };
    eventually("the text is compared", || proof("equal") + proof("differs") >= 1.0).await;
    assert_eq!((proof("equal"), proof("differs")), (1.0, 0.0), "the prompt without an image: {lengths:?}");
    Ok(())
}

/// TOK-12, TPL-04. An engine that is asked first has no call for these; the tokenizer that follows knows them, and no image
/// is worked on twice.
#[tokio::test(flavor = "multi_thread")]
async fn what_an_engine_cannot_be_asked_has_the_tokens_of_the_next_source() -> anyhow::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo/tokenizer");
    let tokenizer: Arc<HuggingFace> = Arc::new(HuggingFace::load(&folder)?);
    let engine = Engine::start(EngineConfig { tokenizer, ..quick() }).await?;
    let mut settings = settings(&[engine.url()])?;
    settings.models[0].tokenizer = Some(folder);
    settings.scheduler.args.kvcache_aware.order = vec![TokenSource::Engine, TokenSource::Local];
    let router = Router::start(settings).await?;
    router.gateway.tokens.loaded().await;
    let calls = || engine.requests().iter().filter(|one| one.path == "/tokenize").count();
    // The probes may ask for a chat with tools.
    let before = calls();
    let picture = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}});
    let messages = json!([{"role": "user", "content": "Answer in one word. ".repeat(40)}]);
    let with_picture = json!([messages[0], {"role": "user", "content": [picture]}]);
    for (path, body) in [
        ("/v1/messages", json!({"model": MODEL, "max_tokens": 2, "messages": messages})),
        ("/v1/chat/completions", json!({"model": MODEL, "max_tokens": 2, "messages": with_picture})),
    ] {
        let answer = send(router.inference, post(path, body.to_string())?).await?;
        assert_eq!(answer.status(), 200, "{path}: {:?}", answer.body());
        let id = answer.headers().get("x-request-id").and_then(|id| id.to_str().ok()).unwrap_or_default();
        eventually("the decision is recorded", || router.gateway.ring.get(id).is_some()).await;
        let tokens = router.gateway.ring.get(id).map(|record| record.tokens.clone());
        let tokens = tokens.ok_or_else(|| anyhow::anyhow!("no record"))?;
        assert_eq!(tokens.source, Some("local"), "{path}: {:?}", tokens.missing);
    }
    assert_eq!(calls(), before);
    Ok(())
}

/// TOK-08. Which probe differs, and where, is in the metrics; the ids are not.
#[tokio::test(flavor = "multi_thread")]
async fn the_first_difference_of_the_probes_is_a_metric() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    sources::restore(directory.path())?;
    let tokenizer: Arc<HuggingFace> = Arc::new(HuggingFace::load(directory.path())?);
    sources::replace(directory.path())?;
    let engine = Engine::start(EngineConfig { tokenizer, ..quick() }).await?;
    let mut settings = settings(&[engine.url()])?;
    settings.models[0].tokenizer = Some(directory.path().to_owned());
    let router = Router::start(settings).await?;
    router.gateway.tokens.loaded().await;
    let deadline = Instant::now() + GUARD;
    let difference = || router.gateway.tokens.status()[0].probes.versions.first()?.difference.clone();
    while difference().is_none() {
        assert!(Instant::now() < deadline, "{:?}", router.gateway.tokens.status());
        router.gateway.tokens.verify().await;
    }
    let first = difference().ok_or_else(|| anyhow::anyhow!("no difference"))?;
    let labels = format!("{{model=\"{MODEL}\",probe=\"{}\"}}", first.probe);
    let shown = router.metric(&format!("kvasir_tokenizer_difference_position{labels}"));
    assert_eq!(shown, Some(first.at.position as f64));
    Ok(())
}
