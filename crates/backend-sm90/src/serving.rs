//! Steps: into the stream at `submit`, out of pinned memory at `wait`, two at a time.
//!
//! A step is resolved by the host's row table, packed, sent, and run: decode steps of a captured bucket as one graph,
//! others launch by launch. The table is told what was sampled when a step is collected, which is after later steps may have
//! been submitted: rows that were bound anew meanwhile are left alone.

use std::collections::{HashMap, VecDeque};

use m3_abi::types::{NONE, SEQ_CHAINED, Seq, WarmShape};
use m3_abi::{Error, Output, Result, Step, Ticket};
use m3_gpu::device::Device;
use m3_gpu::graph::Graphs;
use m3_gpu::memory::{Pinned, Region};
use m3_gpu::staging::{Field, Layout, Staging};
use m3_gpu::ticket::{Open, Tickets};
use m3_model::batch::{Batch, RowTable};

use crate::ops::{OutLayout, Rank, Run};
use crate::penalties::Penalties;
use crate::step::arrays::{Counts, StepLayout};
use crate::step::pack::Packed;
use crate::step::sampling::Sampling;
use crate::taps::Taps;
use crate::upkeep::Upkeep;

/// Steps submitted and not yet run.
const MAX_IN_FLIGHT: usize = 2;

/// A step on the device.
struct InFlight {
    ticket: Ticket,
    slot: usize,
    batch: Batch,
    out: OutLayout,
    /// Per sequence: how often its row had been bound.
    generations: Vec<u64>,
    /// Alternatives wanted per logits position; `None` = no log-probabilities.
    wanted: Vec<Option<u32>>,
    taps: Option<Taps>,
}

/// A step whose results were read.
struct Finished {
    ticket: Ticket,
    results: Vec<Slot>,
    device_us: u64,
    taps: Option<Taps>,
}

/// Results of one logits position.
struct Slot {
    output_slot: usize,
    token: u32,
    fault: u32,
    /// Log-probability and rank, where wanted.
    logprob: Option<(f32, u32)>,
    top: Vec<(u32, f32)>,
}

/// Everything from `reserve` on.
pub(crate) struct Serving {
    pub(crate) rank: Rank,
    rows: RowTable,
    generations: Vec<u64>,
    penalties: Penalties,
    packed: Packed,
    sampling: Sampling,
    arrays: Staging,
    biases: Staging,
    masks: Staging,
    upkeep: Upkeep,
    tickets: Tickets,
    results: Vec<Pinned>,
    in_flight: VecDeque<InFlight>,
    finished: VecDeque<Finished>,
    graphs: Graphs<usize>,
    layouts: HashMap<usize, StepLayout>,
    spare: Vec<Batch>,
    /// Of the step waited for last.
    pub(crate) taps: Option<Taps>,
    dead: Option<String>,
}

impl Serving {
    pub(crate) fn new(device: &Device, rank: Rank, rows: RowTable) -> Result<Serving> {
        let sizes = rank.work.sizes.clone();
        let result_bytes = OutLayout::new(sizes.tokens, sizes.max_logprobs).bytes();
        let results = (0..MAX_IN_FLIGHT).map(|_| device.pinned(result_bytes, "results"));
        let staging = |bytes| Staging::new(device, bytes, MAX_IN_FLIGHT);
        Ok(Serving {
            arrays: staging(sizes.largest_step().bytes())?,
            biases: staging(rank.work.buffers.biases.bytes)?,
            masks: staging(rank.work.buffers.masks.bytes)?,
            upkeep: Upkeep::new(device)?,
            tickets: Tickets::new(device, MAX_IN_FLIGHT)?,
            results: results.collect::<Result<_, _>>()?,
            generations: vec![0; sizes.rows],
            penalties: Penalties::new(sizes.rows),
            rank,
            rows,
            packed: Packed::default(),
            sampling: Sampling::default(),
            in_flight: VecDeque::new(),
            finished: VecDeque::new(),
            graphs: Graphs::default(),
            layouts: HashMap::new(),
            spare: Vec::new(),
            taps: None,
            dead: None,
        })
    }

    #[cfg(test)]
    pub(crate) fn rows(&self) -> &RowTable {
        &self.rows
    }

