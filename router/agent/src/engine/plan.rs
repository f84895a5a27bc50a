//! From what an engine says of itself to what is followed: pure.

use kvasir_core::{AdapterName, EngineKind, ModelName};
use kvasir_kvcache::{KvEventsSource, parse_kv_event_sources};
use kvasir_settings::resolved::KvEventsSettings;
use kvasir_upstream::Discovery;

use crate::config::EngineConfig;

/// Where engines publish by convention: the port of vLLM's and SGLang's own examples, and of kthena's sidecar.
const USUAL_PORT: u16 = 5557;

/// The first version of vLLM that tells where it publishes.
const TELLS_SOURCES: (u32, u32) = (0, 32);

/// What is followed, and under which names it is published.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// The engine's served name: native keys.
    pub model: ModelName,
    /// The name in kthena's keys.
    pub kthena_model: ModelName,
    /// LoRA adapters that the engine lists.
    pub adapters: Vec<AdapterName>,
    /// One for each rank.
    pub sources: Vec<KvEventsSource>,
}

/// What can be done with an engine's answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Found {
    /// Follow it.
    Plan(Plan),
    /// It has no events; why, and the fix.
    NoEvents(String),
    /// Ask again later; why.
    Waiting(String),
}

/// Works out what to follow.
pub fn plan(config: &EngineConfig, discovery: &Discovery) -> Found {
    let Some(first) = discovery.served_models.first() else {
        let problem = discovery.problem.clone();
        return Found::Waiting(problem.unwrap_or_else(|| "the engine lists no model yet".to_owned()));
    };
    let given = config.model.as_ref();
    let model = given.filter(|name| discovery.served_models.contains(name)).unwrap_or(first);
    let sources = match sources(config, discovery) {
        Ok(sources) => sources,
        Err(found) => return found,
    };
    Found::Plan(Plan {
        model: model.clone(),
        kthena_model: given.unwrap_or(first).clone(),
        adapters: discovery.adapters.iter().map(|adapter| adapter.name.clone()).collect(),
        sources,
    })
}

fn sources(config: &EngineConfig, discovery: &Discovery) -> Result<Vec<KvEventsSource>, Found> {
    if !config.kv_events.is_empty() {
        return Ok(config.kv_events.iter().map(source_of).collect());
    }
    let url = config.address.url();
    if let Some(body) = &discovery.event_sources_body {
        let sources = parse_kv_event_sources(body, &config.address.host)
            .map_err(|error| Found::Waiting(format!("{url}/kv_event_sources cannot be read: {error}")))?;
        if sources.is_empty() {
            return Err(Found::NoEvents(format!(
                "{url} publishes no KV-cache events; start it with --kv-events-config and enable_kv_cache_events"
            )));
        }
        return Ok(sources);
    }
    // Without its answer a gap could not be repaired, so it is waited for where it must come.
    if config.kind == EngineKind::Vllm && discovery.engine_version.as_deref().is_some_and(tells_sources) {
        return Err(Found::Waiting(format!(
            "{url}/kv_event_sources does not answer; give --kv-events to do without"
        )));
    }
    let host = if config.address.host.contains(':') {
        format!("[{}]", config.address.host)
    } else {
        config.address.host.to_string()
    };
    Ok(vec![KvEventsSource {
        endpoint: format!("tcp://{host}:{USUAL_PORT}"),
        rank: Some(0),
        ..KvEventsSource::default()
    }])
}

fn source_of(settings: &KvEventsSettings) -> KvEventsSource {
    KvEventsSource::configured(&settings.endpoint, settings.replay.as_deref(), &settings.topic, settings.rank)
}

