//! Prompts with pictures, from ready features: media rows in place of embeddings.

use m3_abi::types::{MediaSpan, NONE, PageAppend, Seq};
use m3_abi::{Backend, Output, Step};
use m3_model::reference::QuantMode;

use super::answers::compare_taps;
use super::golden::{Golden, case, find, skip};
use super::run::{Run, greedy};

/// Runs of `token` in a prompt: (first position, length).
fn runs_of(token: u32, tokens: &[u32]) -> Vec<(u32, u32)> {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for (position, _) in tokens.iter().enumerate().filter(|(_, id)| **id == token) {
        match runs.last_mut() {
            Some((first, len)) if *first + *len == position as u32 => *len += 1,
            _ => runs.push((position as u32, 1)),
        }
    }
    runs
}

fn check(checkpoint: &str) {
    let Some((folder, golden)) = case(checkpoint, "mm_images4") else { return };
    // The vision weights of both checkpoints are the same, and so are the features.
    let Some(features) = find("golden/vl/images.safetensors") else { return skip("golden case vl/images") };
    let tokens = golden.ids("input_ids");
    let len = tokens.len() as u32;
    let mut run = Run::open(&folder, QuantMode::WeightOnly, 1);
    let model = run.backend.model().unwrap();
    model.media.insert(9, Golden::read(&features).array("features").values);
    let mut first_row = 0;
    let image_token = run.config.vocab_size as u32 - 12;
    let media: Vec<MediaSpan> = runs_of(image_token, &tokens)
        .into_iter()
        .map(|(first_position, len)| {
            first_row += len;
            MediaSpan { handle: 9, row: 0, first_position, len, first_row: first_row - len }
        })
        .collect();
    assert_eq!((media.len(), first_row), (4, 30));
    let seq = Seq {
        row: 0,
        flags: 0,
        first_position: 0,
        num_tokens: len,
        token_offset: 0,
        num_logits: len,
        output_offset: 0,
        target_offset: NONE,
        mask_offset: NONE,
        output_index: 0,
    };
    let step = Step {
        binds: &[greedy(0)],
        pages: &[PageAppend { row: 0, first: 0, offset: 0, count: 1 }],
        page_ids: &[0],
        seqs: &[seq],
        tokens: &tokens,
        media: &media,
        ..Step::default()
    };
    let ticket = run.backend.submit(&step).unwrap();
    run.backend.wait(ticket, &mut Output::with_capacity(tokens.len(), 0)).unwrap();
    let compared = compare_taps(&mut run, &golden).unwrap_or_else(|what| panic!("{checkpoint}: {what}"));
    assert!(compared >= 12, "only {compared} taps compared");
}

#[test]
fn four_images() {
    check("vl");
    check("vl_mxfp8");
}
