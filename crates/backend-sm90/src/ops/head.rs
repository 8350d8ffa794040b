//! First and last operations: embedding and rotation angles; final norm, head and sampling.
//!
//! Logits of a step may be many (log-probabilities of a prompt), so they are made a pass at a time and sampled before the
//! next. Results stay on the device until the step is waited for.

use m3_abi::{Error, Result};
use m3_gpu::launch::DevicePointer;
use m3_gpu::memory::Region;
use m3_gpu::staging::{Field, Layout};
use m3_model::batch::Batch;
use m3_model::taps::TapPoint;

use super::work::at;
use super::{Rank, blocks, launched};
use crate::kernels::{
    EmbedArguments, GatherNormArguments, RopeAngles, RopeAnglesArguments, SampleChooseArguments,
    SampleLogprobsArguments, SampleScan, SampleScanArguments,
};
use crate::step::sampling::{Position, RowSettings};

/// What `sample_scan` leaves of a part of a row.
pub(crate) const PART_BYTES: usize = 24;

/// Results of a step's logits positions, in their order.
#[derive(Clone, Debug)]
pub(crate) struct OutLayout {
    layout: Layout,
    pub(crate) tokens: Field<u32>,
    pub(crate) faults: Field<u32>,
    pub(crate) logprobs: Field<f32>,
    pub(crate) ranks: Field<u32>,
    pub(crate) top_ids: Field<u32>,
    pub(crate) top_logprobs: Field<f32>,
}

impl OutLayout {
    /// For `positions` with up to `top` alternatives each.
    pub(crate) fn new(positions: usize, top: usize) -> OutLayout {
        let mut layout = Layout::new();
        OutLayout {
            tokens: layout.field("tokens", positions),
            faults: layout.field("faults", positions),
            logprobs: layout.field("log-probabilities", positions),
            ranks: layout.field("ranks", positions),
            top_ids: layout.field("alternatives", positions * top),
            top_logprobs: layout.field("their log-probabilities", positions * top),
            layout,
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.layout.bytes()
    }

    /// Of the arrays without alternatives, which stand in front.
    pub(crate) fn bytes_before_top(&self) -> u64 {
        self.top_ids.pointer(Region::EMPTY).0
    }
}

/// Some positions of a step, sampled together.
#[derive(Clone, Copy)]
struct Pass {
    first: usize,
    count: usize,
}

impl Rank {
    pub(super) fn embed_tokens(&mut self, batch: &Batch) -> Result<()> {
        if let Some(media) = batch.media.first() {
            // `encode` is refused, so no handle can exist.
            return Err(Error::Fatal(format!("media handle {} does not exist", media.handle)));
        }
        let (tokens, buffers, arrays) = (self.run.counts.tokens, &self.work.buffers, &self.run.arrays);
        let arguments = EmbedArguments {
            ids: arrays.token_ids,
            token_rows: arrays.token_row,
            last_tokens: buffers.last_tokens.pointer,
            media_index: DevicePointer::NULL,
            media: DevicePointer::NULL,
            table: self.weights.model.embedding.values,
            out: buffers.residual.pointer,
            first_id: self.dims.vocab_part.start as i32,
            num_ids: self.dims.vocab_part.len() as i32,
        };
        launched(self.kernels.embed.launch(&self.queue(), [tokens as u32, 1, 1], &arguments))?;
        let arguments = RopeAnglesArguments {
            positions: arrays.positions,
            frequencies: buffers.frequencies.pointer,
            angles: buffers.angles.pointer,
            tokens: tokens as i32,
        };
        let grid = [blocks(tokens, RopeAngles::BLOCK_T), 1, 1];
        launched(self.kernels.rope_angles.launch(&self.queue(), grid, &arguments))?;
        self.has_pending = false;
        Ok(())
    }

    /// Normed rows of the logits positions into `hidden`.
    pub(super) fn final_norm(&mut self) -> Result<()> {
        let (count, buffers) = (self.run.counts.logits, &self.work.buffers);
        let arguments = GatherNormArguments {
            residual: buffers.residual.pointer,
            pending: buffers.pending.pointer,
            weight: self.weights.model.norm.values,
            tokens: self.run.arrays.logits_token,
            out: buffers.hidden.pointer,
            eps: self.config.norm_eps,
        };
        launched(self.kernels.gather_norm.launch(&self.queue(), [count as u32, 1, 1], &arguments))?;
        self.has_pending = false;
        if self.taps.is_on() {
            let hidden = self.dims.hidden;
            let values = self.bf16_of(self.work.buffers.hidden, count * hidden)?;
            self.taps.append(TapPoint::Hidden, hidden, &values);
        }
        Ok(())
    }

