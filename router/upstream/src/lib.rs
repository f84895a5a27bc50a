//! What is behind us: engine kinds, their metrics, health and discovery.
//!
//! [`HyperSideClient`] makes the small calls beside the inference traffic. [`Scraper`] visits every engine in turn
//! and hands numbers to the registry through `kvasir_core::SampleSink`; [`read_metrics`] is the reading of one
//! metrics page. [`discover`](discover()) asks one engine what it is, for the start-up lines.

mod adapter_series;
mod discover;
mod interval_mean;
mod metric_names;
mod metrics_page;
mod model_list;
mod prometheus_text;
mod scrape;
mod side_client;

pub use discover::{AdapterListing, Discovery, discover};
pub use interval_mean::{HistogramTotals, IntervalMean};
pub use metrics_page::{MetricsPage, PageNumbers, read_metrics};
pub use model_list::{ListedModel, read_model_list};
pub use prometheus_text::{Malformed, Series, series};
pub use scrape::{ScrapeOptions, ScrapeTarget, Scraper, SleepHook, TargetSource};
pub use side_client::{HyperSideClient, SideClientOptions};
