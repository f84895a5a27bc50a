use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kvasir_core::EngineKind;
use serde_json::{Value, json};

mod reload;
mod sources;

use super::*;
use crate::local::LocalTokenizer;
use crate::testing::{
    CHATML, FakeClient, FakeDirectory, ManualClock, answer, request, tokens, write_tokenizer,
};

/// Time of the remote sources where a test is not about it.
const PATIENCE: Duration = Duration::from_secs(20);

struct Fixture {
    client: Arc<FakeClient>,
    clock: Arc<ManualClock>,
    chain: Chain,
}

fn fixture(models: Vec<(&str, ModelTokens)>) -> Fixture {
    fixture_with(models, local_slot::disk_loader())
}

fn fixture_with(models: Vec<(&str, ModelTokens)>, loader: Loader) -> Fixture {
    let client = FakeClient::new([]);
    let clock = ManualClock::new();
    // A busy machine may take longer than the usual time to build a body.
    let patient =
        |tokens: ModelTokens| ModelTokens { deadline: tokens.deadline.or(Some(PATIENCE)), ..tokens };
    let models = models.into_iter().map(|(name, tokens)| (name.into(), patient(tokens))).collect();
    let directory = FakeDirectory::new(EngineKind::Vllm, &["http://a:8000"]);
    let chain = Chain::with_loader(models, client.clone(), directory, clock.clone(), loader);
    Fixture { client, clock, chain }
}

fn local(directory: &tempfile::TempDir) -> ModelTokens {
    ModelTokens { local_dir: Some(directory.path().to_owned()), ..ModelTokens::default() }
}

fn small() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    write_tokenizer(directory.path(), |_| {}, CHATML);
    directory
}

fn chat() -> Value {
    json!({"messages": [{"role": "user", "content": "hello world"}]})
}

async fn ask(fixture: &Fixture, model: &str, body: &Value) -> Result<Tokenized, TokenizeError> {
    let mut request = request(RequestKind::Chat, body);
    request.model = model.into();
    fixture.chain.encode(&request).await
}

fn only_source(fixture: &Fixture) -> SourceStatus {
    fixture.chain.status().remove(0).sources.remove(0)
}

#[tokio::test]
async fn given_ids_need_no_backend() {
    let fixture = fixture(vec![]);
    let mut request = request(RequestKind::Completions, &json!({"prompt": [5, 6]}));
    request.prompt = Prompt::TokenIds([5, 6].into());
    let given = fixture.chain.encode(&request).await.unwrap();
    assert_eq!((&*given.ids, given.source, given.whole), (&[5, 6][..], TokenSource::Given, true));
    request.prompt = Prompt::None;
    assert_eq!(fixture.chain.encode(&request).await.unwrap_err(), TokenizeError::NoBackend);
    request.kind = RequestKind::Embeddings;
    assert_eq!(fixture.chain.encode(&request).await.unwrap_err(), TokenizeError::NotTokenizable);
}

/// TOK-08
#[tokio::test]
async fn each_model_has_its_own_tokenizer() {
    let (a, b) = (small(), tempfile::tempdir().unwrap());
    write_tokenizer(b.path(), |json| json["model"]["merges"] = json!([]), CHATML);
    let fixture = fixture(vec![("a", local(&a)), ("b", local(&b))]);
    fixture.chain.loaded().await;
    assert!(fixture.chain.ready());
    let first = ask(&fixture, "a", &chat()).await.unwrap();
    let second = ask(&fixture, "b", &chat()).await.unwrap();
    assert!(first.ids.len() < second.ids.len());
    assert_eq!(ask(&fixture, "a", &chat()).await.unwrap().ids, first.ids);
    assert_eq!(first.source, TokenSource::Local);
    fixture.chain.set_models(vec![("b".into(), local(&b)), ("c".into(), local(&a))]);
    assert_eq!(ask(&fixture, "a", &chat()).await.unwrap_err(), TokenizeError::NoBackend);
    assert_eq!(ask(&fixture, "b", &chat()).await.unwrap().ids, second.ids);
    assert_eq!(ask(&fixture, "c", &chat()).await.unwrap().ids, first.ids, "the loaded tokenizer is kept");
}

#[tokio::test]
async fn models_that_share_a_directory_load_it_once() {
    let directory = small();
    let loads = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&loads);
    let loader: Loader = Arc::new(move |path, template| {
        counted.fetch_add(1, Ordering::SeqCst);
        LocalTokenizer::load(path, template)
    });
    let fixture = fixture_with(vec![("a", local(&directory)), ("b", local(&directory))], loader);
    fixture.chain.loaded().await;
    assert_eq!(loads.load(Ordering::SeqCst), 1);
    assert!(ask(&fixture, "b", &chat()).await.is_ok());
}

#[tokio::test]
async fn a_failed_load_is_remembered_and_tried_again() {
    let directory = tempfile::tempdir().unwrap();
    let fixture = fixture(vec![("a", local(&directory))]);
    fixture.chain.loaded().await;
    for _ in 0..3 {
        let error = ask(&fixture, "a", &chat()).await.unwrap_err();
        assert!(error.to_string().contains("has no tokenizer.json"), "{error}");
    }
    assert!(matches!(only_source(&fixture).load, Some(LoadState::Failed { attempts: 1, .. })));
    write_tokenizer(directory.path(), |_| {}, CHATML);
    fixture.clock.advance(Duration::from_secs(5));
    assert_eq!(ask(&fixture, "a", &chat()).await.unwrap_err().label(), "tokenizer");
    fixture.chain.loaded().await;
    assert!(ask(&fixture, "a", &chat()).await.is_ok());
    let source = only_source(&fixture);
    assert!(matches!(source.load, Some(LoadState::Ready { encoder: "fastokens", fallback: None })));
    assert_eq!((source.succeeded, source.failed["tokenizer"], source.open), (1, 4, true));
}

