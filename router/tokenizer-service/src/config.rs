//! From what was typed to what is meant; every problem is reported at once.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kvasir_settings::kubernetes::resolve_watcher_from;
use kvasir_settings::{DiskFiles, Files, KthenaEnvironment, SystemFacts};

use crate::cli::{Secret, TokenizerArgs};
use crate::cluster::Cluster;
use crate::hub::HubConfig;
use crate::model_set::{self, EngineChoice, ModelSet};
use crate::render::RenderCommand;
use crate::timings::Timings;

/// The public hub.
const HUB: &str = "https://huggingface.co";

/// Largest models file, bytes.
const MOST_FILE_BYTES: u64 = 1 << 20;

/// Everything the service needs to know.
#[derive(Clone, Debug)]
pub struct ServiceConfig {
    /// Where to listen, `HOST:PORT`.
    pub listen: (String, u16),
    /// Longest time for one answer.
    pub proxy_timeout: Duration,
    /// The models of `--models`.
    pub models: ModelSet,
    /// The file whose entries are laid over them.
    pub models_file: Option<PathBuf>,
    /// The cluster whose ModelServers name the models; `None` for all that have a source.
    pub cluster: Option<Cluster>,
    /// Most models at the same time.
    pub max_tokenizers: usize,
    /// What answers for a model that does not say.
    pub engine: EngineChoice,
    /// How renderers are started.
    pub render: RenderCommand,
    /// First port for renderers.
    pub base_port: u16,
    /// Restarts before a model counts as failed.
    pub max_restarts: u32,
    /// The hub.
    pub hub: HubConfig,
    /// How long things may take.
    pub timings: Timings,
    /// What the user should know and nothing else tells.
    pub warnings: Vec<String>,
}

/// What cannot be used, a sentence for each.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Problems(pub Vec<String>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, problem) in self.0.iter().enumerate() {
            let end = if position == 0 { "" } else { "\n" };
            write!(f, "{end}  {problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

impl ServiceConfig {
    /// Works out what was typed. Reads the models file, and looks where this process runs.
    ///
    /// # Errors
    /// Everything that is wrong.
    pub fn of(args: &TokenizerArgs) -> Result<Self, Problems> {
        Self::within(args, &DiskFiles, &SystemFacts::read().environment)
    }

    /// The same within a given environment; `files` are those that it names.
    ///
    /// # Errors
    /// Everything that is wrong.
    pub fn within(
        args: &TokenizerArgs,
        files: &dyn Files,
        environment: &KthenaEnvironment,
    ) -> Result<Self, Problems> {
        let mut reader = Reader::default();
        let models = reader.models(args);
        let engine = EngineChoice::parse(&args.engine).unwrap_or_else(|| {
            reader.problem(format!("--engine {:?}: auto, native or render", args.engine));
            EngineChoice::Auto
        });
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<String>>();
        let command = words(&args.render_command);
        if command.is_empty() {
            reader.problem("--render-command is empty".to_owned());
        }
        let render =
            RenderCommand { command, extra: words(args.render_extra_args.as_deref().unwrap_or_default()) };
        let mut config = Self {
            listen: (args.host.trim().to_owned(), reader.number("--port", &args.port, 0, 65_535)),
            proxy_timeout: reader.seconds("--proxy-timeout-seconds", &args.proxy_timeout_seconds, 1, 600),
            models,
            models_file: said(&args.models_file).map(PathBuf::from),
            cluster: reader.cluster(args, files, environment),
            max_tokenizers: reader.number("--max-tokenizers", &args.max_tokenizers, 1, 1024),
            engine,
            render,
            base_port: reader.number("--renderer-base-port", &args.renderer_base_port, 1, 65_535),
            max_restarts: reader.number("--renderer-max-restarts", &args.renderer_max_restarts, 0, 1000),
            hub: reader.hub(args),
            timings: reader.timings(args),
            warnings: Vec::new(),
        };
        config.warnings = warnings(args, config.cluster.is_some());
        reader.check_native(&config);
        if reader.problems.is_empty() { Ok(config) } else { Err(Problems(reader.problems)) }
    }

    /// The set that holds now: the models of the flag, with those of the file laid over them.
    ///
    /// # Errors
    /// Why the file cannot be used.
    pub fn read_models(&self) -> Result<ModelSet, String> {
        let mut models = self.models.clone();
        if let Some(path) = &self.models_file {
            models.extend(read_file(path)?);
        }
        Ok(models)
    }
}

fn read_file(path: &Path) -> Result<ModelSet, String> {
    let shown = path.display();
    let size = std::fs::metadata(path).map_err(|error| format!("{shown}: {error}"))?.len();
    if size > MOST_FILE_BYTES {
        return Err(format!("{shown}: {size} bytes; {MOST_FILE_BYTES} are the most"));
    }
    let text = std::fs::read_to_string(path).map_err(|error| format!("{shown}: {error}"))?;
    model_set::parse_yaml(&text).map_err(|reason| format!("{shown}: {reason}"))
}

/// A value that was given; charts set variables to the empty text for "not set".
fn said(text: &Option<String>) -> Option<&str> {
    text.as_deref().map(str::trim).filter(|text| !text.is_empty())
}

fn warnings(args: &TokenizerArgs, watches: bool) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some(namespace) = said(&args.watch_namespace).filter(|_| !watches) {
        warnings.push(format!(
            "WATCH_NAMESPACE {namespace:?} has no effect: no ModelServers are watched (--kubernetes {}); every model of \
             MODEL_TOKENIZERS is served",
            args.kubernetes.trim()
        ));
    }
    if said(&args.resync_period_seconds).is_some() {
        warnings.push(
            "RESYNC_PERIOD_SECONDS has no effect: ModelServers are watched, not listed anew".to_owned(),
        );
    }
    if said(&args.models).is_none() && said(&args.models_file).is_none() {
        warnings.push("no models: neither MODEL_TOKENIZERS nor --models-file is set".to_owned());
    }
    warnings
}

