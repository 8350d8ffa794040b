//! Which engine requests go by which name, so that a caller can abort what it knows only by the name in a header or a
//! body. Names may be shared; each is forgotten with its request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use m3_core::request::RequestId;

/// All names in use.
#[derive(Clone, Default)]
pub struct Running(Arc<Mutex<HashMap<String, Vec<RequestId>>>>);

/// Keeps names until it is dropped.
pub struct Registered {
    running: Running,
    names: Vec<(String, Vec<RequestId>)>,
}

impl Running {
    /// Notes requests under their names.
    pub fn register(&self, names: Vec<(String, Vec<RequestId>)>) -> Registered {
        self.with(|all| {
            names.iter().for_each(|(name, ids)| all.entry(name.clone()).or_default().extend(ids));
        });
        Registered { running: self.clone(), names }
    }

    /// The requests of a name.
    pub fn named(&self, name: &str) -> Vec<RequestId> {
        self.with(|all| all.get(name).cloned().unwrap_or_default())
    }

    /// Every named request.
    pub fn all(&self) -> Vec<RequestId> {
        self.with(|all| all.values().flatten().copied().collect())
    }

    fn with<R>(&self, act: impl FnOnce(&mut HashMap<String, Vec<RequestId>>) -> R) -> R {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let names = std::mem::take(&mut self.names);
        self.running.with(|all| {
            for (name, ids) in names {
                let Some(there) = all.get_mut(&name) else { continue };
                there.retain(|id| !ids.contains(id));
                if there.is_empty() {
                    all.remove(&name);
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_name_lives_as_long_as_its_last_request() {
        let running = Running::default();
        let first =
            running.register(vec![("a".into(), vec![RequestId(1)]), ("b".into(), vec![RequestId(2)])]);
        let second = running.register(vec![("a".into(), vec![RequestId(3)])]);
        assert_eq!(running.named("a"), [RequestId(1), RequestId(3)]);
        assert_eq!(running.all().len(), 3);
        drop(first);
        assert_eq!((running.named("a"), running.named("b")), (vec![RequestId(3)], vec![]));
        drop(second);
        assert!(running.all().is_empty());
    }
}
