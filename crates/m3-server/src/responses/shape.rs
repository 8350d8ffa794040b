//! From answer events to a response: items that open, grow and close, and the object that holds them. A stream's last
//! event carries the very object that a whole answer is.

use m3_core::text::parse::Delta;
use serde_json::{Map, Value, json};

use super::events::{Body, Event};
use super::items::{Content, Item, Status};
use crate::error::ApiError;
use crate::generate::{ChoiceEvent, Done, OutputToken, Reason};
use crate::openai::chat_response::TokenLogprob;
use crate::shape::{Head, Shape, Tally, TokenNames};
use crate::vision::MediaTokens;

/// Called with the finished response.
pub type Keep = Box<dyn FnOnce(&Value, Vec<Value>) + Send>;

/// State of one response.
pub struct ResponsesShape {
    head: Head,
    /// Fields of the object that the request decided.
    echo: Map<String, Value>,
    /// Present when log-probabilities were asked for.
    names: Option<TokenNames>,
    /// Reasoning items carry `encrypted_content`.
    sealed: bool,
    keep: Option<Keep>,
    items: Vec<Item>,
    tokens: Tokens,
    tally: Tally,
    state: State,
    next_number: u64,
}

/// Tokens of text that have not been attached to a delta, with their characters.
#[derive(Default)]
struct Tokens {
    waiting: std::collections::VecDeque<(TokenLogprob, usize)>,
    /// Characters sent minus characters of the tokens attached.
    owed: usize,
}

enum State {
    InProgress,
    Done(Reason),
    Failed(ApiError),
}

impl ResponsesShape {
    /// For one answer to a prompt of `prompt_tokens`. `echo` has what the request said.
    pub fn new(head: Head, echo: Map<String, Value>, names: Option<TokenNames>, prompt_tokens: u32) -> Self {
        ResponsesShape {
            head,
            echo,
            names,
            sealed: false,
            keep: None,
            items: Vec::new(),
            tokens: Tokens::default(),
            tally: Tally::new(vec![prompt_tokens], 1),
            state: State::InProgress,
            next_number: 0,
        }
    }

    /// Reports how many of the prompt's tokens are media's.
    pub fn with_media(mut self, tokens: MediaTokens) -> Self {
        self.tally.media(tokens);
        self
    }

    /// Puts `encrypted_content` into reasoning items.
    pub fn sealed(mut self, sealed: bool) -> Self {
        self.sealed = sealed;
        self
    }

    /// Hands the finished response over, with its items.
    pub fn keep(mut self, keep: Option<Keep>) -> Self {
        self.keep = keep;
        self
    }

    /// The object as of now.
    pub fn object(&self) -> Value {
        let (status, error, incomplete) = match &self.state {
            State::InProgress => ("in_progress", Value::Null, Value::Null),
            State::Done(Reason::Length) => {
                ("incomplete", Value::Null, json!({"reason": "max_output_tokens"}))
            }
            State::Done(_) => ("completed", Value::Null, Value::Null),
            State::Failed(error) => {
                let code = if error.status.as_u16() == 429 { "rate_limit_exceeded" } else { "server_error" };
                ("failed", json!({"code": code, "message": error.message}), Value::Null)
            }
        };
        let ended = !matches!(self.state, State::InProgress);
        let mut object = Map::new();
        object.insert("id".into(), self.head.id.clone().into());
        object.insert("object".into(), "response".into());
        object.insert("created_at".into(), self.head.created.into());
        object.insert("status".into(), status.into());
        object.insert("completed_at".into(), if status == "completed" { now().into() } else { Value::Null });
        object.insert("error".into(), error);
        object.insert("incomplete_details".into(), incomplete);
        object.insert("model".into(), self.head.model.clone().into());
        object.insert("output".into(), if ended { Value::Array(self.output()) } else { json!([]) });
        object.insert("usage".into(), if ended { self.usage() } else { Value::Null });
        object.extend(self.echo.clone());
        Value::Object(object)
    }

