//! Reading a completed step back: tokens and scores to their requests, full pages to the cache, ends to the finished.

use m3_abi::Output;
use m3_abi::types::{FAULT_EMPTY_MASK, FAULT_NAN, NONE};

use super::queue::Place;
use super::step::Part;
use super::{Emission, Scheduler};
use crate::contain::contain;
use crate::event::{FinishReason, RequestEvent, SampledToken, TokenScore};
use crate::metrics::LastStep;

impl Scheduler {
    /// Takes the results of the oldest step in flight.
    pub fn complete(&mut self, step_id: u64, output: &Output, now_us: u64) {
        let step = self.in_flight.pop_front().expect("results belong to a step in flight");
        assert_eq!(step.id, step_id, "steps complete in the order in which they were planned");
        self.counters.steps += 1;
        self.counters.computed_tokens += step.num_tokens as u64;
        self.last_step = LastStep {
            num_seqs: step.parts.len(),
            num_tokens: step.num_tokens,
            wall_us: now_us.saturating_sub(step.planned_us),
            device_us: output.device_time_us,
        };
        self.counters.steps_us += self.last_step.wall_us;
        self.counters.device_us += output.device_time_us;
        for (place, part) in step.parts {
            if self.queues.ending.contains_key(&place) {
                self.settle_ended(place, &part);
            } else if let Err(reason) = self.settle(place, &part, output, now_us) {
                self.end(place, reason, now_us);
            }
        }
    }

    /// The sequence ended while this step was in flight; what it computed is thrown away.
    fn settle_ended(&mut self, place: Place, part: &Part) {
        self.counters.overrun_tokens += u64::from(part.samples);
        let sequence = self.queues.ending.get_mut(&place).expect("the caller has seen it");
        sequence.steps_in_flight -= 1;
        if sequence.steps_in_flight == 0
            && let Some(mut sequence) = self.queues.ending.remove(&place)
        {
            self.evacuate(&mut sequence);
        }
    }

    /// `Err` when the sequence ends here.
    fn settle(
        &mut self,
        place: Place,
        part: &Part,
        output: &Output,
        now_us: u64,
    ) -> Result<(), FinishReason> {
        let sequence = self.queues.running.get_mut(&place).expect("sequences in flight run or end");
        sequence.steps_in_flight -= 1;
        sequence.pending -= u32::from(part.samples);
        check_faults(part, output, self.config.vocab_size).map_err(FinishReason::Error)?;
        if sequence.request.logprobs.is_some() || !part.scored.is_empty() {
            check_scores(part, output, self.config.vocab_size).map_err(FinishReason::Error)?;
        }
        sequence.done = part.end;
        self.release_pieces(place);
        let sequence = self.queues.running.get_mut(&place).expect("it has just been seen");
        if part.num_outputs() > 0
            && let Some(mut residence) = sequence.residence.take()
        {
            // Only now: logits without a fault vouch for the keys and values before them.
            self.cache.publish(&mut residence.lease, sequence.key(part.end));
            sequence.residence = Some(residence);
        }
        if !part.scored.is_empty() {
            let asked = sequence.request.prompt_logprobs.unwrap_or(0);
            let slots = part.first_output..;
            let scores = part.scored.clone().zip(slots);
            let scores =
                scores.map(|(at, slot)| score(output, slot, sequence.tokens[at + 1], asked)).collect();
            let first_position = part.scored.start as u32 + 1;
            sequence.scored = part.scored.end;
            let event = RequestEvent::Prompt { first_position, scores };
            self.emissions.push(Emission::Event(sequence.request.id, event));
        }
        if part.samples {
            return self.append(place, part.first_output + part.scored.len(), output, now_us);
        }
        match sequence.max_outputs == 0 && sequence.remaining() == 0 && sequence.steps_in_flight == 0 {
            true => Err(FinishReason::Length),
            false => Ok(()),
        }
    }

    /// Takes one sampled token.
    fn append(
        &mut self,
        place: Place,
        slot: usize,
        output: &Output,
        now_us: u64,
    ) -> Result<(), FinishReason> {
        let sequence = self.queues.running.get_mut(&place).expect("the caller has seen it");
        let token = output.tokens[slot];
        sequence.tokens.push(token);
        sequence.first_token_us.get_or_insert(now_us);
        self.counters.generated_tokens += 1;
        if sequence.stop.contains(token) {
            return Err(FinishReason::Stop { token });
        }
        let score = sequence.request.logprobs.map(|asked| score(output, slot, token, asked));
        let event = RequestEvent::Tokens(vec![SampledToken { token, score }]);
        self.emissions.push(Emission::Event(sequence.request.id, event));
        if sequence.num_outputs() >= sequence.max_outputs {
            return Err(FinishReason::Length);
        }
        match &mut sequence.request.mask {
            Some(mask) => contain("the grammar", || mask.accept(token)).map_err(FinishReason::Error),
            None => Ok(()),
        }
    }
}

fn check_faults(part: &Part, output: &Output, vocab_size: usize) -> Result<(), String> {
    for slot in part.first_output..part.first_output + part.num_outputs() {
        let faults = output.faults[slot];
        if faults & FAULT_NAN != 0 {
            return Err("the model computed logits that are not numbers for this request".to_owned());
        }
        if faults & FAULT_EMPTY_MASK != 0 {
            return Err("the grammar of this request allows no token".to_owned());
        }
        if faults != 0 {
            return Err(format!("the backend reported fault bits {faults:#x} for this request"));
        }
    }
    if part.samples {
        let token = output.tokens[part.first_output + part.scored.len()];
        if token as usize >= vocab_size {
            return Err(format!(
                "the backend sampled token id {token}; the vocabulary has {vocab_size} tokens"
            ));
        }
    }
    Ok(())
}

/// A little above 0 is rounding; more is no log-probability.
const HIGHEST_LOGPROB: f32 = 1e-3;

/// What a client will read must be log-probabilities of tokens; minus infinity is one.
fn check_scores(part: &Part, output: &Output, vocab_size: usize) -> Result<(), String> {
    let width = output.top_capacity;
    for slot in part.first_output..part.first_output + part.num_outputs() {
        let tops = slot * width..(slot + 1) * width;
        let used = output.top_ids[tops.clone()].iter().zip(&output.top_logprobs[tops]);
        let used = used.take_while(|(id, _)| **id != NONE);
        for (id, logprob) in std::iter::once((&output.tokens[slot], &output.logprobs[slot])).chain(used) {
            if *id != NONE && *id as usize >= vocab_size {
                return Err(format!(
                    "the backend scored token id {id}; the vocabulary has {vocab_size} tokens"
                ));
            }
            if logprob.is_nan() || *logprob > HIGHEST_LOGPROB {
                return Err(format!("the backend reported {logprob} as a log-probability"));
            }
        }
    }
    Ok(())
}

fn score(output: &Output, slot: usize, token: u32, asked: u32) -> TokenScore {
    let width = output.top_capacity;
    let tops = slot * width..slot * width + (asked as usize).min(width);
    let top = output.top_ids[tops.clone()].iter().zip(&output.top_logprobs[tops]);
    TokenScore {
        token,
        logprob: output.logprobs[slot],
        rank: output.ranks[slot],
        top: top.take_while(|(id, _)| **id != NONE).map(|(&id, &logprob)| (id, logprob)).collect(),
    }
}
