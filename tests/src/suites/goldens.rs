//! Golden answers: every tap of a prefill in the order of the model, so that the first line that fails names the
//! place, and greedy decoding.

#![allow(clippy::print_stdout, reason = "how far rounding went is worth seeing when a check passes, too")]

use super::compare::{
    BLOCK_MARGIN, BLOCK_SCORE, HIDDEN, LOGITS, ROUNDED_ARGMAX, ROUNDED_BLOCK_MARGIN, ROUNDED_CLEAR_PERCENT,
    ROUNDED_FLIPS, ROUNDED_GREEDY, ROUNDED_REL_RMS, ROUNDED_ROUTER_MARGIN, ROUTER, ROUTER_MARGIN, argmax,
    close, rel_rms,
};
use super::{GOLDENS, label};
use crate::feed::{Part, Row, one, step};
use crate::golden::{self, Array, Case};
use crate::report::Report;
use crate::world::{Setup, World};
use anyhow::{Result, ensure};
use m3_abi::{Driver, Tap};
use m3_model::config::{AttentionKind, FfnKind};

pub fn run(driver: &dyn Driver, setup: &Setup, report: &mut Report, progress: &mut dyn FnMut(&str)) {
    for (checkpoint, cases, greedy_case) in GOLDENS {
        for case in cases {
            let name = label(setup, &format!("golden {checkpoint}/{case}"));
            progress(&name);
            report.check(&name, (checkpoint, case), || prefill(driver, setup, checkpoint, case));
        }
        let name = label(setup, &format!("golden {checkpoint}/{greedy_case}"));
        progress(&name);
        report.check(&name, (checkpoint, greedy_case), || greedy(driver, setup, checkpoint, greedy_case));
    }
}

pub fn open(driver: &dyn Driver, setup: &Setup, checkpoint: &str) -> Result<World> {
    World::open(driver, &golden::checkpoint(checkpoint)?, setup)
}

fn prefill(driver: &dyn Driver, setup: &Setup, checkpoint: &str, case: &str) -> Result<()> {
    let case = Case::load(checkpoint, case)?;
    let mut world = open(driver, setup, checkpoint)?;
    prefill_case(&mut world, &case, setup.is_exact())
}

/// The taps of one prefill against a case's.
pub fn prefill_case(world: &mut World, case: &Case, exact: bool) -> Result<()> {
    prefill_row(world, case, Row::new(3), exact)
}

/// The same for a row that may have media.
pub fn prefill_row(world: &mut World, case: &Case, mut row: Row, exact: bool) -> Result<()> {
    let ids = case.array("input_ids")?.ids();
    one(world, &mut row, &ids, ids.len())?;
    let mut clean = vec![true; ids.len()];
    let mut tally = Tally { exact, ..Tally::default() };
    for (layer, plan) in world.config.text.layers.clone().into_iter().enumerate() {
        if plan.attention == AttentionKind::Sparse {
            blocks(world, case, layer, &mut tally, &mut clean)?;
        }
        if plan.ffn == FfnKind::Moe {
            experts(world, case, layer, &mut tally, &mut clean)?;
        }
        if let (Some(wanted), true) = (case.get(&format!("layer_out.{layer}")), exact) {
            let name = format!("layer_out.{layer}");
            close(&name, &world.tap(&name)?.data, &wanted.data, LOGITS)?;
        }
    }
    tally.judge()?;
    if exact {
        close("hidden", &world.tap("hidden")?.data, &case.array("hidden")?.data, HIDDEN)?;
    }
    logits(&world.tap("logits")?, case, exact, &clean)
}

/// Choices that were clear in the golden run. Exact modes must make them all; in rounded ones a flip at an earlier
/// position moves the context of later ones, so a few may differ.
#[derive(Default)]
struct Tally {
    exact: bool,
    made: usize,
    different: usize,
    first: Option<String>,
}

impl Tally {
    fn count(&mut self, same: bool, sentence: impl FnOnce() -> String) -> Result<()> {
        self.made += 1;
        if !same {
            self.different += 1;
            let sentence = sentence();
            ensure!(!self.exact, sentence);
            self.first.get_or_insert(sentence);
        }
        Ok(())
    }

    fn judge(&self) -> Result<()> {
        let share = self.different as f64 / self.made.max(1) as f64;
        let first = self.first.as_deref().unwrap_or_default();
        ensure!(
            share <= ROUNDED_FLIPS,
            "{share:.4} of clear choices differ, at most {ROUNDED_FLIPS}; first {first}"
        );
        Ok(())
    }
}

