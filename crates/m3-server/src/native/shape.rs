//! From answer events to SGLang's chunks, each of which has everything so far.

use std::sync::Arc;
use std::time::Instant;

use m3_core::event::TokenScore;
use m3_core::text::parse::Delta;
use m3_core::text::tokenizer::Tokenizer;
use serde_json::json;

use super::request::Logprobs;
use super::response::{Chunk, Generated, LogprobLists, MetaInfo, Scored, Whole};
use crate::error::ApiError;
use crate::generate::{ChoiceEvent, Done, Output, Reason, Stop};
use crate::shape::{Shape, finite};

/// State of one request's answers.
pub struct GenerateShape {
    answers: Vec<Generated>,
    prompts: Vec<Vec<u32>>,
    n: usize,
    options: Options,
}

/// What the request decided.
pub struct Options {
    /// Answer with a list although there is one answer.
    pub batch: bool,
    pub logprobs: Option<Logprobs>,
    pub tokenizer: Option<Arc<Tokenizer>>,
    pub received: Instant,
    /// Answer with chunks; off = only the end counts.
    pub stream: bool,
}

impl GenerateShape {
    /// `ids` has one id an answer; `n` answers to each prompt.
    pub fn new(ids: Vec<String>, prompts: Vec<Vec<u32>>, n: usize, options: Options) -> Self {
        let several = ids.len() > 1;
        let answer = |(at, id): (usize, String)| Generated {
            text: String::new(),
            output_ids: Vec::new(),
            meta_info: MetaInfo {
                id,
                prompt_tokens: prompts[at / n].len() as u32,
                weight_version: "default",
                logprobs: options.logprobs.map(|_| LogprobLists::default()),
                ..MetaInfo::default()
            },
            index: several.then_some(at),
        };
        let answers = ids.into_iter().enumerate().map(answer).collect();
        let mut shape = GenerateShape { answers, prompts, n, options };
        for at in 0..shape.answers.len() {
            // Nothing is scored in a prompt of one token, which has its entry all the same.
            if shape.prompts[at / n].len() == 1 {
                shape.prompt(at, &[]);
            }
        }
        shape
    }

    fn scored(&self, logprob: Option<f32>, id: u32) -> Scored {
        let with_text = self.options.logprobs.is_some_and(|logprobs| logprobs.text);
        let tokenizer = self.options.tokenizer.as_ref().filter(|_| with_text);
        (logprob.map(finite), id, tokenizer.map(|tokenizer| tokenizer.decode(&[id], false)))
    }

    fn top(&self, score: &TokenScore) -> Option<Vec<Scored>> {
        let wanted = self.options.logprobs.is_some_and(|logprobs| logprobs.top > 0);
        wanted.then(|| score.top.iter().map(|(id, logprob)| self.scored(Some(*logprob), *id)).collect())
    }

    /// Scores come in order from the second prompt token on.
    fn prompt(&mut self, index: usize, scores: &[TokenScore]) {
        let Some(start) = self.options.logprobs.and_then(|logprobs| logprobs.start) else { return };
        let prompt = &self.prompts[index / self.n];
        let Some(lists) = &self.answers[index].meta_info.logprobs else { return };
        // Entries before `start` are left out in the end; until then they count the position.
        let mut rows: Vec<(Scored, Option<Vec<Scored>>)> = Vec::new();
        if lists.input_token_logprobs.is_empty() {
            rows.extend(prompt.first().map(|first| (self.scored(None, *first), None)));
        }
        rows.extend(
            scores.iter().map(|score| (self.scored(Some(score.logprob), score.token), self.top(score))),
        );
        let end = {
            let Some(lists) = &mut self.answers[index].meta_info.logprobs else { return };
            for (row, top) in rows {
                lists.input_token_logprobs.push(row);
                lists.input_top_logprobs.push(top);
            }
            lists.input_token_logprobs.len() == prompt.len()
        };
        if let (true, Some(lists)) = (end, &mut self.answers[index].meta_info.logprobs) {
            let start = (start as usize).min(lists.input_token_logprobs.len());
            lists.input_token_logprobs.drain(..start);
            lists.input_top_logprobs.drain(..start);
        }
    }

