//! Log set-up, metric names and the access-log record: one place that knows a metric's name, labels and buckets.

pub mod access_log;
mod admission;
mod disaggregation;
pub mod logging;
pub mod metrics;
pub mod names;
pub mod page;

pub use access_log::{AccessLogger, AccessRecord};
pub use metrics::{Metrics, RequestLabels};
pub use page::Page;
pub use prometheus::Gauge;
