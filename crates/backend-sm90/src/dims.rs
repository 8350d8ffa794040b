//! The sizes of one rank's part of the model, as kernels and workspaces take them.
//!
//! Everything is derived from the config and the shard plan once, at `open`; nothing here depends on a step.

use std::ops::Range;

use m3_gpu::pack;
use m3_model::config::{AttentionKind, ModelConfig};
use m3_model::shard::RankPlan;

/// Sizes of a rank. Heads, widths and experts are the rank's own unless the name says otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dims {
    pub(crate) hidden: usize,
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) head_dim: usize,
    pub(crate) rotary_dim: usize,
    /// One per KV head.
    pub(crate) index_heads: usize,
    pub(crate) index_dim: usize,
    /// Tokens of a block and of a page.
    pub(crate) block: usize,
    pub(crate) topk: usize,
    pub(crate) init_blocks: usize,
    pub(crate) local_blocks: usize,
    pub(crate) dense_width: usize,
    pub(crate) shared_width: usize,
    pub(crate) expert_width: usize,
    /// Of the whole model: every rank routes over all of them.
    pub(crate) num_experts: usize,
    pub(crate) experts: Range<usize>,
    pub(crate) experts_per_token: usize,
    /// Of the whole model.
    pub(crate) vocab: usize,
    /// Rows of embedding and head held here.
    pub(crate) vocab_part: Range<usize>,
    pub(crate) num_layers: usize,
    pub(crate) num_sparse: usize,
}

impl Dims {
    pub(crate) fn new(config: &ModelConfig, plan: &RankPlan) -> Dims {
        let text = &config.text;
        let sparse = &text.sparse;
        Dims {
            hidden: text.hidden_size,
            heads: plan.query_heads.len(),
            kv_heads: plan.kv_heads.len(),
            head_dim: text.head_dim,
            rotary_dim: text.rotary_dim,
            index_heads: plan.index_heads.len(),
            index_dim: sparse.index_dim,
            block: sparse.block_size,
            topk: sparse.topk_blocks,
            init_blocks: sparse.init_blocks,
            local_blocks: sparse.local_blocks,
            dense_width: plan.dense_width.len(),
            shared_width: plan.shared_width.len(),
            expert_width: plan.expert_width.len(),
            num_experts: text.num_experts,
            experts: plan.experts.clone(),
            experts_per_token: text.experts_per_token,
            vocab: text.vocab_size,
            vocab_part: plan.vocab.clone(),
            num_layers: text.layers.len(),
            num_sparse: text.layers.iter().filter(|layer| layer.attention == AttentionKind::Sparse).count(),
        }
    }

    /// Query heads that share a KV head.
    pub(crate) fn group(&self) -> usize {
        self.heads / self.kv_heads
    }

    /// Rows of the fused projection: queries, keys, values and, on sparse layers, index queries and the index key.
    pub(crate) fn projected(&self, attention: AttentionKind) -> usize {
        let dense = (self.heads + 2 * self.kv_heads) * self.head_dim;
        match attention {
            AttentionKind::Dense => dense,
            AttentionKind::Sparse => dense + (self.index_heads + 1) * self.index_dim,
        }
    }

    /// Widest fused projection of any layer.
    pub(crate) fn most_projected(&self) -> usize {
        let attention = if self.num_sparse > 0 { AttentionKind::Sparse } else { AttentionKind::Dense };
        self.projected(attention)
    }

    /// Under the names that the kernels' manifest uses.
    pub(crate) fn named(&self) -> pack::Dims {
        let dims = [
            ("hidden", self.hidden),
            ("query_heads", self.heads),
            ("kv_heads", self.kv_heads),
            ("group", self.group()),
            ("head_dim", self.head_dim),
            ("rotary_dim", self.rotary_dim),
            ("index_heads", self.index_heads),
            ("index_dim", self.index_dim),
            ("block", self.block),
            ("topk", self.topk),
            ("experts", self.num_experts),
            ("experts_per_token", self.experts_per_token),
            ("expert_width", self.expert_width),
            ("shared_width", self.shared_width),
            ("dense_width", self.dense_width),
            ("vocab", self.vocab_part.len()),
        ];
        dims.into_iter().map(|(name, value)| (name.to_owned(), value as i64)).collect()
    }
}

#[cfg(test)]
mod tests;
