use serde_json::{Value, json};

use super::*;
use crate::template::ChatTemplates;
use crate::template::{SpecialTokens, TemplateSource, system_wall_clock};

/// Prints every message as JSON, so that tests see exactly what reaches the template.
pub(super) const PRINT: &str = "{% for m in messages %}{{ m|tojson }};{% endfor %}";

/// The same, but reads content as a list of parts.
pub(super) const PRINT_PARTS: &str =
    "{% for m in messages %}{% for c in m.content %}{% endfor %}{{ m|tojson }};{% endfor %}";

pub(super) fn render_with(template: &str, kind: RequestKind, body: &str) -> Result<String, TokenizeError> {
    let source = TemplateSource { default: Some(template.to_owned()), tool_use: None };
    let templates = ChatTemplates::compile(&source, SpecialTokens::default(), system_wall_clock()).unwrap();
    match PromptInput::read(kind, body.as_bytes())? {
        PromptInput::Chat(call) => call.render(&templates),
        other => panic!("{other:?}"),
    }
}

pub(super) fn render(template: &str, body: Value) -> String {
    render_with(template, RequestKind::Chat, &body.to_string())
        .unwrap_or_else(|error| panic!("{body}: {error}"))
}

pub(super) fn refused(template: &str, body: Value) -> TokenizeError {
    match render_with(template, RequestKind::Chat, &body.to_string()) {
        Ok(text) => panic!("{body} rendered as {text}"),
        Err(error) => error,
    }
}

pub(super) fn one(message: Value) -> Value {
    json!({"messages": [message]})
}

