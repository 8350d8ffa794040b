//! Notices an answer that goes round in circles: the same run of tokens again and again at its end. Each pattern length
//! costs one comparison per token, however long the answer is.

use std::collections::VecDeque;

use crate::openai::generation::RepetitionDetection;

/// The watch over one answer's tokens.
#[derive(Debug)]
pub(super) struct Repetition {
    detection: RepetitionDetection,
    /// The last tokens, newest first, as many as the longest pattern has.
    recent: VecDeque<u32>,
    /// By pattern length from the shortest on: how many tokens at the end equal the one a pattern before.
    equal: Vec<u32>,
    /// The last token closed a circle.
    pub(super) found: bool,
}

impl Repetition {
    pub(super) fn new(detection: RepetitionDetection) -> Self {
        let lengths = detection.max_pattern_size - detection.min_pattern_size + 1;
        Repetition { detection, recent: VecDeque::new(), equal: vec![0; lengths as usize], found: false }
    }

    /// Takes a token; true when a pattern now stands often enough.
    pub(super) fn push(&mut self, token: u32) -> bool {
        let RepetitionDetection { min_pattern_size, max_pattern_size, min_count } = self.detection;
        self.found = false;
        for (count, length) in self.equal.iter_mut().zip(min_pattern_size..) {
            let before = self.recent.get(length as usize - 1);
            *count = if before == Some(&token) { count.saturating_add(1) } else { 0 };
            self.found |= u64::from(*count) >= u64::from(length) * u64::from(min_count - 1);
        }
        self.recent.push_front(token);
        self.recent.truncate(max_pattern_size as usize);
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tokens read until a circle is found.
    fn found_at(tokens: &[u32], (least, most, count): (u32, u32, u32)) -> Option<usize> {
        let detection =
            RepetitionDetection { min_pattern_size: least, max_pattern_size: most, min_count: count };
        let mut repetition = Repetition::new(detection);
        tokens.iter().position(|token| repetition.push(*token)).map(|at| at + 1)
    }

    /// By the definition.
    fn reference(tokens: &[u32], (least, most, count): (u32, u32, u32)) -> Option<usize> {
        (1..=tokens.len()).find(|end| {
            (least as usize..=most as usize).any(|length| {
                let Some(from) = end.checked_sub(length * count as usize) else { return false };
                tokens[from..*end].chunks(length).all(|part| part == &tokens[*end - length..*end])
            })
        })
    }

    #[test]
    fn circles_are_found_where_the_definition_finds_them() {
        let mut state = 7u32;
        let mut next = |below: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 16) % below
        };
        for round in 0..400 {
            let tokens: Vec<u32> = (0..40).map(|_| next(2 + round % 3)).collect();
            let least = 1 + next(3);
            let detection = (least, least + next(4), 2 + next(3));
            assert_eq!(
                found_at(&tokens, detection),
                reference(&tokens, detection),
                "{tokens:?} {detection:?}"
            );
        }
        assert_eq!(found_at(&[1, 2, 3, 1, 2, 3, 1, 2, 3], (1, 8, 3)), Some(9));
        assert_eq!(found_at(&[5, 5, 5], (2, 4, 3)), None);
    }
}
