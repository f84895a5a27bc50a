use proptest::prelude::*;

use super::text::write_string;
use super::*;

fn whole(text: &[u8]) -> Result<Kind, JsonError> {
    let mut cursor = Cursor::new(text);
    let value = cursor.value()?;
    cursor.skip_space();
    if cursor.peek().is_some() {
        return Err(cursor.wrong("the end"));
    }
    Ok(value.kind)
}

#[test]
fn accepts_and_refuses_what_serde_json_does() {
    let cases: &[&str] = &[
        "null",
        "true",
        "false",
        "tru",
        "nul",
        "truex",
        "0",
        "-0",
        "-",
        "01",
        "1.",
        "1.5",
        ".5",
        "1e",
        "1e+",
        "1e+7",
        "1E-07",
        "--1",
        "+1",
        "NaN",
        "Infinity",
        "\"\"",
        "\"a",
        "\"\\\"",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\u12g4\"",
        "\"\\u1234\"",
        "\"\n\"",
        "\"\\n\"",
        "[]",
        "[",
        "]",
        "[1",
        "[1,",
        "[1,]",
        "[,]",
        "[1 2]",
        "[1}",
        "{}",
        "{",
        "{\"a\"",
        "{\"a\":",
        "{\"a\":1",
        "{\"a\":1,",
        "{\"a\":1,}",
        "{,}",
        "{1:2}",
        "{\"a\" 1}",
        "{\"a\":1]",
        "{a:1}",
        " [ 1 , {\"b\" : [ ] } ] ",
        "[[[]],{}]",
        "",
        " ",
        "\u{b}1",
        "{} {}",
        "[\"é\", \"漢字\", \"🦀\"]",
        "'a'",
    ];
    for case in cases {
        let ours = whole(case.as_bytes()).is_ok();
        let theirs = serde_json::from_str::<serde_json::Value>(case).is_ok();
        assert_eq!(ours, theirs, "{case}");
    }
}

#[test]
fn a_cut_value_says_end_and_a_wrong_one_says_where() {
    let text = br#"{"a": [1, -2.5e3, "x\u00e9\n", true, false, null, {"b": {}}]}"#;
    for cut in 0..text.len() {
        assert_eq!(whole(&text[..cut]), Err(JsonError::End), "cut at {cut}");
    }
    assert_eq!(whole(b"[1;2]"), Err(JsonError::Syntax { at: 2, expected: "`,` or a closing bracket" }));
}

#[test]
fn strings_of_every_length_end_where_they_end() {
    for length in 0..100 {
        for special in ["\\n", "\\u0041", "é", "\\\\"] {
            for place in [0, length / 2, length] {
                let text = format!("\"{}{special}{}\"", "a".repeat(place), "b".repeat(length - place));
                let found = text::scan_string(format!("{text},\"").as_bytes(), 0).unwrap();
                assert_eq!(found.span, 0..text.len());
                assert_eq!(found.escaped, special.starts_with('\\'));
            }
        }
        let broken = [b"\"".as_slice(), &vec![b'a'; length], b"\xff\""].concat();
        assert_eq!(text::scan_string(&broken, 0), Err(JsonError::Utf8 { at: 1 + length }));
    }
}

#[test]
fn nesting_stops_at_the_limit() {
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    assert_eq!(whole(nested(MAX_DEPTH).as_bytes()), Ok(Kind::Array));
    assert_eq!(whole(nested(MAX_DEPTH + 1).as_bytes()), Err(JsonError::Depth));
    assert_eq!(whole(nested(100_000).as_bytes()), Err(JsonError::Depth));
    let objects = format!("{}1{}", "{\"a\":".repeat(100_000), "}".repeat(100_000));
    assert_eq!(whole(objects.as_bytes()), Err(JsonError::Depth));
}

#[test]
fn lone_surrogates_are_valid_but_have_no_text() {
    for case in [r#""\ud800""#, r#""\udc00x""#, r#""\ud83d\n""#, r#""\ud83dx""#, r#""\ud83d\ud83d""#] {
        let text = text::scan_string(case.as_bytes(), 0).unwrap();
        assert_eq!(text.decode(case.as_bytes()), None, "{case}");
    }
    let pair = r#""\ud83e\udd80""#;
    assert_eq!(text::scan_string(pair.as_bytes(), 0).unwrap().decode(pair.as_bytes()).unwrap(), "🦀");
}

proptest! {
    #[test]
    fn any_bytes_are_judged_as_serde_json_does(bytes in proptest::collection::vec(
        prop_oneof![Just(b'"'), Just(b'\\'), Just(b'{'), Just(b'}'), Just(b'['), Just(b']'), Just(b','), Just(b':'),
            Just(b'1'), Just(b'-'), Just(b'e'), Just(b'.'), Just(b'n'), Just(b' '), any::<u8>()], 0..24)) {
        // `RawValue` checks structure without judging surrogates, which is our rule too.
        let theirs = serde_json::from_slice::<&serde_json::value::RawValue>(&bytes).is_ok();
        prop_assert_eq!(whole(&bytes).is_ok(), theirs);
    }

    #[test]
    fn written_strings_read_back(text in ".*") {
        let mut out = Vec::new();
        write_string(&mut out, &text);
        prop_assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text.clone());
        let found = text::scan_string(&out, 0).unwrap();
        prop_assert_eq!(found.decode(&out).unwrap(), text);
    }

    #[test]
    fn escapes_decode_as_serde_json_does(units in proptest::collection::vec(any::<u16>(), 0..6)) {
        let text = format!("\"{}\"", units.iter().map(|unit| format!("\\u{unit:04X}")).collect::<String>());
        let found = text::scan_string(text.as_bytes(), 0).unwrap();
        let ours = found.decode(text.as_bytes()).map(|text| text.into_owned());
        prop_assert_eq!(ours, serde_json::from_str::<String>(&text).ok());
    }
}
