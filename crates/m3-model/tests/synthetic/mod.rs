//! Configs and checkpoint folders made by the tests themselves, correct or broken on purpose.
//!
//! Files are written byte by byte here, not with a library, so that every fault can be put into them.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of this module")]

use std::collections::BTreeMap;
use std::path::Path;

use m3_model::config::ModelConfig;
use m3_model::formats::Format;
use m3_model::names::expected_tensors;
use serde_json::{Value, json};

/// The released model's shape, in the released naming; numbers only.
pub fn m3_config(mxfp8: bool) -> Value {
    let layers = |first: u8, rest: u8| -> Vec<u8> { [vec![first; 3], vec![rest; 57]].concat() };
    let compression = json!({"image_token_compression_method": "patch_merge", "spatial_merge_size": 2, "temporal_patch_size": 2});
    let mut config = json!({
        "architectures": ["MiniMaxM3SparseForConditionalGeneration"],
        "model_type": "minimax_m3_vl",
        "torch_dtype": "bfloat16",
        "image_token_index": 200025, "video_token_index": 200026,
        "projector_hidden_size": 6144,
        "img_token_compression_config": compression,
    });
    config["text_config"] = json!({
        "hidden_size": 6144, "intermediate_size": 3072, "dense_intermediate_size": 12288,
        "shared_intermediate_size": 3072, "num_hidden_layers": 60, "num_attention_heads": 64,
        "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 200064,
        "max_position_embeddings": 1048576, "rms_norm_eps": 1e-6, "use_gemma_norm": true,
        "rope_theta": 5000000, "rotary_dim": 64, "partial_rotary_factor": 0.5,
        "num_local_experts": 128, "num_experts_per_tok": 4, "n_shared_experts": 1,
        "routed_scaling_factor": 2.0, "scoring_func": "sigmoid", "use_routing_bias": true,
        "hidden_act": "swigluoai", "swiglu_alpha": 1.702, "swiglu_limit": 7.0,
        "num_mtp_modules": 7, "moe_layer_freq": layers(0, 1),
    });
    config["text_config"]["sparse_attention_config"] = json!({
        "use_sparse_attention": true, "sparse_attention_freq": layers(0, 1), "sparse_index_dim": 128,
        "sparse_num_index_heads": 4, "sparse_topk_blocks": 16, "sparse_block_size": 128,
        "sparse_score_type": "max", "sparse_init_block": 0, "sparse_local_block": 1,
        "sparse_disable_index_value": layers(0, 1),
    });
    config["vision_config"] = json!({
        "model_type": "clip_vision_model", "hidden_size": 1280, "num_hidden_layers": 32,
        "num_attention_heads": 16, "intermediate_size": 5120, "patch_size": 14, "num_channels": 3,
        "hidden_act": "gelu", "layer_norm_eps": 1e-5, "rope_theta": 10000.0, "rope_mode": "3d",
        "projection_dim": 6144, "vision_segment_max_frames": 4,
    });
    if mxfp8 {
        config["quantization_config"] = mxfp8_quantization();
    }
    config
}

pub fn mxfp8_quantization() -> Value {
    json!({
        "quant_method": "mxfp8", "activation_scheme": "dynamic", "weight_block_size": [1, 32],
        "ignored_layers": ["lm_head", "model.embed_tokens", "vision_tower"],
    })
}

