//! The arrays of one step side by side in memory: laid out for a bucket, written to pinned memory, sent in one copy.
//!
//! The layout depends on the (padded) counts alone, so every bucket's arrays have fixed addresses, as graphs need.

use m3_abi::Result;
use m3_gpu::launch::DevicePointer;
use m3_gpu::memory::Region;
use m3_gpu::staging::{Field, Layout, StepArrays};

use super::pack::Packed;
use super::sampling::{Position, RowSettings, Sampling};

/// Counts that fix a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Counts {
    /// Padded tokens.
    pub(crate) tokens: usize,
    pub(crate) chunks: usize,
    /// Padded logits positions.
    pub(crate) logits: usize,
    /// Rows of the table.
    pub(crate) rows: usize,
}

/// Words in front: tokens that are no padding; then what a dense MLP needs to be an MoE of one expert: 0 and that count.
const HEADER: usize = 8;
const HEADER_RANGE: u64 = 16;

/// Where each array lies.
#[derive(Clone, Debug)]
pub(crate) struct StepLayout {
    pub(crate) counts: Counts,
    pub(crate) layout: Layout,
    header: Field<i32>,
    token_ids: Field<i32>,
    token_row: Field<i32>,
    positions: Field<i32>,
    slots: Field<i64>,
    chunk_row: Field<i32>,
    chunk_first_token: Field<i32>,
    chunk_len: Field<i32>,
    chunk_first_position: Field<i32>,
    chunk_first_item: Field<i32>,
    logits_token: Field<i32>,
    sample_positions: Field<Position>,
    sample_rows: Field<RowSettings>,
}

/// Addresses of the arrays on the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrays {
    /// i32: tokens that are no padding.
    pub(crate) live: DevicePointer,
    /// i32 [2]: 0 and that count.
    pub(crate) live_range: DevicePointer,
    pub(crate) token_ids: DevicePointer,
    pub(crate) token_row: DevicePointer,
    pub(crate) positions: DevicePointer,
    pub(crate) slots: DevicePointer,
    pub(crate) chunk_row: DevicePointer,
    pub(crate) chunk_first_token: DevicePointer,
    pub(crate) chunk_len: DevicePointer,
    pub(crate) chunk_first_position: DevicePointer,
    pub(crate) chunk_first_item: DevicePointer,
    pub(crate) logits_token: DevicePointer,
    pub(crate) sample_positions: DevicePointer,
    pub(crate) sample_rows: DevicePointer,
}

impl StepLayout {
    pub(crate) fn new(counts: Counts) -> StepLayout {
        let mut layout = Layout::new();
        let Counts { tokens, chunks, logits, rows } = counts;
        StepLayout {
            counts,
            header: layout.field("header", HEADER),
            token_ids: layout.field("token ids", tokens),
            token_row: layout.field("token rows", tokens),
            positions: layout.field("positions", tokens),
            slots: layout.field("slots", tokens),
            chunk_row: layout.field("chunk rows", chunks),
            chunk_first_token: layout.field("first tokens of chunks", chunks),
            chunk_len: layout.field("chunk lengths", chunks),
            chunk_first_position: layout.field("first positions of chunks", chunks),
            chunk_first_item: layout.field("first pages of chunks", chunks + 1),
            logits_token: layout.field("logits tokens", logits),
            sample_positions: layout.field("sampled positions", logits),
            sample_rows: layout.field("sampling settings", rows),
            layout,
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.layout.bytes()
    }

    /// Addresses when the arrays start at `start`.
    pub(crate) fn at(&self, start: Region) -> Arrays {
        let header = self.header.pointer(start);
        Arrays {
            live: header,
            live_range: header.offset(HEADER_RANGE),
            token_ids: self.token_ids.pointer(start),
            token_row: self.token_row.pointer(start),
            positions: self.positions.pointer(start),
            slots: self.slots.pointer(start),
            chunk_row: self.chunk_row.pointer(start),
            chunk_first_token: self.chunk_first_token.pointer(start),
            chunk_len: self.chunk_len.pointer(start),
            chunk_first_position: self.chunk_first_position.pointer(start),
            chunk_first_item: self.chunk_first_item.pointer(start),
            logits_token: self.logits_token.pointer(start),
            sample_positions: self.sample_positions.pointer(start),
            sample_rows: self.sample_rows.pointer(start),
        }
    }

    /// Writes a step that was padded to the counts of this layout; `num_live` tokens of it are no padding.
    pub(crate) fn write(
        &self,
        to: &mut StepArrays<'_>,
        packed: &Packed,
        sampling: &Sampling,
        num_live: usize,
    ) -> Result<()> {
        let live = num_live as i32;
        to.write(self.header, &[live, 0, 0, 0, 0, live, 0, 0])?;
        to.write(self.token_ids, &packed.token_ids)?;
        to.write(self.token_row, &packed.token_row)?;
        to.write(self.positions, &packed.positions)?;
        to.write(self.slots, &packed.slots)?;
        let chunks = &packed.chunks;
        to.write(self.chunk_row, &chunks.row)?;
        to.write(self.chunk_first_token, &chunks.first_token)?;
        to.write(self.chunk_len, &chunks.len)?;
        to.write(self.chunk_first_position, &chunks.first_position)?;
        to.write(self.chunk_first_item, &chunks.first_item)?;
        to.write(self.logits_token, &packed.logits_token)?;
        to.write(self.sample_positions, &sampling.positions)?;
        to.write(self.sample_rows, &sampling.rows)?;
        Ok(())
    }
}
