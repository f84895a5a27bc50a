//! The service with native models: answers, errors, limits, and models that come and go.

use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};

use crate::support::{CHATML, Running, folder, write_model};

async fn two() -> Running {
    let models = r#"{"a":"DIR/a","b":"DIR/b"}"#;
    let running =
        Running::start(folder(&["a", "b"]), &["--models", models, "--engine", "native"], |_| {}).await;
    running.until("a", "ready").await;
    running.until("b", "ready").await;
    running
}

fn tokens(answer: &(u16, Value)) -> Vec<u64> {
    assert_eq!(answer.0, 200, "{}", answer.1);
    answer.1["tokens"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect()
}

#[tokio::test]
async fn each_model_answers_with_its_own_tokenizer() {
    let running = two().await;
    let first = running.tokenize("a", "hello").await;
    let other = running.tokenize("b", "hello").await;
    let again = running.tokenize("a", "hello").await;
    assert_eq!(tokens(&first), tokens(&again));
    // The second vocabulary is the first one, moved by a hundred.
    assert_eq!(tokens(&other), tokens(&first).into_iter().map(|id| id + 100).collect::<Vec<_>>());
    let back = json!({"model": "b", "tokens": tokens(&other)}).to_string();
    assert_eq!(running.call(Method::POST, "/detokenize", back).await, (200, json!({"prompt": "<s>hello"})));
    let line = running.line("a").await;
    let shown =
        ["model", "status", "engine", "port", "restarts", "lastError"].map(|field| line[field].clone());
    assert_eq!(shown, [json!("a"), json!("ready"), json!("native"), json!(0), json!(0), json!("")]);
    running.stop().await;
}

#[tokio::test]
async fn errors_have_one_form() {
    let running = two().await;
    let huge = format!(r#"{{"model":"a","prompt":"{}"}}"#, "x".repeat(10 << 20));
    let cases = [
        (Method::GET, "/tokenize", String::new(), 405),
        (Method::PUT, "/detokenize", String::new(), 405),
        (Method::POST, "/models", "{}".to_owned(), 405),
        (Method::GET, "/nowhere", String::new(), 404),
        (Method::POST, "/tokenize", "secret".to_owned(), 400),
        (Method::POST, "/tokenize", "[]".to_owned(), 400),
        (Method::POST, "/tokenize", r#"["a"]"#.to_owned(), 400),
        (Method::POST, "/tokenize", "{}".to_owned(), 400),
        (Method::POST, "/tokenize", r#"{"model":""}"#.to_owned(), 400),
        (Method::POST, "/tokenize", r#"{"model":7,"prompt":"secret"}"#.to_owned(), 400),
        (Method::POST, "/tokenize", r#"{"model":"a","prompt":["secret"]}"#.to_owned(), 400),
        (Method::POST, "/tokenize", format!(r#"{{"model":"{}","prompt":"x"}}"#, "m".repeat(100_000)), 503),
        (Method::POST, "/tokenize", r#"{"model":"c","prompt":"secret"}"#.to_owned(), 503),
        (Method::POST, "/tokenize", huge, 413),
    ];
    for (method, path, body, expected) in cases {
        let start: String = body.chars().take(60).collect();
        let (status, headers, answer) = running.raw(method.clone(), path, body).await;
        let said: Value = serde_json::from_slice(&answer).unwrap();
        let error = said["error"].as_str().unwrap_or_else(|| panic!("{method} {path}: {said}"));
        assert_eq!(status, expected, "{method} {path} {start}: {said}");
        assert!(!error.contains("secret") && error.len() < 300, "{error}");
        assert_eq!(headers.contains_key("allow"), status == 405);
        assert!(!headers.contains_key("retry-after"), "kthena's router would wait for it");
    }
    running.stop().await;
}

#[tokio::test]
async fn long_prompts_and_many_at_once_are_answered() {
    let running = two().await;
    let long = "hello ".repeat(100_000);
    let (answer, short) = tokio::join!(running.tokenize("a", &long), running.tokenize("b", "hello"));
    assert_eq!(tokens(&answer).len(), 200_001);
    assert_eq!(tokens(&short).len(), 2);
    let many = (0..40).map(|_| running.tokenize("a", "hello"));
    for answer in join_all(many).await {
        assert_eq!(tokens(&answer).len(), 2);
    }
    running.stop().await;
}

#[tokio::test]
async fn health_readiness_and_metrics_are_there() {
    let running = two().await;
    assert_eq!(running.call(Method::GET, "/healthz", "").await, (200, json!({"status": "ok"})));
    assert_eq!(running.call(Method::GET, "/readyz", "").await.0, 200);
    running.tokenize("a", "hello").await;
    running.tokenize("stranger", "hello").await;
    let (status, headers, page) = running.raw(Method::GET, "/metrics", "").await;
    let page = String::from_utf8(page.to_vec()).unwrap();
    assert!(headers["content-type"].to_str().unwrap().starts_with("text/plain"));
    assert_eq!(status, 200);
    for series in [
        "kvasir_tokenizer_service_requests_total{path=\"/tokenize\",model=\"a\",status=\"200\"} 1",
        "kvasir_tokenizer_service_requests_total{path=\"/tokenize\",model=\"unknown\",status=\"503\"} 1",
        "kvasir_tokenizer_service_model_state{model=\"b\",engine=\"native\",status=\"ready\"} 1",
    ] {
        assert!(page.contains(series), "{series}\n{page}");
    }
    assert!(!page.contains("stranger"));
    running.stop().await;
}

#[tokio::test]
async fn models_come_and_go_with_the_file() {
    let folder = folder(&["a", "b", "c"]);
    let file = folder.path().join("models.yaml");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (a, b, c) = (path("a"), path("b"), path("c"));
    std::fs::write(&file, format!("a: {a}\nb: {b}\n")).unwrap();
    let flags = ["--models-file", "DIR/models.yaml", "--max-tokenizers", "2", "--engine", "native"];
    let running = Running::start(folder, &flags, |_| {}).await;
    running.until("a", "ready").await;
    running.until("b", "ready").await;

    std::fs::write(&file, format!("a: {a}\nb: {b}\nc: {c}\n")).unwrap();
    let over = running.until("c", "failed").await;
    assert!(over["lastError"].as_str().unwrap().contains("MAX_TOKENIZERS"), "{over}");
    assert_eq!(running.tokenize("c", "hello").await.0, 503);

    std::fs::write(&file, format!("a: {b}\nc: {c}\n")).unwrap();
    running.until("c", "ready").await;
    running.line_when("a", |line| line["source"] == b && line["status"] == "ready").await;
    assert_eq!(running.line("b").await, Value::Null);
    assert_eq!(tokens(&running.tokenize("a", "hello").await).len(), 2);

    // Wrong, and then gone: what runs keeps running.
    std::fs::write(&file, "[]").unwrap();
    assert_eq!(running.tokenize("c", "hello").await.0, 200);
    std::fs::remove_file(&file).unwrap();
    assert_eq!(running.tokenize("c", "hello").await.0, 200);
    std::fs::write(&file, format!("b: {b}\n")).unwrap();
    running.until("b", "ready").await;
    running.line_when("c", Value::is_null).await;
    running.stop().await;
}

#[tokio::test]
async fn a_native_model_that_does_not_load_is_tried_again() {
    let models = r#"{"a":"DIR/a","late":"DIR/late"}"#;
    let running = Running::start(folder(&["a"]), &["--models", models, "--engine", "native"], |_| {}).await;
    let failed = running.until("late", "failed").await;
    assert!(failed["lastError"].as_str().unwrap().contains("does not exist"), "{failed}");
    assert_eq!(running.tokenize("late", "hello").await.0, 503);
    running.until("a", "ready").await;
    // A volume that is mounted late.
    let ready = running.model("late");
    let part = running.model("part");
    std::fs::create_dir(&part).unwrap();
    write_model(&part, 5, CHATML);
    std::fs::rename(part, ready).unwrap();
    running.until("late", "ready").await;
    running.stop().await;
}
