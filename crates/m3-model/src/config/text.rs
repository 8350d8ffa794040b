//! Reads the language model's part of a config, in either shape and at either depth (nested or flat).
//!
//! Each setting is looked for under both its names, so a file that mixes the shapes is read too, and two names that
//! disagree are a fault. No guess replaces a layer list that is not there.

use serde_json::{Value, json};

use super::section::{Section, agreed, required};
use super::{SparseConfig, TextConfig, layers};

const MOST_EXPERTS: usize = 4096;

/// Keys of the language model with no influence on what is computed here.
const IGNORED: [&str; 19] = [
    "attention_dropout",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "initializer_range",
    "max_model_len",
    "num_mtp_modules",
    "num_nextn_predict_layers",
    "mtp_transformer_layers",
    "use_mtp",
    "output_router_logits",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "transformers_version",
    "use_cache",
    "auto_map",
    "_name_or_path",
    "quantization_config",
    "vision_config",
];

/// Reads `section`; what is wrong lands in its notes. `None` when something needed was missing or wrong.
pub(super) fn read(section: &Section<'_>) -> Option<TextConfig> {
    let notes = section.notes;
    check_fixed(section);
    section.ignore(&IGNORED);
    let need = |key: &str| required(notes, &section.name(key), &[section.count(key)]);
    let hidden_size = need("hidden_size");
    let head = |key: &str| required(notes, &section.name(key), &[section.head(key)]);
    let vocab_size = section.whole("vocab_size", 1, 1 << 24);
    let vocab_size = required(notes, &section.name("vocab_size"), &[vocab_size]);
    let context = section.whole("max_position_embeddings", 1, 1 << 31);
    let context = required(notes, &section.name("max_position_embeddings"), &[context]);
    let num_heads = head("num_attention_heads");
    let num_kv_heads = head("num_key_value_heads");
    let head_dim = head("head_dim");
    let expert_width = expert_width(section);
    let dense_width = need("dense_intermediate_size");
    let shared_width = need("shared_intermediate_size");
    let num_experts = section.whole("num_local_experts", 1, MOST_EXPERTS);
    let num_experts = required(notes, &section.name("num_local_experts"), &[num_experts]);
    let experts_per_token = need("num_experts_per_tok");
    let float = |key: &str| required(notes, &section.name(key), &[section.positive(key)]);
    let norm_eps = float("rms_norm_eps");
    let routed_scaling_factor = float("routed_scaling_factor");
    let swiglu_alpha = float("swiglu_alpha");
    let swiglu_limit = float("swiglu_limit");
    let rotary = rotary(section, head_dim);
    let sparse_section = section.section("sparse_attention_config");
    let plan = layers::read_plan(section, &sparse_section);
    let sparse = layers::read_sparse(section, &sparse_section);
    sparse_section.finish();
    let (rope_theta, rotary_dim) = rotary;
    let sizes = Sizes {
        num_heads,
        num_kv_heads,
        head_dim,
        rotary_dim,
        num_experts,
        experts_per_token,
        sparse: sparse.as_ref(),
    };
    check_relations(section, &sizes);
    let text = TextConfig {
        hidden_size: hidden_size?,
        vocab_size: vocab_size?,
        max_position_embeddings: context?,
        num_heads: num_heads?,
        num_kv_heads: num_kv_heads?,
        head_dim: head_dim?,
        rotary_dim: rotary_dim?,
        rope_theta: rope_theta?,
        norm_eps: norm_eps? as f32,
        dense_intermediate_size: dense_width?,
        expert_intermediate_size: expert_width?,
        shared_intermediate_size: shared_width?,
        num_experts: num_experts?,
        experts_per_token: experts_per_token?,
        routed_scaling_factor: routed_scaling_factor? as f32,
        swiglu_alpha: swiglu_alpha? as f32,
        swiglu_limit: swiglu_limit? as f32,
        sparse: sparse?,
        layers: plan?,
    };
    Some(text)
}

/// The text-only class, alone or inside the class with vision (where nothing needs to be said).
pub(super) fn check_class(section: &Section<'_>) {
    section.only("architectures", &[json!(["MiniMaxM3SparseForCausalLM"]), json!(["MiniMaxM3ForCausalLM"])]);
    section.only("model_type", &["minimax_m3_vl", "minimax_m3_vl_text", "minimax_m3"].map(Value::from));
    if section.get("architectures").is_none() && section.get("model_type").is_none() {
        let supported = "\"MiniMaxM3SparseForConditionalGeneration\" or \"MiniMaxM3SparseForCausalLM\"";
        section.notes.missing(&section.name("architectures"), supported);
    }
}

