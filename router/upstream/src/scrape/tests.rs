use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicU32, Ordering};

use engines::{Does, Engines};
use kvasir_core::{
    Address, EngineAdapters, EngineKind, EngineSample, ModelName, OwnerSlot, Role, SampleError, SystemClock,
};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::*;

mod engines;

const PAGE: &str = "vllm:num_requests_running{engine=\"0\"} 2\nvllm:num_requests_running{engine=\"1\"} 5\n\
                    vllm:engine_sleep_state{engine=\"0\",sleep_state=\"awake\"} 0\n";

#[derive(Default)]
struct Sink {
    samples: Mutex<Vec<(String, Result<EngineSample, SampleError>)>>,
    models: Mutex<Vec<(String, Vec<String>)>>,
    listed_adapters: Mutex<Vec<(String, Vec<String>)>>,
    adapters: Mutex<Vec<(String, Option<EngineAdapters>)>>,
    probes: Mutex<Vec<(String, bool)>>,
    in_flight: AtomicU32,
    told: Notify,
}

impl Sink {
    fn of(&self, id: &str) -> Vec<Result<EngineSample, SampleError>> {
        self.samples.lock().iter().filter(|(of, _)| of == id).map(|(_, result)| result.clone()).collect()
    }

    /// Waits for `holds`; gives up after ten minutes of paused time.
    async fn until(&self, holds: impl Fn(&Self) -> bool) {
        let wait = async {
            loop {
                let told = self.told.notified();
                if holds(self) {
                    return;
                }
                told.await;
            }
        };
        tokio::time::timeout(Duration::from_secs(600), wait).await.expect("the condition holds in time");
    }
}

impl SampleSink for Sink {
    fn in_flight(&self, _: &EndpointId) -> u32 {
        self.in_flight.fetch_add(1, Ordering::SeqCst)
    }

    fn sampled(&self, endpoint: &EndpointId, result: Result<EngineSample, SampleError>) {
        self.samples.lock().push((endpoint.to_string(), result));
        self.told.notify_waiters();
    }

    fn models_listed(&self, endpoint: &EndpointId, models: Vec<String>) {
        self.models.lock().push((endpoint.to_string(), models));
        self.told.notify_waiters();
    }

    fn adapters_listed(&self, endpoint: &EndpointId, adapters: Vec<String>) {
        self.listed_adapters.lock().push((endpoint.to_string(), adapters));
    }

    fn adapters_seen(&self, endpoint: &EndpointId, adapters: Option<EngineAdapters>) {
        self.adapters.lock().push((endpoint.to_string(), adapters));
    }

    fn probed(&self, endpoint: &EndpointId, healthy: bool) {
        self.probes.lock().push((endpoint.to_string(), healthy));
        self.told.notify_waiters();
    }
}

fn target(host: &str, rank: Option<u32>) -> ScrapeTarget {
    let endpoint = Endpoint {
        id: EndpointId::new("default", host, 8000, rank.unwrap_or(0)),
        slot: OwnerSlot(0),
        address: Address::parse(&format!("http://{host}:8000")).expect("a good URL"),
        engine: EngineKind::Vllm,
        role: Role::Both,
        model: ModelName::from("m"),
        started_at: None,
        pin_rank: rank.is_some(),
        adapters: Vec::new(),
        labels: BTreeMap::new(),
    };
    ScrapeTarget { endpoint: Arc::new(endpoint), probe: false }
}

fn probed(host: &str) -> ScrapeTarget {
    ScrapeTarget { probe: true, ..target(host, None) }
}

struct House {
    engines: Arc<Engines>,
    sink: Arc<Sink>,
    targets: Arc<Mutex<Vec<ScrapeTarget>>>,
    stop: CancellationToken,
    options: ScrapeOptions,
}

impl House {
    fn new(targets: Vec<ScrapeTarget>) -> Self {
        Self {
            engines: Arc::default(),
            sink: Arc::default(),
            targets: Arc::new(Mutex::new(targets)),
            stop: CancellationToken::new(),
            options: ScrapeOptions { seed: 7, ..ScrapeOptions::default() },
        }
    }

    fn start(&self) -> Scraper {
        let targets = Arc::clone(&self.targets);
        Scraper::start(
            Arc::clone(&self.engines) as _,
            Arc::clone(&self.sink) as _,
            Arc::new(move || targets.lock().clone()),
            self.options.clone(),
            Arc::new(SystemClock),
            self.stop.clone(),
        )
    }
}

