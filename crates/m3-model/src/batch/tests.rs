//! Steps that resolve, and every way a step can be wrong.

use m3_abi::Step;
use m3_abi::types::{MediaSpan, NONE, PageAppend, RowBind, SEQ_CHAINED, Seq, TokenBias};

use super::*;

fn table() -> RowTable {
    RowTable::new(Limits {
        max_rows: 4,
        max_step_tokens: 20,
        max_context: 32,
        page_tokens: 4,
        max_logprobs: 5,
        vocab_size: 40,
        num_pages: 10,
    })
}

fn seq(row: u32, first_position: u32, num_tokens: u32) -> Seq {
    Seq {
        row,
        flags: 0,
        first_position,
        num_tokens,
        token_offset: 0,
        num_logits: 0,
        output_offset: 0,
        target_offset: NONE,
        mask_offset: NONE,
        output_index: 0,
    }
}

fn append(row: u32, first: u32, offset: u32, count: u32) -> PageAppend {
    PageAppend { row, first, offset, count }
}

const TOKENS: [u32; 12] = [10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21];

/// Row 0 bound on pages 7 and 2, with positions 0..6 computed and the last one sampled.
fn started() -> (RowTable, Batch) {
    let (mut rows, mut batch) = (table(), Batch::default());
    let step = Step {
        id: 3,
        binds: &[RowBind::greedy(0)],
        pages: &[append(0, 0, 0, 2)],
        page_ids: &[7, 2],
        seqs: &[Seq { num_logits: 1, ..seq(0, 0, 6) }],
        tokens: &TOKENS,
        ..Step::default()
    };
    rows.apply(&step, &mut batch).unwrap();
    (rows, batch)
}

#[test]
fn a_chunk_is_placed_on_its_pages() {
    let (rows, batch) = started();
    assert_eq!(batch.step, 3);
    assert_eq!(batch.token_ids, TOKENS[..6]);
    assert_eq!(batch.positions, [0, 1, 2, 3, 4, 5]);
    assert_eq!(batch.slots, [28, 29, 30, 31, 8, 9]);
    assert_eq!(batch.pages_of(&batch.seqs[0]), [7, 2]);
    assert_eq!(batch.logits.len(), 1);
    assert_eq!((batch.logits[0].token, batch.logits[0].target, &batch.logits[0].mask), (5, None, &None));
    assert_eq!(rows.row(0).unwrap().pages, [7, 2]);
    assert!(rows.row(1).is_none() && rows.row(99).is_none());
}

#[test]
fn decode_and_chunk_stand_side_by_side() {
    let (mut rows, mut batch) = started();
    rows.record(&batch, 0, Some(33));
    let step = Step {
        binds: &[RowBind::greedy(2)],
        pages: &[append(2, 0, 0, 1), append(2, 1, 1, 1)],
        page_ids: &[5, 6],
        seqs: &[
            Seq { flags: SEQ_CHAINED, num_logits: 1, output_offset: 1, output_index: 1, ..seq(0, 6, 1) },
            Seq { token_offset: 4, num_logits: 2, output_offset: 2, target_offset: 0, ..seq(2, 3, 3) },
        ],
        tokens: &TOKENS,
        targets: &[9, NONE],
        ..Step::default()
    };
    rows.apply(&step, &mut batch).unwrap();
    assert_eq!(batch.token_ids, [33, 14, 15, 16]);
    assert_eq!(batch.positions, [6, 3, 4, 5]);
    assert_eq!(batch.slots, [10, 23, 24, 25]);
    assert_eq!(batch.seq_of, [0, 1, 1, 1]);
    assert_eq!(batch.page_table, [7, 2, 5, 6]);
    assert_eq!(batch.seqs[1].pages, 2..4);
    let logits: Vec<_> =
        batch.logits.iter().map(|at| (at.token, at.output_slot, at.target, at.output_index)).collect();
    assert_eq!(logits, [(0, 1, None, 1), (2, 2, Some(9), 0), (3, 3, None, 0)]);
    assert!(batch.seqs[0].chained && !batch.seqs[1].chained);
}

#[test]
fn a_chained_token_the_table_never_heard_of_is_left_open() {
    let (mut rows, mut batch) = started();
    let chained = |position| [Seq { flags: SEQ_CHAINED, num_logits: 1, ..seq(0, position, 1) }];
    rows.apply(&Step { seqs: &chained(6), ..Step::default() }, &mut batch).unwrap();
    assert_eq!(batch.token_ids, [NONE]);
    rows.record(&batch, 0, None);
    rows.apply(&Step { seqs: &chained(7), ..Step::default() }, &mut batch).unwrap();
    assert_eq!(batch.token_ids, [0], "the successor of a fault runs on token 0");
}

