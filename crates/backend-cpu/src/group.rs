//! Ranks of one process: a barrier that parks and exchanges over shared memory.
//!
//! Every rank calls the same exchanges in the same order. Each writes its part into a buffer of its own, all meet, then
//! each reads all parts; two sets of buffers alternate, so that one barrier per exchange is enough. Sums run in the order
//! of ranks and are therefore the same everywhere. A rank that is late, closed or dead poisons the group: everyone
//! gets a sentence that names it. Nothing spins.

#![expect(unsafe_code, reason = "parts are written before a barrier and read after it")]

use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use m3_abi::{Error, Result};

/// What all ranks of a group must have been opened with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) world: usize,
    pub(crate) expert_groups: usize,
    /// Taps are read with collectives of their own, so all ranks keep them or none.
    pub(crate) with_taps: bool,
    pub(crate) timeout: Duration,
}

struct Group {
    terms: Terms,
    state: Mutex<State>,
    changed: Condvar,
    /// `[set][rank]`
    parts: [Vec<UnsafeCell<Vec<f32>>>; 2],
}

// SAFETY: a part is written by its rank before a barrier and read by others after it; see `Member::exchange`.
unsafe impl Sync for Group {}

struct State {
    joined: Vec<bool>,
    arrived: Vec<bool>,
    generation: u64,
    fault: Option<String>,
}

static GROUPS: LazyLock<Mutex<HashMap<Vec<u8>, Weak<Group>>>> = LazyLock::new(Mutex::default);

/// One rank's place in a group. Dropping it closes the rank for the others.
pub(crate) struct Member {
    group: Arc<Group>,
    rank: usize,
    exchanges: u64,
}

/// Closes a rank from outside its thread, so that a thread that waits for peers ends.
pub(crate) struct Closer {
    group: Arc<Group>,
    rank: usize,
}

impl Drop for Closer {
    fn drop(&mut self) {
        self.group.poison(format!("rank {} was closed", self.rank));
    }
}

