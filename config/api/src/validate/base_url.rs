//! Reads the root of a provider's API as far as its rules go, as leniently as Go's URL parser does.

/// The marks that a host's name may have.
const NAME_MARKS: &str = "-_.~!$&'()*+,;=<>\"";
/// The marks of an address in brackets, with its zone.
const ADDRESS_MARKS: &str = ":.%-_~";

/// What a base URL is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BaseUrl {
    /// A scheme of https, a host, perhaps a port and a path.
    Fine,
    /// No URL, another scheme, or no host.
    NotHttps,
    /// With a user, a query or a fragment.
    TooMuch,
}

pub(super) fn read_base_url(text: &str) -> BaseUrl {
    let (text, fragment) = text.split_once('#').unwrap_or((text, ""));
    let (text, query) = text.split_once('?').unwrap_or((text, ""));
    let has_control = text.bytes().chain(query.bytes()).any(|byte| byte.is_ascii_control());
    let Some((scheme, rest)) = text.split_once("://") else {
        return BaseUrl::NotHttps;
    };
    if has_control || !scheme.eq_ignore_ascii_case("https") || !escapes_fit(fragment) {
        return BaseUrl::NotHttps;
    }
    let path_at = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(path_at);
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    };
    if host.is_empty() || !host_fits(host) || !escapes_fit(path) || !user.is_none_or(user_fits) {
        return BaseUrl::NotHttps;
    }
    if user.is_some() || !query.is_empty() || !fragment.is_empty() {
        return BaseUrl::TooMuch;
    }
    BaseUrl::Fine
}

/// A host with an optional port. Only an address in brackets may have colons of its own.
fn host_fits(host: &str) -> bool {
    let (name, marks, port) = match host.strip_prefix('[').map(|inside| inside.rsplit_once(']')) {
        Some(Some((address, port))) => (address, ADDRESS_MARKS, port),
        Some(None) => return false,
        None => match host.find(':') {
            Some(at) => (&host[..at], NAME_MARKS, &host[at..]),
            None => (host, NAME_MARKS, ""),
        },
    };
    let digits = port.strip_prefix(':').unwrap_or_default();
    let port_fits =
        port.is_empty() || (port.starts_with(':') && digits.bytes().all(|byte| byte.is_ascii_digit()));
    let name_fits = name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || !byte.is_ascii() || marks.as_bytes().contains(&byte));
    port_fits && name_fits
}

fn user_fits(user: &str) -> bool {
    user.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte))
}

/// Every `%` begins an escape of two hex digits.
fn escapes_fit(text: &str) -> bool {
    text.split('%')
        .skip(1)
        .all(|part| part.len() >= 2 && part.bytes().take(2).all(|byte| byte.is_ascii_hexdigit()))
}
