//! From decoded pictures to what an engine takes: size chosen, resized, cut into patches, digested. Fetching and
//! decoding come before, placing in a prompt after.

use std::sync::Arc;

use crate::digest::{FileDigest, Recipe};
use crate::error::{Error, Result};
use crate::geometry::Geometry;
use crate::patches::patches;
use crate::picture::{Clip, Picture};
use crate::resize::resize;
use crate::sample::{Sampling, timestamps};
use crate::size::{Rule, Size, check_volume};

/// An image or video as the vision tower reads it.
#[derive(Clone)]
pub struct Prepared {
    /// See [`Recipe::digest`].
    pub digest: [u8; 32],
    /// `t * h * w` rows of `row_len` values.
    pub patches: Arc<[f32]>,
    pub row_len: usize,
    /// t, h, w in patches.
    pub grid: [u32; 3],
    /// Tokens of each temporal patch; there are `grid[0]` of them.
    pub tokens_per_time: usize,
    /// Seconds of each temporal patch, as the prompt names them; empty for an image.
    pub timestamps: Vec<String>,
}

impl std::fmt::Debug for Prepared {
    /// Sizes only: pixels belong into no log.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Prepared({:?}, {} tokens)", self.grid, self.tokens())
    }
}

impl Prepared {
    /// Rows that the tower gives back.
    pub fn tokens(&self) -> usize {
        self.grid[0] as usize * self.tokens_per_time
    }
}

/// Sizes and counts of a medium, known before any pixel is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    pub from: Size,
    pub to: Size,
    pub grid: [u32; 3],
    pub tokens: usize,
}

impl Plan {
    /// Of `frames` frames (1 for an image) of size `from`; an error when the rule refuses it or when it would be more
    /// than `max_tokens` tokens.
    pub fn new(
        frames: usize,
        from: Size,
        rule: Rule,
        geometry: &Geometry,
        max_tokens: usize,
    ) -> Result<Plan> {
        let to = rule.apply(from, geometry.unit())?;
        check_volume(frames, to)?;
        let grid = geometry.grid(frames, to);
        let tokens = grid[0] as usize * geometry.tokens_per_time(grid);
        if tokens > max_tokens {
            return Err(Error::Shape(format!(
                "{frames} frames of {to} would be {tokens} tokens; this server accepts contexts of {max_tokens}"
            )));
        }
        Ok(Plan { from, to, grid, tokens })
    }
}

/// Prepares an image.
pub fn image(
    picture: &Picture,
    file: &FileDigest,
    rule: Rule,
    geometry: &Geometry,
    max_tokens: usize,
) -> Result<Prepared> {
    let plan = Plan::new(1, picture.size(), rule, geometry, max_tokens)?;
    let frames = [resize(picture, plan.to)?];
    let recipe = Recipe { from: plan.from, to: plan.to, rule, geometry, frames: None };
    Ok(prepared(&plan, &frames, recipe.digest(file), geometry))
}

/// Prepares the chosen frames of a video. They are of the size `from`, or resized from it already.
pub fn video(
    clip: &Clip,
    (file, from): (&FileDigest, Size),
    (rule, sampling): (Rule, Sampling),
    geometry: &Geometry,
    max_tokens: usize,
) -> Result<Prepared> {
    if clip.frames.is_empty() || clip.frames.len() != clip.frame_indices.len() {
        let (frames, indices) = (clip.frames.len(), clip.frame_indices.len());
        return Err(Error::Shape(format!("the video has {frames} frames for {indices} places")));
    }
    let plan = Plan::new(clip.frames.len(), from, rule, geometry, max_tokens)?;
    let fits = |frame: &&Picture| frame.size() == from || frame.size() == plan.to;
    if let Some(frame) = clip.frames.iter().find(|frame| !fits(frame)) {
        let size = frame.size();
        return Err(Error::Shape(format!("a frame of the video is {size}, the first one was {from}")));
    }
    let frames = clip.frames.iter().map(|frame| resize(frame, plan.to)).collect::<Result<Vec<_>>>()?;
    let chosen = Some((sampling, &clip.frame_indices[..]));
    let recipe = Recipe { from, to: plan.to, rule, geometry, frames: chosen };
    let times = timestamps(&clip.frame_indices, clip.fps, geometry.temporal);
    Ok(Prepared { timestamps: times, ..prepared(&plan, &frames, recipe.digest(file), geometry) })
}

fn prepared(plan: &Plan, frames: &[Picture], digest: [u8; 32], geometry: &Geometry) -> Prepared {
    Prepared {
        digest,
        patches: patches(frames, plan.to, geometry),
        row_len: geometry.row_len(),
        grid: plan.grid,
        tokens_per_time: geometry.tokens_per_time(plan.grid),
        timestamps: Vec::new(),
    }
}
