//! The ids that end a request and the masks that keep them from being sampled too early.
//! Stop strings are text and live with the text.

/// Stop ids of one request, with the number of tokens before which none may be sampled.
#[derive(Clone, Debug, Default)]
pub struct StopIds {
    /// Sorted, without doubles.
    ids: Vec<u32>,
    min_tokens: u32,
}

impl StopIds {
    pub fn new(mut ids: Vec<u32>, min_tokens: u32) -> Self {
        ids.sort_unstable();
        ids.dedup();
        StopIds { ids, min_tokens }
    }

    pub fn contains(&self, token: u32) -> bool {
        self.ids.binary_search(&token).is_ok()
    }

    /// Whether the token with this output index must not be a stop id.
    pub fn is_barred(&self, output_index: u32) -> bool {
        output_index < self.min_tokens && !self.ids.is_empty()
    }

    /// Takes the stop ids out of a mask, unless nothing would be left: a grammar that can only end wins.
    pub fn clear_from(&self, words: &mut [u32]) {
        let before = words.to_vec();
        for &id in &self.ids {
            if let Some(word) = words.get_mut(id as usize / 32) {
                *word &= !(1 << (id % 32));
            }
        }
        if words.iter().all(|&word| word == 0) {
            words.copy_from_slice(&before);
        }
    }
}

/// Words of one mask.
pub fn mask_words(vocab_size: usize) -> usize {
    vocab_size.div_ceil(32)
}

/// Allows every token of the vocabulary and nothing past it.
pub fn allow_all(words: &mut [u32], vocab_size: usize) {
    words.fill(u32::MAX);
    let tail = vocab_size % 32;
    if tail != 0
        && let Some(last) = words.last_mut()
    {
        *last = (1 << tail) - 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stop_ids_are_barred_until_min_tokens() {
        let stop = StopIds::new(vec![7, 3, 7], 2);
        assert!(stop.contains(3) && stop.contains(7) && !stop.contains(4));
        assert!(stop.is_barred(0) && stop.is_barred(1) && !stop.is_barred(2));
        assert!(!StopIds::new(vec![], 2).is_barred(0));
        let mut words = vec![0; mask_words(40)];
        allow_all(&mut words, 40);
        assert_eq!(words, [u32::MAX, 0xff]);
        stop.clear_from(&mut words);
        assert_eq!(words, [!((1 << 7) | (1 << 3)), 0xff]);
    }

    #[test]
    fn a_grammar_that_can_only_stop_is_left_alone() {
        let stop = StopIds::new(vec![33], 5);
        let mut words = vec![0, 2];
        stop.clear_from(&mut words);
        assert_eq!(words, [0, 2]);
    }
}
