//! The completion shape: plain text, the old form of log-probabilities, and the prompt echoed before the answer.

use m3_core::event::TokenScore;
use m3_core::text::detokenize::Detokenizer;
use m3_core::text::parse::Delta;
use m3_core::text::tokenizer::Tokenizer;
use std::sync::Arc;

use super::tokens::finite;
use super::{Head, Shape, Tally, TokenNames};
use crate::error::ApiError;
use crate::generate::{ChoiceEvent, Done, Output};
use crate::openai::completion_response::{CompletionChoice, CompletionLogprobs, CompletionResponse};
use crate::openai::generation::Delivery;

/// The prompts, for what is repeated of them.
pub struct Echo {
    pub prompts: Vec<Vec<u32>>,
    /// Repeat the prompt's text.
    pub echo: bool,
    /// `None` with ids only: texts are empty.
    pub tokenizer: Option<Arc<Tokenizer>>,
}

/// State of one completion request's response.
pub struct CompletionShape {
    head: Head,
    delivery: Delivery,
    /// Present when log-probabilities were asked for.
    names: Option<TokenNames>,
    echo: Echo,
    tally: Tally,
    n: usize,
    answers: Vec<AnswerState>,
    /// The whole answers so far, when chunks are folded.
    folded: Vec<CompletionChoice>,
}

#[derive(Default)]
struct AnswerState {
    /// Prompt tokens already echoed.
    echoed: usize,
    echo_text: Option<Detokenizer>,
    /// Characters of the choice's text before the next token.
    offset: u32,
    waiting: Waiting,
    begun: bool,
}

/// Of tokens whose text is still held back.
#[derive(Default)]
struct Waiting {
    logprobs: CompletionLogprobs,
    ids: Vec<u32>,
}

impl CompletionShape {
    /// For `n` answers to each prompt.
    pub fn new(head: Head, delivery: Delivery, names: Option<TokenNames>, echo: Echo, n: usize) -> Self {
        let lens: Vec<u32> = echo.prompts.iter().map(|prompt| prompt.len() as u32).collect();
        let echo_text = || echo.tokenizer.clone().map(Detokenizer::new);
        let state = || AnswerState { echo_text: echo_text(), ..AnswerState::default() };
        let answers: Vec<AnswerState> = (0..lens.len() * n).map(|_| state()).collect();
        let folded = vec![CompletionChoice::default(); answers.len()];
        let tally = Tally::new(lens, n);
        CompletionShape { head, delivery, names, echo, tally, n, answers, folded }
    }

    /// Echoes prompt tokens up to `until`. `scores` are those of the tokens after the ones already echoed; the very
    /// first token of a prompt has none.
    fn echo_until(&mut self, index: usize, until: usize, scores: &[TokenScore]) -> Vec<CompletionResponse> {
        let from = self.answers[index].echoed;
        if !self.echo.echo || from >= until {
            return Vec::new();
        }
        let prompt = &self.echo.prompts[index / self.n];
        let is_last = until == prompt.len();
        let state = &mut self.answers[index];
        let mut text = String::new();
        let mut scores = scores.iter();
        for (at, token) in prompt.iter().enumerate().take(until).skip(from) {
            let piece = state.echo_text.as_mut().map(|echo| echo.push(*token)).unwrap_or_default();
            if let Some(names) = &self.names {
                let score = if at == 0 { None } else { scores.next() };
                state.waiting.logprobs.add(names, *token, score, state.offset);
            }
            state.offset += piece.chars().count() as u32;
            text.push_str(&piece);
        }
        if is_last && let Some(echo) = &mut state.echo_text {
            let tail = echo.finish();
            state.offset += tail.chars().count() as u32;
            text.push_str(&tail);
        }
        state.echoed = until;
        vec![self.chunk(index, text, None)]
    }

    fn echo_rest(&mut self, index: usize) -> Vec<CompletionResponse> {
        self.echo_until(index, self.echo.prompts[index / self.n].len(), &[])
    }

