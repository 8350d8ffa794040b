//! What an encode takes besides weights and what it leaves: the buffers of one group of segments at their fullest. They
//! are allocated as they are needed and given back; this is so that pages leave room for them. No arithmetic on values.

use m3_model::config::VisionConfig;
use m3_model::vision::{AxialRope, longest_segment};

use super::attend::QUERY_BLOCK;
use super::{GROUP_PATCHES, MLP_ROWS};
use crate::buffer::Precision;
use crate::kernels::scores::KEY_BLOCK;

/// Lists of segments, and rows that threads work in.
const SMALL: usize = 64 << 10;

/// Widths and counts that decide it.
pub(crate) struct Shape<'a> {
    pub(crate) config: &'a VisionConfig,
    pub(crate) text_hidden: usize,
    pub(crate) precision: Precision,
    /// Keys are kept as bf16 pairs.
    pub(crate) is_pairs: bool,
    pub(crate) num_threads: usize,
}

impl Shape<'_> {
    /// Bytes for the largest media that the default sizes make in a context of `max_context` tokens. Longer segments, of
    /// pictures that ask for a long side, take more in proportion.
    pub(crate) fn bytes(&self, max_context: usize) -> usize {
        let fitting = max_context.saturating_mul(self.config.merged_patches());
        let patches = longest_segment(self.config).max(GROUP_PATCHES).min(fitting);
        let common = self.given(patches) + patches * self.config.hidden_size * 4;
        let rows = patches * self.config.row_len() * self.value();
        SMALL
            + self.tiles()
            + common
            + rows.max(self.attention(patches)).max(self.mlp()).max(self.project(patches))
    }

    /// Bytes of an activation: the value and, in bf16, its bits.
    fn value(&self) -> usize {
        match self.precision {
            Precision::F32 => 4,
            Precision::Bf16 => 6,
        }
    }

    /// What each thread unpacks of a weight for the widest product: a tile of up to 16 rows of f32.
    fn tiles(&self) -> usize {
        let merged = self.config.merged_patches() * self.text_hidden;
        let widest = merged.max(self.config.row_len()).max(self.config.intermediate_size);
        self.num_threads * widest * 16 * 4
    }

    /// The patches as they came, and the angles and places that all layers share.
    fn given(&self, patches: usize) -> usize {
        let angles = AxialRope::new(self.config).num_pairs() * 8;
        patches * (self.config.row_len() * 4 + angles + 12)
    }

    /// Normed rows, their projections, the laid-out heads, what they attend to, and each thread's scores.
    fn attention(&self, patches: usize) -> usize {
        let (hidden, padded) = (self.config.hidden_size, patches.next_multiple_of(KEY_BLOCK));
        let keys = if self.is_pairs { 2 } else { 4 };
        let rows = patches * hidden * (3 * self.value() + 3 * 4 + 4);
        let blocks = padded * hidden * (self.value() + keys);
        rows + blocks + self.num_threads * QUERY_BLOCK * padded * self.value()
    }

    fn mlp(&self) -> usize {
        MLP_ROWS * (self.config.intermediate_size * self.value() + self.config.hidden_size * 4)
    }

    /// Rows of a block, both layers of the projector and of the merge, and the features of all.
    fn project(&self, patches: usize) -> usize {
        let (config, merged) = (self.config, self.config.merged_patches());
        let pair = config.projector_hidden_size + self.text_hidden;
        let rows = MLP_ROWS * (config.hidden_size + pair) + MLP_ROWS.div_ceil(merged) * pair;
        rows * self.value() + patches / merged * self.text_hidden * 4
    }
}
