//! A whole router in this process, on free ports.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use kvasir::house::Furniture;
use kvasir::signals::Signals;
use kvasir_core::{Address, EngineKind};
use kvasir_gateway::Gateway;
use kvasir_gateway::listener::Served;
use kvasir_settings::Settings;
use kvasir_settings::resolved::{AccessLog, EndpointSettings, ModelSettings};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// The model that every test router serves.
pub const MODEL: &str = "test-model";

/// A running router.
#[derive(Debug)]
pub struct Router {
    /// Inference.
    pub inference: SocketAddr,
    /// Metrics.
    pub metrics: SocketAddr,
    /// Admin.
    pub admin: SocketAddr,
    /// The door.
    pub gateway: Arc<Gateway>,
    /// To stop it.
    pub signals: Signals,
    served: JoinHandle<anyhow::Result<Served>>,
}

/// Settings for one model over `urls`, on free loopback ports, without an access log.
///
/// # Errors
/// When a URL cannot be read.
pub fn settings(urls: &[String]) -> anyhow::Result<Settings> {
    let any: SocketAddr = "127.0.0.1:0".parse()?;
    let mut settings =
        Settings { listen: any, metrics_listen: any, admin_listen: any, ..Settings::default() };
    settings.access_log = AccessLog { enabled: false, ..settings.access_log };
    settings.headers.endpoint_header = true;
    settings.drain_settle = std::time::Duration::ZERO;
    settings.models = vec![model(MODEL, urls)?];
    Ok(settings)
}

/// One model over `urls`.
///
/// # Errors
/// When a URL cannot be read.
pub fn model(name: &str, urls: &[String]) -> anyhow::Result<ModelSettings> {
    let endpoints = urls
        .iter()
        .map(|url| {
            let address = Address::parse(url).map_err(anyhow::Error::msg)?;
            Ok(EndpointSettings::new(address))
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    Ok(ModelSettings {
        name: name.into(),
        served_name: None,
        aliases: Vec::new(),
        engine: EngineKind::Vllm,
        tokenizer: None,
        chat_template: None,
        adapters: Vec::new(),
        connector: None,
        endpoints,
    })
}

impl Router {
    /// Starts a router and waits until it is ready.
    ///
    /// # Errors
    /// When it cannot start.
    pub async fn start(settings: Settings) -> anyhow::Result<Self> {
        let signals = Signals::default();
        let (opened, is_open) = oneshot::channel();
        let served = tokio::spawn(kvasir::router::serve(
            settings,
            signals.clone(),
            Furniture::default(),
            move |running| {
                let _ = opened.send(running);
            },
        ));
        let running = is_open.await.context("the router ended before it was ready")?;
        let [inference, metrics, admin] = running.addresses;
        Ok(Self { inference, metrics, admin, gateway: running.gateway, signals, served })
    }

    /// Asks for a clean end and waits for it.
    ///
    /// # Errors
    /// When the router failed.
    pub async fn stop(self) -> anyhow::Result<Served> {
        self.signals.stop.cancel();
        self.served.await.context("the router panicked")?
    }

    /// The metrics page.
    pub fn metrics_page(&self) -> String {
        kvasir_gateway::page::render(&self.gateway)
    }

    /// The number of the first series that begins with `series`.
    pub fn metric(&self, series: &str) -> Option<f64> {
        let page = self.metrics_page();
        let line = page.lines().find(|line| line.starts_with(series))?;
        line.rsplit(' ').next()?.parse().ok()
    }
}
