//! OpenAI's wire: what clients send and what they get. Nothing here knows the engine; limits come in as numbers.

pub mod chat_request;
pub mod chat_response;
pub mod completion_request;
pub mod completion_response;
pub mod fields;
pub mod generation;
pub mod reasoning;
pub mod refused;
pub mod thinking;
pub mod usage;

#[cfg(test)]
mod tests;