    /// Runs each shape once without effect, then captures the decode buckets.
    pub(crate) fn warm(&mut self, shapes: &[WarmShape]) -> Result<()> {
        self.alive()?;
        for shape in shapes {
            let tokens = (shape.num_tokens as usize).clamp(1, self.rank.work.sizes.tokens);
            let seqs = (shape.num_seqs as usize).clamp(1, tokens.min(self.rank.work.sizes.rows));
            if tokens == seqs {
                self.dry_decode(tokens)?;
            } else {
                self.dry_chunk(tokens)?;
            }
        }
        self.rank.stream.synchronize()?;
        // Taps read between launches, which a graph cannot.
        if self.rank.taps.is_on() {
            return Ok(());
        }
        for shape in shapes.iter().filter(|shape| shape.num_tokens == shape.num_seqs) {
            let bucket = (shape.num_tokens as usize).clamp(1, self.rank.work.sizes.rows);
            self.capture(bucket)?;
        }
        self.rank.stream.synchronize()?;
        Ok(())
    }

    fn counts(&self, tokens: usize, chunks: usize, logits: usize) -> Counts {
        Counts { tokens, chunks, logits, rows: self.rank.work.sizes.rows }
    }

    /// A decode step of padding alone.
    fn dry_decode(&mut self, tokens: usize) -> Result<()> {
        let rows = self.rank.work.sizes.rows;
        self.packed.fill(&Batch::default(), self.rank.dims.block);
        self.packed.pad_tokens(tokens, rows);
        self.packed.pad_logits(tokens);
        self.dry_run(StepLayout::new(self.counts(tokens, 0, tokens)), 0)
    }

    /// One chunk of the row that nobody has, which stores nothing.
    fn dry_chunk(&mut self, tokens: usize) -> Result<()> {
        let (block, rows) = (self.rank.dims.block, self.rank.work.sizes.rows);
        self.packed.fill(&Batch::default(), block);
        self.packed.add_idle_chunk(tokens, rows, block);
        self.packed.pad_logits(1);
        self.dry_run(StepLayout::new(self.counts(tokens, 1, 1)), tokens)
    }

    fn dry_run(&mut self, layout: StepLayout, num_live: usize) -> Result<()> {
        self.sampling.fill(&Batch::default(), &self.rows, &[]);
        self.sampling.pad(layout.counts.logits);
        self.send(&layout, num_live)?;
        self.rank.run = self.run(&layout);
        self.rank.enqueue(&Batch::default())?;
        // One after the other, so that a fault names its shape.
        self.rank.stream.synchronize()?;
        drop(self.rank.taps.take());
        Ok(())
    }

    fn capture(&mut self, bucket: usize) -> Result<()> {
        let layout = StepLayout::new(self.counts(bucket, 0, bucket));
        self.packed.fill(&Batch::default(), self.rank.dims.block);
        self.packed.pad_tokens(bucket, self.rank.work.sizes.rows);
        self.rank.run = self.captured_run(&layout);
        let (stream, rank) = (self.rank.stream.clone(), &mut self.rank);
        self.graphs.capture(bucket, &stream, || rank.enqueue(&Batch::default()))?;
        self.layouts.insert(bucket, layout);
        Ok(())
    }

    /// Of a decode step whose graph serves every context.
    fn captured_run(&self, layout: &StepLayout) -> Run {
        Run { short_pages: self.rank.work.sizes.max_pages, ..self.run(layout) }
    }

    /// What the launches of the last submitted step depended on, replayed or not.
    pub(crate) fn last_run(&self) -> Run {
        let bucket = self.layouts.get(&self.packed.num_tokens()).filter(|_| self.packed.chunks.count() == 0);
        bucket.map_or(self.rank.run, |layout| self.captured_run(layout))
    }

    fn run(&self, layout: &StepLayout) -> Run {
        let arrays = layout.at(self.rank.work.buffers.step);
        Run::new(&self.packed, layout.counts, arrays, self.rank.dims.block)
    }

    fn send(&mut self, layout: &StepLayout, num_live: usize) -> Result<()> {
        let mut arrays = self.arrays.begin(&layout.layout)?;
        layout.write(&mut arrays, &self.packed, &self.sampling, num_live)?;
        Ok(arrays.send(&self.rank.stream, self.rank.work.buffers.step)?)
    }

