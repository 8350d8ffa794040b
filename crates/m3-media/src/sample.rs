//! Which frames of a video the model sees, and what their times are called. Numbers only: no decoding.

use crate::error::{Error, Result};
use crate::picture::Meta;

/// What a request asks of a video's frames.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Frames per second to look at.
    pub fps: f64,
    /// Most frames; evenly fewer are taken of a longer choice. `None` = all.
    pub max_frames: Option<u64>,
}

impl Default for Sampling {
    /// One frame a second, as the model was trained.
    fn default() -> Self {
        Sampling { fps: 1.0, max_frames: None }
    }
}

/// Lowest and highest rate that may be asked for.
pub const FPS: std::ops::RangeInclusive<f64> = 0.2..=5.0;

/// Two times that differ by no more than this many seconds are one.
const SLACK: f64 = 1e-4;

impl Sampling {
    /// Refuses rates and counts outside their limits.
    pub fn check(&self) -> Result<()> {
        if !FPS.contains(&self.fps) {
            let (least, most) = (FPS.start(), FPS.end());
            return Err(Error::Shape(format!("fps is {}; it must be from {least} to {most}", self.fps)));
        }
        if self.max_frames == Some(0) {
            return Err(Error::Shape("max_frames is 0; at least one frame is needed".to_owned()));
        }
        Ok(())
    }

    /// Indices of the frames to look at, ascending, the last frame of the video always among them; an error when
    /// they are more than `limit`.
    pub fn choose(&self, video: &Meta, limit: u64) -> Result<Vec<u64>> {
        self.check()?;
        if video.total_frames == 0 || !(video.fps.is_finite() && video.fps > 0.0) {
            let (frames, fps) = (video.total_frames, video.fps);
            let sentence =
                format!("the video says it has {frames} frames at {fps} a second; it needs some of both");
            return Err(Error::Shape(sentence));
        }
        let most = self.max_frames.map_or(limit, |asked| asked.min(limit));
        let mut chosen = vec![0u64];
        loop {
            let last = chosen[chosen.len() - 1];
            let due = ((last as f64 / video.fps + 1.0 / self.fps - SLACK) * video.fps).ceil() as u64;
            let next = due.max(last + 1);
            if next >= video.total_frames {
                break;
            }
            chosen.push(next);
            // A header may claim any number of frames; the list must not grow with it.
            if chosen.len() as u64 > MOST_CONSIDERED.max(limit) {
                return Err(too_many(video, limit));
            }
        }
        keep_last(&mut chosen, video);
        if let Some(asked) = self.max_frames {
            chosen = thinned(chosen, asked);
        }
        if chosen.len() as u64 > most { Err(too_many(video, limit)) } else { Ok(chosen) }
    }
}

/// Longest list that `max_frames` may thin out: five hours at the highest rate.
const MOST_CONSIDERED: u64 = 90_000;

fn too_many(video: &Meta, limit: u64) -> Error {
    let seconds = video.total_frames as f64 / video.fps;
    Error::Shape(format!(
        "the video is {seconds:.1} s long, more than the limit of {limit} frames at the rate that was asked for: ask \
         for a lower fps or give max_frames"
    ))
}

/// How a video ends is seen whatever the rate, as in training.
fn keep_last(chosen: &mut Vec<u64>, video: &Meta) {
    let (last, end) = (chosen[chosen.len() - 1], video.total_frames - 1);
    if end as f64 / video.fps - last as f64 / video.fps > SLACK {
        chosen.push(end);
    }
}

/// `most` of the frames, evenly from the first on, and the last one.
fn thinned(chosen: Vec<u64>, most: u64) -> Vec<u64> {
    if chosen.len() as u64 <= most {
        return chosen;
    }
    let last = chosen[chosen.len() - 1];
    if most == 1 {
        return vec![last];
    }
    let step = chosen.len() as f64 / (most - 1) as f64;
    let kept = (0..most - 1).map(|at| chosen[(at as f64 * step) as usize]);
    kept.chain([last]).collect()
}

/// The text before each temporal patch: seconds of its first frame, one decimal, halves of the binary value to even.
pub fn timestamps(frame_indices: &[u64], fps: f64, temporal: u32) -> Vec<String> {
    let firsts = frame_indices.iter().step_by(temporal as usize);
    firsts.map(|&index| format!("{:.1}", index as f64 / fps)).collect()
}

#[cfg(test)]
mod tests;
