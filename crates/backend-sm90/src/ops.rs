//! M3's nine operations on Hopper: one rank, one stream; every call only puts launches into the stream.
//!
//! Values between operations live in [`Work`], so the associated types of [`Ops`] are empty: each operation reads what the
//! one before left there. What a step's launches depend on is in [`Run`]; they depend on nothing else, so that those of a
//! decode step can be recorded once per bucket. [`attention`], [`ffn`], [`head`] and [`linear`] hold the operations.

mod attention;
mod ffn;
mod head;
mod linear;
mod stream;
pub(crate) mod tiles;
pub(crate) mod work;

use std::sync::Arc;

use m3_abi::{Error, Output, Result};
use m3_gpu::device::Device;
use m3_gpu::error::GpuError;
use m3_gpu::kernels::Queue;
use m3_gpu::launch::{DevicePointer, LaunchError};
use m3_gpu::memory::Region;
use m3_gpu::stream::Stream;
use m3_model::batch::{Batch, RowTable};
use m3_model::config::TextConfig;
use m3_model::ops::Ops;
use m3_model::taps::TapPoint;

use crate::dims::Dims;
use crate::kernels::{Kernels, SampleScan, SparseAttendDecode};
use crate::pages::Pages;
use crate::step::arrays::{Arrays, Counts};
use crate::step::pack::Packed;
use crate::taps::Recorder;
use crate::weights::{Matrix, Weights};
use work::{Needs, Sizes, Work};

pub(crate) use head::{OutLayout, PART_BYTES};

/// What the launches of a step depend on: counts, bounds of loops, addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) counts: Counts,
    /// Tokens for the decode kernels; they come first.
    pub(crate) short: usize,
    /// Pages that a short sequence may have: enough programs are launched for them.
    pub(crate) short_pages: usize,
    /// Most tokens of a chunk.
    pub(crate) longest: usize,
    /// Most pages of a chunk's context.
    pub(crate) chunk_pages: usize,
    /// Pages of all chunks' contexts.
    pub(crate) items: usize,
    pub(crate) arrays: Arrays,
    /// Log-probabilities are made.
    pub(crate) with_logprobs: bool,
}

impl Run {
    /// Of a step that was padded to `counts`.
    pub(crate) fn new(packed: &Packed, counts: Counts, arrays: Arrays, page_tokens: usize) -> Run {
        let chunks = &packed.chunks;
        Run {
            counts,
            short: packed.num_short,
            short_pages: packed.last_short_position / page_tokens + 1,
            longest: chunks.longest,
            chunk_pages: chunks.deepest.div_ceil(page_tokens),
            items: chunks.first_item.last().map_or(0, |&items| items as usize),
            arrays,
            with_logprobs: true,
        }
    }
}

/// One rank's model, ready to run.
pub(crate) struct Rank {
    pub(crate) device: Device,
    /// Shared with whoever records it.
    pub(crate) stream: Arc<Stream>,
    pub(crate) kernels: Kernels,
    pub(crate) config: TextConfig,
    pub(crate) dims: Dims,
    pub(crate) weights: Weights,
    pub(crate) pages: Pages,
    pub(crate) work: Work,
    pub(crate) taps: Recorder,
    pub(crate) run: Run,
    /// Something is pending: the next norm adds it.
    pub(crate) has_pending: bool,
}

/// Turns a launch's outcome into the engine's.
pub(crate) fn launched(outcome: Result<(), LaunchError>) -> Result<()> {
    outcome.map_err(|error| GpuError::from(error).into())
}

/// Blocks that take `count` things, `each` at a time.
pub(crate) fn blocks(count: usize, each: u32) -> u32 {
    count.div_ceil(each as usize) as u32
}

/// Sizes that the kernels decide.
pub(crate) fn needs(sizes: &Sizes, dims: &Dims) -> Needs {
    let (partials, counters) = work::split_needs(sizes, dims);
    let parts = dims.vocab_part.len().div_ceil(SampleScan::PART as usize);
    Needs {
        partials,
        counters,
        sparse_splits: SparseAttendDecode::SPLITS as usize,
        sample_part_bytes: sizes.logits_rows * parts * PART_BYTES,
        sample_out_bytes: OutLayout::new(sizes.tokens, sizes.max_logprobs).bytes() as usize,
        router_part_rows: ffn::router_part_rows(sizes.tokens, dims),
    }
}

impl Rank {
    /// The whole step into the stream: what [`Run`] says, whatever `batch` holds beside media.
    pub(crate) fn enqueue(&mut self, batch: &Batch) -> Result<()> {
        self.embed(batch)?;
        for layer in 0..self.config.layers.len() {
            self.layer(layer, batch, &mut ())?;
        }
        if self.run.counts.logits == 0 {
            return Ok(());
        }
        self.finish()
    }

    /// Behind the layers: final norm, head, choice.
    pub(crate) fn finish(&mut self) -> Result<()> {
        self.final_norm()?;
        self.sample_positions()
    }

