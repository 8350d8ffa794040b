//! Arithmetic of pages: how many bytes one takes and where a value lies in the canonical order.
//!
//! One page id covers K, V and, on sparse layers, index-K of every layer for `page_tokens` tokens. The canonical
//! order (layer, lane, KV head, token, dim) is what `read_pages` and `write_pages` speak; what a backend keeps in
//! memory is its own affair. Nothing here owns memory.

use m3_abi::types::{DTYPE_BF16, DTYPE_F32, DTYPE_FP8_E4M3};

use crate::config::{AttentionKind, TextConfig};

/// One of the three things kept per token and layer, in canonical order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    K,
    V,
    /// The indexer's key: one head, sparse layers only, replicated on every rank.
    IndexK,
}

/// A lane of a layer inside a canonical page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LanePlace {
    pub layer: usize,
    pub lane: Lane,
    /// First value, in values from the start of the page.
    pub offset: usize,
    /// Heads on this rank.
    pub num_heads: usize,
    /// Values per head and token.
    pub dim: usize,
}

/// Layout of a page of one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageLayout {
    pub page_tokens: usize,
    pub value_bytes: usize,
    /// Values per page.
    pub page_values: usize,
    lanes: Vec<LanePlace>,
    /// Index of the first lane of each layer.
    first_lane: Vec<usize>,
}

/// Why a layout cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PageError {
    #[error("KV dtype {0} is not one of f32, bf16 and fp8 e4m3")]
    Dtype(u32),
    #[error("a page of {page_tokens} tokens is not the sparse block of {block_size}")]
    PageTokens { page_tokens: usize, block_size: usize },
    #[error("{num_kv_heads} KV heads cannot be shared by {tp} ranks: neither divides the other")]
    Heads { num_kv_heads: usize, tp: usize },
}

/// Bytes of one value of a `DTYPE_*`.
pub fn value_bytes(kv_dtype: u32) -> Result<usize, PageError> {
    match kv_dtype {
        DTYPE_F32 => Ok(4),
        DTYPE_BF16 => Ok(2),
        DTYPE_FP8_E4M3 => Ok(1),
        other => Err(PageError::Dtype(other)),
    }
}

/// KV heads of one of `tp` ranks: cut while there are enough, then one replicated head each.
pub fn kv_heads_per_rank(num_kv_heads: usize, tp: usize) -> Result<usize, PageError> {
    if tp > 0 && num_kv_heads.is_multiple_of(tp) {
        Ok(num_kv_heads / tp)
    } else if tp > 0 && tp.is_multiple_of(num_kv_heads) {
        Ok(1)
    } else {
        Err(PageError::Heads { num_kv_heads, tp })
    }
}

impl PageLayout {
    /// Pages of one of `tp` ranks.
    ///
    /// # Errors
    /// `page_tokens` that differ from the sparse block, an unknown dtype, a world the KV heads cannot be shared by.
    pub fn new(config: &TextConfig, tp: usize, kv_dtype: u32, page_tokens: usize) -> Result<Self, PageError> {
        let value_bytes = value_bytes(kv_dtype)?;
        let kv_heads = kv_heads_per_rank(config.num_kv_heads, tp)?;
        let block_size = config.sparse.block_size;
        if page_tokens == 0 || page_tokens != block_size {
            return Err(PageError::PageTokens { page_tokens, block_size });
        }
        let (mut lanes, mut first_lane, mut offset) = (Vec::new(), Vec::new(), 0);
        for (layer, plan) in config.layers.iter().enumerate() {
            first_lane.push(lanes.len());
            let mut push = |lane, num_heads, dim| {
                lanes.push(LanePlace { layer, lane, offset, num_heads, dim });
                offset += num_heads * page_tokens * dim;
            };
            push(Lane::K, kv_heads, config.head_dim);
            push(Lane::V, kv_heads, config.head_dim);
            if plan.attention == AttentionKind::Sparse {
                push(Lane::IndexK, 1, config.sparse.index_dim);
            }
        }
        Ok(PageLayout { page_tokens, value_bytes, page_values: offset, lanes, first_lane })
    }

    /// Bytes of one page: what `ready` reports.
    pub fn page_bytes(&self) -> usize {
        self.page_values * self.value_bytes
    }

    /// Every lane in canonical order.
    pub fn lanes(&self) -> &[LanePlace] {
        &self.lanes
    }

