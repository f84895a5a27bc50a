//! The ways to place requests that are compared.

use kvasir_settings::resolved::SchedulerSettings;
use serde::Serialize;

/// Who chooses the pod.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// The `random` scorer.
    Random,
    /// One after the other, each replica by itself.
    RoundRobin,
    /// The `least-request` scorer alone.
    LeastRequest,
    /// The `prefix-cache` scorer alone.
    PrefixCache,
    /// `kvcache-aware` and `least-request`, weight 1 each.
    KvCacheAware,
    /// What kthena's chart enables: the `least-request` filter, and the scorers `least-request`, `gpu-usage`,
    /// `least-latency` and `prefix-cache` with weight 1 each.
    KthenaDefault,
    /// The default profile of the settings.
    KvasirCost,
    /// Knows every cache and queue and computes when the first token would come; takes the pod where it comes first.
    OracleSoonest,
    /// Knows the same; takes the pod with the most of the prompt, as long as waiting for it takes no longer than computing
    /// the whole prompt at the pod that would be soonest.
    OracleReuse,
}

/// How a policy is carried out.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Placement {
    /// By the scheduler with these settings.
    Scheduler(Box<SchedulerSettings>),
    /// In turn.
    InTurn,
    /// With perfect knowledge.
    Oracle(Wish),
}

/// What an oracle wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wish {
    Soonest,
    MostReuse,
}

impl Policy {
    /// Every policy, ours last but for the oracles.
    pub const ALL: [Self; 9] = [
        Self::Random,
        Self::RoundRobin,
        Self::LeastRequest,
        Self::PrefixCache,
        Self::KvCacheAware,
        Self::KthenaDefault,
        Self::KvasirCost,
        Self::OracleSoonest,
        Self::OracleReuse,
    ];

    /// As typed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::RoundRobin => "round-robin",
            Self::LeastRequest => "least-request",
            Self::PrefixCache => "prefix-cache",
            Self::KvCacheAware => "kvcache-aware",
            Self::KthenaDefault => "kthena-default",
            Self::KvasirCost => "kvasir-cost",
            Self::OracleSoonest => "oracle-soonest",
            Self::OracleReuse => "oracle-reuse",
        }
    }

    /// The policy of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name)
    }

    /// Whether it knows what no router can know.
    pub fn is_oracle(self) -> bool {
        matches!(self, Self::OracleSoonest | Self::OracleReuse)
    }

    /// `affinity` is that of `kvasir-cost`; `None` is the default.
    pub(crate) fn placement(self, affinity: Option<f64>) -> Placement {
        let scheduler = |filters: &[&str], scorers: &[&str]| {
            Placement::Scheduler(Box::new(SchedulerSettings {
                filters: filters.iter().map(|name| (*name).to_owned()).collect(),
                scorers: scorers.iter().map(|name| ((*name).to_owned(), 1.0)).collect(),
                ..SchedulerSettings::default()
            }))
        };
        match self {
            Self::Random => scheduler(&[], &["random"]),
            Self::RoundRobin => Placement::InTurn,
            Self::LeastRequest => scheduler(&[], &["least-request"]),
            Self::PrefixCache => scheduler(&[], &["prefix-cache"]),
            Self::KvCacheAware => scheduler(&[], &["kvcache-aware", "least-request"]),
            Self::KthenaDefault => scheduler(
                &["least-request"],
                &["least-request", "gpu-usage", "least-latency", "prefix-cache"],
            ),
            Self::KvasirCost => {
                let mut settings = SchedulerSettings::default();
                if let Some(affinity) = affinity {
                    settings.args.kvasir_cost.affinity = affinity;
                }
                Placement::Scheduler(Box::new(settings))
            }
            Self::OracleSoonest => Placement::Oracle(Wish::Soonest),
            Self::OracleReuse => Placement::Oracle(Wish::MostReuse),
        }
    }
}

impl Placement {
    /// The scheduler's settings; the default ones for a placement without a scheduler.
    pub(crate) fn settings(&self) -> SchedulerSettings {
        match self {
            Self::Scheduler(settings) => (**settings).clone(),
            Self::InTurn | Self::Oracle(_) => SchedulerSettings::default(),
        }
    }
}
