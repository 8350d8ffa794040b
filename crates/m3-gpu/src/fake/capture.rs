//! Recording on the double: which streams take part, what was recorded, and whether every fork was joined.

use std::collections::HashMap;

use super::queue::Work;

#[derive(Debug)]
pub(super) struct Capture {
    pub(super) origin: u64,
    pub(super) work: Vec<Work>,
    /// For each stream that takes part: pieces recorded in it, and how many of them the origin waits for.
    streams: HashMap<u64, (u64, u64)>,
    /// Events recorded in this capture: their stream, and its pieces at that time.
    events: HashMap<u64, (u64, u64)>,
    /// Why the capture cannot become a graph.
    pub(super) broken: Option<String>,
}

impl Capture {
    pub(super) fn new(origin: u64) -> Self {
        let streams = HashMap::from([(origin, (0, 0))]);
        Capture { origin, work: Vec::new(), streams, events: HashMap::new(), broken: None }
    }

    pub(super) fn has_stream(&self, stream: u64) -> bool {
        self.streams.contains_key(&stream)
    }

    pub(super) fn has_event(&self, event: u64) -> bool {
        self.events.contains_key(&event)
    }

    pub(super) fn push(&mut self, stream: u64, work: Work) {
        self.work.push(work);
        if let Some((pieces, _)) = self.streams.get_mut(&stream) {
            *pieces += 1;
        }
    }

    pub(super) fn record(&mut self, event: u64, stream: u64) {
        let pieces = self.streams.get(&stream).map_or(0, |(pieces, _)| *pieces);
        self.events.insert(event, (stream, pieces));
    }

    /// A stream waits for an event of this capture: it takes part from now on.
    pub(super) fn wait_for(&mut self, stream: u64, event: u64) {
        let Some((recorded_in, pieces)) = self.events.get(&event).copied() else { return };
        if let Some((_, joined)) = self.streams.get_mut(&recorded_in) {
            *joined = pieces.max(*joined);
        }
        // A fork with nothing in it must be joined too: it counts as a piece.
        self.streams.entry(stream).or_insert((1, 0));
    }

    pub(super) fn is_joined(&self) -> bool {
        self.streams.iter().all(|(stream, (pieces, joined))| *stream == self.origin || pieces == joined)
    }
}
