//! Whether an engine takes images and videos, and which ones it refuses before they are admitted.

use std::ops::Range;

use crate::request::{MediumProblem, MediumRun, Refusal, Request};

/// Whether images and videos can be encoded here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MediaSupport {
    /// The model, or this copy of it, has no vision tower.
    #[default]
    TextModel,
    /// The model has one, the backend does not run it.
    TextBackend,
    Encodes(MediaLimits),
}

/// What an engine must know of the vision tower, and how much it may spend on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaLimits {
    /// Values of a patch.
    pub row_len: usize,
    /// `merge_size x merge_size` patches become one row.
    pub merge_size: usize,
    /// Temporal patches that attend to each other; a video is encoded in pieces of so many.
    pub segment_frames: usize,
    /// Device bytes of a row, at most.
    pub row_bytes: usize,
    /// Most bytes of encoded media on the device.
    pub cache_bytes: u64,
    /// Patches encoded ahead of one step, so that decoding rows do not wait for a whole video; one piece is always
    /// encoded.
    pub patches_per_step: usize,
}

impl MediaSupport {
    pub(super) fn check(&self, request: &Request) -> Result<(), Refusal> {
        if request.media.is_empty() {
            return Ok(());
        }
        match self {
            MediaSupport::TextModel => Err(Refusal::TextModel),
            MediaSupport::TextBackend => Err(Refusal::TextBackend),
            MediaSupport::Encodes(limits) => limits.check(request),
        }
    }

    pub(super) fn limits(&self) -> Option<&MediaLimits> {
        match self {
            MediaSupport::Encodes(limits) => Some(limits),
            MediaSupport::TextModel | MediaSupport::TextBackend => None,
        }
    }
}

impl MediaLimits {
    /// Rows that so many frames of a grid become.
    pub(super) fn rows(&self, [_, h, w]: [u32; 3], frames: usize) -> usize {
        frames * (h as usize / self.merge_size) * (w as usize / self.merge_size)
    }

    /// Temporal patches of each piece of a grid.
    pub(super) fn pieces(&self, [t, ..]: [u32; 3]) -> impl Iterator<Item = Range<usize>> {
        let (frames, most) = (t as usize, self.segment_frames);
        (0..frames).step_by(most).map(move |first| first..frames.min(first + most))
    }

    fn check(&self, request: &Request) -> Result<(), Refusal> {
        let mut runs: Vec<(MediumRun, usize)> = Vec::new();
        for (index, medium) in request.media.iter().enumerate() {
            self.check_shape(medium).map_err(|problem| Refusal::Medium { index, problem })?;
            let prompt_tokens = request.prompt.len();
            check_runs(&medium.runs, prompt_tokens).map_err(|problem| Refusal::Medium { index, problem })?;
            runs.extend(medium.runs.iter().map(|run| (*run, index)));
        }
        runs.sort_by_key(|(run, _)| run.first_position);
        check_order(&runs)
    }

    fn check_shape(&self, medium: &crate::request::Medium) -> Result<(), MediumProblem> {
        let ([t, h, w], merge) = (medium.grid, self.merge_size);
        let ragged = [h, w].into_iter().any(|side| !(side as usize).is_multiple_of(merge));
        if medium.row_len != self.row_len {
            return Err(MediumProblem::RowLen { row_len: medium.row_len, wanted: self.row_len });
        }
        if t == 0 || h == 0 || w == 0 || ragged {
            return Err(MediumProblem::Grid { t, h, w, merge });
        }
        // Three u32 may overflow 64 bits.
        let patches = u64::from(t).saturating_mul(u64::from(h)).saturating_mul(u64::from(w));
        let wanted = patches.saturating_mul(self.row_len as u64);
        if medium.patches.len() as u64 != wanted {
            return Err(MediumProblem::Values { values: medium.patches.len(), wanted });
        }
        let rows = patches / (merge * merge) as u64;
        let positions = medium.runs.iter().map(|run| u64::from(run.len)).sum();
        if rows != positions {
            return Err(MediumProblem::Runs { positions, rows });
        }
        let largest = self.pieces(medium.grid).map(|frames| self.rows(medium.grid, frames.len())).max();
        let bytes = largest.unwrap_or(0) as u64 * self.row_bytes as u64;
        if bytes > self.cache_bytes {
            return Err(MediumProblem::TooLarge { bytes, cache_bytes: self.cache_bytes });
        }
        Ok(())
    }
}

/// Runs of all media by position, with the index of their medium: none overlaps another, and no medium begins before the
/// one before it has ended (or two requests could each hold what the other waits for).
fn check_order(runs: &[(MediumRun, usize)]) -> Result<(), Refusal> {
    let mut left: Vec<usize> = Vec::new();
    for pair in runs.windows(2) {
        let ((before, last), (MediumRun { first_position, .. }, index)) = (pair[0], pair[1]);
        if before.end() > u64::from(first_position) {
            return Err(Refusal::Medium { index, problem: MediumProblem::Overlap { first_position } });
        }
        if last != index {
            left.push(last);
        }
        if left.contains(&index) {
            return Err(Refusal::Medium { index, problem: MediumProblem::Interleaved { first_position } });
        }
    }
    Ok(())
}

/// In order, not empty, inside the prompt.
fn check_runs(runs: &[MediumRun], prompt_tokens: usize) -> Result<(), MediumProblem> {
    let mut end = 0;
    for &run in runs {
        if run.len == 0 || u64::from(run.first_position) < end || run.end() > prompt_tokens as u64 {
            let MediumRun { first_position, len } = run;
            return Err(MediumProblem::Place { first_position, len, prompt_tokens });
        }
        end = run.end();
    }
    Ok(())
}
