//! One instance: the calls of [`m3_abi::Backend`] in their order, and refusals when they come out of order.
//!
//! Tensors go to their places as they come; `ready` plans memory, `reserve` takes it, `warm` records decode steps. What a
//! step does is in [`crate::serving`].

use std::sync::Arc;

use m3_abi::types::{OPEN_TAPS, PageCopy, Ready, Region as AbiRegion, WarmShape};
use m3_abi::{Backend, Error, OpenRequest, Output, Result, Step, Tap, TensorView, Ticket};
use m3_gpu::device::Device;
use m3_gpu::error::GpuError;
use m3_gpu::kernels::Queue;
use m3_gpu::launch::Launcher;
use m3_gpu::memory::Region;
use m3_gpu::pack::Pack;
use m3_gpu::stream::Stream;
use m3_model::batch::{Limits, RowTable};
use m3_model::formats::Format;
use m3_model::pages::PageLayout;
use m3_model::rope::Rope;
use m3_model::taps::TapPoint;

use crate::dims::Dims;
use crate::driver::Plan;
use crate::kernels::{FillSynthetic, FillSyntheticArguments, FillSyntheticVariant, Kernels};
use crate::ops::work::{Sizes, Work, WorkPlan};
use crate::ops::{Rank, Run, blocks, launched, needs};
use crate::pages::Pages;
use crate::serving::Serving;
use crate::step::pack::Packed;
use crate::taps::Recorder;
use crate::timing::OperationTime;
use crate::weights::Weights;
use crate::weights::load::{Loading, Synthesise};
use crate::weights::place::WeightPlan;

/// Left to the driver, its libraries and other processes when pages take what is free.
const SPARE_BYTES: u64 = 2 << 30;

enum Stage {
    Loading(Box<Loading>),
    Ready {
        weights: Box<Weights>,
        work: Box<WorkPlan>,
        max_pages: u64,
    },
    Serving(Box<Serving>),
    /// Between two stages, and after one of them failed.
    Broken,
}

/// A rank on one GPU.
pub struct Sm90Backend {
    request: OpenRequest,
    plan: Plan,
    dims: Dims,
    layout: PageLayout,
    device: Device,
    kernels: Kernels,
    stage: Stage,
}

fn unsupported<T>(reason: impl std::fmt::Display) -> Result<T> {
    Err(Error::Unsupported(reason.to_string()))
}

/// Fills with a kernel, the same values for the same seed on every backend.
struct Filler<'a> {
    kernels: &'a Kernels,
    launcher: &'a dyn Launcher,
}

impl Synthesise for Filler<'_> {
    fn fill(&self, stream: &Stream, values: Region, format: Format, deviation: f32, seed: u64) -> Result<()> {
        let variant = match format {
            Format::F32 => FillSyntheticVariant::F32,
            Format::Bf16 => FillSyntheticVariant::Bf16,
            Format::Mxfp8 => FillSyntheticVariant::E4m3,
        };
        let words = values.bytes / 4;
        let arguments =
            FillSyntheticArguments { out: values.pointer, words: words as i64, seed: seed as i64, deviation };
        let queue = Queue { launcher: self.launcher, stream: stream.handle() };
        let grid = [blocks(words as usize, FillSynthetic::BLOCK), 1, 1];
        launched(self.kernels.fill_synthetic.launch(&queue, grid, variant, &arguments))
    }
}

