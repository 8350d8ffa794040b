//! Which part of the model each rank holds, and the cut of every tensor for it.
//!
//! Tensor parallelism cuts heads, widths and the vocabulary over all `tp` ranks. `ep` groups of `tp / ep` neighbouring
//! ranks each hold a contiguous range of whole experts and cut their width inside the group. With more ranks than KV
//! heads, neighbouring ranks hold copies of one KV head and of its index head. Norms, the router, the index key and
//! the whole vision part are on every rank (vision runs data-parallel). Counts that do not divide are refused.

mod cut;

use std::ops::Range;

pub use cut::TensorCut;

use crate::config::ModelConfig;
use crate::error::ModelError;
use crate::names::{Role, TensorSpec};

/// The plan of one world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardPlan {
    pub tp: usize,
    pub ep: usize,
    pub ranks: Vec<RankPlan>,
    head_dim: usize,
    index_dim: usize,
}

/// What one rank holds. Ranges count heads, values of a width, experts, or vocabulary rows of the full model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankPlan {
    pub rank: usize,
    pub query_heads: Range<usize>,
    pub kv_heads: Range<usize>,
    /// One per KV head held.
    pub index_heads: Range<usize>,
    /// Ranks that hold a copy of this rank's KV and index heads, itself included.
    pub kv_copies: usize,
    pub dense_width: Range<usize>,
    pub shared_width: Range<usize>,
    /// Part of each held expert's width.
    pub expert_width: Range<usize>,
    pub experts: Range<usize>,
    /// Expert group and place inside it.
    pub expert_group: usize,
    pub expert_group_rank: usize,
    /// Rows of embedding and head; the last ranks may have fewer.
    pub vocab: Range<usize>,
}

/// Part of a tensor on a rank: rows over the first dim, columns over the last of two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    pub rows: Range<u64>,
    /// `None` = all.
    pub columns: Option<Range<u64>>,
}

impl ShardPlan {
    /// Plans `tp` ranks in `ep` expert groups; every count that does not divide is in one error.
    pub fn new(config: &ModelConfig, tp: usize, ep: usize) -> Result<Self, ModelError> {
        let reasons = refusals(config, tp, ep);
        if !reasons.is_empty() {
            return Err(ModelError::Shard { tp, ep, reasons });
        }
        let ranks = (0..tp).map(|rank| plan_rank(config, tp, ep, rank)).collect();
        Ok(ShardPlan {
            tp,
            ep,
            ranks,
            head_dim: config.text.head_dim,
            index_dim: config.text.sparse.index_dim,
        })
    }

    pub fn rank(&self, rank: usize) -> Result<&RankPlan, ModelError> {
        self.ranks.get(rank).ok_or(ModelError::Rank { rank, tp: self.tp })
    }

    /// The part of a tensor that `rank` holds; `None` when it holds nothing of it (an expert of another group, a rank
    /// outside the plan).
    pub fn part(&self, rank: usize, spec: &TensorSpec) -> Option<Cut> {
        let plan = self.ranks.get(rank)?;
        let heads = |range: &Range<usize>, dim: usize| range.start * dim..range.end * dim;
        match spec.role {
            Role::Norm | Role::Router | Role::IndexKey | Role::Vision => Some(whole(spec)),
            Role::Embedding | Role::Head => Some(rows(&plan.vocab)),
            Role::Query => Some(rows(&heads(&plan.query_heads, self.head_dim))),
            Role::KeyValue => Some(rows(&heads(&plan.kv_heads, self.head_dim))),
            Role::IndexQuery => Some(rows(&heads(&plan.index_heads, self.index_dim))),
            Role::AttentionOut => Some(columns(spec, &heads(&plan.query_heads, self.head_dim))),
            Role::DenseUp => Some(rows(&plan.dense_width)),
            Role::DenseDown => Some(columns(spec, &plan.dense_width)),
            Role::SharedUp => Some(rows(&plan.shared_width)),
            Role::SharedDown => Some(columns(spec, &plan.shared_width)),
            Role::ExpertUp { expert } => plan.experts.contains(&expert).then(|| rows(&plan.expert_width)),
            Role::ExpertDown { expert } => {
                plan.experts.contains(&expert).then(|| columns(spec, &plan.expert_width))
            }
        }
    }

