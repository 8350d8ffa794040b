//! Every rank of a loaded model, driven step by step as the engine does it, a thread per rank.

use anyhow::{Context, Result, anyhow, ensure};
use m3_abi::{Backend, Driver, Media, Output, Step, Tap, types};
use m3_core::load::{LoadOptions, load_model};
use m3_model::checkpoint::Checkpoint;
use m3_model::config::ModelConfig;
use std::sync::Arc;

/// How to open a model for a check.
#[derive(Clone, Debug)]
pub struct Setup {
    pub dtype: u32,
    pub tp: u32,
    pub ep: u32,
    /// Pages to reserve; they are handed out in a shuffled order.
    pub num_pages: usize,
    pub max_step_tokens: u32,
    /// Named points are kept, which may switch off what serving has (recorded steps).
    pub taps: bool,
}

impl Setup {
    pub fn with_dtype(dtype: u32) -> Self {
        Setup { dtype, tp: 1, ep: 1, num_pages: 256, max_step_tokens: 4096, taps: true }
    }

    pub fn with_ranks(dtype: u32, tp: u32, ep: u32) -> Self {
        Setup { tp, ep, ..Self::with_dtype(dtype) }
    }

    pub fn is_exact(&self) -> bool {
        self.dtype == types::DTYPE_F32
    }
}

/// A loaded model and its ranks.
pub struct World {
    ranks: Vec<Box<dyn Backend>>,
    pub config: ModelConfig,
    free_pages: Vec<u32>,
}

pub const MAX_ROWS: u32 = 32;
pub const MAX_CONTEXT: u32 = 8192;

impl World {
    pub fn open(driver: &dyn Driver, checkpoint: &Arc<Checkpoint>, setup: &Setup) -> Result<Self> {
        let options = LoadOptions {
            dtype: setup.dtype,
            kv_dtype: setup.dtype,
            tp: setup.tp,
            ep: setup.ep,
            max_rows: MAX_ROWS,
            max_step_tokens: setup.max_step_tokens,
            max_context: MAX_CONTEXT,
            max_logprobs: 20,
            taps: setup.taps,
            page_memory_bytes: 1 << 30,
            num_threads: 0,
            collective_timeout_ms: 60_000,
            solo: None,
        };
        let loaded = load_model(driver, checkpoint, &options, &|_| {}).context("loading")?;
        let num_pages = loaded.num_pages.min(setup.num_pages) as u32;
        ensure!(num_pages >= 80, "{num_pages} pages fit in 1 GiB; the checks need 80");
        Ok(World {
            ranks: loaded.ranks,
            config: checkpoint.config().clone(),
            free_pages: shuffled(num_pages),
        })
    }

    pub fn page_tokens(&self) -> usize {
        self.config.text.sparse.block_size
    }

    pub fn num_ranks(&self) -> usize {
        self.ranks.len()
    }

    /// A page nobody uses. Pages are never given back: a `World` serves one check.
    pub fn take_page(&mut self) -> Result<u32> {
        self.free_pages.pop().ok_or_else(|| anyhow!("the check used up its pages"))
    }

    /// Encodes on all ranks and waits, so that the taps of the encode can be read. Ranks get the same calls in the same
    /// order; that they name the result alike is not promised to an engine, but it is to a check.
    pub fn encode(&mut self, patches: &[f32], row_len: usize, grids: &[[u32; 3]]) -> Result<Media> {
        let media = self.on_all_ranks(|rank| {
            let media = rank.encode(patches, row_len, grids)?;
            rank.wait(media.ticket, &mut Output::default())?;
            Ok(media)
        })?;
        let first = *media.first().context("a world has a rank")?;
        ensure!(
            media.iter().all(|media| media.handle == first.handle),
            "ranks gave different handles: {media:?}"
        );
        Ok(first)
    }

    /// Submits to all ranks, waits for all, returns rank 0's output.
    pub fn step(&mut self, step: &Step<'_>) -> Result<Output> {
        let slots: u32 = step.seqs.iter().map(|seq| seq.num_logits).sum();
        let outputs = self.on_all_ranks(|rank| {
            let mut output = Output::with_capacity(slots as usize, 20);
            let ticket = rank.submit(step)?;
            rank.wait(ticket, &mut output)?;
            Ok(output)
        })?;
        outputs.into_iter().next().context("a world has a rank")
    }

    /// Runs `work` on every rank at once; the first rank that fails names the error.
    pub fn on_all_ranks<T: Send>(
        &mut self,
        work: impl Fn(&mut dyn Backend) -> m3_abi::Result<T> + Sync,
    ) -> Result<Vec<T>> {
        let work = &work;
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                self.ranks.iter_mut().map(|rank| scope.spawn(move || work(rank.as_mut()))).collect();
            threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
        });
        let mut values = Vec::new();
        for (rank, outcome) in outcomes.into_iter().enumerate() {
            let outcome = outcome.map_err(|_| anyhow!("rank {rank} panicked"))?;
            values.push(outcome.map_err(|error| anyhow!("rank {rank}: {error}"))?);
        }
        Ok(values)
    }

    /// A tap of rank 0.
    pub fn tap(&mut self, name: &str) -> Result<Tap> {
        self.ranks[0].tap(name).map_err(|error| anyhow!("tap {name}: {error}"))
    }

    /// A tap whose first dim is index heads, which ranks share out: the whole, in head order.
    pub fn tap_of_heads(&mut self, name: &str) -> Result<Tap> {
        let heads = self.config.text.sparse.num_index_heads;
        // Beyond the index heads, neighbouring ranks hold the same one.
        let every = (self.ranks.len() / heads).max(1);
        let mut whole = Tap::default();
        for rank in self.ranks.iter_mut().step_by(every) {
            let part = rank.tap(name).map_err(|error| anyhow!("tap {name}: {error}"))?;
            let before = whole.shape.first().copied().unwrap_or(0);
            whole.shape.clone_from(&part.shape);
            whole.shape[0] += before;
            whole.data.extend(part.data);
        }
        ensure!(whole.shape[0] == heads as u64, "tap {name} shows {} index heads of {heads}", whole.shape[0]);
        Ok(whole)
    }
}

/// 0..count in a fixed disorder, so that nothing passes only because pages happen to be neighbours.
fn shuffled(count: u32) -> Vec<u32> {
    let mut pages: Vec<u32> = (0..count).collect();
    let mut state = 0x2545_f491_4f6c_dd1du64;
    for last in (1..pages.len()).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        pages.swap(last, (state >> 33) as usize % (last + 1));
    }
    pages
}
