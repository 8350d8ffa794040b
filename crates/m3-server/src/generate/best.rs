//! `best_of`: several answers to each prompt are made and the likeliest given, judged by the mean log-probability of
//! their tokens. Nothing can be told before all have ended.

use super::{ChoiceEvent, Session};

/// What was chosen.
#[derive(Debug, Default)]
pub struct Best {
    /// Events of the given answers, those of answer `p * n + i` under that index, the best of a prompt first.
    pub events: Vec<(usize, ChoiceEvent)>,
    /// Sampled tokens of the others.
    pub unseen_tokens: u32,
    /// How many of those were reasoning.
    pub unseen_reasoning: u32,
}

#[derive(Default)]
struct Candidate {
    events: Vec<ChoiceEvent>,
    sum: f64,
    count: u32,
    failed: bool,
}

impl Candidate {
    fn add(&mut self, event: ChoiceEvent) {
        if let ChoiceEvent::Output(output) = &event {
            for score in output.tokens.iter().filter_map(|token| token.sampled.score.as_ref()) {
                self.sum += f64::from(score.logprob);
                self.count += 1;
            }
        }
        self.failed |= matches!(event, ChoiceEvent::Failed(_));
        self.events.push(event);
    }

    /// An answer without a token says nothing and is worth less than any other; a failed one ends the request, so it
    /// must be given.
    fn worth(&self) -> f64 {
        match (self.failed, self.count) {
            (true, _) => f64::INFINITY,
            (false, 0) => f64::NEG_INFINITY,
            (false, count) => self.sum / f64::from(count),
        }
    }

    fn tokens(&self) -> (u32, u32) {
        match self.events.last() {
            Some(ChoiceEvent::Done(done)) => (done.completion_tokens, done.reasoning_tokens),
            _ => (0, 0),
        }
    }
}

/// Waits for all answers of the session and gives `n` of each prompt's `best_of`.
pub async fn choose(mut session: Session, n: usize, best_of: usize) -> Best {
    let mut candidates: Vec<Candidate> = Vec::new();
    while let Some((index, event)) = session.next_of_whole().await {
        if candidates.len() <= index {
            candidates.resize_with(index + 1, Candidate::default);
        }
        candidates[index].add(event);
    }
    rank(candidates, n, best_of)
}

fn rank(mut candidates: Vec<Candidate>, n: usize, best_of: usize) -> Best {
    let mut best = Best::default();
    for (prompt, group) in candidates.chunks_mut(best_of).enumerate() {
        // Stable, so that of equal ones the first stays first.
        group.sort_by(|left, right| right.worth().total_cmp(&left.worth()));
        for (place, candidate) in group.iter_mut().enumerate() {
            if place < n {
                let events = std::mem::take(&mut candidate.events);
                best.events.extend(events.into_iter().map(|event| (prompt * n + place, event)));
            } else {
                let (completion, reasoning) = candidate.tokens();
                best.unseen_tokens += completion;
                best.unseen_reasoning += reasoning;
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use m3_core::event::{SampledToken, TokenScore};

    use super::*;
    use crate::generate::{Done, Output, OutputToken, Reason};

    fn candidate(logprobs: &[f32]) -> Candidate {
        let token = |logprob: &f32| {
            let score = Some(TokenScore { token: 1, logprob: *logprob, rank: 0, top: Vec::new() });
            OutputToken { sampled: SampledToken { token: 1, score }, num_chars: 1, reasoning: false }
        };
        let mut candidate = Candidate::default();
        let tokens = logprobs.iter().map(token).collect();
        candidate.add(ChoiceEvent::Output(Output { tokens, ..Output::default() }));
        candidate.add(ChoiceEvent::Done(Done {
            deltas: Vec::new(),
            reason: Reason::Stop,
            stop: None,
            completion_tokens: logprobs.len() as u32,
            reasoning_tokens: 0,
            cached_tokens: 0,
        }));
        candidate
    }

    #[test]
    fn the_likeliest_per_token_win_and_the_rest_is_counted() {
        let candidates = vec![
            candidate(&[-1.0, -1.0, -1.0]),
            candidate(&[-0.5, -0.5, -0.5, -0.5]),
            candidate(&[]),
            candidate(&[-9.0]),
            candidate(&[-0.1]),
            candidate(&[-0.2]),
        ];
        let best = rank(candidates, 2, 3);
        assert_eq!(best.unseen_tokens, 1, "the empty one and the one at -9");
        let lengths: Vec<(usize, usize)> = best
            .events
            .iter()
            .filter_map(|(index, event)| match event {
                ChoiceEvent::Output(output) => Some((*index, output.tokens.len())),
                _ => None,
            })
            .collect();
        assert_eq!(lengths, [(0, 4), (1, 3), (2, 1), (3, 1)]);
    }
}