    fn output(&mut self, index: usize, output: Output) {
        for token in &output.tokens {
            let id = token.sampled.token;
            let rows = token.sampled.score.as_ref();
            let rows = rows.map(|score| (self.scored(Some(score.logprob), id), self.top(score)));
            let answer = &mut self.answers[index];
            answer.output_ids.push(id);
            if let (Some(lists), Some((row, top))) = (&mut answer.meta_info.logprobs, rows) {
                lists.output_token_logprobs.push(row);
                lists.output_top_logprobs.push(top);
            }
        }
        let answer = &mut self.answers[index];
        answer.text.extend(output.deltas.into_iter().map(text));
        answer.meta_info.completion_tokens = output.completion_tokens;
        answer.meta_info.reasoning_tokens = output.reasoning_tokens;
    }

    fn done(&mut self, index: usize, done: Done) {
        let latency = self.options.received.elapsed().as_secs_f64();
        let answer = &mut self.answers[index];
        answer.text.extend(done.deltas.into_iter().map(text));
        let meta = &mut answer.meta_info;
        meta.completion_tokens = done.completion_tokens;
        meta.cached_tokens = done.cached_tokens;
        meta.e2e_latency = Some(latency);
        meta.finish_reason = Some(match (done.reason, done.stop) {
            (Reason::Length, _) => json!({"type": "length", "length": done.completion_tokens}),
            (_, Some(Stop::Text(text))) => json!({"type": "stop", "matched": text}),
            (_, Some(Stop::Token(id) | Stop::Turn(id))) => json!({"type": "stop", "matched": id}),
            (_, Some(Stop::Repetition)) => json!({"type": "stop", "matched": "repetition"}),
            (_, None) => json!({"type": "stop", "matched": null}),
        });
    }

    /// SGLang answers an abort like an end.
    fn aborted(&mut self, index: usize, error: &ApiError) {
        let meta = &mut self.answers[index].meta_info;
        meta.finish_reason = Some(json!({"type": "abort", "message": error.message}));
        meta.e2e_latency = Some(self.options.received.elapsed().as_secs_f64());
    }
}

/// This route has no other deltas: reasoning and tools are not read.
fn text(delta: Delta) -> String {
    match delta {
        Delta::Content(text) => text,
        Delta::Reasoning(_)
        | Delta::ToolStart { .. }
        | Delta::ToolArguments { .. }
        | Delta::ToolEnd { .. } => String::new(),
    }
}

impl Shape for GenerateShape {
    type Chunk = Chunk;
    type Whole = Whole;

    fn event(&mut self, index: usize, event: ChoiceEvent) -> Result<Vec<Chunk>, ApiError> {
        match event {
            ChoiceEvent::Prompt(scores) => {
                self.prompt(index, &scores);
                return Ok(Vec::new());
            }
            ChoiceEvent::Output(output) => self.output(index, output),
            ChoiceEvent::Done(done) => self.done(index, done),
            ChoiceEvent::Failed(error) if error.code == Some("aborted") => self.aborted(index, &error),
            ChoiceEvent::Failed(error) => return Err(error),
        }
        // A chunk has everything so far, so it is not made in vain.
        let chunk = || Chunk::Generated(Box::new(self.answers[index].clone()));
        Ok(self.options.stream.then(chunk).into_iter().collect())
    }

    fn close(&mut self) -> Vec<Chunk> {
        Vec::new()
    }

    fn broken(&mut self, error: &ApiError) -> Vec<Chunk> {
        vec![Chunk::Error(error.body())]
    }

    /// The answers have grown with the events.
    fn fold(&mut self, _: Chunk) {}

    fn whole(mut self) -> Whole {
        self.answers.iter_mut().for_each(|answer| answer.index = None);
        match (self.answers.len(), self.options.batch) {
            (1, false) => Whole::One(Box::new(self.answers.remove(0))),
            _ => Whole::Many(self.answers),
        }
    }
}