/// Opaque bytes for a new group: this process and a number.
pub(crate) fn new_comm_id() -> Vec<u8> {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    [u64::from(std::process::id()).to_le_bytes(), number.to_le_bytes()].concat()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that holds these locks can leave half a state behind.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Member {
    /// Joins the group of `comm_id`, making it when this rank is the first.
    pub(crate) fn join(comm_id: &[u8], rank: usize, terms: Terms) -> Result<Member> {
        if comm_id.len() != 16 || comm_id[..8] != u64::from(std::process::id()).to_le_bytes() {
            let reason =
                "the communicator id was not made by this process: ranks of the cpu backend are its threads";
            return Err(Error::Unsupported(reason.to_owned()));
        }
        let mut groups = lock(&GROUPS);
        groups.retain(|_, group| group.strong_count() > 0);
        let group = groups.get(comm_id).and_then(Weak::upgrade).unwrap_or_else(|| {
            let group = Arc::new(Group::new(terms.clone()));
            groups.insert(comm_id.to_vec(), Arc::downgrade(&group));
            group
        });
        if group.terms != terms {
            let reason = format!("rank {rank} was opened with {terms:?}, the group with {:?}", group.terms);
            return Err(Error::Unsupported(reason));
        }
        let mut state = lock(&group.state);
        match state.joined.get_mut(rank) {
            None => {
                return Err(Error::Unsupported(format!("rank {rank} does not exist: tp is {}", terms.world)));
            }
            Some(true) => {
                return Err(Error::Unsupported(format!("rank {rank} is already open in this group")));
            }
            Some(joined) => *joined = true,
        }
        drop(state);
        Ok(Member { group, rank, exchanges: 0 })
    }

    /// To be dropped before the rank's thread is waited for.
    pub(crate) fn closer(&self) -> Closer {
        Closer { group: self.group.clone(), rank: self.rank }
    }

    /// Publishes `mine` and hands all parts, in the order of ranks, to `read`.
    pub(crate) fn exchange<R>(&mut self, mine: &[f32], read: impl FnOnce(&[&[f32]]) -> R) -> Result<R> {
        let parts = &self.group.parts[(self.exchanges % 2) as usize];
        self.exchanges += 1;
        // SAFETY: others read this part only between the barrier below and the next one, which needs them all: nobody
        // can still be reading what was put here two exchanges ago.
        let part = unsafe { &mut *parts[self.rank].get() };
        part.clear();
        part.extend_from_slice(mine);
        self.group.meet(self.rank)?;
        // SAFETY: all ranks have written and will not write this set before they have met again.
        let all: Vec<&[f32]> = parts.iter().map(|part| unsafe { (*part.get()).as_slice() }).collect();
        Ok(read(&all))
    }

    /// Replaces `values` by the sum over ranks, the same bits on every rank.
    pub(crate) fn all_reduce(&mut self, values: &mut [f32]) -> Result<()> {
        use rayon::prelude::*;
        const CHUNK: usize = 16 * 1024;
        let mine = values.to_vec();
        let fits = self.exchange(&mine, |parts| {
            if parts.iter().any(|part| part.len() != values.len()) {
                return false;
            }
            values.par_chunks_mut(CHUNK).enumerate().for_each(|(index, chunk)| {
                let range = index * CHUNK..index * CHUNK + chunk.len();
                chunk.copy_from_slice(&parts[0][range.clone()]);
                for part in &parts[1..] {
                    chunk.iter_mut().zip(&part[range.clone()]).for_each(|(sum, value)| *sum += value);
                }
            });
            true
        })?;
        if fits { Ok(()) } else { Err(self.poison("was given another step than its peers")) }
    }

    /// Marks this rank as lost for everyone; returns the error to end with.
    pub(crate) fn poison(&self, why: &str) -> Error {
        Error::Fatal(self.group.poison(format!("rank {} {why}", self.rank)))
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.group.poison(format!("rank {} was closed", self.rank));
    }
}

impl Group {
    fn new(terms: Terms) -> Group {
        let parts = || (0..terms.world).map(|_| UnsafeCell::default()).collect();
        let state = State {
            joined: vec![false; terms.world],
            arrived: vec![false; terms.world],
            generation: 0,
            fault: None,
        };
        Group { state: Mutex::new(state), changed: Condvar::new(), parts: [parts(), parts()], terms }
    }

    /// The first fault wins and is returned.
    fn poison(&self, fault: String) -> String {
        let mut state = lock(&self.state);
        let fault = state.fault.get_or_insert(fault).clone();
        self.changed.notify_all();
        fault
    }

    /// Parks until all ranks are here, one of them is lost, or the deadline passes.
    fn meet(&self, rank: usize) -> Result<()> {
        let deadline = Instant::now() + self.terms.timeout;
        let mut state = lock(&self.state);
        let generation = state.generation;
        state.arrived[rank] = true;
        if state.arrived.iter().all(|&arrived| arrived) {
            state.arrived.fill(false);
            state.generation += 1;
            self.changed.notify_all();
        }
        while state.generation == generation {
            if let Some(fault) = &state.fault {
                return Err(Error::Fatal(fault.clone()));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let late = (0..self.terms.world).filter(|&rank| !state.arrived[rank]);
                let late = late.map(|rank| rank.to_string()).collect::<Vec<_>>().join(", ");
                let limit = self.terms.timeout.as_millis();
                drop(state);
                return Err(Error::Fatal(
                    self.poison(format!("rank {late} did not arrive within {limit} ms")),
                ));
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(world: usize, timeout_ms: u64) -> Terms {
        Terms { world, expert_groups: 1, with_taps: false, timeout: Duration::from_millis(timeout_ms) }
    }

    #[test]
    fn sums_are_the_same_on_every_rank() {
        let id = new_comm_id();
        let ranks = (0..3).map(|rank| {
            let mut member = Member::join(&id, rank, terms(3, 10_000)).unwrap();
            std::thread::spawn(move || {
                let mut sums = Vec::new();
                for round in 0..200 {
                    let mut values = vec![(rank + 1) as f32 * 0.1 + round as f32; 5];
                    member.all_reduce(&mut values).unwrap();
                    sums.push(values[4]);
                }
                // Closing is for the end: a peer may still be in its last exchange.
                (sums, member)
            })
        });
        let ranks: Vec<_> = ranks.collect();
        let results: Vec<_> = ranks.into_iter().map(|rank| rank.join().unwrap()).collect();
        assert_eq!(results[0].0, results[1].0);
        assert_eq!(results[0].0, results[2].0);
        let expected = (0.1f32 + 7.0) + (0.2 + 7.0) + (0.1 * 3.0 + 7.0);
        assert!((results[0].0[7] - expected).abs() < 1e-4);
    }

    #[test]
    fn a_late_rank_is_named() {
        let id = new_comm_id();
        let mut first = Member::join(&id, 0, terms(2, 30)).unwrap();
        let _second = Member::join(&id, 1, terms(2, 30)).unwrap();
        let error = first.all_reduce(&mut [1.0]).unwrap_err();
        assert_eq!(error, Error::Fatal("rank 1 did not arrive within 30 ms".to_owned()));
    }

    #[test]
    fn a_closed_rank_ends_the_others() {
        let id = new_comm_id();
        let mut first = Member::join(&id, 0, terms(2, 10_000)).unwrap();
        let second = Member::join(&id, 1, terms(2, 10_000)).unwrap();
        let waiting = std::thread::spawn(move || first.all_reduce(&mut [1.0]).unwrap_err());
        drop(second);
        assert_eq!(waiting.join().unwrap(), Error::Fatal("rank 1 was closed".to_owned()));
    }

    #[test]
    fn strangers_are_refused() {
        let id = new_comm_id();
        let _member = Member::join(&id, 0, terms(2, 10)).unwrap();
        let refused = |id: &[u8], rank, terms| Member::join(id, rank, terms).err().unwrap().to_string();
        assert_eq!(refused(&id, 0, terms(2, 10)), "rank 0 is already open in this group");
        assert_eq!(refused(&id, 2, terms(2, 10)), "rank 2 does not exist: tp is 2");
        assert!(refused(&id, 1, terms(4, 10)).starts_with("rank 1 was opened with"));
        assert!(refused(&[7; 16], 1, terms(2, 10)).contains("not made by this process"));
    }
}
