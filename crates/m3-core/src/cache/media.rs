//! The ledger of encoded media: which pieces the device holds, who relies on them, and which go first when room is
//! needed. It owns ids and byte counts only; the rows are the backend's.
//!
//! A piece is found by the full digest of its medium, its grid and its place in it, never by a part of the digest.
//! Pieces that nobody holds stay until their room is needed, the longest unused first.

use std::collections::{BTreeSet, HashMap};

use crate::metrics::MediaCounts;

/// What tells pieces apart: equal keys mean equal rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PieceKey {
    pub digest: [u8; 32],
    /// Of the whole medium, so that a digest that is used twice by mistake does not give rows of another shape.
    pub grid: [u32; 3],
    pub piece: u32,
}

/// The engine's name of an encoded piece; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MediaId(pub u64);

#[derive(Clone, Copy, Debug)]
struct Entry {
    id: MediaId,
    bytes: u64,
    holders: u32,
    /// When the last holder let go; `None` while it is held.
    idle_since: Option<u64>,
}

/// See the head of this file.
#[derive(Debug)]
pub struct MediaCache {
    budget_bytes: u64,
    used_bytes: u64,
    entries: HashMap<PieceKey, Entry>,
    /// Pieces that nobody holds, oldest first.
    idle: BTreeSet<(u64, PieceKey)>,
    tick: u64,
    num_given: u64,
    num_evicted: u64,
    /// Given up, and not told to the device yet.
    freed: Vec<MediaId>,
}

impl MediaCache {
    pub fn new(budget_bytes: u64) -> Self {
        MediaCache {
            budget_bytes,
            used_bytes: 0,
            entries: HashMap::new(),
            idle: BTreeSet::new(),
            tick: 0,
            num_given: 0,
            num_evicted: 0,
            freed: Vec::new(),
        }
    }

    pub fn counts(&self) -> MediaCounts {
        MediaCounts {
            pieces: self.entries.len(),
            held: self.entries.len() - self.idle.len(),
            bytes: self.used_bytes,
            budget_bytes: self.budget_bytes,
        }
    }

    /// Pieces given up for room since start.
    pub fn num_evicted(&self) -> u64 {
        self.num_evicted
    }

    /// One more holder of a piece that is there.
    pub fn hold(&mut self, key: &PieceKey) -> Option<MediaId> {
        let entry = self.entries.get_mut(key)?;
        entry.holders += 1;
        if let Some(since) = entry.idle_since.take() {
            self.idle.remove(&(since, *key));
        }
        Some(entry.id)
    }

    /// A new piece with one holder, in place of idle ones when need be. `None`, with nothing changed, when those that
    /// are held leave too little room.
    pub fn insert(&mut self, key: PieceKey, bytes: u64) -> Option<MediaId> {
        assert!(!self.entries.contains_key(&key), "a piece that is there is held, not inserted");
        let held: u64 =
            self.entries.values().filter(|entry| entry.holders > 0).map(|entry| entry.bytes).sum();
        if held.saturating_add(bytes) > self.budget_bytes {
            return None;
        }
        while self.used_bytes + bytes > self.budget_bytes {
            self.evict_one();
        }
        self.num_given += 1;
        let id = MediaId(self.num_given);
        self.used_bytes += bytes;
        self.entries.insert(key, Entry { id, bytes, holders: 1, idle_since: None });
        Some(id)
    }

    /// What the device says the piece takes; may exceed the budget until room is needed again.
    pub fn resize(&mut self, key: &PieceKey, bytes: u64) {
        if let Some(entry) = self.entries.get_mut(key) {
            self.used_bytes = self.used_bytes - entry.bytes + bytes;
            entry.bytes = bytes;
        }
    }

    /// Removes a piece that could not be encoded after all; whoever held it no longer does.
    pub fn forget(&mut self, key: &PieceKey) {
        if let Some(entry) = self.entries.remove(key) {
            if let Some(since) = entry.idle_since {
                self.idle.remove(&(since, *key));
            }
            self.used_bytes -= entry.bytes;
            self.freed.push(entry.id);
        }
    }

    /// One holder less; no step in flight may use the piece for it.
    pub fn release(&mut self, key: &PieceKey) {
        let entry = self.entries.get_mut(key).expect("held pieces stay");
        assert!(entry.holders > 0, "a piece was released more often than it was held");
        entry.holders -= 1;
        if entry.holders == 0 {
            self.tick += 1;
            entry.idle_since = Some(self.tick);
            self.idle.insert((self.tick, *key));
        }
    }

