//! However a sequence is scheduled, its tokens are the same.
#![allow(clippy::unwrap_used, reason = "a setup that fails fails the test")]

mod support;

use backend_null::distribution::{expected, favourite, log_probability, rank, token_at};
use m3_abi::types::{FAULT_EMPTY_MASK, FAULT_NAN, MediaSpan, NONE, PageCopy, RowBind, TokenBias};
use support::{Bench, Draft, VOCAB, opened, request, settings};

const PROMPT: [u32; 6] = [3, 1, 4, 1, 5, 9];

fn whole() -> Draft {
    Draft::new().bind(0).pages(0, 0, &[2, 5]).part(0, 0, &PROMPT, Some(0))
}

/// Four tokens after the prompt, as the documented hash says.
fn four() -> [u32; 4] {
    let mut tokens = PROMPT.to_vec();
    std::array::from_fn(|_| {
        tokens.push(expected(&tokens, VOCAB));
        tokens[tokens.len() - 1]
    })
}

fn rest(bench: &mut Bench, first: u32) -> [u32; 4] {
    let second = bench.token(Draft::new().part(0, 6, &[first], Some(1)));
    let third = bench.token(Draft::new().part(0, 7, &[second], Some(2)));
    let fourth = bench.token(Draft::new().pages(0, 2, &[7]).part(0, 8, &[third], Some(3)));
    [first, second, third, fourth]
}

#[test]
fn whole_prompt_then_one_token_a_step() {
    let mut bench = Bench::new("{}");
    let first = bench.token(whole());
    assert_eq!(rest(&mut bench, first), four());
}

