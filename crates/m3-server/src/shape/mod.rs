//! From answer events to wire chunks, once for streams and whole answers of both routes.

mod chat;
mod completion;
mod tally;
mod tokens;

use serde::Serialize;

use crate::error::{ApiError, ErrorBody};
use crate::generate::ChoiceEvent;
pub use chat::ChatShape;
pub use completion::{CompletionShape, Echo};
pub use tally::Tally;
pub use tokens::TokenNames;
pub(crate) use tokens::finite;

/// What every chunk of a response repeats.
#[derive(Clone, Debug)]
pub struct Head {
    pub id: String,
    pub created: u64,
    pub model: String,
}

/// The name of a server-sent event; most APIs have none.
pub trait Named {
    /// What stands behind `event:`.
    fn name(&self) -> Option<&str> {
        None
    }
}

/// Turns the events of one request into chunks.
pub trait Shape: Send + Unpin + 'static {
    /// A chunk on the wire.
    type Chunk: Serialize + Named + Send;
    /// A whole answer on the wire.
    type Whole: Serialize;
    /// Bytes behind the last event.
    const LAST: &'static [u8] = b"data: [DONE]\n\n";

    /// Before anything is known of the answers.
    fn open(&mut self) -> Vec<Self::Chunk> {
        Vec::new()
    }
    /// Chunks for an event of answer `index`; an error ends the request.
    fn event(&mut self, index: usize, event: ChoiceEvent) -> Result<Vec<Self::Chunk>, ApiError>;
    /// After the last event of a good stream: the chunk with the usage, when it was asked for, and the like.
    fn close(&mut self) -> Vec<Self::Chunk>;
    /// After the last event of a stream that broke.
    fn broken(&mut self, error: &ApiError) -> Vec<Self::Chunk>;
    /// What breaks a silence; a comment unless the API has an event for it.
    fn heartbeat(&self) -> &'static [u8] {
        b": heartbeat\n\n"
    }
    /// Adds a chunk to the whole answer, instead of sending it.
    fn fold(&mut self, chunk: Self::Chunk);
    /// Counts tokens of answers that were made and are not given.
    fn add_unseen(&mut self, _completion_tokens: u32, _reasoning_tokens: u32) {}
    /// After the last event: the fold of all chunks.
    fn whole(self) -> Self::Whole;
}

/// A chunk of OpenAI's older routes, whose streams end with the bare error when they break.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum OrError<T> {
    Chunk(T),
    Error(ErrorBody),
}

impl<T> Named for OrError<T> {}
