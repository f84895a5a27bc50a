//! What is shared with other replicas, and through which Redis.

use std::time::Duration;

use crate::coordination::{CoordinationMode, SharedLoadMode};
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
    files: &dyn Files,
    facts: &SystemFacts,
    findings: &mut Findings,
) -> Sharing {
    let mut values = FlagValues::new(findings);
    let shared_load = values.shared_load("--shared-load", &args.shared_load);
    let mirror_grace = values.duration("--mirror-grace", &args.mirror_grace, true);
    let replica_name = super::said(&args.replica_name).map(str::trim);
    if let Some(name) = replica_name.filter(|name| !is_replica_name(name)) {
        let fix = format!("write up to {LONGEST_NAME} letters, digits, - . or _");
        findings.error(&Place::flag("--replica-name"), format!("{name:?} is no name of a replica"), fix);
    }
    let kvcache_aware = scheduler.scorers.iter().any(|(name, _)| name == "kvcache-aware");
    let environment = &facts.environment.redis;
    let default_host = from_document && kvcache_aware;
    let before = findings.problem_count();
    let redis = choose(&args.redis, files, environment, KthenaProgram::Router, default_host, findings);
    let coordination = scheduler.args.kvcache_aware.coordination.filter(|_| kvcache_aware);
    if findings.problem_count() == before {
        let named = redis.as_ref().is_some_and(|redis| !redis.implied);
        if coordination == Some(CoordinationMode::Query) && !named {
            let file = Place::file(super::said(&args.config).unwrap_or_default());
            let message = "blocks cannot be looked up for each request: no Redis is named";
            let fix = "add --redis redis://HOST:PORT, or set REDIS_HOST; or remove coordination";
            findings.error(&file.key("kvcache-aware.coordination"), message, fix);
        }
        let needs_redis = matches!(shared_load, SharedLoadMode::Native | SharedLoadMode::Kthena);
        if needs_redis && redis.is_none() {
            let fix = "add --redis redis://HOST:PORT, or write --shared-load auto";
            findings.error(&Place::flag("--shared-load"), "there is no Redis to share the load through", fix);
        }
    }
    Sharing { redis, coordination, shared_load, mirror_grace, replica_name: replica_name.map(str::to_owned) }
}

/// Whether a text can be a replica's name.
fn is_replica_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    text.len() <= LONGEST_NAME && !text.is_empty() && text.bytes().all(is_plain)
}