    /// Whether a linear's output on a rank is only a partial sum that all ranks must add up.
    pub fn is_partial_sum(&self, role: Role) -> bool {
        let in_group = self.tp / self.ep;
        match role {
            Role::AttentionOut | Role::DenseDown | Role::SharedDown => self.tp > 1,
            // Groups add up over experts, ranks of a group over the width.
            Role::ExpertDown { .. } => in_group > 1 || self.ep > 1,
            _ => false,
        }
    }
}

fn whole(spec: &TensorSpec) -> Cut {
    Cut { rows: 0..spec.shape[0], columns: None }
}

fn rows(range: &Range<usize>) -> Cut {
    Cut { rows: range.start as u64..range.end as u64, columns: None }
}

fn columns(spec: &TensorSpec, range: &Range<usize>) -> Cut {
    Cut { rows: 0..spec.shape[0], columns: Some(range.start as u64..range.end as u64) }
}

/// Every reason why the model cannot be cut this way.
fn refusals(config: &ModelConfig, tp: usize, ep: usize) -> Vec<String> {
    let text = &config.text;
    if tp == 0 || ep == 0 {
        return vec!["both must be at least 1".to_owned()];
    }
    if !tp.is_multiple_of(ep) {
        return vec![format!("{tp} ranks do not divide into {ep} expert groups")];
    }
    let mut reasons = Vec::new();
    let mut divide = |what: &str, count: usize, over: usize| {
        if !count.is_multiple_of(over) {
            reasons.push(format!("{count} {what} do not divide by {over}"));
        }
    };
    divide("query heads", text.num_heads, tp);
    if tp <= text.num_kv_heads {
        divide("KV heads", text.num_kv_heads, tp);
    } else {
        divide("ranks (copies of KV heads)", tp, text.num_kv_heads);
    }
    divide("values of dense width", text.dense_intermediate_size, tp);
    divide("values of shared expert width", text.shared_intermediate_size, tp);
    divide("experts", text.num_experts, ep);
    divide("values of expert width", text.expert_intermediate_size, tp / ep);
    let rows = text.vocab_size.div_ceil(tp);
    if rows * (tp - 1) >= text.vocab_size {
        let vocab = text.vocab_size;
        reasons.push(format!("{vocab} vocabulary rows in parts of {rows} leave a rank without any"));
    }
    reasons
}

fn plan_rank(config: &ModelConfig, tp: usize, ep: usize, rank: usize) -> RankPlan {
    let text = &config.text;
    let part = |total: usize, parts: usize, at: usize| at * (total / parts)..(at + 1) * (total / parts);
    let kv_copies = tp.div_ceil(text.num_kv_heads).max(1);
    let kv_heads = part(text.num_kv_heads, tp / kv_copies, rank / kv_copies);
    let group_size = tp / ep;
    let (expert_group, expert_group_rank) = (rank / group_size, rank % group_size);
    let vocab_rows = text.vocab_size.div_ceil(tp);
    RankPlan {
        rank,
        query_heads: part(text.num_heads, tp, rank),
        index_heads: kv_heads.clone(),
        kv_heads,
        kv_copies,
        dense_width: part(text.dense_intermediate_size, tp, rank),
        shared_width: part(text.shared_intermediate_size, tp, rank),
        expert_width: part(text.expert_intermediate_size, group_size, expert_group_rank),
        experts: part(text.num_experts, ep, expert_group),
        expert_group,
        expert_group_rank,
        vocab: rank * vocab_rows..text.vocab_size.min((rank + 1) * vocab_rows),
    }
}
