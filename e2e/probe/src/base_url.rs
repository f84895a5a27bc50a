//! Where requests go: an `http://` URL, taken apart once.

use std::fmt;

use http::Uri;

use crate::error::ProbeError;

/// A checked base URL. `http://host:8080`, `http://host:8080/` and `http://host:8080/v1` are the same place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct BaseUrl {
    /// Host to resolve, without the brackets of an IPv6 literal.
    pub(crate) host: String,
    /// Port, 80 when the URL has none.
    pub(crate) port: u16,
    /// What the `host` header says.
    pub(crate) authority: String,
    /// Path before `/v1/...`, without a slash at its end.
    prefix: String,
}

impl BaseUrl {
    /// Takes the text apart, or says what is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Self, ProbeError> {
        let bad = |reason| ProbeError::BadUrl { url: text.to_owned(), reason };
        let with_scheme = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let uri: Uri = with_scheme.parse().map_err(|_| bad("it is not a URL"))?;
        if uri.scheme_str() != Some("http") {
            return Err(bad("only http:// is supported"));
        }
        let authority = uri.authority().ok_or_else(|| bad("it names no host"))?;
        if authority.as_str().contains('@') {
            return Err(bad("credentials in the URL are not supported; use a header"));
        }
        if uri.query().is_some() {
            return Err(bad("a base URL has no query"));
        }
        let path = uri.path().trim_end_matches('/');
        Ok(Self {
            host: authority.host().trim_matches(['[', ']']).to_owned(),
            port: authority.port_u16().unwrap_or(80),
            authority: authority.as_str().to_owned(),
            prefix: path.strip_suffix("/v1").unwrap_or(path).to_owned(),
        })
    }

    /// The request target for a path such as `/v1/models`.
    pub(crate) fn target(&self, path: &str) -> Result<Uri, ProbeError> {
        format!("{}{path}", self.prefix)
            .parse()
            .map_err(|_| ProbeError::BadUrl { url: self.to_string(), reason: "its path is not usable" })
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_place_has_many_spellings() {
        for text in
            ["http://host:8080", "http://host:8080/", "http://host:8080/v1", "host:8080", "host:8080/v1/"]
        {
            let url = BaseUrl::parse(text).unwrap();
            assert_eq!((url.host.as_str(), url.port), ("host", 8080), "{text}");
            assert_eq!(url.target("/v1/models").unwrap().to_string(), "/v1/models", "{text}");
            assert_eq!(url.to_string(), "http://host:8080", "{text}");
        }
    }

    #[test]
    fn a_prefix_is_kept_and_an_ipv6_host_loses_its_brackets() {
        let url = BaseUrl::parse("http://[::1]/team/v1").unwrap();
        assert_eq!((url.host.as_str(), url.port, url.authority.as_str()), ("::1", 80, "[::1]"));
        assert_eq!(url.target("/metrics").unwrap().to_string(), "/team/metrics");
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_a_reason() {
        for (text, reason) in [
            ("https://host", "only http://"),
            ("http://user:secret@host", "credentials"),
            ("http://host?x=1", "no query"),
            ("http://", "not a URL"),
        ] {
            let error = BaseUrl::parse(text).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
