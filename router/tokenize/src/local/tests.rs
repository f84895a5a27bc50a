use kvasir_core::RequestKind;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::testing::{CHATML, write_tokenizer};

fn load(change: impl FnOnce(&mut Value), options: LoadOptions) -> LocalTokenizer {
    let directory = tempfile::tempdir().unwrap();
    write_tokenizer(directory.path(), change, CHATML);
    LocalTokenizer::load_with(directory.path(), None, options).unwrap_or_else(|error| panic!("{error}"))
}

fn both(change: impl Fn(&mut Value)) -> [LocalTokenizer; 2] {
    [EncoderChoice::Auto, EncoderChoice::Reference]
        .map(|encoder| load(&change, LoadOptions { encoder, ..LoadOptions::default() }))
}

fn chat(tokenizer: &LocalTokenizer, body: Value) -> Result<Vec<u32>, TokenizeError> {
    tokenizer.encode_body(RequestKind::Chat, &Bytes::from(body.to_string()))
}

fn id(tokenizer: &LocalTokenizer, token: &str) -> u32 {
    let ids = tokenizer.encode_text(token, false).unwrap();
    assert_eq!(ids.len(), 1, "{token}: {ids:?}");
    ids[0]
}

/// TOK-01
#[test]
fn whole_words_are_looked_up_first_only_where_the_file_says_so() {
    let vocabulary = json!({"a": 0, "b": 1, "c": 2, "ab": 3, "bc": 4, "abc": 5});
    for (ignore_merges, expected) in [(false, vec![3, 2]), (true, vec![5])] {
        for tokenizer in both(|json| {
            json["model"]["vocab"] = vocabulary.clone();
            json["model"]["merges"] = json!(["a b", "b c"]);
            json["model"]["ignore_merges"] = json!(ignore_merges);
            json["added_tokens"] = json!([]);
            json["post_processor"] = json!(null);
        }) {
            assert_eq!(
                tokenizer.encode_text("abc", false),
                Ok(expected.clone()),
                "{}",
                tokenizer.encoder_name()
            );
        }
    }
}

/// TOK-02
#[test]
fn the_begin_token_comes_once_unless_it_is_asked_for() {
    for tokenizer in both(|_| {}) {
        assert_eq!(tokenizer.fallback_reason(), None);
        let begin = id(&tokenizer, "<s>");
        let count = |ids: &[u32]| ids.iter().filter(|id| **id == begin).count();
        let messages = json!([{"role": "user", "content": "abc"}]);
        let ids = chat(&tokenizer, json!({"messages": messages})).unwrap();
        assert_eq!((ids[0], count(&ids)), (begin, 1));
        let ids = chat(&tokenizer, json!({"messages": messages, "add_special_tokens": true})).unwrap();
        assert_eq!((ids[1], count(&ids)), (begin, 2));
        let plain = |body: Value| {
            tokenizer.encode_body(RequestKind::Completions, &Bytes::from(body.to_string())).unwrap()
        };
        assert_eq!(count(&plain(json!({"prompt": "abc"}))), 1);
        assert_eq!(count(&plain(json!({"prompt": "abc", "add_special_tokens": false}))), 0);
    }
}

/// TOK-04
#[test]
fn a_warm_memory_gives_what_a_cold_one_gives() {
    for tokenizer in both(|_| {}) {
        let begin = id(&tokenizer, "<s>");
        let prefix = "<|im_start|>user\nhello<|im_end|>";
        let cold = tokenizer.encode_text(&format!("{prefix}\nabc"), true).unwrap();
        let warm = tokenizer.encode_text(&format!("{prefix}\nabc"), true).unwrap();
        assert_eq!(cold, warm);
        let other = tokenizer.encode_text(&format!("{prefix}\nhello world"), true).unwrap();
        assert_eq!(other.iter().filter(|id| **id == begin).count(), 1);
        assert_eq!(other[0], begin);
        assert!(tokenizer.memory_use().hits > 0);
    }
}

