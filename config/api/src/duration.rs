//! A duration field: Go's text on the wire, a span of time in memory.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use kvasir_settings::duration::{format_duration, parse_duration};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A duration that users write as in Go: `300ms`, `90s`, `1h30m`.
///
/// kube's own type is not used: it panics on a number too large for it, which any user of a cluster could write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DurationText(pub Duration);

impl fmt::Display for DurationText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_duration(self.0))
    }
}

impl Serialize for DurationText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for DurationText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        parse_duration(&text).map(Self).map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for DurationText {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "DurationText".into()
    }

    /// Any string, as in kthena's CRDs: an API server lets a malformed duration through, and it is found on reading.
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string"})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        for (text, millis, again) in
            [("10s", 10_000, "10s"), ("150ms", 150, "150ms"), ("90m", 5_400_000, "1h30m")]
        {
            let read: DurationText = serde_json::from_value(text.into()).unwrap();
            assert_eq!(read.0, Duration::from_millis(millis));
            assert_eq!(serde_json::to_value(read).unwrap(), again);
        }
    }

    #[test]
    fn what_is_no_duration_is_an_error_and_no_panic() {
        for text in ["", "10", "ten", "-5s", "99999999999999999999999h", "1e300h", "NaNs"] {
            assert!(serde_json::from_value::<DurationText>(text.into()).is_err(), "{text}");
        }
    }
}
