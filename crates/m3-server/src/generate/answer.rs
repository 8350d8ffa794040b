//! The text side of one answer: token ids in, deltas out, and the counts that usage reports.
//! Without a tokenizer it only counts.

use m3_core::event::SampledToken;
use m3_core::text::detokenize::Detokenizer;
use m3_core::text::parse::{Delta, Faults, OutputParser, ParserOptions, Piece};

use crate::model::TextSide;

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
}

/// The state of one answer.
pub struct Answer {
    text: Option<TextState>,
    parallel_tool_calls: bool,
    /// Sampled ids, the stop id included.
    pub completion_tokens: u32,
    pub reasoning_tokens: u32,
}

struct TextState {
    detokenizer: Detokenizer,
    parser: OutputParser,
    /// Says which tokens are special; `None` when those are text too.
    special: Option<std::sync::Arc<m3_core::text::tokenizer::Tokenizer>>,
}

/// What one token led to.
#[derive(Debug, Default)]
pub struct Pushed {
    pub deltas: Vec<Delta>,
    pub num_chars: u32,
    /// The answer is over although the engine does not know it.
    pub ended: Option<Reason>,
}

impl Answer {
    /// `parser` is `None` when only ids are wanted.
    pub fn new(
        text: Option<&TextSide>,
        parser: Option<ParserOptions>,
        parallel_tool_calls: bool,
        skip_special: bool,
    ) -> Self {
        let text = text.zip(parser).map(|(text, options)| TextState {
            detokenizer: Detokenizer::new(text.tokenizer.clone()),
            parser: OutputParser::new(options),
            special: skip_special.then(|| text.tokenizer.clone()),
        });
        Answer { text, parallel_tool_calls, completion_tokens: 0, reasoning_tokens: 0 }
    }

    /// Reads one sampled token.
    pub fn push(&mut self, token: u32) -> Pushed {
        self.completion_tokens += 1;
        let Some(state) = &mut self.text else { return Pushed::default() };
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
        let mut ended = state.parser.stop_hit().map(|_| Reason::Stop);
        if !self.parallel_tool_calls && state.parser.num_tool_calls() > 1 {
            keep_first_call(&mut deltas);
            ended = Some(Reason::ToolCalls);
        }
        Pushed { deltas, num_chars, ended }
    }

    /// The end of the output. `counted_stop`: a stop id was sampled that never came as a token.
    pub fn finish(&mut self, counted_stop: bool) -> Vec<Delta> {
        self.completion_tokens += u32::from(counted_stop);
        let Some(state) = &mut self.text else { return Vec::new() };
        let tail = state.detokenizer.finish();
        let mut deltas = state.parser.push(Piece::text(&tail));
        deltas.extend(state.parser.finish());
        if !self.parallel_tool_calls && state.parser.num_tool_calls() > 1 {
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

    /// Whether a stop string ended it, also one found only at the very end.
    pub fn stop_hit(&self) -> bool {
        self.text.as_ref().is_some_and(|state| state.parser.stop_hit().is_some())
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
