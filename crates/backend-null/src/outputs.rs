//! Results of steps between `submit` and `wait`, and how they are laid out for the host.

use m3_abi::types::NONE;
use m3_abi::{Error, Output, Result};

use crate::distribution::{log_probability, rank, token_at};

/// One logits position.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub index: u32,
    pub token: u32,
    pub favourite: u32,
    pub faults: u32,
    /// `None`: no log-probabilities at all; else that many alternatives.
    pub num_logprobs: Option<u32>,
}

/// Fills the slots; every other slot is left alone.
pub(crate) fn fill(slots: &[Slot], vocab: u32, output: &mut Output) -> Result<()> {
    let room = output.tokens.len();
    for slot in slots {
        if slot.index as usize >= room {
            return Err(Error::Unsupported(format!(
                "output slot {} is needed; the host gave {room}",
                slot.index
            )));
        }
        let wanted = slot.num_logprobs.unwrap_or(0) as usize;
        if wanted > output.top_capacity {
            let given = output.top_capacity;
            return Err(Error::Unsupported(format!(
                "{wanted} alternatives are needed; the host gave {given}"
            )));
        }
    }
    for slot in slots {
        fill_slot(slot, vocab, output);
    }
    Ok(())
}

fn fill_slot(slot: &Slot, vocab: u32, output: &mut Output) {
    let index = slot.index as usize;
    output.tokens[index] = slot.token;
    output.faults[index] = slot.faults;
    output.logprobs[index] = f32::NEG_INFINITY;
    output.ranks[index] = NONE;
    let width = output.top_capacity;
    let top_ids = &mut output.top_ids[index * width..][..width];
    let top_logprobs = &mut output.top_logprobs[index * width..][..width];
    top_ids.fill(NONE);
    top_logprobs.fill(f32::NEG_INFINITY);
    let (Some(wanted), 0) = (slot.num_logprobs, slot.faults) else { return };
    let place = rank(slot.token, slot.favourite, vocab);
    output.logprobs[index] = log_probability(place, vocab);
    output.ranks[index] = place;
    for (place, (id, logprob)) in (0..wanted.min(vocab)).zip(top_ids.iter_mut().zip(top_logprobs)) {
        *id = token_at(place, slot.favourite, vocab);
        *logprob = log_probability(place, vocab);
    }
}
