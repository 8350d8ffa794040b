//! Who goes first. A sequence keeps its place from arrival to end, so one that was preempted returns to where it was
//! and the first in line always makes progress.

use std::collections::{BTreeMap, HashMap};

use super::sequence::Sequence;
use crate::request::RequestId;

/// Order of service: lower priority value first, then earlier arrival. Unique for the scheduler's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place {
    pub(super) priority: i32,
    pub(super) arrival: u64,
}

/// All sequences, by what they are doing.
#[derive(Default)]
pub(super) struct Queues {
    /// Without a row: never started or preempted.
    pub(super) waiting: BTreeMap<Place, Sequence>,
    /// With a row and pages.
    pub(super) running: BTreeMap<Place, Sequence>,
    /// Ended, but a step in flight still writes to their pages.
    pub(super) ending: BTreeMap<Place, Sequence>,
    /// Of waiting and running ones.
    places: HashMap<RequestId, Place>,
    num_arrived: u64,
}

impl Queues {
    pub(super) fn arrive(&mut self, sequence: Sequence) {
        let place = Place { priority: sequence.request.priority, arrival: self.num_arrived };
        self.num_arrived += 1;
        let before = self.places.insert(sequence.request.id, place);
        assert!(
            before.is_none(),
            "request id {} is in use; the engine refuses doubles",
            sequence.request.id.0
        );
        self.waiting.insert(place, sequence);
    }

    pub(super) fn place(&self, id: RequestId) -> Option<Place> {
        self.places.get(&id).copied()
    }

    /// Takes a live sequence out of its queue for good.
    pub(super) fn remove(&mut self, place: Place) -> Option<Sequence> {
        let sequence = self.waiting.remove(&place).or_else(|| self.running.remove(&place))?;
        self.places.remove(&sequence.request.id);
        Some(sequence)
    }

    pub(super) fn live_ids(&self) -> Vec<RequestId> {
        self.places.keys().copied().collect()
    }

    pub(super) fn num_live(&self) -> usize {
        self.places.len()
    }
}
