//! Gathers the deltas of a stream into packets that are neither crumbs nor lumps, within a bound on the delay.
//!
//! What a model samples comes in pieces of one to four characters. Sent one by one they cost more than they carry, and
//! readers of M3's format check count them as faults; so do pieces above 200 characters. Text of one kind is held until
//! it is worth a packet or its time is up; a change of kind and a tool's name are sent at once. The joined text never
//! changes. It knows no wire format, and whole answers do not pass here.

use std::time::{Duration, Instant};

use m3_core::text::parse::Delta;

use crate::generate::{ChoiceEvent, Done, Output, Patience};

/// When held text is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pacing {
    /// Tokens that are waited for, while the time lasts.
    pub min_tokens: usize,
    /// Text of at least [`SMALLEST`] characters is sent after this. Zero sends everything as it comes.
    pub gather: Duration,
    /// Any text is sent after this, and the first text of its kind after half of it.
    pub hold: Duration,
}

/// Characters below which a packet is a crumb.
const SMALLEST: usize = 5;
/// Characters that are worth a packet whatever their age.
const ENOUGH: usize = 64;
/// Most characters of a packet.
const LARGEST: usize = 200;

impl Pacing {
    /// Everything as it comes.
    pub const OFF: Pacing = Pacing { min_tokens: 1, gather: Duration::ZERO, hold: Duration::ZERO };

    fn is_off(&self) -> bool {
        self.gather.is_zero() && self.min_tokens <= 1
    }
}

/// The held text of every answer of one request.
pub(super) struct Coalescer {
    pacing: Pacing,
    held: Vec<Held>,
    ready: Vec<(usize, ChoiceEvent)>,
}

/// Of one answer: at most one delta of text, and tokens that are not sent yet.
#[derive(Default)]
struct Held {
    output: Output,
    /// Characters of the held text.
    chars: usize,
    /// When the oldest held token came.
    since: Option<Instant>,
    /// Something of the present kind of text has been sent.
    begun: bool,
}

impl Held {
    /// When it has to be sent if nothing more comes.
    fn due(&self, pacing: &Pacing) -> Option<Instant> {
        let patient = if self.begun { pacing.hold } else { pacing.hold / 2 };
        let full = self.chars >= SMALLEST && self.output.tokens.len() >= pacing.min_tokens;
        self.since.map(|since| since + if full { pacing.gather.min(patient) } else { patient })
    }

    /// Adds newer output and gives what cannot grow any more: all but a last delta of text.
    fn add(&mut self, output: Output, now: Instant) -> Option<Output> {
        self.since.get_or_insert(now);
        let held = &mut self.output;
        held.completion_tokens = output.completion_tokens;
        held.reasoning_tokens = output.reasoning_tokens;
        held.tokens.extend(output.tokens);
        output.deltas.into_iter().for_each(|delta| join(&mut held.deltas, delta));
        let open = held.deltas.last().and_then(text_of).is_some();
        self.chars = held.deltas.last().and_then(text_of).map_or(0, |text| text.chars().count());
        let closed = held.deltas.len() - usize::from(open);
        if closed == 0 {
            return None;
        }
        let rest = held.deltas.split_off(closed);
        let output = std::mem::replace(held, Output { deltas: rest, ..counts(held) });
        self.since = open.then_some(now);
        self.begun = false;
        Some(output)
    }

    fn take(&mut self) -> Option<Output> {
        self.since.take()?;
        self.chars = 0;
        self.begun |= !self.output.deltas.is_empty();
        let left = counts(&self.output);
        Some(std::mem::replace(&mut self.output, left))
    }
}

fn counts(output: &Output) -> Output {
    Output {
        completion_tokens: output.completion_tokens,
        reasoning_tokens: output.reasoning_tokens,
        ..Output::default()
    }
}

impl Coalescer {
    pub(super) fn new(pacing: Pacing) -> Self {
        Coalescer { pacing, held: Vec::new(), ready: Vec::new() }
    }

    /// Takes an event; what is to be sent now comes from [`Coalescer::take_ready`].
    pub(super) fn push(&mut self, index: usize, event: ChoiceEvent, now: Instant) {
        if self.pacing.is_off() {
            self.ready.push((index, event));
            return;
        }
        if self.held.len() <= index {
            self.held.resize_with(index + 1, Held::default);
        }
        match event {
            ChoiceEvent::Output(output) => self.output(index, output, now),
            ChoiceEvent::Done(done) => self.done(index, done),
            event @ (ChoiceEvent::Prompt(_) | ChoiceEvent::Failed(_)) => {
                self.send(index);
                self.ready.push((index, event));
            }
        }
    }

