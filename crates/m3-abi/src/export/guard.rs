//! Panics become Fatal, and an instance that died stays dead.

use std::any::Any;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, TryLockError};

use crate::backend::{Backend, Error, Output, Result};
use crate::crossing;
use crate::types::{STATUS_FATAL, STATUS_OK, STATUS_UNSUPPORTED, Text};

/// What the opaque pointer of a Rust backend points to.
pub struct Instance(Mutex<State>);

pub(super) struct State {
    pub backend: Box<dyn Backend>,
    /// Reused by every `wait`, so that serving does not allocate.
    pub output: Output,
    /// Why every later call is refused.
    death: Option<String>,
}

impl Instance {
    pub(super) fn new(backend: Box<dyn Backend>) -> Self {
        Instance(Mutex::new(State { backend, output: Output::default(), death: None }))
    }
}

pub(super) fn missing(what: &str) -> Error {
    Error::Unsupported(format!("{what} is null"))
}

fn panic_sentence(entry: &str, payload: Box<dyn Any + Send>) -> String {
    let said = payload.downcast_ref::<String>().map(String::as_str);
    let said = said.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("(no text)");
    let sentence = format!("panicked in {entry}: {said}");
    // A payload may panic again when dropped; a dead instance may leak it.
    std::mem::forget(payload);
    sentence
}

fn caught<T>(entry: &str, body: impl FnOnce() -> Result<T>) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(outcome) => outcome,
        Err(payload) => Err(Error::Fatal(panic_sentence(entry, payload))),
    }
}

/// Runs the body of an entry; the outcome as a status, its sentence in `err`.
///
/// # Safety
/// `err` is null or writable, and so is the room it names.
pub(super) unsafe fn guard(entry: &str, err: *mut Text, body: impl FnOnce() -> Result<()>) -> i32 {
    let outcome = caught(entry, body);
    // SAFETY: promised by the caller.
    let err = unsafe { err.as_mut() };
    let (status, sentence) = match &outcome {
        Ok(()) => (STATUS_OK, ""),
        Err(Error::Unsupported(sentence)) => (STATUS_UNSUPPORTED, sentence.as_str()),
        Err(Error::Fatal(sentence)) => (STATUS_FATAL, sentence.as_str()),
    };
    if let Some(err) = err {
        // SAFETY: promised by the caller.
        unsafe { crossing::fill_text(err, sentence) };
    }
    status
}

/// [`guard`] for a call on an instance: refuses a dead or busy one, and notes its death.
///
/// # Safety
/// `handle` is null or came from `open` and was not closed; `err` as in [`guard`].
pub(super) unsafe fn on_instance(
    entry: &str,
    handle: *mut c_void,
    err: *mut Text,
    body: impl FnOnce(&mut State) -> Result<()>,
) -> i32 {
    let checked = || {
        // SAFETY: promised by the caller; only shared access is taken here.
        let instance =
            unsafe { handle.cast::<Instance>().as_ref() }.ok_or_else(|| missing("the instance"))?;
        let mut state = match instance.0.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                return Err(Error::Fatal(format!(
                    "{entry} was called while another call on this instance ran"
                )));
            }
        };
        if let Some(death) = &state.death {
            return Err(Error::Fatal(format!("this instance is dead: {death}")));
        }
        let outcome = caught(entry, || body(&mut state));
        if let Err(Error::Fatal(sentence)) = &outcome {
            state.death = Some(sentence.clone());
        }
        outcome
    };
    // SAFETY: promised by the caller.
    unsafe { guard(entry, err, checked) }
}
