//! Fields that would change the answer and that this server cannot honour. Ignoring them would be a lie, so anything
//! but a neutral value is 400. Fields that change nothing (`user`, `metadata`, …) are simply ignored elsewhere.

use serde_json::{Value, json};

use super::fields::Fields;
use crate::error::ApiError;

/// Name and why. Neutral for all: null, false, 0, empty text, empty list, empty object.
const REFUSED: &[(&str, &str)] = &[
    ("response_format", "constrained output is not built"),
    ("guided_json", "constrained output is not built"),
    ("guided_regex", "constrained output is not built"),
    ("guided_choice", "constrained output is not built"),
    ("guided_grammar", "constrained output is not built"),
    ("structured_outputs", "constrained output is not built"),
    ("structural_tag", "constrained output is not built"),
    ("json_schema", "constrained output is not built"),
    ("regex", "constrained output is not built"),
    ("ebnf", "constrained output is not built"),
    ("stop_regex", "only plain stop strings are built"),
    ("allowed_token_ids", "only logit_bias is built"),
    ("bad_words", "only logit_bias is built"),
    ("logits_processors", "no code from a client is ever run"),
    ("custom_logit_processor", "no code from a client is ever run"),
    ("use_beam_search", "beam search is not built"),
    ("best_of", "only as many answers as n asks for are made"),
    ("length_penalty", "beam search is not built"),
    ("dry_multiplier", "this penalty is not built"),
    ("xtc_probability", "this sampler is not built"),
    ("typical_p", "this sampler is not built"),
    ("mirostat", "this sampler is not built"),
    ("repetition_detection", "it is not built"),
    ("thinking_token_budget", "it is not built"),
    ("truncate_prompt_tokens", "a prompt is never cut silently"),
    ("lora_path", "adapters are not built"),
    ("documents", "M3's template takes none"),
    ("chat_template", "the template is the server's"),
    ("functions", "give tools"),
    ("function_call", "give tool_choice"),
    ("audio", "only text is answered"),
    ("modalities", "only text is answered"),
    ("prediction", "it is not built"),
    ("web_search_options", "it is not built"),
    ("mm_processor_kwargs", "images and videos are not built"),
    ("media_io_kwargs", "images and videos are not built"),
    ("return_hidden_states", "it is not built"),
    ("return_routed_experts", "it is not built"),
    ("kv_transfer_params", "prefill/decode disaggregation is not built"),
    ("bootstrap_host", "prefill/decode disaggregation is not built"),
    ("bootstrap_port", "prefill/decode disaggregation is not built"),
    ("bootstrap_room", "prefill/decode disaggregation is not built"),
    ("suffix", "M3 has no fill-in-the-middle form"),
    ("prompt_embeds", "prompts are text or token ids"),
    ("prompt_logprobs", "on /v1/completions, echo with logprobs gives them"),
    ("logprob_token_ids", "logprobs gives the most likely ones"),
    ("continue_final_message", "M3's template cannot leave a message open"),
    ("separate_reasoning", "reasoning is always in reasoning_content"),
    ("stream_reasoning", "reasoning is always streamed as it comes"),
    ("reasoning_split", "reasoning is always in reasoning_content"),
];

/// Takes all of them; the first with another than a neutral value is the answer.
pub fn take_refused(fields: &mut Fields) -> Result<(), ApiError> {
    for (name, why) in REFUSED {
        let Some(value) = fields.take_value(name) else { continue };
        if !is_neutral(name, &value) {
            return Err(ApiError::unsupported(*name, format!("{name} cannot be honoured: {why}")));
        }
    }
    Ok(())
}

fn is_neutral(name: &str, value: &Value) -> bool {
    match name {
        "response_format" => value.get("type") == Some(&json!("text")),
        "best_of" => *value == json!(1),
        "length_penalty" | "typical_p" => value.as_f64() == Some(1.0),
        "modalities" => *value == json!(["text"]),
        // `false` would mean: put the reasoning into the content.
        "separate_reasoning" | "stream_reasoning" | "reasoning_split" | "skip_special_tokens" => {
            *value == json!(true)
        }
        _ => is_empty(value),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(on) => !on,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}
