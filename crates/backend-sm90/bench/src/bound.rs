//! The least time that a step can take on the device's ceilings: every part costs its FLOPs or its bytes, whichever takes
//! longer, and parts run one after the other.
//!
//! Counted for one rank from the shapes; weights are read once a step, keys and values once a token that looks at them.
//! Experts are drawn uniformly where nobody counted them.

use m3_model::config::{AttentionKind, FfnKind, TextConfig};
use serde::Serialize;

use crate::model::Weights;

/// What the device was seen to reach. Bytes and FLOPs a second.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Ceilings {
    pub(crate) bytes_per_s: f64,
    pub(crate) flops_per_s: f64,
    /// Of attention.
    pub(crate) attention_flops_per_s: f64,
}

impl Ceilings {
    /// Measured on one H200: device copies, and products of 8192 x 8192 bf16 matrices.
    pub(crate) const H200: Ceilings =
        Ceilings { bytes_per_s: 4.3e12, flops_per_s: 770e12, attention_flops_per_s: 643e12 };
}

/// New tokens of one step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) sequences: f64,
    /// Of each sequence.
    pub(crate) tokens: f64,
    /// Cached tokens of each sequence.
    pub(crate) cached: f64,
    /// Experts that somebody chose, on average over the layers; `None` = as a uniform draw would have it.
    pub(crate) experts: Option<f64>,
}

impl Load {
    pub(crate) fn decode(batch: usize, context: usize) -> Self {
        Load { sequences: batch as f64, tokens: 1.0, cached: context as f64 - 1.0, experts: None }
    }

    pub(crate) fn prefill(tokens: usize, cached: usize) -> Self {
        Load { sequences: 1.0, tokens: tokens as f64, cached: cached as f64, experts: None }
    }

    /// Pairs of a query and a key it sees, when it sees the last `most` at most.
    fn pairs(&self, most: f64) -> f64 {
        let below = (most - self.cached).clamp(0.0, self.tokens);
        let growing = below * self.cached + below * (below + 1.0) / 2.0;
        self.sequences * (growing + (self.tokens - below) * most)
    }

    fn rows(&self) -> f64 {
        self.sequences * self.tokens
    }

    /// Keys that somebody looks at.
    fn keys(&self) -> f64 {
        self.sequences * (self.cached + self.tokens)
    }
}

/// A part of a step on one rank, summed over the layers.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Part {
    pub(crate) name: &'static str,
    pub(crate) flops: f64,
    pub(crate) bytes: f64,
    pub(crate) us: f64,
}

/// As many keys as there are; finite, because none of it must stay none.
const ALL: f64 = f64::MAX;

struct Counter<'a> {
    parts: Vec<Part>,
    ceilings: &'a Ceilings,
    /// Bytes of a weight.
    weight: f64,
}

impl Counter<'_> {
    fn add(&mut self, name: &'static str, flops: f64, bytes: f64, flops_per_s: f64) {
        let us = f64::max(flops / flops_per_s, bytes / self.ceilings.bytes_per_s) * 1e6;
        match self.parts.iter_mut().find(|part| part.name == name) {
            Some(part) => {
                part.flops += flops;
                part.bytes += bytes;
                part.us += us;
            }
            None => self.parts.push(Part { name, flops, bytes, us }),
        }
    }

    /// `rows` x `depth` times `width` x `depth`, activations in and out in bf16.
    fn linear(&mut self, name: &'static str, rows: f64, depth: f64, width: f64) {
        let bytes = depth * width * self.weight + 2.0 * rows * (depth + width);
        self.add(name, 2.0 * rows * depth * width, bytes, self.ceilings.flops_per_s);
    }
}

/// Parts of a step of one rank of `tp`, in the order of the model.
pub(crate) fn parts(
    text: &TextConfig,
    tp: u32,
    weights: Weights,
    load: &Load,
    ceilings: &Ceilings,
) -> Vec<Part> {
    let tp = f64::from(tp);
    let weight = match weights {
        Weights::Bf16 => 2.0,
        Weights::Mxfp8 => 1.0 + 1.0 / 32.0,
    };
    let mut counter = Counter { parts: Vec::new(), ceilings, weight };
    let per_rank = |heads: usize| (heads as f64 / tp).max(1.0);
    let (hidden, rows) = (text.hidden_size as f64, load.rows());
    let query = per_rank(text.num_heads) * text.head_dim as f64;
    let kv = per_rank(text.num_kv_heads) * text.head_dim as f64;
    let index_dim = text.sparse.index_dim as f64;
    let index = per_rank(text.sparse.num_index_heads) * index_dim;
    let span = (text.sparse.topk_blocks * text.sparse.block_size) as f64;
    for layer in &text.layers {
        let is_sparse = layer.attention == AttentionKind::Sparse;
        let index_width = if is_sparse { index + index_dim } else { 0.0 };
        let name = if is_sparse { "projections in, sparse" } else { "projections in, dense" };
        counter.linear(name, rows, hidden, query + 2.0 * kv + index_width);
        let attention = ceilings.attention_flops_per_s;
        if is_sparse {
            let scores = load.pairs(ALL);
            let key_bytes = load.keys() * index_dim * 2.0;
            counter.add("index scores", 2.0 * index * scores, key_bytes, ceilings.flops_per_s);
            let (pairs, keys) = (load.pairs(span), load.keys().min(load.pairs(span)));
            counter.add(
                "sparse attention",
                4.0 * query * pairs,
                keys * 4.0 * kv + 4.0 * rows * query,
                attention,
            );
        } else {
            let (pairs, keys) = (load.pairs(ALL), load.keys());
            counter.add(
                "dense attention",
                4.0 * query * pairs,
                keys * 4.0 * kv + 4.0 * rows * query,
                attention,
            );
        }
        counter.linear("projection out", rows, query, hidden);
        match layer.ffn {
            FfnKind::Dense => {
                let width = text.dense_intermediate_size as f64 / tp;
                counter.linear("dense mlp", rows, hidden, 2.0 * width);
                counter.linear("dense mlp", rows, width, hidden);
            }
            FfnKind::Moe => moe(&mut counter, text, tp, load),
        }
    }
    let logits = load.sequences;
    let vocab = text.vocab_size as f64 / tp;
    let head_bytes = hidden * vocab * 2.0 + logits * vocab * 4.0;
    counter.add("head", 2.0 * logits * hidden * vocab, head_bytes, ceilings.flops_per_s);
    counter.parts
}

