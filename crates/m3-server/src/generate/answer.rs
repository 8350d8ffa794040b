//! The text side of one answer: token ids in, deltas out, and the counts that usage reports.
//! Without a tokenizer it only counts.

use std::sync::Arc;

use m3_core::event::SampledToken;
use m3_core::text::detokenize::Detokenizer;
use m3_core::text::parse::{Delta, Faults, OutputParser, ParserOptions, Piece};

use super::reasoning::{ReasoningFilter, ReasoningShape};
use super::repetition::Repetition;
use super::stop_regex::{StopExpressions, StopSearch};
use crate::model::TextSide;
use crate::openai::generation::{Generation, RepetitionDetection};

/// Why an answer ended, as OpenAI names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    Stop,
    Length,
    ToolCalls,
}

impl Reason {
    /// `finish_reason` on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Stop => "stop",
            Reason::Length => "length",
            Reason::ToolCalls => "tool_calls",
        }
    }
}

/// A sampled token and how much text it completed.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputToken {
    pub sampled: SampledToken,
    /// Unicode characters.
    pub num_chars: u32,
    /// It belongs to the reasoning, its markers included.
    pub reasoning: bool,
}

/// How one answer is read and told.
#[derive(Clone, Debug, Default)]
pub struct AnswerOptions {
    pub parallel_tool_calls: bool,
    /// Control tokens that the model samples are no text.
    pub skip_special: bool,
    /// Stop strings count from this many tokens on.
    pub min_tokens: u32,
    pub repetition: Option<RepetitionDetection>,
    pub stop_expressions: Option<Arc<StopExpressions>>,
    pub reasoning: ReasoningShape,
    /// Content in front of the answer.
    pub echo: Option<String>,
}

impl AnswerOptions {
    /// What every route has: several calls, reasoning apart and as it comes.
    pub fn of(generation: &Generation) -> Self {
        AnswerOptions {
            parallel_tool_calls: true,
            skip_special: generation.skip_special,
            min_tokens: generation.min_tokens,
            repetition: generation.repetition,
            stop_expressions: generation.stop_expressions.clone(),
            reasoning: ReasoningShape::default(),
            echo: None,
        }
    }
}

/// The state of one answer.
pub struct Answer {
    text: Option<TextState>,
    options: AnswerOptions,
    repetition: Option<Repetition>,
    reasoning: ReasoningFilter,
    /// Sampled ids, the stop id included.
    pub completion_tokens: u32,
    pub reasoning_tokens: u32,
    /// See [`Answer::is_eager`].
    eager: bool,
}

struct TextState {
    detokenizer: Detokenizer,
    parser: OutputParser,
    /// Says which tokens are special; `None` when those are text too.
    special: Option<Arc<m3_core::text::tokenizer::Tokenizer>>,
    /// Expressions that end the content.
    stops: Option<StopSearch>,
}

impl TextState {
    /// Cuts the content where an expression matches.
    fn cut_at_stop(&mut self, deltas: &mut Vec<Delta>, armed: bool) {
        let Some(stops) = &mut self.stops else { return };
        let found = deltas.iter().enumerate().find_map(|(at, delta)| match delta {
            Delta::Content(text) => stops.push(text, armed).map(|end| (at, end)),
            _ => None,
        });
        if let Some((at, end)) = found {
            deltas.truncate(at + 1);
            if let Some(Delta::Content(text)) = deltas.last_mut() {
                text.truncate(end);
            }
        }
    }

    /// The stop string or expression that ended the content.
    fn stop_text(&self) -> Option<&str> {
        self.stops.as_ref().and_then(StopSearch::found).or_else(|| self.parser.stop_hit())
    }
}

/// What one token led to.
#[derive(Debug, Default)]
pub struct Pushed {
    pub deltas: Vec<Delta>,
    pub num_chars: u32,
    /// The token belongs to the reasoning, its markers included.
    pub reasoning: bool,
    /// The answer is over although the engine does not know it.
    pub ended: Option<Reason>,
}

impl Answer {
    /// `parser` is `None` when only ids are wanted.
    pub fn new(text: Option<&TextSide>, parser: Option<ParserOptions>, options: AnswerOptions) -> Self {
        let markers = parser.as_ref().map(|parser| parser.markers.clone()).unwrap_or_default();
        let text = text.zip(parser).map(|(text, parser)| TextState {
            detokenizer: Detokenizer::new(text.tokenizer.clone()),
            parser: OutputParser::new(parser),
            special: options.skip_special.then(|| text.tokenizer.clone()),
            stops: options.stop_expressions.as_ref().map(StopSearch::new),
        });
        Answer {
            text,
            repetition: options.repetition.map(Repetition::new),
            reasoning: ReasoningFilter::new(options.reasoning, &markers),
            options,
            completion_tokens: 0,
            reasoning_tokens: 0,
            eager: false,
        }
    }

    /// Whether the last token led to anything but more text of one kind, so that the next one may begin or end
    /// something: it was markup, or part of what may become markup, or of a character.
    pub fn is_eager(&self) -> bool {
        self.eager
    }

