//! The state machine inside a tool block: calls, their parameters, and what becomes of malformed markup.
//! It answers with deltas as early as they are certain; a sent delta is never contradicted.

use super::call::CallWriter;
use super::delta::DeltaSink;
use super::element::ElementKind;
use super::faults::Faults;
use super::ids::IdSource;
use super::options::ParserOptions;
use super::scan::{Expect, Found, Markup, Tags};
use super::schema::View;
use super::stop::StopMatcher;
use super::tag::{self, OpenTag};
use super::value::Value;

mod parameter;

use parameter::Sending;

/// Reads tool blocks of one answer; calls are numbered on across blocks.
#[derive(Debug)]
pub(super) struct ToolParser {
    place: Place,
    /// The call being answered; `None` between calls and inside a call without a name.
    call: Option<CallWriter>,
    parameters: View,
    /// Text since the last tag, where the grammar has none.
    stray: String,
    started: usize,
    ids: IdSource,
    stop: Option<StopMatcher>,
    /// The block began with a call, without a tag of its own: text behind a call ends it.
    unopened: bool,
}

#[derive(Debug)]
enum Place {
    Block,
    Invoke,
    Parameter(Value, Sending),
}

/// What one step of the parser did.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// This many bytes are dealt with.
    Consumed(usize),
    /// Nothing can be decided before more text comes.
    Wait,
    /// The block ended after this many bytes.
    Closed(usize),
    /// A stop string was found in a value; the call is closed.
    Stopped(String),
}

/// What the machine works with but does not own.
pub(super) struct Surroundings<'a> {
    pub(super) options: &'a ParserOptions,
    pub(super) out: &'a mut DeltaSink,
    pub(super) faults: &'a mut Faults,
    /// No more text will come.
    pub(super) last: bool,
}

impl ToolParser {
    pub(super) fn new(options: &ParserOptions) -> Self {
        Self {
            place: Place::Block,
            call: None,
            parameters: View::default(),
            stray: String::new(),
            started: 0,
            ids: IdSource::new(options.call_ids),
            stop: if options.stop_in_arguments {
                StopMatcher::new(&options.stop, &options.shared_stops)
            } else {
                None
            },
            unopened: false,
        }
    }

    /// What follows is a block whose opening tag is missing.
    pub(super) fn begin_unopened_block(&mut self) {
        self.unopened = true;
    }

    /// Whether stop strings that end in values are found.
    pub(super) fn arm_stops(&mut self, armed: bool) {
        self.stop.iter_mut().for_each(|matcher| matcher.arm(armed));
    }

    /// Calls begun so far.
    pub(super) fn started(&self) -> usize {
        self.started
    }

    /// Reads from the start of `rest`, which is not empty and lies inside a block.
    pub(super) fn step(&mut self, rest: &str, around: &mut Surroundings<'_>) -> Progress {
        if matches!(self.place, Place::Parameter(..)) {
            return self.step_parameter(rest, around);
        }
        let expect = Expect::tags(&around.options.markers, Tags::Any, false);
        match expect.find(rest) {
            // Cut inside a tag, where text has no place either.
            Found::TextTo(0) if around.last => Progress::Consumed(rest.len()),
            Found::TextTo(0) => Progress::Wait,
            Found::TextTo(end) | Found::Markup { start: end @ 1.., .. } => {
                let text = &rest[..end];
                let space = text.len() - text.trim_start().len();
                if self.unopened && space < end && matches!(self.place, Place::Block) {
                    self.unopened = false;
                    return Progress::Closed(space);
                }
                self.stray.push_str(text);
                Progress::Consumed(end)
            }
            Found::Markup { end, markup: Markup::Tag(inner), .. } => self.take_tag(inner, end, around),
            Found::Markup { .. } => unreachable!("only whole tags are expected inside a block"),
        }
    }

    /// Ends whatever is open, because the output ended or a stop string was found.
    pub(super) fn cut(&mut self, around: &mut Surroundings<'_>) {
        self.note_stray(around.faults);
        match std::mem::replace(&mut self.place, Place::Block) {
            Place::Block => return,
            Place::Invoke => {}
            Place::Parameter(value, sending) => self.abandon(&value, sending, around),
        }
        around.faults.truncated_calls += u32::from(self.call.is_some());
        self.end_call(around);
    }

