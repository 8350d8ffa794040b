//! From answer events to wire chunks, once for streams and whole answers of both routes.

mod chat;
mod completion;
mod tally;
mod tokens;

use serde::Serialize;

use crate::error::ApiError;
use crate::generate::ChoiceEvent;
pub use chat::ChatShape;
pub use completion::{CompletionShape, Echo};
pub use tally::Tally;
pub use tokens::TokenNames;

/// What every chunk of a response repeats.
#[derive(Clone, Debug)]
pub struct Head {
    pub id: String,
    pub created: u64,
    pub model: String,
}

/// Turns the events of one request into chunks.
pub trait Shape: Send + 'static {
    /// A chunk on the wire.
    type Chunk: Serialize + Send;
    /// A whole answer on the wire.
    type Whole: Serialize;

    /// Chunks for an event of answer `index`; an error ends the request.
    fn event(&mut self, index: usize, event: ChoiceEvent) -> Result<Vec<Self::Chunk>, ApiError>;
    /// After the last event: the chunk with the usage, when it was asked for.
    fn usage_chunk(&self) -> Option<Self::Chunk>;
    /// Adds a chunk to the whole answer, instead of sending it.
    fn fold(&mut self, chunk: Self::Chunk);
    /// Counts tokens of answers that were made and are not given.
    fn add_unseen(&mut self, _completion_tokens: u32, _reasoning_tokens: u32) {}
    /// After the last event: the fold of all chunks.
    fn whole(self) -> Self::Whole;
}