/// A model of a few hundred kilobytes with every kind of tensor.
pub fn tiny_config(mxfp8: bool) -> Value {
    let mut config = m3_config(mxfp8);
    config["image_token_index"] = json!(48);
    config["video_token_index"] = json!(49);
    config["projector_hidden_size"] = json!(48);
    merge(
        &mut config["text_config"],
        json!({
            "hidden_size": 64, "intermediate_size": 32, "dense_intermediate_size": 96,
            "shared_intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
            "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 50, "rotary_dim": 16,
            "num_local_experts": 4, "num_experts_per_tok": 2, "moe_layer_freq": [0, 1, 1],
        }),
    );
    merge(
        &mut config["text_config"]["sparse_attention_config"],
        json!({
            "sparse_attention_freq": [0, 1, 1], "sparse_disable_index_value": [0, 1, 1], "sparse_index_dim": 32,
            "sparse_num_index_heads": 2, "sparse_topk_blocks": 4, "sparse_block_size": 16,
        }),
    );
    merge(
        &mut config["vision_config"],
        json!({
            "hidden_size": 40, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 80,
            "projection_dim": 64,
        }),
    );
    config
}

pub fn merge(into: &mut Value, from: Value) {
    for (key, value) in from.as_object().expect("an object") {
        into[key] = value.clone();
    }
}

/// The same model in the native shape's names.
pub fn native_config(released: &Value) -> Value {
    let text = &released["text_config"];
    let sparse = &text["sparse_attention_config"];
    let kinds = |list: &Value, names: [&str; 2]| -> Vec<Value> {
        let flags = list.as_array().expect("a list").iter();
        flags.map(|flag| json!(names[flag.as_u64().expect("0 or 1") as usize])).collect()
    };
    let mut native_text = json!({
        "model_type": "minimax_m3_vl_text", "hidden_act": "silu",
        "rope_parameters": {
            "rope_type": "default", "rope_theta": text["rope_theta"],
            "partial_rotary_factor": text["rotary_dim"].as_f64().expect("a number")
                / text["head_dim"].as_f64().expect("a number"),
        },
        "layer_types": kinds(&sparse["sparse_attention_freq"], ["full_attention", "minimax_m3_sparse"]),
        "mlp_layer_types": kinds(&text["moe_layer_freq"], ["dense", "sparse"]),
        "index_n_heads": sparse["sparse_num_index_heads"], "index_head_dim": sparse["sparse_index_dim"],
        "index_block_size": sparse["sparse_block_size"], "index_topk_blocks": sparse["sparse_topk_blocks"],
        "index_local_blocks": sparse["sparse_local_block"],
    });
    for key in [
        "hidden_size",
        "intermediate_size",
        "dense_intermediate_size",
        "shared_intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "vocab_size",
        "max_position_embeddings",
        "rms_norm_eps",
        "num_local_experts",
        "num_experts_per_tok",
        "routed_scaling_factor",
        "swiglu_alpha",
        "swiglu_limit",
    ] {
        native_text[key] = text[key].clone();
    }
    let mut native = json!({
        "architectures": released["architectures"], "model_type": "minimax_m3_vl", "dtype": "bfloat16",
        "image_token_id": released["image_token_index"], "video_token_id": released["video_token_index"],
        "projector_hidden_size": released["projector_hidden_size"], "text_config": native_text,
    });
    if let Some(quantization) = released.get("quantization_config") {
        native["quantization_config"] = quantization.clone();
    }
    let mut vision = json!({
        "model_type": "minimax_m3_vl_vision", "spatial_merge_size": 2, "temporal_patch_size": 2,
        "rope_parameters": {"rope_type": "axial", "rope_theta": 10000.0},
    });
    for key in [
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "intermediate_size",
        "patch_size",
        "num_channels",
        "hidden_act",
        "layer_norm_eps",
    ] {
        vision[key] = released["vision_config"][key].clone();
    }
    native["vision_config"] = vision;
    native
}

/// The text-only class: the text part at the top level.
pub fn flat_config(released: &Value) -> Value {
    let mut flat = released["text_config"].clone();
    flat["architectures"] = json!(["MiniMaxM3SparseForCausalLM"]);
    flat["model_type"] = json!("minimax_m3");
    if let Some(quantization) = released.get("quantization_config") {
        flat["quantization_config"] = quantization.clone();
    }
    flat
}

