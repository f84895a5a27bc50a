//! Which label keys and values Kubernetes takes.

use std::collections::BTreeMap;

use crate::field_error::FieldError;

/// The longest label value, and the longest name in a label key.
const LONGEST_NAME: usize = 63;
/// The longest prefix of a label key: a DNS name.
const LONGEST_PREFIX: usize = 253;

const NAME_RULE: &str = "a label's name has 1 to 63 characters: letters, digits, '-', '_', '.', the first and last a letter or digit";
const PREFIX_RULE: &str = "what stands before the '/' of a label's key is a DNS name in lower case";
const VALUE_RULE: &str = "a label's value has at most 63 characters: letters, digits, '-', '_', '.', the first and last a letter or digit";

/// The first label, in the order of keys, that no pod could have.
pub(super) fn first_bad_label(labels: &BTreeMap<String, String>) -> Option<FieldError> {
    labels.iter().find_map(|(key, value)| {
        if let Some(rule) = broken_key_rule(key) {
            return Some(FieldError::invalid("key", key, rule));
        }
        let fits = value.is_empty() || is_name(value);
        (!fits).then(|| FieldError::invalid(format!("values[0][{key}]"), value, VALUE_RULE))
    })
}

fn broken_key_rule(key: &str) -> Option<&'static str> {
    let name = match key.split_once('/') {
        Some((prefix, _)) if !is_dns_name(prefix) => return Some(PREFIX_RULE),
        Some((_, name)) => name,
        None => key,
    };
    (!is_name(name)).then_some(NAME_RULE)
}

fn is_name(text: &str) -> bool {
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= LONGEST_NAME
        && ends(bytes.first())
        && ends(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

fn is_dns_name(text: &str) -> bool {
    let plain = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.len() <= LONGEST_PREFIX
        && text.split('.').all(|part| {
            let bytes = part.as_bytes();
            bytes.first().is_some_and(plain)
                && bytes.last().is_some_and(plain)
                && bytes.iter().all(|byte| plain(byte) || *byte == b'-')
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(key: &str, value: &str) -> bool {
        first_bad_label(&BTreeMap::from([(key.to_owned(), value.to_owned())])).is_none()
    }

    #[test]
    fn keys() {
        for good in ["app", "a", "a.b_c-d", "modelserving.volcano.sh/role", "A1", "x/y"] {
            assert!(fits(good, "v"), "{good}");
        }
        for bad in ["", "-a", "a-", "a b", "/a", "a/", "A.b/c", "a..b/c", "a/b/c", "ü", &"a".repeat(64)] {
            assert!(!fits(bad, "v"), "{bad}");
        }
        assert!(fits(&format!("{}/n", "a".repeat(253)), "v"));
        assert!(!fits(&format!("{}/n", "a".repeat(254)), "v"));
    }

    #[test]
    fn values() {
        for good in ["", "v", "1.2_3-4", &"a".repeat(63)] {
            assert!(fits("k", good), "{good}");
        }
        for bad in [" ", "a b", "-", "a/b", &"a".repeat(64)] {
            assert!(!fits("k", bad), "{bad}");
        }
    }

    #[test]
    fn the_first_bad_one_is_told() {
        let labels = BTreeMap::from([("a".to_owned(), "x y".to_owned()), ("b c".to_owned(), String::new())]);
        let text = first_bad_label(&labels).map(|error| error.to_string()).unwrap_or_default();
        assert!(text.starts_with("values[0][a]: Invalid value: \"x y\": a label's value"), "{text}");
    }
}
