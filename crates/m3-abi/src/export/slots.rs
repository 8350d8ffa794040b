//! The host's output arrays, as the backend's [`Output`] and back.

use crate::backend::{Error, Output, Result};
use crate::types::OutputArgs;

/// # Safety
/// `pointer` is null or holds `count` values.
pub(super) unsafe fn room<'a, T>(pointer: *mut T, count: usize, what: &str) -> Result<&'a mut [T]> {
    if count == 0 {
        return Ok(&mut []);
    }
    if pointer.is_null() {
        return Err(Error::Unsupported(format!("{what} is null but has room for {count} values")));
    }
    // SAFETY: promised by the caller.
    Ok(unsafe { std::slice::from_raw_parts_mut(pointer, count) })
}

/// The caller's arrays of an [`OutputArgs`].
pub(super) struct Slots<'a> {
    tokens: &'a mut [u32],
    logprobs: &'a mut [f32],
    faults: &'a mut [u32],
    ranks: &'a mut [u32],
    top_ids: &'a mut [u32],
    top_logprobs: &'a mut [f32],
}

impl Slots<'_> {
    /// # Safety
    /// The pointers of `args` are null or have the room that `args` says.
    pub(super) unsafe fn of(args: &OutputArgs) -> Result<Self> {
        let count = args.capacity as usize;
        let Some(top) = count.checked_mul(args.top_capacity as usize) else {
            return Err(Error::Unsupported(format!(
                "m3_output_args says {} alternatives for {count} slots",
                args.top_capacity
            )));
        };
        // SAFETY: promised by the caller.
        unsafe {
            Ok(Slots {
                tokens: room(args.tokens, count, "tokens")?,
                logprobs: room(args.logprobs, count, "logprobs")?,
                faults: room(args.faults, count, "faults")?,
                ranks: room(args.ranks, count, "ranks")?,
                top_ids: room(args.top_ids, top, "top_ids")?,
                top_logprobs: room(args.top_logprobs, top, "top_logprobs")?,
            })
        }
    }

    /// What the caller has, so that a rank other than 0 can leave it alone.
    pub(super) fn read(&self, output: &mut Output, top_capacity: usize) {
        fn take<T: Copy>(to: &mut Vec<T>, from: &[T]) {
            to.clear();
            to.extend_from_slice(from);
        }
        take(&mut output.tokens, self.tokens);
        take(&mut output.logprobs, self.logprobs);
        take(&mut output.faults, self.faults);
        take(&mut output.ranks, self.ranks);
        take(&mut output.top_ids, self.top_ids);
        take(&mut output.top_logprobs, self.top_logprobs);
        output.top_capacity = top_capacity;
        output.device_time_us = 0;
    }

    pub(super) fn write(&mut self, output: &Output) -> Result<()> {
        fn give<T: Copy>(to: &mut [T], from: &[T], what: &str) -> Result<()> {
            if from.len() != to.len() {
                let (has, room) = (from.len(), to.len());
                return Err(Error::Fatal(format!(
                    "the backend made {has} {what} where the host has room for {room}"
                )));
            }
            to.copy_from_slice(from);
            Ok(())
        }
        give(self.tokens, &output.tokens, "tokens")?;
        give(self.logprobs, &output.logprobs, "logprobs")?;
        give(self.faults, &output.faults, "faults")?;
        give(self.ranks, &output.ranks, "ranks")?;
        give(self.top_ids, &output.top_ids, "top_ids")?;
        give(self.top_logprobs, &output.top_logprobs, "top_logprobs")
    }
}