    /// Reads one sampled token.
    pub fn push(&mut self, token: u32) -> Pushed {
        self.completion_tokens += 1;
        let circles = self.repetition.as_mut().is_some_and(|repetition| repetition.push(token));
        let circles = circles && self.completion_tokens >= self.options.min_tokens;
        let mut pushed = self.push_text(token);
        if circles && pushed.ended.is_none() {
            pushed.ended = Some(Reason::Stop);
        } else if let Some(repetition) = &mut self.repetition {
            repetition.found = false;
        }
        let text = |delta: &Delta| !matches!(delta, Delta::ToolStart { .. } | Delta::ToolEnd { .. });
        self.eager = self.text.is_some() && !pushed.deltas.last().is_some_and(text);
        pushed.deltas = self.tell(pushed.deltas);
        pushed
    }

    fn push_text(&mut self, token: u32) -> Pushed {
        let Some(state) = &mut self.text else { return Pushed::default() };
        state.parser.arm_stops(self.completion_tokens >= self.options.min_tokens);
        let was_reasoning = state.parser.reasoning_open();
        // Special tokens are not text; inside a tool block the parser looks at the id.
        let special = state.special.as_ref().is_some_and(|tokenizer| tokenizer.is_special(token));
        let mut deltas = Vec::new();
        let text = if special {
            // A character that was left incomplete stays before the token that cut it.
            let cut = state.detokenizer.finish();
            deltas.extend(state.parser.push(Piece::text(&cut)));
            String::new()
        } else {
            state.detokenizer.push(token)
        };
        deltas.extend(state.parser.push(Piece { token: Some(token), text: &text }));
        self.reasoning_tokens += u32::from(was_reasoning && state.parser.reasoning_open());
        let num_chars = text.chars().count() as u32;
        state.cut_at_stop(&mut deltas, self.completion_tokens >= self.options.min_tokens);
        let mut ended = state.stop_text().map(|_| Reason::Stop);
        if !self.options.parallel_tool_calls && state.parser.num_tool_calls() > 1 {
            keep_first_call(&mut deltas);
            ended = Some(Reason::ToolCalls);
        }
        let reasoning = was_reasoning || state.parser.reasoning_open();
        Pushed { deltas, num_chars, reasoning, ended }
    }

    /// The deltas as the request wants them, the echo first.
    fn tell(&mut self, deltas: Vec<Delta>) -> Vec<Delta> {
        let deltas = self.reasoning.apply(deltas);
        match self.options.echo.take() {
            Some(echo) => std::iter::once(Delta::Content(echo)).chain(deltas).collect(),
            None => deltas,
        }
    }

    /// The end of the output. `counted_stop`: a stop id was sampled that never came as a token.
    pub fn finish(&mut self, counted_stop: bool) -> Vec<Delta> {
        self.completion_tokens += u32::from(counted_stop);
        let mut deltas = self.finish_text();
        deltas = self.tell(deltas);
        deltas.extend(self.reasoning.finish());
        deltas
    }

    fn finish_text(&mut self) -> Vec<Delta> {
        let Some(state) = &mut self.text else { return Vec::new() };
        let tail = state.detokenizer.finish();
        let mut deltas = state.parser.push(Piece::text(&tail));
        deltas.extend(state.parser.finish());
        if state.stops.as_ref().is_some_and(|stops| stops.found().is_some()) {
            return Vec::new();
        }
        state.cut_at_stop(&mut deltas, self.completion_tokens >= self.options.min_tokens);
        if !self.options.parallel_tool_calls && state.parser.num_tool_calls() > 1 {
            keep_first_call(&mut deltas);
        }
        deltas
    }

    /// Whether a call was made.
    pub fn has_calls(&self) -> bool {
        self.text.as_ref().is_some_and(|state| state.parser.num_tool_calls() > 0)
    }

    /// What the parser mended.
    pub fn faults(&self) -> Faults {
        self.text.as_ref().map(|state| state.parser.faults()).unwrap_or_default()
    }

    /// The stop string or expression that ended it, also one found only at the very end.
    pub fn stop_text(&self) -> Option<&str> {
        self.text.as_ref().and_then(TextState::stop_text)
    }

    /// Whether a stop string ended it.
    pub fn stop_hit(&self) -> bool {
        self.stop_text().is_some()
    }

    /// Whether it was ended because it went round in circles.
    pub fn repeats(&self) -> bool {
        self.repetition.as_ref().is_some_and(|repetition| repetition.found)
    }
}

/// Cuts everything from the second call on.
fn keep_first_call(deltas: &mut Vec<Delta>) {
    let second = |delta: &Delta| match delta {
        Delta::ToolStart { index, .. } | Delta::ToolArguments { index, .. } | Delta::ToolEnd { index } => {
            *index > 0
        }
        Delta::Reasoning(_) | Delta::Content(_) => false,
    };
    if let Some(at) = deltas.iter().position(second) {
        deltas.truncate(at);
    }
}
