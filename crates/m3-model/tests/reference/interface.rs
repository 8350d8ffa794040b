//! The reference as a backend: what it refuses, scores, masks, and how media rows replace embeddings.

use m3_abi::types::{DTYPE_BF16, FAULT_EMPTY_MASK, FAULT_NAN, MediaSpan, NONE, PageAppend, SEQ_CHAINED, Seq};
use m3_abi::{Backend, Driver, Error, OpenRequest, Output, Step};
use m3_model::checkpoint::Checkpoint;
use m3_model::reference::{QuantMode, ReferenceBackend, ReferenceDriver};

use super::golden::case;
use super::run::{Run, TOP, greedy, open_request};

fn seq(row: u32, first_position: u32, num_tokens: u32, num_logits: u32) -> Seq {
    Seq {
        row,
        flags: 0,
        first_position,
        num_tokens,
        token_offset: 0,
        num_logits,
        output_offset: 0,
        target_offset: NONE,
        mask_offset: NONE,
        output_index: 0,
    }
}

fn submit(run: &mut Run, step: &Step<'_>, slots: usize) -> Output {
    let ticket = run.backend.submit(step).unwrap();
    let mut output = Output::with_capacity(slots, TOP);
    run.backend.wait(ticket, &mut output).unwrap();
    output
}

const ONE_PAGE: [PageAppend; 1] = [PageAppend { row: 0, first: 0, offset: 0, count: 1 }];

fn first_step<'a>(seqs: &'a [Seq], tokens: &'a [u32], binds: &'a [m3_abi::types::RowBind]) -> Step<'a> {
    Step { binds, pages: &ONE_PAGE, page_ids: &[0], seqs, tokens, ..Step::default() }
}

#[test]
fn opens_one_f32_rank_and_refuses_the_rest_by_name() {
    let Some((folder, _)) = case("text", "text_17") else { return };
    let checkpoint = Checkpoint::open(&folder).unwrap();
    let good = open_request(&checkpoint);
    assert!(ReferenceDriver::default().open(&good).is_ok());
    let cases = [
        (OpenRequest { tp: 2, ..good.clone() }, "one rank"),
        (OpenRequest { dtype: DTYPE_BF16, ..good.clone() }, "computes in f32"),
        (OpenRequest { kv_dtype: 4, ..good.clone() }, "KV in f32 or bf16"),
        (OpenRequest { page_tokens: 64, ..good.clone() }, "64 tokens is not the sparse block of 128"),
        (OpenRequest { config: b"{".to_vec(), ..good.clone() }, "config.json"),
    ];
    for (request, part) in cases {
        let Err(Error::Unsupported(sentence)) = ReferenceDriver::default().open(&request) else {
            panic!("{part}: not refused")
        };
        assert!(sentence.contains(part), "{sentence:?} does not say {part:?}");
    }
    let mut empty = ReferenceBackend::open(&good, QuantMode::WeightOnly).unwrap();
    let Err(Error::Unsupported(sentence)) = empty.ready() else { panic!("ready without tensors") };
    assert!(sentence.contains("was not loaded"), "{sentence}");
    assert!(empty.reserve(1).is_err() && empty.submit(&Step::default()).is_err());
}

#[test]
fn targets_are_scored_and_unset_ones_sampled() {
    let Some((folder, golden)) = case("text", "text_17") else { return };
    let tokens = golden.ids("input_ids");
    let mut run = Run::open(&folder, QuantMode::WeightOnly, 2);
    let mut targets = tokens[1..].to_vec();
    targets.push(NONE);
    let (binds, seqs) = ([greedy(0)], [Seq { target_offset: 0, ..seq(0, 0, 17, 17) }]);
    let step = Step { targets: &targets, ..first_step(&seqs, &tokens, &binds) };
    let output = submit(&mut run, &step, 17);
    let logits = golden.array("logits").values;
    for (position, row) in logits.chunks(run.config.vocab_size).enumerate() {
        let token = output.tokens[position];
        let log_sum = row.iter().map(|&logit| f64::from(logit).exp()).sum::<f64>().ln() as f32;
        if position < 16 {
            assert_eq!(token, tokens[position + 1]);
        } else {
            assert_eq!(output.ranks[position], 0);
        }
        assert!((output.logprobs[position] - (row[token as usize] - log_sum)).abs() < 2e-4, "{position}");
        let better = row.iter().filter(|&&logit| logit > row[token as usize]).count();
        assert_eq!(output.ranks[position], better as u32);
    }
}

#[test]
fn masks_bind_and_an_empty_mask_is_that_rows_fault() {
    let Some((folder, golden)) = case("text", "text_17") else { return };
    let tokens = golden.ids("input_ids");
    let mut run = Run::open(&folder, QuantMode::WeightOnly, 2);
    let words = run.config.vocab_size / 32;
    let mut masks = vec![0u32; 2 * words];
    masks[3] = 1 << 7;
    let (binds, seqs) = ([greedy(0)], [Seq { mask_offset: 0, ..seq(0, 0, 17, 2) }]);
    let step = Step { masks: &masks, ..first_step(&seqs, &tokens, &binds) };
    let output = submit(&mut run, &step, 2);
    assert_eq!((output.tokens[0], output.faults[0]), (3 * 32 + 7, 0));
    assert_eq!((output.tokens[1], output.faults[1]), (NONE, FAULT_EMPTY_MASK));
}