    pub(crate) fn submit(&mut self, step: &Step<'_>) -> Result<Ticket> {
        self.alive()?;
        self.make_room()?;
        self.refuse_masks(step)?;
        let outcome = self.put_in(step);
        if let Err(error) = &outcome {
            self.dead = Some(error.to_string());
        }
        outcome.map_err(|error| Error::Fatal(error.to_string()))
    }

    fn alive(&self) -> Result<()> {
        match &self.dead {
            Some(reason) => Err(Error::Fatal(reason.clone())),
            None => Ok(()),
        }
    }

    /// Two steps may be on the device; results of those that have run are read before their buffers are used again.
    fn make_room(&mut self) -> Result<()> {
        if self.in_flight.len() < MAX_IN_FLIGHT {
            return Ok(());
        }
        let done = self.tickets.done()?;
        if self.in_flight.front().is_some_and(|oldest| oldest.ticket <= done) {
            return self.collect();
        }
        Err(Error::Unsupported(format!("{MAX_IN_FLIGHT} steps are in flight already")))
    }

    fn refuse_masks(&self, step: &Step<'_>) -> Result<()> {
        let masked = step.seqs.iter().filter(|seq| seq.mask_offset != NONE);
        let wanted: usize = masked.map(|seq| seq.num_logits as usize).sum();
        let most = self.rank.work.sizes.max_masks();
        if wanted > most {
            return Err(Error::Unsupported(format!(
                "the step has {wanted} masked positions, the limit is {most}"
            )));
        }
        Ok(())
    }

    fn put_in(&mut self, step: &Step<'_>) -> Result<Ticket> {
        self.settle_in_flight(step)?;
        let mut batch = self.spare.pop().unwrap_or_default();
        self.rows.apply(step, &mut batch)?;
        let open = self.tickets.begin(&self.rank.stream)?;
        let in_flight = match self.enqueue(step, batch, open) {
            Ok(in_flight) => in_flight,
            Err(error) => {
                self.tickets.abandon(open);
                return Err(error);
            }
        };
        let ticket = self.tickets.finish(open, &self.rank.stream)?;
        self.in_flight.push_back(in_flight);
        Ok(ticket)
    }

    /// A row with penalties whose next token the host names must have been told its last sample.
    fn settle_in_flight(&mut self, step: &Step<'_>) -> Result<()> {
        let is_running =
            |row| self.in_flight.iter().any(|step| step.batch.seqs.iter().any(|seq| seq.row == row));
        let needs = |seq: &Seq| {
            let penalised = self.rows.row(seq.row).is_some_and(|row| row.sampling.settings.has_penalties());
            penalised && seq.flags & SEQ_CHAINED == 0 && is_running(seq.row)
        };
        if step.seqs.iter().any(needs) {
            while !self.in_flight.is_empty() {
                self.collect()?;
            }
        }
        Ok(())
    }

    fn enqueue(&mut self, step: &Step<'_>, batch: Batch, open: Open) -> Result<InFlight> {
        self.maintain(step, &batch)?;
        self.packed.fill(&batch, self.rank.dims.block);
        self.sampling.fill(&batch, &self.rows, &self.packed.place);
        self.send_extras(&batch)?;
        let out = self.launch(&batch)?;
        if !batch.logits.is_empty() {
            let region = self.rank.work.buffers.sample_out;
            let bytes = if self.sampling.wants_top { out.bytes() } else { out.bytes_before_top() };
            self.rank.stream.download(&self.results[open.slot], 0, region.part(0, bytes)?)?;
        }
        let wanted = batch.logits.iter().map(|position| {
            let row = self.rows.row(batch.seqs[position.seq].row);
            let num_logprobs = row.and_then(|row| row.sampling.settings.num_logprobs);
            if position.target.is_some() { Some(num_logprobs.unwrap_or(0)) } else { num_logprobs }
        });
        Ok(InFlight {
            ticket: open.ticket,
            slot: open.slot,
            wanted: wanted.collect(),
            generations: batch.seqs.iter().map(|seq| self.generations[seq.row as usize]).collect(),
            batch,
            out,
            taps: self.rank.taps.take(),
        })
    }

