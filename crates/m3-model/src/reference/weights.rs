//! Loaded tensors, put where the forward pass looks for them.

use std::collections::HashMap;

use m3_abi::Error;

use crate::config::{AttentionKind, FfnKind, TextConfig};

use super::linear::{Linear, QuantMode};
use super::moe::{Mlp, Moe};
use super::tensor::Tensor;

/// The text model.
#[derive(Clone, Debug)]
pub struct Weights {
    /// [vocabulary, hidden].
    pub embedding: Vec<f32>,
    pub layers: Vec<LayerWeights>,
    /// [hidden].
    pub norm: Vec<f32>,
    /// [vocabulary, hidden], never quantised.
    pub head: Linear,
}

#[derive(Clone, Debug)]
pub struct LayerWeights {
    /// [hidden].
    pub input_norm: Vec<f32>,
    /// [hidden].
    pub post_attention_norm: Vec<f32>,
    pub attention: AttentionWeights,
    pub ffn: Ffn,
}

#[derive(Clone, Debug)]
pub struct AttentionWeights {
    pub query: Linear,
    pub key: Linear,
    pub value: Linear,
    pub output: Linear,
    /// [head_dim].
    pub query_norm: Vec<f32>,
    /// [head_dim].
    pub key_norm: Vec<f32>,
    /// Sparse layers.
    pub index: Option<IndexWeights>,
}

#[derive(Clone, Debug)]
pub struct IndexWeights {
    pub query: Linear,
    pub key: Linear,
    /// [index_dim].
    pub query_norm: Vec<f32>,
    /// [index_dim].
    pub key_norm: Vec<f32>,
}

#[derive(Clone, Debug)]
pub enum Ffn {
    Dense(Mlp),
    Moe(Moe),
}

impl Weights {
    /// Takes every tensor of the text model out of `tensors` (by canonical name).
    ///
    /// # Errors
    /// `Unsupported` with the name of a tensor that is missing or has another shape than the config implies.
    pub fn assemble(
        config: &TextConfig,
        tensors: HashMap<String, Tensor>,
        mode: QuantMode,
    ) -> Result<Self, Error> {
        let mut shelf = Shelf { tensors, mode };
        let (vocab, hidden) = (config.vocab_size, config.hidden_size);
        let mut layers = Vec::new();
        for layer in 0..config.layers.len() {
            layers.push(shelf.layer(config, layer)?);
        }
        Ok(Weights {
            embedding: shelf.values("language_model.model.embed_tokens.weight", [vocab, hidden])?,
            layers,
            norm: shelf.values("language_model.model.norm.weight", [1, hidden])?,
            head: shelf.linear("language_model.lm_head.weight", [vocab, hidden])?,
        })
    }
}

struct Shelf {
    tensors: HashMap<String, Tensor>,
    mode: QuantMode,
}

impl Shelf {
    fn take(&mut self, name: &str, [rows, columns]: [usize; 2]) -> Result<Tensor, Error> {
        let Some(tensor) = self.tensors.remove(name) else {
            return Err(Error::Unsupported(format!("tensor {name} was not loaded")));
        };
        if tensor.columns != columns || tensor.values.len() != rows * columns {
            let (found, columns_found) = (tensor.values.len() / tensor.columns.max(1), tensor.columns);
            let sizes = format!("is {found} x {columns_found}, the config says {rows} x {columns}");
            return Err(Error::Unsupported(format!("tensor {name} {sizes}")));
        }
        Ok(tensor)
    }

    fn values(&mut self, name: &str, shape: [usize; 2]) -> Result<Vec<f32>, Error> {
        Ok(self.take(name, shape)?.values)
    }

    fn linear(&mut self, name: &str, shape: [usize; 2]) -> Result<Linear, Error> {
        let tensor = self.take(name, shape)?;
        Ok(if tensor.quantized {
            Linear::quantized(tensor.values, tensor.columns, self.mode)
        } else {
            Linear::plain(tensor.values, tensor.columns)
        })
    }

