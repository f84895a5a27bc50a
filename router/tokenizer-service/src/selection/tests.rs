use tokio::sync::watch::{self, Sender};
use tokio::time::{advance, timeout};

use super::*;
use crate::model_set::parse_json;

const MAPPED: &str = r#"{"a":"/a","b":"/b","c":"/c"}"#;

struct Told {
    cluster: Sender<Option<BTreeSet<String>>>,
    selection: Selection,
}

impl Told {
    fn new(most: usize) -> Self {
        let (cluster, names) = watch::channel(None);
        Self { cluster, selection: Selection::new(Some(names), most, &Timings::default()) }
    }

    fn names(&self, names: &[&str]) {
        self.cluster.send_replace(Some(names.iter().map(|name| (*name).to_owned()).collect()));
    }

    fn chosen(&mut self) -> (Known, Vec<String>) {
        let (known, chosen) = self.selection.choose(&parse_json(MAPPED).unwrap());
        (known, chosen.unwrap_or_default().into_keys().collect())
    }

    fn named(&mut self) -> String {
        let (known, chosen) = self.chosen();
        assert_eq!(known, Known::Named);
        chosen.concat()
    }

    /// How long nothing has to be chosen anew, seconds.
    async fn quiet(&mut self) -> Option<u64> {
        let begin = Instant::now();
        let changed = timeout(Duration::from_secs(3_600), self.selection.changed()).await;
        changed.is_ok().then(|| begin.elapsed().as_secs())
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_cluster_it_is_what_has_a_source() {
    let mapped = parse_json(MAPPED).unwrap();
    let mut selection = Selection::new(None, 8, &Timings::default());
    assert_eq!(selection.choose(&mapped), (Known::Mapped, Some(mapped)));
    assert!(timeout(Duration::from_secs(3_600), selection.changed()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn it_is_what_is_named_and_has_a_source() {
    let mut told = Told::new(8);
    assert_eq!(told.chosen(), (Known::Nothing, Vec::new()));
    told.names(&["b", "unmapped"]);
    assert_eq!(told.quiet().await, Some(0));
    assert_eq!(told.named(), "b");
    assert_eq!(told.quiet().await, None, "neither time nor silence changes it");
    told.names(&["b", "c"]);
    assert_eq!((told.quiet().await, told.named()), (Some(0), "bc".to_owned()));
    told.names(&[]);
    advance(Duration::from_secs(61)).await;
    assert_eq!(told.named(), "bc", "a minute from when it was heard");
}

#[tokio::test(start_paused = true)]
async fn who_waits_in_vain_for_the_cluster_serves_what_has_a_source() {
    let mut told = Told::new(8);
    assert_eq!(told.chosen().0, Known::Nothing);
    assert_eq!(told.quiet().await, Some(Timings::default().first_names.as_secs()));
    assert_eq!(told.chosen(), (Known::ForNow, vec!["a".to_owned(), "b".to_owned(), "c".to_owned()]));
    assert_eq!(told.quiet().await, None);
    // It was never named, so it has no time to stay.
    told.names(&["c"]);
    assert_eq!((told.quiet().await, told.named()), (Some(0), "c".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn what_is_named_no_more_stays_for_a_minute() {
    let mut told = Told::new(8);
    told.names(&["a", "b"]);
    assert_eq!(told.named(), "ab");
    told.names(&["a"]);
    assert_eq!(told.named(), "ab");
    advance(Duration::from_secs(40)).await;
    told.names(&[]);
    assert_eq!(told.named(), "ab");
    assert_eq!((told.quiet().await, told.named()), (Some(20), "a".to_owned()));
    // Named again: it stays, and the next minute is a whole one.
    told.names(&["a"]);
    assert_eq!(told.named(), "a");
    assert_eq!(told.quiet().await, None);
    told.names(&[]);
    assert_eq!((told.named(), told.quiet().await), ("a".to_owned(), Some(60)));
    assert_eq!(told.named(), "");
    assert_eq!(told.quiet().await, None);
}

#[tokio::test(start_paused = true)]
async fn who_leaves_makes_room_for_who_comes() {
    let mut told = Told::new(2);
    told.names(&["a", "b"]);
    assert_eq!(told.named(), "ab");
    told.names(&["b"]);
    assert_eq!(told.named(), "ab");
    advance(Duration::from_secs(1)).await;
    told.names(&["c"]);
    assert_eq!(told.named(), "bc", "the one that left last stays");
    told.names(&["a", "c"]);
    assert_eq!(told.named(), "ac");
}

#[tokio::test(start_paused = true)]
async fn a_source_that_comes_later_counts() {
    let mut told = Told::new(8);
    told.names(&["a", "d"]);
    assert_eq!(told.named(), "a");
    let mapped = parse_json(r#"{"d":"/d"}"#).unwrap();
    assert_eq!(told.selection.choose(&mapped).1, Some(mapped));
}