    /// A lane of a layer; `None` for index-K of a dense layer.
    pub fn lane(&self, layer: usize, lane: Lane) -> Option<&LanePlace> {
        self.lanes.get(self.first_lane.get(layer)? + lane as usize).filter(|place| place.layer == layer)
    }

    /// Where the `dim` values of (head, token of the page) start inside a canonical page, in values.
    pub fn value_offset(&self, place: &LanePlace, head: usize, token: usize) -> usize {
        place.offset + (head * self.page_tokens + token) * place.dim
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{FfnKind, LayerPlan, SparseConfig};

    /// 60 layers of M3, or as many as given.
    fn config(num_layers: usize) -> TextConfig {
        let plan = |layer: usize| match layer {
            0..3 => LayerPlan { attention: AttentionKind::Dense, ffn: FfnKind::Dense },
            _ => LayerPlan { attention: AttentionKind::Sparse, ffn: FfnKind::Moe },
        };
        TextConfig {
            hidden_size: 6144,
            vocab_size: 200_064,
            max_position_embeddings: 1 << 20,
            num_heads: 64,
            num_kv_heads: 4,
            head_dim: 128,
            rotary_dim: 64,
            rope_theta: 5e6,
            norm_eps: 1e-6,
            dense_intermediate_size: 12_288,
            expert_intermediate_size: 3072,
            shared_intermediate_size: 3072,
            num_experts: 128,
            experts_per_token: 4,
            routed_scaling_factor: 2.0,
            swiglu_alpha: 1.702,
            swiglu_limit: 7.0,
            sparse: SparseConfig {
                num_index_heads: 4,
                index_dim: 128,
                block_size: 128,
                topk_blocks: 16,
                init_blocks: 0,
                local_blocks: 1,
            },
            layers: (0..num_layers).map(plan).collect(),
        }
    }

    #[test]
    fn bytes_per_token_of_m3() {
        let bytes =
            |tp, dtype| PageLayout::new(&config(60), tp, dtype, 128).map(|layout| layout.page_bytes());
        assert_eq!(bytes(1, DTYPE_BF16), Ok(128 * 137_472));
        assert_eq!(bytes(4, DTYPE_BF16), Ok(128 * (122_880 / 4 + 14_592)));
        assert_eq!(bytes(8, DTYPE_BF16), bytes(4, DTYPE_BF16), "KV heads are replicated beyond their number");
        assert_eq!(bytes(1, DTYPE_FP8_E4M3), Ok(128 * 137_472 / 2));
        assert_eq!(bytes(1, DTYPE_F32), Ok(128 * 137_472 * 2));
    }

    #[test]
    fn lanes_lie_in_canonical_order_without_gaps() {
        let layout = PageLayout::new(&config(5), 2, DTYPE_BF16, 128).unwrap();
        let mut offset = 0;
        for place in layout.lanes() {
            assert_eq!(place.offset, offset);
            assert_eq!(layout.lane(place.layer, place.lane), Some(place));
            offset += place.num_heads * 128 * place.dim;
        }
        assert_eq!(offset, layout.page_values);
        let order: Vec<_> = layout.lanes().iter().map(|place| (place.layer, place.lane)).collect();
        assert!(order.is_sorted());
        assert_eq!(layout.lane(2, Lane::IndexK), None);
        assert_eq!(layout.lane(4, Lane::IndexK).map(|place| place.num_heads), Some(1));
        assert_eq!(layout.lane(5, Lane::K), None);
        let value = layout.lane(1, Lane::V).unwrap();
        assert_eq!(layout.value_offset(value, 1, 3), value.offset + (128 + 3) * 128);
    }

    #[test]
    fn impossible_layouts_are_refused_by_name() {
        let refuse = |tp, dtype, page| PageLayout::new(&config(4), tp, dtype, page).unwrap_err().to_string();
        assert_eq!(refuse(1, 8, 128), "KV dtype 8 is not one of f32, bf16 and fp8 e4m3");
        assert_eq!(refuse(1, DTYPE_F32, 64), "a page of 64 tokens is not the sparse block of 128");
        let heads = "4 KV heads cannot be shared by 3 ranks: neither divides the other";
        assert_eq!(refuse(3, DTYPE_F32, 128), heads);
        assert!(refuse(0, DTYPE_F32, 128).contains("0 ranks"));
    }
}
