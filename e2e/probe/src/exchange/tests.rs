//! Tests of whole exchanges against a scripted server.

use serde_json::json;

use super::*;
use crate::testing::{Give, Piece, Server, chat_stream};

async fn call(target: &Target) -> Result<Answer, Failure> {
    HttpCaller::new(target).unwrap().call(Bytes::from_static(b"{}"), true).await
}

async fn call_server(give: Give) -> Result<Answer, Failure> {
    let server = Server::start(move |_| give.clone()).await;
    call(&Target::new(server.url(), "m")).await
}

#[tokio::test]
async fn a_stream_in_tiny_pieces_is_a_whole_answer() {
    let text = chat_stream("grün", 40, Some(32));
    let pieces = text.as_bytes().chunks(3).map(|piece| Piece::Bytes(Bytes::copy_from_slice(piece))).collect();
    let answer = call_server(Give::sse(pieces).header("x-kvasir-endpoint", "default/a:8000")).await.unwrap();
    assert_eq!(answer.text, "grün");
    assert_eq!(answer.endpoint.as_deref(), Some("default/a:8000"));
    assert_eq!(answer.usage.unwrap().cached_tokens, Some(32));
    assert!(answer.first_content.unwrap() <= answer.finished);
}

#[tokio::test]
async fn a_stream_that_breaks_or_ends_early_is_no_success() {
    let text = chat_stream("a", 1, None);
    let half = Bytes::copy_from_slice(&text.as_bytes()[..text.len() / 2]);
    let without_done = Bytes::from(text.replace("data: [DONE]\n\n", ""));
    for pieces in [
        vec![Piece::Bytes(half.clone())],
        vec![Piece::Bytes(half), Piece::Break],
        vec![Piece::Bytes(without_done.clone())],
        vec![Piece::Bytes(without_done), Piece::Break],
        vec![Piece::Bytes(Bytes::from(text)), Piece::Break],
    ] {
        let failure = call_server(Give::sse(pieces.clone())).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::StreamCut, "{pieces:?}");
    }
}

#[tokio::test]
async fn an_error_inside_the_stream_is_told() {
    let event = r#"data: {"error":{"message":"EngineCore encountered an issue","code":500}}"#;
    let stream = Bytes::from(format!("{event}\n\ndata: [DONE]\n\n"));
    let failure = call_server(Give::sse(vec![Piece::Bytes(stream)])).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::ErrorEvent);
    assert_eq!(failure.message, "EngineCore encountered an issue");
}

#[tokio::test]
async fn a_status_tells_what_its_body_says() {
    let body = r#"{"error":{"message":"no such model","code":404}}"#;
    let failure = call_server(Give::new(404, "application/json", body)).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Status(404));
    assert_eq!(failure.message, "HTTP 404: no such model");
    let page = Give::new(502, "text/html", vec![b'x'; 1_000_000]);
    assert!(call_server(page).await.unwrap_err().message.len() < 400);
}

#[tokio::test]
async fn an_answer_in_one_piece_where_a_stream_was_asked_for_is_bad() {
    let failure = call_server(Give::json(&json!({"choices": []}))).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::BadAnswer);
}

#[tokio::test]
async fn silence_ends_with_the_time_out() {
    let half = Bytes::from_static(b"data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n");
    let server = Server::start(move |_| Give::sse(vec![Piece::Bytes(half.clone()), Piece::Hang])).await;
    let target = Target { timeout: Duration::from_millis(50), ..Target::new(server.url(), "m") };
    let failure = call(&target).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Timeout);
    assert_eq!(failure.message, "no complete answer within 0.05 s");
}

#[tokio::test]
async fn whole_answers_headers_and_the_path() {
    let server = Server::start(|_| {
        Give::json(&json!({
            "choices": [{"text": "hi", "finish_reason": "length"}],
            "usage": {"prompt_tokens": 7, "completion_tokens": 1},
        }))
    })
    .await;
    let mut target = Target::new(server.url() + "/v1", "m");
    target.api = Api::Completions;
    target.stream = false;
    target.headers = vec![("X-Team".to_owned(), "blue".to_owned())];
    let answer = call(&target).await.unwrap();
    assert_eq!((answer.text.as_str(), answer.first_content), ("hi", None));
    let got = server.got().remove(0);
    assert_eq!((got.method.as_str(), got.path.as_str()), ("POST", "/v1/completions"));
    assert_eq!(got.headers["x-team"], "blue");
    assert_eq!(got.headers["host"], server.address.to_string());
    assert_eq!(got.headers["content-type"], "application/json");
}
