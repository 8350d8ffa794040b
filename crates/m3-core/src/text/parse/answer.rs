//! The state machine around tool blocks: reasoning, content, and where a block begins. It buffers white space
//! that a marker would swallow, and cuts content at stop strings.

use super::delta::DeltaSink;
use super::faults::Faults;
use super::options::{ParserOptions, ThinkingMode};
use super::scan::{At, Expect, Found, Markup, Tags};
use super::stop::{Fed, StopMatcher};
use super::tools::{Progress, Surroundings, ToolParser};

/// State of one answer.
#[derive(Debug)]
pub(super) struct Answer {
    phase: Phase,
    /// White space of the present phase that a marker may still swallow.
    spaces: String,
    /// A reasoning block has begun: later openers are text.
    reasoning_seen: bool,
    pub(super) tools: ToolParser,
    content_stop: Option<StopMatcher>,
    reasoning_stop: Option<StopMatcher>,
    pub(super) stop_hit: Option<String>,
    pub(super) faults: Faults,
    pub(super) out: DeltaSink,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Reasoning of which nothing but white space has come: a repeated opener is dropped.
    ReasoningStart,
    Reasoning,
    /// Content of which nothing but white space has come.
    ContentStart {
        /// It follows a tool block: closers are text, and white space alone is no content.
        after_block: bool,
    },
    Content,
    Block,
}

/// What one step did.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// This many bytes are dealt with; with 0 the state has changed.
    Consumed(usize),
    /// Nothing can be decided before more text comes.
    Wait,
    /// A stop string was found: the answer is over.
    Stopped,
}

impl Answer {
    pub(super) fn new(options: &ParserOptions) -> Self {
        let inside = options.parse_reasoning && options.thinking_mode == ThinkingMode::Enabled;
        let stop_in_reasoning =
            options.stop_in_reasoning.then(|| StopMatcher::new(&options.stop, &options.shared_stops));
        Self {
            phase: if inside { Phase::ReasoningStart } else { Phase::ContentStart { after_block: false } },
            spaces: String::new(),
            reasoning_seen: inside,
            tools: ToolParser::new(options),
            content_stop: StopMatcher::new(&options.stop, &options.shared_stops),
            reasoning_stop: stop_in_reasoning.flatten(),
            stop_hit: None,
            faults: Faults::default(),
            out: DeltaSink::default(),
        }
    }

    pub(super) fn arm_stops(&mut self, armed: bool) {
        let own = self.content_stop.iter_mut().chain(&mut self.reasoning_stop);
        own.for_each(|matcher| matcher.arm(armed));
        self.tools.arm_stops(armed);
    }

    pub(super) fn in_reasoning(&self) -> bool {
        matches!(self.phase, Phase::ReasoningStart | Phase::Reasoning)
    }

    /// Reads from the start of `rest`, which is not empty.
    pub(super) fn step(&mut self, rest: &str, options: &ParserOptions, last: bool) -> Step {
        match self.phase {
            Phase::Block => self.step_block(rest, options, last),
            Phase::ReasoningStart | Phase::ContentStart { .. } => self.step_start(rest, options, last),
            Phase::Reasoning | Phase::Content => self.step_text(rest, options, last),
        }
    }

    /// The output has ended and every text of it was read.
    pub(super) fn finish(&mut self, options: &ParserOptions) {
        match self.phase {
            Phase::ContentStart { after_block: true } => {}
            Phase::Block => self.in_tools(options, true, |tools, around| tools.cut(around)),
            _ => {
                self.release_spaces(options);
            }
        }
        self.flush_stops();
    }