#[tokio::test(start_paused = true)]
async fn an_engine_is_visited_once_an_interval() {
    let house = House::new(vec![target("a", None)]);
    house.engines.set("a", "/metrics", Does::Answer(200, PAGE));
    house.engines.set(
        "a",
        "/v1/models",
        Does::Answer(200, "{\"data\":[{\"id\":\"m\"},{\"id\":\"sql\",\"parent\":\"m\"}]}"),
    );
    let began = Instant::now();
    let scraper = house.start();
    house.sink.until(|sink| sink.samples.lock().len() == 21).await;
    let took = began.elapsed().as_secs_f64();
    assert!((18.0..22.0).contains(&took), "20 intervals of 1 s took {took} s");
    let sample = house.sink.of("default/a:8000").pop().expect("a sample").expect("a good one");
    assert_eq!((sample.running, sample.waiting), (7, 0));
    // Visits 1, 11 and 21.
    assert_eq!(house.engines.calls("a", "/v1/models"), 3);
    house.sink.until(|sink| !sink.models.lock().is_empty()).await;
    assert_eq!(
        house.sink.models.lock()[0],
        ("default/a:8000".to_owned(), vec!["m".to_owned(), "sql".to_owned()])
    );
    assert_eq!(house.sink.listed_adapters.lock()[0], ("default/a:8000".to_owned(), vec!["sql".to_owned()]));
    assert_eq!(house.engines.calls("a", "/health"), 0);
    house.stop.cancel();
    scraper.stopped().await.expect("a clean end");
}

#[tokio::test(start_paused = true)]
async fn ranks_behind_one_url_share_a_visit() {
    let house = House::new(vec![target("a", Some(0)), target("a", Some(1)), target("a", Some(2))]);
    house.engines.set("a", "/metrics", Does::Answer(200, PAGE));
    house.start();
    house.sink.until(|sink| sink.samples.lock().len() == 3).await;
    house.stop.cancel();
    assert_eq!(house.engines.calls("a", "/metrics"), 1);
    let running = |id| house.sink.of(id).pop().expect("a result").map(|sample| sample.running);
    assert_eq!(running("default/a:8000"), Ok(2));
    assert_eq!(running("default/a:8000#1"), Ok(5));
    assert_eq!(running("default/a:8000#2"), Err(SampleError::Garbage("no numbers of rank 2".to_owned())));
}

/// The engine spreads requests over ranks that nobody can pin, so each counts with the mean: of what the engine reports,
/// and of what we have in flight there, so that no rank's requests look like somebody else's.
#[tokio::test(start_paused = true)]
async fn ranks_that_cannot_be_pinned_count_with_the_mean() {
    let unpinned = |rank| {
        let target = target("a", Some(rank));
        let endpoint = Endpoint { pin_rank: false, ..(*target.endpoint).clone() };
        ScrapeTarget { endpoint: Arc::new(endpoint), probe: false }
    };
    let house = House::new(vec![unpinned(0), unpinned(1)]);
    house.engines.set("a", "/metrics", Does::Answer(200, PAGE));
    house.start();
    house.sink.until(|sink| sink.samples.lock().len() == 2).await;
    house.stop.cancel();
    let sample = |id| house.sink.of(id).pop().expect("a result").expect("a sample");
    let (first, second) = (sample("default/a:8000"), sample("default/a:8000#1"));
    assert_eq!((first.running, second.running), (4, 4), "2 and 5 are 7; half of that, rounded up");
    // The sink counts one more with each question: 0 and 1, then 2 and 3 before; 4 and 5, then 6 and 7 after.
    assert_eq!((first.in_flight_at_scrape, second.in_flight_at_scrape), (5, 7));
}

