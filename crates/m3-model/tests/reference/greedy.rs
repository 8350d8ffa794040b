//! Greedy decoding with chained tokens, step by step against the answers, then against one prefill of the same text.

use m3_model::reference::QuantMode;

use super::answers::close;
use super::golden::case;
use super::run::{Part, Run, greedy};

fn check(checkpoint: &str, name: &str) {
    let Some((folder, golden)) = case(checkpoint, name) else { return };
    let (prompt, new_ids) = (golden.ids("prompt_ids"), golden.ids("new_ids"));
    let expected = golden.array("step_logits");
    let total = prompt.len() + new_ids.len();
    let mut run = Run::open(&folder, QuantMode::WeightOnly, 2 * total as u64 / 16 + 2);
    let all_pages = run.take_pages(run.pages_for(total));
    let mut logits = Vec::new();
    let mut given = 0;
    for (index, &new_id) in new_ids.iter().enumerate() {
        let first_position = if index == 0 { 0 } else { prompt.len() + index - 1 };
        let end = prompt.len() + index;
        // Pages are appended when the sequence reaches them, not before.
        let needed = run.pages_for(end);
        let pages = (needed > given).then(|| (given as u32, all_pages[given..needed].to_vec()));
        given = given.max(needed);
        let output = run.step(
            &[Part {
                first_position: first_position as u32,
                tokens: if index == 0 { prompt.clone() } else { Vec::new() },
                num_logits: 1,
                output_index: index as u32,
                pages,
                bind: (index == 0).then(|| greedy(0)),
                ..Part::default()
            }],
            &[],
        );
        assert_eq!(output.tokens, [new_id], "{checkpoint}/{name}: token {index}");
        assert_eq!((output.ranks[0], output.faults[0], output.top_ids[0]), (0, 0, new_id));
        logits.extend(run.tap("logits").data);
    }
    close(&logits, &expected.values, 1e-4, |_| true)
        .unwrap_or_else(|what| panic!("{checkpoint}/{name}: step logits: {what}"));

    let whole: Vec<u32> = prompt.iter().chain(&new_ids[..new_ids.len() - 1]).copied().collect();
    let prefilled = run.prefill(1, &whole, whole.len());
    let tail = &prefilled[prefilled.len() - logits.len()..];
    assert!(tail == logits, "{checkpoint}/{name}: decode and prefill differ");
}

#[test]
fn decode_text() {
    check("text", "greedy_text");
}

#[test]
fn decode_small_blocks() {
    check("long16", "greedy_long");
}

#[test]
fn decode_true_blocks() {
    check("long128", "greedy_long");
}

#[test]
fn decode_many_query_heads() {
    check("vl", "greedy_text");
    check("vl_mxfp8", "greedy_text");
}

#[test]
fn decode_true_head_geometry() {
    check("real128", "greedy_long");
}
