//! One rank, loaded with synthetic weights, and the steps that are timed on it through the backend's own interface.
//!
//! Pages of cached contexts come shuffled from a pool whose contents are real keys and values; when the sequences want more
//! than there are, they share. Pages that a run writes are each row's own.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use backend_sm90::backend::Sm90Backend;
use backend_sm90::timing::OperationTime;
use m3_abi::types::{DTYPE_BF16, NONE, OPEN_SOLO, PageAppend, PageCopy, Ready, RowBind, Seq, WarmShape};
use m3_abi::{Backend, OpenRequest, Output, Step};
use m3_model::names::expected_tensors;
use m3_model::shard::ShardPlan;

use crate::model::Model;

/// What is opened, and for which steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) device: u32,
    pub(crate) max_rows: u32,
    /// Tokens of a prefill step.
    pub(crate) chunk: usize,
    pub(crate) max_context: u32,
    /// 0 = what fits.
    pub(crate) page_memory_bytes: u64,
    pub(crate) dtype: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            device: 0,
            max_rows: 256,
            chunk: 8192,
            max_context: 135_168,
            page_memory_bytes: 0,
            dtype: DTYPE_BF16,
        }
    }
}

/// How long one step took. Microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StepTime {
    /// From the end of the step before to the end of this, as the host sees it.
    pub(crate) wall: f64,
    /// From the first to the last of its work, as the device sees it; 0 when the backend does not say.
    pub(crate) device: f64,
}

/// An opened rank.
pub(crate) trait Opened {
    fn backend(&mut self) -> &mut dyn Backend;
}

impl Opened for Sm90Backend {
    fn backend(&mut self) -> &mut dyn Backend {
        self
    }
}

pub(crate) struct Session<B> {
    opened: B,
    pub(crate) ready: Ready,
    pub(crate) load_s: f64,
    pub(crate) warm_s: f64,
    num_pages: u32,
    page_tokens: usize,
    chunk: usize,
    bound: Vec<u32>,
    /// Rows whose outputs held NaN, in all steps.
    pub(crate) faults: usize,
}

impl Session<Sm90Backend> {
    /// Experts that the last step's tokens chose, on average over the layers.
    pub(crate) fn experts_drawn(&mut self) -> Result<f64> {
        Ok(self.opened.experts_drawn()?)
    }

    /// How long each operation of the last step takes alone.
    pub(crate) fn time_operations(&mut self, repeats: usize) -> Result<Vec<OperationTime>> {
        Ok(self.opened.time_operations(repeats)?)
    }
}

impl<B: Opened> Session<B> {
    /// Opens, fills and warms up.
    pub(crate) fn open(
        driver: impl FnOnce(&OpenRequest) -> m3_abi::Result<B>,
        model: &Model,
        limits: &Limits,
    ) -> Result<Self> {
        let page_tokens = model.config.text.sparse.block_size;
        let mut opened = driver(&OpenRequest {
            flags: if model.tp > 1 { OPEN_SOLO } else { 0 },
            tp: model.tp,
            ep: 1,
            device: limits.device,
            dtype: limits.dtype,
            kv_dtype: limits.dtype,
            max_rows: limits.max_rows,
            max_step_tokens: limits.chunk as u32,
            max_context: limits.max_context,
            page_tokens: page_tokens as u32,
            page_memory_bytes: limits.page_memory_bytes,
            config: model.json.clone(),
            ..OpenRequest::default()
        })?;
        let backend = opened.backend();
        let begun = Instant::now();
        load(backend, model)?;
        let ready = backend.ready()?;
        let load_s = begun.elapsed().as_secs_f64();
        backend.reserve(ready.max_pages)?;
        let begun = Instant::now();
        backend.warm(&warm_shapes(limits))?;
        let warm_s = begun.elapsed().as_secs_f64();
        let mut session = Session {
            opened,
            ready,
            load_s,
            warm_s,
            num_pages: u32::try_from(ready.max_pages)?,
            page_tokens,
            chunk: limits.chunk,
            bound: Vec::new(),
            faults: 0,
        };
        session.fill_pool()?;
        Ok(session)
    }

    pub(crate) fn num_pages(&self) -> u32 {
        self.num_pages
    }

