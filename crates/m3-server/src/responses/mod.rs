//! OpenAI's Responses API over the chat path: items in, items out, events with names and numbers.
//!
//! A request becomes a chat request, so that every field means the same on both routes; an answer is read from the same
//! events. Here are the wire types of this API, their translation, and the memory of earlier responses.

pub mod events;
pub mod input;
pub mod items;
pub mod request;
pub mod shape;
pub mod store;
pub mod tools;

pub use request::ResponsesRequest;
pub use shape::ResponsesShape;
pub use store::{History, Store};