    fn output(&self) -> Vec<Value> {
        self.items.iter().map(|item| item.value(self.sealed)).collect()
    }

    fn usage(&self) -> Value {
        let usage = self.tally.usage();
        json!({
            "input_tokens": usage.prompt_tokens,
            "input_tokens_details": usage.prompt_tokens_details,
            "output_tokens": usage.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": usage.completion_tokens_details.reasoning_tokens},
            "total_tokens": usage.total_tokens,
        })
    }

    fn event(&mut self, kind: &'static str, body: Body) -> Event {
        let sequence_number = self.next_number;
        self.next_number += 1;
        Event { kind, sequence_number, body }
    }

    fn lifecycle(&mut self, kind: &'static str) -> Event {
        let response = self.object();
        self.event(kind, Body::Response { response })
    }

    fn deltas(&mut self, deltas: Vec<Delta>) -> Vec<Event> {
        let mut events = Vec::new();
        for delta in deltas {
            match delta {
                Delta::Reasoning(text) => {
                    self.open(|content| *content == Content::Reasoning, || Content::Reasoning, &mut events);
                    let body = self.text_delta(text, None);
                    events.push(self.event("response.reasoning_text.delta", body));
                }
                Delta::Content(text) => {
                    let is_message = |content: &Content| matches!(content, Content::Message { .. });
                    self.open(is_message, || Content::Message { logprobs: Vec::new() }, &mut events);
                    let logprobs = self.logprobs(text.chars().count());
                    let body = self.text_delta(text, Some(logprobs));
                    events.push(self.event("response.output_text.delta", body));
                }
                Delta::ToolStart { id, name, .. } => {
                    self.open(|_| false, || Content::Call { call_id: id, name }, &mut events);
                }
                Delta::ToolArguments { fragment, .. } => events.extend(self.arguments(fragment)),
                Delta::ToolEnd { .. } => self.close_item(Status::Completed, &mut events),
            }
        }
        events
    }

    fn arguments(&mut self, fragment: String) -> Option<Event> {
        let output_index = self.items.len().checked_sub(1)?;
        let item = &mut self.items[output_index];
        item.text.push_str(&fragment);
        let body = Body::ArgumentsDelta { item_id: item.id.clone(), output_index, delta: fragment };
        Some(self.event("response.function_call_arguments.delta", body))
    }

    /// Goes on with the open item when it `fits`, else closes it and begins another.
    fn open(
        &mut self,
        fits: impl Fn(&Content) -> bool,
        content: impl FnOnce() -> Content,
        events: &mut Vec<Event>,
    ) {
        let last = self.items.last().filter(|item| item.status == Status::InProgress);
        if last.is_some_and(|item| fits(&item.content)) {
            return;
        }
        self.close_item(Status::Completed, events);
        let item = Item::begin(content());
        let output_index = self.items.len();
        let (value, part, item_id) = (item.value(self.sealed), item.part(), item.id.clone());
        self.items.push(item);
        events.push(self.event("response.output_item.added", Body::Item { output_index, item: value }));
        if !part.is_null() {
            let body = Body::Part { item_id, output_index, content_index: 0, part };
            events.push(self.event("response.content_part.added", body));
        }
    }

    fn close_item(&mut self, status: Status, events: &mut Vec<Event>) {
        let sealed = self.sealed;
        let Some(output_index) = self.items.len().checked_sub(1) else { return };
        let item = &mut self.items[output_index];
        if item.status != Status::InProgress {
            return;
        }
        item.status = status;
        let (item_id, text, part, value) =
            (item.id.clone(), item.text.clone(), item.part(), item.value(sealed));
        let text_done = |logprobs| {
            let (item_id, text) = (item_id.clone(), text.clone());
            Body::TextDone { item_id, output_index, content_index: 0, text, logprobs }
        };
        let (kind, body) = match &item.content {
            Content::Reasoning => ("response.reasoning_text.done", text_done(None)),
            Content::Message { logprobs } => ("response.output_text.done", text_done(Some(logprobs.clone()))),
            Content::Call { name, .. } => {
                let (item_id, name, arguments) = (item_id.clone(), name.clone(), text.clone());
                let body = Body::ArgumentsDone { item_id, output_index, name, arguments };
                ("response.function_call_arguments.done", body)
            }
        };
        events.push(self.event(kind, body));
        if !part.is_null() {
            let body = Body::Part { item_id, output_index, content_index: 0, part };
            events.push(self.event("response.content_part.done", body));
        }
        events.push(self.event("response.output_item.done", Body::Item { output_index, item: value }));
    }

