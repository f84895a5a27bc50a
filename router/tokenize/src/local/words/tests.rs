use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{EncoderChoice, LoadOptions, LocalTokenizer};

/// A change of a `tokenizer.json`.
type Change = Box<dyn FnOnce(&mut Value)>;

/// A small vocabulary of the kind: letters, bytes, merges that reach over spaces, added tokens that are white space.
fn tokenizer_json(change: impl FnOnce(&mut Value)) -> Value {
    let mut vocabulary = serde_json::Map::new();
    let letters =
        ["<unk>", "\n", "\n\n", "\u{2581}\u{2581}", "<x>", "a", "b", "c", "\u{2581}", "<", "x", ">"];
    let merges = [
        ("a", "b"),
        ("\u{2581}", "a"),
        ("\u{2581}", "\u{2581}"),
        ("ab", "c"),
        ("c", "\u{2581}"),
        ("\n", "\n"),
        ("\u{e9}", "a"),
        ("b", "b"),
        ("\u{2581}a", "b"),
        ("bb", "bb"),
        ("x", ">"),
    ];
    let bytes = (0..=255).map(|byte| format!("<0x{byte:02X}>"));
    let letters = letters.iter().map(|letter| (*letter).to_owned());
    let made = merges.iter().map(|(left, right)| format!("{left}{right}"));
    for name in letters.chain(["\u{e9}".to_owned()]).chain(bytes).chain(made) {
        let id = vocabulary.len();
        vocabulary.entry(name).or_insert(json!(id));
    }
    let token = |content: &str| {
        json!({"id": vocabulary[content], "content": content, "single_word": false, "lstrip": false, "rstrip": false,
               "normalized": false, "special": false})
    };
    let added: Vec<Value> = ["\n", "\n\n", "\u{2581}\u{2581}", "<x>"].map(token).to_vec();
    let mut json = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u{2581}"},
        "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": false},
        "post_processor": null, "decoder": null,
        "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
                  "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "ignore_merges": false,
                  "vocab": vocabulary, "merges": merges},
    });
    change(&mut json);
    json
}

/// Both, or why there is no encoder of words.
fn load(json: &Value) -> Result<(Words, tokenizers::Tokenizer), &'static str> {
    let text = json.to_string().into_bytes();
    let outline: Outline = serde_json::from_slice(&text).unwrap();
    let reference = tokenizers::Tokenizer::from_bytes(&text).unwrap();
    let words = Words::of(&text, &outline, &outline.added_tokens, |content| reference.token_to_id(content))?;
    Ok((words, reference))
}

/// The same words with a table of so few slots that they drive each other out.
fn with_slots(words: Words, slots: usize) -> Words {
    Words { table: Table::new(slots), ..words }
}

fn by_reference(reference: &tokenizers::Tokenizer, text: &str) -> Vec<u32> {
    reference.encode_fast(text, false).unwrap().get_ids().to_vec()
}

fn metaspace(scheme: &str) -> impl Fn(&mut Value) {
    move |json| {
        json["normalizer"] = json!(null);
        json["pre_tokenizer"] =
            json!({"type": "Metaspace", "replacement": "\u{2581}", "prepend_scheme": scheme, "split": false});
    }
}

/// All ways of treating spaces.
fn kinds() -> Vec<Value> {
    let replace = json!({"type": "Replace", "pattern": {"String": " "}, "content": "\u{2581}"});
    vec![
        tokenizer_json(|_| {}),
        tokenizer_json(|json| {
            let prepend = json!({"type": "Prepend", "prepend": "\u{2581}"});
            json["normalizer"] = json!({"type": "Sequence", "normalizers": [prepend, replace]});
            json["pre_tokenizer"] = json!(null);
        }),
        tokenizer_json(metaspace("never")),
        tokenizer_json(metaspace("always")),
        tokenizer_json(metaspace("first")),
        // Merges written as lines.
        tokenizer_json(|json| {
            let lines = json["model"]["merges"].as_array().unwrap().iter();
            let lines =
                lines.map(|pair| format!("{} {}", pair[0].as_str().unwrap(), pair[1].as_str().unwrap()));
            json["model"]["merges"] = lines.filter(|line| line.matches(' ').count() == 1).collect();
        }),
    ]
}

fn texts() -> impl Strategy<Value = Vec<String>> {
    let piece = prop_oneof![
        4 => "[abc \\n\u{2581}\u{e9}]{0,10}",
        1 => "\\PC{0,4}",
        1 => Just("<x>".to_owned()),
        1 => "[ \\n]{1,5}",
        1 => "[<x>]{1,4}",
        1 => Just("b".repeat(80)),
        1 => any::<String>(),
    ];
    prop::collection::vec(prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat()), 1..4)
}

proptest! {
    /// Whatever the table holds, the ids are the reference's.
    #[test]
    fn words_put_together_are_the_whole(texts in texts()) {
        thread_local! {
            static LOADED: Vec<(Words, Words, tokenizers::Tokenizer)> = kinds()
                .iter()
                .map(|json| {
                    let (words, reference) = load(json).unwrap();
                    (words, with_slots(load(json).unwrap().0, 2), reference)
                })
                .collect();
        }
        LOADED.with(|kinds| {
            for (warm, crowded, reference) in kinds {
                for text in &texts {
                    let expected = by_reference(reference, text);
                    let prefix = warm.prefix;
                    prop_assert_eq!(&warm.encode(text).unwrap(), &expected, "{:?} {:?}", prefix, text);
                    prop_assert_eq!(&crowded.encode(text).unwrap(), &expected, "{:?} {:?} crowded", prefix, text);
                    prop_assert_eq!(&warm.encode(text).unwrap(), &expected, "{:?} {:?} again", prefix, text);
                }
            }
            Ok(())
        })?;
    }
}

