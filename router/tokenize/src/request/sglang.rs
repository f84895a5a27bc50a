//! Where SGLang makes another prompt of a request than vLLM does, whose rules are followed here.

use kvasir_core::RequestKind;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::ChatShape;

#[derive(Deserialize)]
struct Fields<'a> {
    #[serde(borrow)]
    messages: Option<&'a RawValue>,
    #[serde(borrow)]
    tools: Option<&'a RawValue>,
}

/// Whether SGLang's ids may be others than ours.
///
/// It writes the fields of a tool in another order, leaves tools out for `tool_choice: none` and all but one for a named
/// one; makes a final message of the assistant the user's; and joins texts with a space. How it converts the other APIs is
/// not known here. A body that is not understood counts as different.
pub fn sglang_differs(kind: RequestKind, body: &[u8]) -> bool {
    match kind {
        RequestKind::Completions => false,
        RequestKind::Chat => chat_differs(body).unwrap_or(true),
        _ => true,
    }
}

fn chat_differs(body: &[u8]) -> Option<bool> {
    let fields: Fields<'_> = serde_json::from_slice(body).ok()?;
    let shape = ChatShape::of(fields.messages?.get())?;
    let no_tools =
        fields.tools.is_none_or(|tools| tools.get().trim_matches(['[', ']']).trim_ascii().is_empty());
    Some(!no_tools || shape.assistant_last || shape.several_texts)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_both_engines_render_alike_is_told() {
        let user = json!({"role": "user", "content": [{"type": "text", "text": "x"}]});
        let tool = json!({"type": "function", "function": {"name": "f"}});
        for (body, differs) in [
            (json!({"messages": [user]}), false),
            (json!({"messages": [user], "tools": []}), false),
            (json!({"messages": [user], "tools": null, "tool_choice": "none"}), false),
            (json!({"messages": [user], "tools": [tool]}), true),
            (json!({"messages": [user, {"role": "assistant", "content": "y"}]}), true),
            (json!({"messages": [user, {"role": "assistant", "content": "y"}, user]}), false),
            (json!({"messages": [{"role": "tool", "content": ["a", {"type": "text", "text": "b"}]}]}), true),
            (json!({"messages": 1}), true),
            (json!({}), true),
        ] {
            assert_eq!(sglang_differs(RequestKind::Chat, body.to_string().as_bytes()), differs, "{body}");
            assert!(sglang_differs(RequestKind::Messages, body.to_string().as_bytes()));
            assert!(!sglang_differs(RequestKind::Completions, body.to_string().as_bytes()));
        }
    }
}
