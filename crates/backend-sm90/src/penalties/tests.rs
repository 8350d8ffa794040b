//! Samples taken back and replaced, against the row table's own counts.

use m3_abi::Step;
use m3_abi::types::{NONE, PageAppend, RowBind, SEQ_CHAINED, Seq};
use m3_model::batch::Limits;

use super::*;

fn limits() -> Limits {
    Limits {
        max_rows: 2,
        max_step_tokens: 64,
        max_context: 64,
        page_tokens: 16,
        max_logprobs: 0,
        vocab_size: 100,
        num_pages: 4,
    }
}

fn bind(row: u32) -> RowBind {
    RowBind { repetition_penalty: 1.5, prompt_len: 2, ..RowBind::greedy(row) }
}

/// A row table with its mirror, one row bound with the prompt 7, 8.
struct Pair {
    rows: RowTable,
    penalties: Penalties,
    batch: Batch,
    is_bound: bool,
}

impl Pair {
    fn new() -> Pair {
        Pair {
            rows: RowTable::new(limits()),
            penalties: Penalties::new(2),
            batch: Batch::default(),
            is_bound: false,
        }
    }

    /// One sequence of row 1 with logits at its last `num_logits` tokens; answers the corrections.
    fn step(&mut self, first_position: u32, tokens: &[u32], num_logits: u32, flags: u32) -> Vec<Entry> {
        let seq = Seq {
            row: 1,
            flags,
            first_position,
            num_tokens: tokens.len() as u32,
            token_offset: 0,
            num_logits,
            output_offset: 0,
            target_offset: NONE,
            mask_offset: NONE,
            output_index: 0,
        };
        let (binds, pages) = ([bind(1)], [PageAppend { row: 1, first: 0, offset: 0, count: 4 }]);
        let (binds, pages) =
            if self.is_bound { (&binds[..0], &pages[..0]) } else { (&binds[..], &pages[..]) };
        self.is_bound = true;
        let (history, page_ids) = ([7, 8], [0, 1, 2, 3]);
        let step = Step {
            binds,
            pages,
            page_ids: &page_ids,
            history: &history,
            seqs: &[seq],
            tokens,
            ..Step::default()
        };
        self.rows.apply(&step, &mut self.batch).unwrap();
        self.penalties.settle(&self.batch, &self.rows, 100)
    }

    fn sampled(&mut self, index: usize, token: u32) {
        self.rows.record(&self.batch, index, Some(token));
        let position = self.batch.positions[self.batch.logits[index].token] + 1;
        self.penalties.count(1, position, token);
    }
}

#[test]
fn what_was_sampled_and_stays_changes_nothing() {
    let mut pair = Pair::new();
    assert_eq!(pair.step(0, &[7, 8], 1, 0), []);
    pair.sampled(0, 20);
    assert_eq!(pair.step(2, &[20], 1, 0), []);
    pair.sampled(0, 21);
    assert_eq!(pair.step(3, &[0], 1, SEQ_CHAINED), [], "a chained token is what was counted");
}

#[test]
fn another_token_than_the_sampled_one_moves_both_counts() {
    let mut pair = Pair::new();
    pair.step(0, &[7, 8], 1, 0);
    pair.sampled(0, 20);
    // 8 is in the prompt too.
    let in_prompt = (1 | IN_PROMPT) as i32;
    assert_eq!(pair.step(2, &[8], 1, 0), [(108, in_prompt), (120, 0)]);
    pair.sampled(0, 8);
    assert_eq!(pair.step(3, &[8], 1, 0), []);
}

#[test]
fn rejected_drafts_are_taken_back() {
    let mut pair = Pair::new();
    pair.step(0, &[7, 8], 1, 0);
    pair.sampled(0, 20);
    pair.step(2, &[20, 30, 31], 3, 0);
    for (index, token) in [30, 40, 41].into_iter().enumerate() {
        pair.sampled(index, token);
    }
    // 30 stands; 40 was sampled instead of 31; 41 followed a rejected token.
    assert_eq!(pair.step(4, &[40], 1, 0), [(141, 0)]);
    pair.penalties.forget(1);
    assert_eq!(pair.step(0, &[1], 1, 0), [], "a row that begins anew has counted nothing");
}
