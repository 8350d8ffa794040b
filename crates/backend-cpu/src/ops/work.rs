//! What operations leave for each other: buffers of one rank, sized for the largest step before serving.

use m3_model::config::TextConfig;
use m3_model::shard::RankPlan;

use crate::buffer::{Buffer, Precision};

/// Most logits rows made at a time: the rest of a prompt's log-probabilities comes in further passes over the head.
const MOST_LOGITS_ROWS: usize = 256;

/// Counts that fix the size of the workspace and the shape of this rank's part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) index_heads: usize,
    pub(crate) max_tokens: usize,
    /// Rows of logits per pass over the head.
    pub(crate) logits_rows: usize,
}

impl Sizes {
    pub(crate) fn new(plan: &RankPlan, max_tokens: usize, max_rows: usize) -> Sizes {
        Sizes {
            heads: plan.query_heads.len(),
            kv_heads: plan.kv_heads.len(),
            index_heads: plan.index_heads.len(),
            max_tokens,
            logits_rows: max_rows.clamp(1, MOST_LOGITS_ROWS.min(max_tokens.max(1))),
        }
    }
}

/// `T` tokens of the step; heads are the rank's own.
pub(crate) struct Work {
    pub(crate) sizes: Sizes,
    /// [T, hidden]
    pub(crate) residual: Vec<f32>,
    /// [T, hidden]: this rank's part of a sum that the next norm takes.
    pub(crate) pending: Vec<f32>,
    pub(crate) has_pending: bool,
    /// [T, hidden]
    pub(crate) normed: Buffer,
    /// [T, rotary pairs]: cosine and sine, the same for every layer.
    pub(crate) angles: Vec<(f32, f32)>,
    pub(crate) rotary_pairs: usize,
    /// [T, q | k | v | index q | index k]
    pub(crate) projected: Vec<f32>,
    /// [T, heads, head_dim]
    pub(crate) queries: Buffer,
    /// [T, index heads, index_dim]
    pub(crate) index_queries: Buffer,
    /// [T, index heads, topk]; the first `num_chosen` entries of a row are block ids, ascending.
    pub(crate) chosen: Vec<u32>,
    /// [T, index heads]
    pub(crate) num_chosen: Vec<u32>,
    /// [T, index heads, blocks of the longest sequence]
    pub(crate) block_scores: Vec<f32>,
    /// [T, heads, head_dim]
    pub(crate) attended: Buffer,
    /// Partial softmax states when one token's pages are shared by threads.
    pub(crate) partial: Vec<f32>,
    pub(crate) routing: super::route::Routing,
    /// Activations inside the FFN: [rows of a part, its width], part after part.
    pub(crate) inner: Buffer,
    /// [P, hidden] after the final norm.
    pub(crate) hidden: Buffer,
    /// [rows of a pass, vocabulary part]
    pub(crate) local_logits: Vec<f32>,
    /// [rows of a pass, vocabulary]
    pub(crate) logits: Vec<f32>,
}

impl Work {
    pub(crate) fn new(config: &TextConfig, plan: &RankPlan, precision: Precision, sizes: Sizes) -> Work {
        let tokens = sizes.max_tokens;
        let vector = |len: usize| Vec::with_capacity(len);
        let buffer = |len: usize| Buffer::new(precision, len);
        let sparse = &config.sparse;
        let queries = sizes.heads * config.head_dim;
        let index = sizes.index_heads * sparse.index_dim;
        let projected = queries + 2 * sizes.kv_heads * config.head_dim + index + sparse.index_dim;
        let moe = config.experts_per_token * plan.expert_width.len() + plan.shared_width.len();
        let vocab_part = if plan.vocab.len() < config.vocab_size { plan.vocab.len() } else { 0 };
        Work {
            sizes,
            residual: vector(tokens * config.hidden_size),
            pending: vector(tokens * config.hidden_size),
            has_pending: false,
            normed: buffer(tokens * config.hidden_size),
            angles: Vec::with_capacity(tokens * config.rotary_dim / 2),
            rotary_pairs: config.rotary_dim / 2,
            projected: vector(tokens * projected),
            queries: buffer(tokens * queries),
            index_queries: buffer(tokens * index),
            chosen: Vec::with_capacity(tokens * sizes.index_heads * sparse.topk_blocks),
            num_chosen: Vec::with_capacity(tokens * sizes.index_heads),
            block_scores: Vec::new(),
            attended: buffer(tokens * queries),
            partial: Vec::new(),
            routing: super::route::Routing::new(config, tokens),
            inner: buffer(tokens * moe.max(plan.dense_width.len())),
            hidden: buffer(sizes.logits_rows * config.hidden_size),
            local_logits: vector(sizes.logits_rows * vocab_part),
            logits: vector(sizes.logits_rows * config.vocab_size),
        }
    }

    /// Rotation of one token.
    pub(crate) fn angles_of(&self, token: usize) -> &[(f32, f32)] {
        &self.angles[token * self.rotary_pairs..][..self.rotary_pairs]
    }

    /// Bytes held; block scores and partial states come on top when contexts are long.
    pub(crate) fn bytes(&self) -> usize {
        let values = [
            &self.residual,
            &self.pending,
            &self.projected,
            &self.block_scores,
            &self.partial,
            &self.local_logits,
            &self.logits,
        ];
        let buffers =
            [&self.normed, &self.queries, &self.index_queries, &self.attended, &self.inner, &self.hidden];
        let angles = self.angles.capacity() * 8;
        let ids = (self.chosen.capacity() + self.num_chosen.capacity()) * 4;
        values.iter().map(|values| values.capacity() * 4).sum::<usize>()
            + buffers.iter().map(|buffer| buffer.bytes()).sum::<usize>()
            + ids
            + angles
            + self.routing.bytes()
    }
}
