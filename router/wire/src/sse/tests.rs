use bytes::Bytes;
use kvasir_core::{RequestKind, Usage};

use super::*;

/// Pushes the pieces one after the other and gives what came out of each, and of the end.
pub(super) fn run(tap: &mut StreamTap, pieces: &[&[u8]]) -> Vec<Vec<u8>> {
    let mut outputs = Vec::new();
    for piece in pieces {
        let mut out = Pieces::new();
        tap.push(Bytes::copy_from_slice(piece), &mut out);
        outputs.push(out.concat());
    }
    let mut out = Pieces::new();
    tap.finish(&mut out);
    outputs.push(out.concat());
    outputs
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn usage(prompt: u64, completion: u64, cached: Option<u64>) -> Option<Usage> {
    Some(Usage { prompt_tokens: prompt, completion_tokens: completion, cached_tokens: cached })
}

/// What vLLM sends with `include_usage`; without it, it sends the same without the last event but `[DONE]`.
const VLLM: &str = "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}]}\n\ndata: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"漢字🦀 \\\"usage\\\"\"},\"finish_reason\":null}]}\n\ndata: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\"},\"finish_reason\":\"stop\",\"stop_reason\":null}]}\n\ndata: {\"id\":\"c\",\"choices\":[],\"usage\":{\"prompt_tokens\":19,\"total_tokens\":24,\"completion_tokens\":5,\"prompt_tokens_details\":{\"cached_tokens\":16}}}\n\ndata: [DONE]\n\n";

fn without_usage_event(stream: &str) -> String {
    stream.split_inclusive("\n\n").filter(|event| !event.contains("\"choices\":[]")).collect()
}

/// SSE-01, SSE-04: one run for each cut, and one byte at a time.
#[test]
fn every_cut_gives_the_same_bytes_and_usage() {
    let bytes = VLLM.as_bytes();
    for hide in [false, true] {
        let expected = if hide { without_usage_event(VLLM) } else { VLLM.to_owned() };
        let mut runs: Vec<Vec<&[u8]>> =
            (0..=bytes.len()).map(|cut| vec![&bytes[..cut], &bytes[cut..]]).collect();
        runs.push(bytes.chunks(1).collect());
        for pieces in runs {
            let mut tap = StreamTap::new(RequestKind::Chat, hide);
            assert_eq!(text(&run(&mut tap, &pieces).concat()), expected, "first piece {}", pieces[0].len());
            assert_eq!(tap.usage(), usage(19, 5, Some(16)));
            assert!(tap.finished() && tap.finish_reason_seen() && !tap.error_seen());
        }
    }
}

/// SSE-02: every way to frame an event.
#[test]
fn every_framing_is_understood() {
    let event = "{\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":10}}";
    let framings = [
        format!("data: {event}\n\n"),
        format!("data:{event}\n\n"),
        format!("data: {event}\r\n\r\n"),
        format!("data:{event}\r\r"),
        format!("event: x\nid: 5\ndata: {event}\nretry: 1\n\n"),
        format!("data: {event}"),
        "data: {\"choices\": [\ndata:  ], \"usage\":\ndata: {\"prompt_tokens\":7,\ndata:\ndata: \"completion_tokens\":10}}\n\n".to_owned(),
        format!("\u{feff}data: {event}\n\n"),
    ];
    for stream in framings {
        let mut tap = StreamTap::new(RequestKind::Completions, false);
        assert_eq!(text(&run(&mut tap, &[stream.as_bytes()]).concat()), stream);
        assert_eq!(tap.usage(), usage(7, 10, None), "{stream:?}");
        let mut tap = StreamTap::new(RequestKind::Completions, true);
        let out = run(&mut tap, &stream.as_bytes().chunks(1).collect::<Vec<_>>()).concat();
        assert_eq!(text(&out), "", "{stream:?}");
        assert_eq!(tap.usage(), usage(7, 10, None), "{stream:?}");
    }
}

