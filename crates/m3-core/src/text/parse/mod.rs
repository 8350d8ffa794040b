//! One incremental parser for reasoning, tool calls and stop strings. Streaming sends its deltas; a whole answer
//! is their [`fold`]: there is no second path that could differ. The result is a function of the joined text and
//! the options alone, however the text is cut into pieces.
//!
//! It reads decoded text with the token ids beside it, and knows neither HTTP nor requests. Incomplete characters
//! and end-of-message tokens are kept from it by the caller.
//!
//! `answer` is the machine for reasoning and content, `tools` the one inside a tool block, `value` reads one
//! parameter, `element` types it by `schema` and `types`; `scan` finds markup, `stop` finds stop strings.
//!
//! ```
//! use m3_core::text::parse::{OutputParser, ParserOptions, Piece, fold};
//!
//! let mut parser = OutputParser::new(ParserOptions::default());
//! let mut deltas = parser.push(Piece::text("<mm:think>two and two</mm:th"));
//! deltas.extend(parser.push(Piece::text("ink>4")));
//! deltas.extend(parser.finish());
//! let answer = fold(deltas);
//! assert_eq!(answer.reasoning.as_deref(), Some("two and two"));
//! assert_eq!(answer.content.as_deref(), Some("4"));
//! ```

mod answer;
mod call;
mod delta;
mod element;
mod faults;
mod ids;
mod json;
mod number;
mod options;
mod reading;
mod scan;
mod schema;
mod stop;
mod tag;
mod tools;
mod types;
mod value;

#[cfg(test)]
mod tests;

pub use delta::{Delta, Parsed, ParsedCall, fold};
pub use faults::Faults;
pub use ids::CallIds;
pub use options::{Marker, Markers, ParserOptions, ThinkingMode};
pub use reading::Reading;
pub use schema::{ParseSetupError, ToolSet};
pub use stop::SharedStops;

use answer::{Answer, Step};

/// Decoded text of the output, in order. Text is always whole characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece<'a> {
    /// The token, when the piece is exactly one.
    pub token: Option<u32>,
    /// Its text; may be empty.
    pub text: &'a str,
}

impl<'a> Piece<'a> {
    /// Text that is no single token.
    pub fn text(text: &'a str) -> Self {
        Self { token: None, text }
    }
}

/// The parser of one answer.
#[derive(Debug)]
pub struct OutputParser {
    options: ParserOptions,
    answer: Answer,
    /// Text that may be the beginning of markup.
    pending: String,
    ended: bool,
}

impl OutputParser {
    /// A parser at the start of an answer.
    pub fn new(options: ParserOptions) -> Self {
        let answer = Answer::new(&options);
        Self { options, answer, pending: String::new(), ended: false }
    }

    /// Reads a piece and returns what has become certain. After a stop string or [`Self::finish`] every piece is
    /// ignored.
    pub fn push(&mut self, piece: Piece<'_>) -> Vec<Delta> {
        if self.ended {
            return Vec::new();
        }
        match self.token_text(piece) {
            Some(text) => self.pending.push_str(&text),
            None => self.pending.push_str(piece.text),
        }
        self.run(false);
        self.answer.out.take()
    }

    /// Ends the answer: releases what was held and closes what is open. A second call returns nothing.
    pub fn finish(&mut self) -> Vec<Delta> {
        if self.ended {
            return Vec::new();
        }
        self.run(true);
        if !self.ended {
            self.answer.finish(&self.options);
            self.ended = true;
        }
        self.answer.out.take()
    }

    /// The stop string that ended the answer.
    pub fn stop_hit(&self) -> Option<&str> {
        self.answer.stop_hit.as_deref()
    }

    /// Whether stop strings that end in the text to come are found; they are at the start. Off, they are text.
    pub fn arm_stops(&mut self, armed: bool) {
        self.answer.arm_stops(armed);
    }

    /// Calls begun so far.
    pub fn num_tool_calls(&self) -> usize {
        self.answer.tools.started()
    }

    /// What was repaired or dropped so far.
    pub fn faults(&self) -> Faults {
        self.answer.faults
    }

    /// True while the output is inside reasoning.
    pub fn reasoning_open(&self) -> bool {
        self.answer.in_reasoning()
    }

    /// Text of a token that stands for markup, where the piece does not spell it.
    fn token_text(&self, piece: Piece<'_>) -> Option<String> {
        let token = piece.token?;
        let markers = &self.options.markers;
        if let Some(marker) = markers.all().into_iter().find(|marker| marker.token == Some(token)) {
            // Text before the marker can be a broken character that the detokeniser has just given up.
            return (!piece.text.ends_with(&marker.text)).then(|| format!("{}{}", piece.text, marker.text));
        }
        let lost = piece.text.is_empty() && (self.options.parse_tools || self.options.parse_reasoning);
        markers.tag_tokens.get(&token).filter(|_| lost).cloned()
    }

    fn run(&mut self, last: bool) {
        let mut pending = std::mem::take(&mut self.pending);
        let mut read = 0;
        while read < pending.len() && !self.ended {
            match self.answer.step(&pending[read..], &self.options, last) {
                Step::Consumed(length) => read += length,
                Step::Wait => break,
                Step::Stopped => self.ended = true,
            }
        }
        if !self.ended {
            pending.drain(..read);
            self.pending = pending;
        }
    }
}