fn blocks(world: &mut World, case: &Case, layer: usize, tally: &mut Tally, clean: &mut [bool]) -> Result<()> {
    let exact = tally.exact;
    let (length, heads) = (clean.len(), world.config.text.sparse.num_index_heads);
    if exact {
        block_scores(world, case, layer, length)?;
    }
    let selected = world.tap_of_heads(&format!("selected.{layer}"))?;
    let wanted = case.array(&format!("blocks.{layer}"))?;
    let margin = case.array(&format!("block_margin.{layer}"))?;
    let (width, golden_width) = (selected.data.len() / (heads * length), wanted.shape[2]);
    let least = if exact { BLOCK_MARGIN } else { ROUNDED_BLOCK_MARGIN };
    let before = clean.to_vec();
    for (place, (found, wanted)) in
        selected.data.chunks(width).zip(wanted.data.chunks(golden_width)).enumerate()
    {
        let (head, position) = (place / length, place % length);
        let same = found[..golden_width] == *wanted && found[golden_width..].iter().all(|&id| id == -1.0);
        let clear = margin.data[place] > least && before[position];
        if clear {
            tally.count(same, || {
                format!("selected.{layer}: head {head} position {position} is {found:?}, not {wanted:?}")
            })?;
        }
        clean[position] &= same;
    }
    Ok(())
}

fn block_scores(world: &mut World, case: &Case, layer: usize, length: usize) -> Result<()> {
    let name = format!("block_score.{layer}");
    let (found, wanted) = (world.tap_of_heads(&name)?, case.array(&name)?);
    let width = wanted.shape[2];
    let heads = wanted.shape[0];
    let positions = case.logits_positions()?;
    let mut picked = Vec::with_capacity(wanted.data.len());
    for head in 0..heads {
        for position in &positions {
            picked.extend_from_slice(&found.data[(head * length + position) * width..][..width]);
        }
    }
    close(&name, &picked, &wanted.data, BLOCK_SCORE)
}

fn experts(
    world: &mut World,
    case: &Case,
    layer: usize,
    tally: &mut Tally,
    clean: &mut [bool],
) -> Result<()> {
    let exact = tally.exact;
    if exact {
        let name = format!("router_score.{layer}");
        close(&name, &world.tap(&name)?.data, &case.array(&name)?.data, ROUTER)?;
    }
    let (found, weights) =
        (world.tap(&format!("routed.{layer}"))?, world.tap(&format!("routed_weights.{layer}"))?);
    let (wanted, wanted_weights) =
        (case.array(&format!("experts.{layer}"))?, case.array(&format!("expert_weights.{layer}"))?);
    let margin = case.array(&format!("router_margin.{layer}"))?;
    let least = if exact { ROUTER_MARGIN } else { ROUNDED_ROUTER_MARGIN };
    for (position, clean) in clean.iter_mut().enumerate() {
        let (ids, wanted_ids) = (row(&found, position), wanted.row(position));
        let same = ids == wanted_ids;
        let clear = margin.data[position] > least && *clean;
        if clear {
            tally.count(same, || {
                format!("routed.{layer}: position {position} is {ids:?}, not {wanted_ids:?}")
            })?;
        }
        if same && exact {
            let name = format!("routed_weights.{layer} at {position}");
            close(&name, row(&weights, position), wanted_weights.row(position), 1e-5)?;
        }
        *clean &= same;
    }
    Ok(())
}

fn row(tap: &Tap, index: usize) -> &[f32] {
    let width = tap.data.len() / tap.shape[0].max(1) as usize;
    &tap.data[index * width..][..width]
}

fn logits(found: &Tap, case: &Case, exact: bool, clean: &[bool]) -> Result<()> {
    let wanted = case.array("logits")?;
    let positions = case.logits_positions()?;
    if exact {
        for (index, &position) in positions.iter().enumerate() {
            close(&format!("logits at {position}"), row(found, position), wanted.row(index), LOGITS)?;
        }
        return Ok(());
    }
    rounded_logits(found, &case.all_logits()?, clean)
}

