use std::path::Path;

use serde_json::json;

use super::*;
use crate::hub::HubConfig;
use crate::testing::{CHATML, write_model};

fn engine(cache: &Path, foreign: Option<&str>) -> NativeEngine {
    let config = HubConfig {
        endpoint: "http://127.0.0.1:9".to_owned(),
        token: None,
        cache: cache.to_owned(),
        offline: true,
        from_flag: true,
    };
    NativeEngine::new(Hub::new(&config), foreign.map(str::to_owned))
}

fn spec(source: &Path) -> ModelSpec {
    ModelSpec { source: source.to_str().unwrap().to_owned(), engine: None, chat_template: None }
}

async fn model(template: &str) -> (NativeModel, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    write_model(folder.path(), 0, template);
    (engine(folder.path(), None).load(&spec(folder.path())).await.unwrap(), folder)
}

fn ask(model: &NativeModel, call: NativeCall, body: &Value) -> Result<Value, (u16, String)> {
    model
        .answer(call, &Bytes::from(body.to_string()))
        .map(|answer| serde_json::from_slice(&answer).unwrap())
        .map_err(|refused| (refused.status.as_u16(), refused.message))
}

#[tokio::test]
async fn answers_have_vllms_form() {
    let (model, _folder) = model(CHATML).await;
    let answer = ask(&model, NativeCall::Tokenize, &json!({"model": "m", "prompt": "hello"})).unwrap();
    let tokens = answer["tokens"].as_array().unwrap().clone();
    assert_eq!(
        answer,
        json!({"count": tokens.len(), "max_model_len": 8192, "tokens": tokens, "token_strs": null})
    );
    let bare = json!({"prompt": "hello", "add_special_tokens": false, "return_token_strs": true});
    let bare = ask(&model, NativeCall::Tokenize, &bare).unwrap();
    assert_eq!((&bare["tokens"], &bare["token_strs"]), (&json!([tokens[1]]), &json!(["hello"])));
    let empty =
        ask(&model, NativeCall::Tokenize, &json!({"prompt": "", "add_special_tokens": false})).unwrap();
    assert_eq!(empty["tokens"], json!([]));
    let text = ask(&model, NativeCall::Detokenize, &json!({"model": "m", "tokens": tokens})).unwrap();
    assert_eq!(text, json!({"prompt": "<s>hello"}));
    let chat = json!({"messages": [{"role": "user", "content": "hello"}], "return_token_strs": true});
    let chat = ask(&model, NativeCall::Tokenize, &chat).unwrap();
    assert_eq!((&chat["token_strs"][0], &chat["token_strs"][1]), (&json!("<s>"), &json!("<|im_start|>")));
}

#[tokio::test]
async fn what_cannot_be_answered_has_a_status_and_no_prompt() {
    let (model, _folder) =
        model("{% if messages[0].content == 'no' %}{{ raise_exception('secret no') }}{% endif %}x").await;
    let user = |content: &Value| json!({"messages": [{"role": "user", "content": content}]});
    let cases = [
        (json!({}), 400),
        (json!({"prompt": ["secret"]}), 400),
        (json!({"prompt": 7}), 400),
        (json!({"prompt": "secret", "messages": []}), 400),
        (json!({"prompt": "secret", "add_special_tokens": "secret"}), 400),
        (json!({"messages": []}), 400),
        (user(&json!("no")), 400),
        (json!({"messages": [{"role": "user", "content": "x"}], "chat_template": "secret"}), 422),
        (user(&json!([{"type": "image_url", "image_url": {"url": "secret"}}])), 422),
    ];
    for (body, status) in cases {
        let (found, message) = ask(&model, NativeCall::Tokenize, &body).unwrap_err();
        assert_eq!(found, status, "{body}: {message}");
        assert!(!message.contains("secret"), "{message}");
    }
    let beyond = ask(&model, NativeCall::Detokenize, &json!({"tokens": [5_000_000_000u64]})).unwrap_err();
    assert_eq!(beyond.0, 400);
    assert_eq!(ask(&model, NativeCall::Detokenize, &json!({"tokens": [-1]})).unwrap_err().0, 400);
}

#[tokio::test]
async fn sources_that_are_not_exact_are_left_to_the_renderer() {
    let folder = tempfile::tempdir().unwrap();
    write_model(folder.path(), 0, CHATML);
    let told = |error: NativeError| (error.a_renderer_may_do_better(), error.to_string());
    let load = async |foreign: Option<&str>, spec: &ModelSpec| {
        engine(folder.path(), foreign).load(spec).await.map(drop).map_err(told)
    };
    assert_eq!(load(None, &spec(folder.path())).await, Ok(()));
    let (better, reason) = load(Some("--revision"), &spec(folder.path())).await.unwrap_err();
    assert!(better && reason.contains("--revision"), "{reason}");
    std::fs::write(folder.path().join("tekken.json"), "{}").unwrap();
    let (better, reason) = load(None, &spec(folder.path())).await.unwrap_err();
    assert!(better && reason.contains("tekken.json"), "{reason}");
    std::fs::remove_file(folder.path().join("tekken.json")).unwrap();
    // Runs at the engine, as far as we know, and not here.
    write_model(folder.path(), 0, "{{ messages[0].content.no_such_method() }}");
    let (better, reason) = load(None, &spec(folder.path())).await.unwrap_err();
    assert!(better && reason.contains("a conversation"), "{reason}");
    for nowhere in ["/nowhere/at/all", "./here", "a b", "owner/not-in-the-cache"] {
        let (better, reason) = load(None, &spec(Path::new(nowhere))).await.unwrap_err();
        assert!(!better, "{nowhere}: {reason}");
    }
}

#[tokio::test]
async fn a_model_without_template_serves_prompts() {
    let folder = tempfile::tempdir().unwrap();
    write_model(folder.path(), 0, CHATML);
    std::fs::write(folder.path().join("tokenizer_config.json"), "{}").unwrap();
    std::fs::write(folder.path().join("config.json"), r#"{"text_config":{"max_position_embeddings":77}}"#)
        .unwrap();
    let model = engine(folder.path(), None).load(&spec(folder.path())).await.unwrap();
    let answer = ask(&model, NativeCall::Tokenize, &json!({"prompt": "hello"})).unwrap();
    assert_eq!(answer["max_model_len"], 77);
    let chat = json!({"messages": [{"role": "user", "content": "x"}]});
    assert_eq!(ask(&model, NativeCall::Tokenize, &chat).unwrap_err().0, 400);
}