/// Fields for which exactly one behaviour is implemented.
fn check_fixed(section: &Section<'_>) {
    // The native shape always says `silu` and means the clamped form; in the released shape `silu` is another model.
    let native = section.get("layer_types").is_some();
    let activations = if native { vec![json!("swigluoai"), json!("silu")] } else { vec![json!("swigluoai")] };
    section.only("hidden_act", &activations);
    section.only("scoring_func", &[json!("sigmoid")]);
    section.only("qk_norm_type", &[json!("per_head")]);
    section.only("n_shared_experts", &[json!(1)]);
    section.only("swiglu_beta", &[json!(1.0)]);
    for key in ["use_routing_bias", "use_qk_norm", "use_gemma_norm", "norm_topk_prob"] {
        section.only(key, &[json!(true)]);
    }
    for key in
        ["attention_output_gate", "tie_word_embeddings", "attention_bias", "mlp_bias", "add_bias_linear"]
    {
        section.only(key, &[json!(false)]);
    }
    for key in ["n_group", "topk_group"] {
        section.only(key, &[json!(1)]);
    }
    for key in ["rope_scaling", "sliding_window", "final_logit_softcapping", "attn_logit_softcapping"] {
        section.only(key, &[]);
    }
    for key in ["dtype", "torch_dtype"] {
        section.only(key, &[json!("bfloat16")]);
    }
    section.only("num_reward_heads", &[json!(0)]);
}

/// Derived configs repeat the routed experts' width under a second name.
fn expert_width(section: &Section<'_>) -> Option<usize> {
    let places = format!("{} and moe_intermediate_size", section.name("intermediate_size"));
    required(
        section.notes,
        &places,
        &[section.count("intermediate_size"), section.count("moe_intermediate_size")],
    )
}

/// `rope_theta` and the rotating dims: `rotary_dim`, else the factor of the head, else the whole head.
fn rotary(section: &Section<'_>, head_dim: Option<usize>) -> (Option<f64>, Option<usize>) {
    let notes = section.notes;
    let parameters = section.section("rope_parameters");
    parameters.only("rope_type", &[json!("default")]);
    parameters.only("type", &[json!("default")]);
    let theta = required(
        notes,
        &format!("{} or rope_parameters.rope_theta", section.name("rope_theta")),
        &[section.positive("rope_theta"), parameters.positive("rope_theta")],
    );
    let factor = agreed(
        notes,
        &format!("{} and rope_parameters.partial_rotary_factor", section.name("partial_rotary_factor")),
        &[section.positive("partial_rotary_factor"), parameters.positive("partial_rotary_factor")],
    );
    parameters.finish();
    let given = section.count("rotary_dim");
    let Some(head_dim) = head_dim else { return (theta, None) };
    let from_factor = factor.map(|factor| (head_dim as f64 * factor).round() as usize);
    let places =
        format!("{} and {head_dim} x {}", section.name("rotary_dim"), section.name("partial_rotary_factor"));
    let dim = agreed(notes, &places, &[given, from_factor]).unwrap_or(head_dim);
    (theta, Some(dim))
}

/// What [`check_relations`] compares; what is missing or wrong by itself is `None` and hides no other problem.
struct Sizes<'a> {
    num_heads: Option<usize>,
    num_kv_heads: Option<usize>,
    head_dim: Option<usize>,
    rotary_dim: Option<usize>,
    num_experts: Option<usize>,
    experts_per_token: Option<usize>,
    sparse: Option<&'a SparseConfig>,
}

fn check_relations(section: &Section<'_>, sizes: &Sizes<'_>) {
    let refuse = |wrong: bool, key: &str, value: usize, supported: String| {
        if wrong {
            section.notes.problem(section.name(key), value, supported);
        }
    };
    if let (Some(heads), Some(kv_heads)) = (sizes.num_heads, sizes.num_kv_heads) {
        let supported = format!("a multiple of the {kv_heads} KV heads");
        refuse(!heads.is_multiple_of(kv_heads), "num_attention_heads", heads, supported);
    }
    if let (Some(experts), Some(chosen)) = (sizes.num_experts, sizes.experts_per_token) {
        let supported = format!("up to num_local_experts, {experts}");
        refuse(chosen > experts, "num_experts_per_tok", chosen, supported);
    }
    let Some(sparse) = sizes.sparse else { return };
    if let Some(kv_heads) = sizes.num_kv_heads {
        let (heads, supported) = (sparse.num_index_heads, format!("{kv_heads}, one per KV head"));
        refuse(heads != kv_heads, "sparse_num_index_heads", heads, supported);
    }
    if let (Some(head_dim), Some(rotary)) = (sizes.head_dim, sizes.rotary_dim) {
        let widest = head_dim.min(sparse.index_dim);
        let supported =
            format!("an even number up to {widest}, the smaller of head_dim and the index head size");
        refuse(!rotary.is_multiple_of(2) || rotary > widest, "rotary_dim", rotary, supported);
    }
    let forced = sparse.init_blocks + sparse.local_blocks;
    let supported = format!("at least {forced}, the forced blocks");
    refuse(forced > sparse.topk_blocks, "sparse_topk_blocks", sparse.topk_blocks, supported);
}
