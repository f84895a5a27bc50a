//! The face of `kvasir tokenizer`: flags with their environment twins.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use clap::Args;
use tokio_util::sync::CancellationToken;

use crate::cluster::{self, Cluster};
use crate::config::ServiceConfig;
use crate::service::Service;

const LISTENER: &str = "Listener";
const MODELS: &str = "Models";
const KUBERNETES: &str = "Kubernetes";
const RENDERERS: &str = "Renderers (`vllm launch render`)";
const HUB: &str = "Hub";

/// What `kvasir tokenizer` was told, as it was typed; [`ServiceConfig::of`] works it out, so that every problem is
/// reported at once. The variables without `KVASIR_` are those of kthena's tokenizer service and of the hub.
#[derive(Args, Clone, Debug)]
pub struct TokenizerArgs {
    /// Address to listen at
    #[arg(long, env = "TOKENIZER_HOST", value_name = "HOST", default_value = "0.0.0.0", help_heading = LISTENER)]
    pub host: String,
    /// Port to listen at
    #[arg(long, env = "TOKENIZER_PORT", value_name = "PORT", default_value = "8100", help_heading = LISTENER)]
    pub port: String,
    /// Longest time for one answer, seconds
    #[arg(long, env = "PROXY_TIMEOUT_SECONDS", value_name = "SECONDS", default_value = "5", help_heading = LISTENER)]
    pub proxy_timeout_seconds: String,

    /// Served names and their sources, a directory or a hub repository, as JSON: {"qwen3":"Qwen/Qwen3-0.6B"}. A value
    /// may be an object with source, engine and chatTemplate
    #[arg(long, env = "MODEL_TOKENIZERS", value_name = "JSON", help_heading = MODELS)]
    pub models: Option<String>,
    /// The same in a file, JSON or YAML, read again when it changes; its entries win over --models
    #[arg(long, env = "MODEL_TOKENIZERS_FILE", value_name = "FILE", help_heading = MODELS)]
    pub models_file: Option<String>,
    /// Most models at the same time, 1 to 1024; those beyond, by name, are shown as failed
    #[arg(long, env = "MAX_TOKENIZERS", value_name = "COUNT", default_value = "8", help_heading = MODELS)]
    pub max_tokenizers: String,
    /// native (in this process), render (a `vllm launch render` child for each model), or auto: native where it is
    /// exact, else render
    #[arg(long, env = "TOKENIZER_ENGINE", value_name = "ENGINE", default_value = "auto", help_heading = MODELS)]
    pub engine: String,

    /// Whether only models are served that a ModelServer of the cluster names: on, off, or auto, which is on in a pod
    /// (KUBERNETES_SERVICE_HOST is set) and where KUBECONFIG is set. With on, ~/.kube/config counts too
    #[arg(long, env = "TOKENIZER_KUBERNETES", value_name = "MODE", default_value = "auto", help_heading = KUBERNETES)]
    pub kubernetes: String,
    /// The only namespace whose ModelServers count [default: all]
    #[arg(long, env = "WATCH_NAMESPACE", value_name = "NAMESPACE", help_heading = KUBERNETES)]
    pub watch_namespace: Option<String>,
    /// Taken for compatibility, without effect: ModelServers are watched, so nothing has to be listed anew
    #[arg(long, env = "RESYNC_PERIOD_SECONDS", value_name = "SECONDS", help_heading = KUBERNETES)]
    pub resync_period_seconds: Option<String>,