impl Sm90Backend {
    /// `shape` is the pack's index of the rank's shape.
    pub(crate) fn open(
        request: &OpenRequest,
        plan: Plan,
        device: Device,
        (pack, shape): (&Pack<'_>, usize),
    ) -> Result<Sm90Backend> {
        let rank = request.rank as usize;
        let dims = plan.dims(rank)?;
        let page_tokens = request.page_tokens as usize;
        let layout = PageLayout::new(&plan.config.text, plan.shards.tp, request.kv_dtype, page_tokens)
            .map_err(|error| Error::Unsupported(error.to_string()))?;
        let weights = WeightPlan::new(&plan.config, &plan.shards, rank)?;
        let kernels = Kernels::load(&device, pack, shape).map_err(GpuError::from)?;
        let stage = Stage::Loading(Box::new(Loading::new(&device, weights)?));
        Ok(Sm90Backend { request: request.clone(), plan, dims, layout, device, kernels, stage })
    }

    /// Experts that the last step's tokens chose, on average over the layers (benchmarks): what is in flight is waited for,
    /// and rows must be bound anew before the next step.
    pub fn experts_drawn(&mut self) -> Result<f64> {
        self.serving("experts_drawn")?.experts_drawn()
    }

    /// How long each operation of the last step takes alone (benchmarks): what is in flight is waited for, and rows
    /// must be bound anew before the next step.
    pub fn time_operations(&mut self, repeats: usize) -> Result<Vec<OperationTime>> {
        self.serving("time_operations")?.time_operations(repeats)
    }

    fn out_of_order<T>(&self, call: &str) -> Result<T> {
        let stage = match self.stage {
            Stage::Loading(_) => "loading",
            Stage::Ready { .. } => "ready",
            Stage::Serving(_) => "serving",
            Stage::Broken => "broken",
        };
        unsupported(format!("{call} cannot be called while the instance is {stage}"))
    }

    fn serving(&mut self, call: &str) -> Result<&mut Serving> {
        if !matches!(self.stage, Stage::Serving(_)) {
            return self.out_of_order(call);
        }
        match &mut self.stage {
            Stage::Serving(serving) => Ok(serving),
            _ => unreachable!("looked at above"),
        }
    }

    fn with_taps(&self) -> bool {
        self.request.flags & OPEN_TAPS != 0
    }

    /// Bytes for pages: what was asked for, or what is free beside the workspace.
    fn page_budget(&self, workspace_bytes: u64) -> Result<u64> {
        let free = self.device.memory()?.free.saturating_sub(workspace_bytes);
        let asked = self.request.page_memory_bytes;
        Ok(if asked > 0 { asked.min(free) } else { free.saturating_sub(SPARE_BYTES) })
    }

    /// Pages that can ever be in use: every row at the longest context.
    fn useful_pages(&self) -> u64 {
        let pages = self.request.max_context.div_ceil(self.request.page_tokens);
        u64::from(self.request.max_rows) * u64::from(pages)
    }

    fn rank(&self, weights: Weights, work: Work, num_pages: u64) -> Result<Rank> {
        let text = self.plan.config.text.clone();
        let stream = Arc::new(self.device.stream()?);
        let rope = Rope::new(text.rope_theta, text.rotary_dim);
        work.initialise(&stream, &rope.frequencies)?;
        let nothing = work.sizes.largest_step();
        let run =
            Run::new(&Packed::default(), nothing.counts, nothing.at(work.buffers.step), self.dims.block);
        Ok(Rank {
            pages: Pages::new(&self.device, &stream, self.layout.clone(), num_pages as usize)?,
            device: self.device.clone(),
            stream,
            kernels: self.kernels.clone(),
            config: text,
            dims: self.dims.clone(),
            weights,
            work,
            taps: Recorder::new(self.with_taps()),
            run,
            has_pending: false,
        })
    }
}

impl Backend for Sm90Backend {
    fn load(&mut self, tensor: &TensorView<'_>) -> Result<()> {
        let filler = Filler { kernels: &self.kernels, launcher: &self.device };
        match &mut self.stage {
            Stage::Loading(loading) => loading.load(tensor, &filler),
            _ => self.out_of_order("load"),
        }
    }

