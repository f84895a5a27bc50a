//! Names that the API server takes, and what users write with them.

use super::ConfigMapRef;
use crate::defaults;

/// What a namespace looks like.
pub(crate) const NAMESPACE_FIX: &str = "write up to 63 small letters, digits and -";

/// Most characters of a label, and of a subdomain or a ConfigMap's key: the API server's numbers.
const LONGEST: (usize, usize) = (63, 253);

/// The sentence about a namespace that is none.
pub(crate) fn no_namespace(text: &str) -> String {
    format!("{text:?} is no namespace")
}

/// Whether a text can be a namespace or a Service's name (RFC 1123 label).
pub(crate) fn is_label(text: &str) -> bool {
    text.len() <= LONGEST.0 && is_part(text)
}

/// Whether a text can be the name of most objects (RFC 1123 subdomain).
pub(crate) fn is_subdomain(text: &str) -> bool {
    text.len() <= LONGEST.1 && text.split('.').all(is_part)
}

fn is_part(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(is_plain) && !text.starts_with('-') && !text.ends_with('-')
}

/// Whether a text can be a key of a ConfigMap.
fn is_key(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    !text.is_empty() && text.len() <= LONGEST.1 && text.bytes().all(is_plain) && !matches!(text, "." | "..")
}

/// Reads `[NAMESPACE/]NAME[:KEY]`; without a namespace it is the pod's.
///
/// # Errors
/// Which part is wrong.
pub(crate) fn parse_config_map(text: &str, namespace: &str) -> Result<ConfigMapRef, String> {
    let (name, key) = text.split_once(':').unwrap_or((text, defaults::CONFIG_MAP_KEY));
    let (namespace, name) = name.split_once('/').unwrap_or((namespace, name));
    if !is_label(namespace) {
        return Err(no_namespace(namespace));
    }
    if !is_subdomain(name) {
        return Err(format!("{name:?} is no name of a ConfigMap"));
    }
    if !is_key(key) {
        return Err(format!("{key:?} is no key of a ConfigMap"));
    }
    Ok(ConfigMapRef { namespace: namespace.to_owned(), name: name.to_owned(), key: key.to_owned() })
}
