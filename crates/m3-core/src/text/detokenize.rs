//! Incremental detokenisation: token ids to text, never half a character. Markers come out as their text;
//! recognising them is the parser's work.

use std::sync::Arc;

use super::tokenizer::Tokenizer;

/// Turns one request's ids into text as they come. Holds at most three bytes of an unfinished character.
pub struct Detokenizer {
    tokenizer: Arc<Tokenizer>,
    pending: PendingCharacter,
}

impl Detokenizer {
    /// A detokenizer at the start of an answer.
    pub fn new(tokenizer: Arc<Tokenizer>) -> Self {
        Self { tokenizer, pending: PendingCharacter::default() }
    }

    /// The text that `id` completes; empty while a character is unfinished. Bytes that can no longer become
    /// a character turn into U+FFFD at once. An id without a token stands for nothing.
    pub fn push(&mut self, id: u32) -> String {
        let mut out = String::new();
        self.pending.push(self.tokenizer.token_bytes(id).unwrap_or_default(), &mut out);
        out
    }

    /// The end of the answer: an unfinished character becomes U+FFFD.
    pub fn finish(&mut self) -> String {
        let mut out = String::new();
        self.pending.finish(&mut out);
        out
    }
}

/// The valid beginning of a character whose other bytes are still to come.
#[derive(Default)]
struct PendingCharacter {
    bytes: [u8; 4],
    length: usize,
}

impl PendingCharacter {
    fn push(&mut self, mut bytes: &[u8], out: &mut String) {
        // First finish or refute the character already begun, byte by byte; it takes at most three more.
        while self.length > 0 {
            let Some((&byte, rest)) = bytes.split_first() else {
                return;
            };
            self.bytes[self.length] = byte;
            match std::str::from_utf8(&self.bytes[..=self.length]) {
                Ok(character) => {
                    out.push_str(character);
                    self.length = 0;
                    bytes = rest;
                }
                Err(error) if error.error_len().is_none() => {
                    self.length += 1;
                    bytes = rest;
                }
                Err(_) => {
                    // `byte` does not continue it, so it is looked at again below.
                    out.push(char::REPLACEMENT_CHARACTER);
                    self.length = 0;
                }
            }
        }
        let mut chunks = bytes.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            out.push_str(chunk.valid());
            let invalid = chunk.invalid();
            let unfinished = chunks.peek().is_none()
                && std::str::from_utf8(invalid).is_err_and(|error| error.error_len().is_none());
            if unfinished {
                self.bytes[..invalid.len()].copy_from_slice(invalid);
                self.length = invalid.len();
            } else if !invalid.is_empty() {
                out.push(char::REPLACEMENT_CHARACTER);
            }
        }
    }

    fn finish(&mut self, out: &mut String) {
        if std::mem::take(&mut self.length) > 0 {
            out.push(char::REPLACEMENT_CHARACTER);
        }
    }
}