/// TOK-06
#[test]
fn normalization_is_the_reference_s_next_to_every_kind_of_added_token() {
    let tokenizers = both(|json| {
        let added = json["added_tokens"].as_array_mut().unwrap();
        for (content, normalized) in [("<n\u{e9}>", true), ("<raw>", false)] {
            let id = added.last().unwrap()["id"].as_u64().unwrap() + 1;
            added.push(json!({"id": id, "content": content, "single_word": false, "lstrip": false,
                              "rstrip": false, "normalized": normalized, "special": false}));
        }
    });
    let texts = ["cafe\u{301}", "A\u{30a}", "\u{1112}\u{1161}\u{11ab}", "caf\u{e9}", "\u{c5}", "\u{d55c}"];
    for text in texts {
        for wrapped in [
            text.to_owned(),
            format!("<raw>{text}<raw>"),
            format!("<n\u{e9}>{text}<ne\u{301}>"),
            format!("{text}<raw> {text} <n\u{e9}>"),
        ] {
            let [fast, reference] =
                tokenizers.each_ref().map(|tokenizer| tokenizer.encode_text(&wrapped, true));
            assert_eq!(fast, reference, "{wrapped:?} through {}", tokenizers[0].encoder_name());
        }
    }
}

/// TOK-09
#[test]
fn prompts_come_in_several_forms() {
    let tokenizer = load(|_| {}, LoadOptions::default());
    let encode = |prompt: &str| {
        let body = Bytes::from(format!("{{\"prompt\":{prompt}}}"));
        tokenizer.encode_body(RequestKind::Completions, &body).map_err(|error| error.label())
    };
    let text = encode("\"x\"");
    assert!(text.is_ok());
    assert_eq!(encode("[\"x\"]"), text);
    let many: Vec<u32> = (1..=40).collect();
    assert_eq!(encode(&json!(many).to_string()), Ok(many));
    assert_eq!(encode("[[1,2]]"), Ok(vec![1, 2]));
    assert_eq!(encode("[4294967295]"), Ok(vec![u32::MAX]));
    for (prompt, label) in [
        ("[\"x\",\"y\"]", "not_tokenizable"),
        ("[[1,2],[3,4]]", "not_tokenizable"),
        ("null", "invalid"),
        ("[]", "invalid"),
        ("[[]]", "invalid"),
        ("[1,\"x\"]", "invalid"),
        ("[-1]", "invalid"),
        ("[1.5]", "invalid"),
        ("{}", "invalid"),
        ("\"\\ud800\"", "invalid"),
    ] {
        assert_eq!(encode(prompt), Err(label), "{prompt}");
    }
    assert_eq!(
        tokenizer.encode_body(RequestKind::Completions, &Bytes::from_static(b"{}")).unwrap_err().label(),
        "invalid"
    );
}

#[test]
fn what_the_fast_encoder_cannot_do_falls_back() {
    let single = load(|json| json["added_tokens"][1]["single_word"] = json!(true), LoadOptions::default());
    assert_eq!(single.encoder_name(), "tokenizers");
    assert!(single.fallback_reason().is_some_and(|reason| reason.contains("whole words")));
    assert!(single.boundaries.is_none());
    let unknown =
        load(|json| json["pre_tokenizer"] = json!({"type": "UnicodeScripts"}), LoadOptions::default());
    assert_eq!(unknown.encoder_name(), "tokenizers");
    assert!(unknown.encode_text("hello<|im_end|>", true).is_ok());
}

#[test]
fn a_directory_that_does_not_load_says_why() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let error = |template: Option<&Path>| LocalTokenizer::load(path, template).unwrap_err().to_string();
    assert!(
        LocalTokenizer::load(Path::new("/nowhere"), None).unwrap_err().to_string().contains("does not exist")
    );
    assert!(error(None).contains("has no tokenizer.json"));
    std::fs::write(path.join("tokenizer.json"), "{").unwrap();
    assert!(error(None).contains("is damaged"));
    write_tokenizer(path, |json| json["model"]["merges"] = json!(["no such"]), CHATML);
    assert!(error(None).contains("is damaged"));
    write_tokenizer(path, |_| {}, "{% if %}");
    assert!(error(None).contains("does not compile"));
    let own = path.join("own.jinja");
    assert!(error(Some(&own)).contains("own.jinja"));
    std::fs::write(&own, "{{ messages[0].content }}").unwrap();
    let tokenizer = LocalTokenizer::load(path, Some(&own)).unwrap();
    assert_eq!(chat(&tokenizer, json!({"messages": [{"role": "user", "content": "ab"}]})).unwrap().len(), 1);
    std::fs::write(path.join("tokenizer_config.json"), "[").unwrap();
    assert!(error(None).contains("tokenizer_config.json is damaged"));
}

