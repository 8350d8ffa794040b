//! Markers spelled with ordinary tokens. The parser reads text, so a marker that is spelled letter by letter would count;
//! where a grammar decides what counts, the token that would complete such a spelling is barred.

use std::sync::Arc;

/// Which tokens complete a marker's text, by how much of it stands already.
#[derive(Debug)]
pub(super) struct MarkerSpelling {
    text: Vec<u8>,
    /// `fall[n]`: longest proper beginning that the first `n` bytes end with.
    fall: Vec<usize>,
    completing: Vec<Vec<u32>>,
}

impl MarkerSpelling {
    /// Searches all tokens; those of `words` that start with 0xff are no text.
    pub(super) fn new(text: &str, words: &[Vec<u8>]) -> Self {
        let text = text.as_bytes().to_vec();
        let mut fall = vec![0; text.len() + 1];
        for length in 2..=text.len() {
            let mut best = fall[length - 1];
            while best > 0 && text[best] != text[length - 1] {
                best = fall[best];
            }
            fall[length] = if text[best] == text[length - 1] { best + 1 } else { 0 };
        }
        let mut spelling = MarkerSpelling { completing: vec![Vec::new(); text.len()], text, fall };
        let Some(last) = spelling.text.last().copied() else { return spelling };
        for (id, word) in words.iter().enumerate() {
            if word.first() == Some(&0xff) || !word.contains(&last) {
                continue;
            }
            for state in 0..spelling.text.len() {
                if spelling.run(state, word).is_none() {
                    spelling.completing[state].push(id as u32);
                }
            }
        }
        spelling
    }

    /// The state after `bytes`; `None` when the marker was completed.
    fn run(&self, mut state: usize, bytes: &[u8]) -> Option<usize> {
        for byte in bytes {
            while state > 0 && self.text[state] != *byte {
                state = self.fall[state];
            }
            state += usize::from(self.text[state] == *byte);
            if state == self.text.len() {
                return None;
            }
        }
        Some(state)
    }
}

/// How far one answer has come in spelling a marker.
#[derive(Debug, Clone)]
pub(super) struct Spelled {
    marker: Arc<MarkerSpelling>,
    state: usize,
}

impl Spelled {
    pub(super) fn new(marker: &Arc<MarkerSpelling>) -> Self {
        Spelled { marker: Arc::clone(marker), state: 0 }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.state = self.marker.run(self.state, bytes).unwrap_or(0);
    }

    /// What stands so far is no beginning.
    pub(super) fn reset(&mut self) {
        self.state = 0;
    }

    /// Takes out of a mask what would complete the marker.
    pub(super) fn bar(&self, words: &mut [u32]) {
        for token in self.marker.completing.get(self.state).into_iter().flatten() {
            super::mask::clear(words, *token);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completing_tokens_are_barred_in_every_state() {
        let words: Vec<Vec<u8>> = ["a", "]<]", "]<]m[", "m[", "]<", "[", "x]<]m[", "\u{e9}"]
            .iter()
            .map(|text| text.as_bytes().to_vec())
            .collect();
        let marker = Arc::new(MarkerSpelling::new("]<]m[", &words));
        let barred = |text: &str| {
            let mut spelled = Spelled::new(&marker);
            spelled.push(text.as_bytes());
            let mut mask = [u32::MAX];
            spelled.bar(&mut mask);
            (0..words.len()).filter(|id| mask[0] & (1 << id) == 0).collect::<Vec<_>>()
        };
        assert_eq!(barred("a"), [2, 6]);
        assert_eq!(barred("a]<]"), [2, 3, 6]);
        assert_eq!(barred("]<]<]"), [2, 3, 6]);
        assert_eq!(barred("]<]m"), [2, 5, 6]);
        assert_eq!(barred("]<]x"), [2, 6]);
    }
}
