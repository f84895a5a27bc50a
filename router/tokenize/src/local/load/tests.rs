use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use kvasir_core::RequestKind;
use serde_json::json;

use super::*;
use crate::local::sentencepiece::tests::Writer;

const TEMPLATE: &str =
    "{% for message in messages %}<|turn|>{{ message.content }} {% endfor %}{{ tools | tojson }}";

struct Directory(tempfile::TempDir);

impl Directory {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> &Self {
        std::fs::write(self.0.path().join(name), content).unwrap();
        self
    }

    fn load(&self) -> Result<LocalTokenizer, LoadError> {
        LocalTokenizer::load(self.0.path(), None)
    }

    fn error(&self) -> String {
        self.load().unwrap_err().to_string()
    }
}

/// A rank file with every byte and some words.
fn ranks(words: &[&str]) -> String {
    let bytes = (0..=u8::MAX).map(|byte| vec![byte]);
    let words = words.iter().map(|word| word.as_bytes().to_vec());
    bytes.chain(words).zip(0..).map(|(token, rank)| format!("{} {rank}\n", STANDARD.encode(token))).collect()
}

fn chat(tokenizer: &LocalTokenizer, body: &Value) -> Result<Vec<u32>, &'static str> {
    tokenizer.encode_body(RequestKind::Chat, &Bytes::from(body.to_string())).map_err(|error| error.label())
}

#[test]
fn a_rank_file_is_loaded_with_a_pattern_of_the_user_s() {
    let directory = Directory::new();
    let config = json!({"pat_str": r"\p{L}+|[^\p{L}]+", "chat_template": TEMPLATE,
                        "added_tokens_decoder": {"300": {"content": "<|turn|>", "special": true}}});
    directory
        .write("own.tiktoken", ranks(&["he", "hello"]))
        .write("tokenizer_config.json", config.to_string());
    let tokenizer = directory.load().unwrap();
    assert_eq!(
        (tokenizer.vocab_size(), tokenizer.encode_text("hello<|turn|>he", true)),
        (301, Ok(vec![257, 300, 256]))
    );
    let body = json!({"messages": [{"role": "user", "content": "hello"}]});
    assert_eq!(chat(&tokenizer, &body).unwrap()[..2], [300, 257]);
    assert_eq!(tokenizer.decode(&[257, 300]).as_deref(), Ok("hello<|turn|>"));
    // The same file under the name that some models give it.
    let directory = Directory::new();
    directory
        .write("tokenizer.model", ranks(&["he", "hello"]))
        .write("tokenizer_config.json", config.to_string());
    assert_eq!(directory.load().unwrap().encode_text("hello", false), Ok(vec![257]));
}