    /// Decodes `steps` tokens of `batch` sequences behind `context` cached tokens, two steps in flight.
    pub(crate) fn decode(&mut self, batch: usize, context: usize, steps: usize) -> Result<Vec<StepTime>> {
        let tables = self.tables(batch, context, steps)?;
        let binds: Vec<RowBind> = (0..batch as u32).map(RowBind::greedy).collect();
        let mut times = Vec::new();
        let mut ends = Instant::now();
        let mut previous = None;
        for number in 0..=steps {
            let next = if number < steps {
                let seqs: Vec<Seq> = (0..batch as u32).map(|row| token(row, context + number)).collect();
                let tokens = step_tokens(batch, number);
                let releases = if number == 0 { std::mem::take(&mut self.bound) } else { Vec::new() };
                let mut step = Step { releases: &releases, seqs: &seqs, tokens: &tokens, ..Step::default() };
                if number == 0 {
                    (step.binds, step.pages, step.page_ids) = (&binds, &tables.appends, &tables.ids);
                }
                Some(self.opened.backend().submit(&step)?)
            } else {
                None
            };
            if let Some(ticket) = std::mem::replace(&mut previous, next) {
                let mut output = Output::with_capacity(batch, 0);
                self.opened.backend().wait(ticket, &mut output)?;
                let now = Instant::now();
                times.push(StepTime {
                    wall: (now - ends).as_secs_f64() * 1e6,
                    device: output.device_time_us as f64,
                });
                ends = now;
                self.faults += output.faults.iter().filter(|fault| **fault != 0).count();
            }
        }
        self.bound = (0..batch as u32).collect();
        Ok(times)
    }

    /// Computes `tokens` new tokens behind `cached` ones, in chunks; the sum of the chunks.
    pub(crate) fn prefill(&mut self, tokens: usize, cached: usize) -> Result<StepTime> {
        let tables = self.tables(1, cached, tokens)?;
        let binds = [RowBind::greedy(0)];
        let mut sum = StepTime::default();
        let mut done = 0;
        while done < tokens {
            let count = self.chunk.min(tokens - done);
            let ids: Vec<u32> = (done..done + count).map(|index| (index * 7919 % 20_000) as u32).collect();
            let is_last = done + count == tokens;
            let seqs = [chunk(0, cached + done, count, is_last)];
            let releases = if done == 0 { std::mem::take(&mut self.bound) } else { Vec::new() };
            let mut step = Step { releases: &releases, seqs: &seqs, tokens: &ids, ..Step::default() };
            if done == 0 {
                (step.binds, step.pages, step.page_ids) = (&binds, &tables.appends, &tables.ids);
            }
            let time = self.run(&step)?;
            sum = StepTime { wall: sum.wall + time.wall, device: sum.device + time.device };
            done += count;
        }
        self.bound = vec![0];
        Ok(sum)
    }

    fn run(&mut self, step: &Step<'_>) -> Result<StepTime> {
        let mut output = Output::with_capacity(step.seqs.len(), 0);
        let begun = Instant::now();
        let ticket = self.opened.backend().submit(step)?;
        self.opened.backend().wait(ticket, &mut output)?;
        self.faults += output.faults.iter().filter(|fault| **fault != 0).count();
        Ok(StepTime { wall: begun.elapsed().as_secs_f64() * 1e6, device: output.device_time_us as f64 })
    }

    /// Real keys and values for every page: one chunk is computed, then copied over all others.
    fn fill_pool(&mut self) -> Result<()> {
        let filled = (self.chunk / self.page_tokens).min(self.num_pages as usize / 2).max(1);
        let ids: Vec<u32> = (0..filled as u32).collect();
        let tokens: Vec<u32> =
            (0..filled * self.page_tokens).map(|index| (index * 104_729 % 20_000) as u32).collect();
        let appends = [PageAppend { row: 0, first: 0, offset: 0, count: filled as u32 }];
        let seqs = [chunk(0, 0, tokens.len(), true)];
        let binds = [RowBind::greedy(0)];
        let step = Step {
            binds: &binds,
            pages: &appends,
            page_ids: &ids,
            seqs: &seqs,
            tokens: &tokens,
            ..Step::default()
        };
        self.run(&step).context("the first chunk")?;
        self.bound = vec![0];
        let mut from = 0;
        let copies: Vec<PageCopy> = (filled as u32..self.num_pages)
            .map(|to| {
                from = (from + 1) % filled as u32;
                PageCopy { from, to }
            })
            .collect();
        for some in copies.chunks(256) {
            self.opened.backend().copy_pages(some).context("filling the pages")?;
        }
        Ok(())
    }

