//! Every source of tokens with every fault: no request is lost or held up, and the source is used again when it is well.

use std::path::Path;
use std::time::{Duration, Instant};

use kvasir_core::TokenSource;
use kvasir_mock_engine::{Engine, EngineConfig, HuggingFace};
use kvasir_settings::Settings;
use kvasir_suite::client::{post, send};
use kvasir_suite::paths::{Paths, Reply, answer};
use kvasir_suite::report::{Figures, Report};
use kvasir_suite::router::{MODEL, Router, settings};
use kvasir_suite::{GUARD, eventually};

use crate::fleet::{completion, quick, text};

/// What all remote calls of one request may take together here.
const DEADLINE: Duration = Duration::from_millis(50);

/// A wait that is no matter of a busy machine any more.
const HANG_GUARD_MS: f64 = 500.0;

/// Most that half of the requests may wait while a fault lasts: the deadline, and what a busy machine adds to it. Most find
/// their source left alone and do not wait at all.
const MEDIAN_MS: f64 = 75.0;

/// The first pause of a source that failed.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// Requests while the fault lasts.
const REQUESTS: usize = 30;

const HEADER: [&str; 8] = [
    "source",
    "fault",
    "requests",
    "lost",
    "added p50, ms",
    "added max, ms",
    "used again after, s",
    "what requests had meanwhile",
];

/// A router with one source of tokens, and an engine whose own count is the truth.
struct House {
    router: Router,
    engine: Engine,
    source: TokenSource,
    sent: usize,
}

/// What became of one request.
struct Sent {
    lost: bool,
    waited_ms: f64,
    /// The source of its tokens, or why it has none.
    tokens: Result<&'static str, String>,
}

impl House {
    async fn send(&mut self) -> anyhow::Result<Sent> {
        self.sent += 1;
        let id = format!("r-{}", self.sent);
        let mut request = post("/v1/completions", completion(MODEL, &text(&format!("p{}", self.sent), 60)))?;
        request.headers_mut().insert("x-request-id", id.parse()?);
        let lost = send(self.router.inference, request).await?.status() != 200;
        eventually("the decision is recorded", || self.router.gateway.ring.get(&id).is_some()).await;
        let record = self.router.gateway.ring.get(&id).ok_or_else(|| anyhow::anyhow!("no record of {id}"))?;
        let missing = record.tokens.missing.as_deref().unwrap_or_default().to_owned();
        let waited_ms = record.gather_us as f64 / 1_000.0;
        Ok(Sent { lost, waited_ms, tokens: record.tokens.source.ok_or(missing) })
    }

