//! One instance: the calls of [`m3_abi::Backend`] in their order, and refusals when they come out of order.
//!
//! Loading and planning happen on the host's thread; from `reserve` on, a [`Worker`] owns the model.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use m3_abi::types::{DTYPE_BF16, DTYPE_F32, OPEN_SOLO, OPEN_TAPS, PageCopy, Ready, Region, WarmShape};
use m3_abi::{Backend, Error, Media, OpenRequest, Output, Result, Step, Tap, TensorView, Ticket};
use m3_model::batch::{Limits, RowTable};
use m3_model::config::ModelConfig;
use m3_model::pages::PageLayout;
use m3_model::rope::Rope;
use m3_model::shard::ShardPlan;
use m3_model::taps::TapPoint;
use m3_model::vision::check_grids;

use crate::buffer::Precision;
use crate::group::{Closer, Member, Terms};
use crate::kernels::Kernels;
use crate::machine;
use crate::ops::{CpuOps, Sizes, Work};
use crate::pages::{self, PagePool};
use crate::step::OwnedStep;
use crate::taps::{Recorder, Taps};
use crate::vision::{Encoder, Shape};
use crate::weights::vision::Vision;
use crate::weights::{Model, Store};
use crate::worker::{Finished, Job, Rank, Worker};

/// Deadline of collectives when `open` leaves it to us.
const DEFAULT_TIMEOUT_MS: u64 = 300_000;
/// Share of the free memory that pages may take when `open` leaves it to us.
const PAGE_SHARE: f64 = 0.8;
/// Steps submitted and not yet waited for.
const MAX_IN_FLIGHT: usize = 2;

enum Stage {
    Loading(Store),
    Ready {
        parts: Box<Parts>,
        max_pages: u64,
    },
    /// Dropped in this order: a worker that waits for peers only ends once the rank is closed.
    Serving {
        #[expect(dead_code, reason = "only dropped")]
        closer: Option<Closer>,
        worker: Worker,
        pool: Arc<PagePool>,
        submitted: u64,
        /// Tickets of steps, oldest first, that may not have finished; encodes take no place in flight.
        steps: VecDeque<u64>,
        /// Handles that were given and not freed.
        media: HashSet<u64>,
    },
    /// Between two stages, and after one of them failed.
    Broken,
}

/// What `ready` made and `reserve` hands to the worker.
struct Parts {
    model: Arc<Model>,
    vision: Option<Vision>,
    work: Work,
}

/// A rank on this CPU.
pub(crate) struct CpuBackend {
    request: OpenRequest,
    config: ModelConfig,
    plan: ShardPlan,
    layout: PageLayout,
    precision: Precision,
    kernels: Kernels,
    num_threads: usize,
    peers: Option<Member>,
    /// The model has a tower and its tensors were loaded.
    has_vision: bool,
    stage: Stage,
    taps: Option<Taps>,
    #[expect(
        clippy::vec_box,
        reason = "the boxes go to the worker and come back, so that a step allocates none"
    )]
    spare: Vec<Box<OwnedStep>>,
}

fn unsupported<T>(reason: impl Into<String>) -> Result<T> {
    Err(Error::Unsupported(reason.into()))
}

/// Reads the config and plans the world, or says why not.
pub(crate) fn plan(config: &[u8], tp: u32, ep: u32) -> Result<(ModelConfig, ShardPlan)> {
    let config =
        ModelConfig::from_json(config).map_err(|error| Error::Unsupported(error.to_string()))?.config;
    let (tp, ep) = (tp.max(1) as usize, ep.max(1) as usize);
    let plan = ShardPlan::new(&config, tp, ep).map_err(|error| Error::Unsupported(error.to_string()))?;
    Ok((config, plan))
}

fn check(request: &OpenRequest) -> Result<Precision> {
    let limits = [
        ("max_rows", request.max_rows),
        ("max_step_tokens", request.max_step_tokens),
        ("max_context", request.max_context),
    ];
    if let Some((name, _)) = limits.into_iter().find(|(_, value)| *value == 0) {
        return unsupported(format!("{name} is 0, at least 1 is needed"));
    }
    if request.dp > 1 || request.node > 0 {
        let (dp, node) = (request.dp, request.node);
        return unsupported(format!(
            "dp {dp} on node {node}: the cpu backend serves one replica on one node"
        ));
    }
    if request.device != 0 {
        return unsupported(format!("device {}: this machine is one device, 0", request.device));
    }
    if request.flags & !(OPEN_SOLO | OPEN_TAPS) != 0 {
        return unsupported(format!("unknown open flags {:#x}", request.flags));
    }
    match request.dtype {
        DTYPE_F32 => Ok(Precision::F32),
        DTYPE_BF16 => Ok(Precision::Bf16),
        other => unsupported(format!("dtype {other}: the cpu backend computes in float32 or bfloat16")),
    }
}

