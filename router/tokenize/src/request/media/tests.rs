use kvasir_core::RequestKind;
use serde_json::{Value, json};

use super::*;
use crate::request::PromptInput;
use crate::template::{SpecialTokens, TemplateSource, system_wall_clock};

const TEXTS: &str = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";

const PARTS: &str = "{% for m in messages %}<{{ m.role }}>{% for c in m.content %}\
                     {% if c.type == 'text' %}{{ c.text }}{% else %}[{{ c.type }}]{% endif %}{% endfor %}{% endfor %}";

fn before(template: &str, kind: RequestKind, body: Value) -> Result<String, TokenizeError> {
    let source = TemplateSource { default: Some(template.to_owned()), tool_use: None };
    let templates = ChatTemplates::compile(&source, SpecialTokens::default(), system_wall_clock()).unwrap();
    let PromptInput::Chat(call) = PromptInput::read(kind, body.to_string().as_bytes())? else {
        panic!("{body} is no chat")
    };
    let found = call.render_before_media(&templates)?;
    Ok(found.rendered[..found.end].to_owned())
}

fn chat(template: &str, messages: Value) -> Result<String, TokenizeError> {
    before(template, RequestKind::Chat, json!({"messages": messages}))
}

fn image() -> Value {
    json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}})
}

#[test]
fn the_text_ends_before_the_first_message_with_media() {
    for medium in [
        image(),
        json!({"type": "input_image", "image_url": "http://a/b.png"}),
        json!({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}),
        json!({"type": "video_url", "video_url": {"url": "http://a/b.mp4"}}),
    ] {
        let turns = json!([
            {"role": "system", "content": "s"},
            {"role": "user", "content": [{"type": "text", "text": "one"}]},
            {"role": "assistant", "content": "two"},
            {"role": "user", "content": [{"type": "text", "text": "three"}, medium]},
            {"role": "user", "content": [medium, {"type": "text", "text": "four"}]},
        ]);
        for template in [TEXTS, PARTS] {
            let expected = "<system>s<user>one<assistant>two<user>";
            assert_eq!(chat(template, turns.clone()).as_deref(), Ok(expected), "{medium}");
        }
    }
}

#[test]
fn other_apis_have_images_too() {
    let source = json!({"type": "base64", "media_type": "image/png", "data": "AAAA"});
    let picture = json!({"type": "image", "source": source});
    let messages = json!({"system": "s", "messages": [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "look", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [
            {"type": "text", "text": "seen"}, picture]}]},
    ]});
    let expected = "<system>s<user>one<assistant><tool>seen<user>";
    assert_eq!(before(TEXTS, RequestKind::Messages, messages).as_deref(), Ok(expected));
    let direct = json!({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, picture]}]});
    assert_eq!(before(PARTS, RequestKind::Messages, direct).as_deref(), Ok("<user>"));
    let responses = json!({"instructions": "s", "input": [{"role": "user", "content": [
        {"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "http://a/b.png"}]}]});
    assert_eq!(before(PARTS, RequestKind::Responses, responses).as_deref(), Ok("<system>s<user>"));
}

#[test]
fn what_depends_on_the_media_is_not_told() {
    let turns =
        |content: Value| json!([{"role": "system", "content": "s"}, {"role": "user", "content": content}]);
    let with_image = turns(json!([{"type": "text", "text": "a"}, image()]));
    // The system text only without images, as Llama 3.2 Vision has it.
    let hides = "{% set ns = namespace(images=false) %}{% for m in messages %}{% for c in m.content %}\
                 {% if c.type == 'image' %}{% set ns.images = true %}{% endif %}{% endfor %}{% endfor %}\
                 {% for m in messages %}{% if not (ns.images and m.role == 'system') %}<{{ m.role }}>\
                 {% for c in m.content %}{{ c.text or '[image]' }}{% endfor %}{% endif %}{% endfor %}";
    // All images first.
    let gathers = "{% for m in messages %}{% for c in m.content %}{% if c.type == 'image' %}[image]{% endif %}{% endfor %}{% endfor %}\
                   {% for m in messages %}<{{ m.role }}>{% for c in m.content %}{{ c.text }}{% endfor %}{% endfor %}";
    let twice = "{% for m in messages %}{{ m.content }}{% endfor %}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";
    let none = "{% for m in messages %}<{{ m.role }}>{% endfor %}";
    for template in [hides, gathers, twice, none] {
        assert_eq!(chat(template, with_image.clone()), Err(TokenizeError::Inexact(MEDIA)), "{template}");
    }
    let of_the_system = json!([{"role": "system", "content": [image()]}, {"role": "user", "content": "a"}]);
    assert_eq!(chat(PARTS, of_the_system), Err(TokenizeError::Inexact(MEDIA)));
    let named = turns(json!([{"type": "image_url", "image_url": {"url": "x"}, "uuid": "u"}]));
    assert_eq!(chat(PARTS, named).unwrap_err().label(), "inexact");
    let skipped = turns(json!([{"type": "image_url", "image_url": null}]));
    assert_eq!(chat(PARTS, skipped).unwrap_err().label(), "inexact");
}

#[test]
fn a_text_that_looks_like_the_sentinel_is_not_told() {
    let turns = json!([
        {"role": "user", "content": SENTINEL},
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": [image()]},
    ]);
    assert_eq!(chat(TEXTS, turns), Err(TokenizeError::Inexact(MEDIA)));
}
