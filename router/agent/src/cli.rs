//! The face of `kvasir agent`: flags with their environment twins.

use clap::Args;
use kvasir_settings::flags::RedisArgs;
use tokio_util::sync::CancellationToken;

use crate::config::AgentConfig;
use crate::service::Service;

const ENGINE: &str = "Engine";
const PUBLISHING: &str = "Publishing";
const LISTENER: &str = "Listener";
const KTHENA: &str = "Variables of kthena's sidecar";

/// What `kvasir agent` was told, as it was typed; [`AgentConfig::of`] works it out, so that every problem is reported at
/// once. Short flags and the variables without `KVASIR_` are those of kthena's sidecar.
#[derive(Args, Clone, Debug, Default)]
pub struct AgentArgs {
    /// What the engine is: vllm, sglang or vllmdisaggregated (kthena's word for a vLLM with a role), in any case
    #[arg(short = 'E', long, env = "KVASIR_AGENT_ENGINE", value_name = "ENGINE", default_value = "vllm", help_heading = ENGINE)]
    pub engine: String,
    /// Where the engine serves HTTP. Its port is part of what routers know the engine by, so it must be the port that
    /// they send requests to
    #[arg(short = 'B', long, env = "KVASIR_AGENT_ENGINE_BASE_URL", value_name = "URL", default_value = "http://localhost:8000", help_heading = ENGINE)]
    pub engine_base_url: String,
    /// Path of the engine's metrics
    #[arg(short = 'M', long, env = "KVASIR_AGENT_ENGINE_METRICS_PATH", value_name = "PATH", default_value = "/metrics", help_heading = ENGINE)]
    pub engine_metrics_path: String,
    /// The engine's pod and its namespace, which routers know the engine by; outside of Kubernetes the host that routers
    /// reach it at, with the namespace `default` [default: POD_NAME and POD_NAMESPACE, else the host of the base URL]
    #[arg(short = 'I', long, env = "KVASIR_AGENT_POD", value_name = "NAME.NAMESPACE", help_heading = ENGINE)]
    pub pod: Option<String>,
    /// The model's name in kthena's keys, and which name to take where the engine serves several. Native keys have the
    /// name the engine serves [default: the first one that the engine lists]
    #[arg(short = 'N', long, env = "KVASIR_AGENT_MODEL", value_name = "NAME", help_heading = ENGINE)]
    pub model: Option<String>,
    /// Where the engine publishes its KV-cache events; may be repeated, once for each data-parallel rank. A replay given
    /// as a port is at the same host. The variable separates entries with `;` [default: what the engine tells at
    /// /kv_event_sources, else port 5557 of its host]
    #[arg(long, env = "KVASIR_AGENT_KV_EVENTS", value_name = "tcp://HOST:PORT[,replay=tcp://HOST:PORT|PORT][,topic=PREFIX][,rank=N]", value_delimiter = ';', help_heading = ENGINE)]
    pub kv_events: Vec<String>,
    /// A YAML file of many engines, in place of the flags above (docs/guides/agent.md)
    #[arg(long, env = "KVASIR_AGENT_ENGINES", value_name = "FILE", help_heading = ENGINE)]
    pub engines: Option<String>,
    /// How often the engine's metrics are read: capacity, and whether it sleeps
    #[arg(long, env = "KVASIR_AGENT_SCRAPE_INTERVAL", value_name = "DURATION", default_value = "2s", help_heading = ENGINE)]
    pub scrape_interval: String,

    /// Where Redis is and how to get in.
    #[command(flatten)]
    pub redis: RedisArgs,

    /// What is written: native (for Kvasir's routers), kthena (for kthena's), or both [default: native with --redis, both
    /// where Redis is named by kthena's REDIS_HOST or not at all]
    #[arg(long, env = "KVASIR_AGENT_LAYOUT", value_name = "LAYOUT", help_heading = PUBLISHING)]
    pub layout: Option<String>,
    /// How long what an engine holds counts after its agent was last heard of, 1s to 1m
    #[arg(long, env = "KVASIR_AGENT_LEASE", value_name = "DURATION", default_value = "10s", help_heading = PUBLISHING)]
    pub lease: String,
    /// How often the state that a restarted agent resumes from is saved, where it changed
    #[arg(long, env = "KVASIR_AGENT_RESUME_INTERVAL", value_name = "DURATION", default_value = "10s", help_heading = PUBLISHING)]
    pub resume_interval: String,

    /// Address to listen at
    #[arg(short = 'H', long, env = "KVASIR_AGENT_HOST", value_name = "HOST", default_value = "0.0.0.0", help_heading = LISTENER)]
    pub host: String,
    /// Port of /health, /readyz, /metrics and /status
    #[arg(short = 'P', long, env = "KVASIR_AGENT_PORT", value_name = "PORT", default_value = "9000", help_heading = LISTENER)]
    pub port: String,
    /// Level of the log, or a filter
    #[arg(long, env = "KVASIR_LOG_LEVEL", value_name = "LEVEL", default_value = "info", help_heading = LISTENER)]
    pub log_level: String,

    /// Pod name, where --pod is not given
    #[arg(long, env = "POD_NAME", value_name = "NAME", help_heading = KTHENA, hide_short_help = true)]
    pub pod_name: Option<String>,
    /// The pod's namespace
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAMESPACE", help_heading = KTHENA, hide_short_help = true)]
    pub pod_namespace: Option<String>,
    /// Where a vLLM publishes its events, where --kv-events is not given
    #[arg(long, env = "VLLM_ZMQ_ENDPOINT", value_name = "tcp://HOST:PORT", help_heading = KTHENA, hide_short_help = true)]
    pub vllm_zmq_endpoint: Option<String>,
    /// Prefix of the topics taken from it; empty takes everything
    #[arg(long, env = "VLLM_ZMQ_TOPIC_FILTER", value_name = "PREFIX", help_heading = KTHENA, hide_short_help = true)]
    pub vllm_zmq_topic_filter: Option<String>,
    /// Where an SGLang publishes its events, where --kv-events is not given
    #[arg(long, env = "SGLANG_ZMQ_ENDPOINT", value_name = "tcp://HOST:PORT", help_heading = KTHENA, hide_short_help = true)]
    pub sglang_zmq_endpoint: Option<String>,
    /// Prefix of the topics taken from it; empty takes everything
    #[arg(long, env = "SGLANG_ZMQ_TOPIC_FILTER", value_name = "PREFIX", help_heading = KTHENA, hide_short_help = true)]
    pub sglang_zmq_topic_filter: Option<String>,
}

/// The subcommand: follows and publishes until `stop`, then publishes what is left and gives the leases back.
///
/// # Errors
/// A configuration that cannot be used, or an address that cannot be bound. Neither an engine nor a Redis that is not
/// there is an error: both are waited for.
pub async fn run(args: AgentArgs, stop: CancellationToken) -> anyhow::Result<()> {
    let config = match AgentConfig::of(&args) {
        Ok(config) => config,
        Err(problems) => anyhow::bail!("the configuration cannot be used:\n{problems}"),
    };
    kvasir_telemetry::logging::init(&config.log_level, false).map_err(anyhow::Error::msg)?;
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    let service = Service::bind(config).await?;
    tracing::info!(address = %service.address(), "listening");
    service.serve(stop).await;
    Ok(())
}
