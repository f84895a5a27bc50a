use kvasir_core::RequestKind;
use serde_json::{Value, json};

use super::*;
use crate::request::PromptInput;

fn read(kind: RequestKind, body: &Value) -> ChatCall {
    match PromptInput::read(kind, body.to_string().as_bytes()) {
        Ok(PromptInput::Chat(call)) => *call,
        other => panic!("{other:?}"),
    }
}

fn shown(version: MistralVersion, body: &Value) -> Result<String, &'static str> {
    let segments = read(RequestKind::Chat, body).mistral_segments(version).map_err(|error| error.label())?;
    let text = |segment: &Segment| match segment {
        Segment::Control(name) => format!("{{{name}}}"),
        Segment::Text(text) => text.clone(),
    };
    Ok(segments.iter().map(text).collect())
}

fn round_trip() -> Value {
    json!({
        "messages": [
            {"role": "system", "content": "S"},
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "call-000000001", "type": "function", "function": {"name": "f", "arguments": "{\"ö\": 1e5}"}}]},
            {"role": "tool", "tool_call_id": "call-000000001", "content": "{\"r\":  [1]}"},
            {"role": "assistant", "content": "a  "},
            {"role": "user", "content": [{"type": "text", "text": "b"}, {"type": "text", "text": ""}, {"type": "text", "text": "c"}]},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "strict": true}}],
    })
}

const TOOLS: &str = r#"{[AVAILABLE_TOOLS]}[{"type": "function", "function": {"name": "f", "description": "", "parameters": {}}}]{[/AVAILABLE_TOOLS]}"#;

#[test]
fn each_version_has_its_own_order_of_things() {
    let v3 = format!(
        "{{<s>}}{{[INST]}}q{{[/INST]}}{{[TOOL_CALLS]}}[{{\"name\": \"f\", \"arguments\": {{\"ö\": 100000.0}}, \"id\": \"000000001\"}}]{{</s>}}\
         {{[TOOL_RESULTS]}}{{\"content\": {{\"r\": [1]}}, \"call_id\": \"000000001\"}}{{[/TOOL_RESULTS]}}a{{</s>}}{TOOLS}{{[INST]}}S\n\nb\n\nc{{[/INST]}}"
    );
    let v7 = format!(
        "{{<s>}}{{[SYSTEM_PROMPT]}}S{{[/SYSTEM_PROMPT]}}{{[INST]}}q{{[/INST]}}{{[TOOL_CALLS]}}[{{\"name\": \"f\", \"arguments\": {{\"ö\": 100000.0}}, \"id\": \"000000001\"}}]{{</s>}}\
         {{[TOOL_RESULTS]}}000000001{{[TOOL_CONTENT]}}{{\"r\":  [1]}}{{[/TOOL_RESULTS]}}a{{</s>}}{TOOLS}{{[INST]}}b\n\nc{{[/INST]}}"
    );
    let v11 = format!(
        "{{<s>}}{{[SYSTEM_PROMPT]}}S{{[/SYSTEM_PROMPT]}}{{[INST]}}q{{[/INST]}}{{[TOOL_CALLS]}}f{{[CALL_ID]}}000000001{{[ARGS]}}{{\"ö\": 100000.0}}{{</s>}}\
         {{[TOOL_RESULTS]}}000000001{{[TOOL_CONTENT]}}{{\"r\":  [1]}}{{[/TOOL_RESULTS]}}a{{</s>}}{TOOLS}{{[INST]}}b\n\nc{{[/INST]}}"
    );
    let v13 = format!(
        "{{<s>}}{{[SYSTEM_PROMPT]}}S{{[/SYSTEM_PROMPT]}}{TOOLS}{{[INST]}}q{{[/INST]}}{{[TOOL_CALLS]}}f{{[ARGS]}}{{\"ö\": 100000.0}}{{</s>}}\
         {{[TOOL_RESULTS]}}{{\"r\":  [1]}}{{[/TOOL_RESULTS]}}a{{</s>}}{{[INST]}}b\n\nc{{[/INST]}}"
    );
    for (version, expected) in [
        (MistralVersion::V3, v3),
        (MistralVersion::V7, v7),
        (MistralVersion::V11, v11),
        (MistralVersion::V13, v13),
    ] {
        assert_eq!(shown(version, &round_trip()).as_deref(), Ok(&*expected), "{version:?}");
    }
}

#[test]
fn the_first_versions_know_little_of_tools() {
    assert_eq!(shown(MistralVersion::V1, &round_trip()), Err("invalid"));
    let forgotten = format!("{{<s>}}{{[INST]}}q{{[/INST]}}a{{</s>}}{TOOLS}{{[INST]}}S\n\nb\n\nc{{[/INST]}}");
    assert_eq!(shown(MistralVersion::V2, &round_trip()).as_deref(), Ok(&*forgotten));
    let mut open = round_trip();
    let messages = open["messages"].as_array_mut().unwrap();
    messages.truncate(4);
    messages[3]["name"] = json!("f");
    let kept = format!(
        "{{<s>}}{TOOLS}{{[INST]}}S\n\nq{{[/INST]}}{{[TOOL_CALLS]}}[{{\"name\": \"f\", \"arguments\": {{\"ö\": 100000.0}}}}]{{</s>}}\
         {{[TOOL_RESULTS]}}[{{\"name\": \"f\", \"content\": {{\"r\": [1]}}}}]{{[/TOOL_RESULTS]}}"
    );
    assert_eq!(shown(MistralVersion::V2, &open).as_deref(), Ok(&*kept));
    let again = open["messages"][3].clone();
    open["messages"].as_array_mut().unwrap().push(again);
    assert_eq!(shown(MistralVersion::V2, &open), Err("invalid"), "two results");
    let nameless = json!({"messages": [{"role": "user", "content": "q"}, {"role": "tool", "tool_call_id": "x", "content": "r"}]});
    assert_eq!(
        shown(MistralVersion::V2, &nameless).as_deref(),
        Ok("{<s>}{[INST]}q{[/INST]}{[TOOL_RESULTS]}[{\"name\": null, \"content\": \"r\"}]{[/TOOL_RESULTS]}")
    );
}

