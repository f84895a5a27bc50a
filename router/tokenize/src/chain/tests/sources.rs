//! Several sources of one model: who is asked, for how long, and who is believed.

use kvasir_core::SideError;

use super::*;
use crate::testing::{ServingClient, engine_answer};

const SERVICE: &str = "http://service:8100";

fn all(directory: Option<&tempfile::TempDir>) -> ModelTokens {
    ModelTokens {
        local_dir: directory.map(|directory| directory.path().to_owned()),
        order: vec![TokenSource::Service, TokenSource::Engine, TokenSource::Local],
        service_url: Some(SERVICE.to_owned()),
        ..ModelTokens::default()
    }
}

fn failures(fixture: &Fixture) -> Vec<(TokenSource, Vec<(&'static str, u64)>)> {
    let sources = fixture.chain.status().remove(0).sources;
    sources.into_iter().map(|source| (source.source, source.failed.into_iter().collect())).collect()
}

#[tokio::test]
async fn a_refusal_of_one_source_is_not_the_last_word() {
    let directory = small();
    for status in [400, 404, 413, 422] {
        let fixture = fixture(vec![("a", all(Some(&directory)))]);
        fixture.chain.loaded().await;
        fixture.client.answer(answer(status, "{}"));
        fixture.client.answer(tokens(&[7]));
        let answer = ask(&fixture, "a", &chat()).await.unwrap();
        assert_eq!((answer.source, &*answer.ids), (TokenSource::Engine, &[7][..]), "{status}");
        assert_eq!(failures(&fixture)[0], (TokenSource::Service, vec![("remote", 1)]), "{status}");
        fixture.client.answer(Err(SideError::Timeout));
        fixture.client.answer(self::answer(400, "{}"));
        fixture.client.answer(Err(SideError::Timeout));
        let answer = ask(&fixture, "a", &chat()).await.unwrap();
        assert_eq!(
            answer.source,
            TokenSource::Local,
            "an engine without a parser of tools refuses them, too"
        );
    }
}

/// TOK-12, TPL-04: what `/tokenize` has no call for is the local tokenizer's, whoever is asked first.
#[tokio::test]
async fn what_a_remote_source_cannot_be_asked_goes_to_the_next_one() {
    let directory = small();
    let fixture = fixture(vec![("a", all(Some(&directory)))]);
    fixture.chain.loaded().await;
    let user = json!({"role": "user", "content": "hello world"});
    let picture = json!({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]});
    for (kind, body, whole) in [
        (RequestKind::Messages, json!({"messages": [user]}), true),
        (RequestKind::Responses, json!({"input": "hello world"}), true),
        (RequestKind::Completions, json!({"prompt": [[1, 2]]}), true),
        (RequestKind::Chat, json!({"messages": [user, picture]}), false),
    ] {
        let mut request = request(kind, &body);
        request.model = "a".into();
        let answer = fixture.chain.encode(&request).await.unwrap();
        assert_eq!((answer.source, answer.whole), (TokenSource::Local, whole), "{body}");
    }
    assert!(fixture.client.calls().is_empty());
    let failed = vec![("inexact", 1), ("not_tokenizable", 3)];
    assert_eq!(
        failures(&fixture)[..2],
        [(TokenSource::Service, failed.clone()), (TokenSource::Engine, failed)]
    );
}

#[tokio::test]
async fn where_nobody_can_be_asked_the_reason_is_the_most_telling() {
    let fixture = fixture(vec![("a", all(None))]);
    let mut request = request(RequestKind::Messages, &chat());
    request.model = "a".into();
    assert_eq!(fixture.chain.encode(&request).await.unwrap_err(), TokenizeError::NotTokenizable);
    let directory = tempfile::tempdir().unwrap();
    fixture.chain.set_models(vec![("a".into(), all(Some(&directory)))]);
    fixture.chain.loaded().await;
    assert_eq!(fixture.chain.encode(&request).await.unwrap_err().label(), "tokenizer");
}

#[tokio::test]
async fn what_sglang_renders_in_another_way_is_its_own_to_tell() {
    let directory = small();
    let client = FakeClient::new([]);
    let order = vec![TokenSource::Local, TokenSource::Engine];
    let models = vec![("a".into(), ModelTokens { order, deadline: Some(PATIENCE), ..local(&directory) })];
    let engines = FakeDirectory::new(EngineKind::Sglang, &["http://a:30000"]);
    let chain =
        Chain::with_loader(models, client.clone(), engines, ManualClock::new(), local_slot::disk_loader());
    chain.loaded().await;
    let mut asked = request(RequestKind::Chat, &chat());
    asked.model = "a".into();
    assert_eq!(chain.encode(&asked).await.unwrap().source, TokenSource::Local);
    let mut body = chat();
    body["tools"] = json!([{"type": "function", "function": {"name": "f"}}]);
    asked.body = body.to_string().into();
    client.answer(tokens(&[7]));
    assert_eq!(chain.encode(&asked).await.unwrap().source, TokenSource::Engine);
    asked.kind = RequestKind::Responses;
    asked.body = json!({"input": "x"}).to_string().into();
    assert_eq!(chain.encode(&asked).await.unwrap_err().label(), "inexact");
}