impl CpuBackend {
    pub(crate) fn open(request: &OpenRequest, kernels: Kernels) -> Result<CpuBackend> {
        let precision = check(request)?;
        let (config, plan) = plan(&request.config, request.tp, request.ep)?;
        if request.rank as usize >= plan.tp {
            return unsupported(format!("rank {} does not exist: tp is {}", request.rank, plan.tp));
        }
        if config.text.sparse.num_index_heads != config.text.num_kv_heads {
            let (index, kv) = (config.text.sparse.num_index_heads, config.text.num_kv_heads);
            return unsupported(format!("{index} index heads for {kv} KV heads: one for each is needed"));
        }
        let layout = pages::layout(&config.text, plan.tp, request.kv_dtype, request.page_tokens as usize)?;
        let num_threads = match request.num_threads {
            0 => (machine::num_cores() / plan.tp).max(1),
            threads => threads as usize,
        };
        let with_vision = config.vision.is_some();
        Ok(CpuBackend {
            peers: join(request, &plan)?,
            request: request.clone(),
            config,
            plan,
            layout,
            precision,
            kernels,
            num_threads,
            has_vision: false,
            stage: Stage::Loading(Store::new(with_vision)),
            taps: None,
            spare: Vec::new(),
        })
    }

    fn out_of_order<T>(&self, call: &str) -> Result<T> {
        let stage = match self.stage {
            Stage::Loading(_) => "loading",
            Stage::Ready { .. } => "ready",
            Stage::Serving { .. } => "serving",
            Stage::Broken => "broken",
        };
        unsupported(format!("{call} cannot be called while the instance is {stage}"))
    }

    /// Bytes for this rank's pages.
    fn page_budget(&self, workspace_bytes: usize, weights: &Store) -> u64 {
        if self.request.page_memory_bytes > 0 {
            return self.request.page_memory_bytes;
        }
        // All ranks share the machine, and mapped weights want to stay in the file cache. Synthetic ones are allocated
        // by now and gone from what is free.
        let mapped = (weights.bytes() - weights.owned_bytes()) * self.plan.tp as u64;
        let free = machine::memory().available_bytes.saturating_sub(mapped) / self.plan.tp as u64;
        (free.saturating_sub(workspace_bytes as u64) as f64 * PAGE_SHARE) as u64
    }

    /// Bytes that an encode takes for a while.
    fn tower_bytes(&self, vision: &Vision) -> usize {
        let shape = Shape {
            config: &vision.config,
            text_hidden: vision.text_hidden,
            precision: self.precision,
            is_pairs: self.precision == Precision::Bf16 && self.kernels.takes_pairs(),
            num_threads: self.num_threads,
        };
        shape.bytes(self.request.max_context as usize)
    }

    /// Pages that can ever be in use: every row at the longest context.
    fn useful_pages(&self) -> u64 {
        u64::from(self.request.max_rows)
            * u64::from(self.request.max_context.div_ceil(self.request.page_tokens))
    }

    fn spawn(&mut self, parts: Box<Parts>, pool: Arc<PagePool>, num_pages: u64) -> Result<Worker> {
        let Parts { model, vision, work } = *parts;
        let rank = self.request.rank;
        let threads = rayon::ThreadPoolBuilder::new()
            .num_threads(self.num_threads)
            .thread_name(move |index| format!("m3-cpu-{rank}-{index}"))
            .build()
            .map_err(|error| Error::Unsupported(format!("{} threads: {error}", self.num_threads)))?;
        let text = self.config.text.clone();
        let limits = Limits::from_open(&self.request, text.vocab_size, num_pages);
        let ops = CpuOps {
            kernels: self.kernels,
            precision: self.precision,
            model,
            pool,
            peers: self.peers.take(),
            taps: Recorder::new(self.request.flags & OPEN_TAPS != 0),
            rope: Rope::new(text.rope_theta, text.rotary_dim),
            work,
            sampling: Default::default(),
            media: Default::default(),
            config: text,
        };
        let max_logprobs = self.request.max_logprobs as usize;
        let (kernels, precision) = (self.kernels, self.precision);
        let encoder = vision.map(|vision| Encoder { kernels, precision, vision });
        let rank = Rank { ops, encoder, rows: RowTable::new(limits), pool: threads, max_logprobs };
        Worker::spawn(rank, format!("m3-cpu-{}", self.request.rank))
    }

    /// The pages once nothing runs.
    fn quiet_pages(&mut self, call: &str) -> Result<&PagePool> {
        if let Stage::Serving { worker, submitted, .. } = &self.stage {
            // Refusing the result leaves it for the host's own wait.
            let keep = |_: &Finished| unsupported("");
            match worker.wait(*submitted, keep) {
                Err(Error::Fatal(fault)) => return Err(Error::Fatal(fault)),
                Ok(_) | Err(Error::Unsupported(_)) => {}
            }
        }
        match &self.stage {
            Stage::Serving { pool, .. } => Ok(pool),
            _ => self.out_of_order(call),
        }
    }
}