#[test]
fn only_undecided_events_wait() {
    let cases: &[&[(&str, &str)]] = &[
        // Comments, blank lines and whole events go at once.
        &[
            (": pi", ": pi"),
            ("ng\n", "ng\n"),
            ("\n", "\n"),
            ("data: {\"choices\":[{}]}\n\n", "data: {\"choices\":[{}]}\n\n"),
        ],
        // A complete payload need not wait for its blank line, nor for the rest of its line end.
        &[
            ("data: {\"choices\":[{}]}\r", "data: {\"choices\":[{}]}\r"),
            ("\n", "\n"),
            ("\r", "\r"),
            ("\n", "\n"),
        ],
        &[("data: {\"choices\":[{}]}\nid", "data: {\"choices\":[{}]}\nid"), (": 5\n\n", ": 5\n\n")],
        &[("data: [DONE]\n", "data: [DONE]\n"), ("\n", "\n")],
        // Half a payload waits for its other half, behind what came before it.
        &[("\ndata: {\"choi", "\n"), ("ces\":[{}]}\n", "data: {\"choices\":[{}]}\n"), ("\n", "\n")],
        // So do the fields in front of it.
        &[("event: x\n", ""), ("data: {}\n", "event: x\ndata: {}\n")],
        // A usage event is gone whole, comments stay.
        &[
            ("data: {\"choices\":[],\"usage\":{}}\r", ""),
            ("\n:a\r", ":a\r"),
            ("\n:", "\n:"),
            ("b\n\r", "b\n"),
            ("\n\ndata: 1\n", "\ndata: 1\n"),
        ],
        &[("event: x\n:a\ndata: {\"choices\":[],\"usage\":{}}\n\n\n", ":a\n\n")],
        // No JSON, no wait.
        &[("data: hello\n", "data: hello\n"), ("data: {\"usage\":{}}\n\n", "data: {\"usage\":{}}\n\n")],
    ];
    for case in cases {
        let mut tap = StreamTap::new(RequestKind::Chat, true);
        let pieces: Vec<_> = case.iter().map(|(piece, _)| piece.as_bytes()).collect();
        let outputs = run(&mut tap, &pieces);
        for ((piece, expected), output) in case.iter().zip(&outputs) {
            assert_eq!(text(output), *expected, "{piece:?} of {case:?}");
        }
        assert_eq!(outputs.last().unwrap(), b"", "{case:?}");
    }
}

