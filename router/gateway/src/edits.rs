//! Changes that a route makes to the headers of a message.

use http::{HeaderName, HeaderValue};
use kvasir_state::plan::HeaderChanges;
use pingora_http::{RequestHeader, ResponseHeader};

/// A message's head.
pub(crate) trait Head {
    /// In the place of all values of the name.
    fn insert(&mut self, name: &HeaderName, value: &HeaderValue) -> pingora_core::Result<()>;
    /// Beside the values of the name.
    fn append(&mut self, name: &HeaderName, value: &HeaderValue) -> pingora_core::Result<()>;
    /// All values of the name.
    fn remove(&mut self, name: &HeaderName);
}

impl Head for RequestHeader {
    fn insert(&mut self, name: &HeaderName, value: &HeaderValue) -> pingora_core::Result<()> {
        self.insert_header(name.clone(), value.clone())
    }

    fn append(&mut self, name: &HeaderName, value: &HeaderValue) -> pingora_core::Result<()> {
        self.append_header(name.clone(), value.clone()).map(|_| ())
    }

    fn remove(&mut self, name: &HeaderName) {
        self.remove_header(name);
    }
}

impl Head for ResponseHeader {
    fn insert(&mut self, name: &HeaderName, value: &HeaderValue) -> pingora_core::Result<()> {
        self.insert_header(name.clone(), value.clone())
    }

    fn append(&mut self, name: &HeaderName, value: &HeaderValue) -> pingora_core::Result<()> {
        self.append_header(name.clone(), value.clone()).map(|_| ())
    }

    fn remove(&mut self, name: &HeaderName) {
        self.remove_header(name);
    }
}

/// Makes `changes` one after the other: what is set, what is added, what is taken away.
pub(crate) fn apply(changes: &[HeaderChanges], head: &mut impl Head) -> pingora_core::Result<()> {
    for change in changes {
        for (name, value) in &change.set {
            head.insert(name, value)?;
        }
        for (name, value) in &change.add {
            head.append(name, value)?;
        }
        for name in &change.remove {
            head.remove(name);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(name: &'static str, value: &'static str) -> (HeaderName, HeaderValue) {
        (HeaderName::from_static(name), HeaderValue::from_static(value))
    }

    #[test]
    fn what_is_set_is_added_to_and_what_is_removed_is_gone() {
        let mut head = RequestHeader::build("GET", b"/", None).unwrap();
        for (name, value) in [("a", "old"), ("a", "older"), ("b", "old"), ("c", "old")] {
            head.append_header(name, value).unwrap();
        }
        let rule = HeaderChanges {
            set: vec![pair("a", "new")],
            add: vec![pair("a", "more"), pair("b", "more"), pair("d", "first")],
            remove: vec![HeaderName::from_static("c")],
        };
        let backend =
            HeaderChanges { remove: vec![HeaderName::from_static("d")], ..HeaderChanges::default() };
        apply(&[rule, backend], &mut head).unwrap();
        let values = |name: &str| {
            let values = head.headers.get_all(name).iter();
            values.map(|value| value.to_str().unwrap()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!([values("a"), values("b"), values("c"), values("d")], ["new more", "old more", "", ""]);
    }
}
