//! Why prefixes were not found: counts, and a short memory of what had to make room.

use std::collections::{HashSet, VecDeque};

use crate::metrics::Misses;

/// Pages remembered after their eviction.
const REMEMBERED: usize = 1 << 14;

/// See the head of this file.
#[derive(Debug, Default)]
pub(super) struct Missed {
    pub(super) counts: Misses,
    /// Identities of pages evicted last, oldest first.
    order: VecDeque<u64>,
    known: HashSet<u64>,
}

impl Missed {
    /// A page was evicted.
    pub(super) fn forgotten(&mut self, identity: u64) {
        if !self.known.insert(identity) {
            return;
        }
        self.order.push_back(identity);
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    /// A page was looked for behind `matched` pages that were there.
    pub(super) fn note(&mut self, identity: u64, matched: usize) {
        let Misses { new, diverged, evicted, .. } = &mut self.counts;
        let count = match (self.known.contains(&identity), matched) {
            (true, _) => evicted,
            (false, 0) => new,
            (false, _) => diverged,
        };
        *count += 1;
    }
}
