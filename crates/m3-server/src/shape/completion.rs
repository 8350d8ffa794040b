//! The completion shape: plain text, the old form of log-probabilities, and the prompt echoed before the answer.

use m3_core::event::TokenScore;
use m3_core::text::detokenize::Detokenizer;
use m3_core::text::parse::Delta;
use m3_core::text::tokenizer::Tokenizer;
use std::sync::Arc;

use super::tokens::finite;
use super::{Head, OrError, Shape, Tally, TokenNames};
use crate::error::ApiError;
use crate::generate::{ChoiceEvent, Done, Output};
use crate::openai::completion_response::{CompletionChoice, CompletionLogprobs, CompletionResponse};
use crate::openai::generation::Delivery;
use crate::openai::stop_cause::StopCause;

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
    /// The prompts' scores are wanted, with so many alternatives, and their tokens are named so.
    prompt_scores: Option<(TokenNames, usize)>,
    /// Alternatives of the answer's tokens and of the echo's.
    alternatives: usize,
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
        let (prompt_scores, alternatives) = (None, usize::MAX);
        CompletionShape {
            head,
            delivery,
            names,
            echo,
            tally,
            n,
            answers,
            folded,
            prompt_scores,
            alternatives,
        }
    }

    /// Gives the prompts' scores with the whole answer, `asked` alternatives each; `alternatives` are those of the
    /// answer's own tokens, which may be fewer.
    pub fn with_prompt_scores(mut self, names: TokenNames, asked: usize, alternatives: usize) -> Self {
        (self.prompt_scores, self.alternatives) = (Some((names, asked)), alternatives);
        self
    }

    fn note_prompt_scores(&mut self, index: usize, scores: &[TokenScore]) {
        let Some((names, asked)) = &self.prompt_scores else { return };
        let list = self.folded[index].prompt_logprobs.get_or_insert_default();
        list.add(names, &with_alternatives(scores, *asked));
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
        let mut last = self.chunk(index, content(done.deltas), Some(done.reason.name()));
        let cause = done.stop.as_ref().and_then(StopCause::of);
        last.choices.iter_mut().for_each(|choice| choice.stop_reason = cause.clone());
        chunks.push(last);
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
            stop_reason: None,
            prompt_logprobs: None,
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

/// The scores with at most so many alternatives.
fn with_alternatives(scores: &[TokenScore], most: usize) -> Vec<TokenScore> {
    let cut = |score: &TokenScore| {
        let top = score.top.iter().take(most).copied().collect();
        TokenScore { top, ..*score }
    };
    scores.iter().map(cut).collect()
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
    type Chunk = OrError<CompletionResponse>;
    type Whole = CompletionResponse;

    fn event(&mut self, index: usize, event: ChoiceEvent) -> Result<Vec<Self::Chunk>, ApiError> {
        let chunks = match event {
            ChoiceEvent::Prompt(scores) => {
                self.note_prompt_scores(index, &scores);
                let echoed = self.answers[index].echoed.max(1);
                let scores = with_alternatives(&scores, self.alternatives);
                self.echo_until(index, echoed + scores.len(), &scores)
            }
            ChoiceEvent::Output(output) => self.output(index, output),
            ChoiceEvent::Done(done) => self.done(index, done),
            ChoiceEvent::Failed(error) => return Err(error),
        };
        Ok(chunks.into_iter().map(OrError::Chunk).collect())
    }

    fn close(&mut self) -> Vec<Self::Chunk> {
        let usage = Some(self.tally.usage()).filter(|_| self.delivery.include_usage);
        let chunk = |usage| CompletionResponse { usage: Some(usage), ..self.wrap(Vec::new()) };
        usage.map(|usage| OrError::Chunk(chunk(usage))).into_iter().collect()
    }

    fn broken(&mut self, error: &ApiError) -> Vec<Self::Chunk> {
        vec![OrError::Error(error.body())]
    }

    fn fold(&mut self, chunk: Self::Chunk) {
        let OrError::Chunk(chunk) = chunk else { return };
        for choice in chunk.choices {
            self.folded[choice.index].fold(choice);
        }
    }

    fn add_unseen(&mut self, completion_tokens: u32, reasoning_tokens: u32) {
        self.tally.add_unseen(completion_tokens, reasoning_tokens);
    }

    fn whole(mut self) -> CompletionResponse {
        let choices = std::mem::take(&mut self.folded);
        let usage = Some(self.tally.usage());
        CompletionResponse { usage, ..self.wrap(choices) }
    }
}
