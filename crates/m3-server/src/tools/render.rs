//! `m3 render`: the chat template raw, without the server's normalisation.

use anyhow::Context;
use m3_core::text::exact;
use m3_core::text::template::{ChatTemplate, RenderInput};
use m3_core::text::tokenizer::Tokenizer;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::args::{ModelOptions, Parsed};
use crate::model::{folder_template, load_template};
use crate::place::model_dir;

/// One line in.
#[derive(Debug, Deserialize)]
pub struct RenderLine {
    messages: Value,
    #[serde(default)]
    tools: Option<Value>,
    /// True when it is left out, as on the chat route.
    #[serde(default)]
    add_generation_prompt: Option<bool>,
    #[serde(default, alias = "kwargs")]
    chat_template_kwargs: Option<Map<String, Value>>,
}

/// One line out.
#[derive(Debug, Serialize, PartialEq, Eq)]
pub struct RenderedLine {
    pub prompt: String,
    pub token_ids: Vec<u32>,
}

pub(super) fn run(parsed: &Parsed) -> anyhow::Result<()> {
    let options = ModelOptions::read(parsed)?;
    let template = match &options.chat_template {
        Some(file) => load_template(file)?,
        None => {
            let dir = model_dir(&options)?;
            let missing = || format!("{} has no chat template; give --chat-template FILE", dir.display());
            folder_template(&dir)?.with_context(missing)?
        }
    };
    let tokenizer = super::tokenizer(&options)?;
    let lines = super::for_each_line(|text| render_line(&template, &tokenizer, text))?;
    let named = options.dir.is_some() || options.chat_template.is_some() || options.tokenizer.is_some();
    anyhow::ensure!(
        lines > 0 || named,
        "there is nothing to render: standard input has no lines; give --model DIR, or --chat-template FILE and \
         --tokenizer FILE, and JSON lines with messages"
    );
    Ok(())
}

/// Renders and encodes one line; an error is the template's own sentence.
pub fn render_line(
    template: &ChatTemplate,
    tokenizer: &Tokenizer,
    text: &str,
) -> Result<RenderedLine, String> {
    let line: RenderLine = serde_json::from_slice(&exact::keep_integers(text.as_bytes()))
        .map_err(|error| format!("the line is not valid: {error}"))?;
    let input = RenderInput {
        messages: &line.messages,
        tools: line.tools.as_ref(),
        add_generation_prompt: line.add_generation_prompt.unwrap_or(true),
        kwargs: line.chat_template_kwargs.as_ref(),
    };
    let rendered = template.render(&input, Some(tokenizer)).map_err(|error| error.to_string())?;
    let token_ids = tokenizer.encode_segments(&rendered.segments).map_err(|error| error.to_string())?;
    Ok(RenderedLine { prompt: rendered.prompt, token_ids })
}
