//! What other rooms show on the admin listener and on the metrics page.

use std::fmt;
use std::sync::{Arc, OnceLock};

use kvasir_telemetry::Page;
use serde_json::Value;

/// What one room shows. Implemented by `app`.
pub trait Exhibit: Send + Sync {
    /// The answer to `GET /debug/` and this path, which begins with the exhibit's name: `None` for what is not there,
    /// with a sentence that says so.
    ///
    /// # Errors
    /// The sentence.
    fn debug(&self, path: &str) -> Result<Value, String>;

    /// Adds its series to the metrics page.
    fn add_to(&self, page: &mut Page);
}

/// The exhibit about where objects come from, once there is one.
#[derive(Default)]
pub struct Exhibits(OnceLock<(&'static [&'static str], Arc<dyn Exhibit>)>);

impl Exhibits {
    /// Shows `exhibit` from now on, at paths that begin with one of these names; the first one stays.
    pub fn show(&self, names: &'static [&'static str], exhibit: Arc<dyn Exhibit>) {
        let _ = self.0.set((names, exhibit));
    }

    /// The answer for a path below `/debug/`; `None` where nobody shows anything there.
    pub(crate) fn debug(&self, path: &str) -> Option<Result<Value, String>> {
        let (names, exhibit) = self.0.get()?;
        let first = path.split('/').next().unwrap_or_default();
        names.contains(&first).then(|| exhibit.debug(path))
    }

    pub(crate) fn add_to(&self, page: &mut Page) {
        if let Some((_, exhibit)) = self.0.get() {
            exhibit.add_to(page);
        }
    }
}

impl fmt::Debug for Exhibits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Exhibits").field(&self.0.get().map(|(names, _)| names)).finish()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    struct Stones;

    impl Exhibit for Stones {
        fn debug(&self, path: &str) -> Result<Value, String> {
            if path == "stones/1" { Ok(json!(1)) } else { Err("no such stone".to_owned()) }
        }

        fn add_to(&self, _: &mut Page) {}
    }

    #[test]
    fn each_path_has_one_room() {
        let exhibits = Exhibits::default();
        assert!(exhibits.debug("stones/1").is_none());
        exhibits.show(&["stones"], Arc::new(Stones));
        assert_eq!(exhibits.debug("stones/1"), Some(Ok(json!(1))));
        assert_eq!(exhibits.debug("stones/2"), Some(Err("no such stone".to_owned())));
        assert!(exhibits.debug("stonesx").is_none() && exhibits.debug("").is_none());
    }
}