    /// Command of a renderer, split at white space; source, served name, host and port are appended
    #[arg(long, env = "VLLM_RENDER_COMMAND", value_name = "COMMAND", default_value = "vllm launch render", help_heading = RENDERERS)]
    pub render_command: String,
    /// Arguments appended to every renderer's command, split at white space
    #[arg(long, env = "VLLM_RENDER_EXTRA_ARGS", value_name = "ARGS", allow_hyphen_values = true, help_heading = RENDERERS)]
    pub render_extra_args: Option<String>,
    /// First port for renderers, on 127.0.0.1; the lowest free one is taken
    #[arg(long, env = "RENDERER_BASE_PORT", value_name = "PORT", default_value = "8200", help_heading = RENDERERS)]
    pub renderer_base_port: String,
    /// Longest start of a model, download included, seconds
    #[arg(long, env = "RENDERER_STARTUP_TIMEOUT_SECONDS", value_name = "SECONDS", default_value = "600", help_heading = RENDERERS)]
    pub renderer_startup_timeout_seconds: String,
    /// Restarts of a renderer that dies or hangs before its model counts as failed, 0 to 1000
    #[arg(long, env = "RENDERER_MAX_RESTARTS", value_name = "COUNT", default_value = "3", help_heading = RENDERERS)]
    pub renderer_max_restarts: String,
    /// Time of being ready that gives one spent restart back, seconds
    #[arg(long, env = "RENDERER_RESTART_REFILL_SECONDS", value_name = "SECONDS", default_value = "600", help_heading = RENDERERS)]
    pub renderer_restart_refill_seconds: String,
    /// Pause before a failed model is tried again, seconds; doubles with every failure in a row, up to 16 times this
    #[arg(long, env = "RENDERER_RETRY_SECONDS", value_name = "SECONDS", default_value = "30", help_heading = RENDERERS)]
    pub renderer_retry_seconds: String,

    /// Credential for the hub, here and in renderers; the variable keeps it out of the process list
    #[arg(long, env = "HF_TOKEN", value_name = "TOKEN", hide_env_values = true, help_heading = HUB)]
    pub hf_token: Option<Secret>,
    /// The hub, or a mirror of it [default: https://huggingface.co]
    #[arg(long, env = "HF_ENDPOINT", value_name = "URL", help_heading = HUB)]
    pub hf_endpoint: Option<String>,
    /// Directory whose `hub` folder caches downloads [default: ~/.cache/huggingface]
    #[arg(long, env = "HF_HOME", value_name = "DIR", help_heading = HUB)]
    pub hf_home: Option<String>,
    /// The cache itself, in the hub's own layout [default: hub in --hf-home]
    #[arg(long, env = "HF_HUB_CACHE", value_name = "DIR", help_heading = HUB)]
    pub hf_hub_cache: Option<String>,
    /// Use what the cache holds and ask nobody
    #[arg(long, env = "HF_HUB_OFFLINE", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = HUB)]
    pub hf_hub_offline: Option<String>,

    /// Level of the log, or a filter
    #[arg(long, env = "KVASIR_LOG_LEVEL", value_name = "LEVEL", default_value = "info")]
    pub log_level: String,
}

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The text.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl FromStr for Secret {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.trim().to_owned()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// The subcommand: serves until `stop`, then ends every renderer.
///
/// # Errors
/// A configuration that cannot be used, an address that cannot be bound, or no credentials for the cluster that is to be
/// watched.
pub async fn run(args: TokenizerArgs, stop: CancellationToken) -> anyhow::Result<()> {
    let config = match ServiceConfig::of(&args) {
        Ok(config) => config,
        Err(problems) => anyhow::bail!("the configuration cannot be used:\n{problems}"),
    };
    kvasir_telemetry::logging::init(&args.log_level, false).map_err(anyhow::Error::msg)?;
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    let service = open(config, &stop).await?;
    tracing::info!(address = %service.address(), "listening");
    service.serve(stop).await;
    Ok(())
}

/// A service that listens, beside its cluster where it has one.
///
/// # Errors
/// An address that cannot be bound, or no credentials for a cluster that was asked for.
pub async fn open(config: ServiceConfig, stop: &CancellationToken) -> anyhow::Result<Service> {
    let cluster = config.cluster.clone();
    let service = Service::bind(config).await?;
    let Some(Cluster { settings, asked_for }) = cluster else { return Ok(service) };
    match cluster::follow(&settings, stop.clone()).await {
        Ok(names) => {
            let namespace = settings.watch_namespace.as_deref().unwrap_or("all");
            tracing::info!(namespace, "models are those that ModelServers name");
            Ok(service.named_by(names))
        }
        Err(error) if asked_for => Err(error.into()),
        Err(error) => {
            tracing::warn!("no ModelServers are watched, so every model with a source is served: {error}");
            Ok(service)
        }
    }
}
