//! One parameter inside a call: what of its value is sent when, and what happens when it ends without its
//! closing tag or at a stop string.

use super::{Place, Progress, Surroundings, ToolParser};
use crate::text::parse::element::{Delivery, ElementKind};
use crate::text::parse::scan::{Expect, Tags};
use crate::text::parse::stop::{Fed, StopMatcher};
use crate::text::parse::types;
use crate::text::parse::value::{Effect, Next, Value};

/// How far the parameter being read has been sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sending {
    /// The key and the opening quote are out; text follows as it comes.
    Streaming,
    /// To be opened when it is certain that the value is a string.
    Held(Delivery),
    /// Sent when complete.
    Whole,
    /// Not at all: the key was sent before, or the call has no name.
    Never,
}

impl ToolParser {
    pub(super) fn begin_parameter(&mut self, key: &str, tag: &str, around: &mut Surroundings<'_>) {
        let tools = &around.options.tools;
        let kind = ElementKind::parameter(tools.property(&self.parameters, key), tools);
        let sending = self.begin_sending(key, kind.delivery(), around);
        self.place = Place::Parameter(Value::new(key, tag, kind), sending);
    }

    /// Decides how the value is sent, and opens it when it is certain to be a string.
    fn begin_sending(&mut self, key: &str, delivery: Delivery, around: &mut Surroundings<'_>) -> Sending {
        let Some(call) = &mut self.call else { return Sending::Never };
        let (sent, awaited) = (call.has_sent(key), call.awaits(key));
        around.faults.repeated_keys += u32::from(sent || awaited);
        if sent {
            return Sending::Never;
        }
        if awaited {
            return Sending::Whole;
        }
        call.release(around.out);
        match delivery {
            Delivery::Whole => Sending::Whole,
            Delivery::Stream => {
                call.open_string(key, around.out);
                Sending::Streaming
            }
            held => Sending::Held(held),
        }
    }

    pub(super) fn step_parameter(&mut self, rest: &str, around: &mut Surroundings<'_>) -> Progress {
        let Place::Parameter(value, _) = &mut self.place else { unreachable!("called inside a parameter") };
        let markers = &around.options.markers;
        let expect = Expect::tags(markers, Tags::None, false);
        match value.next(rest, markers.block_name(), &expect) {
            Next::Text(length) => {
                self.take_text(&rest[..length], around).unwrap_or(Progress::Consumed(length))
            }
            Next::Tag { inner, length } => self.take_value_tag(inner, &rest[..length], around),
            Next::Wait if !around.last => Progress::Wait,
            // Cut inside a tag, or inside what would have become one: never text that the model did not mean.
            Next::Wait => Progress::Consumed(rest.len()),
        }
    }

    fn take_value_tag(&mut self, inner: &str, markup: &str, around: &mut Surroundings<'_>) -> Progress {
        let held = self.stop.as_mut().map(StopMatcher::flush).unwrap_or_default();
        self.append(&held, around);
        let Place::Parameter(value, sending) = &mut self.place else {
            unreachable!("called inside a parameter")
        };
        let options = around.options;
        let block = options.markers.block_name();
        match value.take_tag(inner, block, &options.tools, around.faults) {
            Effect::Inside => {
                if let Sending::Held(_) = sending {
                    *sending = Sending::Whole;
                }
            }
            Effect::Literal => {
                return self.take_text(markup, around).unwrap_or(Progress::Consumed(markup.len()));
            }
            Effect::Complete => self.complete(around),
            Effect::Outer => {
                if let Place::Parameter(value, sending) = std::mem::replace(&mut self.place, Place::Invoke) {
                    self.abandon(&value, sending, around);
                }
                return self.take_tag(inner, markup.len(), around);
            }
        }
        Progress::Consumed(markup.len())
    }

    /// Text of the innermost element. `Some` when a stop string was found in it.
    fn take_text(&mut self, text: &str, around: &mut Surroundings<'_>) -> Option<Progress> {
        let Some(matcher) = &mut self.stop else {
            self.append(text, around);
            return None;
        };
        match matcher.feed(text) {
            Fed::Safe(safe) => {
                self.append(&safe, around);
                None
            }
            Fed::Hit { before, index } => {
                let stop = matcher.string(index).to_owned();
                self.append(&before, around);
                if around.options.include_stop {
                    self.append(&stop, around);
                }
                self.cut(around);
                Some(Progress::Stopped(stop))
            }
        }
    }

    /// Adds text to the value and sends what has become certain.
    fn append(&mut self, text: &str, around: &mut Surroundings<'_>) {
        let Place::Parameter(value, sending) = &mut self.place else { return };
        let Some(call) = &mut self.call else { return };
        match sending {
            Sending::Never => return,
            Sending::Streaming => return call.string_text(text, around.out),
            _ => value.push_text(text),
        }
        let certain = match sending {
            Sending::Held(Delivery::StreamUnlessNull) => !types::may_be_null(value.text()),
            Sending::Held(_) => value.at_parameter() && !value.is_undecided(),
            _ => false,
        };
        if certain {
            *sending = Sending::Streaming;
            call.open_string(value.key(), around.out);
            call.string_text(&value.take_text(), around.out);
        }
    }

    /// The parameter's closing tag was read.
    pub(super) fn complete(&mut self, around: &mut Surroundings<'_>) {
        let Place::Parameter(value, sending) = std::mem::replace(&mut self.place, Place::Invoke) else {
            return;
        };
        let Some(call) = &mut self.call else { return };
        match sending {
            Sending::Never => {}
            Sending::Streaming => call.close_string(around.out),
            Sending::Held(_) | Sending::Whole if value.is_broken() => around.faults.dropped_parameters += 1,
            Sending::Held(_) | Sending::Whole => {
                let (key, json) = value.into_json(around.faults);
                call.value(&key, json, around.out);
            }
        }
    }

    /// The parameter ends without its closing tag: what was sent is closed, what was not is dropped.
    pub(super) fn abandon(&mut self, value: &Value, sending: Sending, around: &mut Surroundings<'_>) {
        let held = self.stop.as_mut().map(StopMatcher::flush).unwrap_or_default();
        let Some(call) = &mut self.call else { return };
        match sending {
            Sending::Streaming => {
                debug_assert!(value.at_parameter(), "only the parameter's own text is streamed");
                call.string_text(&held, around.out);
                call.close_string(around.out);
            }
            Sending::Never => {}
            Sending::Held(_) | Sending::Whole => around.faults.dropped_parameters += 1,
        }
    }
}
