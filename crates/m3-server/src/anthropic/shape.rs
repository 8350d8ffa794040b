//! From answer events to a message: blocks that open, grow and close. A whole message is the fold of the same events.

use m3_core::text::parse::Delta;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::error::ErrorBody;
use super::response::{Block, BlockDelta, Ending, Event, Message, Usage};
use crate::error::ApiError;
use crate::generate::{ChoiceEvent, Done, Reason, Stop};
use crate::shape::{Head, Shape, Tally};

/// State of one message.
pub struct MessagesShape {
    /// As it was at the start; folding completes it.
    message: Message,
    tally: Tally,
    open: Option<Open>,
    next_index: usize,
    /// Arguments of the calls of a folded message.
    inputs: Vec<String>,
}

enum Open {
    Thinking(Sha256),
    Text,
    Call,
}

impl MessagesShape {
    /// For one answer to a prompt of `prompt_tokens`.
    pub fn new(head: Head, prompt_tokens: u32) -> Self {
        let usage = Usage { input_tokens: prompt_tokens, ..Usage::default() };
        let message = Message {
            id: head.id,
            kind: "message",
            role: "assistant",
            model: head.model,
            content: Vec::new(),
            stop_reason: None,
            stop_sequence: None,
            usage,
        };
        let tally = Tally::new(vec![prompt_tokens], 1);
        MessagesShape { message, tally, open: None, next_index: 0, inputs: Vec::new() }
    }

    fn deltas(&mut self, deltas: Vec<Delta>) -> Vec<Event> {
        let mut events = Vec::new();
        for delta in deltas {
            match delta {
                Delta::Reasoning(thinking) => {
                    if !matches!(self.open, Some(Open::Thinking(_))) {
                        let (thinking, signature) = (String::new(), String::new());
                        self.begin(
                            Open::Thinking(Sha256::new()),
                            Block::Thinking { thinking, signature },
                            &mut events,
                        );
                    }
                    if let Some(Open::Thinking(digest)) = &mut self.open {
                        digest.update(&thinking);
                    }
                    events.push(self.delta(BlockDelta::ThinkingDelta { thinking }));
                }
                Delta::Content(text) => {
                    if !matches!(self.open, Some(Open::Text)) {
                        self.begin(Open::Text, Block::Text { text: String::new() }, &mut events);
                    }
                    events.push(self.delta(BlockDelta::TextDelta { text }));
                }
                Delta::ToolStart { id, name, .. } => {
                    let id = id.strip_prefix("call_").map_or(id.clone(), |id| format!("toolu_{id}"));
                    let block = Block::ToolUse { id, name, input: raw("{}") };
                    self.begin(Open::Call, block, &mut events);
                }
                Delta::ToolArguments { fragment, .. } => {
                    events.push(self.delta(BlockDelta::InputJsonDelta { partial_json: fragment }));
                }
                Delta::ToolEnd { .. } => self.end(&mut events),
            }
        }
        events
    }

    fn begin(&mut self, open: Open, content_block: Block, events: &mut Vec<Event>) {
        self.end(events);
        self.open = Some(open);
        events.push(Event::ContentBlockStart { index: self.next_index, content_block });
        self.next_index += 1;
    }

    /// More of the open block.
    fn delta(&self, delta: BlockDelta) -> Event {
        Event::ContentBlockDelta { index: self.next_index - 1, delta }
    }

    fn end(&mut self, events: &mut Vec<Event>) {
        let Some(open) = self.open.take() else { return };
        if let Open::Thinking(digest) = open {
            // A digest of the text. Callers must have one to send back; it proves nothing and is not checked.
            let signature = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
            events.push(self.delta(BlockDelta::SignatureDelta { signature }));
        }
        events.push(Event::ContentBlockStop { index: self.next_index - 1 });
    }