#[test]
fn masks_are_copied_for_sampled_positions_only() {
    let (mut rows, mut batch) = started();
    let masks = [0, 1, 2, 3, 4, 5];
    let part = Seq { num_logits: 3, target_offset: 0, mask_offset: 2, output_index: 8, ..seq(0, 5, 3) };
    let step =
        Step { seqs: &[part], tokens: &TOKENS, targets: &[NONE, 4, NONE], masks: &masks, ..Step::default() };
    rows.apply(&step, &mut batch).unwrap();
    let seen: Vec<_> =
        batch.logits.iter().map(|at| (batch.mask_of(at).map(<[u32]>::to_vec), at.output_index)).collect();
    assert_eq!(seen, [(Some(vec![2, 3]), 8), (None, 9), (Some(vec![4, 5]), 9)]);
}

#[test]
fn rows_are_released_and_taken_again() {
    let (mut rows, mut batch) = started();
    let step = Step {
        releases: &[0],
        binds: &[RowBind::greedy(0)],
        pages: &[append(0, 0, 0, 1)],
        page_ids: &[1],
        seqs: &[seq(0, 0, 2)],
        tokens: &TOKENS,
        ..Step::default()
    };
    rows.apply(&step, &mut batch).unwrap();
    assert_eq!(rows.row(0).unwrap().pages, [1]);
    assert!(batch.logits.is_empty());
    rows.apply(&Step { releases: &[0], ..Step::default() }, &mut batch).unwrap();
    assert!(rows.row(0).is_none() && batch.num_tokens() == 0);
}

#[test]
fn media_name_tokens_of_the_batch() {
    let (mut rows, mut batch) = started();
    let media = |first_position, len| MediaSpan { handle: 8, row: 0, first_position, len, first_row: 2 };
    let spans = [media(6, 1), media(7, 1)];
    let step = Step { seqs: &[seq(0, 6, 2)], tokens: &TOKENS, media: &spans, ..Step::default() };
    rows.apply(&step, &mut batch).unwrap();
    assert_eq!(batch.media[1], BatchMedia { handle: 8, first_row: 2, token: 1, len: 1 });
}

/// Counts of token 5 in a row with penalties after it was sampled, accepted, rejected.
#[test]
fn penalty_counts_follow_what_the_host_kept() {
    let (mut rows, mut batch) = (table(), Batch::default());
    let history = [1, 2, 5];
    let step = Step {
        binds: &[RowBind { presence_penalty: 0.5, prompt_len: 2, output_len: 1, ..RowBind::greedy(0) }],
        pages: &[append(0, 0, 0, 3)],
        page_ids: &[0, 1, 2],
        seqs: &[Seq { num_logits: 1, ..seq(0, 0, 3) }],
        tokens: &history,
        history: &history,
        ..Step::default()
    };
    rows.apply(&step, &mut batch).unwrap();
    let count = |rows: &RowTable, token| rows.row(0).unwrap().sampling.counts.num_output(token);
    assert!(rows.row(0).unwrap().sampling.counts.in_prompt(2));
    assert_eq!((count(&rows, 5), count(&rows, 2)), (1, 0));
    rows.record(&batch, 0, Some(5));
    assert_eq!(count(&rows, 5), 2);
    // Verify: input 5 and drafts 6, 7; all three positions are sampled.
    let verify = [Seq { num_logits: 3, ..seq(0, 3, 3) }];
    rows.apply(&Step { seqs: &verify, tokens: &[5, 6, 7], ..Step::default() }, &mut batch).unwrap();
    let drafts: Vec<_> = batch.logits.iter().map(|at| batch.drafts_before(at).to_vec()).collect();
    assert_eq!(drafts, [vec![], vec![6], vec![6, 7]]);
    for (index, token) in [6, 5, 9].into_iter().enumerate() {
        rows.record(&batch, index, Some(token));
    }
    assert_eq!((count(&rows, 6), count(&rows, 5), count(&rows, 9)), (1, 3, 1));
    // Draft 6 was right, 7 was not: 6 and 5 stand, 9 goes.
    rows.apply(&Step { seqs: &[seq(0, 5, 1)], tokens: &[5], ..Step::default() }, &mut batch).unwrap();
    assert_eq!((count(&rows, 6), count(&rows, 5), count(&rows, 9)), (1, 3, 0));
    // The host puts another token in the place of the last sample.
    rows.apply(&Step { seqs: &[seq(0, 5, 1)], tokens: &[8], ..Step::default() }, &mut batch).unwrap();
    assert_eq!((count(&rows, 5), count(&rows, 8)), (2, 1));
}