/// USE-01: content beside usage is delivered, only the member goes.
#[test]
fn a_usage_member_beside_content_is_cut_out() {
    let cases = [
        (
            r#"{"choices":[{"delta":{"content":"z"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1}}"#,
            r#"{"choices":[{"delta":{"content":"z"},"finish_reason":"stop"}]}"#,
        ),
        (
            r#"{"choices": [{"index":0,"delta":{}}], "usage": {"prompt_tokens":1}, "x": 1}"#,
            r#"{"choices": [{"index":0,"delta":{}}], "x": 1}"#,
        ),
        (r#"{"usage": {"prompt_tokens":1}, "choices":[{}]}"#, r#"{"choices":[{}]}"#),
        (
            r#"{"usage":{"prompt_tokens":2},"usage":{"prompt_tokens":1},"choices":[{}],"usage":{"prompt_tokens":1}}"#,
            r#"{"choices":[{}]}"#,
        ),
        (r#"{"usage":{"prompt_tokens":1}}"#, "{}"),
        (
            r#"{"choices":[{}],"usage":{"prompt_tokens":2},"usage":{"prompt_tokens":1},"x":1}"#,
            r#"{"choices":[{}],"x":1}"#,
        ),
        (
            r#"{"choices":[],"usage":{"prompt_tokens":1},"error":{"message":"x"}}"#,
            r#"{"choices":[],"error":{"message":"x"}}"#,
        ),
    ];
    for (sent, expected) in cases {
        let stream = format!("id: 1\ndata: {sent}\n\n");
        for size in [1, 7, stream.len()] {
            let mut tap = StreamTap::new(RequestKind::Chat, true);
            let out = run(&mut tap, &stream.as_bytes().chunks(size).collect::<Vec<_>>()).concat();
            assert_eq!(text(&out), format!("id: 1\ndata: {expected}\n\n"));
            assert_eq!(tap.usage(), usage(1, 0, None));
        }
    }
    for kept in [r#"{"choices":[],"usage":null}"#, r#"{"choices":[{"usage":{"a":1}}]}"#, r#"{"usage":"#] {
        let stream = format!("data: {kept}\n\n");
        let mut tap = StreamTap::new(RequestKind::Chat, true);
        assert_eq!(text(&run(&mut tap, &[stream.as_bytes()]).concat()), stream);
        assert_eq!(tap.usage(), None);
    }
}

#[test]
fn usage_in_every_event_is_counted_once() {
    let stream = "data: {\"choices\":[{}],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":1}}\n\ndata: {\"choices\":[{}],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2}}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2}}\n\n";
    let mut tap = StreamTap::new(RequestKind::Chat, true);
    let out = run(&mut tap, &[stream.as_bytes()]).concat();
    assert_eq!(text(&out), "data: {\"choices\":[{}]}\n\ndata: {\"choices\":[{}]}\n\n");
    assert_eq!(tap.usage(), usage(7, 2, None));
}

#[test]
fn an_error_event_is_no_success() {
    for (kind, event) in [
        (RequestKind::Chat, r#"{"error":{"message":"boom","code":500}}"#),
        (RequestKind::Chat, r#"{"object":"error","message":"boom"}"#),
        (RequestKind::Messages, r#"{"type":"error","error":{"type":"overloaded_error"}}"#),
        (RequestKind::Responses, r#"{"type":"error","message":"boom"}"#),
        (RequestKind::Responses, r#"{"type":"response.failed","response":{"id":"r","error":{"code":"x"}}}"#),
    ] {
        let mut tap = StreamTap::new(kind, true);
        let stream = format!("data: {event}\n\ndata: [DONE]\n\n");
        assert_eq!(text(&run(&mut tap, &[stream.as_bytes()]).concat()), stream);
        assert!(tap.error_seen() && tap.finished(), "{event}");
    }
    for (kind, event) in [
        (RequestKind::Chat, r#"{"choices":[{"delta":{"content":"\"error\":{}"}}],"error":null}"#),
        (
            RequestKind::Responses,
            r#"{"type":"response.created","response":{"id":"r","error":null,"usage":null}}"#,
        ),
    ] {
        let mut tap = StreamTap::new(kind, true);
        run(&mut tap, &[format!("data: {event}\n\n").as_bytes()]);
        assert!(!tap.error_seen(), "{event}");
    }
}

/// TPL-09: Anthropic's usage comes in two parts and its prompt in three.
#[test]
fn the_messages_api_is_read() {
    let stream = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"usage\":{\"input_tokens\":10,\"cache_creation_input_tokens\":20,\"cache_read_input_tokens\":30,\"output_tokens\":1}}}\n\nevent: ping\ndata: {\"type\": \"ping\"}\n\nevent: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"hi\"}}\n\nevent: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":15,\"input_tokens\":0}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
    for size in [1, 5, stream.len()] {
        let mut tap = StreamTap::new(RequestKind::Messages, true);
        assert_eq!(
            text(&run(&mut tap, &stream.as_bytes().chunks(size).collect::<Vec<_>>()).concat()),
            stream
        );
        assert_eq!(tap.usage(), usage(60, 15, Some(30)));
        assert!(tap.finished() && tap.finish_reason_seen() && !tap.error_seen());
    }
}

#[test]
fn the_responses_api_is_read() {
    let stream = "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_1\",\"status\":\"in_progress\",\"usage\":null}}\n\nevent: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"hi\"}\n\nevent: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"id\":\"resp_1\",\"usage\":{\"input_tokens\":7,\"input_tokens_details\":{\"cached_tokens\":4},\"output_tokens\":3}}}\n\n";
    let mut tap = StreamTap::new(RequestKind::Responses, false);
    let mut out = Pieces::new();
    tap.push(Bytes::copy_from_slice(&stream.as_bytes()[..130]), &mut out);
    assert_eq!(tap.response_id(), Some("resp_1"));
    assert!(!tap.finished());
    tap.push(Bytes::copy_from_slice(&stream.as_bytes()[130..]), &mut out);
    assert_eq!(text(&out.concat()), stream);
    assert_eq!(tap.usage(), usage(7, 3, Some(4)));
    assert!(tap.finished() && tap.finish_reason_seen());
}

#[test]
fn what_is_too_long_goes_on_unread() {
    let long = format!(
        "data: {{\"choices\":[],\"x\":\"{}\",\"usage\":{{\"prompt_tokens\":1}}}}\n\n",
        "a".repeat(MAX_EVENT_BYTES)
    );
    let stream =
        format!("{long}data: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":2}}}}\n\ndata: [DONE]\n\n");
    for size in [4096, 700_000, stream.len()] {
        let mut tap = StreamTap::new(RequestKind::Chat, true);
        let mut held = 0_usize;
        let mut total = Vec::new();
        for piece in stream.as_bytes().chunks(size) {
            let mut out = Pieces::new();
            tap.push(Bytes::copy_from_slice(piece), &mut out);
            let given = out.concat();
            held = (held + piece.len()).saturating_sub(given.len());
            assert!(held <= MAX_EVENT_BYTES + 200);
            total.extend(given);
        }
        assert_eq!(total, format!("{long}data: [DONE]\n\n").as_bytes());
        assert_eq!(tap.usage(), usage(2, 0, None));
    }
    let lines = format!("{}\n", "data: {\n".repeat(5000));
    for size in [1, lines.len()] {
        let mut tap = StreamTap::new(RequestKind::Chat, true);
        assert_eq!(text(&run(&mut tap, &lines.as_bytes().chunks(size).collect::<Vec<_>>()).concat()), lines);
    }
}

/// STR-03: what a broken stream held back is given, not invented and not swallowed.
#[test]
fn a_cut_stream_keeps_its_last_bytes() {
    let mut tap = StreamTap::new(RequestKind::Chat, true);
    let outputs = run(&mut tap, &[b"data: {\"choices\":[],\"usage\":{\"prompt_to"]);
    assert_eq!(text(&outputs[0]), "");
    assert_eq!(text(&outputs[1]), "data: {\"choices\":[],\"usage\":{\"prompt_to");
    assert!(!tap.finished());
    assert_eq!(tap.usage(), None);
}

#[test]
fn chunks_are_passed_on_without_copies() {
    for hide in [false, true] {
        let chunk = Bytes::copy_from_slice(VLLM.as_bytes());
        let mut tap = StreamTap::new(RequestKind::Chat, hide);
        let mut out = Pieces::new();
        tap.push(chunk.clone(), &mut out);
        assert_eq!(out.len(), if hide { 2 } else { 1 });
        assert_eq!(out[0].as_ptr(), chunk.as_ptr());
        tap.push(Bytes::new(), &mut out);
        assert_eq!(out.iter().filter(|piece| piece.is_empty()).count(), 0);
    }
}

/// USE-05: with prefill apart, the number of cached tokens is the prefill engine's.
#[test]
fn the_cached_tokens_of_a_stream_are_corrected_and_nothing_else() {
    let responses = "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"id\":\"r\",\"usage\":{\"input_tokens\":19,\"input_tokens_details\":{\"cached_tokens\": 16},\"output_tokens\":5}}}\n\n";
    for (kind, stream) in [(RequestKind::Chat, VLLM), (RequestKind::Responses, responses)] {
        for (cached, now) in [(Some(0), "0"), (Some(12_345), "12345"), (None, "null")] {
            let expected = stream
                .replace("\"cached_tokens\":16", &format!("\"cached_tokens\":{now}"))
                .replace("\"cached_tokens\": 16", &format!("\"cached_tokens\": {now}"));
            for cut in 0..stream.len() {
                let mut tap = StreamTap::new(kind, false).correcting();
                tap.correct_cached(cached);
                let (front, back) = stream.as_bytes().split_at(cut);
                let out = run(&mut tap, &[front, back]).concat();
                assert_eq!(text(&out), expected, "cut at {cut}");
                assert_eq!(tap.usage(), usage(19, 5, Some(16)), "what the engine at hand says");
            }
            let bytes: Vec<&[u8]> = stream.as_bytes().chunks(1).collect();
            let mut tap = StreamTap::new(kind, false).correcting();
            tap.correct_cached(cached);
            assert_eq!(text(&run(&mut tap, &bytes).concat()), expected);
        }
    }
}

#[test]
fn a_correction_may_come_late_or_never_and_hidden_usage_stays_hidden() {
    let (front, back) = VLLM.split_at(VLLM.len() / 2);
    let mut tap = StreamTap::new(RequestKind::Chat, false).correcting();
    let mut out = Pieces::new();
    tap.correct_cached(None);
    tap.push(Bytes::copy_from_slice(front.as_bytes()), &mut out);
    tap.correct_cached(Some(3));
    tap.push(Bytes::copy_from_slice(back.as_bytes()), &mut out);
    tap.finish(&mut out);
    assert_eq!(text(&out.concat()), VLLM.replace("\"cached_tokens\":16", "\"cached_tokens\":3"));
    let mut tap = StreamTap::new(RequestKind::Chat, false).correcting();
    assert_eq!(text(&run(&mut tap, &[VLLM.as_bytes()]).concat()), VLLM);
    let mut tap = StreamTap::new(RequestKind::Chat, true).correcting();
    tap.correct_cached(Some(3));
    assert_eq!(text(&run(&mut tap, &[VLLM.as_bytes()]).concat()), without_usage_event(VLLM));
    let mut tap = StreamTap::new(RequestKind::Chat, false);
    tap.correct_cached(Some(3));
    assert_eq!(text(&run(&mut tap, &[VLLM.as_bytes()]).concat()), VLLM, "a tap that holds nothing back");
}
