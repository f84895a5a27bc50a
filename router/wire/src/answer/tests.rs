use proptest::prelude::*;

use super::*;

fn usage_of(kind: RequestKind, body: &str) -> Option<Usage> {
    let mut tap = BodyTap::new(kind);
    tap.push(body.as_bytes());
    tap.finish()
}

fn usage(prompt: u64, completion: u64, cached: Option<u64>) -> Option<Usage> {
    Some(Usage { prompt_tokens: prompt, completion_tokens: completion, cached_tokens: cached })
}

const CHAT: &str = r#"{"id":"chatcmpl-1","choices":[{"index":0,"message":{"content":"say \"usage\": {\"prompt_tokens\":9} é"},
 "usage":{"prompt_tokens":1}}],"usage": {"prompt_tokens": 19, "total_tokens": 24, "completion_tokens": 5,
 "prompt_tokens_details": {"cached_tokens": 16}}, "kv_transfer_params":null}"#;

#[test]
fn usage_is_read_in_every_api() {
    use RequestKind as K;
    let cases = [
        (K::Chat, CHAT, usage(19, 5, Some(16))),
        (
            K::Completions,
            r#"{"usage":{"prompt_tokens":3,"completion_tokens":2,"prompt_tokens_details":null}}"#,
            usage(3, 2, None),
        ),
        (
            K::Embeddings,
            r#"{"data":[{"embedding":[0.1,-2e-3]}],"usage":{"prompt_tokens":3,"total_tokens":3}}"#,
            usage(3, 0, None),
        ),
        (
            K::Responses,
            r#"{"id":"resp_1","usage":{"input_tokens":7,"input_tokens_details":{"cached_tokens":4},"output_tokens":1}}"#,
            usage(7, 1, Some(4)),
        ),
        (
            K::Messages,
            r#"{"usage":{"input_tokens":10,"cache_creation_input_tokens":20,"cache_read_input_tokens":30,"output_tokens":4}}"#,
            usage(60, 4, Some(30)),
        ),
        (K::Messages, r#"{"usage":{"input_tokens":10,"output_tokens":4}}"#, usage(10, 4, None)),
        (K::Chat, r#"{"a":"one \" quote","b":"\\","usage":{"prompt_tokens":4}}"#, usage(4, 0, None)),
        (K::Chat, r#"{"usage":null}"#, None),
        (K::Chat, r#"{"usage":{"prompt_tokens":1},"usage":{"prompt_tokens":2}}"#, usage(2, 0, None)),
        (K::Chat, r#"{"usage":{"prompt_tokens":-1,"completion_tokens":1.5}}"#, None),
        (K::Chat, r#"{"usages":{"prompt_tokens":1},"x":{"usage":{"prompt_tokens":1}}}"#, None),
        (K::Chat, r#"{"error":{"message":"no","code":400}}"#, None),
    ];
    for (kind, body, expected) in cases {
        assert_eq!(usage_of(kind, body), expected, "{body}");
    }
}

#[test]
fn no_bytes_make_it_fail() {
    for body in [
        "",
        "null",
        "[{\"usage\":{\"prompt_tokens\":1}}]",
        "\"usage\"",
        "}",
        "]]",
        "{]",
        "{\"usage\":}",
        "RIFF...",
        "{\"usage\":{\"prompt_tokens\":1",
        "{\"usage\":{\"prompt_tokens\":[}}",
        "{{{{",
        "{\"usage\" {}}",
        "{:{\"prompt_tokens\":1}}",
    ] {
        assert_eq!(usage_of(RequestKind::Chat, body), None, "{body}");
    }
}

#[test]
fn the_memory_is_bounded() {
    let mut tap = BodyTap::new(RequestKind::Responses);
    tap.push(b"{\"usage\":{\"x\":\"");
    for _ in 0..1000 {
        tap.push(&[b'a'; 1000]);
    }
    tap.push(b"\"},\"id\":\"resp_1\",\"usage\":{\"input_tokens\":1,\"output_tokens\":2}}");
    assert!(tap.kept.capacity() <= 2 * MAX_VALUE_BYTES);
    assert_eq!(tap.finish(), usage(1, 2, None));
    assert_eq!(tap.response_id(), Some("resp_1"));
    let mut deep = BodyTap::new(RequestKind::Chat);
    deep.push("[".repeat(3).as_bytes());
    deep.push("{\"a\":".repeat(100_000).as_bytes());
    assert_eq!(deep.finish(), None);
}

#[test]
fn an_id_is_for_responses_only() {
    for (kind, expected) in [(RequestKind::Responses, Some("resp_\u{e9}")), (RequestKind::Chat, None)] {
        let mut tap = BodyTap::new(kind);
        tap.push(br#"{"object":"response","id":"resp_\u00e9","output":[{"id":"msg_1"}]}"#);
        assert_eq!(tap.response_id(), expected);
    }
}

#[test]
fn every_split_reads_the_same() {
    let bytes = CHAT.as_bytes();
    for cut in 0..=bytes.len() {
        let mut tap = BodyTap::new(RequestKind::Chat);
        tap.push(&bytes[..cut]);
        tap.push(&bytes[cut..]);
        assert_eq!(tap.finish(), usage(19, 5, Some(16)), "cut at {cut}");
    }
}

proptest! {
    #[test]
    fn single_bytes_read_like_the_whole(bytes in proptest::collection::vec(
        proptest::sample::select(b"{}[]:,\"\\ 1a".to_vec()), 0..60)) {
        let mut body = b"{\"a\":".to_vec();
        body.extend_from_slice(&bytes);
        body.extend_from_slice(b",\"usage\":{\"prompt_tokens\":1}}");
        let mut whole = BodyTap::new(RequestKind::Chat);
        whole.push(&body);
        let mut split = BodyTap::new(RequestKind::Chat);
        body.chunks(1).for_each(|byte| split.push(byte));
        prop_assert_eq!(whole.finish(), split.finish());
    }
}

#[test]
fn a_prefill_answers_parameters_are_kept_as_they_are_written() {
    let params = "{\"remote_block_ids\": [1,\n2], \"remote_host\" :\"10.0.0.1 \\\" x\", \"tp_size\":1}";
    let answer = format!(
        "{{\"usage\":{{\"prompt_tokens\":9}} , \"kv_transfer_params\" : {params} ,\"x\":{{\"kv_transfer_params\":{{}}}}}}"
    );
    for size in [1, 7, answer.len()] {
        let mut tap = BodyTap::of_prefill(RequestKind::Chat);
        for piece in answer.as_bytes().chunks(size) {
            tap.push(piece);
        }
        assert_eq!(tap.finish(), usage(9, 0, None));
        assert_eq!(tap.transfer().as_deref(), Some(params.as_bytes()));
    }
    let large = format!("{{\"kv_transfer_params\":{{\"a\":\"{}\"}}}}", "x".repeat(MAX_TRANSFER_BYTES));
    for none in [
        "",
        "[]",
        "not JSON",
        "{\"kv_transfer_params\":null}",
        "{\"kv_transfer_params\":[1]}",
        "{\"kv_transfer_params\":{\"a\":1",
        &large,
    ] {
        let mut tap = BodyTap::of_prefill(RequestKind::Chat);
        tap.push(none.as_bytes());
        tap.finish();
        assert_eq!(tap.transfer(), None);
    }
    let mut tap = BodyTap::new(RequestKind::Chat);
    tap.push(answer.as_bytes());
    assert_eq!(tap.transfer(), None, "nobody asked for them");
}
