//! Rendering must give the bytes of Python's Jinja. `data/python_jinja.json` holds what Jinja 3.1.6 wrote for
//! single expressions and for whole conversations through the small template, in the sandbox and with the
//! `tojson` that the publisher's library uses.

use m3_core::text::TextError;
use m3_core::text::template::{ChatTemplate, RenderInput};
use serde_json::{Value, json};

use crate::support::{SMALL_TEMPLATE, render, small_tokenizer};

fn check(case: &Value, template: &ChatTemplate, name: &str) {
    match (render(template, case, &small_tokenizer()), case["expected"].as_str()) {
        (Ok(rendered), Some(expected)) => assert_eq!(rendered.prompt, expected, "{name}"),
        (Err(_), None) => {}
        (Ok(rendered), None) => panic!("{name} must fail but gave {:?}", rendered.prompt),
        (Err(error), Some(_)) => panic!("{name} failed: {error}"),
    }
}

#[test]
fn everything_as_python_writes_it() {
    let file: Value = serde_json::from_str(include_str!("data/python_jinja.json")).unwrap();
    let snippets = file["snippets"].as_array().unwrap();
    assert!(snippets.len() > 100);
    for snippet in snippets {
        let source = snippet["template"].as_str().unwrap();
        let mut case = file["context"].clone();
        case["expected"] = snippet["expected"].clone();
        match ChatTemplate::from_source(source) {
            Ok(template) => check(&case, &template, source),
            Err(error) => assert!(snippet["expected"].is_null(), "{source}: {error}"),
        }
    }
    let template = ChatTemplate::from_source(SMALL_TEMPLATE).unwrap();
    let conversations = file["conversations"].as_array().unwrap();
    assert!(conversations.len() >= 40);
    for (index, conversation) in conversations.iter().enumerate() {
        check(conversation, &template, &format!("conversation {index}"));
    }
}

fn render_source(source: &str, messages: &Value) -> Result<String, TextError> {
    let input = RenderInput { messages, tools: None, add_generation_prompt: false, kwargs: None };
    Ok(ChatTemplate::from_source(source)?.render(&input, None)?.prompt)
}

#[test]
fn failures_name_the_reason_and_the_line() {
    let messages = json!([{"role": "tool", "content": null}]);
    let error = render_source(SMALL_TEMPLATE, &messages).unwrap_err();
    assert!(matches!(error, TextError::Raised(_)));
    assert_eq!(error.to_string(), "a tool answered before any call");
    let error = render_source(
        "a\n{% if true %}\n{% for x in messages[0].content %}{% endfor %}{% endif %}",
        &messages,
    );
    assert_eq!(error.unwrap_err().to_string(), "chat template, line 3: 'NoneType' object is not iterable");
    let error = render_source("{{ x.y }}", &messages).unwrap_err();
    assert_eq!(error.to_string(), "chat template, line 1: 'x' is undefined");
    assert!(matches!(render_source("{% if %}", &messages), Err(TextError::Template(_))));
}

#[test]
fn runaway_templates_stop() {
    let messages = json!([]);
    let run = |source: &str| render_source(source, &messages).unwrap_err().to_string();
    assert!(run("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}").contains("nested more than 200 deep"));
    let loops = "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}\
        {% endfor %}{% endfor %}{% endfor %}";
    assert!(run(loops).contains("steps"));
    let doubling =
        "{% set n = namespace(t='x') %}{% for i in range(60) %}{% set n.t = n.t ~ n.t %}{% endfor %}";
    assert!(run(doubling).contains("steps"));
    assert!(run("{{ range(2000000) }}").contains("limit of 1000000"));
    assert!(run("{{ 'x' * 99999999 }}").contains("16777216"));
}

#[test]
fn deep_request_data_renders_on_a_small_stack() {
    let mut arguments = json!("leaf");
    for _ in 0..120 {
        arguments = json!({"k": arguments});
    }
    let case = json!({"messages": [{"role": "assistant", "content": "", "tool_calls": [
        {"function": {"name": "f", "arguments": arguments}}]}]});
    let render_it = move || {
        let template = ChatTemplate::from_source(SMALL_TEMPLATE).unwrap();
        render(&template, &case, &small_tokenizer()).unwrap().prompt
    };
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(render_it).unwrap();
    assert_eq!(thread.join().unwrap().matches("<k>").count(), 120);
}

#[test]
fn templates_come_from_a_model_directory() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(ChatTemplate::from_dir(dir.path()), Err(TextError::Read { .. })));
    let config = json!({"chat_template": "{{ bos_token }}A", "bos_token": {"content": "<|start|>"}});
    std::fs::write(dir.path().join("tokenizer_config.json"), config.to_string()).unwrap();
    let case = json!({"messages": []});
    let from_config = ChatTemplate::from_dir(dir.path()).unwrap();
    let rendered = render(&from_config, &case, &small_tokenizer()).unwrap();
    assert_eq!((rendered.prompt.as_str(), rendered.segments.len()), ("<|start|>A", 2));
    std::fs::write(dir.path().join("chat_template.jinja"), "{% generation %}B{% endgeneration %}").unwrap();
    let from_file = ChatTemplate::from_dir(dir.path()).unwrap();
    assert_eq!(render(&from_file, &case, &small_tokenizer()).unwrap().prompt, "B");
}

#[test]
fn the_clock_writes_template_text() {
    let prompt = render_source("{{ strftime_now('%Y-%m-%d') }}", &json!([])).unwrap();
    assert_eq!(prompt.len(), 10);
    assert!(prompt.starts_with("20"));
}
