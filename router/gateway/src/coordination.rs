//! What the gateway shows of the coordination with other replicas.

use std::sync::{Arc, OnceLock};

use kvasir_telemetry::Page;
use serde_json::{Value, json};

/// How the view that replicas share looks from here. Implemented by `app` over the coordination room.
pub trait CoordinationView: Send + Sync {
    /// Everything, for `/debug/coordination`: owners by name, connection, shared load.
    fn debug(&self) -> Value;

    /// In a few numbers, for the body of `/readyz`. Clients can read that, so it names no pod.
    fn summary(&self) -> Value;

    /// Adds its series to the metrics page.
    fn add_to(&self, page: &mut Page);
}

/// The view, once there is one.
#[derive(Default)]
pub struct Coordination(OnceLock<Arc<dyn CoordinationView>>);

impl Coordination {
    /// Shows `view` from now on; the first one stays.
    pub fn show(&self, view: Arc<dyn CoordinationView>) {
        let _ = self.0.set(view);
    }

    pub(crate) fn debug(&self) -> Value {
        self.0.get().map_or_else(|| json!({"redis": null}), |view| view.debug())
    }

    pub(crate) fn add_to(&self, page: &mut Page) {
        if let Some(view) = self.0.get() {
            view.add_to(page);
        }
    }

    /// The body of `/readyz`, with what is still waited for.
    pub(crate) fn readiness(&self, message: &str, pending: &[Arc<str>]) -> String {
        let mut body = json!({"message": message});
        if !pending.is_empty() {
            body["pending"] = json!(pending);
        }
        if let Some(view) = self.0.get() {
            body["coordination"] = view.summary();
        }
        body.to_string()
    }
}

impl std::fmt::Debug for Coordination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Coordination").field(&self.0.get().is_some()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct View;

    impl CoordinationView for View {
        fn debug(&self) -> Value {
            json!({"owners": 2})
        }

        fn summary(&self) -> Value {
            json!({"fresh": 2})
        }

        fn add_to(&self, _: &mut Page) {}
    }

    #[test]
    fn readiness_has_the_summary_once_there_is_a_view() {
        let coordination = Coordination::default();
        assert_eq!(coordination.readiness("router is ready", &[]), r#"{"message":"router is ready"}"#);
        let waits = r#"{"message":"router is not ready","pending":["kubernetes: pods"]}"#;
        assert_eq!(coordination.readiness("router is not ready", &["kubernetes: pods".into()]), waits);
        coordination.show(Arc::new(View));
        let with = r#"{"message":"router is ready","coordination":{"fresh":2}}"#;
        assert_eq!(coordination.readiness("router is ready", &[]), with);
        assert_eq!(coordination.debug(), json!({"owners": 2}));
    }
}