    fn output(&mut self, index: usize, output: Output) -> Vec<CompletionResponse> {
        let mut chunks = self.echo_rest(index);
        self.tally.output(index, &output);
        let state = &mut self.answers[index];
        for token in &output.tokens {
            if self.delivery.token_ids {
                state.waiting.ids.push(token.sampled.token);
            }
            if let Some(names) = &self.names {
                let logprobs = &mut state.waiting.logprobs;
                logprobs.add(names, token.sampled.token, token.sampled.score.as_ref(), state.offset);
            }
            state.offset += token.num_chars;
        }
        let text = content(output.deltas);
        // Without text of its own a token waits for the next chunk, except where ids are all there is.
        if !text.is_empty() || self.echo.tokenizer.is_none() {
            chunks.push(self.chunk(index, text, None));
        }
        chunks
    }

    fn done(&mut self, index: usize, done: Done) -> Vec<CompletionResponse> {
        let mut chunks = self.echo_rest(index);
        self.tally.done(index, &done);
        chunks.push(self.chunk(index, content(done.deltas), Some(done.reason.name())));
        chunks
    }

    fn chunk(
        &mut self,
        index: usize,
        text: String,
        finish_reason: Option<&'static str>,
    ) -> CompletionResponse {
        let state = &mut self.answers[index];
        let waiting = std::mem::take(&mut state.waiting);
        let first = !std::mem::replace(&mut state.begun, true);
        let with_ids = self.delivery.token_ids;
        let choice = CompletionChoice {
            index,
            text,
            logprobs: self.names.as_ref().map(|_| waiting.logprobs),
            finish_reason,
            token_ids: with_ids.then_some(waiting.ids),
            prompt_token_ids: (with_ids && first).then(|| self.echo.prompts[index / self.n].clone()),
        };
        self.wrap(vec![choice])
    }

    fn wrap(&self, choices: Vec<CompletionChoice>) -> CompletionResponse {
        CompletionResponse {
            id: self.head.id.clone(),
            object: "text_completion",
            created: self.head.created,
            model: self.head.model.clone(),
            choices,
            usage: self.delivery.continuous_usage.then(|| self.tally.usage()),
        }
    }
}

impl CompletionLogprobs {
    fn add(&mut self, names: &TokenNames, token: u32, score: Option<&TokenScore>, offset: u32) {
        self.tokens.push(names.distinct(token));
        self.token_logprobs.push(score.map(|score| finite(score.logprob)));
        self.top_logprobs.push(score.map(|score| names.top_map(score)));
        self.text_offset.push(offset);
    }
}

/// This route has no other deltas: reasoning and tools are not read.
fn content(deltas: Vec<Delta>) -> String {
    let texts = deltas.into_iter().map(|delta| match delta {
        Delta::Content(text) => text,
        Delta::Reasoning(_)
        | Delta::ToolStart { .. }
        | Delta::ToolArguments { .. }
        | Delta::ToolEnd { .. } => String::new(),
    });
    texts.collect()
}

impl Shape for CompletionShape {
    type Chunk = CompletionResponse;
    type Whole = CompletionResponse;

    fn event(&mut self, index: usize, event: ChoiceEvent) -> Result<Vec<CompletionResponse>, ApiError> {
        match event {
            ChoiceEvent::Prompt(scores) => {
                let echoed = self.answers[index].echoed.max(1);
                Ok(self.echo_until(index, echoed + scores.len(), &scores))
            }
            ChoiceEvent::Output(output) => Ok(self.output(index, output)),
            ChoiceEvent::Done(done) => Ok(self.done(index, done)),
            ChoiceEvent::Failed(error) => Err(error),
        }
    }

    fn usage_chunk(&self) -> Option<CompletionResponse> {
        let usage = Some(self.tally.usage());
        self.delivery.include_usage.then(|| CompletionResponse { usage, ..self.wrap(Vec::new()) })
    }

    fn fold(&mut self, chunk: CompletionResponse) {
        for choice in chunk.choices {
            self.folded[choice.index].fold(choice);
        }
    }

    fn whole(mut self) -> CompletionResponse {
        let choices = std::mem::take(&mut self.folded);
        let usage = Some(self.tally.usage());
        CompletionResponse { usage, ..self.wrap(choices) }
    }
}
