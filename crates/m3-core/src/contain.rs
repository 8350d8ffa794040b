//! Turns a panic of foreign or threaded code into a sentence, at the few places where one fault must not become
//! everyone's silence.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `work`; a panic becomes "`who` panicked: message". The state `work` touched must not be used afterwards
/// for anything but being torn down.
pub(crate) fn contain<T>(who: &str, work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| format!("{who} panicked: {}", message(&*payload)))
}

fn message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
