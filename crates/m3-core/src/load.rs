//! From a checkpoint to ranks that can be served: open, load, ready, reserve and warm, on all ranks in parallel.
//! Everything that can fail, fails here, with a sentence that names the rank and the tensor. No scheduling here.

mod mapped;
mod source;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use m3_abi::types::{DTYPE_BF16, OPEN_SOLO, OPEN_TAPS, PROBE_ENCODES, PROBE_KEEP_MAPPED, Ready, WarmShape};
use m3_abi::{Backend, Driver, OpenRequest, ProbeReport, ProbeRequest};
use m3_model::checkpoint::Checkpoint;
use m3_model::config::ModelConfig;
use m3_model::error::ModelError;
use m3_model::names::Role;
use m3_model::shard::ShardPlan;

use crate::contain::contain;
use crate::scheduler::{MediaLimits, MediaSupport};
use mapped::Mapped;
use source::Source;

/// How to load; `DTYPE_*` are [`m3_abi::types`]' constants.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    pub dtype: u32,
    pub kv_dtype: u32,
    pub tp: u32,
    pub ep: u32,
    pub max_rows: u32,
    pub max_step_tokens: u32,
    pub max_context: u32,
    /// Most bytes for pages on each rank; 0 = the backend decides.
    pub page_memory_bytes: u64,
    /// Worker threads of a CPU rank; 0 = the backend decides.
    pub num_threads: u32,
    pub max_logprobs: u32,
    /// Keep the named points of the last step (slow; conformance only).
    pub taps: bool,
    /// A collective older than this is aborted; 0 = the backend's default.
    pub collective_timeout_ms: u64,
    /// Only this rank of the world is opened and collectives are skipped: what it says is meaningless, how fast it says
    /// it is not (benchmarks only).
    pub solo: Option<u32>,
}

impl Default for LoadOptions {
    fn default() -> Self {
        LoadOptions {
            dtype: DTYPE_BF16,
            kv_dtype: DTYPE_BF16,
            tp: 1,
            ep: 1,
            max_rows: 64,
            max_step_tokens: 8192,
            max_context: 131_072,
            page_memory_bytes: 0,
            num_threads: 0,
            max_logprobs: 20,
            taps: false,
            collective_timeout_ms: 0,
            solo: None,
        }
    }
}

impl LoadOptions {
    /// Ranks opened here, in order.
    fn ranks(&self) -> Vec<u32> {
        self.solo.map_or_else(|| (0..self.tp).collect(), |rank| vec![rank])
    }
}

/// How far loading is; ranks go through each stage together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    Opening,
    /// Sums over the ranks.
    Loading {
        done_bytes: u64,
        total_bytes: u64,
    },
    Repacking,
    Reserving {
        pages: u64,
    },
    Warming,
    Ready,
}

/// Ranks that take steps, and the memory plan they agreed on.
pub struct LoadedModel {
    /// In rank order.
    pub ranks: Vec<Box<dyn Backend>>,
    /// Equal on all ranks: what fits the one with the least room.
    pub num_pages: usize,
    /// Per rank, of the largest one; so are the next two.
    pub page_bytes: u64,
    pub weight_bytes: u64,
    pub workspace_bytes: u64,
    pub probe: ProbeReport,
    /// With a budget of [`MEDIA_CACHE_BYTES`].
    pub media: MediaSupport,
}

impl std::fmt::Debug for LoadedModel {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("LoadedModel")
            .field("num_ranks", &self.ranks.len())
            .field("num_pages", &self.num_pages)
            .field("page_bytes", &self.page_bytes)
            .field("weight_bytes", &self.weight_bytes)
            .finish_non_exhaustive()
    }
}

