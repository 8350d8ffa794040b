//! The shapes that are measured: MiniMax-M3's numbers as a `config.json`, whole or cut to a few layers.

use anyhow::Result;
use clap::ValueEnum;
use m3_model::config::ModelConfig;
use serde_json::{Map, Value, json};

/// Format of the linears.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Weights {
    Bf16,
    Mxfp8,
}

impl Weights {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Weights::Bf16 => "bf16",
            Weights::Mxfp8 => "mxfp8",
        }
    }
}

/// What part of M3 one device runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shape {
    /// One rank of eight, all 60 layers; sums over the ranks are left out.
    Tp8,
    /// The full width, 3 dense and 5 sparse layers.
    Full,
}

/// What is opened.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) name: String,
    pub(crate) json: Vec<u8>,
    pub(crate) config: ModelConfig,
    pub(crate) tp: u32,
}

impl Model {
    pub(crate) fn new(shape: Shape, weights: Weights) -> Result<Self> {
        let (sparse_layers, tp) = match shape {
            Shape::Tp8 => (57, 8),
            Shape::Full => (5, 1),
        };
        let name = match shape {
            Shape::Tp8 => format!("rank 0 of TP8, 3+57 layers, {}", weights.name()),
            Shape::Full => format!("full width, 3+5 layers, {}", weights.name()),
        };
        Self::from_json(name, &config(3, sparse_layers, weights), tp)
    }

    pub(crate) fn from_json(name: String, value: &Value, tp: u32) -> Result<Self> {
        let json = serde_json::to_vec(value)?;
        let config = ModelConfig::from_json(&json)?.config;
        Ok(Model { name, json, config, tp })
    }
}

fn config(dense: usize, sparse: usize, weights: Weights) -> Value {
    let layers: Vec<u8> = [vec![0; dense], vec![1; sparse]].concat();
    let text = json!({
        "architectures": ["MiniMaxM3SparseForCausalLM"],
        "hidden_size": 6144, "intermediate_size": 3072, "dense_intermediate_size": 12288,
        "shared_intermediate_size": 3072, "num_hidden_layers": layers.len(), "num_attention_heads": 64,
        "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 200_064,
        "max_position_embeddings": 1_048_576, "rms_norm_eps": 1e-6, "use_gemma_norm": true,
        "attention_output_gate": false, "rope_theta": 5_000_000, "rotary_dim": 64,
        "partial_rotary_factor": 0.5, "hidden_act": "swigluoai", "use_qk_norm": true,
        "qk_norm_type": "per_head", "tie_word_embeddings": false, "num_local_experts": 128,
        "num_experts_per_tok": 4, "n_shared_experts": 1, "scoring_func": "sigmoid",
        "use_routing_bias": true, "moe_layer_freq": layers, "swiglu_alpha": 1.702, "swiglu_limit": 7.0,
        "routed_scaling_factor": 2.0,
        "sparse_attention_config": {
            "use_sparse_attention": true, "sparse_index_dim": 128, "sparse_num_index_heads": 4,
            "sparse_topk_blocks": 16, "sparse_block_size": 128, "sparse_disable_index_value": layers,
            "sparse_score_type": "max", "sparse_init_block": 0, "sparse_local_block": 1,
            "sparse_attention_freq": layers,
        },
    });
    let mut whole = Map::new();
    whole.insert("architectures".to_owned(), json!(["MiniMaxM3SparseForConditionalGeneration"]));
    whole.insert("model_type".to_owned(), json!("minimax_m3_vl"));
    whole.insert("text_config".to_owned(), text);
    if weights == Weights::Mxfp8 {
        let quantization = json!({
            "quant_method": "mxfp8", "activation_scheme": "dynamic", "weight_block_size": [1, 32],
        });
        whole.insert("quantization_config".to_owned(), quantization);
    }
    Value::Object(whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use m3_model::names::expected_tensors;
    use m3_model::shard::ShardPlan;

    #[test]
    fn a_rank_of_eight_holds_the_bytes_that_the_design_counts() {
        // 99.6 and 51.7 GiB, counted by hand from the released shapes.
        for (weights, gib) in [(Weights::Bf16, 99.6), (Weights::Mxfp8, 51.7)] {
            let model = Model::new(Shape::Tp8, weights).unwrap();
            let plan = ShardPlan::new(&model.config, 8, 1).unwrap();
            let bytes = plan.rank_bytes(0, &expected_tensors(&model.config));
            let found = bytes as f64 / f64::from(1 << 30);
            assert!((found - gib).abs() < 0.1, "{weights:?}: {found} GiB");
        }
    }

    #[test]
    fn the_cut_model_keeps_the_full_width() {
        let model = Model::new(Shape::Full, Weights::Bf16).unwrap();
        assert_eq!(model.config.text.layers.len(), 8);
        assert_eq!(model.config.text.num_heads, 64);
    }
}
