//! Every way to sample at once, step after step: penalties, biases, masks, scored targets, drafts and samples taken back, all
//! against the row table and the sampler of the specification, fed with the backend's own logits.

use super::{goldens::open, label};
use crate::report::Report;
use crate::world::{Setup, World};
use anyhow::{Result, ensure};
use m3_abi::types::{NONE, PageAppend, RowBind, Seq, TokenBias};
use m3_abi::{Driver, Output, Step};
use m3_model::batch::{Batch, Limits, RowTable};
use m3_model::sampling::{Scratch, fill_slot};

const ROWS: u32 = 6;
/// A page of 128 tokens suffices.
const PROMPT: u32 = 20;
const STEPS: u32 = 12;
const TOP: usize = 20;

pub fn run(driver: &dyn Driver, setup: &Setup, report: &mut Report, progress: &mut dyn FnMut(&str)) {
    let name = label(setup, "sampling settings step by step text");
    progress(&name);
    report.record(&name, || check(driver, setup));
}

/// The specification beside the backend.
struct Mirror {
    rows: RowTable,
    batch: Batch,
    scratch: Scratch,
    random: u64,
}

impl Mirror {
    fn next(&mut self, below: u32) -> u32 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.random >> 33) % u64::from(below)) as u32
    }

    /// Runs a step on both and compares all that it answers.
    fn step(&mut self, world: &mut World, step: &Step<'_>, what: &str) -> Result<Output> {
        let found = world.step(step)?;
        let logits = world.tap("logits")?;
        self.rows.apply(step, &mut self.batch)?;
        let mut wanted = Output::with_capacity(found.tokens.len(), TOP);
        let vocab = logits.shape[1] as usize;
        for (index, row) in logits.data.chunks(vocab).enumerate() {
            fill_slot(&self.batch, index, row, &mut self.rows, &mut wanted, &mut self.scratch);
        }
        ensure!(found.faults == wanted.faults, "{what}: faults {:?}, not {:?}", found.faults, wanted.faults);
        ensure!(found.tokens == wanted.tokens, "{what}: tokens {:?}, not {:?}", found.tokens, wanted.tokens);
        ensure!(found.ranks == wanted.ranks, "{what}: ranks {:?}, not {:?}", found.ranks, wanted.ranks);
        ensure!(found.top_ids == wanted.top_ids, "{what}: alternatives differ");
        let pairs = found.logprobs.iter().zip(&wanted.logprobs);
        for (found, wanted) in pairs.chain(found.top_logprobs.iter().zip(&wanted.top_logprobs)) {
            ensure!(
                found == wanted || (found - wanted).abs() < 1e-4,
                "{what}: log-probability {found}, not {wanted}"
            );
        }
        Ok(found)
    }
}

/// Rows differ in everything that can be set.
fn bind(row: u32) -> RowBind {
    let is = |bit: u32| (row + 1) >> bit & 1 == 1;
    RowBind {
        row,
        num_logprobs: if is(0) { row } else { NONE },
        seed: 1000 + u64::from(row),
        temperature: if row == 4 { 0.0 } else { 1.2 },
        top_p: if is(1) { 0.9 } else { 1.0 },
        min_p: if is(2) { 0.02 } else { 0.0 },
        top_k: if row == 3 { 30 } else { 0 },
        repetition_penalty: if is(0) { 1.3 } else { 1.0 },
        presence_penalty: if is(1) { 0.4 } else { 0.0 },
        frequency_penalty: if is(2) { -0.3 } else { 0.0 },
        history_offset: 0,
        prompt_len: PROMPT,
        output_len: 3,
        bias_offset: 2 * (row % 2),
        num_biases: row % 4,
    }
}

const BIASES: [TokenBias; 5] = [
    TokenBias { token: 7, bias: 3.0 },
    TokenBias { token: 300, bias: f32::NEG_INFINITY },
    TokenBias { token: 7, bias: -0.5 },
    TokenBias { token: 11, bias: 2.5 },
    TokenBias { token: 12, bias: -4.0 },
];

fn seq(row: u32, first_position: u32, token_offset: u32, num_tokens: u32, slot: u32) -> Seq {
    Seq {
        row,
        flags: 0,
        first_position,
        num_tokens,
        token_offset,
        num_logits: 1,
        output_offset: slot,
        target_offset: NONE,
        mask_offset: NONE,
        output_index: first_position,
    }
}

