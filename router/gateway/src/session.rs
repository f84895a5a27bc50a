//! Which conversation a request belongs to, by what the client calls it.

use http::HeaderName;
use kvasir_core::{InferenceRequest, SessionKey};
use kvasir_settings::plugin_names::SESSION_AFFINITY;
use kvasir_settings::resolved::SchedulerSettings;
use pingora_http::RequestHeader;
use xxhash_rust::xxh3::Xxh3;

/// Where clients name their conversations: a header first, then fields of the body. Names are hashed and forgotten: they
/// are the client's business, and may be secrets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionRule {
    header: Option<HeaderName>,
    fields: Vec<Vec<String>>,
}

impl SessionRule {
    /// The rule of a scheduler; `None` where nobody asks for conversations.
    pub fn of(settings: &SchedulerSettings) -> Option<Self> {
        settings.scorers.iter().any(|(name, _)| name == SESSION_AFFINITY).then(|| Self {
            header: HeaderName::from_bytes(settings.args.session_affinity.header_name.as_bytes()).ok(),
            fields: settings.args.session_affinity.body_fields.clone(),
        })
    }

    /// The conversation; `None` where the request names none. An empty name is none.
    pub(crate) fn key(&self, head: &RequestHeader, request: &InferenceRequest) -> Option<SessionKey> {
        let named = self.header.as_ref().and_then(|name| head.headers.get(name));
        if let Some(value) =
            named.map(|value| value.as_bytes().trim_ascii()).filter(|value| !value.is_empty())
        {
            return Some(hashed(&[], value));
        }
        self.fields.iter().find_map(|path| {
            let value = kvasir_wire::field_at(&request.body, path)?;
            (!value.is_empty()).then(|| hashed(path, value.as_bytes()))
        })
    }
}

/// The same in every replica and after every restart. Where it was said is part of it: a user is no session of that name.
fn hashed(path: &[String], value: &[u8]) -> SessionKey {
    let mut hash = Xxh3::new();
    for key in path {
        hash.update(key.as_bytes());
        hash.update(&[0]);
    }
    hash.update(&[0]);
    hash.update(value);
    SessionKey(hash.digest())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use kvasir_core::{Prompt, RequestId, RequestKind};

    fn settings(scorer: &str, fields: &[&[&str]]) -> SchedulerSettings {
        let mut settings =
            SchedulerSettings { scorers: vec![(scorer.to_owned(), 1.0)], ..Default::default() };
        settings.args.session_affinity.body_fields =
            fields.iter().map(|path| path.iter().map(|key| (*key).to_owned()).collect()).collect();
        settings
    }

    fn key(rule: &SessionRule, header: Option<&str>, body: &'static str) -> Option<SessionKey> {
        let mut head = RequestHeader::build("POST", b"/v1/completions", None).unwrap();
        if let Some(value) = header {
            head.insert_header("x-session-id", value).unwrap();
        }
        let request = InferenceRequest {
            id: RequestId::new("r"),
            kind: RequestKind::Completions,
            requested_model: "m".into(),
            model: "m".into(),
            adapter: None,
            stream: false,
            prompt: Prompt::None,
            cache_salt: None,
            skips_cache: false,
            max_tokens: None,
            session: None,
            body: Bytes::from_static(body.as_bytes()),
        };
        rule.key(&head, &request)
    }

    #[test]
    fn nobody_looks_where_the_plugin_is_off() {
        assert_eq!(SessionRule::of(&settings("kvasir-cost", &[&["user"]])), None);
        assert!(SessionRule::of(&settings("session-affinity", &[])).is_some());
    }

    #[test]
    fn the_header_comes_first_and_then_the_fields_in_their_order() {
        let rule = SessionRule::of(&settings("session-affinity", &[&["user"], &["metadata", "id"]])).unwrap();
        let both = r#"{"metadata":{"id":"m"},"user":"u"}"#;
        let (by_header, by_user) = (key(&rule, Some("s"), both), key(&rule, None, both));
        assert_eq!(by_header, key(&rule, Some(" s "), "{}"));
        assert_eq!(by_user, key(&rule, Some(""), r#"{"user":"u"}"#));
        let by_id = key(&rule, None, r#"{"user":"","metadata":{"id":"m"}}"#);
        let keys = [by_header, by_user, by_id, key(&rule, Some("t"), both), key(&rule, Some("u"), both)];
        assert!(keys.iter().all(Option::is_some), "{keys:?}");
        assert!((1..keys.len()).all(|at| !keys[..at].contains(&keys[at])), "{keys:?}");
        for body in ["{}", r#"{"user":null}"#, "no json"] {
            assert_eq!(key(&rule, None, body), None, "{body}");
        }
    }

    /// Replicas of two versions must agree during a rollout.
    #[test]
    fn a_key_never_changes() {
        let rule = SessionRule::of(&settings("session-affinity", &[&["user"]])).unwrap();
        let keys = [key(&rule, Some("abc"), "{}"), key(&rule, None, r#"{"user":"abc"}"#)];
        assert_eq!(
            keys,
            [Some(SessionKey(1_167_954_322_845_083_410)), Some(SessionKey(9_722_375_137_498_171_223))]
        );
    }
}
