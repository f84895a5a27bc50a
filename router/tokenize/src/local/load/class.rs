//! Which tokenizer class the engine makes of a directory with a `tokenizer.json`: some take the file as it is, others
//! make a tokenizer of their own out of its vocabulary.

use serde_json::Value;

use super::models::{
    CLASSES, FORCED_TYPES, GENERIC_TYPES, HARMONY_TYPE, OTHER_CLASSES, OVERRULED_TYPES, OWN_CHATS,
};
use super::rebuild::Rebuilt;
use super::settings::Settings;

/// What becomes of `tokenizer.json`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// It is taken as it is.
    Generic,
    /// Its vocabulary and merges are, and the rest is the class's.
    Rebuilt(Rebuilt),
}

impl Class {
    /// The class by the rules of transformers 5.19's `AutoTokenizer` and vLLM 0.32.
    ///
    /// # Errors
    /// The class is not followed here.
    pub fn of(settings: &Settings) -> Result<Self, String> {
        let text = |file: &'_ Value, name: &str| file.get(name).and_then(Value::as_str).map(str::to_owned);
        let kind = text(&settings.model, "model_type");
        let kind = kind.as_deref().unwrap_or_default();
        if has(FORCED_TYPES, kind) {
            return Ok(Self::Generic);
        }
        if settings.has_own_code() {
            return Err("a tokenizer with code of its own (auto_map in tokenizer_config.json)".to_owned());
        }
        let named =
            text(&settings.config, "tokenizer_class").or_else(|| text(&settings.model, "tokenizer_class"));
        let named = named.as_deref().map(plain);
        match (named, registered(kind)) {
            (_, Registered::Generic) => Ok(Self::Generic),
            (Some(named), Registered::Class(own)) if named != own && has(OVERRULED_TYPES, kind) => {
                Self::named(own)
            }
            (Some(named), _) => Self::named(named),
            (None, Registered::Class(own)) => Self::named(own),
            (None, Registered::None) => Ok(Self::Generic),
        }
    }

    fn named(name: &str) -> Result<Self, String> {
        match Rebuilt::of(name) {
            Some(rebuilt) => Ok(Self::Rebuilt(rebuilt)),
            None if has(OTHER_CLASSES, name) => Err(format!("a tokenizer of the class {name}")),
            None => Ok(Self::Generic),
        }
    }
}

/// What of a model's `config.json` makes the engine (vLLM 0.32) write chats by code of its own, where it does.
pub fn writes_chats(model: &Value) -> Option<&'static str> {
    if model.get("model_type").and_then(Value::as_str) == Some(HARMONY_TYPE) {
        return Some(HARMONY_TYPE);
    }
    let architectures = model.get("architectures").and_then(Value::as_array)?;
    OWN_CHATS.into_iter().find(|name| architectures.iter().any(|one| one == name))
}

/// What is known of a type of models.
enum Registered {
    Generic,
    Class(&'static str),
    None,
}

fn registered(kind: &str) -> Registered {
    if has(GENERIC_TYPES, kind) {
        return Registered::Generic;
    }
    CLASSES
        .iter()
        .find(|(_, kinds)| has(kinds, kind))
        .map_or(Registered::None, |(class, _)| Registered::Class(class))
}

fn has(list: &str, word: &str) -> bool {
    list.split_whitespace().any(|other| other == word)
}

/// The name without the mark of the fast ones, of which only few are classes of their own.
fn plain(name: &str) -> &str {
    name.strip_suffix("Fast").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn class(config: Value, model: Value) -> Result<Class, String> {
        Class::of(&Settings { config, model, ..Settings::default() })
    }

    #[test]
    fn the_class_is_the_one_that_transformers_takes() {
        let named = |name: &str| json!({"tokenizer_class": name});
        let of = |kind: &str| json!({"model_type": kind});
        let rebuilt = |name| Class::Rebuilt(Rebuilt::of(name).unwrap());
        for (config, model, expected) in [
            (named("LlamaTokenizerFast"), of("llama"), rebuilt("LlamaTokenizer")),
            (named("LlamaTokenizer"), of("deepseek_v3"), Class::Generic),
            (named("LlamaTokenizer"), of("mistral"), Class::Generic),
            (named("LlamaTokenizerFast"), of("qwen2"), rebuilt("Qwen2Tokenizer")),
            (named("LlamaTokenizerFast"), of("qwen3"), rebuilt("LlamaTokenizer")),
            (named("PreTrainedTokenizerFast"), of("llama"), Class::Generic),
            (named("PreTrainedTokenizerFast"), of("gemma3"), Class::Generic),
            (named("PreTrainedTokenizer"), of("mixtral"), Class::Generic),
            (named("Qwen2Tokenizer"), of("qwen3"), rebuilt("Qwen2Tokenizer")),
            (named("ChatGLM4Tokenizer"), of("chatglm"), Class::Generic),
            (named("LlamaTokenizer"), of("internlm2"), Class::Generic),
            (json!({}), of("gemma3_text"), rebuilt("GemmaTokenizer")),
            (json!({}), of("llama"), Class::Generic),
            (Value::Null, Value::Null, Class::Generic),
            (
                json!({}),
                json!({"model_type": "llama", "tokenizer_class": "LlamaTokenizer"}),
                rebuilt("LlamaTokenizer"),
            ),
        ] {
            assert_eq!(class(config.clone(), model.clone()), Ok(expected), "{config} {model}");
        }
        assert!(class(named("CodeLlamaTokenizerFast"), of("llama")).unwrap_err().contains("CodeLlama"));
        assert!(class(Value::Null, of("xlm-roberta")).unwrap_err().contains("XLMRoberta"));
        let coded = json!({"auto_map": {"AutoTokenizer": ["x.Y", null]}});
        assert!(class(coded.clone(), of("llama")).unwrap_err().contains("auto_map"));
        assert_eq!(class(coded, of("internlm2")), Ok(Class::Generic));
    }

    #[test]
    fn chats_that_the_engine_writes_itself_are_known() {
        for (model, expected) in [
            (json!({"model_type": "gpt_oss"}), Some("gpt_oss")),
            (json!({"architectures": ["GptOssForCausalLM"]}), Some("GptOssForCausalLM")),
            (json!({"architectures": ["Other", "DeepseekV32ForCausalLM"]}), Some("DeepseekV32ForCausalLM")),
            (json!({"model_type": "llama", "architectures": ["LlamaForCausalLM"]}), None),
            (Value::Null, None),
        ] {
            assert_eq!(writes_chats(&model), expected, "{model}");
        }
    }
}
