use kvasir_core::RequestKind;
use serde_json::{Value, json};

use crate::request::tests::{PRINT, PRINT_PARTS, one, refused, render, render_with};

#[test]
fn a_merged_system_text_stands_at_the_front_and_is_one_string() {
    let developer = json!({"role": "developer", "name": "n", "content": [
        {"type": "text", "text": "b"}, {"type": "text", "text": ""}, {"type": "text", "text": "c"}]});
    let user = json!({"role": "user", "content": "q"});
    let behind = json!({"messages": [user, developer]});
    let shown = r#"{"role": "user", "content": [{"type": "text", "text": "q"}]};"#;
    assert_eq!(render(PRINT_PARTS, behind), format!(r#"{{"role": "system", "content": "b\n\nc"}};{shown}"#));
    let silent = json!({"role": "system", "content": ""});
    let both = json!({"messages": [developer, silent, user]});
    assert_eq!(
        render(PRINT, both),
        r#"{"role": "system", "content": "b\nc"};{"role": "user", "content": "q"};"#
    );
    let alone = json!({"messages": [developer, user]});
    let parts = r#"{"role": "system", "content": [{"type": "text", "text": "b"}, {"type": "text", "text": ""}, {"type": "text", "text": "c"}], "name": "n"};"#;
    assert_eq!(render(PRINT_PARTS, alone), format!("{parts}{shown}"));
}

#[test]
fn only_a_system_text_loses_its_billing_line() {
    let line = "x-anthropic-billing-header: 1";
    for (role, content, expected) in [
        ("system", json!(line), "[]"),
        (
            "system",
            json!([{"type": "text", "text": line}, format!("{line}\na")]),
            r#"[{"type": "text", "text": "a"}]"#,
        ),
        (
            "system",
            json!([{"type": "input_text", "text": line}]),
            r#"[{"type": "text", "text": "x-anthropic-billing-header: 1"}]"#,
        ),
        ("user", json!(line), r#"[{"type": "text", "text": "x-anthropic-billing-header: 1"}]"#),
    ] {
        let message = json!({"role": role, "content": content});
        let expected = format!(r#"{{"role": "{role}", "content": {expected}}};"#);
        assert_eq!(render(PRINT_PARTS, one(message)), expected);
    }
    let developer = json!({"role": "developer", "content": format!("{line}\na")});
    let kept = r#"{"role": "system", "content": "x-anthropic-billing-header: 1\na"};"#;
    assert_eq!(render(PRINT, one(developer)), kept);
}

#[test]
fn other_keys_of_parts_and_calls_are_kept() {
    let part = json!({"type": "text", "cache_control": {"a": 1}, "text": "a", "name": "gone", "x": null});
    let message = json!({"role": "user", "task": "t", "name": "n", "content": [part, {"type": "thinking", "thinking": "b"}]});
    assert_eq!(
        render(PRINT_PARTS, one(message.clone())),
        r#"{"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"a": 1}, "x": null}, {"type": "text", "text": "b"}], "name": "n", "task": "t"};"#
    );
    assert_eq!(
        render(PRINT, one(message)),
        r#"{"role": "user", "content": "a\nb", "name": "n", "task": "t"};"#
    );
    let call = json!({"index": 0, "type": "function", "id": "1", "function": {"x": 1, "name": "f", "arguments": "{}"}});
    assert_eq!(
        render(PRINT, one(json!({"role": "assistant", "tool_calls": [call]}))),
        r#"{"role": "assistant", "content": "", "tool_calls": [{"id": "1", "function": {"arguments": {}, "name": "f", "x": 1}, "type": "function", "index": 0}]};"#
    );
    let with_uuid = json!([{"type": "text", "text": "a", "uuid": "u"}]);
    assert_eq!(refused(PRINT, one(json!({"role": "user", "content": with_uuid}))).label(), "inexact");
}

#[test]
fn a_tools_parts_are_joined_with_the_empty_ones() {
    let content = json!([{"type": "text", "text": ""}, {"type": "text", "text": "a"}]);
    let message = json!({"role": "tool", "tool_call_id": "1", "content": content});
    let tool = |text: &str| format!(r#"{{"role": "tool", "content": "{text}", "tool_call_id": "1"}};"#);
    assert_eq!(render(PRINT_PARTS, one(message.clone())), tool("\\na"));
    assert_eq!(render(PRINT, one(message)), tool("a"));
}

#[test]
fn calls_of_the_responses_api_name_the_function_first() {
    let input: Value = json!([
        {"role": "user", "content": "q"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{\"a\":1}"},
    ]);
    let printed = render_with(PRINT, RequestKind::Responses, &json!({"input": input}).to_string()).unwrap();
    assert!(
        printed.contains(r#""function": {"name": "f", "arguments": {"a": 1}}, "type": "function"}"#),
        "{printed}"
    );
}