#[test]
fn tools_of_kimi_are_declined_without_the_model_s_code() {
    let directory = Directory::new();
    let config = json!({"auto_map": {"AutoTokenizer": ["tokenization_kimi.TikTokenTokenizer", null]},
                        "chat_template": TEMPLATE});
    directory.write("tiktoken.model", ranks(&[])).write("tokenizer_config.json", config.to_string());
    let plain = json!({"messages": [{"role": "user", "content": "x"}]});
    let mut tools = plain.clone();
    tools["tools"] = json!([{"type": "function", "function": {"name": "f", "parameters": {"b": 1, "a": 2}}}]);
    let tokenizer = directory.load().unwrap();
    assert!(chat(&tokenizer, &plain).is_ok());
    assert_eq!(chat(&tokenizer, &tools), Err("inexact"));
    let body = Bytes::from(tools.to_string());
    let rendered =
        |tokenizer: &LocalTokenizer| tokenizer.render_body(RequestKind::Chat, &body).unwrap().unwrap();
    directory.write("tokenization_kimi.py", "def deep_sort_dict(obj): ...");
    assert!(rendered(&directory.load().unwrap()).contains(r#""parameters": {"a": 2, "b": 1}"#));
    directory.write("tokenization_kimi.py", "");
    assert!(rendered(&directory.load().unwrap()).contains(r#""parameters": {"b": 1, "a": 2}"#));
    let long = "x".repeat(25_001);
    assert_eq!(tokenizer.encode_text(&long, false).map_err(|error| error.label()), Err("inexact"));
}

#[test]
fn a_model_of_mistral_s_is_loaded_with_its_rules() {
    let mut writer = Writer::new(&[("▁", -1.0), ("a", -2.0), ("▁a", -0.5)]);
    writer.control("[INST]").control("[/INST]");
    let directory = Directory::new();
    directory.write("tokenizer.model.v3", writer.file());
    let tokenizer = directory.load().unwrap();
    assert_eq!((tokenizer.encoder_name(), tokenizer.vocab_size()), ("sentencepiece", 264));
    let body = json!({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "a"},
                                   {"role": "user", "content": "aa"}]});
    // A space before every text: each is encoded by itself.
    let ids = chat(&tokenizer, &body).unwrap();
    assert_eq!(ids, [1, 262, 261, 263, 261, 2, 262, 261, 260, 263]);
    assert_eq!(tokenizer.decode(&ids).as_deref(), Ok("<s>[INST]a[/INST]a</s>[INST]aa[/INST]"));
    assert_eq!(tokenizer.encode_text("a", true), Ok(vec![1, 261]));
    assert_eq!(tokenizer.encode_text("", false), Ok(vec![]));
    directory.write("tokenizer.model.v7", Writer::new(&[("a", -1.0)]).file());
    assert_eq!(chat(&directory.load().unwrap(), &body), Err("invalid"), "no such control tokens");
    directory.write("tokenizer.model.v15", writer.file()).write("tokenizer.model.v7", "");
    std::fs::remove_file(directory.0.path().join("tokenizer.model.v7")).unwrap();
    std::fs::remove_file(directory.0.path().join("tokenizer.model.v3")).unwrap();
    let tokenizer = directory.load().unwrap();
    assert_eq!((chat(&tokenizer, &body), tokenizer.encode_text("a", false)), (Err("inexact"), Ok(vec![261])));
}

#[test]
fn a_plain_model_is_loaded_as_transformers_does() {
    let directory = Directory::new();
    directory.write("tokenizer.model", Writer::new(&[("▁", -1.0), ("a", -2.0), ("▁a", -0.5)]).file());
    let error = directory.error();
    assert!(error.contains("no tokenizer_class") && error.contains("save_pretrained"), "{error}");
    let config = json!({"tokenizer_class": "LlamaTokenizer", "add_bos_token": true, "chat_template": "<s>{{ messages[0].content }}"});
    directory.write("tokenizer_config.json", config.to_string());
    let tokenizer = directory.load().unwrap();
    assert_eq!(tokenizer.encode_text("a a", true), Ok(vec![1, 261, 261]));
    assert_eq!(chat(&tokenizer, &json!({"messages": [{"role": "user", "content": "a"}]})), Ok(vec![1, 260]));
}

#[test]
fn errors_name_the_file_and_the_way_out() {
    let directory = Directory::new();
    assert!(directory.error().contains("has no tokenizer.json"));
    directory.write("x.tiktoken", ranks(&[]));
    let error = directory.error();
    assert!(error.contains("x.tiktoken cannot be used") && error.contains("pat_str"), "{error}");
    directory.write("tokenizer_config.json", r#"{"pat_str": "."}"#).write("x.tiktoken", "aGU= 0");
    assert!(
        directory.error().ends_with("x.tiktoken is damaged: no token for the byte 0"),
        "{}",
        directory.error()
    );
    directory.write("tokenizer.model", "noise");
    assert!(directory.error().contains("tokenizer.model is damaged"));
    directory.write("tokenizer.model.v3", "noise");
    assert!(directory.error().contains("tokenizer.model.v3 is damaged"));
    let mut unigram = Writer::new(&[("a", -1.0)]);
    unigram.trainer = vec![3 << 3, 1, 0x98, 0x02, 1];
    directory.write("tokenizer.model.v3", unigram.file());
    let error = directory.error();
    assert!(error.contains("cannot be used") && error.contains("unigram"), "{error}");
    let huge = std::fs::File::create(directory.0.path().join("tokenizer.model.v3")).unwrap();
    huge.set_len(LARGEST_FILE + 1).unwrap();
    assert!(directory.error().contains("268435457 bytes are too many"));
}

/// A Llama's `tokenizer.json` of old, which marks spaces with a normaliser.
fn old_llama() -> Value {
    json!({
        "added_tokens": [{"id": 1, "content": "<s>", "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false}],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "pre_tokenizer": null, "post_processor": null, "decoder": null,
        "model": {"type": "BPE", "vocab": {"<unk>": 0, "<s>": 1, "▁": 2, "a": 3, "▁a": 4, "</s>": 5}, "merges": ["▁ a"]},
    })
}

#[test]
fn the_class_decides_what_becomes_of_a_tokenizer_json() {
    let directory = Directory::new();
    directory
        .write("tokenizer.json", old_llama().to_string())
        .write("tokenizer_config.json", r#"{"tokenizer_class":"LlamaTokenizerFast","legacy":false}"#);
    let error = directory.error();
    assert!(error.contains("put the model's config.json beside it"), "{error}");
    let ids = || directory.load().unwrap().encode_text("<s>a<s>a", false);
    directory.write("config.json", r#"{"model_type":"llama"}"#);
    assert_eq!(ids(), Ok(vec![1, 3, 1, 3]), "only the first piece of a text gets a space");
    directory.write("config.json", r#"{"model_type":"deepseek_v3"}"#);
    assert_eq!(ids(), Ok(vec![1, 4, 1, 4]));
    directory.write("tokenizer_config.json", r#"{"tokenizer_class":"CodeLlamaTokenizer"}"#);
    directory.write("config.json", r#"{"model_type":"llama"}"#);
    assert!(directory.error().contains("PreTrainedTokenizerFast"), "{}", directory.error());
    directory.write("tokenizer_config.json", r#"{"auto_map":{"AutoTokenizer":["x.Y",null]}}"#);
    assert!(directory.error().contains("auto_map"), "{}", directory.error());
    directory.write("tokenizer_config.json", r#"{"tokenizer_class":"Qwen2Tokenizer"}"#);
    assert!(directory.error().contains("not made for the class"), "{}", directory.error());
}

#[test]
fn tokens_beside_a_tokenizer_json_are_found() {
    let directory = Directory::new();
    let config = json!({"added_tokens_decoder": {"1": {"content": "<s>", "special": true, "lstrip": true, "rstrip": true}},
                        "image_token": "<i>", "additional_special_tokens": ["a"], "chat_template": "{{ image_token }}{{ additional_special_tokens }}"});
    directory
        .write("tokenizer.json", old_llama().to_string())
        .write("tokenizer_config.json", config.to_string());
    let tokenizer = directory.load().unwrap();
    assert_eq!(tokenizer.encode_text("a <s> a<i>", false), Ok(vec![3, 1, 3, 6]));
    assert_eq!((tokenizer.token(6).as_deref(), tokenizer.token(9)), (Some("<i>"), None));
    let body = json!({"messages": [{"role": "user", "content": "x"}]});
    assert_eq!(chat(&tokenizer, &body), Ok(vec![6]), "the list has no name in templates");
    directory.write("tokenizer_config.json", r#"{"split_special_tokens":true}"#);
    assert!(directory.error().contains("split_special_tokens"));
}

#[test]
fn chats_that_the_engine_writes_itself_are_declined() {
    let directory = Directory::new();
    directory
        .write("tokenizer.json", old_llama().to_string())
        .write("tokenizer_config.json", r#"{"chat_template":"<s>"}"#)
        .write("config.json", r#"{"model_type":"gpt_oss"}"#);
    let tokenizer = directory.load().unwrap();
    assert_eq!(tokenizer.encode_text("a", false), Ok(vec![4]));
    assert_eq!(chat(&tokenizer, &json!({"messages": [{"role": "user", "content": "x"}]})), Err("inexact"));
}
