//! Seeded random weights under the released tensor names.
//!
//! Values come from integer arithmetic and plain additions only, so every machine makes the same bytes.

use super::config::{
    DENSE_LAYERS, DENSE_WIDTH, EXPERT_WIDTH, EXPERTS, HEAD_DIM, HEADS, HIDDEN, KV_HEADS, LAYERS,
    SHARED_WIDTH, VISION_HIDDEN, VISION_LAYERS, VISION_WIDTH, VOCAB,
};
use anyhow::Result;
use safetensors::{Dtype, tensor::TensorView};

const SEED: u64 = 0x4d33_6e61_6e6f;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Mean 0, deviation 1: twelve uniforms summed, exact in f64.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| (self.bits() >> 11) as f64 / (1u64 << 53) as f64).sum::<f64>() - 6.0
    }
}

struct Entry {
    name: String,
    shape: Vec<usize>,
    dtype: Dtype,
    bytes: Vec<u8>,
}

struct Builder {
    random: Random,
    entries: Vec<Entry>,
}

impl Builder {
    fn add(&mut self, name: &str, shape: &[usize], dtype: Dtype, deviation: f64) {
        let count: usize = shape.iter().product();
        let mut bytes = Vec::with_capacity(count * 4);
        for _ in 0..count {
            let value = (self.random.normal() * deviation) as f32;
            match dtype {
                Dtype::F32 => bytes.extend_from_slice(&value.to_le_bytes()),
                _ => bytes.extend_from_slice(&round_to_bf16(value).to_le_bytes()),
            }
        }
        self.entries.push(Entry { name: name.to_owned(), shape: shape.to_vec(), dtype, bytes });
    }

    /// A linear `[rows, columns]` that keeps the deviation of its input.
    fn linear(&mut self, name: &str, rows: usize, columns: usize) {
        self.add(name, &[rows, columns], Dtype::BF16, 1.0 / (columns as f64).sqrt());
    }

    fn linear_with_bias(&mut self, name: &str, rows: usize, columns: usize) {
        self.linear(&format!("{name}.weight"), rows, columns);
        self.add(&format!("{name}.bias"), &[rows], Dtype::BF16, 0.02);
    }

    /// A Gemma norm weight, stored around 0.
    fn norm(&mut self, name: &str, width: usize) {
        self.add(name, &[width], Dtype::BF16, 0.05);
    }
}

fn round_to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) as u16
}

fn text(builder: &mut Builder) {
    let prefix = "language_model.model";
    builder.add(&format!("{prefix}.embed_tokens.weight"), &[VOCAB, HIDDEN], Dtype::BF16, 1.0);
    builder.add("language_model.lm_head.weight", &[VOCAB, HIDDEN], Dtype::BF16, 0.15);
    builder.norm(&format!("{prefix}.norm.weight"), HIDDEN);
    for layer in 0..LAYERS {
        let prefix = format!("{prefix}.layers.{layer}");
        builder.norm(&format!("{prefix}.input_layernorm.weight"), HIDDEN);
        builder.norm(&format!("{prefix}.post_attention_layernorm.weight"), HIDDEN);
        attention(builder, &format!("{prefix}.self_attn"), layer >= DENSE_LAYERS);
        if layer < DENSE_LAYERS {
            mlp(builder, &format!("{prefix}.mlp"), DENSE_WIDTH);
        } else {
            experts(builder, &format!("{prefix}.block_sparse_moe"));
        }
    }
}

fn attention(builder: &mut Builder, prefix: &str, sparse: bool) {
    builder.linear(&format!("{prefix}.q_proj.weight"), HEADS * HEAD_DIM, HIDDEN);
    builder.linear(&format!("{prefix}.k_proj.weight"), KV_HEADS * HEAD_DIM, HIDDEN);
    builder.linear(&format!("{prefix}.v_proj.weight"), KV_HEADS * HEAD_DIM, HIDDEN);
    builder.linear(&format!("{prefix}.o_proj.weight"), HIDDEN, HEADS * HEAD_DIM);
    builder.norm(&format!("{prefix}.q_norm.weight"), HEAD_DIM);
    builder.norm(&format!("{prefix}.k_norm.weight"), HEAD_DIM);
    if sparse {
        builder.linear(&format!("{prefix}.index_q_proj.weight"), KV_HEADS * HEAD_DIM, HIDDEN);
        builder.linear(&format!("{prefix}.index_k_proj.weight"), HEAD_DIM, HIDDEN);
        builder.norm(&format!("{prefix}.index_q_norm.weight"), HEAD_DIM);
        builder.norm(&format!("{prefix}.index_k_norm.weight"), HEAD_DIM);
    }
}