    /// Gives up every piece that nobody holds.
    pub fn flush(&mut self) {
        while !self.idle.is_empty() {
            self.evict_one();
        }
    }

    /// Ids the device is to be told to free.
    pub fn take_freed(&mut self) -> Vec<MediaId> {
        std::mem::take(&mut self.freed)
    }

    /// Checks the books against everyone's holds; a sentence when they do not agree.
    pub fn audit<'a>(&self, holds: impl Iterator<Item = &'a PieceKey>) -> Result<(), String> {
        let mut expected: HashMap<&PieceKey, u32> = HashMap::new();
        holds.for_each(|key| *expected.entry(key).or_default() += 1);
        for (key, entry) in &self.entries {
            let holders = expected.remove(key).unwrap_or(0);
            if entry.holders != holders || entry.idle_since.is_some() != (holders == 0) {
                let (id, counted) = (entry.id.0, entry.holders);
                return Err(format!("piece {id} counts {counted} holders; {holders} sequences hold it"));
            }
        }
        if !expected.is_empty() {
            return Err(format!("{} pieces are held and not there", expected.len()));
        }
        let bytes: u64 = self.entries.values().map(|entry| entry.bytes).sum();
        let idle = self.entries.values().filter(|entry| entry.idle_since.is_some()).count();
        if bytes != self.used_bytes || idle != self.idle.len() {
            return Err(format!("pieces have {bytes} bytes, {idle} idle; {:?} are counted", self.counts()));
        }
        Ok(())
    }

    fn evict_one(&mut self) {
        let (_, key) = self.idle.pop_first().expect("what is not held is idle");
        let entry = self.entries.remove(&key).expect("idle pieces are there");
        self.used_bytes -= entry.bytes;
        self.num_evicted += 1;
        self.freed.push(entry.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: u8) -> PieceKey {
        PieceKey { digest: [name; 32], grid: [1, 2, 2], piece: 0 }
    }

    #[test]
    fn the_longest_unused_goes_first_and_held_ones_stay() {
        let mut cache = MediaCache::new(30);
        let ids: Vec<MediaId> = (0..3).map(|name| cache.insert(key(name), 10).unwrap()).collect();
        assert_eq!(cache.insert(key(9), 10), None, "all room is held");
        cache.release(&key(1));
        cache.release(&key(0));
        // Used again, so younger than 0 from here on.
        assert_eq!(cache.hold(&key(1)), Some(ids[1]));
        cache.release(&key(1));
        assert_eq!(cache.insert(key(9), 15), Some(MediaId(4)));
        assert_eq!(cache.take_freed(), [ids[0], ids[1]], "two pieces of 10 make room for one of 15");
        assert_eq!(cache.hold(&key(0)), None);
        cache.audit([key(2), key(9)].iter()).unwrap();
        let counts = cache.counts();
        assert_eq!((counts.pieces, counts.held, counts.bytes), (2, 2, 25));
    }

    #[test]
    fn g10_digests_that_differ_in_the_last_byte_do_not_meet() {
        let mut cache = MediaCache::new(100);
        let mut other = key(7);
        other.digest[31] ^= 1;
        cache.insert(key(7), 10).unwrap();
        assert_eq!(cache.hold(&other), None);
        // Nor does one digest with two shapes, or two pieces of one medium.
        assert_eq!(cache.hold(&PieceKey { grid: [1, 2, 4], ..key(7) }), None);
        assert_eq!(cache.hold(&PieceKey { piece: 1, ..key(7) }), None);
        assert!(cache.hold(&key(7)).is_some());
    }

    #[test]
    fn what_could_not_be_encoded_is_freed_and_forgotten() {
        let mut cache = MediaCache::new(100);
        let id = cache.insert(key(1), 10).unwrap();
        cache.forget(&key(1));
        assert_eq!((cache.take_freed(), cache.counts().bytes), (vec![id], 0));
        assert_ne!(cache.insert(key(1), 10), Some(id), "ids are never used twice");
        cache.resize(&key(1), 25);
        cache.release(&key(1));
        assert_eq!(cache.counts().bytes, 25);
        cache.flush();
        assert_eq!((cache.counts().pieces, cache.counts().bytes, cache.num_evicted()), (0, 0, 1));
    }
}