/// Whether a version tells where it publishes. A build from source may call itself anything; it is taken for old.
fn tells_sources(version: &str) -> bool {
    let mut numbers = version.split('.').map(|part| part.parse::<u32>().ok());
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(major), Some(minor)) => (major, minor) >= TELLS_SOURCES,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use kvasir_core::Address;
    use kvasir_upstream::AdapterListing;

    use super::*;

    fn config(model: Option<&str>) -> EngineConfig {
        EngineConfig {
            kind: EngineKind::Vllm,
            address: Address::parse("http://10.0.0.7:8000").unwrap(),
            metrics_path: "/metrics".to_owned(),
            pod: "a".into(),
            namespace: "ns".into(),
            model: model.map(ModelName::from),
            kv_events: Vec::new(),
        }
    }

    const SOURCES: &str = r#"{"0":{"enable_kv_cache_events":true,"endpoint":"tcp://*:5557","replay_endpoint":"tcp://*:5657"},
        "1":{"enable_kv_cache_events":true,"endpoint":"tcp://*:5558"}}"#;

    fn discovery(version: &str, sources: Option<&'static str>) -> Discovery {
        Discovery {
            engine_version: Some(version.to_owned()),
            served_models: vec!["served".into(), "second".into()],
            adapters: vec![AdapterListing { name: "sql".into(), parent: "served".into() }],
            event_sources_body: sources.map(|text| Bytes::from_static(text.as_bytes())),
            problem: None,
        }
    }

    fn followed(config: &EngineConfig, discovery: &Discovery) -> Plan {
        match plan(config, discovery) {
            Found::Plan(plan) => plan,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn native_keys_have_the_served_name_and_kthenas_the_given_one() {
        for (given, model, kthena) in [
            (None, "served", "served"),
            (Some("alias"), "served", "alias"),
            (Some("second"), "second", "second"),
        ] {
            let plan = followed(&config(given), &discovery("0.32.0", Some(SOURCES)));
            assert_eq!((plan.model.as_str(), plan.kthena_model.as_str()), (model, kthena), "{given:?}");
            assert_eq!(plan.adapters, [AdapterName::from("sql")]);
        }
    }

    #[test]
    fn sources_are_configured_told_or_usual() {
        let shown = |plan: Plan| plan.sources.iter().map(ToString::to_string).collect::<Vec<_>>();
        let told = shown(followed(&config(None), &discovery("0.32.0", Some(SOURCES))));
        assert_eq!(
            told,
            [
                "events from tcp://10.0.0.7:5557, replay from tcp://10.0.0.7:5657",
                "events from tcp://10.0.0.7:5558, no replay"
            ]
        );
        let usual = shown(followed(&config(None), &discovery("0.18.0", None)));
        assert_eq!(usual, ["events from tcp://10.0.0.7:5557, no replay"]);
        let given = EngineConfig {
            kv_events: vec![KvEventsSettings {
                endpoint: "tcp://*:6000".to_owned(),
                replay: Some("tcp://e:6001".to_owned()),
                topic: "kv".to_owned(),
                rank: 3,
            }],
            ..config(None)
        };
        let plan = followed(&given, &discovery("0.32.0", Some(SOURCES)));
        assert!(plan.sources[0].bind && plan.sources[0].rank == Some(3) && plan.sources[0].topic == "kv");
    }

    #[test]
    fn what_is_missing_is_said() {
        let silent = Discovery {
            problem: Some("http://10.0.0.7:8000 cannot be asked".to_owned()),
            ..Discovery::default()
        };
        assert_eq!(
            plan(&config(None), &silent),
            Found::Waiting("http://10.0.0.7:8000 cannot be asked".to_owned())
        );
        for (found, part) in [
            (plan(&config(None), &Discovery::default()), "no model"),
            (plan(&config(None), &discovery("0.32.1", None)), "does not answer"),
            (plan(&config(None), &discovery("1.0", None)), "does not answer"),
            (plan(&config(None), &discovery("0.32.0", Some("[]"))), "cannot be read"),
        ] {
            assert!(matches!(&found, Found::Waiting(reason) if reason.contains(part)), "{part}: {found:?}");
        }
        let none = plan(&config(None), &discovery("0.32.0", Some("{}")));
        assert!(
            matches!(&none, Found::NoEvents(reason) if reason.contains("--kv-events-config")),
            "{none:?}"
        );
        assert!(!tells_sources("0.1.dev5+gabc") && !tells_sources("nightly"));
    }
}
