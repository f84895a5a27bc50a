//! What is shared with other replicas, and through which Redis.

use std::time::Duration;

use crate::coordination::{CoordinationMode, SharedLoadMode};
use crate::defaults;
use crate::duration::{format_duration, parse_duration};
use crate::facts::{Files, SystemFacts};
use crate::flag_values::FlagValues;
use crate::flags::RouterArgs;
use crate::problems::{Findings, Place};
use crate::redis::{KthenaProgram, RedisSettings, choose};
use crate::resolved::SchedulerSettings;

/// Characters of a replica's name: it is part of a key.
const LONGEST_NAME: usize = 128;

/// The part of the settings that this is about.
#[derive(Debug)]
pub(super) struct Sharing {
    pub(super) redis: Option<RedisSettings>,
    pub(super) implied_redis: Option<RedisSettings>,
    pub(super) coordination: Option<CoordinationMode>,
    pub(super) shared_load: SharedLoadMode,
    pub(super) mirror_grace: Duration,
    pub(super) replica_name: Option<String>,
}

/// Works it out. kthena's `kvcache-aware` always asks a Redis, so a document with it means kthena's default host where
/// nobody names another.
pub(super) fn resolve(
    args: &RouterArgs,
    scheduler: &SchedulerSettings,
    from_document: bool,
    document: &Place,
    files: &dyn Files,
    facts: &SystemFacts,
    findings: &mut Findings,
) -> Sharing {
    let mut values = FlagValues::new(findings);
    let shared_load = values.shared_load("--shared-load", &args.shared_load);
    let mirror_grace = values.duration("--mirror-grace", &args.mirror_grace, true);
    if mirror_grace < defaults::SHORTEST_MIRROR_GRACE && parse_duration(&args.mirror_grace).is_ok() {
        let message = format!(
            "is {}; what Redis told is read anew every second, and one late answer would make caches count as partly \
             known",
            format_duration(mirror_grace)
        );
        let fix = format!("write at least {}", format_duration(defaults::SHORTEST_MIRROR_GRACE));
        findings.error(&Place::flag("--mirror-grace"), message, fix);
    }
    let replica_name = super::said(&args.replica_name).map(str::trim);
    if let Some(name) = replica_name.filter(|name| !is_replica_name(name)) {
        let fix = format!("write up to {LONGEST_NAME} letters, digits, - . or _");
        findings.error(&Place::flag("--replica-name"), format!("{name:?} is no name of a replica"), fix);
    }
    let environment = &facts.environment.redis;
    let before = findings.problem_count();
    let default_host = from_document && uses_kvcache(scheduler);
    let redis = choose(&args.redis, files, environment, KthenaProgram::Router, default_host, findings);
    let implied_redis = match &redis {
        Some(redis) => Some(redis.clone()),
        None => {
            // What is wrong with the flags was said above.
            let mut unsaid = Findings::default();
            choose(&args.redis, files, environment, KthenaProgram::Router, true, &mut unsaid)
        }
    };
    let mut coordination = None;
    if findings.problem_count() == before {
        coordination = self::coordination(scheduler, redis.as_ref(), document, findings);
        let needs_redis = matches!(shared_load, SharedLoadMode::Native | SharedLoadMode::Kthena);
        if needs_redis && redis.is_none() {
            let fix = "add --redis redis://HOST:PORT, or write --shared-load auto";
            findings.error(&Place::flag("--shared-load"), "there is no Redis to share the load through", fix);
        }
    }
    Sharing {
        implied_redis: implied_redis.filter(|redis| redis.implied),
        redis,
        coordination,
        shared_load,
        mirror_grace,
        replica_name: replica_name.map(str::to_owned),
    }
}

fn uses_kvcache(scheduler: &SchedulerSettings) -> bool {
    scheduler.scorers.iter().any(|(name, _)| name == "kvcache-aware")
}

/// The Redis that counts with another document: the one that was named, else what the document implies.
pub(super) fn redis_with(
    named: Option<RedisSettings>,
    implied: Option<&RedisSettings>,
    scheduler: &SchedulerSettings,
) -> Option<RedisSettings> {
    named.or_else(|| implied.filter(|_| uses_kvcache(scheduler)).cloned())
}

/// Where blocks are looked up. Lookups for each request need a Redis that somebody named.
pub(super) fn coordination(
    scheduler: &SchedulerSettings,
    redis: Option<&RedisSettings>,
    document: &Place,
    findings: &mut Findings,
) -> Option<CoordinationMode> {
    let mode = scheduler.args.kvcache_aware.coordination.filter(|_| uses_kvcache(scheduler));
    let named = redis.is_some_and(|redis| !redis.implied);
    if mode == Some(CoordinationMode::Query) && !named {
        let message = "blocks cannot be looked up for each request: no Redis is named";
        let fix = "add --redis redis://HOST:PORT, or set REDIS_HOST; or remove coordination";
        findings.error(&document.key("kvcache-aware.coordination"), message, fix);
    }
    mode
}

/// Whether a text can be a replica's name.
fn is_replica_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    text.len() <= LONGEST_NAME && !text.is_empty() && text.bytes().all(is_plain)
}