    /// Head and choice at every logits position.
    pub(super) fn sample_positions(&mut self) -> Result<()> {
        let count = self.run.counts.logits;
        let most = self.work.sizes.logits_rows;
        for first in (0..count).step_by(most) {
            let pass = Pass { first, count: most.min(count - first) };
            let (hidden, vocab) = (self.dims.hidden, self.dims.vocab_part.len());
            let rows = at(self.work.buffers.hidden, first * hidden, 2);
            let head = self.weights.model.head;
            self.gemm_f32(rows, &head, self.work.buffers.logits.pointer, pass.count)?;
            if self.taps.is_on() {
                let logits = self.f32_of(self.work.buffers.logits, pass.count * vocab)?;
                self.taps.append(TapPoint::Logits, vocab, &logits);
            }
            self.choose(pass)?;
        }
        Ok(())
    }

    fn choose(&self, pass: Pass) -> Result<()> {
        let (buffers, arrays) = (&self.work.buffers, &self.run.arrays);
        let vocab = self.dims.vocab_part.len();
        let num_parts = blocks(vocab, SampleScan::PART);
        let positions = arrays.sample_positions.offset((pass.first * size_of::<Position>()) as u64);
        debug_assert_eq!(size_of::<RowSettings>(), 64);
        let arguments = SampleScanArguments {
            logits: buffers.logits.pointer,
            adjusted: buffers.adjusted.pointer,
            positions,
            rows: arrays.sample_rows,
            counts: buffers.counts.pointer,
            biases: buffers.biases.pointer,
            masks: buffers.masks.pointer,
            drafts: arrays.token_ids,
            parts: buffers.sample_parts.pointer,
            vocab: vocab as i32,
        };
        let grid = [num_parts, pass.count as u32, 1];
        launched(self.kernels.sample_scan.launch(&self.queue(), grid, &arguments))?;
        let out = self.out_layout();
        let region = buffers.sample_out;
        let arguments = SampleChooseArguments {
            logits: buffers.logits.pointer,
            adjusted: buffers.adjusted.pointer,
            positions,
            rows: arrays.sample_rows,
            counts: buffers.counts.pointer,
            parts: buffers.sample_parts.pointer,
            tokens: out.tokens.pointer(region),
            faults: out.faults.pointer(region),
            last_tokens: buffers.last_tokens.pointer,
            vocab: vocab as i32,
            num_parts: num_parts as i32,
        };
        let grid = [pass.count as u32, 1, 1];
        launched(self.kernels.sample_choose.launch(&self.queue(), grid, &arguments))?;
        if self.run.with_logprobs { self.log_probabilities(pass, positions, &out, region) } else { Ok(()) }
    }

    fn log_probabilities(
        &self,
        pass: Pass,
        positions: DevicePointer,
        out: &OutLayout,
        region: Region,
    ) -> Result<()> {
        let (buffers, vocab) = (&self.work.buffers, self.dims.vocab_part.len());
        let top = self.work.sizes.max_logprobs;
        let or_null = |pointer| if top > 0 { pointer } else { DevicePointer::NULL };
        let arguments = SampleLogprobsArguments {
            logits: buffers.logits.pointer,
            positions,
            rows: self.run.arrays.sample_rows,
            parts: buffers.sample_parts.pointer,
            tokens: out.tokens.pointer(region),
            logprobs: out.logprobs.pointer(region),
            ranks: out.ranks.pointer(region),
            top_ids: or_null(out.top_ids.pointer(region)),
            top_logprobs: or_null(out.top_logprobs.pointer(region)),
            vocab: vocab as i32,
            num_parts: blocks(vocab, SampleScan::PART) as i32,
            top_capacity: top as i32,
        };
        launched(self.kernels.sample_logprobs.launch(&self.queue(), [pass.count as u32, 1, 1], &arguments))
    }

    /// Of this step's results.
    pub(crate) fn out_layout(&self) -> OutLayout {
        OutLayout::new(self.run.counts.logits, self.work.sizes.max_logprobs)
    }
}