/// The group of the request; `None` alone or solo.
fn join(request: &OpenRequest, plan: &ShardPlan) -> Result<Option<Member>> {
    if plan.tp == 1 || request.flags & OPEN_SOLO != 0 {
        return Ok(None);
    }
    let timeout_ms =
        if request.collective_timeout_ms == 0 { DEFAULT_TIMEOUT_MS } else { request.collective_timeout_ms };
    let terms = Terms {
        world: plan.tp,
        expert_groups: plan.ep,
        with_taps: request.flags & OPEN_TAPS != 0,
        timeout: std::time::Duration::from_millis(timeout_ms),
    };
    Member::join(&request.comm_id, request.rank as usize, terms).map(Some)
}

impl Backend for CpuBackend {
    fn load(&mut self, tensor: &TensorView<'_>) -> Result<()> {
        match &mut self.stage {
            Stage::Loading(store) => store.insert(tensor),
            _ => self.out_of_order("load"),
        }
    }

    fn ready(&mut self) -> Result<Ready> {
        let store = match std::mem::replace(&mut self.stage, Stage::Broken) {
            Stage::Loading(store) => store,
            other => {
                self.stage = other;
                return self.out_of_order("ready");
            }
        };
        let model = Model::resolve(&self.config, &self.plan, self.request.rank as usize, store)?;
        let vision = Vision::resolve(&self.config, self.precision, &model.store)?;
        self.has_vision = vision.is_some();
        let request = &self.request;
        let sizes = Sizes::new(&model.plan, request.max_step_tokens as usize, request.max_rows as usize);
        let work = Work::new(&self.config.text, &model.plan, self.precision, sizes);
        let page_bytes = self.layout.page_bytes() as u64;
        let workspace_bytes = work.bytes() + vision.as_ref().map_or(0, |vision| self.tower_bytes(vision));
        let budget = self.page_budget(workspace_bytes, &model.store);
        let max_pages = (budget / page_bytes).min(self.useful_pages());
        if max_pages == 0 {
            return unsupported(format!("a page takes {page_bytes} bytes, {budget} are left for pages"));
        }
        let ready = Ready {
            size: size_of::<Ready>() as u32,
            reserved: 0,
            page_bytes,
            max_pages,
            weight_bytes: model.store.bytes(),
            workspace_bytes: workspace_bytes as u64,
        };
        let parts = Box::new(Parts { model: Arc::new(model), vision, work });
        self.stage = Stage::Ready { parts, max_pages };
        Ok(ready)
    }

    fn reserve(&mut self, num_pages: u64) -> Result<()> {
        let (parts, max_pages) = match std::mem::replace(&mut self.stage, Stage::Broken) {
            Stage::Ready { parts, max_pages } => (parts, max_pages),
            other => {
                self.stage = other;
                return self.out_of_order("reserve");
            }
        };
        if num_pages == 0 || num_pages > max_pages {
            self.stage = Stage::Ready { parts, max_pages };
            return unsupported(format!("{num_pages} pages: between 1 and {max_pages} fit"));
        }
        let pool = Arc::new(PagePool::new(self.layout.clone(), num_pages)?);
        let closer = self.peers.as_ref().map(Member::closer);
        let worker = self.spawn(parts, pool.clone(), num_pages)?;
        let (steps, media) = (VecDeque::new(), HashSet::new());
        self.stage = Stage::Serving { closer, worker, pool, submitted: 0, steps, media };
        Ok(())
    }

    fn warm(&mut self, _shapes: &[WarmShape]) -> Result<()> {
        // Kernels are chosen by shape arithmetic and buffers are sized by `ready`: nothing to tune.
        match self.stage {
            Stage::Serving { .. } => Ok(()),
            _ => self.out_of_order("warm"),
        }
    }

    fn submit(&mut self, step: &Step<'_>) -> Result<Ticket> {
        let Stage::Serving { worker, submitted, steps, .. } = &mut self.stage else {
            return self.out_of_order("submit");
        };
        let finished = worker.finished()?;
        while steps.front().is_some_and(|ticket| *ticket <= finished) {
            steps.pop_front();
        }
        if steps.len() >= MAX_IN_FLIGHT {
            return unsupported(format!("{MAX_IN_FLIGHT} steps are in flight already"));
        }
        let mut copy = self.spare.pop().unwrap_or_default();
        copy.copy(step);
        worker.submit(Job::Step { ticket: *submitted + 1, step: copy })?;
        *submitted += 1;
        steps.push_back(*submitted);
        Ok(Ticket(*submitted))
    }

