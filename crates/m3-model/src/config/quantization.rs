//! Reads `quantization_config`: nothing, or MXFP8 as released. Every other method is refused by its name.

use serde_json::{Value, json};

use super::section::{Notes, Section};
use super::{Quantization, TextConfig};
use crate::formats::MX_GROUP;

/// Modules that stay in bf16 or f32 in the released MXFP8 build; a list may name them or parts of them.
const UNQUANTISED: [&str; 6] =
    ["lm_head", "embed_tokens", "vision_tower", "multi_modal_projector", "patch_merge_mlp", "gate"];

/// Reads the object at the top level or inside the text part (`nested`); both is a fault.
pub(super) fn read(root: &Section<'_>, nested: Option<&Section<'_>>) -> Quantization {
    root.only("compression_config", &[]);
    let top = root.section("quantization_config");
    let inner = nested.map(|section| section.section("quantization_config"));
    match (top.is_present(), inner.filter(Section::is_present)) {
        (true, Some(inner)) => {
            let value = "also at the top level";
            root.notes.problem(inner.name("quant_method"), value, "one quantization_config");
            Quantization::None
        }
        (true, None) => read_method(top),
        (false, Some(inner)) => read_method(inner),
        (false, None) => Quantization::None,
    }
}

fn read_method(section: Section<'_>) -> Quantization {
    let notes = section.notes;
    let method = section.get("quant_method");
    if method.and_then(Value::as_str) != Some("mxfp8") {
        let value = method.map_or_else(|| "missing".to_owned(), super::section::short);
        // Exporters keep the name of the format in one of these.
        for key in ["quant_algo", "moe_quant_algo", "format"] {
            section.only(key, &[]);
        }
        notes.problem(section.name("quant_method"), value, "\"mxfp8\", or no quantization_config");
        return Quantization::None;
    }
    section.only("activation_scheme", &[json!("dynamic")]);
    section.only("weight_block_size", &[json!([1, MX_GROUP])]);
    section.only("fmt", &[json!("e4m3"), json!("float8_e4m3fn")]);
    section.only("scale_fmt", &[json!("ue8m0")]);
    for key in ["moe_quant_algo", "moe_quant_format", "kv_cache_quant_algo", "kv_cache_scheme", "quant_algo"]
    {
        section.only(key, &[]);
    }
    section.ignore(&["dequantize"]);
    for key in ["ignored_layers", "modules_to_not_convert"] {
        check_ignored(&section, key);
    }
    if section.get("weight_block_size").is_none() {
        notes.missing(&section.name("weight_block_size"), format!("[1,{MX_GROUP}]"));
    }
    section.finish();
    Quantization::Mxfp8
}

/// A list that leaves other modules unquantised describes a mix of formats this engine does not load.
fn check_ignored(section: &Section<'_>, key: &str) {
    for entry in section.list(key).unwrap_or_default() {
        let stays = |part: &str| UNQUANTISED.contains(&part) || part.ends_with("norm");
        let known = entry.as_str().is_some_and(|name| name.split('.').any(stays));
        if !known {
            let supported = "modules that the released MXFP8 build leaves unquantised";
            section.notes.problem(section.name(key), super::section::short(entry), supported);
        }
    }
}

/// Scales lie along a row, 32 values each, so every quantised row must be a multiple of 32.
pub(super) fn check_groups(notes: &Notes, text: &TextConfig) {
    let widths = [
        ("hidden_size", text.hidden_size),
        ("num_attention_heads x head_dim", text.num_heads * text.head_dim),
        ("dense_intermediate_size", text.dense_intermediate_size),
        ("intermediate_size", text.expert_intermediate_size),
        ("shared_intermediate_size", text.shared_intermediate_size),
    ];
    for (key, width) in widths.into_iter().filter(|(_, width)| !width.is_multiple_of(MX_GROUP)) {
        notes.problem(key, Value::from(width), format!("a multiple of {MX_GROUP} with MXFP8"));
    }
}
