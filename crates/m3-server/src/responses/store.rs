//! Earlier responses, in memory and bounded by number and bytes; the oldest are forgotten first. What a caller may see
//! is what was made under its own key.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use indexmap::IndexMap;
use serde_json::Value;

use crate::routes::Caller;

/// A conversation up to one response: its items and, by reference, those of the responses before it. A later response
/// keeps its forerunners even when they are forgotten by name.
#[derive(Debug)]
pub struct History {
    parent: Option<Arc<History>>,
    /// Input and output, in order.
    own: Vec<Value>,
    bytes: usize,
    total: Arc<AtomicUsize>,
}

impl History {
    /// All items, the oldest first.
    pub fn items(&self) -> Vec<Value> {
        let mut chain = vec![self];
        while let Some(parent) = chain[chain.len() - 1].parent.as_deref() {
            chain.push(parent);
        }
        chain.iter().rev().flat_map(|history| history.own.iter().cloned()).collect()
    }
}

impl Drop for History {
    fn drop(&mut self) {
        self.total.fetch_sub(self.bytes, Ordering::Relaxed);
        // One by one: a chain of thousands would overflow the stack.
        let mut next = self.parent.take();
        while let Some(mut parent) = next.and_then(Arc::into_inner) {
            next = parent.parent.take();
        }
    }
}

/// What is kept of a response.
#[derive(Clone)]
pub struct Kept {
    /// The object as it is answered.
    pub response: Value,
    /// The request's own items.
    pub input: Vec<Value>,
    /// Absent while the response is in the making.
    pub history: Option<Arc<History>>,
    pub caller: Caller,
    /// Of a response in the background: how to follow and how to stop it.
    pub live: Option<Arc<Live>>,
}

/// A response in the background.
#[derive(Debug, Default)]
pub struct Live {
    events: Mutex<Vec<axum::body::Bytes>>,
    ended: std::sync::atomic::AtomicBool,
    changed: tokio::sync::Notify,
    pub stop: tokio::sync::Notify,
}

impl Live {
    /// Adds whole events, or the end.
    pub fn push(&self, frame: Option<axum::body::Bytes>) {
        match frame {
            Some(frame) => self.events.lock().unwrap_or_else(PoisonError::into_inner).push(frame),
            None => self.ended.store(true, Ordering::Release),
        }
        self.changed.notify_waiters();
    }

    /// Bytes of all events so far.
    pub fn bytes(&self) -> usize {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).iter().map(axum::body::Bytes::len).sum()
    }

    /// The frames from `at` on; waits for the first of them. `None` after the last.
    pub async fn after(&self, at: usize) -> Option<Vec<axum::body::Bytes>> {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let ended = self.ended.load(Ordering::Acquire);
            let frames: Vec<_> =
                self.events.lock().unwrap_or_else(PoisonError::into_inner).iter().skip(at).cloned().collect();
            match (frames.is_empty(), ended) {
                (false, _) => return Some(frames),
                (true, true) => return None,
                (true, false) => changed.await,
            }
        }
    }
}

/// All of them.
pub struct Store {
    kept: Mutex<IndexMap<String, Kept>>,
    /// Bytes of all histories.
    total: Arc<AtomicUsize>,
    max_responses: usize,
    max_bytes: usize,
}

impl Store {
    /// Zero responses keep nothing.
    pub fn new(max_responses: usize, max_bytes: usize) -> Self {
        Store { kept: Mutex::default(), total: Arc::default(), max_responses, max_bytes }
    }

    /// Whether anything is kept at all.
    pub fn is_on(&self) -> bool {
        self.max_responses > 0
    }

    /// The history that ends with these items. Its size is the length of its JSON, which is close enough, and
    /// `more_bytes` that are kept beside it.
    pub fn history(&self, parent: Option<Arc<History>>, own: Vec<Value>, more_bytes: usize) -> Arc<History> {
        let bytes = own.iter().map(|item| item.to_string().len()).sum::<usize>() + more_bytes;
        self.total.fetch_add(bytes, Ordering::Relaxed);
        Arc::new(History { parent, own, bytes, total: Arc::clone(&self.total) })
    }

    /// Keeps a response, and forgets the oldest ones that there is no room for. Those in the making stay.
    pub fn put(&self, id: &str, kept: Kept) {
        let mut all = self.lock();
        all.shift_remove(id);
        all.insert(id.to_owned(), kept);
        while all.len() > self.max_responses || self.total.load(Ordering::Relaxed) > self.max_bytes {
            let oldest = all.values().position(|kept| kept.history.is_some());
            let Some(oldest) = oldest.filter(|_| all.len() > 1) else { return };
            all.shift_remove_index(oldest);
        }
    }

    /// One of the caller's.
    pub fn get(&self, id: &str, caller: Caller) -> Option<Kept> {
        self.lock().get(id).filter(|kept| kept.caller == caller).cloned()
    }