    fn done(&mut self, done: Done) -> Vec<Event> {
        self.tally.done(0, &done);
        let mut events = self.deltas(done.deltas);
        self.end(&mut events);
        let (stop_reason, stop_sequence) = match (done.reason, done.stop) {
            (Reason::ToolCalls, _) => ("tool_use", None),
            (Reason::Length, _) => ("max_tokens", None),
            (Reason::Stop, Some(Stop::Text(text))) => ("stop_sequence", Some(text)),
            (Reason::Stop, _) => ("end_turn", None),
        };
        let delta = Ending { stop_reason: Some(stop_reason), stop_sequence };
        events.push(Event::MessageDelta { delta, usage: self.usage() });
        events
    }

    fn usage(&self) -> Usage {
        let usage = self.tally.usage();
        let cached = usage.prompt_tokens_details.cached_tokens;
        Usage {
            input_tokens: usage.prompt_tokens - cached,
            cache_creation_input_tokens: 0,
            cache_read_input_tokens: cached,
            output_tokens: usage.completion_tokens,
        }
    }

    fn grow(&mut self, index: usize, delta: BlockDelta) {
        match (&mut self.message.content[index], delta) {
            (Block::Thinking { thinking, .. }, BlockDelta::ThinkingDelta { thinking: more }) => {
                thinking.push_str(&more)
            }
            (Block::Thinking { signature, .. }, BlockDelta::SignatureDelta { signature: whole }) => {
                *signature = whole
            }
            (Block::Text { text }, BlockDelta::TextDelta { text: more }) => text.push_str(&more),
            (Block::ToolUse { .. }, BlockDelta::InputJsonDelta { partial_json }) => {
                self.inputs[index].push_str(&partial_json);
            }
            (block, delta) => unreachable!("{delta:?} for {block:?}"),
        }
    }
}

/// JSON text as it is. The parser's arguments are always an object; cut ones are closed by it.
fn raw(json: &str) -> Box<RawValue> {
    let text = if json.is_empty() { "{}" } else { json };
    RawValue::from_string(text.to_owned())
        .or_else(|_| serde_json::value::to_raw_value(text))
        .expect("a string is JSON")
}

impl Shape for MessagesShape {
    type Chunk = Event;
    type Whole = Message;
    const LAST: &'static [u8] = b"";

    fn open(&mut self) -> Vec<Event> {
        vec![Event::MessageStart { message: self.message.clone() }, Event::Ping]
    }

    fn event(&mut self, _: usize, event: ChoiceEvent) -> Result<Vec<Event>, ApiError> {
        match event {
            ChoiceEvent::Prompt(_) => Ok(Vec::new()),
            ChoiceEvent::Output(output) => {
                self.tally.output(0, &output);
                Ok(self.deltas(output.deltas))
            }
            ChoiceEvent::Done(done) => Ok(self.done(done)),
            ChoiceEvent::Failed(error) => Err(error),
        }
    }

    fn close(&mut self) -> Vec<Event> {
        vec![Event::MessageStop]
    }

    fn broken(&mut self, error: &ApiError) -> Vec<Event> {
        vec![Event::Error(ErrorBody::new(error, None))]
    }

    fn heartbeat(&self) -> &'static [u8] {
        b"event: ping\ndata: {\"type\":\"ping\"}\n\n"
    }

    fn fold(&mut self, event: Event) {
        match event {
            Event::ContentBlockStart { content_block, .. } => {
                self.message.content.push(content_block);
                self.inputs.push(String::new());
            }
            Event::ContentBlockDelta { index, delta } => self.grow(index, delta),
            Event::ContentBlockStop { index } => {
                if let Block::ToolUse { input, .. } = &mut self.message.content[index] {
                    *input = raw(&self.inputs[index]);
                }
            }
            Event::MessageDelta { delta, usage } => {
                self.message.stop_reason = delta.stop_reason;
                self.message.stop_sequence = delta.stop_sequence;
                self.message.usage = usage;
            }
            Event::MessageStart { .. } | Event::Ping | Event::MessageStop | Event::Error(_) => {}
        }
    }

    fn whole(self) -> Message {
        self.message
    }
}
