//! The chat template on whatever a conversation may hold: it renders or refuses, its segments join to the prompt, and
//! text of the conversation never becomes a control token.
//!
//! JSON: `{"messages", "tools", "kwargs", "add_generation_prompt"}`; a `source` renders with that template instead.

use m3_core::text::TextError;
use m3_core::text::template::{ChatTemplate, RenderInput, Rendered};
use m3_core::text::tokenizer::Segment;
use serde_json::Value;

use super::{markup, without_values, world};
use crate::Target;
use crate::mutate::{Dialect, cut};

/// Templates tried in one run: each parsed one stays in memory.
const MAX_SOURCES: usize = 20_000;

#[derive(Default)]
pub(super) struct Template {
    bundled: Option<ChatTemplate>,
    sources: usize,
}

impl Target for Template {
    fn name(&self) -> &'static str {
        "template"
    }

    fn dialect(&self) -> Dialect {
        Dialect::Json
    }

    fn words(&self) -> Vec<String> {
        let jinja = [
            "{% for x in messages %}",
            "{% endfor %}",
            "{% if tools %}",
            "{% endif %}",
            "{{ messages[0].content }}",
            "{{ x | tojson }}",
            "{% set a = namespace(b=1) %}",
            "{% macro m(v) %}",
            "{% endmacro %}",
            "| trim",
            ".split('x')[-1]",
            "{{ range(9) }}",
            "{%- else -%}",
            "is mapping",
            "~",
            "loop.index0",
            "{# #}",
            "raise_exception('x')",
            "strftime_now('%Y')",
        ];
        let markers = ["]~b]", "[e~[", "]~!b[", "]<]image[>[", "]<]video[>["];
        markup().into_iter().chain(jinja.iter().chain(&markers).map(|word| (*word).to_owned())).collect()
    }

    fn check(&mut self, input: &[u8]) -> Result<String, String> {
        let Ok(value) = serde_json::from_slice::<Value>(cut(input).1) else {
            return Ok("no JSON".to_owned());
        };
        let own = value["source"].as_str().filter(|_| self.sources < MAX_SOURCES);
        if let Some(source) = own {
            self.sources += 1;
            return match ChatTemplate::from_source(source) {
                Ok(template) => told(render(&template, &value)),
                Err(error) => Ok(format!("no template: {}", without_values(&error.to_string()))),
            };
        }
        if self.bundled.is_none() {
            let bundled = ChatTemplate::from_dir(&crate::server::bundled());
            self.bundled = Some(bundled.map_err(|error| error.to_string())?);
        }
        let Some(template) = &self.bundled else { return Err("no template".to_owned()) };
        let rendered = render(template, &value);
        if let Ok(rendered) = &rendered {
            only_its_own_markers(rendered, template, &value)?;
        }
        told(rendered)
    }
}

fn render(template: &ChatTemplate, value: &Value) -> Result<Rendered, TextError> {
    let input = RenderInput {
        messages: &value["messages"],
        tools: Some(&value["tools"]),
        add_generation_prompt: value["add_generation_prompt"] != false,
        kwargs: value["kwargs"].as_object(),
    };
    template.render(&input, Some(&world().tokenizer))
}

fn told(rendered: Result<Rendered, TextError>) -> Result<String, String> {
    match rendered {
        Ok(rendered) => {
            let joined: String = rendered.segments.iter().map(Segment::text).collect();
            if joined != rendered.prompt {
                return Err(format!("the segments join to {joined:?}; the prompt is {:?}", rendered.prompt));
            }
            let ids =
                world().tokenizer.encode_segments(&rendered.segments).map_err(|error| error.to_string())?;
            let (decoded, prompt) = (world().tokenizer.decode(&ids, false), composed(&rendered)?);
            if decoded != prompt {
                return Err(format!("the ids are {decoded:?}; the prompt is {prompt:?}"));
            }
            Ok(format!("{} markers", markers(&rendered)))
        }
        Err(error) => Ok(without_values(&error.to_string())),
    }
}

/// The prompt as the tokenizer has it, which composes characters.
fn composed(rendered: &Rendered) -> Result<String, String> {
    let tokenizer = &world().tokenizer;
    let composed = rendered.segments.iter().map(|segment| match segment {
        Segment::Ordinary(text) => tokenizer
            .encode_ordinary(text)
            .map(|ids| tokenizer.decode(&ids, false))
            .map_err(|error| error.to_string()),
        marker => Ok(marker.text().to_owned()),
    });
    composed.collect()
}

fn markers(rendered: &Rendered) -> usize {
    rendered.segments.iter().filter(|segment| !matches!(segment, Segment::Ordinary(_))).count()
}

/// The same conversation with every text defused has as many markers.
fn only_its_own_markers(rendered: &Rendered, template: &ChatTemplate, value: &Value) -> Result<(), String> {
    let mut defused = value.clone();
    for name in ["messages", "tools", "kwargs"] {
        defuse(&mut defused[name]);
    }
    // Where an assistant's text holds the closer, the bare template itself cuts it there; the server sends such texts
    // with their reasoning apart.
    let cut = |message: &Value| {
        message["role"] == "assistant" && message["content"].to_string().contains("</mm:think>")
    };
    if value["messages"].as_array().is_some_and(|messages| messages.iter().any(cut)) {
        return Ok(());
    }
    let Ok(other) = render(template, &defused) else { return Ok(()) };
    match (markers(rendered), markers(&other)) {
        (with, without) if with == without => Ok(()),
        (with, without) => {
            Err(format!("{with} markers; {without} when texts hold none: {:?}", rendered.prompt))
        }
    }
}

/// Takes the signs that markers are made of out of every string, as one sign for each, and leaves keys alone.
fn defuse(value: &mut Value) {
    match value {
        Value::String(text) => *text = text.replace(['[', ']', '<', '>'], "x"),
        Value::Array(items) => items.iter_mut().for_each(defuse),
        Value::Object(members) => members.values_mut().for_each(defuse),
        _ => {}
    }
}