#[test]
fn v1_marks_instructions_with_text() {
    let body = json!({
        "messages": [
            {"role": "system", "content": "S"}, {"role": "user", "content": "a"}, {"role": "assistant", "content": "b  "},
            {"role": "user", "content": "c"},
        ],
        "tools": [{"type": "function", "function": {"name": "f"}}],
    });
    assert_eq!(
        shown(MistralVersion::V1, &body).as_deref(),
        Ok("{<s>}[INST] S\n\na [/INST]b  {</s>}[INST] c [/INST]"),
        "the system text in the first message, no tools, and blanks stay"
    );
    let result = json!({"messages": [{"role": "user", "content": "q"}, {"role": "tool", "tool_call_id": "x", "content": "r"}]});
    assert_eq!(shown(MistralVersion::V1, &result), Err("invalid"));
}

#[test]
fn messages_of_one_role_are_joined_and_the_user_begins() {
    let body = json!({"messages": [
        {"role": "assistant", "content": "x"},
        {"role": "user", "content": "a"}, {"role": "user", "content": ""}, {"role": "user", "content": "b"},
        {"role": "developer", "content": "S"}, {"role": "system", "content": "T"},
        {"role": "user", "content": "c"},
    ]});
    assert_eq!(
        shown(MistralVersion::V3, &body).as_deref(),
        Ok("{<s>}{[INST]}{[/INST]}x{</s>}{[INST]}a\n\nb{[/INST]}{[INST]}S\n\nT\n\nc{[/INST]}")
    );
    assert_eq!(
        shown(MistralVersion::V7, &body).as_deref(),
        Ok(
            "{<s>}x{</s>}{[INST]}a\n\nb{[/INST]}{[SYSTEM_PROMPT]}S{[/SYSTEM_PROMPT]}{[SYSTEM_PROMPT]}T{[/SYSTEM_PROMPT]}{[INST]}c{[/INST]}"
        )
    );
    let empty = json!({"messages": [
        {"role": "system", "content": [{"type": "text", "text": ""}]}, {"role": "user", "content": "a"}]});
    assert_eq!(shown(MistralVersion::V3, &empty).as_deref(), Ok("{<s>}{[INST]}a{[/INST]}"));
}

#[test]
fn a_final_answer_stays_open_and_reasoning_is_thought() {
    let body = json!({
        "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a ", "reasoning": "r"}],
        "add_generation_prompt": false, "continue_final_message": true,
    });
    assert_eq!(
        shown(MistralVersion::V13, &body).as_deref(),
        Ok("{<s>}{[INST]}q{[/INST]}{[THINK]}r{[/THINK]}a ")
    );
    assert_eq!(shown(MistralVersion::V11, &body), Err("invalid"));
}

#[test]
fn results_are_put_in_the_order_of_their_calls() {
    let call = |id: &str| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": ""}});
    let result = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": id});
    let body = json!({"messages": [
        {"role": "user", "content": "q"},
        {"role": "assistant", "tool_calls": [call("a"), call("b")]},
        result("b"), result("c"), result("a"),
    ]});
    let order = |version| {
        let text = shown(version, &body).unwrap();
        let (_, results) = text.split_once("[TOOL_RESULTS]").unwrap();
        results.chars().filter(|letter| matches!(letter, 'a'..='c')).collect::<String>()
    };
    assert_eq!((order(MistralVersion::V13).as_str(), order(MistralVersion::V7).as_str()), ("abc", "bbccaa"));
}

#[test]
fn what_the_engine_refuses_is_invalid_and_what_is_not_followed_inexact() {
    let user = json!({"role": "user", "content": "q"});
    let assistant = json!({"role": "assistant", "content": "a"});
    for (body, label) in [
        (json!({"messages": [user, assistant]}), "invalid"),
        (
            json!({"messages": [user], "add_generation_prompt": false, "continue_final_message": true}),
            "invalid",
        ),
        (json!({"messages": [user], "chat_template_kwargs": {"x": 1}}), "invalid"),
        (json!({"messages": [{"role": "critic", "content": "q"}]}), "invalid"),
        (json!({"messages": [{"role": "user", "content": null}]}), "invalid"),
        (json!({"messages": [user, {"role": "assistant", "content": ""}, user]}), "invalid"),
        (json!({"messages": [{"role": "tool", "content": "r"}]}), "invalid"),
        (json!({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}), "inexact"),
        (json!({"messages": [{"role": "user", "content": [], "tools": []}]}), "inexact"),
    ] {
        assert_eq!(shown(MistralVersion::V3, &body), Err(label), "{body}");
    }
    let responses = read(RequestKind::Responses, &json!({"input": "x"}));
    assert_eq!(responses.mistral_segments(MistralVersion::V7).unwrap_err().label(), "inexact");
    let messages = json!({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]});
    let segments = read(RequestKind::Messages, &messages).mistral_segments(MistralVersion::V7).unwrap();
    assert_eq!(segments[2], Segment::Text("a\n\nb".to_owned()));
}
