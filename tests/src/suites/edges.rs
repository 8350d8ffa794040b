//! Lengths around every border of a block, and where selection begins to drop blocks, against the scalar reference.

use super::{compare::same_logits, goldens::open, label};
use crate::feed::{Row, one};
use crate::golden::Case;
use crate::report::Report;
use crate::world::{Setup, World};
use anyhow::{Result, ensure};
use m3_abi::{Driver, types};
use m3_model::config::{AttentionKind, FfnKind};
use m3_model::reference::ReferenceDriver;

/// Around one block, two blocks, and the sixteen that M3 keeps.
const LENGTHS: [usize; 9] = [1, 127, 128, 129, 255, 2047, 2048, 2049, 2175];

pub fn run(driver: &dyn Driver, setup: &Setup, report: &mut Report, progress: &mut dyn FnMut(&str)) {
    let name = label(setup, "lengths at block borders long128");
    progress(&name);
    report.check(&name, ("long128", "text_2700"), || lengths(driver, setup));
}

fn lengths(driver: &dyn Driver, setup: &Setup) -> Result<()> {
    let ids = Case::load("long128", "text_2700")?.array("input_ids")?.ids();
    let mut reference = open(&ReferenceDriver::default(), &Setup::with_dtype(types::DTYPE_F32), "long128")?;
    let mut world = open(driver, setup, "long128")?;
    let (mut found_row, mut wanted_row) = (Row::new(2), Row::new(2));
    let mut done = 0;
    let mut compared = 0;
    for length in LENGTHS {
        let part = &ids[done..length];
        let (found, found_choices) = last_position(&mut world, &mut found_row, part)?;
        let (wanted, wanted_choices) = last_position(&mut reference, &mut wanted_row, part)?;
        // Rounding may flip a near-tie of routing or selection; logits then differ and say nothing.
        if setup.is_exact() || found_choices == wanted_choices {
            same_logits(&format!("logits after {length} tokens"), &found, &wanted, setup.is_exact())?;
            compared += 1;
        }
        done = length;
    }
    ensure!(compared * 2 > LENGTHS.len(), "choices match at {compared} of {} lengths only", LENGTHS.len());
    Ok(())
}

/// Logits of the last position, and every expert and block chosen there.
fn last_position(world: &mut World, row: &mut Row, part: &[u32]) -> Result<(Vec<f32>, Vec<f32>)> {
    one(world, row, part, 1)?;
    let logits = world.tap("logits")?.data;
    let mut choices = Vec::new();
    for (layer, plan) in world.config.text.layers.clone().into_iter().enumerate() {
        if plan.ffn == FfnKind::Moe {
            let tap = world.tap(&format!("routed.{layer}"))?;
            choices.extend(&tap.data[tap.data.len() - tap.shape[1] as usize..]);
        }
        if plan.attention == AttentionKind::Sparse {
            let tap = world.tap_of_heads(&format!("selected.{layer}"))?;
            let per_head = tap.data.len() / tap.shape[0] as usize;
            for head in tap.data.chunks(per_head) {
                choices.extend(&head[per_head - tap.shape[2] as usize..]);
            }
        }
    }
    Ok((logits, choices))
}