#[test]
fn prompt_scores_are_not_drafts() {
    let (mut rows, mut batch) = started();
    let part = Seq { num_logits: 3, target_offset: 0, ..seq(0, 5, 3) };
    let step = Step { seqs: &[part], tokens: &TOKENS, targets: &[11, 12, NONE], ..Step::default() };
    rows.apply(&step, &mut batch).unwrap();
    assert!(batch.logits.iter().all(|at| batch.drafts_before(at).is_empty()));
}

/// Applies `step` after `started` and returns the sentence.
fn refusal(step: Step<'_>) -> String {
    let (mut rows, mut batch) = started();
    rows.apply(&Step { tokens: &TOKENS, page_ids: &[1, 3, 10, 2], ..step }, &mut batch)
        .unwrap_err()
        .to_string()
}

#[test]
fn rows_that_are_not_there() {
    let step = Step::default();
    assert_eq!(refusal(Step { releases: &[4], ..step }), "row 4 is beyond the table of 4 rows");
    assert_eq!(refusal(Step { releases: &[1], ..step }), "row 1 is not bound");
    assert_eq!(refusal(Step { seqs: &[seq(1, 0, 1)], ..step }), "row 1 is not bound");
    assert_eq!(
        refusal(Step { binds: &[RowBind::greedy(0)], ..step }),
        "row 0 is bound again without a release"
    );
    let twice = [seq(0, 6, 1), seq(0, 7, 1)];
    assert_eq!(refusal(Step { seqs: &twice, ..step }), "row 0 has two sequences in one step");
}

#[test]
fn settings_out_of_range() {
    let refuse = |bind: RowBind| refusal(Step { binds: &[bind], ..Step::default() });
    let temperature = "row 1: temperature is -1, which is not a finite number of at least 0";
    assert_eq!(refuse(RowBind { temperature: -1.0, ..RowBind::greedy(1) }), temperature);
    for wrong in [
        RowBind { temperature: f32::NAN, ..RowBind::greedy(1) },
        RowBind { top_p: 1.5, ..RowBind::greedy(1) },
        RowBind { min_p: -0.1, ..RowBind::greedy(1) },
        RowBind { repetition_penalty: 0.0, ..RowBind::greedy(1) },
        RowBind { presence_penalty: f32::INFINITY, ..RowBind::greedy(1) },
        RowBind { frequency_penalty: f32::NAN, ..RowBind::greedy(1) },
    ] {
        assert!(refuse(wrong).contains(", which is not "), "{wrong:?}");
    }
    let logprobs = "row 1: 6 log-probabilities are asked for, the limit is 5";
    assert_eq!(refuse(RowBind { num_logprobs: 6, ..RowBind::greedy(1) }), logprobs);
    let history = "row 1: history 0..3 reach beyond its 0 entries";
    assert_eq!(refuse(RowBind { prompt_len: 3, ..RowBind::greedy(1) }), history);
    let biases = [TokenBias { token: 40, bias: 0.0 }, TokenBias { token: 1, bias: f32::NAN }];
    let with = |bias_offset| {
        let binds = [RowBind { num_biases: 1, bias_offset, ..RowBind::greedy(1) }];
        refusal(Step { binds: &binds, biases: &biases, ..Step::default() })
    };
    assert_eq!(with(0), "row 1: token 40 is beyond the vocabulary of 40");
    assert_eq!(with(1), "row 1: bias is NaN, which is not a finite number or minus infinity");
    assert_eq!(with(2), "row 1: biases 2..3 reach beyond its 2 entries");
}

#[test]
fn pages_out_of_place() {
    let refuse = |append: PageAppend| refusal(Step { pages: &[append], ..Step::default() });
    assert_eq!(refuse(append(0, 3, 0, 1)), "row 0: pages are appended at entry 3, the table ends at 2");
    assert_eq!(refuse(append(0, 2, 2, 1)), "row 0: page 10 is beyond the 10 reserved pages");
    assert_eq!(refuse(append(0, 2, 3, 2)), "row 0: page ids 3..5 reach beyond its 4 entries");
    assert_eq!(refuse(append(1, 0, 0, 1)), "row 1 is not bound");
    let missing = refusal(Step { seqs: &[seq(0, 6, 3)], ..Step::default() });
    assert_eq!(missing, "row 0: positions up to 9 need 3 pages, the table has 2");
    let shared = Step {
        binds: &[RowBind::greedy(1)],
        pages: &[append(1, 0, 3, 1)],
        seqs: &[seq(0, 6, 1), seq(1, 0, 1)],
        ..Step::default()
    };
    assert_eq!(refusal(shared), "page 2 is written by rows 0 and 1 in one step");
}

