use kvasir_core::{EngineKind, ModelName, SideError, TokenSource};

use super::*;
use crate::chain::{Chain, ModelStatus, ModelTokens, local_slot};
use crate::local::LocalTokenizer;
use crate::testing::{CHATML, FakeDirectory, ManualClock, ServingClient, engine_answer, write_tokenizer};

/// What the engine is at the moment: its version and tokenizer; none while it is down.
type Engine = Arc<Mutex<Option<(&'static str, Arc<LocalTokenizer>)>>>;

struct Fixture {
    chain: Chain,
    engine: Engine,
    calls: Arc<dyn Fn() -> usize>,
    _directory: tempfile::TempDir,
}

fn loaded(template: &str) -> Arc<LocalTokenizer> {
    let directory = tempfile::tempdir().unwrap();
    write_tokenizer(directory.path(), |_| {}, template);
    Arc::new(LocalTokenizer::load(directory.path(), None).unwrap())
}

async fn fixture() -> Fixture {
    let directory = tempfile::tempdir().unwrap();
    write_tokenizer(directory.path(), |_| {}, CHATML);
    let engine: Engine = Arc::default();
    let behind = Arc::clone(&engine);
    let client = ServingClient::new(move |call| match &*behind.lock() {
        Some((version, tokenizer)) => engine_answer(tokenizer, true, version, call),
        None => Err(SideError::Timeout),
    });
    let tokens = ModelTokens { local_dir: Some(directory.path().to_owned()), ..ModelTokens::default() };
    let chain = Chain::with_loader(
        vec![("m".into(), tokens)],
        client.clone(),
        FakeDirectory::new(EngineKind::Vllm, &["http://a:8000"]),
        ManualClock::new(),
        local_slot::disk_loader(),
    );
    chain.loaded().await;
    Fixture { chain, engine, calls: Arc::new(move || client.urls().len()), _directory: directory }
}

impl Fixture {
    fn run(&self, version: &'static str, tokenizer: &Arc<LocalTokenizer>) {
        *self.engine.lock() = Some((version, Arc::clone(tokenizer)));
    }

    fn status(&self) -> ModelStatus {
        self.chain.status().remove(0)
    }
}

#[tokio::test]
async fn a_version_is_compared_once() {
    let fixture = fixture().await;
    fixture.chain.verify().await;
    assert_eq!(fixture.status().probes, ProbeStatus::default(), "nobody answers yet");
    let same = loaded(CHATML);
    fixture.run("1", &same);
    fixture.chain.verify().await;
    let status = fixture.status();
    assert_eq!((status.probes.proof, status.sources[0].proof), (Proof::Exact, Proof::Exact));
    assert_eq!(status.probes.versions[0].engine_version, "1");
    assert_eq!((status.probes.versions[0].skipped, &status.probes.versions[0].difference), (0, &None));
    let asked = (fixture.calls)();
    fixture.chain.verify().await;
    assert_eq!((fixture.calls)(), asked + 1, "only for its version");
    fixture.run("2", &same);
    fixture.chain.verify().await;
    assert_eq!(fixture.status().probes.versions.len(), 2);
}

#[tokio::test]
async fn a_wrong_tokenizer_is_demoted_until_the_engine_changes() {
    let fixture = fixture().await;
    fixture.run("1", &loaded("{% for m in messages %}{{ m.content }}!{% endfor %}"));
    fixture.chain.verify().await;
    let status = fixture.status();
    assert_eq!((status.probes.proof, status.sources[0].demoted), (Proof::Differs, true));
    let difference = status.probes.versions[0].difference.clone().unwrap();
    assert_eq!(difference.probe, "chat");
    let shown = serde_json::to_value(&status).unwrap();
    assert_eq!(shown["probes"]["versions"][0]["difference"]["position"], difference.at.position);
    fixture.run("2", &loaded(CHATML));
    fixture.chain.verify().await;
    let status = fixture.status();
    assert!(!status.sources[0].demoted, "a new version is a new chance");
    assert_eq!((status.sources[0].proof, status.probes.proof), (Proof::Exact, Proof::Differs));
    let model: ModelName = "m".into();
    for _ in 0..3 {
        fixture.chain.observe(&model, TokenSource::Local, 1, 2);
    }
    assert!(fixture.status().sources[0].demoted);
}

/// Holds an engine's answers back until a permit comes.
struct Held<C> {
    inner: Arc<C>,
    permits: tokio::sync::Semaphore,
}

impl<C: kvasir_core::SideClient> kvasir_core::SideClient for Held<C> {
    fn call(
        &self,
        request: kvasir_core::SideRequest,
    ) -> kvasir_core::BoxFuture<'_, Result<kvasir_core::SideResponse, SideError>> {
        Box::pin(async move {
            self.permits.acquire().await.unwrap().forget();
            self.inner.call(request).await
        })
    }
}

#[tokio::test]
async fn probes_of_a_tokenizer_that_was_replaced_meanwhile_say_nothing_of_the_new_one() {
    let other = "{% for m in messages %}{{ m.content }}!{% endfor %}";
    let directory = tempfile::tempdir().unwrap();
    write_tokenizer(directory.path(), |_| {}, other);
    let engine = loaded(CHATML);
    let inner = ServingClient::new(move |call| engine_answer(&engine, true, "1", call));
    let client = Arc::new(Held { inner, permits: tokio::sync::Semaphore::new(0) });
    let tokens = ModelTokens { local_dir: Some(directory.path().to_owned()), ..ModelTokens::default() };
    let chain = Chain::with_loader(
        vec![("m".into(), tokens)],
        client.clone(),
        FakeDirectory::new(EngineKind::Vllm, &["http://a:8000"]),
        ManualClock::new(),
        local_slot::disk_loader(),
    );
    chain.loaded().await;
    let replaced = async {
        // The version and eight of the probes, so that most were compared with the former tokenizer.
        client.permits.add_permits(9);
        while client.permits.available_permits() > 0 || client.inner.urls().len() < 9 {
            tokio::task::yield_now().await;
        }
        write_tokenizer(directory.path(), |_| {}, CHATML);
        chain.look_at_files().await;
        // A request notices first that there is another one.
        chain.models.read().values().for_each(|model| model.notice_loads());
        client.permits.add_permits(10_000);
    };
    tokio::join!(chain.verify(), replaced);
    let status = chain.status().remove(0);
    assert_eq!((status.sources[0].demoted, status.sources[0].contradictions), (false, 0));
    assert_eq!(status.probes, ProbeStatus::default());
    chain.verify().await;
    assert_eq!(chain.status().remove(0).probes.proof, Proof::Exact);
}

#[tokio::test]
async fn the_versions_kept_are_bounded() {
    let fixture = fixture().await;
    let same = loaded(CHATML);
    for version in ["1", "2", "3", "4", "5", "6", "7", "8", "9"] {
        fixture.run(version, &same);
        fixture.chain.verify().await;
    }
    let versions = fixture.status().probes.versions;
    assert_eq!((versions.len(), &*versions[0].engine_version), (MOST_VERSIONS, "2"));
}
