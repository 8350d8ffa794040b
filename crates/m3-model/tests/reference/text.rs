//! Whole prompts: every tap at every position.

use m3_model::reference::QuantMode;

use super::answers::compare_taps;
use super::golden::case;
use super::run::Run;

fn check(checkpoint: &str, name: &str) {
    let Some((folder, golden)) = case(checkpoint, name) else { return };
    let tokens = golden.ids("input_ids");
    let mut run = Run::open(&folder, QuantMode::WeightOnly, tokens.len() as u64 / 16 + 1);
    run.prefill(0, &tokens, tokens.len());
    match compare_taps(&mut run, &golden) {
        Ok(compared) => assert!(compared >= 12, "only {compared} taps compared"),
        Err(what) => panic!("{checkpoint}/{name}: {what}"),
    }
}

#[test]
fn text_short() {
    for name in ["text_1", "text_2", "text_17", "text_64"] {
        check("text", name);
    }
}

#[test]
fn text_longer_than_a_block() {
    check("text", "text_129");
    check("text", "text_200");
}

#[test]
fn small_blocks_short() {
    check("long16", "text_40");
}

#[test]
fn small_blocks_drop_blocks() {
    check("long16", "text_1000");
}

#[test]
fn true_blocks_drop_blocks() {
    check("long128", "text_2700");
}

#[test]
fn many_query_heads() {
    check("vl", "text_24");
    check("vl_mxfp8", "text_24");
}

#[test]
fn true_head_geometry_short() {
    check("real128", "text_20");
    check("real128", "text_300");
}

#[test]
fn true_head_geometry_drops_blocks() {
    check("real128", "text_1500");
}