pub fn load(config: &Value) -> ModelConfig {
    ModelConfig::from_json(config.to_string().as_bytes()).expect("a config that can be served").config
}

/// A tensor as a file holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    pub dtype: &'static str,
    pub shape: Vec<u64>,
    pub data: Vec<u8>,
}

pub type Tensors = BTreeMap<String, Stored>;

/// Every tensor of the config under its released name with repeatable noise; scales stay below 255.
pub fn tensors(config: &Value) -> Tensors {
    let mut tensors = Tensors::new();
    let mut state = 0x9e37_79b9u32;
    let mut noise = |len: u64, most: u32| -> Vec<u8> {
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            ((state >> 16) % most) as u8
        };
        (0..len).map(|_| next()).collect()
    };
    for spec in expected_tensors(&load(config)) {
        let dtype = match spec.format {
            Format::F32 => "F32",
            Format::Bf16 => "BF16",
            Format::Mxfp8 => "F8_E4M3",
        };
        if spec.format == Format::Mxfp8 {
            let mut shape = spec.shape.clone();
            *shape.last_mut().expect("dims") = spec.scale_columns();
            let scales = Stored { dtype: "U8", shape, data: noise(spec.scale_bytes(), 255) };
            tensors.insert(format!("{}_scale_inv", spec.name), scales);
        }
        let data = noise(spec.value_bytes(), 120);
        tensors.insert(spec.name.clone(), Stored { dtype, shape: spec.shape.clone(), data });
    }
    tensors
}

/// The bytes of a safetensors file, tensors back to back in the order given.
pub fn file_bytes<'a>(tensors: impl IntoIterator<Item = (&'a String, &'a Stored)>) -> Vec<u8> {
    let (mut entries, mut data) = (Vec::new(), Vec::new());
    for (name, stored) in tensors {
        let start = data.len();
        data.extend(&stored.data);
        let entry =
            json!({"dtype": stored.dtype, "shape": stored.shape, "data_offsets": [start, data.len()]});
        entries.push(format!("{}:{entry}", json!(name)));
    }
    raw_file(&format!("{{{}}}", entries.join(",")), &data)
}

/// A file from a literal header and data; the header is padded to 8 bytes as the format's writers do.
pub fn raw_file(header: &str, data: &[u8]) -> Vec<u8> {
    let padded = format!("{header}{}", " ".repeat(header.len().next_multiple_of(8) - header.len()));
    let mut bytes = (padded.len() as u64).to_le_bytes().to_vec();
    bytes.extend(padded.as_bytes());
    bytes.extend(data);
    bytes
}

/// A model folder that goes away with the value.
pub struct Folder(pub tempfile::TempDir);

impl Folder {
    /// `config.json` and two shards; wide values first in each, as writers sort them.
    pub fn new(config: &Value, tensors: &Tensors) -> Self {
        let folder = Folder(tempfile::tempdir().expect("a temporary folder"));
        folder.write("config.json", config.to_string().as_bytes());
        let half = tensors.len() / 2;
        let sorted = |part: Vec<(&String, &Stored)>| {
            let mut part = part;
            part.sort_by_key(|(name, stored)| (std::cmp::Reverse(width(stored.dtype)), (*name).clone()));
            file_bytes(part)
        };
        folder.write(SHARDS[0], &sorted(tensors.iter().take(half).collect()));
        folder.write(SHARDS[1], &sorted(tensors.iter().skip(half).collect()));
        folder
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn write(&self, file: &str, bytes: &[u8]) {
        std::fs::write(self.path().join(file), bytes).expect("a writable folder");
    }

    pub fn read(&self, file: &str) -> Vec<u8> {
        std::fs::read(self.path().join(file)).expect("a file of the folder")
    }
}

pub const SHARDS: [&str; 2] = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];

fn width(dtype: &str) -> usize {
    match dtype {
        "F32" => 4,
        "BF16" | "F16" => 2,
        _ => 1,
    }
}
