//! A metrics page under construction: series that live only as long as what they describe.

use std::fmt::Write as _;

use crate::names::Family;

/// Writes families in the Prometheus text format. Series of removed endpoints vanish, because each page is made anew.
#[derive(Debug, Default)]
pub struct Page {
    text: String,
}

impl Page {
    /// Starts with what the registry holds.
    pub fn new(text: String) -> Self {
        Self { text }
    }

    /// Adds one family with its series; nothing when there are none.
    pub fn family<'a>(&mut self, family: &Family, series: impl IntoIterator<Item = (Vec<&'a str>, f64)>) {
        let mut started = false;
        for (values, number) in series {
            if !started {
                let _ = writeln!(self.text, "# HELP {} {}", family.name, family.help);
                let _ = writeln!(self.text, "# TYPE {} {}", family.name, family.kind.as_str());
                started = true;
            }
            self.text.push_str(family.name);
            for (position, (label, value)) in family.labels.iter().zip(values).enumerate() {
                self.text.push(if position == 0 { '{' } else { ',' });
                let _ = write!(self.text, "{label}=\"{}\"", escape(value));
            }
            if !family.labels.is_empty() {
                self.text.push('}');
            }
            let _ = writeln!(self.text, " {number}");
        }
    }

    /// The page.
    pub fn finish(self) -> String {
        self.text
    }
}

/// Escapes a label value as the format asks.
fn escape(value: &str) -> std::borrow::Cow<'_, str> {
    if value.contains(['\\', '"', '\n']) {
        value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n").into()
    } else {
        value.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names;

    #[test]
    fn series_are_written_with_their_labels() {
        let mut page = Page::default();
        page.family(&names::ENDPOINT_UP, [(vec!["m", "a\"b"], 1.0)]);
        page.family(&names::ENDPOINT_KV, Vec::<(Vec<&str>, f64)>::new());
        let text = page.finish();
        assert!(text.contains("kvasir_endpoint_up{model=\"m\",endpoint=\"a\\\"b\"} 1\n"), "{text}");
        assert!(!text.contains("kv_usage"), "{text}");
    }
}
