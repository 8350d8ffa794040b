//! A table row: what the device remembers about one sequence between steps.

use m3_abi::types::{NONE, RowBind};

use crate::sampling::{RowSampling, SamplingSettings, TokenCounts};

use super::BatchError;

/// State of a bound row.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// Settings, biases and penalty counts.
    pub sampling: RowSampling,
    /// Page ids by entry; entry `b` holds positions `b * page_tokens ..`.
    pub pages: Vec<u32>,
    /// Position after the last one computed; `None` until the first sequence after a bind.
    pub(super) next_position: Option<u32>,
    /// The last step sampled this row's final position, so that a chained sequence may follow.
    pub(super) samples: bool,
    /// What it sampled, once the table was told.
    pub(super) last_sampled: Option<u32>,
    /// (position, token) of samples counted in `sampling.counts`, kept only when penalties are on: a later step that
    /// starts earlier takes rejected ones back.
    counted: Vec<(u32, u32)>,
}

impl Row {
    /// A fresh row from its settings and the ids penalties look at.
    pub(super) fn bind(bind: &RowBind, history: &[u32], biases: &[m3_abi::types::TokenBias]) -> Self {
        let settings = SamplingSettings::from_bind(bind);
        let counts = if settings.has_penalties() {
            let (prompt, output) = history.split_at(bind.prompt_len as usize);
            TokenCounts::new(prompt, output)
        } else {
            TokenCounts::default()
        };
        Row { sampling: RowSampling { settings, biases: biases.to_vec(), counts }, ..Row::default() }
    }

    /// Takes back counts of samples that the host did not keep: the input now starts at `first_position`, and what
    /// stands at an already counted position is `tokens`, whatever was sampled there.
    pub(super) fn settle(&mut self, first_position: u32, tokens: &[u32]) {
        let counts = &mut self.sampling.counts;
        self.counted.retain_mut(|(position, token)| {
            if *position < first_position {
                return true;
            }
            counts.remove_output(*token);
            if *position > first_position {
                return false;
            }
            if tokens[0] != NONE {
                *token = tokens[0];
            }
            counts.add_output(*token);
            true
        });
    }

    /// Counts a sample that will stand at `position`.
    pub(super) fn count(&mut self, position: u32, token: u32) {
        if self.sampling.settings.has_penalties() {
            self.sampling.counts.add_output(token);
            self.counted.push((position, token));
        }
    }
}

/// Refuses settings outside their range by name.
pub(super) fn check_settings(bind: &RowBind, max_logprobs: u32) -> Result<(), BatchError> {
    let unit = |value: f32| (0.0..=1.0).contains(&value);
    let checks: [(&'static str, f32, bool, &'static str); 6] = [
        (
            "temperature",
            bind.temperature,
            bind.temperature.is_finite() && bind.temperature >= 0.0,
            "a finite number of at least 0",
        ),
        ("top_p", bind.top_p, unit(bind.top_p), "between 0 and 1"),
        ("min_p", bind.min_p, unit(bind.min_p), "between 0 and 1"),
        (
            "repetition_penalty",
            bind.repetition_penalty,
            bind.repetition_penalty.is_finite() && bind.repetition_penalty > 0.0,
            "a finite number above 0",
        ),
        ("presence_penalty", bind.presence_penalty, bind.presence_penalty.is_finite(), "finite"),
        ("frequency_penalty", bind.frequency_penalty, bind.frequency_penalty.is_finite(), "finite"),
    ];
    for (field, value, ok, allowed) in checks {
        if !ok {
            return Err(BatchError::Setting { row: bind.row, field, value, allowed });
        }
    }
    if bind.num_logprobs != NONE && bind.num_logprobs > max_logprobs {
        return Err(BatchError::Logprobs { row: bind.row, num_logprobs: bind.num_logprobs, max_logprobs });
    }
    Ok(())
}