    fn output(&mut self, index: usize, output: Output, now: Instant) {
        if let Some(closed) = self.held[index].add(output, now) {
            self.ready.push((index, ChoiceEvent::Output(split(closed))));
        }
        let held = &self.held[index];
        let enough = held.chars >= ENOUGH && held.output.tokens.len() >= self.pacing.min_tokens;
        if enough || held.due(&self.pacing).is_some_and(|due| due <= now) {
            self.send(index);
        }
    }

    /// The last text joins what is held.
    fn done(&mut self, index: usize, mut done: Done) {
        let held = &mut self.held[index];
        let last = std::mem::take(&mut done.deltas);
        if held.since.is_some() {
            last.into_iter().for_each(|delta| join(&mut held.output.deltas, delta));
            self.send(index);
        } else {
            done.deltas = split(Output { deltas: last, ..Output::default() }).deltas;
        }
        self.ready.push((index, ChoiceEvent::Done(done)));
    }

    fn send(&mut self, index: usize) {
        if let Some(output) = self.held[index].take() {
            self.ready.push((index, ChoiceEvent::Output(split(output))));
        }
    }

    /// Sends whatever is due.
    pub(super) fn tick(&mut self, now: Instant) {
        for index in 0..self.held.len() {
            if self.held[index].due(&self.pacing).is_some_and(|due| due <= now) {
                self.send(index);
            }
        }
    }

    /// How patiently to wait for the next token, and when [`Coalescer::tick`] has something to do at the latest.
    /// `is_eager` tells of an answer whether its next token may be more than text.
    pub(super) fn next_look(
        &self,
        now: Instant,
        is_eager: impl Fn(usize) -> bool,
    ) -> (Patience, Option<Instant>) {
        if self.pacing.is_off() || self.pacing.gather.is_zero() {
            return (Patience::AtOnce, self.due());
        }
        let (mut patient, mut look) = (true, None::<Instant>);
        for (index, held) in self.held.iter().enumerate() {
            let at = held.since.map(|since| since + self.pacing.gather);
            // Text that is old enough and still too short goes with the next token.
            patient &= at.is_none_or(|at| now < at) && !is_eager(index);
            let at = at.into_iter().chain(held.due(&self.pacing)).min();
            look = look.into_iter().chain(at).min();
        }
        match patient {
            true => (Patience::Gather(self.pacing.gather), look),
            false => (Patience::AtOnce, self.due()),
        }
    }

    /// When something held has to be sent at the latest.
    fn due(&self) -> Option<Instant> {
        self.held.iter().filter_map(|held| held.due(&self.pacing)).min()
    }

    /// Events to send, in order.
    pub(super) fn take_ready(&mut self) -> Vec<(usize, ChoiceEvent)> {
        std::mem::take(&mut self.ready)
    }
}

/// The text of a delta that a neighbour of its kind may continue.
fn text_of(delta: &Delta) -> Option<&String> {
    match delta {
        Delta::Reasoning(text) | Delta::Content(text) | Delta::ToolArguments { fragment: text, .. } => {
            Some(text)
        }
        Delta::ToolStart { .. } | Delta::ToolEnd { .. } => None,
    }
}

fn join(deltas: &mut Vec<Delta>, delta: Delta) {
    match (deltas.last_mut(), &delta) {
        (Some(Delta::Reasoning(text)), Delta::Reasoning(more))
        | (Some(Delta::Content(text)), Delta::Content(more)) => text.push_str(more),
        (
            Some(Delta::ToolArguments { index, fragment }),
            Delta::ToolArguments { index: same, fragment: more },
        ) if index == same => {
            fragment.push_str(more);
        }
        _ => deltas.push(delta),
    }
}

/// Cuts texts above [`LARGEST`] characters into even pieces.
fn split(mut output: Output) -> Output {
    let large = |delta: &Delta| text_of(delta).is_some_and(|text| text.len() > LARGEST);
    if !output.deltas.iter().any(large) {
        return output;
    }
    let cut = std::mem::take(&mut output.deltas).into_iter().flat_map(|delta| match delta {
        Delta::Reasoning(text) => pieces(&text).into_iter().map(Delta::Reasoning).collect(),
        Delta::Content(text) => pieces(&text).into_iter().map(Delta::Content).collect(),
        Delta::ToolArguments { index, fragment } => {
            pieces(&fragment).into_iter().map(|fragment| Delta::ToolArguments { index, fragment }).collect()
        }
        other => vec![other],
    });
    output.deltas = cut.collect();
    output
}

fn pieces(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let size = chars.len().div_ceil(chars.len().div_ceil(LARGEST).max(1)).max(1);
    chars.chunks(size).map(|piece| piece.iter().collect()).collect()
}

#[cfg(test)]
mod tests;
