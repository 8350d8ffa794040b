//! Videos through `ffmpeg` as a child process in a sandbox: asked first what the video is, then for exactly the frames
//! that were chosen, by index. The child's crash, greed or slowness ends that video and nothing else. No audio.

mod child;
mod frames;
mod probe;

use crate::error::{Error, Result};
use crate::picture::{Clip, Meta, Picture};
use crate::policy::Limits;
use crate::sniff::{self, VideoFormat};
use child::Workplace;
pub use child::confines_files;
use std::path::{Path, PathBuf};
use tokio::time::Instant;

/// Decodes the frames that `choose` picks, on the calling thread. Servers use [`decode`], which can be cancelled.
///
/// # Errors
/// As [`decode`].
pub fn decode_video(bytes: &[u8], limits: &Limits, choose: impl FnMut(&Meta) -> Vec<u64>) -> Result<Clip> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Error::Internal(format!("cannot wait for ffmpeg: {error}")))?;
    runtime.block_on(decode(bytes, limits, choose, Ok))
}

/// Decodes the frames that `choose` picks; `each` sees every frame as it comes and may shrink it, so that a long video
/// need not fit into memory at full size. Dropping the future kills the child and removes its files.
///
/// `choose` may be asked twice: containers miscount, and if the last chosen frame does not exist the frames are counted
/// by decoding them all.
///
/// # Errors
/// No ffmpeg, a format that is not read, a limit on bytes, pixels, frames, length or time, a broken video, and what
/// `each` returns.
pub async fn decode(
    bytes: &[u8],
    limits: &Limits,
    choose: impl FnMut(&Meta) -> Vec<u64>,
    each: impl FnMut(Picture) -> Result<Picture>,
) -> Result<Clip> {
    if bytes.len() as u64 > limits.max_video_bytes {
        return Err(Error::too_large("the video in bytes", bytes.len() as u64, limits.max_video_bytes));
    }
    let job = Job { format: sniff::video(bytes)?, limits, end: Instant::now() + limits.video_time };
    let late = || Error::Timeout { what: "decoding the video".into(), seconds: limits.video_time.as_secs() };
    tokio::time::timeout_at(job.end, job.run(bytes, choose, each)).await.unwrap_or_else(|_| Err(late()))
}

/// Programs that decoding videos needs and that are not there, in the words of `limits`.
pub fn missing_programs(limits: &Limits) -> Vec<PathBuf> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |program: &PathBuf| match program.parent() {
        Some(folder) if folder != Path::new("") => program.is_file(),
        _ => std::env::split_paths(&folders).any(|folder| folder.join(program).is_file()),
    };
    let wanted = ["ffmpeg", "ffprobe"].map(|name| program(limits, name));
    wanted.into_iter().filter(|program| !is_there(program)).collect()
}

/// A program of ffmpeg's family, beside the configured one if that has a folder.
fn program(limits: &Limits, name: &str) -> PathBuf {
    match (name, limits.ffmpeg.parent()) {
        ("ffmpeg", _) => limits.ffmpeg.clone(),
        (_, Some(folder)) if folder != Path::new("") => folder.join(name),
        _ => name.into(),
    }
}

/// What a video's children share.
struct Job<'a> {
    format: VideoFormat,
    limits: &'a Limits,
    end: Instant,
}

impl Job<'_> {
    async fn run(
        &self,
        bytes: &[u8],
        mut choose: impl FnMut(&Meta) -> Vec<u64>,
        mut each: impl FnMut(Picture) -> Result<Picture>,
    ) -> Result<Clip> {
        let workplace = Workplace::new(bytes).await?;
        let mut meta = self.probe(&workplace, false).await?;
        for counted in [false, true] {
            if counted {
                let exact = self.probe(&workplace, true).await?;
                if exact.total_frames == meta.total_frames {
                    break;
                }
                meta = exact;
            }
            let chosen = self.chosen(&meta, choose(&meta))?;
            let frames = frames::read(self, &workplace, &chosen, &mut each).await?;
            if frames.len() == chosen.len() {
                let Meta { fps, total_frames, .. } = meta;
                return Ok(Clip { frames, frame_indices: chosen, fps, total_frames });
            }
        }
        Err(Error::Broken("the video is broken: it ends before frames that it announces".into()))
    }

    /// Holds what the video says of itself against the limits.
    async fn probe(&self, workplace: &Workplace, by_decoding: bool) -> Result<Meta> {
        let meta = probe::probe(self, workplace, by_decoding).await?;
        let limits = self.limits;
        let pixels = u64::from(meta.width) * u64::from(meta.height);
        if pixels > limits.max_frame_pixels {
            let what = format!("a frame of the video of {}x{} in pixels", meta.width, meta.height);
            return Err(Error::too_large(what, pixels, limits.max_frame_pixels));
        }
        if meta.total_frames > limits.max_video_frames {
            return Err(Error::too_large("the video in frames", meta.total_frames, limits.max_video_frames));
        }
        let seconds = (meta.total_frames as f64 / meta.fps).ceil() as u64;
        if seconds > limits.max_video_seconds {
            return Err(Error::too_large("the video in seconds", seconds, limits.max_video_seconds));
        }
        Ok(meta)
    }

    /// The choice in ascending order, each frame once and all within the video.
    fn chosen(&self, meta: &Meta, mut chosen: Vec<u64>) -> Result<Vec<u64>> {
        chosen.sort_unstable();
        chosen.dedup();
        if chosen.len() as u64 > self.limits.max_chosen_frames {
            let count = chosen.len() as u64;
            return Err(Error::too_large(
                "the chosen frames of the video",
                count,
                self.limits.max_chosen_frames,
            ));
        }
        match chosen.last() {
            Some(last) if *last < meta.total_frames => Ok(chosen),
            Some(last) => Err(Error::Internal(format!(
                "frame {last} was chosen of a video of {} frames",
                meta.total_frames
            ))),
            None => Err(Error::Internal("no frame of the video was chosen".into())),
        }
    }

    /// Options before `-i` that both programs know: one demuxer, by name; no playlist, no other file, no network.
    fn input_options(&self) -> Vec<String> {
        let demuxer = match self.format {
            VideoFormat::Mov => "mov",
            VideoFormat::Matroska => "matroska",
            VideoFormat::Avi => "avi",
        };
        let options = ["-protocol_whitelist", "file", "-threads", "2", "-f", demuxer];
        options.iter().map(ToString::to_string).collect()
    }
}

#[cfg(test)]
mod tests;