    /// Forgets it; false when there is none.
    pub fn delete(&self, id: &str, caller: Caller) -> bool {
        let mut all = self.lock();
        let found = all.get(id).is_some_and(|kept| kept.caller == caller);
        found && all.shift_remove(id).is_some()
    }

    /// Those of the wanted items that are in any of the caller's responses, by id; found in one pass.
    pub fn items(&self, wanted: &HashSet<String>, caller: Caller) -> HashMap<String, Value> {
        let all = self.lock();
        let own = all.values().filter(|kept| kept.caller == caller);
        let items = own.filter_map(|kept| kept.history.as_ref()).flat_map(|history| &history.own);
        let id = |item: &Value| item.get("id").and_then(Value::as_str).map(str::to_owned);
        let found = items.filter_map(|item| Some((id(item).filter(|id| wanted.contains(id))?, item.clone())));
        found.collect()
    }

    fn lock(&self) -> MutexGuard<'_, IndexMap<String, Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Events after `starting_after`, for a caller who has seen the first ones. Frames hold whole events.
pub fn skip_to(frames: &[axum::body::Bytes], starting_after: Option<u64>) -> Vec<u8> {
    let text = frames.concat();
    let Some(seen) = starting_after else { return text };
    let text = String::from_utf8_lossy(&text);
    let events = text.split_inclusive("\n\n");
    let is_new = |event: &&str| {
        let data = event.lines().find_map(|line| line.strip_prefix("data: "));
        let number = data.and_then(|data| serde_json::from_str::<Numbered>(data).ok());
        number.is_none_or(|number| number.sequence_number > seen)
    };
    events.filter(is_new).collect::<String>().into_bytes()
}

#[derive(serde::Deserialize)]
struct Numbered {
    sequence_number: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn kept(store: &Store, parent: Option<Arc<History>>, text: &str) -> Kept {
        let history = store.history(parent, vec![json!({"id": text})], 0);
        Kept { response: json!({}), input: Vec::new(), history: Some(history), caller: Caller(0), live: None }
    }

    #[test]
    fn the_oldest_are_forgotten_and_their_bytes_come_back() {
        let store = Store::new(3, 1 << 20);
        for at in 0..5 {
            let name = format!("r{at}");
            store.put(&name, kept(&store, None, &name));
        }
        let there: Vec<bool> = (0..5).map(|at| store.get(&format!("r{at}"), Caller(0)).is_some()).collect();
        assert_eq!(there, [false, false, true, true, true]);
        assert_eq!(store.total.load(Ordering::Relaxed), 3 * json!({"id": "r0"}).to_string().len());
        let small = Store::new(100, 30);
        for at in 0..5 {
            small.put(&format!("r{at}"), kept(&small, None, "abcdefgh"));
        }
        assert!(small.total.load(Ordering::Relaxed) <= 30);
        assert!(small.get("r4", Caller(0)).is_some(), "the newest stays");
    }

    #[test]
    fn a_conversation_outlives_its_forgotten_beginning_and_long_ones_do_not_overflow() {
        let store = Store::new(2, usize::MAX);
        let mut last = None;
        for at in 0..100_000 {
            let next = kept(&store, last, &format!("i{at}"));
            last = next.history.clone();
            store.put(&format!("r{at}"), next);
        }
        let items = last.as_ref().map(|history| history.items()).unwrap_or_default();
        assert_eq!((items.len(), &items[0]), (100_000, &json!({"id": "i0"})));
        drop((store.delete("r99999", Caller(0)), store.delete("r99998", Caller(0)), last));
        assert_eq!(store.total.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn callers_see_their_own_only() {
        let store = Store::new(10, 1 << 20);
        store.put("r", kept(&store, None, "secret"));
        let wanted = HashSet::from(["secret".to_owned()]);
        assert_eq!(store.items(&wanted, Caller(0)).len(), 1);
        assert!(store.get("r", Caller(1)).is_none() && store.items(&wanted, Caller(1)).is_empty());
        assert!(!store.delete("r", Caller(1)) && store.delete("r", Caller(0)));
    }

    #[test]
    fn a_stream_is_resumed_after_the_event_that_was_seen_last() {
        let frame = |numbers: &[u64]| {
            let events = numbers.iter().map(|at| format!("event: x\ndata: {{\"sequence_number\":{at}}}\n\n"));
            axum::body::Bytes::from(events.collect::<String>())
        };
        let frames = [frame(&[0, 1]), frame(&[2, 3])];
        assert_eq!(skip_to(&frames, Some(1)), frame(&[2, 3]));
        assert_eq!(skip_to(&frames, Some(2)), frame(&[3]));
        assert_eq!(skip_to(&frames, None).len(), frames.concat().len());
    }
}