#[test]
fn bad_numbers_stay_in_their_row() {
    let Some((folder, golden)) = case("text", "text_17") else { return };
    let tokens = golden.ids("input_ids");
    let mut run = Run::open(&folder, QuantMode::WeightOnly, 4);
    let hidden = run.config.hidden_size;
    let poisoned = tokens[3] as usize;
    run.backend.model().unwrap().weights.embedding[poisoned * hidden] = f32::NAN;
    let clean: Vec<u32> =
        tokens.iter().map(|&token| if token == tokens[3] { token + 1 } else { token }).collect();
    let both: Vec<u32> = tokens.iter().chain(&clean).copied().collect();
    let pages = [ONE_PAGE[0], PageAppend { row: 1, first: 0, offset: 1, count: 1 }];
    let seqs = [seq(0, 0, 17, 1), Seq { token_offset: 17, output_offset: 1, ..seq(1, 0, 17, 1) }];
    let binds = [greedy(0), greedy(1)];
    let step = Step { pages: &pages, page_ids: &[0, 1], ..first_step(&seqs, &both, &binds) };
    let output = submit(&mut run, &step, 2);
    assert_eq!((output.tokens[0], output.faults[0]), (NONE, FAULT_NAN));
    assert_eq!(output.faults[1], 0);
    assert!(output.tokens[1] != NONE && output.logprobs[1].is_finite());
    // A successor that is on its way already runs, faulted, and disturbs nobody.
    let seqs = [
        Seq { flags: SEQ_CHAINED, ..seq(0, 17, 1, 1) },
        Seq { flags: SEQ_CHAINED, output_offset: 1, ..seq(1, 17, 1, 1) },
    ];
    let output = submit(&mut run, &Step { seqs: &seqs, ..Step::default() }, 2);
    assert_eq!((output.faults[0], output.faults[1]), (FAULT_NAN, 0));
}

#[test]
fn media_rows_replace_embeddings() {
    let Some((folder, golden)) = case("text", "text_17") else { return };
    let tokens = golden.ids("input_ids");
    let mut run = Run::open(&folder, QuantMode::WeightOnly, 2);
    assert!(matches!(run.backend.encode(&[], 1, &[]), Err(Error::Unsupported(_))));
    let hidden = run.config.hidden_size;
    let model = run.backend.model().unwrap();
    let rows =
        tokens[2..9].iter().flat_map(|&token| &model.weights.embedding[token as usize * hidden..][..hidden]);
    let rows: Vec<f32> = rows.copied().collect();
    model.media.insert(77, rows);
    // Token ids under media are placeholders; rows 1.. of the medium stand at positions 3..9.
    let mut placeholders = tokens.clone();
    placeholders[3..9].fill(0);
    let media = [MediaSpan { handle: 77, row: 0, first_position: 3, len: 6, first_row: 1 }];
    let binds = [greedy(0)];
    let seqs = [seq(0, 0, 17, 17)];
    let step = Step { media: &media, ..first_step(&seqs, &placeholders, &binds) };
    submit(&mut run, &step, 17);
    let found = run.tap("logits").data;
    super::answers::close(&found, &golden.array("logits").values, 1e-4, |_| true).unwrap();
}

#[test]
fn unknown_media_end_the_instance_with_a_sentence() {
    let Some((folder, golden)) = case("text", "text_17") else { return };
    let tokens = golden.ids("input_ids");
    let mut run = Run::open(&folder, QuantMode::WeightOnly, 2);
    let media = [MediaSpan { handle: 5, row: 0, first_position: 0, len: 1, first_row: 0 }];
    let binds = [greedy(0)];
    let seqs = [seq(0, 0, 17, 1)];
    let step = Step { media: &media, ..first_step(&seqs, &tokens, &binds) };
    let error = run.backend.submit(&step).unwrap_err();
    assert_eq!(error, Error::Fatal("media handle 5 does not exist".to_owned()));
    assert_eq!(run.backend.submit(&Step::default()).unwrap_err(), error);
}

#[test]
fn two_steps_in_flight_and_tickets_in_order() {
    let Some((folder, golden)) = case("text", "greedy_text") else { return };
    let (prompt, new_ids) = (golden.ids("prompt_ids"), golden.ids("new_ids"));
    let mut run = Run::open(&folder, QuantMode::WeightOnly, 2);
    let len = prompt.len() as u32;
    let first = run.backend.submit(&first_step(&[seq(0, 0, len, 1)], &prompt, &[greedy(0)])).unwrap();
    let chained = [Seq { flags: SEQ_CHAINED, ..seq(0, len, 1, 1) }];
    let second = run.backend.submit(&Step { seqs: &chained, ..Step::default() }).unwrap();
    assert!(first < second && run.backend.done().unwrap() == second);
    let mut output = Output::with_capacity(3, 0);
    run.backend.wait(first, &mut output).unwrap();
    assert_eq!(output.tokens, [new_ids[0], NONE, NONE]);
    let tap_of_first = run.tap("layer_out.0").shape;
    assert_eq!(
        tap_of_first,
        [u64::from(len), run.config.hidden_size as u64],
        "not those of the step after it"
    );
    run.backend.wait(second, &mut output).unwrap();
    assert_eq!(output.tokens[0], new_ids[1]);
    assert_eq!(run.tap("layer_out.0").shape[0], 1);
    assert!(run.backend.tap("layer_out.9").unwrap_err().to_string().contains("no tap layer_out.9"));
    assert!(run.backend.wait(second, &mut output).is_err());
}