/// On positions where every choice matched: relative rms over all of them, and how often the best token is the same.
fn rounded_logits(found: &Tap, wanted: &Array, clean: &[bool]) -> Result<()> {
    let positions = clean.len();
    let pairs: Vec<(&[f32], &[f32])> = (0..positions)
        .filter(|&position| clean[position])
        .map(|position| (row(found, position), wanted.row(position)))
        .collect();
    ensure!(pairs.len() * 2 > positions, "choices match at {} of {positions} positions only", pairs.len());
    let (all_found, all_wanted): (Vec<_>, Vec<_>) = pairs.iter().copied().unzip();
    let off = rel_rms(&all_found.concat(), &all_wanted.concat());
    ensure!(
        off <= ROUNDED_REL_RMS,
        "logits: relative rms {off:.4} on clean positions, at most {ROUNDED_REL_RMS}"
    );
    best_tokens(&pairs, off)
}

/// How often the best token is the golden one: over all positions, and where the golden best stands clear of the second by
/// more than the rounding that is allowed. Ties within rounding fall either way.
fn best_tokens(pairs: &[(&[f32], &[f32])], off: f64) -> Result<()> {
    let differ = |(a, b): &&(&[f32], &[f32])| argmax(a) != argmax(b);
    let num_differing = pairs.iter().filter(differ).count();
    println!("      logits: relative rms {off:.4}, best token differs at {num_differing} of {}", pairs.len());
    let agree = 1.0 - num_differing as f64 / pairs.len() as f64;
    // A single disagreement in a short case is within what rounding does.
    let short = pairs.len() < 20 && num_differing <= 1;
    ensure!(
        agree >= ROUNDED_ARGMAX || short,
        "the best token agrees at {agree:.3} of {} positions, at least {ROUNDED_ARGMAX} (relative rms {off:.4})",
        pairs.len()
    );
    let clear: Vec<_> = pairs.iter().filter(|(_, wanted)| is_clear(wanted)).collect();
    let num_differing = clear.iter().copied().filter(differ).count();
    ensure!(
        num_differing * 100 <= clear.len() * ROUNDED_CLEAR_PERCENT || num_differing <= 1,
        "the best token differs at {num_differing} of {} clear positions (relative rms {off:.4})",
        clear.len()
    );
    Ok(())
}

/// The best logit leads by more than what rounding may move.
fn is_clear(logits: &[f32]) -> bool {
    let best = argmax(logits);
    let rest = logits.iter().enumerate().filter(|&(index, _)| index != best);
    let second = rest.map(|(_, &logit)| logit).fold(f32::NEG_INFINITY, f32::max);
    let rms =
        (logits.iter().map(|&logit| f64::from(logit).powi(2)).sum::<f64>() / logits.len() as f64).sqrt();
    f64::from(logits[best] - second) > ROUNDED_REL_RMS * rms
}

/// Exact: free running, equal ids and step logits. Rounded: teacher-forced agreement.
fn greedy(driver: &dyn Driver, setup: &Setup, checkpoint: &str, case: &str) -> Result<()> {
    let case = Case::load(checkpoint, case)?;
    let mut world = open(driver, setup, checkpoint)?;
    greedy_case(&mut world, &case, setup.is_exact())
}

pub fn greedy_case(world: &mut World, case: &Case, exact: bool) -> Result<()> {
    greedy_row(world, case, Row::new(1), exact)
}

/// The same for a row that may have media.
pub fn greedy_row(world: &mut World, case: &Case, mut row: Row, exact: bool) -> Result<()> {
    let (prompt, new) = (case.array("prompt_ids")?.ids(), case.array("new_ids")?.ids());
    if !exact {
        let forced = [&prompt[..], &new[..new.len() - 1]].concat();
        let output = one(world, &mut row, &forced, new.len())?;
        let same = output.tokens.iter().zip(&new).filter(|(a, b)| a == b).count() as f64 / new.len() as f64;
        ensure!(
            same >= ROUNDED_GREEDY,
            "teacher-forced tokens agree at {same:.3}, at least {ROUNDED_GREEDY}"
        );
        return Ok(());
    }
    let step_logits = case.array("step_logits")?;
    let mut output = one(world, &mut row, &prompt, 1)?;
    for (index, &wanted) in new.iter().enumerate() {
        close(&format!("step_logits[{index}]"), &world.tap("logits")?.data, step_logits.row(index), LOGITS)?;
        ensure!(output.tokens[0] == wanted, "token {index} is {}, not {wanted}", output.tokens[0]);
        // Odd steps name the token, even ones say "what you sampled last".
        let chained = index % 2 == 0;
        output = step(world, &mut [Part { row: &mut row, tokens: &[wanted], num_logits: 1, chained }])?;
    }
    Ok(())
}