    /// A tag between calls or between parameters.
    fn take_tag(&mut self, inner: &str, length: usize, around: &mut Surroundings<'_>) -> Progress {
        let in_call = matches!(self.place, Place::Invoke);
        let closing = inner.strip_prefix('/');
        if let (Some(name), true) = (closing, in_call)
            && self.recover_parameter(name, around)
        {
            return Progress::Consumed(length);
        }
        self.note_stray(around.faults);
        match (closing, in_call) {
            (Some(tag::INVOKE), true) => self.end_call(around),
            (Some(name), _) if name == around.options.markers.block_name() => {
                return self.close_block(length, around);
            }
            (Some(_), _) => around.faults.mismatched_tags += 1,
            (None, true) => self.open_in_call(inner, around),
            (None, false) => self.open_in_block(inner, around),
        }
        Progress::Consumed(length)
    }

    fn close_block(&mut self, length: usize, around: &mut Surroundings<'_>) -> Progress {
        if matches!(self.place, Place::Invoke) {
            around.faults.unclosed_calls += 1;
            self.end_call(around);
        }
        self.unopened = false;
        Progress::Closed(length)
    }

    fn open_in_block(&mut self, inner: &str, around: &mut Surroundings<'_>) {
        match tag::read_open(inner) {
            OpenTag::Invoke { name } => self.begin_call(name, around),
            OpenTag::Element { key: tag::INVOKE, .. } => self.begin_call(None, around),
            OpenTag::Element { .. } => around.faults.mismatched_tags += 1,
        }
    }

    fn open_in_call(&mut self, inner: &str, around: &mut Surroundings<'_>) {
        let tools = &around.options.tools;
        let empty = inner.strip_suffix('/').filter(|_| !tools.names_property(&self.parameters, inner));
        let (key, tag) = match tag::read_open(empty.unwrap_or(inner)) {
            _ if tools.names_property(&self.parameters, inner) => (inner, inner),
            OpenTag::Invoke { name } => {
                around.faults.unclosed_calls += 1;
                self.end_call(around);
                return self.begin_call(name, around);
            }
            OpenTag::Element { key, tag } => (key, tag),
        };
        self.begin_parameter(key, tag, around);
        if empty.is_some() {
            self.complete(around);
        }
    }

    fn begin_call(&mut self, name: Option<&str>, around: &mut Surroundings<'_>) {
        self.place = Place::Invoke;
        let Some(name) = name else {
            around.faults.nameless_calls += 1;
            return;
        };
        let tools = &around.options.tools;
        around.faults.undeclared_tools += u32::from(!tools.is_empty() && !tools.declares(name));
        self.parameters = tools.parameters(name);
        around.out.tool_start(self.started, self.ids.next(), name.to_owned());
        self.call = Some(CallWriter::new(self.started));
        self.started += 1;
    }

    fn end_call(&mut self, around: &mut Surroundings<'_>) {
        self.place = Place::Block;
        if let Some(call) = self.call.take() {
            call.end(around.out);
        }
    }

    /// A closing tag whose opening one is lost, with the value still behind its namespace marker: some
    /// detokenisers drop opening tags that happen to be special tokens.
    fn recover_parameter(&mut self, name: &str, around: &mut Surroundings<'_>) -> bool {
        let options = around.options;
        let Some(call) = &mut self.call else { return false };
        let Some(text) = self.stray.trim_start().strip_prefix(&options.markers.namespace.text) else {
            return false;
        };
        let no_key = name == tag::INVOKE
            || name == options.markers.block_name()
            || name.starts_with('/')
            || tag::read_close(name) != name;
        if no_key || call.has_sent(name) || call.awaits(name) {
            return false;
        }
        let view = options.tools.property(&self.parameters, name);
        let value = ElementKind::parameter(view, &options.tools).leaf(text, 1, around.faults);
        call.value(name, value, around.out);
        around.faults.recovered_parameters += 1;
        self.stray.clear();
        true
    }

    fn note_stray(&mut self, faults: &mut Faults) {
        faults.stray_text += u32::from(!self.stray.trim().is_empty());
        self.stray.clear();
    }
}