/// TPL-04, rules 1 and 6
#[test]
fn content_becomes_what_the_template_reads() {
    for (content, text, parts) in [
        (json!("a"), r#""a""#, r#"[{"type": "text", "text": "a"}]"#),
        (
            json!([{"type": "text", "text": "a", "data": 1}, "b", {"type": "input_text", "text": "c"}, {"type": "refusal", "refusal": "d"}]),
            r#""a\nb\nc\nd""#,
            r#"[{"type": "text", "text": "a"}, {"type": "text", "text": "b"}, {"type": "text", "text": "c"}, {"type": "text", "text": "d"}]"#,
        ),
        (json!([{"type": "text", "text": null}]), r#""""#, "[]"),
        (json!([]), r#""""#, "[]"),
    ] {
        let message = json!({"role": "user", "content": content, "unknown": 1});
        assert_eq!(
            render(PRINT, one(message.clone())),
            format!("{{\"role\": \"user\", \"content\": {text}}};")
        );
        assert_eq!(
            render(PRINT_PARTS, one(message)),
            format!("{{\"role\": \"user\", \"content\": {parts}}};")
        );
    }
    let empty =
        json!({"role": "user", "content": [{"type": "text", "text": ""}, {"type": "text", "text": "a"}]});
    assert_eq!(render(PRINT, one(empty)), r#"{"role": "user", "content": "a"};"#);
    let silent = json!({"role": "assistant", "content": null, "tool_calls": []});
    assert_eq!(render(PRINT, one(silent)), r#"{"role": "assistant", "content": ""};"#);
    let tool = json!({"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]});
    assert_eq!(
        render(PRINT_PARTS, one(tool)),
        r#"{"role": "tool", "content": "a\nb", "tool_call_id": "1"};"#
    );
}

#[test]
fn what_is_not_text_is_inexact_and_what_is_wrong_is_invalid() {
    let user = |content: Value| one(json!({"role": "user", "content": content}));
    let call = |call: Value| one(json!({"role": "assistant", "tool_calls": [call]}));
    for (body, label) in [
        (user(json!([{"type": "image_url", "image_url": {"url": "x"}}])), "inexact"),
        (user(json!([{"type": "input_audio", "input_audio": {}}])), "inexact"),
        (user(json!(null)), "invalid"),
        (user(json!(5)), "invalid"),
        (one(json!({"content": "x"})), "invalid"),
        (one(json!("x")), "invalid"),
        (json!({"messages": []}), "invalid"),
        (json!({}), "invalid"),
        (call(json!({"id": "1", "type": "function", "function": {"name": "f"}})), "invalid"),
        (call(json!({"id": "1", "type": "function", "function": {"name": "f", "arguments": {}}})), "invalid"),
        (call(json!({"type": "function", "function": {"name": "f", "arguments": "{}"}})), "invalid"),
        (json!({"messages": [{"role": "user", "content": "x"}], "chat_template": "x"}), "inexact"),
        (
            json!({"messages": [{"role": "user", "content": "x"}], "chat_template_kwargs": {"chat_template": "x"}}),
            "inexact",
        ),
        (json!({"messages": [{"role": "user", "content": "x"}], "input_ids": [1]}), "inexact"),
        (
            json!({"messages": [{"role": "user", "content": "x"}], "kv_transfer_params": {"prompt_token_ids": [1]}}),
            "inexact",
        ),
        (
            json!({"messages": [{"role": "user", "content": "x"}], "chat_template_kwargs": {"messages": []}}),
            "invalid",
        ),
        (json!({"messages": [{"role": "user", "content": "x"}], "continue_final_message": true}), "invalid"),
        (json!({"messages": [{"role": "user", "content": "x"}], "truncate_prompt_tokens": 4}), "inexact"),
        (json!({"messages": [{"role": "user", "content": "x"}], "add_generation_prompt": "yes"}), "inexact"),
        (json!({"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function"}]}), "invalid"),
        (json!([]), "invalid"),
    ] {
        assert_eq!(refused(PRINT, body.clone()).label(), label, "{body}");
    }
    for body in ["{", "{\"messages\":[{\"role\":\"user\",\"content\":\"\\ud800\"}]}"] {
        assert_eq!(render_with(PRINT, RequestKind::Chat, body).unwrap_err().label(), "invalid");
    }
    assert_eq!(PromptInput::read(RequestKind::Chat, b"\xff").unwrap_err().label(), "invalid");
    assert_eq!(PromptInput::read(RequestKind::Embeddings, b"{}").unwrap_err(), TokenizeError::NotTokenizable);
    assert_eq!(
        refused("{{ raise_exception('no') }}", one(json!({"role": "user", "content": "x"}))).label(),
        "template"
    );
}

#[test]
fn what_an_engine_computes_in_place_of_the_prompt_is_not_told() {
    for kind in [RequestKind::Chat, RequestKind::Completions, RequestKind::Messages, RequestKind::Responses] {
        let body = |extra: &str| {
            format!(r#"{{"messages":[{{"role":"user","content":"x"}}],"prompt":"x","input":"x"{extra}}}"#)
        };
        for extra in [
            r#","input_ids":[1]"#,
            r#","kv_transfer_params":{"prompt_token_ids":[1]}"#,
            r#","prompt_embeds":"x""#,
            r#","truncate_prompt_tokens":1"#,
        ] {
            let read = PromptInput::read(kind, body(extra).as_bytes());
            assert_eq!(read.unwrap_err().label(), "inexact", "{kind:?} {extra}");
        }
        for extra in [
            "",
            r#","input_ids":null"#,
            r#","kv_transfer_params":{"prompt_token_ids":null,"x":1}"#,
            r#","kv_transfer_params":null"#,
        ] {
            assert!(PromptInput::read(kind, body(extra).as_bytes()).is_ok(), "{kind:?} {extra}");
        }
    }
    let suffix = PromptInput::read(RequestKind::Completions, br#"{"prompt":"x","suffix":"y"}"#);
    assert_eq!(suffix.unwrap_err(), TokenizeError::Inexact("suffix"));
}

#[test]
fn what_a_body_may_hold_is_bounded() {
    let zeros = format!("[{}0]", "0,".repeat(4 << 20));
    let too_many = TokenizeError::Inexact("too many values");
    for body in [
        format!(r#"{{"messages":{zeros}}}"#),
        format!(r#"{{"messages":[{{"role":"user","content":"x"}}],"chat_template_kwargs":{{"x":{zeros}}}}}"#),
    ] {
        assert_eq!(PromptInput::read(RequestKind::Chat, body.as_bytes()).unwrap_err(), too_many);
    }
    let unread = format!(r#"{{"messages":[{{"role":"user","content":"x"}}],"logit_bias":{zeros}}}"#);
    assert!(PromptInput::read(RequestKind::Chat, unread.as_bytes()).is_ok());
    // Arguments are texts until they are read: all of them together have the bound of one body.
    let arguments = format!("{{\"x\":[{}0]}}", "0,".repeat(json::MAX_VALUES / 8));
    let call = json!({"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}});
    let calls = |number| one(json!({"role": "assistant", "tool_calls": vec![call.clone(); number]}));
    assert!(render_with("x", RequestKind::Chat, &calls(7).to_string()).is_ok());
    assert_eq!(refused("x", calls(8)), too_many);
    let call = |number| PromptInput::read(RequestKind::Chat, calls(number).to_string().as_bytes());
    let segments = |number| match call(number) {
        Ok(PromptInput::Chat(call)) => call.mistral_segments(MistralVersion::V3).map(|_| ()),
        other => panic!("{other:?}"),
    };
    assert_eq!(segments(8), Err(too_many));
}

#[test]
fn texts_of_many_megabytes_are_not_encoded() {
    let text = |bytes: usize| json!({"prompt": "x".repeat(bytes)}).to_string();
    let read = |bytes| PromptInput::read(RequestKind::Completions, text(bytes).as_bytes());
    assert!(read(MAX_TEXT_BYTES).is_ok());
    assert_eq!(read(MAX_TEXT_BYTES + 1).unwrap_err(), TOO_LONG);
    let message = |bytes: usize| one(json!({"role": "user", "content": "x".repeat(bytes)}));
    let twice = "{{ messages[0].content }}{{ messages[0].content }}";
    assert_eq!(render(twice, message(MAX_TEXT_BYTES / 2)).len(), MAX_TEXT_BYTES);
    assert_eq!(refused(twice, message(MAX_TEXT_BYTES / 2 + 1)), TOO_LONG);
}

/// Rules 2 and 12
#[test]
fn tool_arguments_are_parsed() {
    for (arguments, expected) in [
        (r#"{"b": 1e5, "a": "ü", "n": -0}"#, r#"{"b": 100000.0, "a": "ü", "n": 0}"#),
        (r#"{"a":1,"a":2}"#, r#"{"a": 2}"#),
        (r#"{"x": NaN}"#, r#"{"x": NaN}"#),
        ("", "{}"),
        ("not json", "{}"),
        ("null", "{}"),
        ("[1]", "{}"),
        (r#"{"a": 123456789012345678901234567890}"#, r#"{"a": 123456789012345678901234567890}"#),
    ] {
        let call =
            json!({"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}, "x": 1});
        let body = one(json!({"role": "assistant", "content": null, "tool_calls": [call]}));
        let template = "{{ messages[0].tool_calls[0].function.arguments|tojson }}";
        assert_eq!(render(template, body), expected, "{arguments}");
    }
}

/// Rule 7
#[test]
fn a_developer_becomes_the_system() {
    let body = json!({"messages": [
        {"role": "system", "content": "a"}, {"role": "user", "content": "b"}, {"role": "developer", "content": "c"},
    ]});
    let merged = r#"{"role": "system", "content": "a\n\nc"};{"role": "user", "content": "b"};"#;
    assert_eq!(render(PRINT, body.clone()), merged);
    let known = format!("{PRINT}{{# 'developer' #}}");
    assert!(render(&known, body).ends_with(r#"{"role": "developer", "content": "c", "tools": null};"#));
    let two = json!({"messages": [
        {"role": "system", "content": "a"}, {"role": "user", "content": "b"}, {"role": "system", "content": "c"},
    ]});
    let kept = r#"{"role": "system", "content": "a"};{"role": "user", "content": "b"};{"role": "system", "content": "c"};"#;
    assert_eq!(render(PRINT, two), kept);
}

/// Rules 8 and 9
#[test]
fn headers_go_and_reasoning_is_given_twice() {
    let system = json!({"role": "system", "content": "x-anthropic-billing-header: 1\nBe brief."});
    assert_eq!(render(PRINT, one(system)), r#"{"role": "system", "content": "Be brief."};"#);
    let expected = r#"{"role": "assistant", "content": "a", "reasoning": "r", "reasoning_content": "r"};"#;
    for message in [
        json!({"role": "assistant", "content": "a", "reasoning": "r"}),
        json!({"role": "assistant", "content": "a", "reasoning_content": "r"}),
        json!({"role": "assistant", "content": "a", "reasoning": "r", "reasoning_content": "other"}),
    ] {
        assert_eq!(render(PRINT, one(message)), expected);
    }
}

/// Rule 10
#[test]
fn the_final_message_stays_open() {
    let body = |text: &str| {
        json!({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": text}],
               "add_generation_prompt": false, "continue_final_message": true})
    };
    let kept = "{% for m in messages %}[{{ m.content }}]{% endfor %}";
    let trimmed = "{% for m in messages %}[{{ m.role }}]\n\n{{ m.content|trim }}!{% endfor %}";
    assert_eq!(render(kept, body("a  ")), "[q][a  ");
    assert_eq!(render(trimmed, body("a  ")), "[user]\n\nq![assistant]\n\na");
    assert_eq!(render(trimmed, body("")), "[user]\n\nq![assistant]");
    assert_eq!(refused("{{ messages|length }} content", body("a")).label(), "invalid");
    assert_eq!(refused("{{ messages|length }}", body("a")).label(), "invalid");
}

/// TPL-06, rules 11 and 13
#[test]
fn tools_are_written_anew() {
    let body = json!({
        "messages": [{"role": "user", "content": "x"}], "tool_choice": "none",
        "tools": [
            {"function": {"parameters": {"properties": {"z": 1, "a": 2.0, "m": {}}}, "name": "f", "x": 1, "strict": null}},
            {"type": "function", "defer_loading": true, "function": {"name": "g", "description": "d", "strict": true}},
        ],
    });
    assert_eq!(
        render("{{ tools|tojson }}", body),
        "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"description\": null, \"parameters\": \
         {\"properties\": {\"z\": 1, \"a\": 2.0, \"m\": {}}}}}, \
         {\"type\": \"function\", \"function\": {\"name\": \"g\", \"description\": \"d\", \"parameters\": null, \
         \"strict\": true, \"defer_loading\": true}, \"defer_loading\": true}]"
    );
}

/// Rules 15 and 16
#[test]
fn arguments_reach_the_template() {
    let template = "{{ bos_token }}|{{ x }}|{{ tools|tojson }}|{{ enable_thinking }}|{{ reasoning_effort }}|{{ add_generation_prompt }}|{{ documents }}";
    let body = |extra: Value| {
        let mut body = one(json!({"role": "user", "content": "q"}));
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        body
    };
    for (extra, expected) in [
        (json!({}), "||null|||True|None"),
        (
            json!({"chat_template_kwargs": {"x": 1, "bos_token": "<b>", "add_generation_prompt": false}}),
            "<b>|1|null|||True|None",
        ),
        (json!({"chat_template_kwargs": {"tools": [{"any": 1}], "x": null}}), "||[{\"any\": 1}]|||True|None"),
        (json!({"chat_template_kwargs": {"x": "auto"}, "tools": []}), "||[]|||True|None"),
        (json!({"reasoning_effort": "none"}), "||null|False|none|True|None"),
        (
            json!({"reasoning_effort": "high", "chat_template_kwargs": {"enable_thinking": false}}),
            "||null|False|high|True|None",
        ),
        (
            json!({"documents": [{"text": "t"}], "add_generation_prompt": false}),
            "||null|||False|[{'text': 't'}]",
        ),
    ] {
        assert_eq!(render(template, body(extra.clone())), expected, "{extra}");
    }
}

/// TPL-09, rule 20
#[test]
fn messages_of_the_other_vendor_are_converted() {
    let render = |body: Value| render_with(PRINT, RequestKind::Messages, &body.to_string());
    let body = json!({
        "max_tokens": 5,
        "system": [{"type": "text", "text": "x-anthropic-billing-header: 1"}, {"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
        "messages": [
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "t"}, {"type": "text", "text": "s"},
                {"type": "tool_use", "id": "1", "name": "f", "input": {"n": 1.0, "s": "ü"}},
            ]},
            {"role": "user", "content": [
                {"type": "text", "text": "u"},
                {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "r"}, {"type": "text", "text": "2"}]},
            ]},
        ],
    });
    assert_eq!(
        render(body).unwrap(),
        "{\"role\": \"system\", \"content\": \"ab\"};{\"role\": \"user\", \"content\": \"q\"};\
         {\"role\": \"assistant\", \"content\": \"s\", \"tool_calls\": [{\"id\": \"1\", \"function\": \
         {\"arguments\": {\"n\": 1.0, \"s\": \"ü\"}, \"name\": \"f\"}, \"type\": \"function\"}], \
         \"reasoning\": \"t\", \"reasoning_content\": \"t\"};\
         {\"role\": \"tool\", \"content\": \"r\\n2\", \"tool_call_id\": \"1\"};{\"role\": \"user\", \"content\": \"u\"};"
    );
    for (body, label) in [
        (json!({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}), "inexact"),
        (json!({"messages": [{"role": "user", "content": "x"}], "thinking": {"type": "enabled"}}), "inexact"),
        (json!({"messages": [{"role": "system", "content": "x"}]}), "inexact"),
        (
            json!({"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "web_search", "name": "w"}]}),
            "inexact",
        ),
        (json!({"messages": []}), "invalid"),
    ] {
        assert_eq!(render(body.clone()).unwrap_err().label(), label, "{body}");
    }
    let tools = json!({
        "messages": [{"role": "user", "content": "x"}], "thinking": {"type": "disabled"},
        "tools": [{"name": "f", "description": "d", "input_schema": {"properties": {}}}],
    });
    let text =
        render_with("{{ tools|tojson }}{{ enable_thinking }}", RequestKind::Messages, &tools.to_string());
    assert_eq!(
        text.unwrap(),
        "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"description\": \"d\", \"parameters\": \
         {\"properties\": {}, \"type\": \"object\"}}}]False"
    );
}

/// Rule 21
#[test]
fn responses_are_converted() {
    let render = |body: Value| render_with(PRINT, RequestKind::Responses, &body.to_string());
    let body = json!({
        "instructions": "i",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "q"}]},
            {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
            {"type": "function_call", "call_id": "2", "name": "g", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "1", "output": "o"},
            {"type": "message", "role": "assistant", "status": "completed", "content": [{"type": "output_text", "text": "a"}]},
        ],
    });
    let call = |id: &str, name: &str| {
        format!(
            "{{\"id\": \"{id}\", \"function\": {{\"name\": \"{name}\", \"arguments\": {{}}}}, \"type\": \"function\"}}"
        )
    };
    assert_eq!(
        render(body).unwrap(),
        format!(
            "{{\"role\": \"system\", \"content\": \"i\"}};{{\"role\": \"user\", \"content\": \"q\"}};\
             {{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{}, {}]}};\
             {{\"role\": \"tool\", \"content\": \"o\", \"tool_call_id\": \"1\"}};{{\"role\": \"assistant\", \"content\": \"a\"}};",
            call("1", "f"),
            call("2", "g")
        )
    );
    assert_eq!(render(json!({"input": "q"})).unwrap(), r#"{"role": "user", "content": "q"};"#);
    for (body, label) in [
        (json!({"input": "x", "previous_response_id": "r"}), "not_tokenizable"),
        (json!({"input": [{"type": "reasoning", "summary": []}]}), "inexact"),
        (json!({"input": "x", "tools": [{"type": "web_search"}]}), "inexact"),
        (json!({"input": "x", "truncation": "auto"}), "inexact"),
        (json!({"input": []}), "invalid"),
    ] {
        assert_eq!(render(body.clone()).unwrap_err().label(), label, "{body}");
    }
}
