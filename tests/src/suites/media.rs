//! Pictures and videos: the vision tower against its goldens, prompts with encoded media, chunk boundaries inside a
//! picture, and refusals. A backend whose probe does not say that it encodes is skipped by name.

use super::compare::{FEATURES, LOGITS, ROUNDED_REL_RMS, TOWER, close, rel_rms};
use super::goldens::{greedy_row, open, prefill_row};
use super::label;
use crate::feed::{Row, in_chunks, one};
use crate::golden::Case;
use crate::report::Report;
use crate::world::{Setup, World};
use anyhow::{Context, Result, bail, ensure};
use m3_abi::types::{MediaSpan, PROBE_ENCODES};
use m3_abi::{Driver, ProbeRequest};

/// Values of a patch in the golden checkpoints.
const ROW_LEN: usize = 1176;

/// Golden files of pictures and videos; the vision part of `vl_mxfp8` is that of `vl`.
const MEDIA: [&str; 3] = ["images", "video8", "video11"];

/// A prompt: its case, the pictures it shows by index, and its video.
type Prompt = (&'static str, &'static [usize], Option<&'static str>);

const PROMPTS: [Prompt; 4] = [
    ("mm_image1", &[1], None),
    ("mm_images4", &[0, 1, 2, 3], None),
    ("mm_image_video", &[2], Some("video8")),
    ("mm_video", &[], Some("video11")),
];

/// `vl` and `vl_mxfp8` have the same vision part and pictures; the second is the smaller.
const TOWER_CHECKPOINT: &str = "vl_mxfp8";

const GREEDY: [Prompt; 2] =
    [("greedy_mm_images4", &[0, 1, 2, 3], None), ("greedy_mm_image_video", &[2], Some("video8"))];

pub fn run(driver: &dyn Driver, setup: &Setup, report: &mut Report, progress: &mut dyn FnMut(&str)) {
    let encodes = driver.probe(&ProbeRequest::default()).is_ok_and(|probe| probe.flags & PROBE_ENCODES != 0);
    let mut check = |case: (&str, &str), what: &str, work: &dyn Fn() -> Result<()>| {
        let name = label(setup, &format!("media {}/{what}", case.0));
        if !encodes {
            return report.skip(&name, "this backend encodes no media");
        }
        progress(&name);
        report.check(&name, case, work);
    };
    for file in MEDIA {
        check((TOWER_CHECKPOINT, "text_24"), file, &|| features(driver, setup, file));
    }
    for checkpoint in ["vl", "vl_mxfp8"] {
        for prompt in PROMPTS {
            check((checkpoint, prompt.0), prompt.0, &|| {
                let mut world = open(driver, setup, checkpoint)?;
                let case = Case::load(checkpoint, prompt.0)?;
                let row = row_with(&mut world, &case.array("input_ids")?.ids(), prompt)?;
                prefill_row(&mut world, &case, row, setup.is_exact())
            });
        }
        for prompt in GREEDY {
            check((checkpoint, prompt.0), prompt.0, &|| {
                let mut world = open(driver, setup, checkpoint)?;
                let case = Case::load(checkpoint, prompt.0)?;
                let row = row_with(&mut world, &case.array("prompt_ids")?.ids(), prompt)?;
                greedy_row(&mut world, &case, row, setup.is_exact())
            });
        }
        check((checkpoint, "mm_images4"), "chunk boundaries inside pictures", &|| {
            chunks(driver, setup, checkpoint)
        });
    }
    check((TOWER_CHECKPOINT, "text_24"), "wrong grids are refused", &|| refusals(driver, setup));
}

/// One picture or video.
struct Medium {
    patches: Vec<f32>,
    grid: [u32; 3],
}

fn media_of(case: &Case) -> Result<Vec<Medium>> {
    let (patches, grids) = (&case.array("patches")?.data, case.array("grid_thw")?.ids());
    let mut media = Vec::new();
    let mut first = 0;
    for grid in grids.chunks_exact(3) {
        let grid = [grid[0], grid[1], grid[2]];
        let len = grid.iter().product::<u32>() as usize * ROW_LEN;
        media.push(Medium { patches: patches[first..first + len].to_vec(), grid });
        first += len;
    }
    Ok(media)
}

/// All media of a file in one call, then each alone.
fn features(driver: &dyn Driver, setup: &Setup, file: &str) -> Result<()> {
    let mut world = open(driver, setup, TOWER_CHECKPOINT)?;
    let case = Case::load("vl", file)?;
    let media = media_of(&case)?;
    let grids: Vec<[u32; 3]> = media.iter().map(|medium| medium.grid).collect();
    let (wanted, exact) = (case.array("features")?, setup.is_exact());
    let encoded = world.encode(&case.array("patches")?.data, ROW_LEN, &grids)?;
    ensure!(
        encoded.num_rows as usize == wanted.shape[0],
        "{} rows, not {}",
        encoded.num_rows,
        wanted.shape[0]
    );
    ensure!(encoded.bytes > 0, "an encoded medium holds no bytes");
    agree("tower_out", &world.tap("tower_out")?.data, &case.array("tower_out")?.data, TOWER, exact)?;
    agree("features", &world.tap("features")?.data, &wanted.data, FEATURES, exact)?;
    world.on_all_ranks(|rank| rank.media_free(encoded.handle))?;
    let mut rest = &wanted.data[..];
    for medium in &media {
        let encoded = world.encode(&medium.patches, ROW_LEN, &[medium.grid])?;
        let (own, others) = rest.split_at(encoded.num_rows as usize * wanted.shape[1]);
        agree("features of one medium", &world.tap("features")?.data, own, FEATURES, exact)?;
        rest = others;
    }
    Ok(())
}

fn agree(what: &str, found: &[f32], wanted: &[f32], tolerance: f32, exact: bool) -> Result<()> {
    if exact {
        return close(what, found, wanted, tolerance);
    }
    ensure!(found.len() == wanted.len(), "{what}: {} values, {} wanted", found.len(), wanted.len());
    let off = rel_rms(found, wanted);
    ensure!(off <= ROUNDED_REL_RMS, "{what}: relative rms {off:.4}, at most {ROUNDED_REL_RMS}");
    Ok(())
}

/// A row whose media are encoded and placed where the prompt has their tokens.
fn row_with(world: &mut World, ids: &[u32], (_, images, video): Prompt) -> Result<Row> {
    let vocab_size = world.config.text.vocab_size as u32;
    let pictures = media_of(&Case::load("vl", "images")?)?;
    let clip = video.map(|file| media_of(&Case::load("vl", file)?)).transpose()?.unwrap_or_default();
    let mut row = Row::new(3);
    let pictures: Vec<&Medium> = images.iter().map(|&index| &pictures[index]).collect();
    place(world, ids, vocab_size - 12, &pictures, &mut row.media)?;
    place(world, ids, vocab_size - 11, &clip.iter().collect::<Vec<_>>(), &mut row.media)?;
    Ok(row)
}

/// Rows of `media`, in order, at the runs of `token`.
fn place(
    world: &mut World,
    ids: &[u32],
    token: u32,
    media: &[&Medium],
    spans: &mut Vec<MediaSpan>,
) -> Result<()> {
    let mut positions = (0..ids.len() as u32).filter(|&position| ids[position as usize] == token);
    for medium in media {
        let encoded = world.encode(&medium.patches, ROW_LEN, &[medium.grid])?;
        for first_row in 0..encoded.num_rows {
            let first_position =
                positions.next().context("the prompt has fewer places than media have rows")?;
            match spans.last_mut() {
                Some(span)
                    if span.handle == encoded.handle && span.first_position + span.len == first_position =>
                {
                    span.len += 1;
                }
                _ => {
                    let handle = encoded.handle;
                    spans.push(MediaSpan { handle, row: 3, first_position, len: 1, first_row });
                }
            }
        }
    }
    ensure!(positions.next().is_none(), "the prompt has more places than media have rows");
    Ok(())
}

/// The same prompt in one step and in chunks of five tokens: logits at the ends of the chunks.
fn chunks(driver: &dyn Driver, setup: &Setup, checkpoint: &str) -> Result<()> {
    let mut world = open(driver, setup, checkpoint)?;
    let ids = Case::load(checkpoint, "mm_images4")?.array("input_ids")?.ids();
    let mut whole = row_with(&mut world, &ids, PROMPTS[1])?;
    let mut cut = Row::new(4);
    cut.media.clone_from(&whole.media);
    one(&mut world, &mut whole, &ids, ids.len())?;
    let logits = world.tap("logits")?.data;
    let width = logits.len() / ids.len();
    for (position, found) in in_chunks(&mut world, &mut cut, &ids, 5)? {
        let wanted = &logits[position * width..][..width];
        agree(&format!("logits at {position}"), &found, wanted, LOGITS, setup.is_exact())?;
    }
    Ok(())
}

/// Refusals are sentences and change nothing.
fn refusals(driver: &dyn Driver, setup: &Setup) -> Result<()> {
    let mut world = open(driver, setup, TOWER_CHECKPOINT)?;
    let patches = vec![0.25; ROW_LEN * 8];
    let cases: [(usize, usize, &[[u32; 3]]); 6] = [
        (ROW_LEN * 4, ROW_LEN, &[]),
        (ROW_LEN * 4, ROW_LEN, &[[1, 2, 4]]),
        (ROW_LEN * 8, ROW_LEN, &[[1, 2, 2]]),
        (ROW_LEN * 3, ROW_LEN, &[[1, 1, 3]]),
        (ROW_LEN * 4, ROW_LEN, &[[0, 2, 2]]),
        (ROW_LEN * 4, ROW_LEN / 2, &[[1, 2, 4]]),
    ];
    for (values, row_len, grids) in cases {
        match world.on_all_ranks(|rank| Ok(rank.encode(&patches[..values], row_len, grids)))?.remove(0) {
            Err(m3_abi::Error::Unsupported(sentence)) if !sentence.is_empty() => {}
            other => bail!("{values} values in rows of {row_len} for {grids:?} gave {other:?}"),
        }
    }
    let encoded = world.encode(&patches[..ROW_LEN * 4], ROW_LEN, &[[1, 2, 2]])?;
    ensure!(encoded.ticket.0 == 1, "a refusal took a ticket: the next is {}", encoded.ticket.0);
    Ok(())
}
