//! Incremental decoding: whole characters only, invalid bytes at once, linear time.

use std::sync::Arc;

use m3_core::text::detokenize::Detokenizer;
use proptest::prelude::*;

use crate::support::{released_tokenizer, shared_data, small_tokenizer};

/// Ids 0..255 of the small vocabulary are the bytes themselves.
fn push_bytes(bytes: &[u8]) -> Vec<String> {
    let mut detokenizer = Detokenizer::new(small_tokenizer());
    let mut pieces: Vec<String> = bytes.iter().map(|byte| detokenizer.push(u32::from(*byte))).collect();
    pieces.push(detokenizer.finish());
    pieces
}

#[test]
fn characters_appear_when_their_last_byte_does() {
    let pieces = push_bytes("é中🙂".as_bytes());
    assert_eq!(pieces, ["", "é", "", "", "中", "", "", "", "🙂", ""]);
}

#[test]
fn refuted_bytes_appear_at_once() {
    // A cut 4-byte character followed by a letter, a lone continuation, an overlong form, a surrogate.
    let pieces = push_bytes(b"\xf0\x9f\x99a\x80\xc0\xed\xa0\x80b");
    assert_eq!(
        pieces,
        ["", "", "", "\u{fffd}a", "\u{fffd}", "\u{fffd}", "", "\u{fffd}\u{fffd}", "\u{fffd}", "b", ""]
    );
    assert_eq!(push_bytes(b"\xe4\xb8"), ["", "", "\u{fffd}"]);
}

proptest! {
    #[test]
    fn any_bytes_equal_the_whole_decode(bytes in prop::collection::vec(prop_oneof![
        any::<u8>(), Just(0xf0), Just(0x9f), Just(0x99), Just(0x82), Just(0xe4), Just(0xb8), Just(0xad)
    ], 0..40)) {
        prop_assert_eq!(push_bytes(&bytes).concat(), String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn any_ids_equal_the_whole_decode(ids in prop::collection::vec(0u32..500, 0..60)) {
        let tokenizer = small_tokenizer();
        let mut detokenizer = Detokenizer::new(tokenizer.clone());
        let mut text: String = ids.iter().map(|id| detokenizer.push(*id)).collect();
        text.push_str(&detokenizer.finish());
        prop_assert_eq!(text, tokenizer.decode(&ids, false));
    }
}

#[test]
fn ten_thousand_lone_continuation_bytes_come_out_one_by_one() {
    let mut detokenizer = Detokenizer::new(small_tokenizer());
    for _ in 0..10_000 {
        // Each answer depends on this byte alone, so the work cannot grow with what came before.
        assert_eq!(detokenizer.push(0x80), "\u{fffd}");
    }
    assert_eq!(detokenizer.finish(), "");
}

/// Every way to spell `text` in tokens of `tokenizer` must decode to `text` and never show half a character.
fn check_spellings(tokenizer: &Arc<m3_core::text::tokenizer::Tokenizer>, text: &str, ids: &[u32]) {
    let mut detokenizer = Detokenizer::new(tokenizer.clone());
    let mut shown = String::new();
    for id in ids {
        shown.push_str(&detokenizer.push(*id));
        assert!(text.starts_with(&shown), "{shown:?} is not the beginning of {text:?}");
    }
    assert_eq!(shown + &detokenizer.finish(), text);
}

#[test]
fn released_tokens_that_split_characters() {
    let Some(data) = shared_data() else { return };
    let tokenizer = released_tokenizer(&data);
    let by_bytes: std::collections::HashMap<&[u8], u32> =
        (0..200_000).filter_map(|id| Some((tokenizer.token_bytes(id)?, id))).collect();
    let mut checked = 0;
    for text in ["🙂中", "👩‍👩", "한국어", "龘🦀é"] {
        let bytes = text.as_bytes();
        for cuts in 0..1u32 << (bytes.len() - 1) {
            let mut ids = Vec::new();
            let mut start = 0;
            for end in 1..=bytes.len() {
                if end == bytes.len() || cuts >> (end - 1) & 1 == 1 {
                    ids.push(by_bytes.get(&bytes[start..end]));
                    start = end;
                }
            }
            if let Some(ids) = ids.into_iter().map(Option::<&u32>::copied).collect::<Option<Vec<u32>>>() {
                check_spellings(&tokenizer, text, &ids);
                checked += 1;
            }
        }
    }
    assert!(checked > 50, "only {checked} spellings exist in the vocabulary");
}