    fn layer(&mut self, config: &TextConfig, layer: usize) -> Result<LayerWeights, Error> {
        let prefix = format!("language_model.model.layers.{layer}");
        let hidden = config.hidden_size;
        let ffn = match config.layers[layer].ffn {
            FfnKind::Dense => {
                let names = ["gate_proj", "up_proj", "down_proj"];
                let width = config.dense_intermediate_size;
                Ffn::Dense(self.mlp(&format!("{prefix}.mlp"), names, hidden, width)?)
            }
            FfnKind::Moe => Ffn::Moe(self.moe(config, &format!("{prefix}.block_sparse_moe"))?),
        };
        Ok(LayerWeights {
            input_norm: self.values(&format!("{prefix}.input_layernorm.weight"), [1, hidden])?,
            post_attention_norm: self
                .values(&format!("{prefix}.post_attention_layernorm.weight"), [1, hidden])?,
            attention: self.attention(config, layer, &format!("{prefix}.self_attn"))?,
            ffn,
        })
    }

    fn attention(
        &mut self,
        config: &TextConfig,
        layer: usize,
        prefix: &str,
    ) -> Result<AttentionWeights, Error> {
        let (hidden, dim) = (config.hidden_size, config.head_dim);
        let (query, key) = (config.num_heads * dim, config.num_kv_heads * dim);
        Ok(AttentionWeights {
            query: self.linear(&format!("{prefix}.q_proj.weight"), [query, hidden])?,
            key: self.linear(&format!("{prefix}.k_proj.weight"), [key, hidden])?,
            value: self.linear(&format!("{prefix}.v_proj.weight"), [key, hidden])?,
            output: self.linear(&format!("{prefix}.o_proj.weight"), [hidden, query])?,
            query_norm: self.values(&format!("{prefix}.q_norm.weight"), [1, dim])?,
            key_norm: self.values(&format!("{prefix}.k_norm.weight"), [1, dim])?,
            index: match config.layers[layer].attention {
                AttentionKind::Dense => None,
                AttentionKind::Sparse => Some(self.index(config, prefix)?),
            },
        })
    }

    fn index(&mut self, config: &TextConfig, prefix: &str) -> Result<IndexWeights, Error> {
        let (hidden, dim) = (config.hidden_size, config.sparse.index_dim);
        let query = config.sparse.num_index_heads * dim;
        Ok(IndexWeights {
            query: self.linear(&format!("{prefix}.index_q_proj.weight"), [query, hidden])?,
            key: self.linear(&format!("{prefix}.index_k_proj.weight"), [dim, hidden])?,
            query_norm: self.values(&format!("{prefix}.index_q_norm.weight"), [1, dim])?,
            key_norm: self.values(&format!("{prefix}.index_k_norm.weight"), [1, dim])?,
        })
    }

    fn moe(&mut self, config: &TextConfig, prefix: &str) -> Result<Moe, Error> {
        let (hidden, num_experts) = (config.hidden_size, config.num_experts);
        let (width, shared_width) = (config.expert_intermediate_size, config.shared_intermediate_size);
        let mut experts = Vec::new();
        for expert in 0..num_experts {
            experts.push(self.mlp(
                &format!("{prefix}.experts.{expert}"),
                ["w1", "w3", "w2"],
                hidden,
                width,
            )?);
        }
        let shared_names = ["gate_proj", "up_proj", "down_proj"];
        Ok(Moe {
            router: self.linear(&format!("{prefix}.gate.weight"), [num_experts, hidden])?,
            correction_bias: self.values(&format!("{prefix}.e_score_correction_bias"), [1, num_experts])?,
            experts,
            shared: self.mlp(&format!("{prefix}.shared_experts"), shared_names, hidden, shared_width)?,
        })
    }

    /// `names`: gate, up, down.
    fn mlp(&mut self, prefix: &str, names: [&str; 3], hidden: usize, width: usize) -> Result<Mlp, Error> {
        let [gate, up, down] = names.map(|name| format!("{prefix}.{name}.weight"));
        Ok(Mlp {
            gate: self.linear(&gate, [width, hidden])?,
            up: self.linear(&up, [width, hidden])?,
            down: self.linear(&down, [hidden, width])?,
        })
    }
}
