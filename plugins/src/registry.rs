//! From the scheduler's settings to its parts: the only place that knows every plugin's name.

use std::sync::Arc;

use kvasir_core::{
    BlockIndex, BlockLookup, DataProducer, Filter, Picker, PlacementObserver, ScheduleMeter, Scorer,
    SystemClock, Tokenizer,
};
use kvasir_settings::resolved::{PluginArgs, SchedulerSettings};

use crate::filters;
use crate::hit_source::HitSource;
use crate::pickers::top_n::TopN;
use crate::producers::blocks::Blocks;
use crate::producers::prefix_hits::PrefixHits;
use crate::producers::store_hits::StoreHits;
use crate::producers::text_hashes::TextHashes;
use crate::producers::tokens::Tokens;
use crate::scorers;

/// Names that [`build`] takes as filters.
pub const FILTERS: [&str; 2] =
    [filters::least_request::LeastRequest::NAME, filters::lora_affinity::LoraAffinity::NAME];

/// Names that [`build`] takes as scorers.
pub const SCORERS: [&str; 9] = [
    scorers::kvasir_cost::KvasirCost::NAME,
    scorers::session_affinity::SessionAffinity::NAME,
    scorers::kvcache_aware::KvCacheAware::NAME,
    scorers::prefix_cache::PrefixCache::NAME,
    scorers::least_request::LeastRequest::NAME,
    scorers::least_latency::LeastLatency::NAME,
    scorers::gpu_usage::GpuUsage::NAME,
    scorers::random::Random::NAME,
    scorers::lora_residency::LoraResidency::NAME,
];

/// What plugins lean on.
#[derive(Clone)]
pub struct Parts {
    /// Who holds which blocks.
    pub index: Arc<dyn BlockIndex>,
    /// From a request to token ids.
    pub tokenizer: Arc<dyn Tokenizer>,
    /// Match ratios and evictions.
    pub meter: Arc<dyn ScheduleMeter>,
    /// Chance of the `random` scorer.
    pub seed: u64,
}

/// A store that may be asked for each request, and whether it is.
#[derive(Clone)]
pub struct StoreLookup {
    /// Asks it.
    pub lookup: Arc<dyn BlockLookup>,
    /// Says whether it or the index is asked, and hears what was noticed.
    pub source: Arc<HitSource>,
}

impl std::fmt::Debug for StoreLookup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreLookup").field("source", &self.source).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").field("seed", &self.seed).finish_non_exhaustive()
    }
}

/// The parts of a profile, and the producers to choose from.
pub struct Built {
    /// In the configured order.
    pub filters: Vec<Arc<dyn Filter>>,
    /// With their weights.
    pub scorers: Vec<(Arc<dyn Scorer>, f64)>,
    /// Ranks by the totals.
    pub picker: Arc<dyn Picker>,
    /// Every producer there is; the scheduler runs those that the scorers need.
    pub producers: Vec<Arc<dyn DataProducer>>,
    /// Scorers that learn where requests went.
    pub observers: Vec<Arc<dyn PlacementObserver>>,
    /// `prefix-cache`, when enabled: its entries are a metric, and it must hear of endpoints that are gone.
    pub prefix_cache: Option<Arc<scorers::prefix_cache::PrefixCache>>,
}

