use serde_json::json;

use super::*;

fn special(config: Value, map: Value, added: Value, own: &[(u64, AddedToken)]) -> Special {
    let settings = Settings { config, map, added, ..Settings::default() };
    settings.special(own, &[("bos_token", "<d>")]).unwrap()
}

fn contents<'a>(tokens: impl IntoIterator<Item = &'a AddedToken>) -> Vec<&'a str> {
    tokens.into_iter().map(|token| token.content.as_str()).collect()
}

#[test]
fn tokens_are_added_in_the_order_of_transformers() {
    let config = json!({
        "added_tokens_decoder": {"12": {"content": "b"}, "3": {"content": "a"}, "4": {"content": "known", "special": true}},
        "image_token": "<image>", "eos_token": {"__type": "AddedToken", "content": "a", "lstrip": true}, "pad_token": null,
        "additional_special_tokens": ["x", "known"],
    });
    let found = special(config, json!({"pad_token": "<ignored>"}), json!({"<ignored>": 7}), &[]);
    let known = AddedToken::plain("known", true);
    assert_eq!(contents(&found.missing(&[])), ["a", "known", "b", "<d>", "<image>", "x"]);
    assert_eq!(contents(&found.missing(std::slice::from_ref(&known))), ["a", "b", "<d>", "<image>", "x"]);
    let other = AddedToken { lstrip: true, ..known };
    assert_eq!(
        contents(&found.missing(&[other])),
        ["a", "known", "b", "<d>", "<image>", "x"],
        "flags differ"
    );
    let names: Vec<_> = found.names().collect();
    assert_eq!(names, [("bos_token", "<d>"), ("eos_token", "a"), ("image_token", "<image>")]);
    let eos = &found.named[1].1;
    assert!(!eos.lstrip, "the listed one counts");
}

#[test]
fn old_files_count_where_no_tokens_are_listed() {
    let config =
        json!({"bos_token": "<c>", "unk_token": "<u>", "image_token": "<p>", "extra_special_tokens": ["p"]});
    let map = json!({"bos_token": {"content": "<m>", "rstrip": true}, "additional_special_tokens": ["q"],
                     "extra_special_tokens": ["p", "r"], "boi_token": "<i>"});
    let own = [(1, AddedToken::plain("own", true))];
    let found = special(config, map, json!({"<m>": 9, "w": 8, "lost": 1}), &own);
    assert_eq!(contents(&found.missing(&[own[0].1.clone()])), ["w", "<m>", "<u>", "<i>", "<p>", "p", "r"]);
    let names: Vec<_> = found.names().collect();
    assert_eq!(
        names,
        [("bos_token", "<m>"), ("unk_token", "<u>"), ("boi_token", "<i>"), ("image_token", "<p>")]
    );
    let word = &found.listed.iter().find(|(id, _)| *id == 8).unwrap().1;
    assert!(word.normalized && !word.special);
    let named = &found.listed.iter().find(|(id, _)| *id == 9).unwrap().1;
    assert!(!named.normalized && named.special);
}

#[test]
fn extra_tokens_may_have_names() {
    let config = json!({"added_tokens_decoder": {}, "extra_special_tokens": {"boi_token": "<i>", "eoi_token": "<e>"},
                        "additional_special_tokens": ["more"], "bos_token": null});
    let found = special(config, Value::Null, Value::Null, &[]);
    assert_eq!(contents(&found.missing(&[])), ["<i>", "<e>", "more"], "a map leaves room for a list");
    let found = special(
        json!({"bos_token": null, "added_tokens_decoder": {}, "extra_special_tokens": ["a"], "additional_special_tokens": ["b"]}),
        Value::Null,
        Value::Null,
        &[],
    );
    assert_eq!(contents(&found.missing(&[])), ["a"]);
    let config = json!({"bos_token": null, "added_tokens_decoder": {}, "extra_special_tokens": {"boi_token": "<i>", "eoi_token": "<e>"}});
    let found = special(config, Value::Null, Value::Null, &[]);
    assert_eq!(found.names().map(|(name, _)| name).collect::<Vec<_>>(), ["boi_token", "eoi_token"]);
}

#[test]
fn what_transformers_does_not_take_is_an_error() {
    for config in [
        json!({"added_tokens_decoder": {"x": {"content": "a"}}}),
        json!({"bos_token": 1}),
        json!({"extra_special_tokens": 1}),
        json!({"extra_special_tokens": [1]}),
    ] {
        let settings = Settings { config: config.clone(), ..Settings::default() };
        assert!(settings.special(&[], &[]).unwrap_err().contains("malformed"), "{config}");
    }
    for switch in ["split_special_tokens", "fix_mistral_regex"] {
        let mut settings = Settings { config: json!({}), ..Settings::default() };
        assert_eq!(settings.check_switches(), Ok(()));
        settings.config[switch] = json!(true);
        assert!(settings.check_switches().unwrap_err().contains(switch));
    }
}
