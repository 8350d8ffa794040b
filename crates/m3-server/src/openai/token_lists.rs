//! Lists of token ids in a request: biases, stops and what alone may be sampled. Ids are checked against the
//! vocabulary here, so that the engine never sees a foreign one.

use std::collections::BTreeMap;

use super::fields::{Fields, short_number};
use crate::error::ApiError;

/// Added to the logits.
pub(super) fn logit_bias(fields: &mut Fields, vocab_size: u32) -> Result<Vec<(u32, f32)>, ApiError> {
    let given: BTreeMap<String, f64> = fields.take("logit_bias")?.unwrap_or_default();
    let mut biases = Vec::with_capacity(given.len());
    for (key, bias) in given {
        let token = key.trim().parse::<u32>().ok().filter(|token| *token < vocab_size).ok_or_else(|| {
            let message = format!("logit_bias names token \"{key}\"; ids go from 0 to {}", vocab_size - 1);
            ApiError::invalid("logit_bias", message)
        })?;
        if !(-100.0..=100.0).contains(&bias) {
            let message =
                format!("logit_bias of token {token} is {}; it must be from -100 to 100", short_number(bias));
            return Err(ApiError::invalid("logit_bias", message));
        }
        biases.push((token, bias as f32));
    }
    Ok(biases)
}

/// Ids that end the answer.
pub(super) fn stop_token_ids(fields: &mut Fields, vocab_size: u32) -> Result<Vec<u32>, ApiError> {
    Ok(ids(fields, "stop_token_ids", vocab_size)?.unwrap_or_default())
}

/// Ids of which every token of the answer is one. End-of-turn ids are not added: who wants the answer to be able to
/// end lists them.
pub(super) fn allowed_token_ids(fields: &mut Fields, vocab_size: u32) -> Result<Option<Vec<u32>>, ApiError> {
    match ids(fields, "allowed_token_ids", vocab_size)? {
        Some(list) if list.is_empty() => {
            let sentence = "allowed_token_ids is an empty list; at least one id is needed";
            Err(ApiError::invalid("allowed_token_ids", sentence))
        }
        list => Ok(list),
    }
}

fn ids(fields: &mut Fields, name: &str, vocab_size: u32) -> Result<Option<Vec<u32>>, ApiError> {
    let Some(ids) = fields.take::<Vec<u32>>(name)? else { return Ok(None) };
    match ids.iter().find(|id| **id >= vocab_size) {
        Some(id) => {
            let message = format!("{name} has {id}; ids go from 0 to {}", vocab_size - 1);
            Err(ApiError::invalid(name, message))
        }
        None => Ok(Some(ids)),
    }
}