#[test]
fn texts_fall_into_words_and_added_tokens_stay_whole() {
    let (words, _) = load(&tokenizer_json(|_| {})).unwrap();
    let cut = |text: &str| {
        let found = words.cuts.words(text.as_bytes());
        found.map(|word| text[word].to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(cut("ab abc a<x>b\n\na"), ["ab", " abc a", "<x>", "b", "\n\n", "a"]);
    assert_eq!(cut("  a \u{2581} x"), ["  a", " \u{2581} ", "x"]);
}

#[test]
fn two_threads_get_what_one_gets() {
    let (words, reference) = load(&tokenizer_json(|_| {})).unwrap();
    let words = with_slots(words, 4);
    let texts: Vec<String> =
        (0..40).map(|n| format!("abc{}a <x> {}\n", "b".repeat(n % 7), "c".repeat(n % 5))).collect();
    let expected: Vec<Vec<u32>> = texts.iter().map(|text| by_reference(&reference, text)).collect();
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (words, texts, expected) = (&words, &texts, &expected);
            scope.spawn(move || {
                for round in 0..2_000 {
                    let at = (round * (thread + 3)) % texts.len();
                    assert_eq!(words.encode(&texts[at]).as_ref(), Ok(&expected[at]));
                }
            });
        }
    });
}

#[test]
fn what_cannot_be_cut_is_declined() {
    let set = |pointer: &'static str, value: Value| {
        move |json: &mut Value| *json.pointer_mut(pointer).unwrap() = value
    };
    let error = |change: Change| load(&tokenizer_json(change)).err();
    let across = Some("a normaliser or pre-tokenizer that works across words");
    let context = Some("an added token that depends on what stands around it");
    let cases: Vec<(Change, Option<&str>)> = vec![
        (Box::new(|_| {}), None),
        (Box::new(set("/normalizer", json!({"type": "NFC"}))), across),
        (Box::new(set("/normalizer", json!(null))), across),
        (Box::new(set("/pre_tokenizer", json!({"type": "Whitespace"}))), across),
        (Box::new(set("/pre_tokenizer/pattern/String", json!("a"))), across),
        (Box::new(set("/added_tokens/3/lstrip", json!(true))), context),
        (Box::new(set("/added_tokens/3/normalized", json!(true))), context),
        (
            Box::new(set("/model/ignore_merges", json!(true))),
            Some("whole pieces that are looked up before merging"),
        ),
        (Box::new(set("/model/dropout", json!(0.5))), Some("random merging")),
        (
            Box::new(set("/model/byte_fallback", json!(false))),
            Some("letters without an id that do not become bytes"),
        ),
        (Box::new(set("/model/vocab/a", json!(6))), Some("an id with two names")),
        (
            Box::new(|json: &mut Value| {
                json["model"]["vocab"]["<0x41>a"] = json!(500);
                json["model"]["merges"] = json!([["<0x41>", "a"]]);
            }),
            Some("bytes that are merged"),
        ),
        (
            Box::new(|json: &mut Value| {
                metaspace("never")(json);
                json["pre_tokenizer"]["split"] = json!(true);
            }),
            Some("a pre-tokenizer that splits at spaces"),
        ),
    ];
    for (number, (change, expected)) in cases.into_iter().enumerate() {
        assert_eq!(error(change), expected, "case {number}");
    }
}

/// The whole way from a directory: used where it is exact, and what cannot be cut has another encoder.
#[test]
fn a_directory_of_the_kind_is_encoded_by_words() {
    let load = |change: fn(&mut Value), encoder| {
        let directory = tempfile::tempdir().unwrap();
        let json = tokenizer_json(change);
        std::fs::write(directory.path().join("tokenizer.json"), json.to_string()).unwrap();
        let config = json!({"chat_template": "{{ messages[0].content }}"});
        std::fs::write(directory.path().join("tokenizer_config.json"), config.to_string()).unwrap();
        let options = LoadOptions { encoder, ..LoadOptions::default() };
        LocalTokenizer::load_with(directory.path(), None, options).unwrap()
    };
    let text = "ab <x> abc\n\n<x><x>  a\u{e9}a \u{4e00}<x>abc abc";
    let words = load(|_| {}, EncoderChoice::Auto);
    let reference = load(|_| {}, EncoderChoice::Reference);
    assert_eq!((words.encoder_name(), words.fallback_reason()), ("words", None));
    for special in [true, false] {
        let ids = words.encode_text(text, special).unwrap();
        assert_eq!(Ok(&ids), reference.encode_text(text, special).as_ref());
        assert_eq!(words.decode(&ids), reference.decode(&ids));
    }
    let looked_up: fn(&mut Value) = |json| json["model"]["ignore_merges"] = json!(true);
    let other = load(looked_up, EncoderChoice::Auto);
    assert_ne!(other.encoder_name(), "words");
    assert_eq!(
        other.encode_text(text, false),
        load(looked_up, EncoderChoice::Reference).encode_text(text, false)
    );
}