fn mlp(builder: &mut Builder, prefix: &str, width: usize) {
    builder.linear(&format!("{prefix}.gate_proj.weight"), width, HIDDEN);
    builder.linear(&format!("{prefix}.up_proj.weight"), width, HIDDEN);
    builder.linear(&format!("{prefix}.down_proj.weight"), HIDDEN, width);
}

fn experts(builder: &mut Builder, prefix: &str) {
    let deviation = 1.0 / (HIDDEN as f64).sqrt();
    builder.add(&format!("{prefix}.gate.weight"), &[EXPERTS, HIDDEN], Dtype::F32, deviation);
    builder.add(&format!("{prefix}.e_score_correction_bias"), &[EXPERTS], Dtype::F32, 0.02);
    for expert in 0..EXPERTS {
        builder.linear(&format!("{prefix}.experts.{expert}.w1.weight"), EXPERT_WIDTH, HIDDEN);
        builder.linear(&format!("{prefix}.experts.{expert}.w3.weight"), EXPERT_WIDTH, HIDDEN);
        builder.linear(&format!("{prefix}.experts.{expert}.w2.weight"), HIDDEN, EXPERT_WIDTH);
    }
    mlp(builder, &format!("{prefix}.shared_experts"), SHARED_WIDTH);
}

fn vision(builder: &mut Builder) {
    let prefix = "vision_tower.vision_model";
    let patch = format!("{prefix}.embeddings.patch_embedding.weight");
    builder.add(&patch, &[VISION_HIDDEN, 3, 2, 14, 14], Dtype::F32, 1.0 / 1176f64.sqrt());
    layer_norm(builder, &format!("{prefix}.pre_layrnorm"));
    for layer in 0..VISION_LAYERS {
        let prefix = format!("{prefix}.encoder.layers.{layer}");
        layer_norm(builder, &format!("{prefix}.layer_norm1"));
        layer_norm(builder, &format!("{prefix}.layer_norm2"));
        for projection in ["q", "k", "v", "out"] {
            builder.linear_with_bias(
                &format!("{prefix}.self_attn.{projection}_proj"),
                VISION_HIDDEN,
                VISION_HIDDEN,
            );
        }
        builder.linear_with_bias(&format!("{prefix}.mlp.fc1"), VISION_WIDTH, VISION_HIDDEN);
        builder.linear_with_bias(&format!("{prefix}.mlp.fc2"), VISION_HIDDEN, VISION_WIDTH);
    }
    builder.linear_with_bias("multi_modal_projector.linear_1", HIDDEN, VISION_HIDDEN);
    builder.linear_with_bias("multi_modal_projector.linear_2", HIDDEN, HIDDEN);
    builder.linear_with_bias("patch_merge_mlp.linear_1", HIDDEN, 4 * HIDDEN);
    builder.linear_with_bias("patch_merge_mlp.linear_2", HIDDEN, HIDDEN);
}

/// Weight around 1, bias around 0. The weight is `1 + noise` rounded once.
fn layer_norm(builder: &mut Builder, prefix: &str) {
    let bytes = (0..VISION_HIDDEN)
        .flat_map(|_| round_to_bf16((1.0 + builder.random.normal() * 0.05) as f32).to_le_bytes())
        .collect();
    let name = format!("{prefix}.weight");
    builder.entries.push(Entry { name, shape: vec![VISION_HIDDEN], dtype: Dtype::BF16, bytes });
    builder.add(&format!("{prefix}.bias"), &[VISION_HIDDEN], Dtype::BF16, 0.02);
}

pub(super) fn safetensors() -> Result<Vec<u8>> {
    let mut builder = Builder { random: Random(SEED), entries: Vec::new() };
    text(&mut builder);
    vision(&mut builder);
    let views = builder
        .entries
        .iter()
        .map(|entry| Ok((&entry.name, TensorView::new(entry.dtype, entry.shape.clone(), &entry.bytes)?)))
        .collect::<Result<Vec<_>>>()?;
    Ok(safetensors::serialize(views, None)?)
}
