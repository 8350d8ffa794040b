//! Block-sparse attention: which blocks a token sees, and attention over them.
//!
//! A block is `block_size` consecutive positions counted from position 0 of the sequence, so chunks and cached
//! prefixes change nothing. Each token chooses for itself, per index head; index head g chooses for KV head g.
//! Dense layers are the same attention over every block.

use crate::config::SparseConfig;

use super::math::dot;

/// Score of a block whose best dot product is NaN: loses to every real score.
pub const NAN_SCORE: f32 = -1e30;

/// Keys (or values) of one head of one block: `[tokens, dim]`, contiguous.
pub trait Blocks {
    fn block(&self, block: usize) -> &[f32];
}

/// Greatest dot product of the index query with the visible index keys of each block, for a token at `position`.
pub fn block_scores(query: &[f32], keys: &impl Blocks, position: usize, block_size: usize) -> Vec<f32> {
    let num_blocks = position / block_size + 1;
    let score = |block: usize| {
        let visible = visible_tokens(block, position, block_size);
        let keys = keys.block(block)[..visible * query.len()].chunks(query.len());
        // `f32::max` drops NaN, which must not hide in a block: any NaN makes the block's score NAN_SCORE.
        keys.map(|key| dot(query, key))
            .reduce(|best, score| if best.is_nan() || score.is_nan() { f32::NAN } else { best.max(score) })
            .filter(|score| !score.is_nan())
            .unwrap_or(NAN_SCORE)
    };
    (0..num_blocks).map(score).collect()
}

/// Ids, ascending, of the blocks to attend to: the first `init_blocks` and the last `local_blocks` are forced and
/// count inside `topk_blocks`; the rest goes by score, ties to the lower id.
pub fn select(scores: &[f32], config: &SparseConfig) -> Vec<usize> {
    let num_blocks = scores.len();
    let is_forced = |block: usize| block < config.init_blocks || block + config.local_blocks >= num_blocks;
    let mut order: Vec<usize> = (0..num_blocks).collect();
    order.sort_by(|&left, &right| match (is_forced(left), is_forced(right)) {
        (true, true) => left.cmp(&right),
        (true, false) => std::cmp::Ordering::Less,
        (false, true) => std::cmp::Ordering::Greater,
        // `+ 0.0` makes -0 equal to 0. The sort is stable: equal scores stay in ascending order of ids.
        (false, false) => (scores[right] + 0.0).total_cmp(&(scores[left] + 0.0)),
    });
    order.truncate(config.topk_blocks);
    order.sort_unstable();
    order
}

/// Softmax attention of one query head over the visible keys of `blocks`; `output` is [dim of a value].
///
/// Two passes over the scores, no running maximum: the plain formula.
pub fn attend(
    query: &[f32],
    keys: &impl Blocks,
    values: &impl Blocks,
    blocks: &[usize],
    place: Place,
    output: &mut [f32],
) {
    let scale = 1.0 / (query.len() as f32).sqrt();
    let mut scores = Vec::new();
    for &block in blocks {
        let visible = visible_tokens(block, place.position, place.block_size);
        let keys = keys.block(block)[..visible * query.len()].chunks(query.len());
        scores.extend(keys.map(|key| dot(query, key) * scale));
    }
    let highest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut sum = 0.0;
    for score in &mut scores {
        *score = (*score - highest).exp();
        sum += *score;
    }
    output.fill(0.0);
    let mut weights = scores.iter();
    for &block in blocks {
        let visible = visible_tokens(block, place.position, place.block_size);
        let values = values.block(block)[..visible * output.len()].chunks(output.len());
        for (value, weight) in values.zip(&mut weights) {
            output.iter_mut().zip(value).for_each(|(output, value)| *output += weight * value);
        }
    }
    output.iter_mut().for_each(|output| *output /= sum);
}

/// Where a query stands.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub position: usize,
    pub block_size: usize,
}

/// Tokens of `block` that a query at `position` may see.
fn visible_tokens(block: usize, position: usize, block_size: usize) -> usize {
    (position + 1 - block * block_size).min(block_size)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(topk_blocks: usize, init_blocks: usize, local_blocks: usize) -> SparseConfig {
        SparseConfig {
            num_index_heads: 1,
            index_dim: 1,
            block_size: 128,
            topk_blocks,
            init_blocks,
            local_blocks,
        }
    }

    /// One-dimensional keys, `block_size` per block.
    struct Keys(Vec<Vec<f32>>);

    impl Blocks for Keys {
        fn block(&self, block: usize) -> &[f32] {
            &self.0[block]
        }
    }

    #[test]
    fn position_2048_has_17_blocks_and_keeps_the_newest() {
        let keys = Keys((0..17).map(|block| vec![block as f32 - 100.0; 128]).collect());
        let scores = block_scores(&[-1.0], &keys, 2048, 128);
        assert_eq!(scores.len(), 17);
        // Scores fall with the id, so block 16 would be the last choice: it is forced, and block 15 is dropped.
        let selected = select(&scores, &config(16, 0, 1));
        assert_eq!(selected, (0..15).chain([16]).collect::<Vec<_>>());
        assert_eq!(select(&scores[..16], &config(16, 0, 1)), (0..16).collect::<Vec<_>>());
    }

    #[test]
    fn keys_after_the_token_are_not_scored() {
        let keys = Keys(vec![vec![1.0, 2.0, 3.0, 4.0], vec![5.0, 9.0, 9.0, 9.0]]);
        assert_eq!(block_scores(&[1.0], &keys, 4, 4), [4.0, 5.0]);
        assert_eq!(block_scores(&[1.0], &keys, 2, 4), [3.0]);
    }

    #[test]
    fn ties_go_to_the_lower_id_and_forced_blocks_count() {
        let cases: [(&[f32], SparseConfig, &[usize]); 6] = [
            (&[1.0, 1.0, 1.0, 1.0], config(2, 0, 1), &[0, 3]),
            (&[0.0, 2.0, 2.0, 2.0, 0.0], config(3, 0, 1), &[1, 2, 4]),
            (&[0.0, 2.0, 3.0, 4.0, 0.0], config(3, 1, 1), &[0, 3, 4]),
            (&[0.0, 2.0, 3.0, 4.0, 0.0], config(3, 0, 2), &[2, 3, 4]),
            (&[-0.0, 0.0, -1.0], config(2, 0, 1), &[0, 2]),
            (&[5.0], config(4, 0, 1), &[0]),
        ];
        for (scores, config, selected) in cases {
            assert_eq!(select(scores, &config), selected, "{scores:?} {config:?}");
        }
    }

    #[test]
    fn nan_scores_lose_without_hiding_the_others() {
        let keys = Keys(vec![vec![f32::NAN, 50.0], vec![-1e9, -1e9], vec![1.0, 1.0]]);
        let scores = block_scores(&[1.0], &keys, 5, 2);
        assert_eq!(scores, [NAN_SCORE, -1e9, 1.0]);
        assert_eq!(select(&scores, &config(2, 0, 1)), [1, 2]);
    }

    #[test]
    fn attention_over_chosen_blocks_ignores_the_rest() {
        let keys = Keys(vec![vec![0.0, 0.0], vec![1e3, 1e3], vec![0.0, 7.0]]);
        let values = Keys(vec![vec![1.0, 2.0], vec![1e6, 1e6], vec![6.0, 1e6]]);
        let mut output = [0.0];
        let place = Place { position: 4, block_size: 2 };
        attend(&[1.0], &keys, &values, &[0, 2], place, &mut output);
        assert!((output[0] - 3.0).abs() < 1e-6, "{output:?}");
    }
}
