//! Order, padding and maps of packed steps.

use m3_model::batch::{Batch, BatchSeq, LogitsPosition};

use super::*;

fn sequence(batch: &mut Batch, row: u32, first_position: u32, len: usize, chained: bool) {
    let start = batch.token_ids.len();
    for index in 0..len as u32 {
        batch.token_ids.push(100 * row + index);
        batch.positions.push(first_position + index);
        batch.slots.push(u64::from(1000 * row + first_position + index));
        batch.seq_of.push(batch.seqs.len() as u32);
    }
    let token = batch.token_ids.len() - 1;
    let logits = batch.logits.len()..batch.logits.len() + 1;
    batch.logits.push(LogitsPosition {
        token,
        seq: batch.seqs.len(),
        output_slot: batch.logits.len(),
        target: None,
        mask: None,
        output_index: 0,
    });
    let tokens = start..batch.token_ids.len();
    batch.seqs.push(BatchSeq { row, chained, first_position, tokens, pages: 0..0, logits });
}

#[test]
fn short_sequences_come_first_and_places_say_where_everything_went() {
    let mut batch = Batch::default();
    sequence(&mut batch, 1, 10, 6, false);
    sequence(&mut batch, 2, 300, 1, true);
    sequence(&mut batch, 3, 0, 5, false);
    sequence(&mut batch, 4, 40, 4, false);
    let mut packed = Packed::default();
    packed.fill(&batch, 16);
    assert_eq!(packed.num_short, 1);
    assert_eq!(packed.last_short_position, 300);
    assert_eq!(packed.token_ids[..3], [-1, 100, 101], "a chained token is the device's to know");
    assert_eq!(packed.token_row, [2, 1, 1, 1, 1, 1, 1, 3, 3, 3, 3, 3, 4, 4, 4, 4]);
    assert_eq!(packed.positions[12..], [40, 41, 42, 43]);
    assert_eq!(packed.slots[1], 1010);
    let chunks = &packed.chunks;
    assert_eq!(chunks.row, [1, 3, 4]);
    assert_eq!(chunks.first_token, [1, 7, 12]);
    assert_eq!(chunks.len, [6, 5, 4]);
    assert_eq!(chunks.first_position, [10, 0, 40]);
    assert_eq!(chunks.first_item, [0, 1, 2, 5], "pages of each context");
    assert_eq!((chunks.longest, chunks.deepest), (6, 44));
    assert_eq!(packed.logits_token, [6, 0, 11, 15]);
    for (token, &place) in packed.place.iter().enumerate() {
        assert_eq!(packed.positions[place as usize], batch.positions[token] as i32);
    }
}

#[test]
fn a_bucket_is_padded_with_tokens_that_store_nothing() {
    let mut batch = Batch::default();
    sequence(&mut batch, 0, 7, 1, false);
    let mut packed = Packed::default();
    packed.fill(&batch, 16);
    packed.pad_tokens(4, 9);
    packed.pad_logits(4);
    assert_eq!(packed.num_short, 4);
    assert_eq!(packed.token_row, [0, 9, 9, 9]);
    assert_eq!(packed.slots, [7, -1, -1, -1]);
    assert_eq!(packed.logits_token, [0, -1, -1, -1]);
    packed.fill(&batch, 16);
    assert_eq!(packed.num_tokens(), 1, "padding does not survive a refill");
}
