//! One answer as a sequence of events. Streams send them as they come, whole answers fold them.

use std::sync::Arc;
use std::time::Instant;

use m3_core::event::{Finish, FinishReason, RequestEvent, SampledToken, TokenScore};
use m3_core::text::parse::Delta;

use super::answer::{Answer, OutputToken, Pushed, Reason};
use super::feed::FeedItem;
use crate::app::App;
use crate::error::ApiError;

/// What happened.
#[derive(Debug)]
pub enum ChoiceEvent {
    /// Log-probabilities of prompt tokens, in order, from the second one on.
    Prompt(Vec<TokenScore>),
    Output(Output),
    /// The last event of a good answer.
    Done(Done),
    /// The last event of a broken one.
    Failed(ApiError),
}

/// New tokens and the deltas that became certain with them.
#[derive(Debug, Default)]
pub struct Output {
    pub deltas: Vec<Delta>,
    pub tokens: Vec<OutputToken>,
    /// So far.
    pub completion_tokens: u32,
    pub reasoning_tokens: u32,
}

/// The end of a good answer.
#[derive(Debug)]
pub struct Done {
    /// What was held back until the end.
    pub deltas: Vec<Delta>,
    pub reason: Reason,
    /// What the model was stopped by; `None` when it was a limit or a cut.
    pub stop: Option<Stop>,
    pub completion_tokens: u32,
    pub reasoning_tokens: u32,
    pub cached_tokens: u32,
}

/// What stopped an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// A stop string.
    Text(String),
    /// A stop id of the request's own.
    Token(u32),
    /// The model's own end of the turn.
    Turn(u32),
    /// The answer went round in circles.
    Repetition,
}

/// An answer in the making.
pub struct Choice {
    answer: Answer,
    app: Arc<App>,
    received: Instant,
    last_token: Option<Instant>,
    /// Set when the text ended before the engine did; the engine is aborted and the rest ignored.
    ended: Option<Reason>,
}

impl Choice {
    /// `received` is when the HTTP request came.
    pub fn new(answer: Answer, app: Arc<App>, received: Instant) -> Self {
        Choice { answer, app, received, last_token: None, ended: None }
    }

    /// What an item of the engine's means; `None` when nothing. The last event is `Done` or `Failed`. `overflowed`
    /// says whether the engine gave up because nobody read.
    pub fn take(&mut self, item: FeedItem, at: Instant, overflowed: bool) -> Option<ChoiceEvent> {
        match item {
            FeedItem::Event(_) if self.ended.is_some() => None,
            FeedItem::Event(RequestEvent::Prompt { scores, .. }) => Some(ChoiceEvent::Prompt(scores)),
            FeedItem::Event(RequestEvent::Tokens(tokens)) => Some(ChoiceEvent::Output(self.read(tokens, at))),
            FeedItem::End(finish) => Some(self.end(&finish, overflowed)),
        }
    }

    /// The answer is over although the engine does not know it.
    pub fn is_over(&self) -> bool {
        self.ended.is_some()
    }

    /// Whether the next token may change more than the text that is being told.
    pub fn is_eager(&self) -> bool {
        self.answer.is_eager()
    }

    fn read(&mut self, tokens: Vec<SampledToken>, at: Instant) -> Output {
        self.time_tokens(tokens.len(), at);
        let mut output = Output::default();
        for sampled in tokens {
            let pushed = self.answer.push(sampled.token);
            output.deltas.extend(pushed.deltas);
            let Pushed { num_chars, reasoning, .. } = pushed;
            output.tokens.push(OutputToken { sampled, num_chars, reasoning });
            if let Some(reason) = pushed.ended {
                self.ended = Some(reason);
                break;
            }
        }
        output.completion_tokens = self.answer.completion_tokens;
        output.reasoning_tokens = self.answer.reasoning_tokens;
        output
    }

    fn time_tokens(&mut self, count: usize, at: Instant) {
        match self.last_token.replace(at) {
            None => self.app.metrics.first_token(at.saturating_duration_since(self.received)),
            Some(last) => self.app.metrics.next_tokens(at.saturating_duration_since(last), count),
        }
    }

    fn end(&mut self, finish: &Finish, overflowed: bool) -> ChoiceEvent {
        let counted_stop = self.ended.is_none() && matches!(finish.reason, FinishReason::Stop { .. });
        let deltas = self.answer.finish(counted_stop);
        self.app.metrics.answer_ended(self.received.elapsed(), finish, self.answer.completion_tokens);
        self.app.metrics.parser_faults(&self.answer.faults());
        let reason = match self.reason(finish, overflowed) {
            Ok(reason) => reason,
            Err(error) => return ChoiceEvent::Failed(error),
        };
        ChoiceEvent::Done(Done {
            deltas,
            reason,
            stop: self.stop(finish),
            completion_tokens: self.answer.completion_tokens,
            reasoning_tokens: self.answer.reasoning_tokens,
            cached_tokens: finish.usage.cached_tokens,
        })
    }

    fn stop(&self, finish: &Finish) -> Option<Stop> {
        match (self.answer.stop_text(), &finish.reason) {
            (Some(text), _) => Some(Stop::Text(text.to_owned())),
            (None, _) if self.answer.repeats() => Some(Stop::Repetition),
            (None, FinishReason::Stop { token }) if self.ended.is_none() => {
                Some(if self.ends_turn(*token) { Stop::Turn(*token) } else { Stop::Token(*token) })
            }
            (None, _) => None,
        }
    }

    fn ends_turn(&self, token: u32) -> bool {
        self.app.loaded().is_some_and(|serving| serving.model.ends_turn(token))
    }

    fn reason(&self, finish: &Finish, overflowed: bool) -> Result<Reason, ApiError> {
        if let Some(reason) = self.ended {
            return Ok(reason);
        }
        match &finish.reason {
            FinishReason::Stop { .. } | FinishReason::Length if self.answer.stop_hit() => Ok(Reason::Stop),
            // A token that the request named may stand in the middle of a call.
            FinishReason::Stop { token } if self.answer.has_calls() && self.ends_turn(*token) => {
                Ok(Reason::ToolCalls)
            }
            FinishReason::Stop { .. } => Ok(Reason::Stop),
            FinishReason::Length => Ok(Reason::Length),
            FinishReason::Aborted if overflowed => {
                let buffer = self.app.http.stream_buffer;
                let sentence = format!("the client read too slowly: it was more than {buffer} tokens behind");
                Err(ApiError::new(axum::http::StatusCode::REQUEST_TIMEOUT, sentence).with_code("slow_client"))
            }
            FinishReason::Aborted => {
                Err(ApiError::unavailable("aborted", "the request was aborted by the server"))
            }
            FinishReason::Error(_) if self.app.is_draining() => {
                let sentence = "the server shut down before the answer was complete";
                Err(ApiError::unavailable("aborted", sentence))
            }
            FinishReason::Error(sentence) => Err(ApiError::engine(sentence.clone())),
        }
    }
}
