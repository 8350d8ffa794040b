//! What a plugin answers, and what is checked about it: statuses, sentences, room not to be overrun.

use std::sync::Arc;

use crate::backend::{Error, Result};
use crate::crossing::{self, Struct};
use crate::types::{STATUS_FATAL, STATUS_OK, STATUS_UNSUPPORTED, Text};

const LONGEST_SENTENCE: usize = 2048;

/// Room for the sentence that comes with a status. Boxed once and reused, so that serving does not allocate.
pub(super) struct Sentence {
    buffer: Box<[u8; LONGEST_SENTENCE]>,
    text: Text,
}

impl Sentence {
    pub(super) fn new() -> Self {
        Sentence {
            buffer: Box::new([0; LONGEST_SENTENCE]),
            text: Text { data: std::ptr::null_mut(), capacity: 0, len: 0 },
        }
    }

    /// The pointer to pass, with the room empty.
    pub(super) fn text(&mut self) -> *mut Text {
        // A length without a text must not show the sentence before.
        self.buffer[0] = 0;
        self.text = crossing::text_of(self.buffer.as_mut_slice());
        &raw mut self.text
    }

    pub(super) fn or(&self, nothing: &str) -> String {
        let said = crossing::line_in(self.buffer.as_slice(), &self.text);
        if said.is_empty() { nothing.to_owned() } else { said }
    }

    /// A status as a result; one that does not exist is Fatal.
    pub(super) fn outcome(&self, backend: &Arc<str>, entry: &str, status: i32) -> Result<()> {
        match status {
            STATUS_OK => Ok(()),
            STATUS_UNSUPPORTED => Err(Error::Unsupported(
                self.or(&format!("backend {backend} refused {entry} without a reason")),
            )),
            STATUS_FATAL => {
                Err(Error::Fatal(self.or(&format!("backend {backend} died in {entry} without a reason"))))
            }
            other => Err(Error::Fatal(format!(
                "backend {backend} answered status {other} from {entry}; only 0, 1 and 2 exist"
            ))),
        }
    }
}

const SENTINEL: u8 = 0xA5;

/// A struct for a plugin to fill, with a margin behind it that must stay untouched.
#[repr(C)]
pub(super) struct Guarded<T: Struct> {
    pub value: T,
    margin: [u8; 256],
}

impl<T: Struct> Guarded<T> {
    /// All zero except `size`.
    pub(super) fn new() -> Self {
        // SAFETY: all-zero bytes are a valid `T` and its first field is `u32 size` (contract of `Struct`).
        let value = unsafe {
            let mut value: T = std::mem::zeroed();
            (&raw mut value).cast::<u32>().write(size_of::<T>() as u32);
            value
        };
        Guarded { value, margin: [SENTINEL; 256] }
    }

    pub(super) fn pointer(&mut self) -> *mut T {
        // Derived from the whole, so that an overrun into the margin stays inside one object.
        (&raw mut *self).cast()
    }

    /// Whether the plugin kept to the room it was given.
    pub(super) fn check(&self, backend: &Arc<str>, entry: &str) -> Result<()> {
        let given = size_of::<T>();
        // SAFETY: the first field is `u32 size` (contract of `Struct`).
        let size = unsafe { (&raw const self.value).cast::<u32>().read() } as usize;
        if size > given {
            return Err(Error::Fatal(format!(
                "backend {backend} says {} has size {size} after {entry}; it was given {given} bytes",
                T::NAME
            )));
        }
        if self.margin.iter().any(|byte| *byte != SENTINEL) {
            return Err(Error::Fatal(format!(
                "backend {backend} wrote past the {given} bytes of {} in {entry}",
                T::NAME
            )));
        }
        Ok(())
    }
}