    /// Tables on the device: rows bound anew, pages, counts.
    fn maintain(&mut self, step: &Step<'_>, batch: &Batch) -> Result<()> {
        for &row in step.releases {
            self.generations[row as usize] += 1;
            self.penalties.forget(row);
        }
        for bind in step.binds {
            self.generations[bind.row as usize] += 1;
            self.penalties.forget(bind.row);
            let row = self.rows.row(bind.row);
            if row.is_some_and(|row| row.sampling.settings.has_penalties()) {
                let len = (bind.prompt_len + bind.output_len) as usize;
                let history =
                    if len == 0 { &[][..] } else { &step.history[bind.history_offset as usize..][..len] };
                self.upkeep.count_history(&self.rank, bind, history)?;
            }
        }
        self.upkeep.append_pages(&self.rank, step.pages, step.page_ids)?;
        let vocab = self.rank.dims.vocab_part.len();
        let corrections = self.penalties.settle(batch, &self.rows, vocab);
        self.upkeep.scatter(&self.rank, self.rank.work.buffers.counts.pointer, &corrections)
    }

    fn send_extras(&mut self, batch: &Batch) -> Result<()> {
        let buffers = self.rank.work.buffers;
        let biases = &self.sampling.biases;
        let most = self.rank.work.sizes.max_biases();
        if biases.len() > most {
            return Err(Error::Fatal(format!("the step has {} biases, the limit is {most}", biases.len())));
        }
        if !biases.is_empty() {
            let mut layout = Layout::new();
            let field = layout.field("biases", biases.len());
            let mut arrays = self.biases.begin(&layout)?;
            arrays.write(field, biases)?;
            arrays.send(&self.rank.stream, buffers.biases)?;
        }
        if !batch.masks.is_empty() {
            let mut layout = Layout::new();
            let field = layout.field("masks", batch.masks.len());
            let mut arrays = self.masks.begin(&layout)?;
            arrays.write(field, &batch.masks)?;
            arrays.send(&self.rank.stream, buffers.masks)?;
        }
        Ok(())
    }

    /// Sends the packed step and runs it; answers where its results will be.
    fn launch(&mut self, batch: &Batch) -> Result<OutLayout> {
        let num_live = self.packed.num_tokens();
        self.rank.taps.begin(&self.packed.place);
        if num_live == 0 {
            return Ok(OutLayout::new(0, self.rank.work.sizes.max_logprobs));
        }
        if let Some(bucket) = self.bucket(batch) {
            self.packed.pad_tokens(bucket, self.rank.work.sizes.rows);
            self.packed.pad_logits(bucket);
            self.sampling.pad(bucket);
            let layout = self.layouts[&bucket].clone();
            self.send(&layout, num_live)?;
            self.graphs.launch(&bucket, &self.rank.stream)?;
            return Ok(OutLayout::new(bucket, self.rank.work.sizes.max_logprobs));
        }
        let counts = self.counts(num_live, self.packed.chunks.count(), batch.logits.len());
        let layout = StepLayout::new(counts);
        self.send(&layout, num_live)?;
        self.rank.run = Run { with_logprobs: self.sampling.wants_logprobs, ..self.run(&layout) };
        self.rank.enqueue(batch)?;
        Ok(self.rank.out_layout())
    }

    /// The smallest captured bucket that holds the step.
    fn bucket(&self, batch: &Batch) -> Option<usize> {
        let tokens = batch.num_tokens();
        let fits = self.packed.chunks.count() == 0 && batch.media.is_empty() && batch.logits.len() <= tokens;
        let buckets = self.layouts.keys().copied().filter(|&bucket| bucket >= tokens);
        if fits { buckets.min() } else { None }
    }

    /// Reads the oldest step's results once it has run, and tells the table.
    fn collect(&mut self) -> Result<()> {
        let Some(step) = self.in_flight.pop_front() else { return Ok(()) };
        self.tickets.wait(step.ticket)?;
        let device_us = self.tickets.device_us(step.ticket).unwrap_or(0);
        let results = read(&step, &self.results[step.slot], self.rank.work.sizes.max_logprobs)?;
        for (index, result) in results.iter().enumerate() {
            let position = &step.batch.logits[index];
            let row = step.batch.seqs[position.seq].row;
            if position.target.is_some() || step.generations[position.seq] != self.generations[row as usize] {
                continue;
            }
            let token = (result.fault == 0).then_some(result.token);
            self.rows.record(&step.batch, index, token);
            let penalised = self.rows.row(row).is_some_and(|row| row.sampling.settings.has_penalties());
            if let Some(token) = token.filter(|_| penalised) {
                self.penalties.count(row, step.batch.positions[position.token] + 1, token);
            }
        }
        self.finished.push_back(Finished { ticket: step.ticket, results, device_us, taps: step.taps });
        self.spare.push(step.batch);
        Ok(())
    }