#[test]
fn an_echo_gives_the_prompt_back_and_ends() {
    let mut bench = Bench::new(r#"{"echo": true, "eos": 2}"#);
    let mut token = bench.token(whole());
    for (index, expected) in PROMPT.iter().enumerate() {
        assert_eq!(token, *expected, "output {index}");
        let index = index as u32;
        let draft = Draft::new().part(0, 6 + index, &[token], Some(index + 1));
        let draft = if index == 2 { draft.pages(0, 2, &[7]) } else { draft };
        token = bench.token(draft);
    }
    assert_eq!(token, 2, "the end comes after the whole prompt");
    let mut bench = Bench::new(r#"{"echo": true, "echo_without": [3, 4], "eos": 2}"#);
    assert_eq!(bench.token(whole()), 1, "the first that is not left out");
    let second = bench.token(Draft::new().part(0, 6, &[1], Some(1)));
    assert_eq!((second, bench.token(Draft::new().part(0, 7, &[1], Some(2)))), (1, 5));
    for bad in [r#"{"echo": true}"#, r#"{"echo": true, "eos": 2, "script": [1]}"#] {
        assert!(
            opened(&request(bad)).is_err_and(|error| error.to_string().contains("m3_null.echo")),
            "{bad}"
        );
    }
}

#[test]
fn chunks() {
    let mut bench = Bench::new("{}");
    bench.run(Draft::new().bind(0).pages(0, 0, &[2]).part(0, 0, &PROMPT[..3], None));
    bench.run(Draft::new().pages(0, 1, &[5]).part(0, 3, &PROMPT[3..5], None));
    let first = bench.token(Draft::new().part(0, 5, &PROMPT[5..], Some(0)));
    assert_eq!(rest(&mut bench, first), four());
}

#[test]
fn chained_with_two_steps_in_flight() {
    let mut bench = Bench::new(r#"{"step_us": 100}"#);
    let mut before = bench.submit(&whole()).unwrap();
    let mut tokens = Vec::new();
    for index in 1..4 {
        let draft = Draft::new().chained(0, 5 + index, index);
        let draft = if index == 3 { draft.pages(0, 2, &[7]) } else { draft };
        let next = bench.submit(&draft).unwrap();
        tokens.push(bench.wait(before).unwrap().tokens[0]);
        before = next;
    }
    tokens.push(bench.wait(before).unwrap().tokens[0]);
    assert_eq!(tokens, four());
}

#[test]
fn prefix_hit_of_another_rows_page() {
    let mut bench = Bench::new("{}");
    bench.run(whole());
    let hit = Draft::new().bind(1).pages(1, 0, &[2, 6]).part(1, 4, &PROMPT[4..], Some(0));
    assert_eq!(bench.token(hit), four()[0]);
}

#[test]
fn preemption_and_recomputation_in_other_pages_and_another_row() {
    let mut bench = Bench::new("{}");
    let first = bench.token(whole());
    let mut tokens = PROMPT.to_vec();
    tokens.push(first);
    let again = Draft::new().release(0).bind(3).pages(3, 0, &[1, 0]).part(3, 0, &tokens, Some(1));
    assert_eq!(bench.token(again), four()[1]);
}

#[test]
fn pages_that_were_copied_or_went_through_another_instance() {
    let (mut bench, mut other) = (Bench::new("{}"), Bench::new("{}"));
    bench.run(whole());
    bench.instance.copy_pages(&[PageCopy { from: 2, to: 0 }]).unwrap();
    let hit = Draft::new().bind(1).pages(1, 0, &[0, 6]).part(1, 4, &PROMPT[4..], Some(0));
    assert_eq!(bench.token(hit), four()[0]);
    let mut bytes = Vec::new();
    bench.instance.read_pages(&[2], &mut bytes).unwrap();
    assert_eq!(bytes.len(), 64);
    other.instance.write_pages(&[3], &bytes).unwrap();
    let hit = Draft::new().bind(0).pages(0, 0, &[3, 1]).part(0, 4, &PROMPT[4..], Some(0));
    assert_eq!(other.token(hit), four()[0]);
}

#[test]
fn rejected_draft_is_taken_back() {
    let mut bench = Bench::new("{}");
    let first = bench.token(whole());
    let second = four()[1];
    let wrong = (four()[2] + 1) % VOCAB;
    let verify = Draft::new().pages(0, 2, &[7]).part(0, 6, &[first, second, wrong], Some(1));
    let output = bench.output(verify.edit(|seq| seq.num_logits = 3));
    assert_eq!(output.tokens[..2], four()[1..3]);
    assert_eq!(bench.token(Draft::new().part(0, 8, &[four()[2]], Some(3))), four()[3]);
}

#[test]
fn all_ranks_of_a_world_take_the_same_steps_and_rank_0_answers() {
    let comm_id = b"null".to_vec();
    let world = |rank| m3_abi::OpenRequest { rank, tp: 2, comm_id: comm_id.clone(), ..request("{}") };
    for rank in [0, 1] {
        let mut bench = Bench { instance: opened(&world(rank)).unwrap(), top: 0 };
        let expected = if rank == 0 { four()[0] } else { NONE };
        assert_eq!(bench.token(whole()), expected);
    }
}

#[test]
fn script_then_end() {
    let mut bench = Bench::new(r#"{"script": [7, 8], "eos": 2}"#);
    let first = bench.token(whole());
    assert_eq!(rest(&mut bench, first), [7, 8, 2, 2]);
    let mut bench = Bench::new(r#"{"script": [7, 8, 9]}"#);
    let first = bench.token(whole());
    assert_eq!(rest(&mut bench, first), [7, 8, 9, 7]);
    let mut bench = Bench::new(r#"{"eos": 2, "length": 3}"#);
    let first = bench.token(whole());
    assert_eq!(rest(&mut bench, first)[3], 2);
}

#[test]
fn masked_tokens_are_never_emitted() {
    let mut bench = Bench::new("{}");
    let mut draft = whole().edit(|seq| seq.mask_offset = 0);
    draft.masks = vec![u32::MAX; 4];
    let best = four()[0];
    draft.masks[best as usize / 32] &= !(1 << (best % 32));
    assert_eq!(bench.token(draft), (best + 1) % VOCAB);
    let mut draft = Draft::new().part(0, 6, &[1], Some(1)).edit(|seq| seq.mask_offset = 4);
    draft.masks = vec![0, 0, 0, 0, 0, 1 << 3, 0, 0];
    assert_eq!(bench.token(draft), 35);
    let mut draft = Draft::new().part(0, 7, &[1], Some(2)).edit(|seq| seq.mask_offset = 0);
    draft.masks = vec![0; 4];
    assert_eq!(bench.output(draft).faults[0], FAULT_EMPTY_MASK);
}

#[test]
fn biases_forbid_and_force() {
    let best = four()[0];
    for (token, bias, expected) in
        [(best, -100.0, (best + 1) % VOCAB), ((best + 50) % VOCAB, 100.0, (best + 50) % VOCAB)]
    {
        let mut draft = whole();
        draft.binds[0].num_biases = 1;
        draft.biases.push(TokenBias { token, bias });
        assert_eq!(Bench::new("{}").token(draft), expected);
    }
}

#[test]
fn log_probabilities_and_alternatives() {
    let mut bench = Bench::new("{}");
    bench.top = 3;
    let bind = RowBind { num_logprobs: 2, ..settings(0) };
    let output = bench.output(Draft::new().bind_with(bind).pages(0, 0, &[2, 5]).part(0, 0, &PROMPT, Some(0)));
    let best = four()[0];
    assert_eq!((output.tokens[0], output.ranks[0]), (best, 0));
    assert!((output.logprobs[0] - 0.5_f32.ln()).abs() < 1e-6);
    assert_eq!(output.top_ids[..3], [best, (best + 1) % VOCAB, NONE]);
    assert!((output.top_logprobs[1] - 0.25_f32.ln()).abs() < 1e-6);
    assert_eq!((output.tokens[1], output.ranks[1]), (NONE, NONE), "other slots are left alone");
}

#[test]
fn targets_are_scored_and_the_last_position_sampled() {
    let mut bench = Bench::new("{}");
    let mut draft = whole().edit(|seq| (seq.num_logits, seq.target_offset, seq.output_offset) = (3, 0, 1));
    draft.targets = vec![PROMPT[4], PROMPT[5], NONE];
    let output = bench.output(draft);
    assert_eq!(output.tokens[1..4], [PROMPT[4], PROMPT[5], four()[0]]);
    let place = rank(PROMPT[4], expected(&PROMPT[..4], VOCAB), VOCAB);
    assert_eq!((output.ranks[1], output.logprobs[1]), (place, log_probability(place, VOCAB)));
    assert_eq!(
        bench.token(Draft::new().part(0, 6, &[four()[0]], Some(1))),
        four()[1],
        "scored ones are no outputs"
    );
}

#[test]
fn the_pretended_distribution_sums_to_one_and_its_ranks_invert() {
    for vocab in [2, 3, 10] {
        let sum: f64 = (0..vocab).map(|rank| f64::from(log_probability(rank, vocab)).exp()).sum();
        assert!((sum - 1.0).abs() < 1e-5, "{vocab}: {sum}");
        let best = favourite(12345, vocab);
        assert!((0..vocab).all(|place| rank(token_at(place, best, vocab), best, vocab) == place));
    }
}

#[test]
fn randomness_depends_on_seed_and_output_index_only() {
    let draw = |seed, top_k| {
        let bind = RowBind { temperature: 1.0, seed, top_k, ..settings(0) };
        let draft = Draft::new().bind_with(bind).pages(0, 0, &[2, 5]).part(0, 0, &PROMPT, Some(0));
        Bench::new("{}").token(draft)
    };
    assert_eq!(draw(1, 0), draw(1, 0));
    let drawn: std::collections::HashSet<u32> = (0..50).map(|seed| draw(seed, 0)).collect();
    assert!(drawn.len() > 2, "{drawn:?}");
    assert!((0..50).all(|seed| draw(seed, 1) == four()[0]));
}

#[test]
fn nan_is_one_rows_fault() {
    let mut bench = Bench::new(r#"{"nan_row": 1}"#);
    let draft = whole().bind(1).pages(1, 0, &[0, 1]).part(1, 0, &PROMPT, Some(0));
    let output = bench.output(draft.edit(|seq| seq.output_offset = 1));
    assert_eq!((output.faults[0], output.faults[1]), (0, FAULT_NAN));
    assert_eq!((output.tokens[0], output.tokens[1]), (four()[0], NONE));
}

#[test]
fn images_change_what_follows_and_end() {
    let run = |content: f32| {
        let mut bench = Bench::new("{}");
        let media = bench.instance.encode(&[content; 16], 2, &[[1, 2, 4]]).unwrap();
        assert_eq!((media.num_rows, media.ticket.0), (2, 1));
        let mut draft = whole();
        draft.media.push(MediaSpan { handle: media.handle, row: 0, first_position: 2, len: 2, first_row: 0 });
        let ticket = bench.submit(&draft).unwrap();
        assert_eq!(ticket.0, 2);
        let token = bench.wait(ticket).unwrap().tokens[0];
        bench.instance.media_free(media.handle).unwrap();
        assert!(bench.instance.media_free(media.handle).is_err());
        token
    };
    assert_eq!(run(1.0), run(1.0));
    assert_ne!(run(1.0), run(2.0));
    assert_ne!(run(1.0), four()[0]);
}