    fn wait(&mut self, ticket: Ticket, output: &mut Output) -> Result<()> {
        let Stage::Serving { worker, submitted, .. } = &self.stage else { return self.out_of_order("wait") };
        if ticket.0 == 0 || ticket.0 > *submitted {
            return unsupported(format!("ticket {} was never given, the last one is {submitted}", ticket.0));
        }
        let is_first = self.request.rank == 0;
        let finished = worker.wait(ticket.0, |finished| {
            let needed = finished.output.tokens.len();
            if is_first && output.tokens.len() < needed {
                return unsupported(format!(
                    "the output has {} slots, the step fills {needed}",
                    output.tokens.len()
                ));
            }
            Ok(())
        })?;
        let Some(finished) = finished else {
            return unsupported(format!("ticket {} was waited for before", ticket.0));
        };
        if is_first {
            copy_output(&finished, output);
        }
        self.taps = finished.taps;
        self.spare.extend(finished.step);
        Ok(())
    }

    fn done(&mut self) -> Result<Ticket> {
        match &self.stage {
            Stage::Serving { worker, .. } => worker.finished().map(Ticket),
            _ => self.out_of_order("done"),
        }
    }

    fn copy_pages(&mut self, copies: &[PageCopy]) -> Result<()> {
        self.quiet_pages("copy_pages")?.copy(copies)
    }

    fn read_pages(&mut self, pages: &[u32], bytes: &mut Vec<u8>) -> Result<()> {
        bytes.clear();
        self.quiet_pages("read_pages")?.read(pages, bytes)
    }

    fn write_pages(&mut self, pages: &[u32], bytes: &[u8]) -> Result<()> {
        self.quiet_pages("write_pages")?.fill(pages, bytes)
    }

    fn regions(&mut self) -> Result<Vec<Region>> {
        match &self.stage {
            Stage::Serving { pool, .. } => Ok(vec![pool.region(self.config.text.layers.len())]),
            _ => self.out_of_order("regions"),
        }
    }

    fn encode(&mut self, patches: &[f32], row_len: usize, grids: &[[u32; 3]]) -> Result<Media> {
        let Some(config) = self.config.vision.as_ref().filter(|_| self.has_vision) else {
            return unsupported("this model was loaded without a vision tower; it takes text only");
        };
        let num_patches = check_grids(config, patches.len(), row_len, grids)
            .map_err(|error| Error::Unsupported(error.to_string()))?;
        let num_rows = num_patches / config.merged_patches();
        let Stage::Serving { worker, submitted, media, .. } = &mut self.stage else {
            return self.out_of_order("encode");
        };
        let ticket = *submitted + 1;
        worker.submit(Job::Encode { ticket, patches: patches.to_vec(), grids: grids.to_vec() })?;
        *submitted = ticket;
        media.insert(ticket);
        let bytes = (num_rows * self.config.text.hidden_size * 4) as u64;
        Ok(Media { handle: ticket, num_rows: num_rows as u32, ticket: Ticket(ticket), bytes })
    }

    fn media_free(&mut self, handle: u64) -> Result<()> {
        let Stage::Serving { worker, media, .. } = &mut self.stage else {
            return self.out_of_order("media_free");
        };
        if !media.remove(&handle) {
            return unsupported(format!("media handle {handle} does not exist"));
        }
        // In line behind the steps that may use it.
        worker.submit(Job::Free { handle })
    }

    fn tap(&mut self, name: &str) -> Result<Tap> {
        if self.request.flags & OPEN_TAPS == 0 {
            return unsupported("taps are kept only when the instance is opened with them");
        }
        let point = TapPoint::parse(name);
        let tap = point.and_then(|point| self.taps.as_ref()?.get(&point).cloned());
        tap.ok_or_else(|| {
            Error::Unsupported(format!("there is no tap {name} in the last step that was waited for"))
        })
    }
}

/// Fills the slots that the step used; others stay as they are.
fn copy_output(finished: &Finished, output: &mut Output) {
    let from = &finished.output;
    let count = from.top_capacity.min(output.top_capacity);
    for &slot in &finished.slots {
        output.tokens[slot] = from.tokens[slot];
        output.logprobs[slot] = from.logprobs[slot];
        output.faults[slot] = from.faults[slot];
        output.ranks[slot] = from.ranks[slot];
        let (to, from_at) = (slot * output.top_capacity, slot * from.top_capacity);
        output.top_ids[to..to + count].copy_from_slice(&from.top_ids[from_at..from_at + count]);
        output.top_logprobs[to..to + count].copy_from_slice(&from.top_logprobs[from_at..from_at + count]);
    }
    output.device_time_us = from.device_time_us;
}

#[cfg(test)]
mod tests;
