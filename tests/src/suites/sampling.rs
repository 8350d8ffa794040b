//! Sampling on the device is what `m3_model::sampling` specifies: given the backend's own logits, the same token, the
//! same log-probabilities, the same alternatives.

use super::{goldens::open, label};
use crate::feed::{Row, greedy, one};
use crate::golden::Case;
use crate::report::Report;
use crate::world::{Setup, World};
use anyhow::{Result, ensure};
use m3_abi::types::RowBind;
use m3_abi::{Driver, Output};
use m3_model::sampling::{RowSampling, SamplingSettings, Scratch, choose, log_sum_exp, rank, top};

pub fn run(driver: &dyn Driver, setup: &Setup, report: &mut Report, progress: &mut dyn FnMut(&str)) {
    let name = label(setup, "sampling as specified text");
    progress(&name);
    report.record(&name, || sampling(driver, setup));
}

/// Temperature, top k, top p, min p.
const SETTINGS: [(f32, u32, f32, f32); 8] = [
    (0.0, 0, 1.0, 0.0),
    (1.0, 0, 1.0, 0.0),
    (1.5, 0, 0.95, 0.0),
    (0.7, 20, 1.0, 0.0),
    (1.0, 1, 1.0, 0.0),
    (1.0, 0, 0.0, 0.0),
    (1.3, 300_000, 0.9, 0.05),
    (1e-7, 0, 1.0, 0.0),
];

fn sampling(driver: &dyn Driver, setup: &Setup) -> Result<()> {
    let ids = Case::load("text", "text_17")?.array("input_ids")?.ids();
    let mut world = open(driver, setup, "text")?;
    for (index, (temperature, top_k, top_p, min_p)) in (0..).zip(SETTINGS) {
        let bind = RowBind { temperature, top_k, top_p, min_p, seed: 77 + u64::from(index), ..greedy(index) };
        let mut row = Row::with_settings(bind);
        let mut output = one(&mut world, &mut row, &ids, 1)?;
        for output_index in 0..4 {
            check(&mut world, &bind, &output, output_index)?;
            output = one(&mut world, &mut row, &[output.tokens[0]], 1)?;
        }
    }
    Ok(())
}

fn check(world: &mut World, bind: &RowBind, output: &Output, output_index: u32) -> Result<()> {
    let logits = world.tap("logits")?.data;
    let row = RowSampling { settings: SamplingSettings::from_bind(bind), ..RowSampling::default() };
    let wanted = choose(&logits, &row, &[], None, output_index, &mut Scratch::default());
    let token = output.tokens[0];
    ensure!(wanted == Ok(token), "{bind:?}, output {output_index}: {token} is sampled, not {wanted:?}");
    let log_sum = log_sum_exp(&logits);
    let logprob = logits[token as usize] - log_sum;
    ensure!(
        (output.logprobs[0] - logprob).abs() < 1e-4,
        "log-probability {}, not {logprob}",
        output.logprobs[0]
    );
    ensure!(
        output.ranks[0] == rank(&logits, token),
        "rank {}, not {}",
        output.ranks[0],
        rank(&logits, token)
    );
    let alternatives = top(&logits, bind.num_logprobs as usize);
    let found = &output.top_ids[..alternatives.len()];
    ensure!(found == alternatives, "alternatives {found:?}, not {alternatives:?}");
    Ok(())
}
