//! From the messages a client sent to messages the chat template renders faithfully.
//!
//! The template drops what it does not know (a late system message, a second one, unknown roles) and fails on shapes
//! that OpenAI clients send every day (`arguments` as text, `content: null` in a tool result). This module mends what
//! has one right reading and refuses the rest with 400 and the field's path; nothing is dropped silently.
//! It knows no template and no tokens.

mod message;
mod open;
mod parts;
mod results;
mod tools;

use serde_json::Value;

use crate::error::ApiError;
pub use message::{Call, Role, Turn};
pub use open::{check_open, last_is_partial};
pub use parts::Parts;
pub use tools::{check_tools, read_tools, valid_name};

use crate::vision::MediaPart;

/// A conversation that the template can render.
#[derive(Clone, Debug, PartialEq)]
pub struct Normalised {
    /// `root`? `system|developer`? then the rest; results in the order of their calls.
    pub messages: Vec<Value>,
    /// What the images and videos in them are, in the order in which they are rendered.
    pub media: Vec<MediaPart>,
}

/// Messages ready for the template.
pub fn normalise(messages: &[Value]) -> Result<Normalised, ApiError> {
    if messages.is_empty() {
        return Err(ApiError::invalid("messages", "messages is empty; at least one message is needed"));
    }
    let turns = messages.iter().enumerate().map(|(at, message)| message::read(message, at));
    let turns = turns.collect::<Result<Vec<Turn>, ApiError>>()?;
    let turns = merge_system(check_root(turns)?);
    let turns = results::pair(turns)?;
    let media = turns.iter().flat_map(|turn| turn.media.iter().map(|(_, part)| part.clone())).collect();
    Ok(Normalised { messages: turns.into_iter().map(Turn::into_value).collect(), media })
}

/// `root` outranks `system`, so it may only be the first message.
fn check_root(turns: Vec<Turn>) -> Result<Vec<Turn>, ApiError> {
    match turns.iter().skip(1).find(|turn| turn.role == Role::Root) {
        Some(turn) => {
            let param = format!("messages[{}].role", turn.at);
            Err(ApiError::invalid(param, "role \"root\" is only allowed in the first message"))
        }
        None => Ok(turns),
    }
}

/// The template has one place for system text. All of them are joined there, in order, an empty line between.
fn merge_system(turns: Vec<Turn>) -> Vec<Turn> {
    let is_system = |turn: &Turn| matches!(turn.role, Role::System | Role::Developer);
    let (system, mut rest): (Vec<Turn>, Vec<Turn>) = turns.into_iter().partition(is_system);
    let Some(first) = system.first() else { return rest };
    let texts = system.iter().map(|turn| turn.text.as_str()).filter(|text| !text.is_empty());
    let merged = Turn { text: texts.collect::<Vec<_>>().join("\n\n"), ..Turn::empty(first.role, first.at) };
    let place = usize::from(rest.first().is_some_and(|turn| turn.role == Role::Root));
    rest.insert(place, merged);
    rest
}

#[cfg(test)]
mod tests;
