use proptest::prelude::*;

use super::*;

fn ok(text: &str) -> Json {
    parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

proptest! {
    #[test]
    fn strings_are_what_they_were(text in "(\\PC{0,12}|[\\x00-\\x7f]{0,12}|[a-z \u{e9}]{0,40}){0,6}", keyed in any::<bool>()) {
        let written = serde_json::to_string(&text).unwrap();
        if keyed {
            let map = ok(&format!("{{{written}: {written}}}"));
            let entry = map.as_map().and_then(|map| map.get_key_value(&*text)).unwrap();
            prop_assert_eq!(entry.1.as_text().map(|text| &**text), Some(&*text));
        } else {
            prop_assert_eq!(ok(&written), Json::text(text));
        }
    }
}

#[test]
fn control_characters_are_refused_wherever_they_stand() {
    for (stop, place) in (0..0x20_u8).flat_map(|stop| (0..20).map(move |place| (stop, place))) {
        let text =
            format!("\"{}{}{}\"", "\u{e9}x".repeat(place), char::from(stop), "\"y\\u{0}\u{ff}z".repeat(2));
        assert_eq!(parse(&text), Err(ParseError::Syntax(1 + place * 3)), "{text:?}");
    }
}

#[test]
fn numbers_keep_their_kind() {
    for (text, expected) in [
        ("0", Json::Int(0)),
        ("-0", Json::Int(0)),
        ("123456789012345678901234567890", Json::BigInt("123456789012345678901234567890".into())),
        ("1.0", Json::Float(1.0)),
        ("1e3", Json::Float(1000.0)),
        ("1E+2", Json::Float(100.0)),
        ("1e400", Json::Float(f64::INFINITY)),
        ("-Infinity", Json::Float(f64::NEG_INFINITY)),
    ] {
        assert_eq!(ok(text), expected, "{text}");
    }
    assert!(matches!(ok("-0.0"), Json::Float(zero) if zero == 0.0 && zero.is_sign_negative()));
    assert!(matches!(ok("NaN"), Json::Float(number) if number.is_nan()));
    assert!(parse(&"1".repeat(MAX_INTEGER_DIGITS + 1)).is_err());
}

#[test]
fn of_duplicate_keys_the_last_value_stands_in_the_first_place() {
    let Json::Map(map) = ok(r#"{"a":1,"b":2,"a":3}"#) else { panic!("a map") };
    let pairs: Vec<_> = map.iter().map(|(key, value)| (&**key, value.clone())).collect();
    assert_eq!(pairs, [("a", Json::Int(3)), ("b", Json::Int(2))]);
}

#[test]
fn strings_are_unescaped() {
    assert_eq!(ok(r#""a\n\u00e9\ud83d\ude00\/""#), Json::text("a\né😀/"));
    assert_eq!(ok(r#""""#), Json::text(""));
    assert_eq!(parse(r#""\ud800""#), Err(ParseError::Surrogate(3)));
    assert_eq!(parse(r#""\ud800\u0041""#), Err(ParseError::Surrogate(3)));
    assert_eq!(parse(r#""\udc00x""#), Err(ParseError::Surrogate(3)));
}

#[test]
fn what_python_refuses_is_refused() {
    for text in [
        "",
        " ",
        "{",
        "[1,]",
        "{\"a\":1,}",
        "{a:1}",
        "01",
        "1.",
        ".5",
        "+1",
        "1e",
        "- 1",
        "\"a\nb\"",
        "\"\\x\"",
        "\"abc",
        "tru",
        "nan",
        "[1] 2",
        "'a'",
        "\"\\u00g0\"",
        "\u{feff}1",
        "\"\\",
        "-",
    ] {
        assert!(parse(text).is_err(), "{text:?} should be refused");
    }
    assert_eq!(parse(&"[".repeat(100_000)), Err(ParseError::TooDeep));
}

/// What a text of `bytes` bytes and of nothing but `item` again and again becomes.
fn filled(open: &str, item: &str, close: &str, bytes: usize) -> String {
    format!("{open}{}{item}{close}", format!("{item},").repeat(bytes / (item.len() + 1)))
}

#[test]
fn the_number_of_values_is_bounded_whatever_they_are() {
    for item in ["0", "[]", "{}", "\"\"", "null", "[0]", "{\"a\":0}"] {
        let text = filled("[", item, "]", 8 << 20);
        assert_eq!(parse(&text), Err(ParseError::TooMany), "{item}");
        let nested = format!("{{\"wanted\":{{\"x\":{text}}}}}");
        assert_eq!(parse(&nested), Err(ParseError::TooMany), "{item}");
    }
    assert_eq!(parse(&filled("{", "\"a\":0", "}", 8 << 20)), Err(ParseError::TooMany), "repeats count");
    let most = format!("[{}0]", "0,".repeat(MAX_VALUES - 2));
    assert_eq!(ok(&most).as_list().map(<[Json]>::len), Some(MAX_VALUES - 1));
    assert_eq!(parse(&format!("[{}0]", "0,".repeat(MAX_VALUES - 1))), Err(ParseError::TooMany));
}

#[test]
fn fields_that_nobody_reads_are_checked_and_not_kept() {
    let many = filled("[", "{\"x\":[0,\"\\u00e9\",1e5,{}]}", "]", 8 << 20);
    let text = format!("{{\"a\":1,\"unread\":{many},\"b\":[2],\"\\u0061\":3,\"unread\":\"\\n\"}}");
    let read = parse_fields(&text, |name| matches!(name, "a" | "b")).unwrap();
    assert_eq!(read, ok(r#"{"a":3,"b":[2]}"#));
    for bad in ["[1,]", "01", "\"\\x\"", "\"\\ud800\"", "{\"a\"}", "\"a\nb\"", "tru", ""] {
        let text = format!("{{\"unread\":{bad}}}");
        assert_eq!(parse_fields(&text, |_| false), parse(&text).map(|_| unreachable!("{bad}")));
    }
    assert_eq!(parse_fields(&"{\"a\":".repeat(100_000), |_| false), Err(ParseError::TooDeep));
    assert_eq!(parse_fields("[1]", |_| false), Ok(ok("[1]")), "no object");
}