#[derive(Default)]
struct Reader {
    problems: Vec<String>,
}

impl Reader {
    fn problem(&mut self, problem: String) {
        self.problems.push(problem);
    }

    fn number<T: TryFrom<u64> + Default>(&mut self, flag: &str, text: &str, least: u64, most: u64) -> T {
        let number = text.trim().parse::<u64>().ok().filter(|number| (least..=most).contains(number));
        match number.and_then(|number| T::try_from(number).ok()) {
            Some(number) => number,
            None => {
                self.problem(format!("{flag} {text:?}: a whole number from {least} to {most}"));
                T::default()
            }
        }
    }

    fn seconds(&mut self, flag: &str, text: &str, least: u64, most: u64) -> Duration {
        Duration::from_secs(self.number(flag, text, least, most))
    }

    fn timings(&mut self, args: &TokenizerArgs) -> Timings {
        let day = 86_400;
        Timings {
            startup: self.seconds(
                "--renderer-startup-timeout-seconds",
                &args.renderer_startup_timeout_seconds,
                1,
                day,
            ),
            refill: self.seconds(
                "--renderer-restart-refill-seconds",
                &args.renderer_restart_refill_seconds,
                1,
                day,
            ),
            retry: self.seconds("--renderer-retry-seconds", &args.renderer_retry_seconds, 1, day),
            ..Timings::default()
        }
    }

    fn models(&mut self, args: &TokenizerArgs) -> ModelSet {
        let given = said(&args.models).unwrap_or_default();
        let models = model_set::parse_json(given).unwrap_or_else(|reason| {
            self.problem(format!("--models: {reason}"));
            ModelSet::new()
        });
        if let Some(path) = said(&args.models_file)
            && let Err(reason) = read_file(Path::new(path))
        {
            self.problem(format!("--models-file: {reason}"));
        }
        models
    }

    fn cluster(
        &mut self,
        args: &TokenizerArgs,
        files: &dyn Files,
        environment: &KthenaEnvironment,
    ) -> Option<Cluster> {
        let kubernetes = &environment.kubernetes;
        let is_found = kubernetes.service_host.is_some() || kubernetes.kubeconfig.is_some();
        let asked_for = match args.kubernetes.trim() {
            "on" => true,
            "auto" | "" if is_found => false,
            "auto" | "" | "off" => return None,
            other => {
                self.problem(format!("--kubernetes {other:?}: auto, on or off"));
                return None;
            }
        };
        match resolve_watcher_from(args.watch_namespace.as_deref(), files, environment) {
            Ok(settings) => Some(Cluster { settings, asked_for }),
            Err(problems) => {
                self.problem(format!("{problems}; or write --kubernetes off"));
                None
            }
        }
    }

    fn hub(&mut self, args: &TokenizerArgs) -> HubConfig {
        let endpoint = said(&args.hf_endpoint).unwrap_or(HUB).trim_end_matches('/').to_owned();
        if !endpoint.starts_with("https://") && !endpoint.starts_with("http://") {
            self.problem(format!("--hf-endpoint {endpoint:?}: a URL with http:// or https://"));
        }
        let offline = match said(&args.hf_hub_offline).map(str::to_ascii_lowercase).as_deref() {
            None | Some("0" | "false" | "no" | "off") => false,
            Some("1" | "true" | "yes" | "on") => true,
            Some(other) => {
                self.problem(format!("--hf-hub-offline {other:?}: true or false"));
                false
            }
        };
        let home = || {
            said(&args.hf_home).map(PathBuf::from).unwrap_or_else(|| {
                std::env::home_dir()
                    .map_or_else(std::env::temp_dir, |home| home.join(".cache"))
                    .join("huggingface")
            })
        };
        let cache = said(&args.hf_hub_cache).map_or_else(|| home().join("hub"), PathBuf::from);
        let token = args.hf_token.clone().filter(|token| !token.reveal().is_empty());
        HubConfig { endpoint, token, cache, offline, from_flag: said(&args.hf_endpoint).is_some() }
    }

    /// Arguments of renderers may change the ids; the native engine does not read them.
    fn check_native(&mut self, config: &ServiceConfig) {
        if let Some(argument) = config.render.first_that_changes_ids() {
            let native = config
                .models
                .iter()
                .filter(|(_, spec)| spec.engine.unwrap_or(config.engine) == EngineChoice::Native);
            for (name, _) in native {
                self.problem(format!(
                    "model {name:?} is to be native, which does not know {argument:?} of --render-extra-args"
                ));
            }
        }
    }
}

/// The token, for those who pass it on.
pub(crate) fn token(secret: Option<&Secret>) -> Option<&str> {
    secret.map(Secret::reveal)
}

#[cfg(test)]
mod tests;
