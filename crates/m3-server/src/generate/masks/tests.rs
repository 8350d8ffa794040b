//! Masks against brute force over the bundled vocabulary.

use m3_core::text::parse::ThinkingMode;
use m3_core::text::tokenizer::Tokenizer;

use super::*;
use crate::model::markers;

fn nano() -> Arc<Tokenizer> {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/random/m3-nano");
    Arc::new(Tokenizer::from_dir(dir.as_ref()).unwrap())
}

fn allows(mask: &mut dyn TokenMask, vocab_size: usize) -> Vec<bool> {
    let mut words = vec![0; m3_core::stop::mask_words(vocab_size)];
    mask.fill(&mut words);
    (0..vocab_size).map(|id| words[id / 32] >> (id % 32) & 1 == 1).collect()
}

#[test]
fn no_way_of_cutting_a_bad_word_is_left() {
    let tokenizer = nano();
    let vocab_size = tokenizer.vocab_len();
    let words = ["the", "an", "é", " a"].map(str::to_owned);
    let source = BadWords::new(&words, Arc::new(TokenIndex::new(tokenizer.clone())), vocab_size);
    let has_bad = |text: &[u8]| {
        words.iter().any(|word| text.windows(word.len()).any(|window| window == word.as_bytes()))
    };
    let mut state = 3u32;
    for _ in 0..30 {
        let mut mask = source.start();
        let mut text: Vec<u8> = Vec::new();
        for _ in 0..30 {
            let allowed = allows(mask.as_mut(), vocab_size);
            for id in 0..vocab_size as u32 {
                let special = tokenizer.is_special(id);
                let bytes = tokenizer.token_bytes(id).filter(|_| !special).unwrap_or_default();
                let bad = has_bad(&[&text, bytes].concat());
                assert_eq!(allowed[id as usize], !bad, "{id} after {:?}", String::from_utf8_lossy(&text));
            }
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // Bytes of bad words come often, so that many are nearly completed.
            let likely: Vec<u32> = (0..vocab_size as u32)
                .filter(|id| allowed[*id as usize])
                .filter(|id| tokenizer.token_bytes(*id).is_some_and(|bytes| bytes.len() < 3))
                .collect();
            let token = likely[(state >> 8) as usize % likely.len()];
            text.extend_from_slice(
                tokenizer.token_bytes(token).filter(|_| !tokenizer.is_special(token)).unwrap_or_default(),
            );
            mask.accept(token);
        }
    }
}

#[test]
fn a_budget_ends_reasoning_and_nothing_else() {
    let tokenizer = nano();
    let (vocab_size, markers) = (tokenizer.vocab_len(), markers(&tokenizer));
    let (open, close) = (markers.think_open.token.unwrap(), markers.think_close.token.unwrap());
    let only_close = |mask: &mut dyn TokenMask| {
        let allowed = allows(mask, vocab_size);
        let count = allowed.iter().filter(|allowed| **allowed).count();
        assert!(count == vocab_size || (count == 1 && allowed[close as usize]));
        count == 1
    };
    let begin = |budget, mode| ThinkingBudget::new(budget, mode, &markers, vocab_size).unwrap().start();
    let mut mask = begin(2, ThinkingMode::Enabled);
    for (token, forced) in [(50, false), (51, false), (close, true), (52, false), (open, false), (53, false)]
    {
        assert_eq!(only_close(mask.as_mut()), forced, "before {token}");
        mask.accept(token);
    }
    let mut mask = begin(0, ThinkingMode::Adaptive);
    assert!(!only_close(mask.as_mut()));
    mask.accept(open);
    assert!(only_close(mask.as_mut()));
    let mut mask = begin(1, ThinkingMode::Adaptive);
    for token in [50, 51, 52, close, 53] {
        assert!(!only_close(mask.as_mut()), "an answer without reasoning is not limited");
        mask.accept(token);
    }
}

#[test]
fn several_masks_allow_what_all_allow() {
    let vocab_size = 100;
    let all: Vec<Arc<dyn MaskSource>> = vec![
        Arc::new(AllowedTokens::new(&[3, 40, 99], vocab_size)),
        Arc::new(AllowedTokens::new(&[40, 99, 5], vocab_size)),
    ];
    let mut mask = start(&all, &[7]).unwrap();
    let allowed = allows(mask.as_mut(), vocab_size);
    let ids: Vec<usize> = (0..vocab_size).filter(|id| allowed[*id]).collect();
    assert_eq!(ids, [40, 99]);
    assert!(start(&[], &[7]).is_none());
    let mut against = all;
    against.push(Arc::new(AllowedTokens::new(&[5], vocab_size)));
    let allowed = allows(start(&against, &[7]).unwrap().as_mut(), vocab_size);
    assert_eq!((0..vocab_size).filter(|id| allowed[*id]).collect::<Vec<_>>(), [7], "the answer can only end");
}
