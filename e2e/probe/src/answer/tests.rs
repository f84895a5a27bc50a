//! Tests of the answers: whole, cut anywhere, broken off, erroneous.

use proptest::prelude::{prop, prop_assert_eq, proptest};

use super::*;

const STREAM: &str = concat!(
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}],",
    "\"usage\":null}\n\n",
    ": keep-alive\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"gr\u{fc}n \\\"\"}}]}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"und\"},\"finish_reason\":\"stop\"}]}\n\n",
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":40,\"completion_tokens\":2,",
    "\"prompt_tokens_details\":{\"cached_tokens\":32}}}\n\n",
    "data: [DONE]\n\n",
);

fn read(pieces: &[&[u8]]) -> Result<Said, Failure> {
    let mut reader = StreamReader::new(true);
    for piece in pieces {
        reader.feed(piece)?;
    }
    reader.end()
}

fn kind(stream: &str) -> FailureKind {
    read(&[stream.as_bytes()]).unwrap_err().kind
}

#[test]
fn a_stream_gives_its_text_and_usage() {
    let said = read(&[STREAM.as_bytes()]).unwrap();
    assert_eq!(said.text, "gr\u{fc}n \"und");
    assert_eq!(said.usage, Some(Usage { prompt_tokens: 40, completion_tokens: 2, cached_tokens: Some(32) }));
}

proptest! {
    #[test]
    fn cuts_anywhere_do_not_matter(cuts in prop::collection::vec(0..STREAM.len(), 0..10)) {
        let mut cuts = cuts;
        cuts.extend([0, STREAM.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> =
            cuts.windows(2).map(|pair| &STREAM.as_bytes()[pair[0]..pair[1]]).collect();
        prop_assert_eq!(read(&pieces), read(&[STREAM.as_bytes()]));
    }
}

#[test]
fn a_stream_cut_after_any_byte_is_never_a_success() {
    // The last byte closes the event that says [DONE].
    for end in 0..STREAM.len() {
        let failure = read(&[&STREAM.as_bytes()[..end]]).unwrap_err();
        assert_eq!(failure.kind, FailureKind::StreamCut, "cut after {end}");
    }
}

#[test]
fn content_begins_with_the_first_text_thinking_or_tool_call() {
    for (delta, is_content) in [
        (r#"{"role":"assistant","content":""}"#, false),
        (r#"{"content":null,"tool_calls":[]}"#, false),
        (r#"{"content":"a"}"#, true),
        (r#"{"content":null,"reasoning_content":"a"}"#, true),
        (r#"{"reasoning":"a"}"#, true),
        (r#"{"tool_calls":[{"index":0}]}"#, true),
    ] {
        let mut reader = StreamReader::new(false);
        reader.feed(format!("data: {{\"choices\":[{{\"delta\":{delta}}}]}}\n\n").as_bytes()).unwrap();
        assert_eq!(reader.has_content(), is_content, "{delta}");
    }
    let mut completions = StreamReader::new(false);
    completions.feed(b"data: {\"choices\":[{\"text\":\"a\"}]}\n\n").unwrap();
    assert!(completions.has_content());
}

#[test]
fn errors_inside_a_stream_win_over_its_done() {
    let crash = "data: {\"error\":{\"message\":\"engine died\",\"code\":500}}\n\ndata: [DONE]\n\n";
    let failure = read(&[crash.as_bytes()]).unwrap_err();
    assert_eq!((failure.kind, failure.message.as_str()), (FailureKind::ErrorEvent, "engine died"));
    assert_eq!(kind("event: error\ndata: {\"message\":\"no\"}\n\n"), FailureKind::ErrorEvent);
    assert_eq!(
        kind("data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: [DONE]\n\n"),
        FailureKind::NoFinish
    );
    assert_eq!(kind("data: [DONE]\n\n"), FailureKind::NoFinish);
    assert_eq!(kind("data: <html>\n\n"), FailureKind::BadAnswer);
    assert_eq!(kind(""), FailureKind::StreamCut);
}

#[test]
fn whole_answers_of_both_kinds() {
    let chat = br#"{"choices":[{"message":{"role":"assistant","content":"hi"},"finish_reason":"length"}],
        "error":null,"usage":{"prompt_tokens":3,"completion_tokens":1,"prompt_tokens_details":null}}"#;
    let said = read_whole(chat, true).unwrap();
    assert_eq!(said.text, "hi");
    assert_eq!(said.usage, Some(Usage { prompt_tokens: 3, completion_tokens: 1, cached_tokens: None }));
    let completions = br#"{"choices":[{"text":"hi","finish_reason":"stop"}]}"#;
    assert_eq!(read_whole(completions, true).unwrap(), Said { text: "hi".to_owned(), usage: None });

    for (body, kind) in [
        (r#"{"choices":[]}"#, FailureKind::BadAnswer),
        (r#"{"choices":[{"text":"cut"}]}"#, FailureKind::NoFinish),
        (r#"{"error":{"message":"no"}}"#, FailureKind::ErrorEvent),
        (r#"{"choices":[{"#, FailureKind::BadAnswer),
    ] {
        assert_eq!(read_whole(body.as_bytes(), true).unwrap_err().kind, kind, "{body}");
    }
}

#[test]
fn a_bad_answer_is_not_quoted() {
    let failure = read_whole(b"\"my secret prompt\"", true).unwrap_err();
    assert!(!failure.message.contains("secret"), "{failure}");
}