#[tokio::test]
async fn a_panic_while_loading_is_a_failed_load() {
    let directory = small();
    let loader: Loader = Arc::new(|_, _| panic!("on purpose"));
    let fixture = fixture_with(vec![("a", local(&directory))], loader);
    fixture.chain.loaded().await;
    assert_eq!(ask(&fixture, "a", &chat()).await.unwrap_err().label(), "tokenizer");
}

#[tokio::test]
async fn the_next_source_is_asked_where_one_cannot_answer() {
    let directory = small();
    let tokens_of = ModelTokens {
        order: vec![TokenSource::Service, TokenSource::Local, TokenSource::Engine],
        service_url: Some("http://service:8100".to_owned()),
        ..local(&directory)
    };
    let fixture = fixture(vec![("a", tokens_of)]);
    fixture.chain.loaded().await;
    fixture.client.answer(answer(500, ""));
    assert_eq!(ask(&fixture, "a", &chat()).await.unwrap().source, TokenSource::Local);
    let unknown = json!({"messages": [{"role": "user", "content": [{"type": "file", "file": {}}]}]});
    fixture.client.answer(tokens(&[1, 2]));
    assert_eq!(ask(&fixture, "a", &unknown).await.unwrap().source, TokenSource::Engine);
    assert_eq!(fixture.client.calls().len(), 2, "the service rests");
    let invalid = json!({"messages": []});
    assert_eq!(ask(&fixture, "a", &invalid).await.unwrap_err().label(), "invalid");
    assert_eq!(fixture.client.calls().len(), 2, "nobody else is bothered with a bad request");
    let labels: Vec<_> = fixture.chain.status()[0].sources.iter().map(|source| source.source).collect();
    assert_eq!(labels, [TokenSource::Service, TokenSource::Local, TokenSource::Engine]);
}

#[tokio::test]
async fn a_contradicted_source_is_demoted() {
    let directory = small();
    let order = vec![TokenSource::Local, TokenSource::Engine];
    let fixture = fixture(vec![("a", ModelTokens { order, ..local(&directory) })]);
    fixture.chain.loaded().await;
    let model: ModelName = "a".into();
    assert_eq!(only_source(&fixture).proof, Proof::Unverified);
    fixture.chain.observe(&model, TokenSource::Local, 10, 10);
    assert_eq!(only_source(&fixture).proof, Proof::Exact);
    for _ in 0..2 {
        fixture.chain.observe(&model, TokenSource::Local, 10, 11);
    }
    assert_eq!(ask(&fixture, "a", &chat()).await.unwrap().source, TokenSource::Local);
    fixture.chain.observe(&model, TokenSource::Local, 10, 11);
    fixture.client.answer(tokens(&[3]));
    assert_eq!(ask(&fixture, "a", &chat()).await.unwrap().source, TokenSource::Engine);
    let source = only_source(&fixture);
    assert_eq!(
        (source.proof, source.demoted, source.agreements, source.contradictions),
        (Proof::Differs, true, 1, 3)
    );
    assert_eq!(serde_json::to_value(fixture.chain.status()).unwrap()[0]["sources"][0]["proof"], "differs");
}

/// TPL-04
#[tokio::test]
async fn what_is_known_before_an_image_is_a_part_and_called_one() {
    let directory = small();
    let order = vec![TokenSource::Local, TokenSource::Engine];
    let fixture = fixture(vec![("a", ModelTokens { order, ..local(&directory) })]);
    fixture.chain.loaded().await;
    let mut body = chat();
    let picture = json!([{"type": "image_url", "image_url": {"url": "data:,"}}]);
    body["messages"] = json!([body["messages"][0], {"role": "user", "content": picture}]);
    let part = ask(&fixture, "a", &body).await.unwrap();
    assert_eq!((part.source, part.whole), (TokenSource::Local, false));
    assert!(fixture.client.calls().is_empty(), "an engine would work on the image to tell no more blocks");
    let whole = ask(&fixture, "a", &chat()).await.unwrap();
    assert!(whole.whole && !part.ids.is_empty());
}

#[tokio::test]
async fn without_a_directory_the_engine_is_asked() {
    let fixture = fixture(vec![("a", ModelTokens::default())]);
    fixture.client.answer(tokens(&[1]));
    let answer = ask(&fixture, "a", &chat()).await.unwrap();
    assert_eq!((answer.source, &*answer.ids), (TokenSource::Engine, &[1][..]));
    assert_eq!(fixture.client.bodies()[0]["model"], "a");
    assert!(fixture.chain.ready());
}

/// TPL-01, TPL-02: what the template adds is in the ids, and what changes it changes them.
#[tokio::test]
async fn tools_and_arguments_reach_the_template() {
    let directory = tempfile::tempdir().unwrap();
    let template = "{{ tools|tojson }}{{ thinking }}{% for m in messages %}{{ m.content }}{% endfor %}";
    write_tokenizer(directory.path(), |_| {}, template);
    let fixture = fixture(vec![("a", local(&directory))]);
    fixture.chain.loaded().await;
    let mut body = chat();
    let plain = ask(&fixture, "a", &body).await.unwrap().ids;
    body["tools"] = json!([{"type": "function", "function": {"name": "f", "description": "one"}}]);
    let tooled = ask(&fixture, "a", &body).await.unwrap().ids;
    body["tools"][0]["function"]["description"] = json!("two");
    let changed = ask(&fixture, "a", &body).await.unwrap().ids;
    body["chat_template_kwargs"] = json!({"thinking": "off"});
    let argued = ask(&fixture, "a", &body).await.unwrap().ids;
    assert!(plain != tooled && tooled != changed && changed != argued);
}