    fn expect<'a>(&self, options: &'a ParserOptions, last: bool) -> Expect<'a> {
        let reasoning = options.parse_reasoning;
        let (think_open, think_close) = match self.phase {
            Phase::ReasoningStart => (true, true),
            Phase::Reasoning => (false, true),
            Phase::ContentStart { after_block } => {
                (reasoning && !self.reasoning_seen, reasoning && !after_block)
            }
            Phase::Content | Phase::Block => (reasoning && !self.reasoning_seen, false),
        };
        let tools = options.parse_tools && !self.in_reasoning();
        let tags = if tools { Tags::Content(options.markers.block_name()) } else { Tags::None };
        Expect { markers: &options.markers, think_open, think_close, tags, last }
    }

    /// White space is set aside; the first thing after it decides whether it counts.
    fn step_start(&mut self, rest: &str, options: &ParserOptions, last: bool) -> Step {
        let space = rest.len() - rest.trim_start().len();
        if space > 0 {
            self.spaces.push_str(&rest[..space]);
            return Step::Consumed(space);
        }
        match self.expect(options, last).at(rest) {
            At::Partial => Step::Wait,
            At::Full { markup, length } => self.take_markup_at_start(markup, length, options),
            At::Text => {
                let stopped = self.release_spaces(options);
                self.phase = if self.in_reasoning() { Phase::Reasoning } else { Phase::Content };
                if stopped { Step::Stopped } else { Step::Consumed(0) }
            }
        }
    }

    fn take_markup_at_start(&mut self, markup: Markup<'_>, length: usize, options: &ParserOptions) -> Step {
        if self.phase == Phase::ReasoningStart {
            // Space before a repeated opener goes with it; space before the closer is reasoning.
            match markup {
                Markup::ThinkOpen => self.spaces.clear(),
                _ => {
                    if self.release_spaces(options) {
                        return Step::Stopped;
                    }
                }
            }
        }
        self.spaces.clear();
        let repeated_open = self.in_reasoning() && markup == Markup::ThinkOpen;
        if repeated_open {
            self.phase = Phase::Reasoning;
            return Step::Consumed(length);
        }
        Step::Consumed(self.take_markup(markup, length, options))
    }

    fn step_text(&mut self, rest: &str, options: &ParserOptions, last: bool) -> Step {
        match self.expect(options, last).find(rest) {
            Found::TextTo(0) => Step::Wait,
            Found::TextTo(end) | Found::Markup { start: end @ 1.., .. } => {
                if self.text(&rest[..end], options) { Step::Stopped } else { Step::Consumed(end) }
            }
            Found::Markup { end, markup, .. } => Step::Consumed(self.take_markup(markup, end, options)),
        }
    }

    /// Changes the phase; gives how many of the markup's bytes are dealt with. Text held for a stop string cannot
    /// continue behind the markup.
    fn take_markup(&mut self, markup: Markup<'_>, length: usize, options: &ParserOptions) -> usize {
        self.flush_stops();
        match markup {
            Markup::ThinkOpen => {
                self.reasoning_seen = true;
                self.phase = Phase::ReasoningStart;
            }
            Markup::ThinkClose => self.phase = Phase::ContentStart { after_block: false },
            Markup::Tag(inner) if inner == options.markers.block_name() => self.phase = Phase::Block,
            // What closes nothing or stands for nothing is not for the reader either.
            Markup::Tag(inner) if inner.starts_with('/') => self.faults.mismatched_tags += 1,
            Markup::Stray => self.faults.mismatched_tags += 1,
            Markup::Tag(_) => {
                // A call whose block was not opened: the block's machine reads its tag.
                self.faults.mismatched_tags += 1;
                self.tools.begin_unopened_block();
                self.phase = Phase::Block;
                return 0;
            }
        }
        length
    }

    fn step_block(&mut self, rest: &str, options: &ParserOptions, last: bool) -> Step {
        match self.in_tools(options, last, |tools, around| tools.step(rest, around)) {
            Progress::Consumed(length) => Step::Consumed(length),
            Progress::Wait => Step::Wait,
            Progress::Closed(length) => {
                self.phase = Phase::ContentStart { after_block: true };
                Step::Consumed(length)
            }
            Progress::Stopped(stop) => {
                self.stop_hit = Some(stop);
                Step::Stopped
            }
        }
    }

    fn in_tools<R>(
        &mut self,
        options: &ParserOptions,
        last: bool,
        act: impl FnOnce(&mut ToolParser, &mut Surroundings<'_>) -> R,
    ) -> R {
        let mut around = Surroundings { options, out: &mut self.out, faults: &mut self.faults, last };
        act(&mut self.tools, &mut around)
    }

    /// White space set aside counts as text. True when it completed a stop string.
    fn release_spaces(&mut self, options: &ParserOptions) -> bool {
        let spaces = std::mem::take(&mut self.spaces);
        self.text(&spaces, options)
    }

    /// Text of the present phase. True when a stop string was found.
    fn text(&mut self, text: &str, options: &ParserOptions) -> bool {
        let reasoning = self.in_reasoning();
        let matcher = if reasoning { &mut self.reasoning_stop } else { &mut self.content_stop };
        let (safe, hit) = match matcher {
            None => return self.send(text, reasoning),
            Some(matcher) => match matcher.feed(text) {
                Fed::Safe(safe) => (safe, None),
                Fed::Hit { before, index } => (before, Some(matcher.string(index).to_owned())),
            },
        };
        self.send(&safe, reasoning);
        let Some(stop) = hit else { return false };
        if options.include_stop {
            self.send(&stop, reasoning);
        }
        self.stop_hit = Some(stop);
        true
    }

    fn send(&mut self, text: &str, reasoning: bool) -> bool {
        if reasoning {
            self.out.reasoning(text)
        } else {
            self.out.content(text)
        }
        false
    }

    fn flush_stops(&mut self) {
        if let Some(matcher) = &mut self.reasoning_stop {
            self.out.reasoning(&matcher.flush());
        }
        if let Some(matcher) = &mut self.content_stop {
            self.out.content(&matcher.flush());
        }
    }
}
