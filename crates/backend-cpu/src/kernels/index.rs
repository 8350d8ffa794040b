//! The indexer: the best index dot product per block, and the choice of blocks.
//!
//! Scores are those of `m3_model::reference`: raw dot products, the newest and leading blocks forced inside the
//! count, ties to the lower id, NaN loses to every real score. No attention here.

use super::Kernels;
use super::gemm::{Rows, Tile};
use super::matrix::{Format, Matrix};
use m3_model::config::SparseConfig;

/// Score of a block with a NaN dot product.
const NAN_SCORE: f32 = -1e30;

impl Kernels {
    /// Dot products of `queries` with the first `visible` index keys of a page into `scores`
    /// (`[queries, page_tokens]`).
    ///
    /// # Safety
    /// `keys` is good for `visible` rows of `queries.width` values of `format`; nobody writes them meanwhile.
    pub(crate) unsafe fn index_dots(
        &self,
        queries: Rows<'_>,
        format: Format,
        keys: *const u8,
        visible: usize,
        scores: &mut [f32],
    ) {
        let stride = scores.len() / queries.len;
        assert!(stride >= visible, "{visible} keys in rows of {stride} scores");
        let keys = Matrix::raw(format, keys, visible, queries.width);
        let out = scores.as_mut_ptr();
        // SAFETY: `scores` holds `queries.len` rows of `stride`; keys by the caller's promise.
        unsafe {
            self.gemm_tile(&Tile { x: queries, w: &keys, first: 0, last: visible, out, out_stride: stride })
        }
    }
}

/// The score of a block from its visible dot products; any NaN makes it the loser.
pub(crate) fn block_score(dots: &[f32]) -> f32 {
    let (mut best, mut has_nan) = (f32::NEG_INFINITY, false);
    for &dot in dots {
        has_nan |= dot.is_nan();
        best = best.max(dot);
    }
    if has_nan { NAN_SCORE } else { best }
}

/// Ids of the chosen blocks, ascending, in `chosen[..n]`; returns n. `order` is scratch.
pub(crate) fn select(
    scores: &[f32],
    sparse: &SparseConfig,
    order: &mut Vec<u32>,
    chosen: &mut [u32],
) -> usize {
    let num_blocks = scores.len();
    let is_forced = |block: u32| {
        (block as usize) < sparse.init_blocks || block as usize + sparse.local_blocks >= num_blocks
    };
    let count = sparse.topk_blocks.min(num_blocks);
    order.clear();
    order.extend(0..num_blocks as u32);
    if count < num_blocks {
        // `+ 0.0` makes -0 equal to 0, so that their tie goes by id.
        let key = |block: u32| scores[block as usize] + 0.0;
        order.select_nth_unstable_by(count - 1, |&left, &right| {
            let forced = is_forced(right).cmp(&is_forced(left));
            let by_score =
                if is_forced(left) { std::cmp::Ordering::Equal } else { key(right).total_cmp(&key(left)) };
            forced.then(by_score).then(left.cmp(&right))
        });
        order.truncate(count);
        order.sort_unstable();
    }
    chosen[..count].copy_from_slice(order);
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sparse(topk_blocks: usize, init_blocks: usize, local_blocks: usize) -> SparseConfig {
        SparseConfig {
            num_index_heads: 1,
            index_dim: 1,
            block_size: 128,
            topk_blocks,
            init_blocks,
            local_blocks,
        }
    }

    #[test]
    fn forced_blocks_count_and_ties_go_to_the_lower_id() {
        let cases: [(&[f32], SparseConfig, &[u32]); 8] = [
            (&[1.0, 1.0, 1.0, 1.0], sparse(2, 0, 1), &[0, 3]),
            (&[0.0, 2.0, 2.0, 2.0, 0.0], sparse(3, 0, 1), &[1, 2, 4]),
            (&[0.0, 2.0, 3.0, 4.0, 0.0], sparse(3, 1, 1), &[0, 3, 4]),
            (&[0.0, 2.0, 3.0, 4.0, 0.0], sparse(3, 0, 2), &[2, 3, 4]),
            (&[9.0, 9.0, 9.0, 9.0], sparse(2, 3, 1), &[0, 1]),
            (&[-0.0, 0.0, -1.0], sparse(2, 0, 1), &[0, 2]),
            (&[NAN_SCORE, -5.0, 0.0], sparse(2, 0, 1), &[1, 2]),
            (&[5.0], sparse(4, 0, 1), &[0]),
        ];
        for (scores, config, expected) in cases {
            let mut chosen = [0; 8];
            let count = select(scores, &config, &mut Vec::new(), &mut chosen);
            assert_eq!(&chosen[..count], expected, "{scores:?} {config:?}");
        }
    }

    #[test]
    fn a_nan_makes_its_block_lose() {
        assert_eq!(block_score(&[1.0, f32::NAN, 3.0]), NAN_SCORE);
        assert_eq!(block_score(&[f32::NAN]), NAN_SCORE);
        assert_eq!(block_score(&[1.0, 3.0, -2.0]), 3.0);
    }
}
