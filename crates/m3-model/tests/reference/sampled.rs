//! Sampling through steps: what is drawn depends on the row's settings, history and output index, and on nothing else.

use m3_abi::types::RowBind;
use m3_model::reference::QuantMode;

use super::golden::case;
use super::run::{Part, Run, greedy};

const NUM_TOKENS: usize = 24;

/// Everything on at once.
fn settings(row: u32, seed: u64) -> RowBind {
    RowBind {
        seed,
        temperature: 1.5,
        top_p: 0.97,
        min_p: 0.001,
        top_k: 100,
        repetition_penalty: 1.2,
        presence_penalty: 0.3,
        frequency_penalty: 0.4,
        ..greedy(row)
    }
}

/// A part that binds `row` and computes prompt and what was generated so far.
fn start(run: &mut Run, bind: RowBind, prompt: &[u32], generated: &[u32]) -> Part {
    let tokens: Vec<u32> = prompt.iter().chain(generated).copied().collect();
    let pages = run.take_pages(run.pages_for(prompt.len() + NUM_TOKENS));
    let (prompt_len, output_len) = (prompt.len() as u32, generated.len() as u32);
    Part {
        row: bind.row,
        num_logits: 1,
        output_index: output_len,
        pages: Some((0, pages)),
        bind: Some(RowBind { prompt_len, output_len, ..bind }),
        history: tokens.clone(),
        tokens,
        ..Part::default()
    }
}

/// A chained decode part for output `index`.
fn chained(row: u32, prompt_len: usize, index: usize) -> Part {
    let first_position = (prompt_len + index - 1) as u32;
    Part { row, first_position, num_logits: 1, output_index: index as u32, ..Part::default() }
}

/// Samples one row alone, from `generated` on.
fn generate(run: &mut Run, bind: RowBind, prompt: &[u32], generated: &[u32]) -> Vec<u32> {
    let mut tokens = generated.to_vec();
    let first = start(run, bind, prompt, generated);
    tokens.extend(run.step(&[first], &[]).tokens);
    while tokens.len() < NUM_TOKENS {
        let index = tokens.len();
        tokens.extend(run.step(&[chained(bind.row, prompt.len(), index)], &[]).tokens);
    }
    run.step(&[], &[bind.row]);
    tokens
}

fn open() -> Option<(Run, Vec<u32>)> {
    let (folder, golden) = case("long16", "text_40")?;
    Some((Run::open(&folder, QuantMode::WeightOnly, 200), golden.ids("input_ids")))
}

#[test]
fn seeds_repeat_and_differ() {
    let Some((mut run, prompt)) = open() else { return };
    let first = generate(&mut run, settings(0, 11), &prompt, &[]);
    assert_eq!(first, generate(&mut run, settings(3, 11), &prompt, &[]), "another row, the same seed");
    assert_ne!(first, generate(&mut run, settings(0, 12), &prompt, &[]));
}

#[test]
fn preemption_changes_no_token() {
    let Some((mut run, prompt)) = open() else { return };
    let whole = generate(&mut run, settings(0, 5), &prompt, &[]);
    for kept in [1, 7, 23] {
        assert_eq!(whole, generate(&mut run, settings(1, 5), &prompt, &whole[..kept]), "preempted at {kept}");
    }
}

#[test]
fn company_changes_no_token() {
    let Some((mut run, prompt)) = open() else { return };
    let alone = [3, 4].map(|seed| generate(&mut run, settings(0, seed), &prompt, &[]));
    let parts = [(0, 3), (1, 4)].map(|(row, seed)| start(&mut run, settings(row, seed), &prompt, &[]));
    let mut together = run.step(&parts, &[]).tokens;
    for index in 1..NUM_TOKENS {
        let parts = [0, 1].map(|row| chained(row, prompt.len(), index));
        together.extend(run.step(&parts, &[]).tokens);
    }
    for (row, alone) in alone.iter().enumerate() {
        let tokens: Vec<u32> = together.iter().skip(row).step_by(2).copied().collect();
        assert_eq!(&tokens, alone);
    }
}

/// Drafts right, wrong and partly right: the accepted tokens are those of plain decoding, penalties included.
#[test]
fn verified_drafts_equal_plain_decoding() {
    let Some((mut run, prompt)) = open() else { return };
    let plain = generate(&mut run, settings(0, 21), &prompt, &[]);
    let first = start(&mut run, settings(1, 21), &prompt, &[]);
    let mut tokens = run.step(&[first], &[]).tokens;
    let mut round = 0;
    while tokens.len() < NUM_TOKENS {
        let done = tokens.len();
        let mut input = vec![tokens[done - 1]];
        // `round % 4` drafts are right, then one is wrong.
        let right = (round % 4).min(NUM_TOKENS - done - 1);
        input.extend(&plain[done..done + right]);
        if done + right + 1 < NUM_TOKENS {
            input.push((plain[done + right] + 1) % 500);
        }
        let output = run.step(
            &[Part {
                row: 1,
                first_position: (prompt.len() + done - 1) as u32,
                num_logits: input.len() as u32,
                output_index: done as u32,
                tokens: input,
                ..Part::default()
            }],
            &[],
        );
        tokens.extend(&output.tokens[..=right]);
        round += 1;
    }
    assert_eq!(tokens, plain);
}