#[test]
fn ids_become_text_again() {
    for tokenizer in both(|_| {}) {
        let text = "<|im_start|>user\nhello wörld 😀<|im_end|>";
        let ids = tokenizer.encode_text(text, false).unwrap();
        assert_eq!(tokenizer.decode(&ids).as_deref(), Ok(text));
        assert_eq!(tokenizer.vocab_size(), 256 + 7 + 3);
        assert!(ids.iter().all(|id| (*id as usize) < tokenizer.vocab_size()));
    }
}

#[test]
fn the_demo_s_tokenizer_loads_and_renders() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo/tokenizer");
    let tokenizer = LocalTokenizer::load(&directory, None).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((tokenizer.encoder_name(), tokenizer.vocab_size()), ("fastokens", 4096));
    let call = json!({"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}});
    let body = Bytes::from(
        json!({
            "messages": [
                {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"},
                {"role": "assistant", "content": null, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "1", "content": "2"},
            ],
            "tools": [{"type": "function", "function": {"name": "f"}}],
        })
        .to_string(),
    );
    let text = tokenizer.render_body(RequestKind::Chat, &body).unwrap().unwrap();
    assert_eq!(
        text,
        "<|im_start|>system\nBe brief.\n\nFunctions you may call, one JSON object on each line:\n\
         {\"type\": \"function\", \"function\": {\"name\": \"f\", \"description\": null, \"parameters\": null}}\n\
         To call one, write <tool_call>{\"name\": NAME, \"arguments\": OBJECT}</tool_call>.<|im_end|>\n\
         <|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n\n\
         <tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call><|im_end|>\n\
         <|im_start|>user\n<tool_response>2</tool_response><|im_end|>\n<|im_start|>assistant\n"
    );
    let ids = tokenizer.encode_body(RequestKind::Chat, &body).unwrap();
    assert_eq!(tokenizer.decode(&ids).as_deref(), Ok(&*text));
    let hello = tokenizer.encode_text("Hello, world! What is the price of water?", true).unwrap();
    assert!(hello.len() < 16, "{hello:?}");
}

/// Texts of turns, with marks in and between them.
fn conversation() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => "[a-c helo\n]{0,12}",
        2 => "\\PC{0,6}",
        1 => Just("e\u{301}".to_owned()),
        3 => Just("<|im_start|>".to_owned()),
        3 => Just("<|im_end|>".to_owned()),
        1 => Just("<|im_".to_owned()),
        1 => Just("<s>".to_owned()),
        1 => Just("<sp>".to_owned()),
    ];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    /// Whatever the memory holds, the ids are those of the whole text encoded at once by the reference.
    #[test]
    fn pieces_put_together_are_the_whole(texts in prop::collection::vec(conversation(), 1..4), special in any::<bool>()) {
        thread_local! {
            static LOADED: (LocalTokenizer, [LocalTokenizer; 2]) = {
                // One token that swallows white space, so that not every match is a boundary.
                let strip = |json: &mut Value| {
                    let added = json["added_tokens"].as_array_mut().unwrap();
                    let id = added.last().unwrap()["id"].as_u64().unwrap() + 1;
                    added.push(json!({"id": id, "content": "<sp>", "single_word": false, "lstrip": true,
                                      "rstrip": true, "normalized": false, "special": false}));
                };
                let whole = LoadOptions { encoder: EncoderChoice::Reference, memory_bytes: 0, ..LoadOptions::default() };
                (load(strip, whole), both(strip))
            };
        }
        LOADED.with(|(whole, warm)| {
            for text in &texts {
                let expected = whole.encoder.encode(text, special).unwrap();
                for tokenizer in warm {
                    prop_assert_eq!(&tokenizer.encode_text(text, special).unwrap(), &expected, "{:?}", text);
                }
            }
            Ok(())
        })?;
    }
}
