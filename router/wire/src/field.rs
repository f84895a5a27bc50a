//! One value of a JSON body, by its path: read on the side, nothing else is decoded.

use std::borrow::Cow;

use crate::json::{Cursor, JsonError, Kind, Members, Value};

/// The text or number at `path` (object keys, outermost first) of a JSON object: a text as it means, a number as it is
/// written. `None` where there is no such value, where it is something else, and for a body that is no object.
///
/// Of two members with one key the later one counts, as in Python's `json`, which the engines use.
pub fn field_at<'a>(body: &'a [u8], path: &[String]) -> Option<Cow<'a, str>> {
    let (last, outer) = path.split_last()?;
    let mut members = Cursor::new(body).enter_object().ok()?;
    for key in outer {
        let value = member(body, members, key).ok()??;
        if value.kind != Kind::Object {
            return None;
        }
        members = Members::of(body, &value).ok()?;
    }
    let value = member(body, members, last).ok()??;
    match value.kind {
        Kind::String { .. } => value.as_text()?.decode(body),
        Kind::Number => std::str::from_utf8(body.get(value.span)?).ok().map(Cow::Borrowed),
        _ => None,
    }
}

/// The value of the last member called `key`.
fn member(body: &[u8], mut members: Members<'_>, key: &str) -> Result<Option<Value>, JsonError> {
    let mut found = None;
    while let Some(member) = members.next()? {
        if member.key.decode(body).is_some_and(|name| name == key) {
            found = Some(member.value);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{any, prop_assert_eq, proptest};

    fn at(body: &str, path: &str) -> Option<String> {
        let path: Vec<String> = path.split('.').map(str::to_owned).collect();
        field_at(body.as_bytes(), &path).map(Cow::into_owned)
    }

    #[test]
    fn texts_and_numbers_are_found_by_their_path() {
        let body =
            r#"{"user":"ann","n":12,"metadata":{"session_id":"s-1","deep":{"id":"\u00e4"}},"list":["x"]}"#;
        for (path, expected) in [
            ("user", Some("ann")),
            ("n", Some("12")),
            ("metadata.session_id", Some("s-1")),
            ("metadata.deep.id", Some("ä")),
            ("metadata", None),
            ("metadata.none", None),
            ("user.name", None),
            ("list.0", None),
            ("list", None),
            ("none", None),
        ] {
            assert_eq!(at(body, path).as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn the_last_of_two_equal_keys_counts_however_it_is_spelt() {
        assert_eq!(at(r#"{"user":"a","us\u0065r":"b"}"#, "user").as_deref(), Some("b"));
        assert_eq!(at(r#"{"m":{"id":"a"},"m":{}}"#, "m.id"), None);
    }

    #[test]
    fn what_is_no_object_or_broken_has_no_fields() {
        for body in ["", "[]", "null", r#"{"user":"a""#, r#"{"user":"\ud800"}"#, r#"{"user":}"#] {
            assert_eq!(at(body, "user"), None, "{body}");
        }
        assert_eq!(field_at(b"{}", &[]), None);
    }

    proptest! {
        #[test]
        fn any_text_comes_back(key in "[^.]{1,8}", text in any::<String>()) {
            let body = serde_json::json!({"a": {&key: text}, "b": 1}).to_string();
            prop_assert_eq!(field_at(body.as_bytes(), &["a".to_owned(), key]), Some(Cow::Owned(text)));
        }

        #[test]
        fn no_bytes_are_too_odd(bytes in any::<Vec<u8>>()) {
            let _ = field_at(&bytes, &["a".to_owned(), "b".to_owned()]);
        }
    }
}