#[tokio::test(start_paused = true)]
async fn adapters_are_told_with_the_numbers_of_one_rank() {
    const LORA: &str = "vllm:num_requests_running{engine=\"0\"} 2\n\
        vllm:lora_requests_info{max_lora=\"2\",running_lora_adapters=\"sql\",waiting_lora_adapters=\"\"} 1.7e9\n";
    let house = House::new(vec![target("a", None), target("b", None), target("c", Some(0))]);
    house.engines.set("a", "/metrics", Does::Answer(200, LORA));
    house.engines.set("b", "/metrics", Does::Answer(200, "vllm:num_requests_running{engine=\"0\"} 2\n"));
    let ranks = format!("vllm:num_requests_running{{engine=\"1\"}} 2\n{LORA}");
    house.engines.set("c", "/metrics", Does::Answer(200, Box::leak(ranks.into_boxed_str())));
    house.start();
    house.sink.until(|sink| sink.samples.lock().len() >= 3).await;
    house.stop.cancel();
    let told = house.sink.adapters.lock();
    let of = |host: &str| {
        let id = format!("default/{host}:8000");
        told.iter().find(|(of, _)| *of == id).map(|(_, adapters)| adapters.clone())
    };
    let sql = EngineAdapters { running: vec!["sql".to_owned()], waiting: Vec::new(), most: 2 };
    assert_eq!(of("a"), Some(Some(sql)));
    assert_eq!(of("b"), Some(None));
    assert_eq!(of("c"), Some(None), "the engine counts its ranks' adapters together");
}

/// RET-08 for scrapes: an engine that accepts and never answers delays nobody.
#[tokio::test(start_paused = true)]
async fn hanging_engines_do_not_delay_the_others() {
    let mut targets: Vec<_> = (0..150).map(|n| target(&format!("hang{n}"), None)).collect();
    targets.push(target("well", None));
    let house = House::new(targets);
    for n in 0..150 {
        house.engines.set(&format!("hang{n}"), "/metrics", Does::Hang);
    }
    house.engines.set("well", "/metrics", Does::Answer(200, PAGE));
    let began = Instant::now();
    house.start();
    house.sink.until(|sink| sink.of("default/well:8000").len() == 50).await;
    house.stop.cancel();
    let took = began.elapsed();
    assert!(took < Duration::from_secs(60), "50 visits took {took:?} beside 150 hanging engines");
    assert!(house.sink.of("default/hang0:8000").iter().all(|result| *result == Err(SampleError::Timeout)));
}

#[tokio::test(start_paused = true)]
async fn visits_are_bounded() {
    let mut house = House::new((0..300).map(|n| target(&format!("e{n}"), None)).collect());
    house.options.models_every = u32::MAX;
    for n in 0..300 {
        let host = format!("e{n}");
        house.engines.set(&host, "/metrics", Does::AnswerAfter(Duration::from_millis(300), PAGE));
        house.engines.set(&host, "/v1/models", Does::Refuse);
    }
    house.start();
    let everyone = |sink: &Sink| {
        sink.samples.lock().iter().map(|(id, _)| id.clone()).collect::<HashSet<_>>().len() == 300
    };
    house.sink.until(everyone).await;
    house.stop.cancel();
    let most = house.engines.most_scraping.load(Ordering::SeqCst);
    assert!(
        (100..=101).contains(&most),
        "{most} calls at once; the first visit of all also lists its models"
    );
}