#[tokio::test]
async fn two_that_refuse_are_believed() {
    let directory = small();
    let fixture = fixture(vec![("a", all(Some(&directory)))]);
    fixture.chain.loaded().await;
    fixture.client.answer(answer(422, "{}"));
    fixture.client.answer(answer(400, "{}"));
    assert_eq!(ask(&fixture, "a", &chat()).await.unwrap_err().label(), "invalid");
    assert_eq!(only_source(&fixture).succeeded, 0);
    assert_eq!(failures(&fixture)[2], (TokenSource::Local, vec![]), "not asked");
}

#[tokio::test]
async fn a_lone_refusal_is_the_engines_word_and_not_the_services() {
    let service = ModelTokens { order: vec![TokenSource::Service], ..all(None) };
    let fixture = fixture(vec![("a", service)]);
    fixture.client.answer(answer(400, "{}"));
    let error = ask(&fixture, "a", &chat()).await.unwrap_err();
    assert_eq!(error.to_string(), "service: the request was refused with status 400");
    let fixture = self::fixture(vec![("a", ModelTokens::default())]);
    fixture.client.answer(answer(400, "{}"));
    assert_eq!(ask(&fixture, "a", &chat()).await.unwrap_err().label(), "invalid");
}

/// Each call takes all the time it is given, on the test's clock.
fn hanging(deadline: Duration) -> (Chain, Arc<ManualClock>, Arc<parking_lot::Mutex<Vec<Duration>>>) {
    let clock = ManualClock::new();
    let given = Arc::<parking_lot::Mutex<Vec<Duration>>>::default();
    let (moved, noted) = (clock.clone(), Arc::clone(&given));
    let client = ServingClient::new(move |call| {
        moved.advance(call.timeout);
        noted.lock().push(call.timeout);
        Err(SideError::Timeout)
    });
    let models = vec![("a".into(), ModelTokens { deadline: Some(deadline), ..all(None) })];
    let directory = FakeDirectory::new(EngineKind::Vllm, &["http://a:8000", "http://b:8000"]);
    let chain = Chain::with_loader(models, client, directory, clock.clone(), local_slot::disk_loader());
    (chain, clock, given)
}

#[tokio::test]
async fn sources_that_hang_share_one_deadline() {
    let deadline = Duration::from_secs(40);
    let (chain, clock, given) = hanging(deadline);
    let mut request = request(RequestKind::Chat, &chat());
    request.model = "a".into();
    let began = clock.now();
    assert_eq!(chain.encode(&request).await.unwrap_err().label(), "remote");
    assert_eq!(clock.now() - began, deadline, "both together");
    assert_eq!(*given.lock(), [deadline / 2; 2]);
}

#[tokio::test]
async fn a_second_pod_is_asked_within_the_same_time() {
    let clock = ManualClock::new();
    let (moved, given) = (clock.clone(), Arc::<parking_lot::Mutex<Vec<Duration>>>::default());
    let noted = Arc::clone(&given);
    let client = ServingClient::new(move |call| {
        noted.lock().push(call.timeout);
        moved.advance(Duration::from_secs(15));
        Err(SideError::Connect("no route".to_owned()))
    });
    let models = vec![("a".into(), ModelTokens { deadline: Some(PATIENCE), ..ModelTokens::default() })];
    let directory = FakeDirectory::new(EngineKind::Vllm, &["http://a:8000", "http://b:8000"]);
    let chain = Chain::with_loader(models, client, directory, clock, local_slot::disk_loader());
    let mut request = request(RequestKind::Chat, &chat());
    request.model = "a".into();
    assert_eq!(chain.encode(&request).await.unwrap_err().label(), "remote");
    assert_eq!(*given.lock(), [20, 5].map(Duration::from_secs));
}

/// The service has a tokenizer of its own, as an engine has; which one may change.
struct Doubtful {
    chain: Chain,
    clock: Arc<ManualClock>,
    service: Arc<parking_lot::Mutex<Arc<LocalTokenizer>>>,
    version: Arc<parking_lot::Mutex<&'static str>>,
}

fn tokenizer(template: &str) -> Arc<LocalTokenizer> {
    let directory = tempfile::tempdir().unwrap();
    write_tokenizer(directory.path(), |_| {}, template);
    Arc::new(LocalTokenizer::load(directory.path(), None).unwrap())
}

const OTHER: &str = "{% for m in messages %}{{ m.content }}!{% endfor %}";