    /// Sends until the source gives tokens.
    async fn used(&mut self) -> anyhow::Result<Duration> {
        let began = Instant::now();
        loop {
            let sent = self.send().await?;
            anyhow::ensure!(!sent.lost, "a request was lost on the way back");
            if sent.tokens == Ok(self.source.as_str()) {
                return Ok(began.elapsed());
            }
            anyhow::ensure!(began.elapsed() < GUARD, "not used again: {:?}", sent.tokens);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Sends while the fault lasts, and makes the first cells of the row.
    async fn suffer(&mut self, fault: &str) -> anyhow::Result<(Vec<String>, String)> {
        let mut figures = Figures { requests: REQUESTS, ..Figures::default() };
        let mut told: Vec<String> = Vec::new();
        for _ in 0..REQUESTS {
            let sent = self.send().await?;
            figures.lost += usize::from(sent.lost);
            figures.waited_ms.push(sent.waited_ms);
            let tokens = sent.tokens.map_or_else(|missing| missing, |source| format!("tokens of {source}"));
            if !told.contains(&tokens) {
                told.push(tokens);
            }
        }
        assert_eq!(figures.lost, 0, "{fault}");
        assert!(figures.longest_ms() < HANG_GUARD_MS, "{fault}: {figures:?}");
        assert!(figures.median_ms() < MEDIAN_MS, "{fault}: {figures:?}");
        let mut row = vec![self.source.as_str().to_owned(), fault.to_owned()];
        row.extend(figures.cells());
        Ok((row, told.join("; ")))
    }
}

fn seconds(took: Duration) -> String {
    format!("{:.1}", took.as_secs_f64())
}

fn only(source: TokenSource, settings: &mut Settings) {
    let args = &mut settings.scheduler.args.kvcache_aware;
    args.order = vec![source];
    args.deadline = Some(DEADLINE);
}

/// A router whose tokens come from a server of ours, be it as a service or at a port of the engine's own host.
async fn remote(source: TokenSource, server: &Paths) -> anyhow::Result<House> {
    let engine = Engine::start(EngineConfig { events: None, ..quick() }).await?;
    let mut settings = settings(&[engine.url()])?;
    only(source, &mut settings);
    let args = &mut settings.scheduler.args.kvcache_aware;
    if source == TokenSource::Service {
        args.tokenizer_service.enabled = true;
        args.tokenizer_service.endpoint = server.url();
    } else {
        args.vllm_tokenizer_port = Some(server.address.port());
    }
    let router = Router::start(settings).await?;
    Ok(House { router, engine, source, sent: 0 })
}

/// How a remote source fails.
enum Fault {
    /// Its process dies.
    Killed,
    /// It answers so.
    Answers(Reply),
}

fn remote_faults() -> Vec<(&'static str, Fault)> {
    let json = |status: &str, body: &str| answer(status, "application/json", body);
    let late = match json("200 OK", r#"{"count":2,"tokens":[1,2]}"#) {
        Reply::Whole(bytes) => Reply::Late(DEADLINE * 20, bytes),
        other => other,
    };
    let cut =
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 900\r\n\r\n{\"tokens\":[1,";
    let no_model = r#"{"error":{"message":"The model does not exist.","type":"NotFoundError","code":404}}"#;
    vec![
        ("killed", Fault::Killed),
        ("killed in mid-answer", Fault::Answers(Reply::Cut(cut.into()))),
        ("hangs", Fault::Answers(Reply::Hang)),
        ("slow", Fault::Answers(late)),
        ("wrong model (404)", Fault::Answers(json("404 Not Found", no_model))),
        ("wrong model (other ids)", Fault::Answers(json("200 OK", r#"{"count":3,"tokens":[7,8,9]}"#))),
        ("401", Fault::Answers(json("401 Unauthorized", r#"{"error":"who?"}"#))),
        ("refuses everything (400)", Fault::Answers(json("400 Bad Request", r#"{"error":"no"}"#))),
        ("loading (503)", Fault::Answers(json("503 Service Unavailable", r#"{"error":"loading"}"#))),
        ("invalid JSON", Fault::Answers(json("200 OK", r#"{"tokens":"no"#))),
    ]
}

async fn remote_row(source: TokenSource, name: &str, fault: Fault) -> anyhow::Result<Vec<String>> {
    let mut server = Paths::start().await?;
    let address = server.address;
    let mut house = remote(source, &server).await?;
    let well = Reply::From(house.engine.address());
    server.tell("/tokenize", well.clone());
    house.used().await?;
    let asked_before = server.asked("/tokenize");
    let (mut row, told) = match fault {
        Fault::Killed => {
            drop(server);
            let suffered = house.suffer(name).await?;
            server = Paths::start_at(address).await?;
            suffered
        }
        Fault::Answers(reply) => {
            server.tell("/tokenize", reply);
            let suffered = house.suffer(name).await?;
            // A refusal says nothing against the source, and ids are ids until answers contradict them.
            if !name.starts_with("refuses") && !name.contains("ids") {
                let asked = server.asked("/tokenize") - asked_before;
                assert!(asked < REQUESTS / 2, "{name}: asked {asked} times");
            }
            suffered
        }
    };
    server.tell("/tokenize", well);
    let back = match (name.contains("ids"), source) {
        // A port of the engine's can only be compared with itself: requests test it after a minute.
        (true, TokenSource::Engine) => "60 (a trial; not waited for)".to_owned(),
        (true, _) => {
            eventually_verified(&house).await;
            format!("{} (after a look, here at once, else within 15)", seconds(house.used().await?))
        }
        (false, _) => seconds(house.used().await?),
    };
    row.push(back);
    row.push(told);
    Ok(row)
}

/// Looks until the source that was contradicted is trusted again.
async fn eventually_verified(house: &House) {
    let deadline = Instant::now() + GUARD;
    let demoted = || house.router.gateway.tokens.status().iter().any(|model| model.sources[0].demoted);
    while demoted() {
        assert!(Instant::now() < deadline, "still demoted: {:?}", house.router.gateway.tokens.status());
        house.router.gateway.tokens.verify().await;
    }
}

async fn all_remote(source: TokenSource) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    for (name, fault) in remote_faults() {
        rows.push(remote_row(source, name, fault).await?);
    }
    let title =
        format!("Tokens from `{}`, at most {} ms for each request", source.as_str(), DEADLINE.as_millis());
    Report::table(&title, &HEADER, &rows).publish()?;
    Ok(())
}

/// TOK-12.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_with_any_fault_costs_its_budget_and_comes_back() -> anyhow::Result<()> {
    all_remote(TokenSource::Service).await
}

/// TOK-12.
#[tokio::test(flavor = "multi_thread")]
async fn an_engine_with_any_fault_costs_its_budget_and_comes_back() -> anyhow::Result<()> {
    all_remote(TokenSource::Engine).await
}

/// What is done to a tokenizer's directory.
type Harm = fn(&Path) -> anyhow::Result<()>;

const GOOD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../demo/tokenizer");

/// Puts a good tokenizer into a directory.
pub fn restore(directory: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(directory)?;
    for name in ["tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(Path::new(GOOD).join(name), directory.join(name))?;
    }
    Ok(())
}

fn remove(directory: &Path) -> anyhow::Result<()> {
    Ok(std::fs::remove_dir_all(directory)?)
}

fn damage(directory: &Path) -> anyhow::Result<()> {
    let path = directory.join("tokenizer.json");
    let text = std::fs::read(&path)?;
    Ok(std::fs::write(&path, text.get(..text.len() / 2).unwrap_or_default())?)
}

/// The tokenizer of another model: it knows no merges.
pub fn replace(directory: &Path) -> anyhow::Result<()> {
    let path = directory.join("tokenizer.json");
    let mut json: serde_json::Value = serde_json::from_slice(&std::fs::read(&path)?)?;
    json["model"]["merges"] = serde_json::json!([]);
    Ok(std::fs::write(&path, json.to_string())?)
}

/// Whether the harm is done before the router starts or while it runs, and whether the tokenizer in use stays.
const LOCAL_FAULTS: [(&str, Harm, bool, bool); 6] = [
    ("directory missing at the start", remove, true, false),
    ("directory damaged at the start", damage, true, false),
    ("another model's tokenizer at the start", replace, true, false),
    ("directory removed", remove, false, true),
    ("directory damaged", damage, false, true),
    ("replaced by another model's tokenizer", replace, false, false),
];

async fn local_row(name: &str, harm: Harm, at_start: bool, stays: bool) -> anyhow::Result<Vec<String>> {
    let parent = tempfile::tempdir()?;
    let directory = parent.path().join("model");
    restore(&directory)?;
    let tokenizer = std::sync::Arc::new(HuggingFace::load(Path::new(GOOD))?);
    let engine = Engine::start(EngineConfig { events: None, tokenizer, ..quick() }).await?;
    let mut settings = settings(&[engine.url()])?;
    only(TokenSource::Local, &mut settings);
    settings.models[0].tokenizer = Some(directory.clone());
    if at_start {
        harm(&directory)?;
    }
    let router = Router::start(settings).await?;
    let mut house = House { router, engine, source: TokenSource::Local, sent: 0 };
    house.router.gateway.tokens.loaded().await;
    if !at_start {
        house.used().await?;
        harm(&directory)?;
        // What the background does every 30 s.
        house.router.gateway.tokens.look_at_files().await;
    }
    let (mut row, told) = house.suffer(name).await?;
    assert_eq!(told == "tokens of local", stays, "{name}: {told}");
    restore(&directory)?;
    let began = Instant::now();
    house.router.gateway.tokens.look_at_files().await;
    house.used().await?;
    row.push(seconds(began.elapsed()));
    row.push(told.replace(&*directory.to_string_lossy(), "DIR"));
    Ok(row)
}

/// TOK-12. The sources that hang share the time, and the one that is well gives the tokens.
#[tokio::test(flavor = "multi_thread")]
async fn requests_keep_their_tokens_while_one_source_of_the_chain_is_well() -> anyhow::Result<()> {
    let (service, port) = (Paths::start().await?, Paths::start().await?);
    for server in [&service, &port] {
        server.tell("/tokenize", Reply::Hang);
    }
    let tokenizer = std::sync::Arc::new(HuggingFace::load(Path::new(GOOD))?);
    let engine = Engine::start(EngineConfig { events: None, tokenizer, ..quick() }).await?;
    let mut settings = settings(&[engine.url()])?;
    only(TokenSource::Service, &mut settings);
    let args = &mut settings.scheduler.args.kvcache_aware;
    args.order = vec![TokenSource::Service, TokenSource::Engine, TokenSource::Local];
    args.tokenizer_service.enabled = true;
    args.tokenizer_service.endpoint = service.url();
    args.vllm_tokenizer_port = Some(port.address.port());
    settings.models[0].tokenizer = Some(GOOD.into());
    let router = Router::start(settings).await?;
    router.gateway.tokens.loaded().await;
    let mut house = House { router, engine, source: TokenSource::Local, sent: 0 };
    let began = Instant::now();
    let (mut row, told) = house.suffer("service and engine hang").await?;
    assert_eq!(told, "tokens of local");
    // After each pause one call may try again.
    let most = 1 + (began.elapsed().as_millis() / FIRST_PAUSE.as_millis()) as usize;
    for asked in [service.asked("/tokenize"), port.asked("/tokenize")] {
        assert!((1..=most).contains(&asked), "asked {asked} times, at most {most}");
    }
    row[0] = "service, engine, local".to_owned();
    row.extend(["-".to_owned(), told]);
    let title = format!("All sources, at most {} ms for each request", DEADLINE.as_millis());
    Report::table(&title, &HEADER, &[row]).publish()?;
    Ok(())
}

/// TOK-12.
#[tokio::test(flavor = "multi_thread")]
async fn a_local_tokenizer_with_any_fault_costs_nothing_and_comes_back() -> anyhow::Result<()> {
    let mut rows = Vec::new();
    for (name, harm, at_start, stays) in LOCAL_FAULTS {
        rows.push(local_row(name, harm, at_start, stays).await?);
    }
    Report::table("Tokens from `local`; files looked at at once, not after 30 s", &HEADER, &rows)
        .publish()?;
    Ok(())
}