fn moe(counter: &mut Counter<'_>, text: &TextConfig, tp: f64, load: &Load) {
    let (hidden, rows, flops_per_s) = (text.hidden_size as f64, load.rows(), counter.ceilings.flops_per_s);
    let experts = text.num_experts as f64;
    let router_bytes = hidden * experts * 4.0 + 2.0 * rows * hidden;
    counter.add("router", 2.0 * rows * hidden * experts, router_bytes, flops_per_s);
    let chosen = text.experts_per_token as f64;
    let values = 3.0 * hidden * text.expert_intermediate_size as f64 / tp;
    let read = load.experts.unwrap_or_else(|| distinct(experts, chosen, rows));
    let bytes = read * values * counter.weight + 4.0 * rows * hidden;
    counter.add("experts", 2.0 * rows * chosen * values, bytes, flops_per_s);
    let width = text.shared_intermediate_size as f64 / tp;
    counter.linear("shared expert", rows, hidden, 2.0 * width);
    counter.linear("shared expert", rows, width, hidden);
}

/// Experts that somebody among `rows` tokens chose, on average.
pub(crate) fn distinct(experts: f64, chosen: f64, rows: f64) -> f64 {
    experts * (1.0 - (1.0 - chosen / experts).powf(rows))
}

/// Microseconds of all parts.
pub(crate) fn total_us(parts: &[Part]) -> f64 {
    parts.iter().map(|part| part.us).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Model, Shape};

    /// Bounds of the design, which counts a little more traffic between operations.
    #[test]
    fn decode_bounds_are_those_of_the_design() {
        let table = [
            (1, 2048, 1.55, 0.87),
            (8, 2048, 6.35, 3.42),
            (64, 2048, 23.1, 12.7),
            (256, 2048, 31.0, 19.3),
            (64, 32_768, 30.5, 20.1),
            (8, 131_072, 10.2, 7.3),
        ];
        for (batch, context, bf16, mxfp8) in table {
            for (weights, expected) in [(Weights::Bf16, bf16), (Weights::Mxfp8, mxfp8)] {
                let text = Model::new(Shape::Tp8, weights).unwrap().config.text;
                let load = Load::decode(batch, context);
                let ms = total_us(&parts(&text, 8, weights, &load, &Ceilings::H200)) / 1000.0;
                let off = ms / expected - 1.0;
                assert!(
                    (-0.12..0.04).contains(&off),
                    "{batch} x {context} {weights:?}: {ms} ms, not {expected}"
                );
            }
        }
    }

    #[test]
    fn pairs_are_counted_up_to_the_span() {
        let load = Load { sequences: 2.0, tokens: 4.0, cached: 1.0, experts: None };
        assert!((load.pairs(ALL) - 2.0 * (2.0 + 3.0 + 4.0 + 5.0)).abs() < 1e-9);
        assert!((load.pairs(3.0) - 2.0 * (2.0 + 3.0 + 3.0 + 3.0)).abs() < 1e-9);
        assert!((load.pairs(1.0) - 2.0 * 4.0).abs() < 1e-9);
    }

    #[test]
    fn experts_that_nobody_chose_are_not_read() {
        let text = Model::new(Shape::Tp8, Weights::Bf16).unwrap().config.text;
        let bytes = |experts| {
            let load = Load { experts, ..Load::decode(64, 2048) };
            let parts = parts(&text, 8, Weights::Bf16, &load, &Ceilings::H200);
            parts.iter().find(|part| part.name == "experts").unwrap().bytes
        };
        let an_expert = 57.0 * 3.0 * 6144.0 * 384.0 * 2.0;
        assert!((bytes(Some(40.0)) - bytes(Some(39.0)) - an_expert).abs() < 1.0);
        assert!((bytes(None) - bytes(Some(distinct(128.0, 4.0, 64.0)))).abs() < 1.0);
    }

    #[test]
    fn one_token_chooses_as_many_experts_as_it_may_and_many_choose_all() {
        assert!((distinct(128.0, 4.0, 1.0) - 4.0).abs() < 1e-9);
        assert!((distinct(128.0, 4.0, 1e6) - 128.0).abs() < 1e-6);
    }
}
