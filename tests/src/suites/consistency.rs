//! One answer however the work is cut: decode as prefill, chunked as whole, cached as cold, in a batch as alone.

use super::compare::same_logits;
use super::{goldens::open, label};
use crate::feed::{Part, Row, in_chunks, one, step};
use crate::golden::Case;
use crate::report::Report;
use crate::world::{Setup, World};
use anyhow::{Context, Result, ensure};
use m3_abi::{Driver, Tap};

type Check = fn(&mut World, &[u32], bool) -> Result<()>;

const CHECKS: [(&str, Check); 4] = [
    ("decode = prefill", decode),
    ("chunked = whole", chunked),
    ("cached = cold", cached),
    ("batch = alone", batch),
];

/// Checkpoint, case whose prompt is taken (repeated where it is short), how many tokens: more than a page.
const PROMPTS: [(&str, &str, usize); 3] =
    [("long16", "text_1000", 300), ("real128", "text_1500", 700), ("vl_mxfp8", "text_24", 150)];

pub fn run(driver: &dyn Driver, setup: &Setup, report: &mut Report, progress: &mut dyn FnMut(&str)) {
    for (checkpoint, case, length) in PROMPTS {
        for (what, check) in CHECKS {
            let name = label(setup, &format!("{what} {checkpoint}"));
            progress(&name);
            report.check(&name, (checkpoint, case), || {
                run_one(driver, setup, (checkpoint, case, length), check)
            });
        }
    }
}

fn run_one(driver: &dyn Driver, setup: &Setup, prompt: (&str, &str, usize), check: Check) -> Result<()> {
    let (checkpoint, case, length) = prompt;
    let prompt = Case::load(checkpoint, case)?.array("input_ids")?.ids();
    let ids: Vec<u32> = prompt.into_iter().cycle().take(length).collect();
    check(&mut open(driver, setup, checkpoint)?, &ids, setup.is_exact())
}

/// Logits of every position, computed in one step.
fn whole(world: &mut World, row: u32, ids: &[u32]) -> Result<Tap> {
    one(world, &mut Row::new(row), ids, ids.len())?;
    world.tap("logits")
}

fn position(tap: &Tap, index: usize) -> &[f32] {
    let width = tap.shape[1] as usize;
    &tap.data[index * width..][..width]
}

/// In rounded modes near-ties of routing and selection flip; half of the places must still be close.
fn mostly(results: Vec<Result<()>>, exact: bool) -> Result<()> {
    let total = results.len();
    let failed: Vec<_> = results.into_iter().filter_map(Result::err).collect();
    let allowed = if exact { 0 } else { total / 2 };
    let num_failed = failed.len();
    match failed.into_iter().next() {
        Some(first) if num_failed > allowed => Err(first.context(format!("{num_failed} of {total} places"))),
        _ => Ok(()),
    }
}

fn decode(world: &mut World, ids: &[u32], exact: bool) -> Result<()> {
    let wanted = whole(world, 0, ids)?;
    let mut row = Row::new(1);
    let first = ids.len() - 20;
    one(world, &mut row, &ids[..first], 0)?;
    let mut results = Vec::new();
    for at in first..ids.len() {
        one(world, &mut row, &ids[at..=at], 1)?;
        let found = world.tap("logits")?;
        results.push(same_logits(&format!("logits at {at}"), &found.data, position(&wanted, at), exact));
    }
    mostly(results, exact)
}

fn chunked(world: &mut World, ids: &[u32], exact: bool) -> Result<()> {
    let wanted = whole(world, 0, ids)?;
    for (row, chunk) in [(1, 1), (2, 3), (3, 16), (4, 127), (5, 128), (6, 129)] {
        // One token at a time is slow; the head of the prompt is enough.
        let ids = if chunk < 16 { &ids[..ids.len().min(60 * chunk)] } else { ids };
        let ends = in_chunks(world, &mut Row::new(row), ids, chunk)?;
        let check = |(at, found): &(usize, Vec<f32>)| {
            same_logits(&format!("chunks of {chunk}, logits at {at}"), found, position(&wanted, *at), exact)
        };
        mostly(ends.iter().map(check).collect(), exact)?;
    }
    Ok(())
}

/// The second row starts on the first one's pages; the same arithmetic, so even rounded modes must be equal.
fn cached(world: &mut World, ids: &[u32], exact: bool) -> Result<()> {
    let page_tokens = world.page_tokens();
    let pages = (ids.len() - 1) / page_tokens;
    ensure!(pages > 0, "{} tokens fill no page of {page_tokens}", ids.len());
    let mut cold = Row::new(0);
    one(world, &mut cold, &ids[..pages * page_tokens], 0)?;
    let mut warm = Row::sharing(1, &cold, pages, page_tokens);
    one(world, &mut cold, &ids[pages * page_tokens..], 1)?;
    let wanted = world.tap("logits")?.data;
    one(world, &mut warm, &ids[pages * page_tokens..], 1)?;
    let found = world.tap("logits")?.data;
    ensure!(found == wanted, "a prefix-cache hit changes the logits");
    let whole = whole(world, 2, ids)?;
    same_logits("against one step", &found, position(&whole, ids.len() - 1), exact)
        .or_else(|error| if exact { Err(error) } else { Ok(()) })
}

/// Three rows of different lengths and kinds (decode, chunk, whole prompt) in one step.
fn batch(world: &mut World, ids: &[u32], exact: bool) -> Result<()> {
    let cuts = [ids.len(), ids.len() * 2 / 3, ids.len() / 3 + 1];
    let mut wanted = Vec::new();
    for (row, cut) in (0..).zip(cuts) {
        let all = whole(world, row, &ids[..cut])?;
        wanted.push(position(&all, cut - 1).to_vec());
    }
    let (mut decode, mut chunk, mut prompt) = (Row::new(4), Row::new(5), Row::new(6));
    one(world, &mut decode, &ids[..cuts[0] - 1], 0)?;
    one(world, &mut chunk, &ids[..cuts[1] / 2], 0)?;
    let half = chunk.computed;
    let output = step(
        world,
        &mut [
            Part { row: &mut decode, tokens: &ids[cuts[0] - 1..cuts[0]], num_logits: 1, chained: false },
            Part { row: &mut chunk, tokens: &ids[half..cuts[1]], num_logits: 1, chained: false },
            Part { row: &mut prompt, tokens: &ids[..cuts[2]], num_logits: 1, chained: false },
        ],
    )?;
    let found = world.tap("logits")?;
    ensure!(output.tokens.len() == 3, "three rows give {} tokens", output.tokens.len());
    let results = wanted
        .iter()
        .enumerate()
        .map(|(index, wanted)| {
            same_logits(&format!("row {index}"), position(&found, index), wanted, exact).context("in a batch")
        })
        .collect();
    mostly(results, exact)
}