#[test]
fn sequences_that_do_not_follow() {
    let refuse = |seq: Seq| refusal(Step { seqs: &[seq], ..Step::default() });
    assert_eq!(refuse(seq(0, 6, 0)), "row 0: the sequence has no tokens");
    assert_eq!(refuse(Seq { flags: 2, ..seq(0, 6, 1) }), "row 0: unknown sequence flags 0x2");
    assert_eq!(refuse(seq(0, 7, 1)), "row 0: position 7 follows a gap, the next position is 6");
    let chained = "row 0: a chained sequence has one token right after a sampled one, not 1 at 5";
    assert_eq!(refuse(Seq { flags: SEQ_CHAINED, ..seq(0, 5, 1) }), chained);
    assert!(refuse(Seq { flags: SEQ_CHAINED, ..seq(0, 6, 2) }).contains("not 2 at 6"));
    let logits = "row 0: logits of 3 positions are asked for, the sequence has 2";
    assert_eq!(refuse(Seq { num_logits: 3, ..seq(0, 6, 2) }), logits);
    assert_eq!(refuse(seq(0, 0, 21)), "the step has 21 tokens, the limit is 20");
    assert_eq!(
        refuse(Seq { token_offset: 11, ..seq(0, 6, 2) }),
        "row 0: tokens 11..13 reach beyond its 12 entries"
    );
    let targets = "row 0: targets 0..1 reach beyond its 0 entries";
    assert_eq!(refuse(Seq { num_logits: 1, target_offset: 0, ..seq(0, 6, 1) }), targets);
    let masks = "row 0: masks 0..2 reach beyond its 0 entries";
    assert_eq!(refuse(Seq { num_logits: 1, mask_offset: 0, ..seq(0, 6, 1) }), masks);
    let long = [seq(0, 0, 20), seq(0, 20, 13)];
    let (mut rows, mut batch) = started();
    let pages = [append(0, 2, 0, 6)];
    let ids = [0, 1, 3, 4, 5, 6];
    let first = Step { pages: &pages, page_ids: &ids, seqs: &long[..1], tokens: &[1; 20], ..Step::default() };
    rows.apply(&first, &mut batch).unwrap();
    let error = rows.apply(&Step { seqs: &long[1..], tokens: &[1; 13], ..Step::default() }, &mut batch);
    assert_eq!(error.unwrap_err().to_string(), "row 0: positions up to 33 exceed the context of 32");
}

#[test]
fn a_chain_needs_a_sampled_predecessor() {
    let (mut rows, mut batch) = started();
    let scored = Seq { num_logits: 1, target_offset: 0, ..seq(0, 6, 1) };
    let step = Step { seqs: &[scored], tokens: &TOKENS, targets: &[5], ..Step::default() };
    rows.apply(&step, &mut batch).unwrap();
    let chained = [Seq { flags: SEQ_CHAINED, ..seq(0, 7, 1) }];
    let error = rows.apply(&Step { seqs: &chained, ..Step::default() }, &mut batch);
    assert_eq!(error, Err(BatchError::Chained { row: 0, num_tokens: 1, first: 7 }));
}

#[test]
fn tokens_slots_and_media_out_of_range() {
    let (mut rows, mut batch) = started();
    let step = Step { seqs: &[seq(0, 6, 1)], tokens: &[40], ..Step::default() };
    let error = rows.apply(&step, &mut batch).unwrap_err();
    assert_eq!(error.to_string(), "row 0: token 40 is beyond the vocabulary of 40");

    let part = Seq { num_logits: 1, ..seq(0, 6, 1) };
    let step = Step {
        binds: &[RowBind::greedy(1)],
        pages: &[append(1, 0, 0, 1)],
        seqs: &[part, Seq { num_logits: 1, ..seq(1, 0, 1) }],
        ..Step::default()
    };
    assert_eq!(refusal(step), "output slot 0 is used twice");

    let media = |row, first_position, len| MediaSpan { handle: 1, row, first_position, len, first_row: 0 };
    let with = |media: &[MediaSpan]| refusal(Step { seqs: &[seq(0, 6, 2)], media, ..Step::default() });
    assert_eq!(with(&[media(0, 7, 2)]), "row 0: media at 7..9 lie outside the positions 6..8 of this step");
    assert!(with(&[media(0, 5, 1)]).contains("5..6 lie outside"));
    assert_eq!(with(&[media(1, 0, 1)]), "row 1 is not bound");
    let overlap = [media(0, 6, 2), media(0, 7, 1)];
    assert_eq!(with(&overlap), "row 0: media at 7 overlap other media of the step");
}
