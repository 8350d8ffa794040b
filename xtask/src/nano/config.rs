//! The random miniature's JSON files and sizes, in the released naming shape.

use serde_json::{Value, json};

pub(super) const HIDDEN: usize = 64;
pub(super) const HEADS: usize = 4;
pub(super) const KV_HEADS: usize = 2;
pub(super) const HEAD_DIM: usize = 128;
pub(super) const DENSE_LAYERS: usize = 1;
pub(super) const LAYERS: usize = 4;
pub(super) const EXPERTS: usize = 8;
pub(super) const EXPERT_WIDTH: usize = 64;
pub(super) const SHARED_WIDTH: usize = 64;
pub(super) const DENSE_WIDTH: usize = 128;
pub(super) const VISION_HIDDEN: usize = 80;
pub(super) const VISION_LAYERS: usize = 2;
pub(super) const VISION_WIDTH: usize = 160;
/// 256 bytes, the learned merges, 61 added tokens, three padding rows as in M3.
pub(super) const MERGES: usize = 704;
pub(super) const VOCAB: usize = 256 + MERGES + 61 + 3;

/// Id of the first added token.
pub(super) const FIRST_ADDED: usize = 256 + MERGES;
const EOS: usize = FIRST_ADDED + 20;
const BOS: usize = FIRST_ADDED + 34;
const IMAGE: usize = FIRST_ADDED + 25;

fn pretty(value: &Value) -> Vec<u8> {
    let mut text = serde_json::to_string_pretty(value).expect("a JSON value prints");
    text.push('\n');
    text.into_bytes()
}

/// A 0/1 list per layer: 1 from the first sparse layer on.
fn sparse_layers() -> Vec<u8> {
    (0..LAYERS).map(|layer| u8::from(layer >= DENSE_LAYERS)).collect()
}

pub(super) fn model() -> Vec<u8> {
    let merge = json!({"image_token_compression_method": "patch_merge", "spatial_merge_size": 2, "temporal_patch_size": 2});
    pretty(&json!({
        "architectures": ["MiniMaxM3SparseForConditionalGeneration"],
        "model_type": "minimax_m3_vl",
        "torch_dtype": "bfloat16",
        "text_config": text(),
        "vision_config": {
            "model_type": "clip_vision_model", "hidden_size": VISION_HIDDEN, "num_hidden_layers": VISION_LAYERS,
            "num_attention_heads": 1, "intermediate_size": VISION_WIDTH, "patch_size": 14, "image_size": 2016,
            "num_channels": 3, "hidden_act": "gelu", "layer_norm_eps": 1e-5, "position_embedding_type": "rope",
            "rope_mode": "3d", "rope_theta": 10000.0, "attention_dropout": 0.0, "projection_dim": HIDDEN,
            "vision_segment_max_frames": 4, "img_token_compression_config": merge,
        },
        "img_token_compression_config": merge,
        "image_token_index": IMAGE,
        "video_token_index": IMAGE + 1,
        "projector_hidden_size": HIDDEN,
        "projector_hidden_act": "gelu",
        "multimodal_projector_bias": true,
        "process_image_mode": "dynamic_res",
        "vision_feature_layer": -1,
        "vision_feature_select_strategy": "full",
    }))
}

fn text() -> Value {
    json!({
        "architectures": ["MiniMaxM3SparseForCausalLM"],
        "hidden_size": HIDDEN, "vocab_size": VOCAB, "max_position_embeddings": 32768, "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM,
        "rotary_dim": 64, "partial_rotary_factor": 0.5, "rope_theta": 5_000_000, "rms_norm_eps": 1e-6,
        "use_gemma_norm": true, "use_qk_norm": true, "qk_norm_type": "per_head", "attention_output_gate": false,
        "tie_word_embeddings": false, "hidden_act": "swigluoai", "swiglu_alpha": 1.702, "swiglu_limit": 7.0,
        "dense_intermediate_size": DENSE_WIDTH, "intermediate_size": EXPERT_WIDTH,
        "shared_intermediate_size": SHARED_WIDTH, "num_local_experts": EXPERTS, "num_experts_per_tok": 4,
        "n_shared_experts": 1, "scoring_func": "sigmoid", "use_routing_bias": true, "routed_scaling_factor": 2.0,
        "moe_layer_freq": sparse_layers(), "num_mtp_modules": 0, "sparse_attention_config": sparse_attention(),
    })
}

fn sparse_attention() -> Value {
    json!({
        "use_sparse_attention": true, "sparse_attention_freq": sparse_layers(),
        "sparse_disable_index_value": sparse_layers(), "sparse_index_dim": HEAD_DIM,
        "sparse_num_index_heads": KV_HEADS, "sparse_topk_blocks": 4, "sparse_block_size": 128,
        "sparse_score_type": "max", "sparse_init_block": 0, "sparse_local_block": 1,
    })
}

pub(super) fn generation() -> Vec<u8> {
    pretty(
        &json!({"bos_token_id": BOS, "eos_token_id": EOS, "do_sample": true, "temperature": 1.0, "top_p": 0.95}),
    )
}

pub(super) fn preprocessor() -> Vec<u8> {
    pretty(&json!({
        "patch_size": 14, "merge_size": 2, "temporal_patch_size": 2, "min_pixels": 3136, "max_pixels": 451_584,
        "image_mean": [0.481_454_66, 0.457_827_5, 0.408_210_73], "image_std": [0.268_629_54, 0.261_302_58, 0.275_777_11],
    }))
}

pub(super) fn tokenizer() -> Vec<u8> {
    pretty(&json!({
        "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 32768, "add_prefix_space": false,
        "bos_token": "]~!b[", "eos_token": "[e~[", "pad_token": "]!p~[", "unk_token": "]!d~[",
    }))
}
