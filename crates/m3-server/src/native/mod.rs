//! SGLang's native `/generate`, as its benchmark and its router speak it, over the completion path.

pub mod request;
pub mod response;
pub mod shape;

pub use request::GenerateRequest;
pub use shape::GenerateShape;
