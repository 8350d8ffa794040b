//! OpenAI's wire: what clients send and what they get. Nothing here knows the engine; limits come in as numbers.

pub mod accepted;
pub mod chat_request;
pub mod chat_response;
pub mod completion_request;
pub mod completion_response;
pub mod constraint;
pub mod fields;
pub mod generation;
pub mod prompt_scores;
pub mod reasoning;
pub mod refused;
pub mod stop_cause;
pub mod thinking;
mod token_lists;
pub mod tool_choice;
pub mod usage;
pub mod words;

#[cfg(test)]
mod tests;
