use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::*;

const LOAD: Duration = Duration::from_secs(2);

fn adapters(most: usize) -> Arc<Adapters> {
    Adapters::new(&["a".to_owned(), "b".to_owned(), "c".to_owned()], most, LOAD)
}

/// Running and waiting names, as the newest series tells them.
fn state(adapters: &Adapters) -> (String, String) {
    let mut page = String::new();
    adapters.render(&mut page);
    let newest = page.lines().last().expect("a series").to_owned();
    let label = |name: &str| {
        let (_, rest) = newest.split_once(&format!("{name}=\"")).expect("the label");
        rest.split('"').next().unwrap_or_default().to_owned()
    };
    (label("running_lora_adapters"), label("waiting_lora_adapters"))
}

fn told(running: &str, waiting: &str) -> (String, String) {
    (running.to_owned(), waiting.to_owned())
}

fn take(adapters: &Arc<Adapters>, name: &str) -> JoinHandle<InUse> {
    let (adapters, name) = (Arc::clone(adapters), Arc::from(name));
    tokio::spawn(async move { adapters.take(name).await })
}

async fn settle() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_request_loads_and_the_next_ones_do_not() {
    let (adapters, began) = (adapters(2), Instant::now());
    let (first, second) = (take(&adapters, "a"), take(&adapters, "a"));
    settle().await;
    assert_eq!(state(&adapters), told("", "a"));
    let (first, second) = (first.await.expect("a place"), second.await.expect("a place"));
    assert_eq!((began.elapsed(), state(&adapters)), (LOAD, told("a", "")));
    drop((first, second));
    assert_eq!(state(&adapters), told("", ""));
    take(&adapters, "a").await.expect("it is loaded still");
    assert_eq!(began.elapsed(), LOAD);
}

#[tokio::test(start_paused = true)]
async fn a_full_engine_makes_the_next_one_wait_for_an_idle_place() {
    let adapters = adapters(1);
    let first = take(&adapters, "a").await.expect("a place");
    let second = take(&adapters, "b");
    settle().await;
    tokio::time::advance(LOAD * 3).await;
    assert_eq!(state(&adapters), told("a", "b"));
    drop(first);
    let second = second.await.expect("a place");
    assert_eq!(state(&adapters), told("b", ""));
    drop(second);
    let began = Instant::now();
    take(&adapters, "a").await.expect("a place");
    assert_eq!(began.elapsed(), LOAD, "its place was taken");
}

#[tokio::test(start_paused = true)]
async fn who_leaves_while_it_loads_leaves_nothing_behind() {
    let adapters = adapters(1);
    let gone = take(&adapters, "a");
    settle().await;
    gone.abort();
    assert!(gone.await.is_err());
    assert_eq!(state(&adapters), told("", ""));
    take(&adapters, "b").await.expect("the place is free");
}

#[test]
fn the_list_changes_at_run_time_and_the_page_is_bounded() {
    let adapters = adapters(0);
    assert!(adapters.add("d") && !adapters.add("d") && adapters.serves("d"));
    assert_eq!((adapters.id("a"), adapters.id("d"), adapters.id("e")), (Some(1), Some(4), None));
    assert!(adapters.remove("a") && !adapters.remove("a") && !adapters.serves("a"));
    for number in 0..500 {
        adapters.change(|books| books.waiting = vec![format!("x{number}").into()]);
    }
    let mut page = String::new();
    adapters.render(&mut page);
    assert_eq!(page.lines().count(), 2 + MOST_STATES);
    assert_eq!(state(&adapters), told("", "x499"));
    let mut none = String::new();
    Adapters::new(&[], 0, LOAD).render(&mut none);
    assert_eq!(none, "", "an engine without LoRA tells nothing of it");
}
