//! Tool results and the calls they answer. Ids are not rendered, so the order must be right before the template.

use super::message::{Call, Role, Turn};
use crate::error::ApiError;

/// Checks that every call is answered once and puts results into the order of their calls.
/// Calls of the very last message need no answers. Calls without ids are taken in order, unchecked; results without
/// ids are taken in order when there is one for each call.
pub(super) fn pair(turns: Vec<Turn>) -> Result<Vec<Turn>, ApiError> {
    let mut paired = Vec::with_capacity(turns.len());
    let mut rest = turns.into_iter().peekable();
    while let Some(turn) = rest.next() {
        if turn.role == Role::Tool {
            let param = format!("messages[{}].role", turn.at);
            let sentence =
                format!("{param} is \"tool\", but no tool call of an assistant message comes before it");
            return Err(ApiError::invalid(param, sentence));
        }
        if turn.calls.is_empty() {
            paired.push(turn);
            continue;
        }
        let mut results = Vec::new();
        while let Some(result) = rest.next_if(|next| next.role == Role::Tool) {
            results.push(result);
        }
        let is_last = results.is_empty() && rest.peek().is_none();
        let in_order =
            results.len() == turn.calls.len() && results.iter().all(|result| result.call_id.is_none());
        if !is_last && !in_order && turn.calls.iter().all(|call| call.id.is_some()) {
            results = in_call_order(&turn, results)?;
        }
        paired.push(turn);
        paired.append(&mut results);
    }
    Ok(paired)
}

fn in_call_order(turn: &Turn, results: Vec<Turn>) -> Result<Vec<Turn>, ApiError> {
    let mut slots: Vec<Option<Turn>> = turn.calls.iter().map(|_| None).collect();
    check_unique(turn)?;
    for result in results {
        let param = format!("messages[{}].tool_call_id", result.at);
        let Some(id) = &result.call_id else {
            return Err(ApiError::invalid(&param, format!("{param} is missing")));
        };
        let Some(place) = turn.calls.iter().position(|call| call.id.as_ref() == Some(id)) else {
            let sentence = format!("{param} is \"{id}\", which no call of messages[{}] has", turn.at);
            return Err(ApiError::invalid(&param, sentence));
        };
        if slots[place].is_some() {
            return Err(ApiError::invalid(&param, format!("{param}: the call \"{id}\" is answered twice")));
        }
        slots[place] = Some(result);
    }
    let missing = turn.calls.iter().zip(&slots).find(|(_, slot)| slot.is_none()).map(|(call, _)| call);
    match missing {
        Some(Call { id, name, .. }) => {
            let id = id.as_deref().unwrap_or("");
            let sentence =
                format!("the call \"{id}\" of {name} in messages[{}] has no tool message", turn.at);
            Err(ApiError::invalid("messages", sentence))
        }
        None => Ok(slots.into_iter().flatten().collect()),
    }
}

fn check_unique(turn: &Turn) -> Result<(), ApiError> {
    for (at, call) in turn.calls.iter().enumerate() {
        if turn.calls[..at].iter().any(|earlier| earlier.id == call.id) {
            let param = format!("messages[{}].tool_calls[{at}].id", turn.at);
            let id = call.id.as_deref().unwrap_or("");
            return Err(ApiError::invalid(&param, format!("{param} is \"{id}\", which an earlier call has")));
        }
    }
    Ok(())
}