fn doubtful(of_the_service: &str) -> Doubtful {
    let clock = ManualClock::new();
    let service = Arc::new(parking_lot::Mutex::new(tokenizer(of_the_service)));
    let version = Arc::new(parking_lot::Mutex::new("1"));
    let engine = tokenizer(CHATML);
    let (asked, told) = (Arc::clone(&service), Arc::clone(&version));
    let client = ServingClient::new(move |call| {
        let version = *told.lock();
        match call.url.strip_prefix(SERVICE) {
            None => engine_answer(&engine, true, version, call),
            Some(path) => {
                let mut call = call.clone();
                call.url = format!("http://a:8000{path}");
                engine_answer(&asked.lock(), false, "of the service", &call)
            }
        }
    });
    let order = vec![TokenSource::Service];
    let models = vec![("a".into(), ModelTokens { order, deadline: Some(PATIENCE), ..all(None) })];
    let directory = FakeDirectory::new(EngineKind::Vllm, &["http://a:8000"]);
    let chain = Chain::with_loader(models, client, directory, clock.clone(), local_slot::disk_loader());
    Doubtful { chain, clock, service, version }
}

impl Doubtful {
    fn contradict(&self) {
        for _ in 0..3 {
            self.chain.observe(&"a".into(), TokenSource::Service, 1, 2);
        }
        assert!(self.demoted());
    }

    fn demoted(&self) -> bool {
        self.chain.status().remove(0).sources.remove(0).demoted
    }
}

#[tokio::test]
async fn a_source_of_another_model_comes_back_when_it_is_seen_to_have_changed() {
    let fixture = doubtful(OTHER);
    fixture.contradict();
    fixture.chain.verify().await;
    fixture.chain.verify().await;
    assert!(fixture.demoted(), "the probes differ");
    *fixture.service.lock() = tokenizer(CHATML);
    fixture.chain.verify().await;
    assert!(!fixture.demoted());
    // What keeps changing has to wait longer each time.
    *fixture.service.lock() = tokenizer(OTHER);
    fixture.contradict();
    fixture.chain.verify().await;
    *fixture.service.lock() = tokenizer(CHATML);
    fixture.clock.advance(Duration::from_secs(29));
    fixture.chain.verify().await;
    assert!(fixture.demoted());
    fixture.clock.advance(Duration::from_secs(1));
    fixture.chain.verify().await;
    assert!(!fixture.demoted());
}

#[tokio::test]
async fn where_probes_tell_nothing_requests_do_after_a_while() {
    let fixture = doubtful(CHATML);
    for pause in [60, 120, 240] {
        fixture.contradict();
        fixture.clock.advance(Duration::from_secs(pause - 1));
        fixture.chain.verify().await;
        assert!(fixture.demoted(), "{pause} s");
        fixture.clock.advance(Duration::from_secs(1));
        fixture.chain.verify().await;
        assert!(!fixture.demoted(), "{pause} s");
    }
    *fixture.service.lock() = tokenizer(OTHER);
    fixture.contradict();
    fixture.clock.advance(Duration::from_secs(86_400));
    fixture.chain.verify().await;
    assert!(fixture.demoted(), "the probes differ all the time");
}

#[tokio::test]
async fn probes_that_agree_all_along_prove_nothing_against_requests() {
    let fixture = doubtful(CHATML);
    fixture.contradict();
    fixture.chain.verify().await;
    fixture.chain.verify().await;
    assert!(fixture.demoted());
    *fixture.version.lock() = "2";
    fixture.chain.verify().await;
    assert!(!fixture.demoted(), "another engine");
}

/// Whether the chats of the probes were told the day when a source was reconsidered.
async fn probes_are_dated(template: Option<&str>) -> bool {
    let dated = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&dated);
    let client = ServingClient::new(move |call| {
        let told = memchr::memmem::find(&call.body, b"chat_template_kwargs").is_some();
        seen.fetch_add(usize::from(told), Ordering::SeqCst);
        answer(if call.url.ends_with("/version") { 404 } else { 400 }, "{}")
    });
    let directory = tempfile::tempdir().unwrap();
    if let Some(template) = template {
        write_tokenizer(directory.path(), |_| {}, template);
    }
    let models = vec![("a".into(), all(template.map(|_| &directory)))];
    let engines = FakeDirectory::new(EngineKind::Vllm, &["http://a:8000"]);
    let chain = Chain::with_loader(models, client, engines, ManualClock::new(), local_slot::disk_loader());
    chain.loaded().await;
    chain.verify().await;
    dated.store(0, Ordering::SeqCst);
    for _ in 0..3 {
        chain.observe(&"a".into(), TokenSource::Service, 1, 2);
    }
    chain.verify().await;
    dated.load(Ordering::SeqCst) > 0
}

#[tokio::test]
async fn probes_are_told_the_day_only_where_the_template_prints_it() {
    assert!(!probes_are_dated(None).await);
    assert!(!probes_are_dated(Some(CHATML)).await, "some tokenizers take no template arguments");
    assert!(probes_are_dated(Some("{{ date_string }}{{ messages[0].content }}")).await);
}