/// MET-06: what is no page is an error for the sink, never numbers.
#[tokio::test(start_paused = true)]
async fn bad_pages_give_errors() {
    let cases = [
        ("error", Does::Answer(500, PAGE), "status 500"),
        ("absent", Does::Answer(404, "{}"), "status 404"),
        ("html", Does::Answer(200, "<html></html>\n"), "line 1"),
        ("cut", Does::Answer(200, "vllm:num_requests_running 2\nvllm:num_req"), "line 2"),
        ("hang", Does::Hang, "timed out"),
        ("down", Does::Refuse, "Connection refused"),
    ];
    let house = House::new(cases.iter().map(|(host, ..)| target(host, None)).collect());
    for (host, does, _) in cases {
        house.engines.set(host, "/metrics", does);
    }
    house.start();
    for (host, _, part) in cases {
        let id = format!("default/{host}:8000");
        house.sink.until(|sink| !sink.of(&id).is_empty()).await;
        let error = house.sink.of(&id).pop().expect("a result").expect_err(host);
        assert!(error.to_string().contains(part), "{host}: {error}");
    }
    house.stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn only_marked_endpoints_are_probed() {
    let house = House::new(vec![
        target("plain", None),
        probed("well"),
        probed("ill"),
        probed("down"),
        probed("bare"),
    ]);
    house.engines.set("plain", "/health", Does::Answer(200, ""));
    house.engines.set("well", "/health", Does::Answer(200, ""));
    house.engines.set("ill", "/health", Does::Answer(503, ""));
    house.engines.set("down", "/health", Does::Refuse);
    house.start();
    house.sink.until(|sink| sink.probes.lock().len() >= 6).await;
    house.stop.cancel();
    let seen: HashSet<_> = house.sink.probes.lock().iter().cloned().collect();
    let expected = [("default/well:8000", true), ("default/ill:8000", false), ("default/down:8000", false)];
    assert_eq!(seen, expected.map(|(id, healthy)| (id.to_owned(), healthy)).into());
    assert_eq!(house.engines.calls("plain", "/health"), 0);
}

#[tokio::test(start_paused = true)]
async fn the_larger_count_in_flight_goes_with_the_sample() {
    let house = House::new(vec![target("a", None)]);
    house.engines.set("a", "/metrics", Does::Answer(200, PAGE));
    house.start();
    house.sink.until(|sink| !sink.samples.lock().is_empty()).await;
    house.stop.cancel();
    let sample = house.sink.of("default/a:8000").pop().expect("a result").expect("a sample");
    assert_eq!(sample.in_flight_at_scrape, 1, "the sink counted 0 before the page and 1 after it");
}

/// KVE-08: an engine that reports sleep is told on.
#[tokio::test(start_paused = true)]
async fn sleep_is_told() {
    let mut house = House::new(vec![target("a", None)]);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&seen);
    house.options.on_sleep = Some(Arc::new(move |id, asleep| told.lock().push((id.to_string(), asleep))));
    house.engines.set("a", "/metrics", Does::Answer(200, PAGE));
    house.start();
    house.sink.until(|sink| !sink.samples.lock().is_empty()).await;
    house.stop.cancel();
    assert_eq!(*seen.lock(), [("default/a:8000".to_owned(), true)]);
}

#[tokio::test(start_paused = true)]
async fn a_panic_costs_one_visit_only() {
    let house = House::new(vec![target("a", None)]);
    house.engines.set("a", "/metrics", Does::Panic);
    let scraper = house.start();
    while house.engines.calls("a", "/metrics") < 3 {
        tokio::time::advance(Duration::from_millis(100)).await;
        tokio::task::yield_now().await;
    }
    house.engines.set("a", "/metrics", Does::Answer(200, PAGE));
    house.sink.until(|sink| sink.of("default/a:8000").iter().any(Result::is_ok)).await;
    house.stop.cancel();
    scraper.stopped().await.expect("the timetable itself never panicked");
}

#[tokio::test(start_paused = true)]
async fn removed_endpoints_are_left_alone_and_new_ones_are_noticed() {
    let house = House::new(vec![target("old", None)]);
    house.engines.set("old", "/metrics", Does::Hang);
    house.engines.set("new", "/metrics", Does::Answer(200, PAGE));
    house.start();
    while house.engines.calls("old", "/metrics") == 0 {
        tokio::task::yield_now().await;
    }
    let began = Instant::now();
    *house.targets.lock() = vec![target("new", None)];
    house.sink.until(|sink| sink.of("default/new:8000").len() == 5).await;
    house.stop.cancel();
    assert!(began.elapsed() < Duration::from_secs(6));
    assert_eq!(
        house.engines.dropped.load(Ordering::SeqCst),
        1,
        "the hanging call was dropped with its endpoint"
    );
    assert_eq!((house.engines.calls("old", "/metrics"), house.sink.of("default/old:8000").len()), (1, 0));
}

/// STL-06: endpoints come and go 2,000 times; nothing stays behind.
#[tokio::test(start_paused = true)]
async fn churn_leaves_no_tasks() {
    let house = House::new(Vec::new());
    let scraper = house.start();
    for n in 0..2000 {
        let host = format!("e{n}");
        house.engines.set(&host, "/metrics", if n % 2 == 0 { Does::Hang } else { Does::Refuse });
        *house.targets.lock() = vec![target(&host, None)];
        while house.engines.calls(&host, "/metrics") == 0 {
            tokio::time::advance(Duration::from_millis(50)).await;
        }
    }
    house.targets.lock().clear();
    let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    for _ in 0..100 {
        tokio::time::advance(Duration::from_millis(50)).await;
    }
    assert_eq!(alive(), 1, "the timetable is all that runs");
    house.stop.cancel();
    scraper.stopped().await.expect("a clean end");
    assert_eq!(alive(), 0);
    assert_eq!(house.engines.scraping.load(Ordering::SeqCst), 0);
}
