//! Any template: it compiles or not, and renders a fixed conversation within its fuel, without a panic.
#![no_main]

use kvasir_core::RequestKind;
use kvasir_tokenize::request::PromptInput;
use kvasir_tokenize::template::{ChatTemplates, SpecialTokens, TemplateSource, system_wall_clock};
use libfuzzer_sys::fuzz_target;

const BODY: &[u8] = br#"{"messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"u"}]},
{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"a\":1e5}"}}]},
{"role":"tool","tool_call_id":"1","content":"r"}],"tools":[{"type":"function","function":{"name":"f"}}]}"#;

fuzz_target!(|text: &str| {
    let source = TemplateSource { default: Some(text.to_owned()), tool_use: None };
    let Ok(templates) = ChatTemplates::compile(&source, SpecialTokens::default(), system_wall_clock()) else { return };
    let Ok(PromptInput::Chat(call)) = PromptInput::read(RequestKind::Chat, BODY) else {
        panic!("the body is fine");
    };
    drop(call.render(&templates));
});
