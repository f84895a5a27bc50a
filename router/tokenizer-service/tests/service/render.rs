//! The service with renderers: passed on as it came, killed, hung, given up, recovered, never orphaned.

use http::Method;
use serde_json::{Value, json};

use crate::support::{Running, folder, kill, pid, runs};

const TWO: [&str; 4] = ["--models", r#"{"a":"DIR/a","b":"DIR/b"}"#, "--engine", "render"];

fn touch(running: &Running, model: &str, fault: &str) {
    std::fs::write(running.model(model).join(fault), "").unwrap();
}

fn heal(running: &Running, model: &str, fault: &str) {
    std::fs::remove_file(running.model(model).join(fault)).unwrap();
}

fn error(line: &Value) -> &str {
    line["lastError"].as_str().unwrap()
}

#[tokio::test]
async fn bodies_and_answers_are_passed_on_as_they_are() {
    let running = Running::start(folder(&["a", "b"]), &TWO, |_| {}).await;
    let (first, second) = (running.until("a", "ready").await, running.until("b", "ready").await);
    assert_ne!(first["port"], second["port"]);
    let body = "{ \"prompt\" : \"h\\u00e9\", \"model\":\"b\", \"own\": 1e400 }";
    let (status, answer) = running.call(Method::POST, "/tokenize", body).await;
    assert_eq!((status, answer["tokens"].clone()), (200, json!(body.as_bytes())));
    let (status, headers, answer) =
        running.raw(Method::POST, "/detokenize", r#"{"model":"a","tokens":[]}"#).await;
    assert_eq!((status, &answer[..]), (418, br#"{"detail":"as the renderer says"}"#.as_slice()));
    assert_eq!(headers["content-type"], "application/json");
    running.stop().await;
}

#[tokio::test]
async fn a_killed_renderer_comes_back_and_a_spent_budget_fails_and_recovers() {
    let flags = [&TWO[..], &["--renderer-max-restarts", "1"]].concat();
    let running = Running::start(folder(&["a", "b"]), &flags, |_| {}).await;
    running.until("a", "ready").await;
    running.until("b", "ready").await;
    let first = pid(&running.model("a"));
    kill(&first);
    let line = running.line_when("a", |line| line["restarts"] == 1 && line["status"] == "ready").await;
    assert!(error(&line).contains("exited while ready"), "{line}");
    let second = pid(&running.model("a"));
    assert!(!runs(&first) && runs(&second));
    kill(&second);
    let line = running.until("a", "failed").await;
    assert!(error(&line).contains("restart budget exhausted (1)"), "{line}");
    let (status, answer) = running.tokenize("a", "x").await;
    assert!(status == 503 && answer["error"].as_str().unwrap().contains("budget"), "{status} {answer}");
    assert_eq!(running.tokenize("b", "x").await.0, 200, "the other model does not notice");
    // After its pause it is tried again, with a full budget.
    running.until("a", "ready").await;
    kill(&pid(&running.model("a")));
    running.line_when("a", |line| line["restarts"] == 2 && line["status"] == "ready").await;
    running.stop().await;
}

#[tokio::test]
async fn a_renderer_that_hangs_is_ended_and_started_again() {
    let running = Running::start(folder(&["a", "b"]), &TWO, |_| {}).await;
    running.until("a", "ready").await;
    let hung = pid(&running.model("a"));
    touch(&running, "a", "hang");
    let line = running.line_when("a", |line| line["status"] == "loading").await;
    assert!(error(&line).contains("hangs: 2 health checks"), "{line}");
    heal(&running, "a", "hang");
    running.line_when("a", |line| line["restarts"] == 1 && line["status"] == "ready").await;
    assert!(!runs(&hung));
    running.stop().await;
}

#[tokio::test]
async fn a_start_that_fails_says_why_and_is_tried_again() {
    let folder = folder(&["a", "b"]);
    std::fs::write(folder.path().join("a/refuse-start"), "").unwrap();
    std::fs::write(folder.path().join("b/late"), "").unwrap();
    let running = Running::start(folder, &TWO, |config| {
        config.timings.startup = std::time::Duration::from_secs(2);
    })
    .await;
    let line = running.until("a", "failed").await;
    assert!(error(&line).contains("exited during startup (exit status: 1): "), "{line}");
    assert!(error(&line).ends_with("ValueError: Invalid repository ID or local directory"), "{line}");
    heal(&running, "a", "refuse-start");
    running.until("a", "ready").await;
    let line = running.until("b", "failed").await;
    assert!(error(&line).contains("start-up timeout"), "{line}");
    assert!(!runs(&pid(&running.model("b"))), "a renderer that is given up is ended");
    heal(&running, "b", "late");
    running.until("b", "ready").await;
    running.stop().await;
}

#[tokio::test]
async fn a_slow_or_dead_renderer_is_502() {
    let running = Running::start(folder(&["a", "b"]), &TWO, |config| {
        config.proxy_timeout = std::time::Duration::from_secs(1);
        // It stays on the board as ready, for longer than this test.
        config.timings.poll_ready = std::time::Duration::from_secs(600);
    })
    .await;
    running.until("a", "ready").await;
    touch(&running, "a", "slow");
    let (status, answer) = running.tokenize("a", "x").await;
    assert_eq!((status, answer), (502, json!({"error": "the renderer did not answer in time"})));
    heal(&running, "a", "slow");
    assert_eq!(running.tokenize("a", "x").await.0, 200);
    running.stop().await;
}

#[tokio::test]
async fn a_stranger_on_the_port_does_not_make_a_model_ready() {
    let folder = folder(&["a", "b"]);
    std::fs::write(folder.path().join("a/stranger"), "").unwrap();
    let running = Running::start(folder, &TWO, |_| {}).await;
    running.until("b", "ready").await;
    assert_eq!(running.line("a").await["status"], "loading");
    heal(&running, "a", "stranger");
    running.until("a", "ready").await;
    running.stop().await;
}

#[tokio::test]
async fn nothing_is_left_when_the_service_ends_or_a_model_goes() {
    let models = folder(&["a", "b"]);
    let file = models.path().join("models.json");
    let source = |name: &str| models.path().join(name).display().to_string();
    std::fs::write(&file, json!({"a": source("a"), "b": source("b")}).to_string()).unwrap();
    let only_b = json!({"b": source("b")}).to_string();
    let flags = ["--models-file", "DIR/models.json", "--engine", "render"];
    let running = Running::start(models, &flags, |_| {}).await;
    running.until("a", "ready").await;
    running.until("b", "ready").await;
    let (a, b) = (pid(&running.model("a")), pid(&running.model("b")));
    assert!(runs(&a) && runs(&b));
    std::fs::write(&file, only_b).unwrap();
    running.line_when("a", Value::is_null).await;
    while runs(&a) {
        tokio::task::yield_now().await;
    }
    assert!(runs(&b));
    running.stop().await;
    assert!(!runs(&b), "no process outlives the service");
}

#[tokio::test]
async fn auto_serves_natively_what_is_exact_and_renders_the_rest() {
    let folder = folder(&["a", "b"]);
    std::fs::write(folder.path().join("b/tekken.json"), "{}").unwrap();
    let running = Running::start(folder, &TWO[..2], |_| {}).await;
    assert_eq!(running.until("a", "ready").await["engine"], "native");
    assert_eq!(running.until("b", "ready").await["engine"], "render");
    running.stop().await;
}

#[tokio::test]
async fn a_command_that_is_not_there_is_said() {
    let flags = [&TWO[..], &["--render-command", "/nowhere/vllm launch render"]].concat();
    let running = Running::start(folder(&["a", "b"]), &flags, |_| {}).await;
    let line = running.until("a", "failed").await;
    assert!(error(&line).contains("cannot run \"/nowhere/vllm\""), "{line}");
    running.stop().await;
}
