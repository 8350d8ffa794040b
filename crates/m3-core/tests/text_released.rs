//! The released template and vocabulary against the handed-out cases. The files belong to the model's publisher
//! and lie outside the repository; without them every test here says so and passes.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use m3_core::text::template::{ChatTemplate, RenderInput, Rendered};
use m3_core::text::tokenizer::{Segment, Tokenizer};
use serde_json::Value;

/// `data/` of the shared folder: `M3_SHARED`, else `../shared` beside the workspace.
fn shared_data() -> Option<PathBuf> {
    let shared = std::env::var_os("M3_SHARED").map(PathBuf::from);
    let beside = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let data = shared.unwrap_or(beside).join("data");
    if data.join("template_cases.json").exists() {
        return Some(data);
    }
    eprintln!("SKIPPED: {} is missing, the released files were not tested", data.display());
    None
}

fn tokenizer(data: &std::path::Path) -> Arc<Tokenizer> {
    static LOADED: OnceLock<Arc<Tokenizer>> = OnceLock::new();
    let load = || Arc::new(Tokenizer::from_file(&data.join("tokenizer.reconstructed.json")).unwrap());
    LOADED.get_or_init(load).clone()
}

fn template(data: &std::path::Path) -> ChatTemplate {
    let source = std::fs::read_to_string(data.join("chat_template.m3.jinja")).unwrap();
    ChatTemplate::from_source(&source).unwrap()
}

fn cases(data: &std::path::Path) -> Vec<Value> {
    let text = std::fs::read_to_string(data.join("template_cases.json")).unwrap();
    let file: Value = serde_json::from_str(&text).unwrap();
    file["cases"].as_array().unwrap().clone()
}

fn render(
    template: &ChatTemplate,
    case: &Value,
    tokenizer: &Tokenizer,
) -> Result<Rendered, m3_core::text::TextError> {
    let input = RenderInput {
        messages: &case["messages"],
        tools: Some(&case["tools"]),
        add_generation_prompt: case["add_generation_prompt"].as_bool().unwrap(),
        kwargs: case["kwargs"].as_object(),
    };
    template.render(&input, Some(tokenizer))
}

#[test]
fn every_template_case_in_text_and_ids() {
    let Some(data) = shared_data() else { return };
    let (template, tokenizer) = (template(&data), tokenizer(&data));
    let mut rendered_cases = 0;
    for case in cases(&data) {
        let id = case["id"].as_str().unwrap();
        match (render(&template, &case, &tokenizer), case["rendered"].as_str()) {
            (Ok(rendered), Some(expected)) => {
                assert_eq!(rendered.prompt, expected, "text of {id}");
                let joined: String = rendered.segments.iter().map(Segment::text).collect();
                assert_eq!(joined, rendered.prompt, "segments of {id}");
                let ids = tokenizer.encode_segments(&rendered.segments).unwrap();
                let expected: Vec<u32> = serde_json::from_value(case["token_ids"].clone()).unwrap();
                assert_eq!(ids, expected, "ids of {id}");
                rendered_cases += 1;
            }
            (Err(error), None) => eprintln!("{id}: {error} / {}", case["error"]),
            (Ok(_), None) => panic!("{id} must fail with {}", case["error"]),
            (Err(error), Some(_)) => panic!("{id} failed: {error}"),
        }
    }
    assert_eq!(rendered_cases, 23);
}
