//! The masks that a request's own fields ask for. Long work (sorting the vocabulary) is done here, so call it off the
//! threads that serve sockets.

use std::sync::Arc;

use m3_core::text::parse::ThinkingMode;

use super::{AllowedTokens, BadWords, MaskSource, ThinkingBudget};
use crate::error::ApiError;
use crate::model::ServedModel;
use crate::openai::generation::Generation;

/// Masks of the fields that every route has.
pub fn of_generation(
    generation: &Generation,
    model: &ServedModel,
) -> Result<Vec<Arc<dyn MaskSource>>, ApiError> {
    let mut masks: Vec<Arc<dyn MaskSource>> = Vec::new();
    let vocab_size = model.limits.vocab_size as usize;
    if let Some(ids) = &generation.allowed_token_ids {
        if ids.iter().all(|id| model.forbidden_ids.binary_search(id).is_ok()) {
            let sentence =
                "allowed_token_ids has only ids that are never sampled (media slots and empty rows)";
            return Err(ApiError::invalid("allowed_token_ids", sentence));
        }
        masks.push(Arc::new(AllowedTokens::new(ids, vocab_size)));
    }
    if !generation.bad_words.is_empty() {
        let Some(text) = &model.text else {
            let sentence = "bad_words need a tokenizer, which this server runs without; send logit_bias";
            return Err(ApiError::unsupported("bad_words", sentence));
        };
        masks.push(Arc::new(BadWords::new(&generation.bad_words, text.token_index(), vocab_size)));
    }
    Ok(masks)
}

/// The mask of `thinking_token_budget`.
pub fn of_budget(
    budget: u32,
    mode: ThinkingMode,
    model: &ServedModel,
) -> Result<Arc<dyn MaskSource>, ApiError> {
    let vocab_size = model.limits.vocab_size as usize;
    let mask =
        model.text.as_ref().and_then(|text| ThinkingBudget::new(budget, mode, &text.markers, vocab_size));
    let mask = mask.ok_or_else(|| {
        let sentence = "thinking_token_budget needs a tokenizer with a closing marker for reasoning";
        ApiError::unsupported("thinking_token_budget", sentence)
    })?;
    Ok(Arc::new(mask))
}