/// Why a model cannot be served here.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("backend {backend} refuses: {reason}")]
    Driver { backend: String, reason: m3_abi::Error },
    #[error("tensor {tensor} is {format:?}; backend {backend} takes other formats only")]
    Format { backend: String, tensor: String, format: m3_model::formats::Format },
    #[error("{name} is dtype bit {asked}; backend {backend} has {supported:#x}")]
    Dtype { backend: String, name: &'static str, asked: u32, supported: u32 },
    #[error("{name} is {value}; it must be at least 1")]
    Zero { name: &'static str, value: u32 },
    #[error("max_context is {asked}; the model was made for {limit} tokens")]
    Context { asked: u32, limit: usize },
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error("rank {rank} cannot {action}: {reason}")]
    Rank { rank: usize, action: String, reason: String },
    #[error("rank {rank} has room for no page of {page_bytes} bytes")]
    NoPages { rank: usize, page_bytes: u64 },
}

/// Opens and loads every rank of `checkpoint`. A backend that uses weights in place keeps the checkpoint mapped for
/// as long as its rank lives, hence the `Arc`.
pub fn load_model(
    driver: &dyn Driver,
    checkpoint: &Arc<Checkpoint>,
    options: &LoadOptions,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<LoadedModel, LoadError> {
    load(driver, &Source::Files(checkpoint.clone()), options, progress)
}

/// The same without files: the shapes of `config` (read from `config_json`) with values made from `seed` on the
/// devices. What it says is meaningless; how fast is not.
pub fn load_synthetic(
    driver: &dyn Driver,
    config: (&ModelConfig, &[u8]),
    seed: u64,
    options: &LoadOptions,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<LoadedModel, LoadError> {
    load(driver, &Source::synthetic(config.0, config.1, seed), options, progress)
}

fn load(
    driver: &dyn Driver,
    source: &Source,
    options: &LoadOptions,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<LoadedModel, LoadError> {
    check_options(source, options)?;
    let plan = ShardPlan::new(source.config(), options.tp as usize, options.ep as usize)?;
    let probe = probe(driver, source, options)?;
    progress(Progress::Opening);
    let mut ranks = open(driver, source, options, &probe)?;
    load_tensors(&mut ranks, &options.ranks(), source, (&plan, progress))?;
    progress(Progress::Repacking);
    let ready = on_ranks(&mut ranks, "get ready", |_, backend| backend.ready())?;
    let num_pages = agree_on_pages(&ready)?;
    progress(Progress::Reserving { pages: num_pages });
    on_ranks(&mut ranks, "reserve its pages", |_, backend| backend.reserve(num_pages))?;
    progress(Progress::Warming);
    let shapes = warm_shapes(options);
    on_ranks(&mut ranks, "warm up", |_, backend| backend.warm(&shapes))?;
    progress(Progress::Ready);
    let most = |of: fn(&Ready) -> u64| ready.iter().map(of).max().unwrap_or(0);
    Ok(LoadedModel {
        ranks,
        num_pages: num_pages as usize,
        page_bytes: most(|ready| ready.page_bytes),
        weight_bytes: most(|ready| ready.weight_bytes),
        workspace_bytes: most(|ready| ready.workspace_bytes),
        media: media_support(source, &probe),
        probe,
    })
}

/// Bytes of encoded images and videos that a device keeps, when nothing is said.
pub const MEDIA_CACHE_BYTES: u64 = 1 << 30;
/// Patches encoded ahead of a step: one picture of 672 x 672 and a smaller one.
const MEDIA_PATCHES_PER_STEP: usize = 4096;

fn media_support(source: &Source, probe: &ProbeReport) -> MediaSupport {
    let has_tower = source.specs().iter().any(|spec| spec.role == Role::Vision);
    let Some(vision) = source.config().vision.as_ref().filter(|_| has_tower) else {
        return MediaSupport::TextModel;
    };
    if probe.flags & PROBE_ENCODES == 0 {
        return MediaSupport::TextBackend;
    }
    MediaSupport::Encodes(MediaLimits {
        row_len: vision.row_len(),
        merge_size: vision.merge_size,
        segment_frames: vision.segment_max_frames,
        // Of the widest rows there are, f32.
        row_bytes: source.config().text.hidden_size * 4,
        cache_bytes: MEDIA_CACHE_BYTES,
        patches_per_step: MEDIA_PATCHES_PER_STEP,
    })
}

fn check_options(source: &Source, options: &LoadOptions) -> Result<(), LoadError> {
    let positive = [
        ("tp", options.tp),
        ("ep", options.ep),
        ("max_rows", options.max_rows),
        ("max_step_tokens", options.max_step_tokens),
        ("max_context", options.max_context),
    ];
    if let Some(&(name, value)) = positive.iter().find(|(_, value)| *value == 0) {
        return Err(LoadError::Zero { name, value });
    }
    if let Some(rank) = options.solo.filter(|&rank| rank >= options.tp) {
        return Err(ModelError::Rank { rank: rank as usize, tp: options.tp as usize }.into());
    }
    let limit = source.config().text.max_position_embeddings;
    if options.max_context as usize > limit {
        return Err(LoadError::Context { asked: options.max_context, limit });
    }
    Ok(())
}

/// Refuses by name what the backend has already said it cannot do.
fn probe(driver: &dyn Driver, source: &Source, options: &LoadOptions) -> Result<ProbeReport, LoadError> {
    let backend = driver.name().to_owned();
    let request = ProbeRequest { config: source.config_json().to_vec(), tp: options.tp, ep: options.ep };
    let probe =
        driver.probe(&request).map_err(|reason| LoadError::Driver { backend: backend.clone(), reason })?;
    if let Some(spec) = source.specs().iter().find(|spec| spec.format.abi() & probe.weight_formats == 0) {
        return Err(LoadError::Format { backend, tensor: spec.name.clone(), format: spec.format });
    }
    let dtypes = [("dtype", options.dtype, probe.dtypes), ("kv_dtype", options.kv_dtype, probe.kv_dtypes)];
    for (name, asked, supported) in dtypes {
        if asked & supported == 0 {
            return Err(LoadError::Dtype { backend, name, asked, supported });
        }
    }
    Ok(probe)
}

fn open(
    driver: &dyn Driver,
    source: &Source,
    options: &LoadOptions,
    probe: &ProbeReport,
) -> Result<Vec<Box<dyn Backend>>, LoadError> {
    let refused = |reason| LoadError::Driver { backend: driver.name().to_owned(), reason };
    let has_peers = options.tp > 1 && options.solo.is_none();
    let comm_id = if has_peers { driver.comm_id().map_err(refused)? } else { Vec::new() };
    let mut flags = 0;
    flags |= if options.solo.is_some() { OPEN_SOLO } else { 0 };
    flags |= if options.taps { OPEN_TAPS } else { 0 };
    let request = OpenRequest {
        flags,
        tp: options.tp,
        ep: options.ep,
        dtype: options.dtype,
        kv_dtype: options.kv_dtype,
        max_rows: options.max_rows,
        max_step_tokens: options.max_step_tokens,
        max_context: options.max_context,
        page_tokens: source.config().text.sparse.block_size as u32,
        max_logprobs: options.max_logprobs,
        num_threads: options.num_threads,
        page_memory_bytes: options.page_memory_bytes,
        collective_timeout_ms: options.collective_timeout_ms,
        config: source.config_json().to_vec(),
        comm_id,
        ..OpenRequest::default()
    };
    let num_devices = probe.num_devices.max(1);
    let mut ranks = options.ranks();
    let keeps_mapped = probe.flags & PROBE_KEEP_MAPPED != 0;
    on_ranks(&mut ranks, "open", |index, &mut rank| {
        let device = index as u32 % num_devices;
        let backend = driver.open(&OpenRequest { rank, device, ..request.clone() })?;
        Ok(match source {
            Source::Files(checkpoint) if keeps_mapped => Box::new(Mapped::new(backend, checkpoint.clone())),
            _ => backend,
        })
    })
}

fn load_tensors(
    ranks: &mut [Box<dyn Backend>],
    numbers: &[u32],
    source: &Source,
    (plan, progress): (&ShardPlan, &(dyn Fn(Progress) + Sync)),
) -> Result<(), LoadError> {
    let total_bytes = numbers.iter().map(|&rank| plan.rank_bytes(rank as usize, source.specs())).sum();
    let done = AtomicU64::new(0);
    // Every tensor would be too often: a large model has tens of thousands.
    let permille = |bytes: u64| bytes.saturating_mul(1000) / u64::max(total_bytes, 1);
    progress(Progress::Loading { done_bytes: 0, total_bytes });
    let outcomes = in_parallel(ranks, |index, backend| {
        let rank = numbers[index] as usize;
        source.for_each_cut(plan, rank, |cut| {
            let refused = |reason: m3_abi::Error| {
                rank_error(rank, &format!("load tensor {}", cut.name), &reason.to_string())
            };
            backend.load(&cut.view()).map_err(refused)?;
            let before = done.fetch_add(cut.bytes(), Ordering::Relaxed);
            let done_bytes = before + cut.bytes();
            if permille(before) != permille(done_bytes) {
                progress(Progress::Loading { done_bytes, total_bytes });
            }
            Ok(())
        })
    });
    for (&rank, outcome) in numbers.iter().zip(outcomes) {
        outcome.unwrap_or_else(|panic| Err(rank_error(rank as usize, "load its tensors", &panic)))?;
    }
    Ok(())
}

/// The engine keeps books of every page, so their number is bounded: half a billion tokens at 128 a page.
const MOST_PAGES: u64 = 1 << 22;

fn agree_on_pages(ready: &[Ready]) -> Result<u64, LoadError> {
    for (rank, ready) in ready.iter().enumerate() {
        if ready.max_pages == 0 {
            return Err(LoadError::NoPages { rank, page_bytes: ready.page_bytes });
        }
    }
    Ok(ready.iter().map(|ready| ready.max_pages).min().unwrap_or(0).min(MOST_PAGES))
}

/// Decoding batches of every power of two up to the rows, and the largest chunk alone and beside decoding rows.
fn warm_shapes(options: &LoadOptions) -> Vec<WarmShape> {
    let (rows, tokens) = (options.max_rows.min(options.max_step_tokens), options.max_step_tokens);
    let shape = |num_tokens, num_seqs| WarmShape {
        num_tokens,
        num_seqs,
        context_len: options.max_context,
        reserved: 0,
    };
    let buckets =
        std::iter::successors(Some(1u32), |seqs| seqs.checked_mul(2)).take_while(|seqs| *seqs < rows);
    let mut shapes: Vec<WarmShape> = buckets.chain([rows]).map(|seqs| shape(seqs, seqs)).collect();
    for largest in [shape(tokens, 1), shape(tokens, rows)] {
        if !shapes.contains(&largest) {
            shapes.push(largest);
        }
    }
    shapes
}

/// The same call on every rank at once; the first rank that fails names the error.
fn on_ranks<R: Send, T: Send>(
    ranks: &mut [R],
    action: &str,
    work: impl Fn(usize, &mut R) -> m3_abi::Result<T> + Sync,
) -> Result<Vec<T>, LoadError> {
    let outcomes = in_parallel(ranks, work).into_iter().enumerate();
    let reasons = outcomes.map(|(rank, outcome)| {
        let reason = match outcome {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(reason)) => reason.to_string(),
            Err(panic) => panic,
        };
        Err(rank_error(rank, action, &reason))
    });
    reasons.collect()
}

/// One thread per rank, because ranks may wait for each other; `Err` is a panic as a sentence.
fn in_parallel<R: Send, T: Send>(
    ranks: &mut [R],
    work: impl Fn(usize, &mut R) -> T + Sync,
) -> Vec<Result<T, String>> {
    std::thread::scope(|scope| {
        let spawn = |(rank, one)| {
            let work = &work;
            scope.spawn(move || contain("the backend", || work(rank, one)))
        };
        let threads: Vec<_> = ranks.iter_mut().enumerate().map(spawn).collect();
        let joined = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
        joined.map(|outcome| outcome.unwrap_or_else(|_| Err("the backend panicked".to_owned()))).collect()
    })
}

fn rank_error(rank: usize, action: &str, reason: &str) -> LoadError {
    LoadError::Rank { rank, action: action.to_owned(), reason: reason.to_owned() }
}
