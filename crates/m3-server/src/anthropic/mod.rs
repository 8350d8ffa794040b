//! Anthropic's Messages API over the chat path: blocks in, blocks out.
//!
//! A request becomes a chat request, and an answer is read from the same events. Here are the wire types of this API,
//! their translation, and its shape of errors.

pub mod blocks;
pub mod error;
mod image;
pub mod request;
pub mod response;
pub mod shape;

pub use request::MessagesRequest;
pub use shape::MessagesShape;