    pub(crate) fn queue(&self) -> Queue<'_> {
        Queue { launcher: &self.device, stream: self.stream.handle() }
    }

    /// Adds what is pending to the residual stream and norms it into `normed`.
    fn norm_in(&mut self, weight: &Matrix) -> Result<()> {
        use crate::kernels::{AddNormArguments, AddNormVariant};
        let buffers = &self.work.buffers;
        let (variant, pending) = match std::mem::take(&mut self.has_pending) {
            true => (AddNormVariant::Pending, buffers.pending.pointer),
            false => (AddNormVariant::First, DevicePointer::NULL),
        };
        let arguments = AddNormArguments {
            residual: buffers.residual.pointer,
            pending,
            weight: weight.values,
            out: buffers.normed.pointer,
            eps: self.config.norm_eps,
        };
        let grid = [self.run.counts.tokens as u32, 1, 1];
        launched(self.kernels.add_norm.launch(&self.queue(), grid, variant, &arguments))
    }

    /// Values of a buffer as the host sees them, once the stream has passed.
    fn f32_of(&self, buffer: Region, count: usize) -> Result<Vec<f32>> {
        Ok(self.stream.download_values(buffer.elements::<f32>(0, count as u64)?)?)
    }

    fn i32_of(&self, buffer: Region, count: usize) -> Result<Vec<f32>> {
        Ok(self.integers_of(buffer, count)?.into_iter().map(|value| value as f32).collect())
    }

    fn integers_of(&self, buffer: Region, count: usize) -> Result<Vec<i32>> {
        Ok(self.stream.download_values(buffer.elements::<i32>(0, count as u64)?)?)
    }

    fn bf16_of(&self, buffer: Region, count: usize) -> Result<Vec<f32>> {
        let values: Vec<u16> = self.stream.download_values(buffer.elements::<u16>(0, count as u64)?)?;
        Ok(values.into_iter().map(|bits| f32::from_bits(u32::from(bits) << 16)).collect())
    }
}

impl Ops for Rank {
    type Act = ();
    type Queries = ();
    type Selection = ();
    type Attended = ();
    type Logits = ();
    type Error = Error;

    fn config(&self) -> &TextConfig {
        &self.config
    }

    fn embed(&mut self, batch: &Batch) -> Result<()> {
        self.embed_tokens(batch)
    }

    fn attention_in(&mut self, layer: usize, _batch: &Batch, _act: &mut ()) -> Result<()> {
        let weights = self.weights.model.layers[layer];
        self.norm_in(&weights.input_norm)?;
        self.project(layer, &weights)
    }

    fn select_blocks(&mut self, layer: usize, _batch: &Batch, _queries: &()) -> Result<()> {
        self.choose_blocks(layer)
    }

    fn attend(&mut self, layer: usize, _batch: &Batch, _queries: (), selection: Option<()>) -> Result<()> {
        match selection {
            None => self.attend_all(layer),
            Some(()) => self.attend_chosen(layer),
        }
    }

    fn attention_out(&mut self, layer: usize, _batch: &Batch, _attended: (), _act: &mut ()) -> Result<()> {
        let out = self.weights.model.layers[layer].out;
        let buffers = self.work.buffers;
        self.gemm(buffers.attended.pointer, &out, buffers.pending.pointer, self.run.counts.tokens)?;
        self.has_pending = true;
        Ok(())
    }

    fn dense_ffn(&mut self, layer: usize, _batch: &Batch, _act: &mut ()) -> Result<()> {
        let weights = self.weights.model.layers[layer];
        self.norm_in(&weights.post_norm)?;
        self.run_dense(&weights.ffn)
    }

    fn moe_ffn(&mut self, layer: usize, _batch: &Batch, _act: &mut ()) -> Result<()> {
        let weights = self.weights.model.layers[layer];
        self.norm_in(&weights.post_norm)?;
        self.run_moe(layer, &weights.ffn)
    }

    fn logits(&mut self, _batch: &Batch, _act: ()) -> Result<()> {
        self.final_norm()
    }

    /// Puts sampling into the stream; the results are read when the step is waited for, and the table is told then.
    fn sample(
        &mut self,
        _batch: &Batch,
        _logits: (),
        _rows: &mut RowTable,
        _output: &mut Output,
    ) -> Result<()> {
        self.sample_positions()
    }

    fn layer_done(&mut self, layer: usize, _act: &()) -> Result<()> {
        if !self.taps.is_on() {
            return Ok(());
        }
        let (tokens, hidden) = (self.run.counts.tokens, self.config.hidden_size);
        let mut values = self.bf16_of(self.work.buffers.residual, tokens * hidden)?;
        if self.has_pending {
            let pending = self.bf16_of(self.work.buffers.pending, tokens * hidden)?;
            values.iter_mut().zip(pending).for_each(|(value, pending)| *value += pending);
        }
        self.taps.keep_tokens(TapPoint::LayerOut(layer), hidden, &values);
        Ok(())
    }
}
