//! Hosts of requests, and tables by host: exact names before wildcards, long wildcards before short ones.

use std::borrow::Cow;
use std::collections::HashMap;

/// The host that an authority names: without its port and a trailing dot, in lower case. An IPv6 literal stays in its
/// brackets.
pub(crate) fn host_of(authority: &str) -> Cow<'_, str> {
    let host = if authority.starts_with('[') {
        authority.find(']').and_then(|end| authority.get(..=end)).unwrap_or(authority)
    } else {
        match authority.split_once(':') {
            // More than one colon without brackets: an IPv6 literal as some clients write it.
            Some((host, port)) if !port.contains(':') => host,
            _ => authority,
        }
    };
    let host = host.strip_suffix('.').unwrap_or(host);
    if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(host.to_ascii_lowercase())
    } else {
        Cow::Borrowed(host)
    }
}

/// Values by host.
#[derive(Debug)]
pub(crate) struct HostTable<T> {
    exact: HashMap<Box<str>, T>,
    /// By what follows the star: `.example.com`.
    wildcard: HashMap<Box<str>, T>,
    /// Bytes of the longest key of `wildcard`: a host with many dots costs no more look-ups than could succeed.
    longest: usize,
    any: Option<T>,
}

impl<T> Default for HostTable<T> {
    fn default() -> Self {
        Self { exact: HashMap::new(), wildcard: HashMap::new(), longest: 0, any: None }
    }
}

impl<T> HostTable<T> {
    /// The value of a hostname: a host, `*.` and a suffix, or any; made by `make` where there is none.
    pub(crate) fn get_or_insert_with(&mut self, hostname: Option<&str>, make: impl FnOnce() -> T) -> &mut T {
        let Some(hostname) = hostname else { return self.any.get_or_insert_with(make) };
        let hostname = hostname.to_ascii_lowercase();
        match hostname.strip_prefix('*') {
            Some(suffix) => {
                self.longest = self.longest.max(suffix.len());
                self.wildcard.entry(suffix.into()).or_insert_with(make)
            }
            None => self.exact.entry(hostname.into()).or_insert_with(make),
        }
    }

    /// The values that take `host`, the most specific first. A wildcard stands for one label or more.
    pub(crate) fn matching(&self, host: &str) -> impl Iterator<Item = &T> {
        let first = host.len().saturating_sub(self.longest).max(1);
        let suffixes = host
            .char_indices()
            .filter(move |(at, letter)| *letter == '.' && *at >= first)
            .filter_map(|(at, _)| self.wildcard.get(host.get(at..)?));
        self.exact.get(host).into_iter().chain(suffixes).chain(&self.any)
    }

    /// Every value, in no order.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.exact.values_mut().chain(self.wildcard.values_mut()).chain(&mut self.any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_what_is_left_without_port_case_and_dot() {
        for (authority, host) in [
            ("a.example", "a.example"),
            ("A.Example:8080", "a.example"),
            ("a.example.:80", "a.example"),
            ("10.0.0.1:80", "10.0.0.1"),
            ("[fd00::5]", "[fd00::5]"),
            ("[FD00::5]:8080", "[fd00::5]"),
            ("fd00::5", "fd00::5"),
            ("[broken", "[broken"),
            ("", ""),
            (":80", ""),
        ] {
            assert_eq!(host_of(authority), host, "{authority}");
        }
    }

    #[test]
    fn the_most_specific_host_comes_first() {
        let mut table = HostTable::default();
        let names = ["a.b.example.com", "*.example.com", "*.b.example.com", "*.COM", "*"];
        for name in names {
            *table.get_or_insert_with(Some(name).filter(|name| *name != "*"), || name) = name;
        }
        let found = |host: &str| table.matching(host).copied().collect::<Vec<_>>();
        assert_eq!(
            found("a.b.example.com"),
            ["a.b.example.com", "*.b.example.com", "*.example.com", "*.COM", "*"]
        );
        assert_eq!(found("x.example.com"), ["*.example.com", "*.COM", "*"]);
        assert_eq!(found("example.com"), ["*.COM", "*"], "a wildcard wants a label of its own");
        assert_eq!(found(".example.com"), ["*.COM", "*"]);
        assert_eq!(found("xexample.com"), ["*.COM", "*"]);
        assert_eq!(found("[fd00::5]"), ["*"]);
        assert_eq!(found(""), ["*"]);
        assert_eq!(found(&".".repeat(10_000)), ["*"]);
    }
}