impl std::fmt::Debug for Built {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scorers: Vec<_> = self.scorers.iter().map(|(scorer, weight)| (scorer.name(), *weight)).collect();
        f.debug_struct("Built")
            .field("filters", &self.filters.iter().map(|filter| filter.name()).collect::<Vec<_>>())
            .field("scorers", &scorers)
            .field("picker", &self.picker.name())
            .field("observers", &self.observers.iter().map(|observer| observer.name()).collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// Why no parts could be made. Settings that were resolved never cause it.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum BuildError {
    /// There is no filter of that name.
    #[error("unknown filter {0:?}; there are {names}", names = FILTERS.join(", "))]
    UnknownFilter(String),
    /// There is no scorer of that name.
    #[error("unknown scorer {0:?}; there are {names}", names = SCORERS.join(", "))]
    UnknownScorer(String),
    /// A weight that is negative or no number.
    #[error("scorer {name:?} has weight {weight}; it must be 0 or more")]
    BadWeight {
        /// The scorer.
        name: String,
        /// Its weight.
        weight: f64,
    },
}

/// Makes the parts that `settings` enable.
///
/// # Errors
/// A name that no plugin has, or a weight that cannot be used.
pub fn build(settings: &SchedulerSettings, parts: Parts) -> Result<Built, BuildError> {
    assemble(settings, &parts, None)
}

/// The same over a store outside the process, which is asked who holds which blocks as its source says.
///
/// # Errors
/// As [`build`].
pub fn build_with_store(
    settings: &SchedulerSettings,
    parts: Parts,
    store: StoreLookup,
) -> Result<Built, BuildError> {
    assemble(settings, &parts, Some(&store))
}

fn assemble(
    settings: &SchedulerSettings,
    parts: &Parts,
    store: Option<&StoreLookup>,
) -> Result<Built, BuildError> {
    let filters =
        settings.filters.iter().map(|name| filter(name, &settings.args)).collect::<Result<_, _>>()?;
    let mut built = Built {
        filters,
        scorers: Vec::with_capacity(settings.scorers.len()),
        picker: Arc::new(TopN::new(settings.top_n)),
        producers: producers(&settings.args, parts, store),
        observers: Vec::new(),
        prefix_cache: None,
    };
    for (name, weight) in &settings.scorers {
        if !weight.is_finite() || *weight < 0.0 {
            return Err(BuildError::BadWeight { name: name.clone(), weight: *weight });
        }
        let scorer = scorer(name, &settings.args, parts, store, &mut built)?;
        built.scorers.push((scorer, *weight));
    }
    Ok(built)
}

fn producers(args: &PluginArgs, parts: &Parts, store: Option<&StoreLookup>) -> Vec<Arc<dyn DataProducer>> {
    let index = PrefixHits::new(Arc::clone(&parts.index));
    vec![
        Arc::new(TextHashes::new(&args.prefix_cache)),
        Arc::new(Tokens::new(Arc::clone(&parts.tokenizer))),
        Arc::new(Blocks::new(Arc::clone(&parts.index))),
        match store {
            Some(store) => Arc::new(StoreHits::new(index, store.clone(), &args.kvcache_aware)),
            None => Arc::new(index),
        },
    ]
}

fn filter(name: &str, args: &PluginArgs) -> Result<Arc<dyn Filter>, BuildError> {
    use filters::{least_request::LeastRequest, lora_affinity::LoraAffinity};
    Ok(match name {
        LeastRequest::NAME => Arc::new(LeastRequest::new(&args.least_request)),
        LoraAffinity::NAME => Arc::new(LoraAffinity),
        _ => return Err(BuildError::UnknownFilter(name.to_owned())),
    })
}

/// One scorer; those that also observe enter themselves in `built`.
fn scorer(
    name: &str,
    args: &PluginArgs,
    parts: &Parts,
    store: Option<&StoreLookup>,
    built: &mut Built,
) -> Result<Arc<dyn Scorer>, BuildError> {
    use scorers::{
        gpu_usage::GpuUsage, kvasir_cost::KvasirCost, kvcache_aware::KvCacheAware,
        least_latency::LeastLatency, least_request::LeastRequest, lora_residency::LoraResidency,
        prefix_cache::PrefixCache, random::Random, session_affinity::SessionAffinity,
    };
    Ok(match name {
        KvasirCost::NAME => {
            let plugin = Arc::new(KvasirCost::new(&args.kvasir_cost));
            built.observers.push(Arc::clone(&plugin) as Arc<dyn PlacementObserver>);
            plugin
        }
        SessionAffinity::NAME => {
            let plugin = Arc::new(SessionAffinity::new(&args.session_affinity, Arc::new(SystemClock)));
            built.observers.push(Arc::clone(&plugin) as Arc<dyn PlacementObserver>);
            plugin
        }
        KvCacheAware::NAME => {
            let source = store.map_or_else(Arc::default, |store| Arc::clone(&store.source));
            Arc::new(KvCacheAware::new(&args.kvcache_aware, source, Arc::clone(&parts.meter)))
        }
        PrefixCache::NAME => {
            let plugin = Arc::new(PrefixCache::new(&args.prefix_cache, Arc::clone(&parts.meter)));
            built.observers.push(Arc::clone(&plugin) as Arc<dyn PlacementObserver>);
            built.prefix_cache = Some(Arc::clone(&plugin));
            plugin
        }
        LeastRequest::NAME => Arc::new(LeastRequest),
        LeastLatency::NAME => Arc::new(LeastLatency::new(&args.least_latency)),
        GpuUsage::NAME => Arc::new(GpuUsage),
        LoraResidency::NAME => Arc::new(LoraResidency),
        Random::NAME => Arc::new(Random::new(parts.seed)),
        _ => return Err(BuildError::UnknownScorer(name.to_owned())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Index, Store};
    use kvasir_core::{BoxFuture, InferenceRequest, Needs, NoMeter, TokenizeError, Tokenized};
    use std::time::Duration;

    struct NoTokens;

    impl Tokenizer for NoTokens {
        fn encode<'a>(&'a self, _: &'a InferenceRequest) -> BoxFuture<'a, Result<Tokenized, TokenizeError>> {
            Box::pin(async { Err(TokenizeError::NoBackend) })
        }
    }

    fn parts() -> Parts {
        Parts {
            index: Arc::new(Index::default()),
            tokenizer: Arc::new(NoTokens),
            meter: Arc::new(NoMeter),
            seed: 1,
        }
    }

    fn settings(filters: &[&str], scorers: &[(&str, f64)]) -> SchedulerSettings {
        SchedulerSettings {
            filters: filters.iter().map(|name| (*name).to_owned()).collect(),
            scorers: scorers.iter().map(|(name, weight)| ((*name).to_owned(), *weight)).collect(),
            args: PluginArgs::default(),
            top_n: 5,
            gather_deadline: Duration::from_millis(100),
        }
    }

    #[test]
    fn every_name_builds_the_plugin_of_that_name() {
        let all: Vec<(&str, f64)> = SCORERS.iter().map(|name| (*name, 2.0)).collect();
        let built = build(&settings(&FILTERS, &all), parts()).unwrap();
        assert_eq!(built.filters.iter().map(|filter| filter.name()).collect::<Vec<_>>(), FILTERS);
        assert_eq!(built.scorers.iter().map(|(scorer, _)| scorer.name()).collect::<Vec<_>>(), SCORERS);
        assert!(built.scorers.iter().all(|(_, weight)| (weight - 2.0).abs() < f64::EPSILON));
        let observers: Vec<_> = built.observers.iter().map(|observer| observer.name()).collect();
        assert_eq!(observers, ["kvasir-cost", "session-affinity", "prefix-cache"]);
        assert!(built.prefix_cache.is_some());
    }

    #[test]
    fn every_need_of_a_scorer_has_one_producer_with_and_without_a_store() {
        let store = StoreLookup { lookup: Arc::new(Store::default()), source: Arc::default() };
        let all: Vec<(&str, f64)> = SCORERS.iter().map(|name| (*name, 1.0)).collect();
        every_need_has_one_producer(&build(&settings(&[], &all), parts()).unwrap());
        every_need_has_one_producer(&build_with_store(&settings(&[], &all), parts(), store).unwrap());
    }

    fn every_need_has_one_producer(built: &Built) {
        let hits = |producer: &&Arc<dyn DataProducer>| producer.provides().contains(Needs::PREFIX_HITS);
        assert_eq!(built.producers.iter().filter(hits).count(), 1);
        let provided = built.producers.iter().fold(Needs::NONE, |all, producer| all | producer.provides());
        for (scorer, _) in &built.scorers {
            assert!(provided.contains(scorer.needs()), "{}", scorer.name());
        }
        for producer in &built.producers {
            assert!(provided.contains(producer.after()), "{}", producer.name());
        }
    }

    #[test]
    fn nothing_enabled_is_fine_and_mistakes_are_named() {
        let built = build(&settings(&[], &[]), parts()).unwrap();
        assert!(built.filters.is_empty() && built.scorers.is_empty() && built.prefix_cache.is_none());
        let error = |filters: &[&str], scorers: &[(&str, f64)]| {
            build(&settings(filters, scorers), parts()).unwrap_err().to_string()
        };
        assert!(error(&["random"], &[]).contains(r#"unknown filter "random"; there are least-request"#));
        assert!(error(&[], &[("lora-affinity", 1.0)]).contains("unknown scorer"));
        assert!(error(&[], &[("random", -1.0)]).contains("weight -1"));
        assert!(error(&[], &[("random", f64::NAN)]).contains("NaN"));
    }

    #[test]
    fn a_filter_listed_twice_runs_twice() {
        let built = build(&settings(&["least-request", "least-request"], &[]), parts()).unwrap();
        assert_eq!(built.filters.len(), 2);
    }
}
