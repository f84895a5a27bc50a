use super::*;
use crate::json;

fn templates(text: &str) -> ChatTemplates {
    let source = TemplateSource { default: Some(text.to_owned()), tool_use: None };
    let clock: WallClock = Arc::new(|| time::OffsetDateTime::from_unix_timestamp(1_720_278_245).unwrap());
    ChatTemplates::compile(&source, SpecialTokens::default(), clock).unwrap_or_else(|error| panic!("{error}"))
}

fn try_render(text: &str, variables: &str) -> Result<String, TemplateError> {
    let parsed = json::parse(variables).unwrap();
    let variables = parsed.as_map().unwrap();
    let messages = variables.get("messages").and_then(json::Json::as_list).unwrap_or_default();
    templates(text).select(false)?.render(RenderInput {
        messages: messages.iter().map(json::Json::to_value).collect(),
        tools: Value::from(()),
        variables: variables.iter().map(|(name, value)| (Arc::clone(name), value.to_value())).collect(),
        add_generation_prompt: true,
    })
}

fn render(text: &str, variables: &str) -> String {
    try_render(text, variables).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn functions_of_every_template_are_not_replaced() {
    let arguments = r#"{"range":1,"namespace":"x","dict":null,"joiner":2,"x":3}"#;
    assert_eq!(
        render("{% for n in range(2) %}{{ n }}{% endfor %}{% set s = namespace(a=x) %}{{ s.a }}", arguments),
        "013"
    );
}

/// TPL-05
#[test]
fn tojson_is_python_s() {
    let x = r#"{"x":{"b":"\u00e9<&>'","a":[1,2.0,true,null]}}"#;
    for (template, variables, expected) in [
        ("{{ x|tojson }}", x, r#"{"b": "é<&>'", "a": [1, 2.0, true, null]}"#),
        (
            "{{ x|tojson(indent=2) }}",
            x,
            "{\n  \"b\": \"é<&>'\",\n  \"a\": [\n    1,\n    2.0,\n    true,\n    null\n  ]\n}",
        ),
        (
            "{{ x|tojson(ensure_ascii=true, sort_keys=true) }}",
            x,
            r#"{"a": [1, 2.0, true, null], "b": "\u00e9<&>'"}"#,
        ),
        ("{{ x|tojson(separators=(',', ':')) }}", x, r#"{"b":"é<&>'","a":[1,2.0,true,null]}"#),
        ("{{ x|tojson(indent='\t') }}", r#"{"x":[1]}"#, "[\n\t1\n]"),
        ("{{ x|tojson(indent=4) }}", r#"{"x":{"a":{},"b":[]}}"#, "{\n    \"a\": {},\n    \"b\": []\n}"),
        (
            "{{ x|tojson }}",
            r#"{"x":[1e20,0.1,1e-7,1e16,-0.0,-0,100000.0]}"#,
            "[1e+20, 0.1, 1e-07, 1e+16, -0.0, 0, 100000.0]",
        ),
        ("{{ x|tojson }}", r#"{"x":[NaN,Infinity,-Infinity]}"#, "[NaN, Infinity, -Infinity]"),
        (
            "{{ x|tojson }}",
            r#"{"x":[9223372036854775808,-123456789012345678901234567890123456789012345678901234567890]}"#,
            "[9223372036854775808, -123456789012345678901234567890123456789012345678901234567890]",
        ),
        (
            "{{ x|tojson }}",
            r#"{"x":"\u0001\u007f\u2028\b\f\n\r\t\"\\/"}"#,
            "\"\\u0001\u{7f}\u{2028}\\b\\f\\n\\r\\t\\\"\\\\/\"",
        ),
        ("{{ x|tojson(true) }}", r#"{"x":"\ud83d\ude00"}"#, r#""\ud83d\ude00""#),
        ("{{ {1: 'a', none: 2, true: 3}|tojson }}", "{}", r#"{"1": 3, "null": 2}"#),
    ] {
        if template.contains("none: 2") {
            // A literal with mixed keys: only that it prints strings as keys matters here.
            assert!(render(template, variables).contains("\"null\": 2"));
        } else {
            assert_eq!(render(template, variables), expected, "{template}");
        }
    }
    assert!(try_render("{{ nothing|tojson }}", "{}").is_err());
}

/// TPL-11
#[test]
fn blocks_are_trimmed_as_in_transformers() {
    let messages = r#"{"messages":[{"role":"u"},{"role":"a"}]}"#;
    assert_eq!(
        render("{% for m in messages %}\n  {{ m.role }}\n{% endfor %}\nEND", messages),
        "  u\n  a\nEND"
    );
    assert_eq!(render("  {% if true %}\nx\n  {% endif %}\n", "{}"), "x\n");
    assert_eq!(render("a\r\nb\n", "{}"), "a\nb");
}

/// TPL-11
#[test]
fn string_methods_are_python_s() {
    for (expression, expected) in [
        ("'  a b '.strip()", "a b"),
        ("'xxaxx'.strip('x')", "a"),
        ("'\\u001ca\\u0085'.strip()", "a"),
        ("'\\u200ba'.strip()", "\u{200b}a"),
        ("' a '|trim", "a"),
        ("'a,b,c'.split(',')", "['a', 'b', 'c']"),
        ("'a,b,c'.split(',', 1)", "['a', 'b,c']"),
        ("'a,b,c'.rsplit(',', 1)", "['a,b', 'c']"),
        ("' a  b '.split()", "['a', 'b']"),
        ("' a  b c '.split(none, 1)", "['a', 'b c ']"),
        ("'a</think>b'.split('</think>')[-1]", "b"),
        ("'k=v=w'.partition('=')", "('k', '=', 'v=w')"),
        ("'k=v=w'.rpartition('=')[0]", "k=v"),
        ("'none'.partition('=')", "('none', '', '')"),
        ("'abc'.startswith('a') and 'abc'.endswith(('x', 'c'))", "True"),
        ("'abc'.removeprefix('a').removesuffix('c')", "b"),
        ("'a\\r\\nb\\n'.splitlines()", "['a', 'b']"),
        ("'a'.upper() ~ 1 ~ none", "A1None"),
        ("'a-b'.replace('-', '+')", "a+b"),
        ("{'a': 1}.get('b', 2)", "2"),
        ("{'a': 1.0, 'b': none}", "{'a': 1.0, 'b': None}"),
        ("1e20", "1e+20"),
        ("[1.0, true]|string", "[1.0, True]"),
        ("strftime_now('%d %b %Y')", "06 Jul 2024"),
        ("'abc'[::-1]", "cba"),
    ] {
        assert_eq!(render(&format!("{{{{ {expression} }}}}"), "{}"), expected, "{expression}");
    }
}

#[test]
fn loop_controls_and_namespaces_work() {
    let template = "{% set ns = namespace(n=0) %}{% for i in [1,2,3,4] %}{% if i == 2 %}{% continue %}{% endif %}\
                    {% if i == 4 %}{% break %}{% endif %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}";
    assert_eq!(render(template, "{}"), "4");
    assert_eq!(render("a{% generation %}{% set x = 1 %}b{% endgeneration %}{{ x }}", "{}"), "ab");
}

#[test]
fn refusals_are_told_apart_and_hold_no_text() {
    let secret = "text of the client";
    let error = try_render(&format!("{{{{ raise_exception('{secret}') }}}}"), "{}").err().unwrap();
    assert_eq!(error, TemplateError::Render("the template refused the request"));
    let error = try_render("{{ x.y.z }}", r#"{"x":{}}"#).err().unwrap();
    assert_eq!(error, TemplateError::Render("the template used something undefined"));
    let error =
        try_render("{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}", "{}");
    assert_eq!(error, Err(TemplateError::Render("the template did too much work")));
}

#[test]
fn a_broken_template_does_not_compile() {
    let source = TemplateSource { default: Some("{% if %}".to_owned()), tool_use: None };
    let result = ChatTemplates::compile(&source, SpecialTokens::default(), system_wall_clock());
    assert!(matches!(result, Err(TemplateError::Compile(text)) if text.contains("default:1")));
}

#[test]
fn long_prompts_fit_into_the_fuel() {
    let text = "x".repeat(16 << 20);
    let rendered = render(
        "{% for m in messages %}{{ m.content|trim }}{% endfor %}",
        &format!(r#"{{"messages":[{{"content":"{text}"}}]}}"#),
    );
    assert_eq!(rendered.len(), text.len());
}

#[test]
fn a_rendering_is_cut_at_the_tag() {
    assert_eq!(
        cut_at_tag("head abc  CONTINUE_FINAL_MESSAGE_TAG <end>".to_owned()).as_deref(),
        Some("head abc  ")
    );
    assert_eq!(cut_at_tag("head\n\nCONTINUE_FINAL_MESSAGE_TAG<end>".to_owned()).as_deref(), Some("head"));
    assert_eq!(cut_at_tag("nothing".to_owned()), None);
    assert_eq!(tag_final_text("a"), "aCONTINUE_FINAL_MESSAGE_TAG ");
}
