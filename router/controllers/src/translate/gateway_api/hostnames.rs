//! Hosts that a listener and a route have in common.

use std::sync::Arc;

/// The hosts that a route has at a listener: empty means any, `None` that they have none in common. Wildcards stand for
/// one label or more.
pub(super) fn in_common(listener: Option<&str>, route: &[String]) -> Option<Vec<Arc<str>>> {
    let Some(listener) = listener else {
        return Some(route.iter().map(|host| host.to_ascii_lowercase().into()).collect());
    };
    if route.is_empty() {
        return Some(vec![listener.into()]);
    }
    let mut common: Vec<Arc<str>> = Vec::new();
    for host in route {
        if let Some(host) = narrower(listener, &host.to_ascii_lowercase())
            && !common.iter().any(|known| **known == *host)
        {
            common.push(host.into());
        }
    }
    (!common.is_empty()).then_some(common)
}

/// The one of two hosts that the other one covers.
fn narrower<'h>(one: &'h str, other: &'h str) -> Option<&'h str> {
    if covers(one, other) {
        Some(other)
    } else if covers(other, one) {
        Some(one)
    } else {
        None
    }
}

/// Whether every host that is meant by `narrow` is meant by `wide`.
fn covers(wide: &str, narrow: &str) -> bool {
    if wide == narrow {
        return true;
    }
    let Some(suffix) = wide.strip_prefix('*') else { return false };
    let bare = narrow.strip_prefix('*').unwrap_or(narrow);
    // `*.example.com` needs a label before the dot of an exact host; a wildcard has its own.
    bare.ends_with(suffix) && (bare.len() > suffix.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pairs of Gateway API's text on `hostnames`, and the edges.
    #[test]
    fn the_narrower_of_two_hosts_counts() {
        for (listener, route, common) in [
            (None, vec![], Some(vec![])),
            (None, vec!["A.example.com"], Some(vec!["a.example.com"])),
            (Some("a.example.com"), vec![], Some(vec!["a.example.com"])),
            (Some("test.example.com"), vec!["test.example.com", "other.com"], Some(vec!["test.example.com"])),
            (Some("test.example.com"), vec!["*.example.com"], Some(vec!["test.example.com"])),
            (Some("*.example.com"), vec!["test.example.com", "foo.com"], Some(vec!["test.example.com"])),
            (Some("*.example.com"), vec!["a.b.example.com"], Some(vec!["a.b.example.com"])),
            (Some("*.example.com"), vec!["*.example.com"], Some(vec!["*.example.com"])),
            (Some("*.example.com"), vec!["*.foo.example.com"], Some(vec!["*.foo.example.com"])),
            (Some("*.foo.example.com"), vec!["*.example.com"], Some(vec!["*.foo.example.com"])),
            (Some("*.com"), vec!["a.com", "*.a.com", "a.com"], Some(vec!["a.com", "*.a.com"])),
            (Some("a.example.com"), vec!["*.com", "*.example.com"], Some(vec!["a.example.com"])),
            (Some("*.example.com"), vec!["example.com"], None),
            (Some("*.example.com"), vec![".example.com"], None),
            (Some("*.example.com"), vec!["anexample.com"], None),
            (Some("a.example.com"), vec!["b.example.com"], None),
            (Some("a.example.com"), vec!["*.a.example.com"], None),
            (Some("*.a.example.com"), vec!["*.b.example.com"], None),
        ] {
            let hosts: Vec<String> = route.iter().map(|host| (*host).to_owned()).collect();
            let found = in_common(listener, &hosts);
            let found = found.as_ref().map(|hosts| hosts.iter().map(|host| &**host).collect::<Vec<_>>());
            assert_eq!(found, common, "{listener:?} and {route:?}");
        }
    }
}