fn check(driver: &dyn Driver, setup: &Setup) -> Result<()> {
    let mut world = open(driver, setup, "text")?;
    let vocab_size = world.config.text.vocab_size;
    let limits = Limits {
        max_rows: ROWS,
        max_step_tokens: 512,
        max_context: 1024,
        page_tokens: 128,
        max_logprobs: TOP as u32,
        vocab_size,
        num_pages: 1 << 20,
    };
    let rows = RowTable::new(limits);
    let mut mirror = Mirror { rows, batch: Batch::default(), scratch: Scratch::default(), random: 7 };
    let last = prompts(&mut world, &mut mirror)?;
    decodes(&mut world, &mut mirror, last)
}

/// All rows' prompts in one step, every position of row 1 scored. Answers each row's sample.
fn prompts(world: &mut World, mirror: &mut Mirror) -> Result<Vec<u32>> {
    let binds: Vec<_> = (0..ROWS).map(bind).collect();
    let pages: Vec<_> = (0..ROWS).map(|row| PageAppend { row, first: 0, offset: row, count: 1 }).collect();
    let page_ids = (0..ROWS).map(|_| world.take_page()).collect::<Result<Vec<_>>>()?;
    let tokens: Vec<u32> = (0..PROMPT * ROWS).map(|_| mirror.next(512)).collect();
    let history: Vec<u32> = (0..PROMPT + 3).map(|_| mirror.next(40)).collect();
    let mut targets: Vec<u32> = (1..PROMPT).map(|_| mirror.next(512)).collect();
    targets.push(NONE);
    let mut slots = 0;
    let mut last_slots = Vec::new();
    let seqs: Vec<_> = (0..ROWS)
        .map(|row| {
            let mut seq = seq(row, 0, row * PROMPT, PROMPT, slots);
            if row == 1 {
                (seq.num_logits, seq.target_offset) = (PROMPT, 0);
            }
            slots += seq.num_logits;
            last_slots.push(slots as usize - 1);
            seq
        })
        .collect();
    let (biases, history) = (&BIASES[..], &history[..]);
    let step = Step {
        binds: &binds,
        pages: &pages,
        page_ids: &page_ids,
        seqs: &seqs,
        tokens: &tokens,
        targets: &targets,
        biases,
        history,
        ..Step::default()
    };
    let output = mirror.step(world, &step, "prompts")?;
    Ok(last_slots.into_iter().map(|slot| output.tokens[slot]).collect())
}

/// Masks for row 2 (an empty one once), drafts for row 3, another token than the sampled one for row 5 now and then.
fn decodes(world: &mut World, mirror: &mut Mirror, mut last: Vec<u32>) -> Result<()> {
    let words = mirror.rows.limits().mask_words();
    let mut ends = vec![PROMPT; ROWS as usize];
    for step in 0..STEPS {
        let masks: Vec<u32> = match step {
            4 => vec![0; words],
            _ => (0..words).map(|_| mirror.next(u32::MAX) & mirror.next(u32::MAX)).collect(),
        };
        let (mut tokens, mut seqs, mut slots) = (Vec::new(), Vec::new(), 0);
        for row in 0..ROWS {
            let end = &mut ends[row as usize];
            let mut input = vec![last[row as usize]];
            if row == 5 && step % 3 == 1 {
                input[0] = mirror.next(40);
            }
            let drafts = if row == 3 && step % 2 == 0 { 3 } else { 0 };
            input.extend((0..drafts).map(|_| mirror.next(40)));
            let mut seq = seq(row, *end, tokens.len() as u32, input.len() as u32, slots);
            seq.num_logits = input.len() as u32;
            if row == 2 {
                seq.mask_offset = 0;
            }
            slots += seq.num_logits;
            // Drafts are rejected after the first.
            *end += 1 + drafts.min(1);
            tokens.extend(input);
            seqs.push(seq);
        }
        let what = format!("step {step}");
        let full = Step { seqs: &seqs, tokens: &tokens, masks: &masks, ..Step::default() };
        let output = mirror.step(world, &full, &what)?;
        for (row, seq) in seqs.iter().enumerate() {
            let kept = seq.output_offset as usize + (seq.num_logits as usize - 1).min(1);
            last[row] = if output.faults[kept] == 0 { output.tokens[kept] } else { 0 };
        }
    }
    Ok(())
}