    /// Grows the open item, which is there.
    fn text_delta(&mut self, text: String, logprobs: Option<Vec<TokenLogprob>>) -> Body {
        let output_index = self.items.len() - 1;
        let item = &mut self.items[output_index];
        item.text.push_str(&text);
        if let (Content::Message { logprobs: all }, Some(more)) = (&mut item.content, &logprobs) {
            all.extend(more.iter().cloned());
        }
        Body::TextDelta { item_id: item.id.clone(), output_index, content_index: 0, delta: text, logprobs }
    }

    fn note_tokens(&mut self, tokens: &[OutputToken]) {
        let Some(names) = &self.names else { return };
        for token in tokens.iter().filter(|token| !token.reasoning && token.num_chars > 0) {
            if let Some(score) = &token.sampled.score {
                self.tokens.waiting.push_back((names.chat(score), token.num_chars as usize));
            }
        }
    }

    /// The tokens that `chars` more characters of text are made of.
    fn logprobs(&mut self, chars: usize) -> Vec<TokenLogprob> {
        let Tokens { waiting, owed } = &mut self.tokens;
        *owed += chars;
        let mut taken = Vec::new();
        while *owed > 0 {
            let Some((logprob, size)) = waiting.pop_front() else { break };
            *owed = owed.saturating_sub(size);
            taken.push(logprob);
        }
        taken
    }

    fn done(&mut self, done: Done) -> Vec<Event> {
        self.tally.done(0, &done);
        let mut events = self.deltas(done.deltas);
        let cut = done.reason == Reason::Length;
        self.close_item(if cut { Status::Incomplete } else { Status::Completed }, &mut events);
        self.state = State::Done(done.reason);
        events
    }

    fn hand_over(&mut self) {
        if let Some(keep) = self.keep.take() {
            keep(&self.object(), self.output());
        }
    }
}

fn now() -> u64 {
    crate::clock::since_1970().as_secs()
}

impl Shape for ResponsesShape {
    type Chunk = Event;
    type Whole = Value;
    const LAST: &'static [u8] = b"";

    fn open(&mut self) -> Vec<Event> {
        vec![self.lifecycle("response.created"), self.lifecycle("response.in_progress")]
    }

    fn event(&mut self, _: usize, event: ChoiceEvent) -> Result<Vec<Event>, ApiError> {
        match event {
            ChoiceEvent::Prompt(_) => Ok(Vec::new()),
            ChoiceEvent::Output(output) => {
                self.tally.output(0, &output);
                self.note_tokens(&output.tokens);
                Ok(self.deltas(output.deltas))
            }
            ChoiceEvent::Done(done) => Ok(self.done(done)),
            ChoiceEvent::Failed(error) => Err(error),
        }
    }

    fn close(&mut self) -> Vec<Event> {
        let cut = matches!(self.state, State::Done(Reason::Length));
        let event = self.lifecycle(if cut { "response.incomplete" } else { "response.completed" });
        self.hand_over();
        vec![event]
    }

    fn broken(&mut self, error: &ApiError) -> Vec<Event> {
        let mut events = Vec::new();
        self.close_item(Status::Incomplete, &mut events);
        self.state = State::Failed(error.clone());
        events.push(self.lifecycle("response.failed"));
        self.hand_over();
        events
    }

    /// The items have grown with the events.
    fn fold(&mut self, _: Event) {}

    fn whole(mut self) -> Value {
        self.hand_over();
        self.object()
    }
}
