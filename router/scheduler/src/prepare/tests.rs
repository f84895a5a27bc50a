use super::*;
use crate::testing::{Heard, pool, request};
use kvasir_core::{BoxFuture, PrefixHit, ProduceError, TokenSource, Tokenized};
use parking_lot::Mutex;

/// How a producer under test behaves.
#[derive(Clone, Copy, PartialEq)]
enum Manner {
    Fills,
    Fails,
    NeverReady,
}

struct Part {
    name: &'static str,
    provides: Needs,
    after: Needs,
    manner: Manner,
    ran: Arc<Mutex<Vec<&'static str>>>,
}

impl kvasir_core::Plugin for Part {
    fn name(&self) -> &'static str {
        self.name
    }
}

impl DataProducer for Part {
    fn provides(&self) -> Needs {
        self.provides
    }

    fn after(&self) -> Needs {
        self.after
    }

    fn produce<'a>(
        &'a self,
        _: &'a InferenceRequest,
        _: &'a Candidates,
        cycle: &'a mut CycleState,
    ) -> BoxFuture<'a, Result<(), ProduceError>> {
        Box::pin(async move {
            self.ran.lock().push(self.name);
            // Slots are filled before the outcome is known, to see that they are emptied again.
            if self.provides.contains(Needs::TOKENS) {
                let ids = vec![1, 2, 3].into();
                cycle.tokens = TokenSlot::Ready(Tokenized {
                    ids,
                    source: TokenSource::Local,
                    took: Duration::ZERO,
                    whole: true,
                });
            }
            if self.provides.contains(Needs::PREFIX_HITS) {
                cycle.hits = vec![PrefixHit::default(); 2];
            }
            if self.provides.contains(Needs::TEXT_HASHES) {
                cycle.text_hashes = vec![7];
            }
            match self.manner {
                Manner::Fills => Ok(()),
                Manner::Fails => Err(ProduceError { producer: self.name, reason: "broken" }),
                Manner::NeverReady => std::future::pending().await,
            }
        })
    }
}

#[derive(Default)]
struct Bench {
    ran: Arc<Mutex<Vec<&'static str>>>,
    parts: Vec<Arc<dyn DataProducer>>,
    heard: Heard,
}

impl Bench {
    fn with(mut self, name: &'static str, provides: Needs, after: Needs, manner: Manner) -> Self {
        self.parts.push(Arc::new(Part { name, provides, after, manner, ran: Arc::clone(&self.ran) }));
        self
    }

    /// The usual chain, listed back to front, with text hashes beside it.
    fn usual(tokens: Manner, hits: Manner, text: Manner) -> Self {
        Self::default()
            .with("text", Needs::TEXT_HASHES, Needs::NONE, text)
            .with("hits", Needs::PREFIX_HITS, Needs::BLOCKS, hits)
            .with("blocks", Needs::BLOCKS, Needs::TOKENS, Manner::Fills)
            .with("tokens", Needs::TOKENS, Needs::NONE, tokens)
    }

    async fn run(&self, needs: Needs) -> CycleState {
        let request = request();
        let mut cycle = CycleState::new(&request);
        Plan::new(self.parts.clone(), needs)
            .run(&request, &pool(2), &mut cycle, Duration::from_millis(1), &self.heard)
            .await;
        cycle
    }
}

#[tokio::test]
async fn only_what_is_needed_runs_each_after_its_inputs() {
    let bench = Bench::usual(Manner::Fills, Manner::Fills, Manner::Fills);
    let cycle = bench.run(Needs::PREFIX_HITS).await;
    assert_eq!(*bench.ran.lock(), ["tokens", "blocks", "hits"]);
    assert_eq!(cycle.hits.len(), 2);
    assert!(cycle.text_hashes.is_empty() && bench.heard.failed.lock().is_empty());

    let bench = Bench::usual(Manner::Fills, Manner::Fills, Manner::Fills);
    bench.run(Needs::NONE).await;
    assert!(bench.ran.lock().is_empty());
}

#[tokio::test]
async fn a_failure_empties_the_slot_is_counted_once_and_spares_the_others() {
    let bench = Bench::usual(Manner::Fails, Manner::Fills, Manner::Fills);
    let cycle = bench.run(Needs::PREFIX_HITS | Needs::TEXT_HASHES).await;
    assert!(matches!(cycle.tokens, TokenSlot::Empty));
    assert_eq!(cycle.text_hashes, [7]);
    assert!(cycle.hits.is_empty());
    assert_eq!(*bench.heard.failed.lock(), [("tokens", "broken")]);

    let bench = Bench::usual(Manner::Fills, Manner::Fails, Manner::Fails);
    let cycle = bench.run(Needs::PREFIX_HITS | Needs::TEXT_HASHES).await;
    assert!(matches!(cycle.tokens, TokenSlot::Ready(_)));
    assert!(cycle.hits.is_empty() && cycle.text_hashes.is_empty());
    assert_eq!(*bench.heard.failed.lock(), [("text", "broken"), ("hits", "broken")]);
}

#[tokio::test]
async fn a_late_producer_is_dropped_and_immediate_work_still_gets_its_turn() {
    let bench = Bench::default()
        .with("tokens", Needs::TOKENS, Needs::NONE, Manner::NeverReady)
        .with("blocks", Needs::BLOCKS, Needs::TOKENS, Manner::Fills)
        .with("text", Needs::TEXT_HASHES, Needs::NONE, Manner::Fills);
    let cycle = bench.run(Needs::BLOCKS | Needs::TEXT_HASHES).await;
    assert!(matches!(cycle.tokens, TokenSlot::Failed(TokenizeError::Deadline)));
    assert_eq!(cycle.text_hashes, [7]);
    assert_eq!(*bench.ran.lock(), ["tokens", "text"]);
    assert_eq!(*bench.heard.failed.lock(), [("tokens", "deadline")]);
}

#[test]
fn a_plan_knows_what_it_lacks() {
    let bench = Bench::usual(Manner::Fills, Manner::Fills, Manner::Fills);
    let whole = Plan::new(bench.parts.clone(), Needs::PREFIX_HITS);
    assert!(whole.is_complete() && whole.provides().contains(Needs::TOKENS));
    assert_eq!(format!("{whole:?}"), r#"["tokens", "blocks", "hits"]"#);

    let no_tokens = Plan::new(bench.parts[..3].to_vec(), Needs::PREFIX_HITS);
    assert!(!no_tokens.is_complete());
    assert!(no_tokens.provides().is_empty(), "what lacks its input is left out");

    let circle = Bench::default().with("a", Needs::TOKENS, Needs::BLOCKS, Manner::Fills).with(
        "b",
        Needs::BLOCKS,
        Needs::TOKENS,
        Manner::Fills,
    );
    assert!(!Plan::new(circle.parts, Needs::BLOCKS).is_complete());
}
