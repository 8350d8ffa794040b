//! Decoding as the engine does it: no taps, two steps in flight, each row's next input its own last sample; against the same
//! rows alone, step by step. This is where backends replay recorded steps and pad rows.

use super::{goldens::open, label};
use crate::feed::{Part, Row, greedy, one, step};
use crate::golden::Case;
use crate::report::Report;
use crate::world::{Setup, World};
use anyhow::{Result, ensure};
use m3_abi::types::{NONE, SEQ_CHAINED, Seq};
use m3_abi::{Backend, Driver, Output, Step, Ticket};

/// Checkpoint, case, length of the longest prompt.
const PROMPTS: [(&str, &str, usize); 3] =
    [("text", "text_200", 60), ("real128", "text_1500", 700), ("vl_mxfp8", "text_24", 20)];
const STEPS: usize = 24;
/// Rows together: padded to the next power of two.
const ROWS: usize = 5;
/// Furthest that log-probabilities of equal tokens may lie apart in rounded modes.
const ROUNDED_LOGPROB: f32 = 0.1;

/// Token and its log-probability.
type Sample = (u32, f32);

pub fn run(driver: &dyn Driver, setup: &Setup, report: &mut Report, progress: &mut dyn FnMut(&str)) {
    for (checkpoint, case, length) in PROMPTS {
        let name = label(setup, &format!("replayed = step by step {checkpoint}"));
        progress(&name);
        report.check(&name, (checkpoint, case), || check(driver, setup, (checkpoint, case, length)));
    }
}

fn check(driver: &dyn Driver, setup: &Setup, (checkpoint, case, length): (&str, &str, usize)) -> Result<()> {
    let ids = Case::load(checkpoint, case)?.array("input_ids")?.ids();
    let prompts: Vec<&[u32]> = (0..ROWS).map(|row| &ids[..length - 3 * row]).collect();
    let mut alone = open(driver, setup, checkpoint)?;
    let wanted = prompts.iter().zip(0..).map(|(prompt, row)| step_by_step(&mut alone, row, prompt));
    let wanted = wanted.collect::<Result<Vec<_>>>()?;
    let mut world = open(driver, &Setup { taps: false, ..setup.clone() }, checkpoint)?;
    let found = in_flight(&mut world, &prompts)?;
    let (mut same, mut total) = (0, 0);
    for (row, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
        total += wanted.len();
        for (index, (found, wanted)) in found.iter().zip(wanted).enumerate() {
            if found.0 != wanted.0 {
                // A near-tie that fell the other way: what follows is another text.
                ensure!(!setup.is_exact(), "row {row}, token {index} is {}, not {}", found.0, wanted.0);
                break;
            }
            same += 1;
            let (off, most) =
                ((found.1 - wanted.1).abs(), if setup.is_exact() { 1e-4 } else { ROUNDED_LOGPROB });
            ensure!(off <= most, "row {row}, token {index}: log-probability {}, not {}", found.1, wanted.1);
        }
    }
    ensure!(same * 2 >= total, "{same} of {total} tokens agree");
    Ok(())
}

fn sample(output: &Output, slot: usize) -> Result<Sample> {
    ensure!(output.faults[slot] == 0, "slot {slot} is marked faulty: {:#x}", output.faults[slot]);
    Ok((output.tokens[slot], output.logprobs[slot]))
}

fn step_by_step(world: &mut World, row: u32, prompt: &[u32]) -> Result<Vec<Sample>> {
    let mut row = Row::with_settings(greedy(row));
    let mut samples = vec![sample(&one(world, &mut row, prompt, 1)?, 0)?];
    for _ in 0..STEPS {
        let last = samples[samples.len() - 1].0;
        samples.push(sample(&one(world, &mut row, &[last], 1)?, 0)?);
    }
    Ok(samples)
}

/// All rows together, the next step submitted before the last one is read.
fn in_flight(world: &mut World, prompts: &[&[u32]]) -> Result<Vec<Vec<Sample>>> {
    let page_tokens = world.page_tokens();
    let mut rows: Vec<Row> = (0..).map(Row::new).take(prompts.len()).collect();
    let mut samples = Vec::new();
    for (row, prompt) in rows.iter_mut().zip(prompts) {
        // Pages for what will be generated, too.
        let most = (prompt.len() + STEPS).div_ceil(page_tokens);
        while row.pages.len() < most {
            row.pages.push(world.take_page()?);
        }
        let mut part = [Part { row, tokens: prompt, num_logits: 1, chained: false }];
        samples.push(vec![sample(&step(world, &mut part)?, 0)?]);
    }
    let steps: Vec<Vec<Seq>> = (0..STEPS).map(|index| decode_step(&rows, index)).collect();
    let outputs = world.on_all_ranks(|rank| run_ahead(rank, &steps))?.swap_remove(0);
    for output in outputs {
        for (slot, samples) in samples.iter_mut().enumerate() {
            samples.push(sample(&output, slot)?);
        }
    }
    Ok(samples)
}

fn decode_step(rows: &[Row], index: usize) -> Vec<Seq> {
    let seq = |(slot, row): (usize, &Row)| Seq {
        row: row.row,
        flags: SEQ_CHAINED,
        first_position: (row.computed + index) as u32,
        num_tokens: 1,
        token_offset: 0,
        num_logits: 1,
        output_offset: slot as u32,
        target_offset: NONE,
        mask_offset: NONE,
        output_index: index as u32 + 1,
    };
    rows.iter().enumerate().map(seq).collect()
}

fn run_ahead(rank: &mut dyn Backend, steps: &[Vec<Seq>]) -> m3_abi::Result<Vec<Output>> {
    let mut outputs = Vec::new();
    let mut wait = |rank: &mut dyn Backend, ticket: Ticket| -> m3_abi::Result<()> {
        let mut output = Output::with_capacity(ROWS, 20);
        rank.wait(ticket, &mut output)?;
        outputs.push(output);
        Ok(())
    };
    let mut running = None;
    for seqs in steps {
        let next = rank.submit(&Step { seqs, ..Step::default() })?;
        if let Some(ticket) = running.replace(next) {
            wait(rank, ticket)?;
        }
    }
    if let Some(ticket) = running {
        wait(rank, ticket)?;
    }
    Ok(outputs)
}
