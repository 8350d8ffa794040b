//! Moving pages: copied, read and written back elsewhere, and reused after a tenant that left NaN behind.

use super::{compare::close, goldens::open, label};
use crate::feed::{Row, one};
use crate::golden::Case;
use crate::report::Report;
use crate::world::{Setup, World};
use anyhow::{Result, ensure};
use m3_abi::types::PageCopy;
use m3_abi::{Driver, Error};

type Check = fn(&mut World, &[u32]) -> Result<()>;

const CHECKS: [(&str, Check); 3] = [
    ("copied pages", copied),
    ("read and written pages", moved),
    ("pages poisoned with NaN before reuse", poisoned),
];

pub fn run(driver: &dyn Driver, setup: &Setup, report: &mut Report, progress: &mut dyn FnMut(&str)) {
    for (checkpoint, case) in [("long16", "text_1000"), ("real128", "text_1500")] {
        for (what, check) in CHECKS {
            let name = label(setup, &format!("{what} {checkpoint}"));
            progress(&name);
            report.check(&name, (checkpoint, case), || run_one(driver, setup, (checkpoint, case), check));
        }
    }
}

fn run_one(driver: &dyn Driver, setup: &Setup, (checkpoint, case): (&str, &str), check: Check) -> Result<()> {
    let mut ids = Case::load(checkpoint, case)?.array("input_ids")?.ids();
    let mut world = open(driver, setup, checkpoint)?;
    ids.truncate(world.page_tokens() * 5 + 7);
    check(&mut world, &ids)
}

/// Computes all but the last token in one row, and the last one in a row whose pages `relocate` filled.
fn same_after(
    world: &mut World,
    ids: &[u32],
    relocate: impl Fn(&mut World, &[u32], &[u32]) -> Result<()>,
) -> Result<()> {
    let last = ids.len() - 1;
    let mut row = Row::new(0);
    one(world, &mut row, &ids[..last], 0)?;
    let targets = (0..row.pages.len()).map(|_| world.take_page()).collect::<Result<Vec<u32>>>()?;
    relocate(world, &row.pages, &targets)?;
    let mut other = Row::new(1);
    other.pages = targets;
    other.computed = row.computed;
    one(world, &mut row, &ids[last..], 1)?;
    let wanted = world.tap("logits")?.data;
    one(world, &mut other, &ids[last..], 1)?;
    close("logits", &world.tap("logits")?.data, &wanted, 0.0)
}

fn copied(world: &mut World, ids: &[u32]) -> Result<()> {
    same_after(world, ids, |world, from, to| {
        let copies: Vec<PageCopy> = from.iter().zip(to).map(|(&from, &to)| PageCopy { from, to }).collect();
        world.on_all_ranks(|rank| rank.copy_pages(&copies)).map(|_| ())
    })
}

fn moved(world: &mut World, ids: &[u32]) -> Result<()> {
    same_after(world, ids, |world, from, to| {
        world
            .on_all_ranks(|rank| {
                let mut bytes = Vec::new();
                rank.read_pages(from, &mut bytes)?;
                if bytes.is_empty() {
                    return Err(Error::Fatal("reading pages gave no bytes".to_owned()));
                }
                rank.write_pages(to, &bytes)
            })
            .map(|_| ())
    })
}

fn poisoned(world: &mut World, ids: &[u32]) -> Result<()> {
    one(world, &mut Row::new(0), ids, 1)?;
    let wanted = world.tap("logits")?.data;
    let mut row = Row::new(1);
    row.pages =
        (0..ids.len().div_ceil(world.page_tokens())).map(|_| world.take_page()).collect::<Result<_>>()?;
    let pages = row.pages.clone();
    world.on_all_ranks(|rank| {
        let mut bytes = Vec::new();
        rank.read_pages(&pages, &mut bytes)?;
        // All ones is NaN in every float format a page can have.
        bytes.fill(0xff);
        rank.write_pages(&pages, &bytes)
    })?;
    let output = one(world, &mut row, ids, 1)?;
    ensure!(output.faults[0] == 0, "the row is marked faulty: {:#x}", output.faults[0]);
    close("logits", &world.tap("logits")?.data, &wanted, 0.0)
}
