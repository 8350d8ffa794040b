//! Fields that would change the answer and that this server cannot honour. Ignoring them would be a lie, so anything
//! but a neutral value is 400. Fields that change nothing (`user`, `metadata`, …) are simply ignored elsewhere.

use serde_json::{Value, json};

use super::fields::Fields;
use crate::error::ApiError;

/// Name and why. Neutral for all: null, false, 0, empty text, empty list, empty object.
pub const REFUSED: &[(&str, &str)] = &[
    ("logits_processors", "no code from a client is ever run"),
    ("custom_logit_processor", "no code from a client is ever run"),
    (
        "use_beam_search",
        "beam search needs the same prompt's rows to be scored against each other; send best_of",
    ),
    ("length_penalty", "it belongs to beam search, which this server does not do"),
    ("dry_multiplier", "backends have no such penalty; send repetition_detection or frequency_penalty"),
    ("xtc_probability", "backends have no such sampler"),
    ("typical_p", "backends have no such sampler; send min_p or top_p"),
    ("mirostat", "backends have no such sampler"),
    ("lora_path", "adapters are not built"),
    ("lora_request", "adapters are not built"),
    ("adapter_id", "adapters are not built"),
    ("watermark", "answers are never marked"),
    ("top_n_sigma", "backends have no such sampler"),
    ("min_new_tokens", "give min_tokens"),
    ("id_slot", "there are no slots"),
    ("vllm_xargs", "no code from a client is ever run"),
    ("custom_params", "no code from a client is ever run"),
    ("return_meta_info", "it is not built"),
    ("token_ids_logprob", "backends score the most likely tokens only; send logprobs"),
    ("data_parallel_rank", "there is one rank"),
    ("routed_dp_rank", "there is one rank"),
    ("documents", "M3's template takes none"),
    ("chat_template", "the template is the server's"),
    ("functions", "give tools"),
    ("function_call", "give tool_choice"),
    ("audio", "only text is answered"),
    ("modalities", "only text is answered"),
    ("prediction", "it is not built"),
    ("web_search_options", "it is not built"),
    ("return_hidden_states", "it is not built"),
    ("return_routed_experts", "it is not built"),
    ("kv_transfer_params", "prefill/decode disaggregation is not built"),
    ("bootstrap_host", "prefill/decode disaggregation is not built"),
    ("bootstrap_port", "prefill/decode disaggregation is not built"),
    ("bootstrap_room", "prefill/decode disaggregation is not built"),
    ("suffix", "M3 has no fill-in-the-middle form"),
    ("prompt_embeds", "prompts are text or token ids"),
    ("logprob_token_ids", "backends score the most likely tokens only; send logprobs"),
];

/// Those that only chat refuses.
pub const REFUSED_IN_CHAT: &[(&str, &str)] = &[(
    "truncate_prompt_tokens",
    "a conversation is never cut, because its system message would go first; leave out turns, or use /v1/completions",
)];

/// Takes all of them; the first with another than a neutral value is the answer.
pub fn take_refused(fields: &mut Fields, more: &[(&str, &str)]) -> Result<(), ApiError> {
    for (name, why) in REFUSED.iter().chain(more) {
        let Some(value) = fields.take_value(name) else { continue };
        if !is_neutral(name, &value) {
            return Err(ApiError::unsupported(*name, format!("{name} cannot be honoured: {why}")));
        }
    }
    Ok(())
}

fn is_neutral(name: &str, value: &Value) -> bool {
    match name {
        "length_penalty" | "typical_p" => value.as_f64() == Some(1.0),
        "modalities" => *value == json!(["text"]),
        "top_n_sigma" | "id_slot" => is_empty(value) || value.as_f64() == Some(-1.0),
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