    fn ready(&mut self) -> Result<Ready> {
        let loading = match std::mem::replace(&mut self.stage, Stage::Broken) {
            Stage::Loading(loading) => loading,
            other => {
                self.stage = other;
                return self.out_of_order("ready");
            }
        };
        let (weights, weight_bytes) = loading.finish()?;
        let sizes = Sizes::new(&self.request, &self.dims);
        let needs = needs(&sizes, &self.dims);
        let work = WorkPlan::new(sizes, &self.dims, needs);
        let page_bytes = self.layout.page_bytes() as u64;
        let budget = self.page_budget(work.bytes())?;
        let max_pages = (budget / page_bytes).min(self.useful_pages());
        if max_pages == 0 {
            let workspace = work.bytes();
            return unsupported(format!(
                "a page takes {page_bytes} bytes, {budget} are left for pages beside weights of {weight_bytes} and \
                 workspaces of {workspace}"
            ));
        }
        let workspace_bytes = work.bytes();
        self.stage = Stage::Ready { weights: Box::new(weights), work: Box::new(work), max_pages };
        let size = size_of::<Ready>() as u32;
        Ok(Ready { size, reserved: 0, page_bytes, max_pages, weight_bytes, workspace_bytes })
    }

    fn reserve(&mut self, num_pages: u64) -> Result<()> {
        let (weights, work, max_pages) = match std::mem::replace(&mut self.stage, Stage::Broken) {
            Stage::Ready { weights, work, max_pages } => (weights, work, max_pages),
            other => {
                self.stage = other;
                return self.out_of_order("reserve");
            }
        };
        if num_pages == 0 || num_pages > max_pages {
            self.stage = Stage::Ready { weights, work, max_pages };
            return unsupported(format!("{num_pages} pages: between 1 and {max_pages} fit"));
        }
        let limits = Limits::from_open(&self.request, self.dims.vocab, num_pages);
        let rank = self.rank(*weights, work.carve(&self.device)?, num_pages)?;
        let serving = Serving::new(&self.device, rank, RowTable::new(limits))?;
        self.stage = Stage::Serving(Box::new(serving));
        Ok(())
    }

    fn warm(&mut self, shapes: &[WarmShape]) -> Result<()> {
        self.serving("warm")?.warm(shapes)
    }

    fn submit(&mut self, step: &Step<'_>) -> Result<Ticket> {
        self.serving("submit")?.submit(step)
    }

    fn wait(&mut self, ticket: Ticket, output: &mut Output) -> Result<()> {
        let is_first = self.request.rank == 0;
        self.serving("wait")?.wait(ticket, output, is_first)
    }

    fn done(&mut self) -> Result<Ticket> {
        self.serving("done")?.done()
    }

    fn copy_pages(&mut self, copies: &[PageCopy]) -> Result<()> {
        let rank = &self.serving("copy_pages")?.rank;
        rank.pages.copy(&rank.stream, copies)
    }

    fn read_pages(&mut self, pages: &[u32], bytes: &mut Vec<u8>) -> Result<()> {
        bytes.clear();
        let rank = &self.serving("read_pages")?.rank;
        rank.pages.read(&rank.stream, pages, bytes)
    }

    fn write_pages(&mut self, pages: &[u32], bytes: &[u8]) -> Result<()> {
        let rank = &mut self.serving("write_pages")?.rank;
        rank.pages.write(&rank.stream, pages, bytes)
    }

    fn regions(&mut self) -> Result<Vec<AbiRegion>> {
        let device = self.request.device;
        Ok(self.serving("regions")?.rank.pages.regions(device))
    }

    fn tap(&mut self, name: &str) -> Result<Tap> {
        if !self.with_taps() {
            return unsupported("taps are kept only when the instance is opened with them");
        }
        let taps = self.serving("tap")?.taps.as_ref();
        let tap = TapPoint::parse(name).and_then(|point| taps?.get(&point).cloned());
        tap.ok_or_else(|| {
            Error::Unsupported(format!("there is no tap {name} in the last step that was waited for"))
        })
    }
}

#[cfg(test)]
mod tests;