    pub(crate) fn wait(&mut self, ticket: Ticket, output: &mut Output, is_first: bool) -> Result<()> {
        self.alive()?;
        let outcome = self.collect_until(ticket);
        if let Err(error @ Error::Fatal(_)) = &outcome {
            self.dead = Some(error.to_string());
        }
        outcome?;
        let Some(at) = self.finished.iter().position(|finished| finished.ticket == ticket) else {
            return Err(Error::Unsupported(format!(
                "ticket {} was never given, or waited for before",
                ticket.0
            )));
        };
        let needed = self.finished[at].results.iter().map(|slot| slot.output_slot + 1).max().unwrap_or(0);
        if is_first && output.tokens.len() < needed {
            let slots = output.tokens.len();
            return Err(Error::Unsupported(format!("the output has {slots} slots, the step fills {needed}")));
        }
        self.finished.drain(..at);
        let Some(finished) = self.finished.pop_front() else { return Ok(()) };
        if is_first {
            hand_out(&finished, output);
        }
        self.taps = finished.taps;
        Ok(())
    }

    fn collect_until(&mut self, ticket: Ticket) -> Result<()> {
        while self.in_flight.front().is_some_and(|step| step.ticket <= ticket) {
            self.collect()?;
        }
        Ok(())
    }

    pub(crate) fn done(&mut self) -> Result<Ticket> {
        self.alive()?;
        Ok(self.tickets.done()?)
    }
}

/// From the start of its layout.
fn offset_of<T>(field: Field<T>) -> u64 {
    field.pointer(Region::EMPTY).0
}

/// Results of a step that has run.
fn read(step: &InFlight, pinned: &Pinned, max_logprobs: usize) -> Result<Vec<Slot>> {
    let count = step.batch.logits.len();
    let out = &step.out;
    let (mut tokens, mut faults) = (vec![0u32; count], vec![0u32; count]);
    let (mut logprobs, mut ranks) = (vec![0f32; count], vec![0u32; count]);
    pinned.read(offset_of(out.tokens), &mut tokens)?;
    pinned.read(offset_of(out.faults), &mut faults)?;
    pinned.read(offset_of(out.logprobs), &mut logprobs)?;
    pinned.read(offset_of(out.ranks), &mut ranks)?;
    let mut results = Vec::with_capacity(count);
    for (index, position) in step.batch.logits.iter().enumerate() {
        let wanted = step.wanted[index].filter(|_| faults[index] == 0);
        let num_top = wanted.map_or(0, |count| (count as usize).min(max_logprobs));
        let (mut ids, mut values) = (vec![0u32; num_top], vec![0f32; num_top]);
        let first = (index * max_logprobs * 4) as u64;
        pinned.read(offset_of(out.top_ids) + first, &mut ids)?;
        pinned.read(offset_of(out.top_logprobs) + first, &mut values)?;
        results.push(Slot {
            output_slot: position.output_slot,
            token: tokens[index],
            fault: faults[index],
            logprob: wanted.map(|_| (logprobs[index], ranks[index])),
            top: ids.into_iter().zip(values).filter(|(id, _)| *id != NONE).collect(),
        });
    }
    Ok(results)
}

/// Fills the slots that the step used; others stay as they are.
fn hand_out(finished: &Finished, output: &mut Output) {
    let capacity = output.top_capacity;
    for result in &finished.results {
        let slot = result.output_slot;
        output.faults[slot] = result.fault;
        output.tokens[slot] = if result.fault == 0 { result.token } else { NONE };
        let (logprob, rank) = result.logprob.unwrap_or((f32::NEG_INFINITY, NONE));
        (output.logprobs[slot], output.ranks[slot]) = (logprob, rank);
        let ids = &mut output.top_ids[slot * capacity..][..capacity];
        ids.fill(NONE);
        let logprobs = &mut output.top_logprobs[slot * capacity..][..capacity];
        logprobs.fill(f32::NEG_INFINITY);
        for (entry, &(id, logprob)) in result.top.iter().take(capacity).enumerate() {
            (ids[entry], logprobs[entry]) = (id, logprob);
        }
    }
    output.device_time_us = finished.device_us;
}