    /// Page tables of `batch` rows with `cached` tokens from the pool and room of their own for `new` ones.
    fn tables(&self, batch: usize, cached: usize, new: usize) -> Result<Tables> {
        ensure!(
            cached.is_multiple_of(self.page_tokens),
            "a cached context of {cached} tokens does not fill pages of {}",
            self.page_tokens
        );
        let (shared, own) = (cached / self.page_tokens, new.div_ceil(self.page_tokens));
        let own_pages = batch * own;
        let pool = (self.num_pages as usize).saturating_sub(own_pages);
        ensure!(
            pool > 0,
            "{batch} sequences of {new} new tokens need {own_pages} pages; there are {}",
            self.num_pages
        );
        let order = shuffled(pool);
        let mut tables = Tables { appends: Vec::new(), ids: Vec::new() };
        for row in 0..batch {
            let offset = tables.ids.len() as u32;
            tables.ids.extend((0..shared).map(|index| order[(row * shared + index) % pool]));
            tables.ids.extend((0..own).map(|index| (pool + row * own + index) as u32));
            let count = (shared + own) as u32;
            tables.appends.push(PageAppend { row: row as u32, first: 0, offset, count });
        }
        Ok(tables)
    }

    /// Of the pages that `batch` such contexts would want, how many times each is used on average.
    pub(crate) fn sharing(&self, batch: usize, cached: usize, new: usize) -> f64 {
        let own = batch * new.div_ceil(self.page_tokens);
        let wanted = (batch * cached / self.page_tokens) as f64;
        (wanted / (self.num_pages as usize).saturating_sub(own).max(1) as f64).max(1.0)
    }
}

struct Tables {
    appends: Vec<PageAppend>,
    ids: Vec<u32>,
}

/// Page numbers below `count` in a fixed disorder.
fn shuffled(count: usize) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count as u32).collect();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for last in (1..count).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        order.swap(last, ((state >> 33) % (last as u64 + 1)) as usize);
    }
    order
}

/// Every tensor of rank 0, with values made from seeds as `--load-format dummy` makes them.
fn load(backend: &mut dyn Backend, model: &Model) -> Result<()> {
    let plan = ShardPlan::new(&model.config, model.tp as usize, 1)?;
    for (index, spec) in expected_tensors(&model.config).iter().enumerate() {
        let seed = (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        if let Some(cut) = plan.synthetic(0, spec, seed)? {
            backend.load(&cut.view()).with_context(|| format!("tensor {}", spec.name))?;
        }
    }
    Ok(())
}

/// Every power of two up to the rows, and the largest chunk.
fn warm_shapes(limits: &Limits) -> Vec<WarmShape> {
    let shape = |num_tokens, num_seqs| WarmShape {
        num_tokens,
        num_seqs,
        context_len: limits.max_context,
        reserved: 0,
    };
    let buckets = std::iter::successors(Some(1), |seqs| Some(seqs * 2));
    let mut shapes: Vec<WarmShape> =
        buckets.take_while(|seqs| *seqs <= limits.max_rows).map(|seqs| shape(seqs, seqs)).collect();
    shapes.push(shape(limits.chunk as u32, 1));
    shapes
}

/// The next token of every row. Not the sampled ones: made-up weights soon choose the same token in all rows, which then
/// take the same experts, and a step reads far less than in service.
fn step_tokens(batch: usize, number: usize) -> Vec<u32> {
    (0..batch).map(|row| ((row * 131 + number * 7919) % 20_000) as u32).collect()
}

/// One token of `row`.
fn token(row: u32, position: usize) -> Seq {
    Seq { token_offset: row, output_offset: row, ..chunk(row, position, 1, true) }
}

fn chunk(row: u32, position: usize, count: usize, samples: bool) -> Seq {
    Seq {
        row,
        flags: 0,
        first_position: position as u32,
        num_tokens: count as u32,
        token_offset: 0,
        num_logits: u32::from(samples),
        output_offset: 0,
        target_offset: NONE,
        mask_offset: NONE,
        output_index: 0,
    }
}

#[cfg(test)]
mod tests;
