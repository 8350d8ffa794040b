//! The chosen frames, read from ffmpeg's output as a row of PPM pictures: each says its own size, so that a rotated or
//! oddly sized video needs no guess, and each is held against the limits before it is read.

use super::child::{INPUT, Workplace};
use super::{Job, program};
use crate::error::{Error, Result};
use crate::picture::Picture;
use crate::policy::Limits;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};

/// The longest header of a PPM picture that ffmpeg writes: `P6`, two sizes, `255`.
const MAX_HEADER_LINE: u64 = 32;

/// The frames of `chosen` (ascending) that exist, each as `each` left it.
pub(super) async fn read(
    job: &Job<'_>,
    workplace: &Workplace,
    chosen: &[u64],
    each: &mut impl FnMut(Picture) -> Result<Picture>,
) -> Result<Vec<Picture>> {
    let mut child = workplace.start(&program(job.limits, "ffmpeg"), &arguments(job, chosen), job.limits)?;
    let output = child.stdout.take().ok_or_else(|| Error::Internal("ffmpeg has no output".into()))?;
    let mut output = BufReader::with_capacity(1 << 16, output);
    let (mut frames, mut kept) = (Vec::new(), 0);
    while frames.len() < chosen.len() {
        let Some(frame) = next(&mut output, job.limits).await? else { break };
        let frame = each(frame)?;
        kept += frame.rgb.len() as u64;
        if kept > job.limits.max_clip_bytes {
            let what = format!("the {} chosen frames of the video in bytes", chosen.len());
            return Err(Error::too_large(what, kept, job.limits.max_clip_bytes));
        }
        frames.push(frame);
    }
    // A child that still writes has nothing to say that is wanted.
    drop(child);
    if frames.is_empty() {
        return Err(Error::Broken("the video cannot be decoded".into()));
    }
    Ok(frames)
}

/// `-reinit_filter 0`: a size that changes in the middle is scaled to the first one and does not restart the count.
fn arguments(job: &Job<'_>, chosen: &[u64]) -> Vec<String> {
    let mut arguments =
        ["-v", "quiet", "-nostdin", "-filter_threads", "1", "-reinit_filter", "0"].map(String::from).to_vec();
    arguments.extend(job.input_options());
    let (select, count) = (select(chosen), chosen.len().to_string());
    arguments.extend(["-max_pixels".into(), job.limits.max_frame_pixels.to_string()]);
    for argument in [
        "-i",
        INPUT,
        "-map",
        "0:V:0",
        "-vf",
        &select,
        "-fps_mode",
        "passthrough",
        "-frames:v",
        &count,
        "-sws_flags",
        "bicubic+accurate_rnd+full_chroma_int+bitexact",
        "-pix_fmt",
        "rgb24",
        "-c:v",
        "ppm",
        "-f",
        "image2pipe",
        "pipe:1",
    ] {
        arguments.push(argument.into());
    }
    arguments
}

/// The filter that lets the chosen frames pass; neighbours are written as one range.
fn select(chosen: &[u64]) -> String {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for index in chosen {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *index => *last = *index,
            _ => ranges.push((*index, *index)),
        }
    }
    let term = |(first, last): &(u64, u64)| match first == last {
        true => format!("eq(n,{first})"),
        false => format!("between(n,{first},{last})"),
    };
    format!("select='{}'", ranges.iter().map(term).collect::<Vec<_>>().join("+"))
}

/// The next picture, or none at the output's end; a picture that is cut off counts as the end.
async fn next(
    output: &mut (impl AsyncRead + AsyncBufReadExt + Unpin),
    limits: &Limits,
) -> Result<Option<Picture>> {
    let mut words = Vec::new();
    while words.len() < 4 {
        let mut line = String::new();
        let read = (&mut *output).take(MAX_HEADER_LINE).read_line(&mut line).await;
        if read.map_err(|_| wrong())? == 0 {
            return Ok(None);
        }
        words.extend(line.split_ascii_whitespace().map(String::from));
    }
    let side =
        |at: usize| words.get(at).and_then(|word: &String| word.parse::<u32>().ok()).filter(|side| *side > 0);
    let (Some("P6"), Some(width), Some(height), 4) =
        (words.first().map(String::as_str), side(1), side(2), words.len())
    else {
        return Err(wrong());
    };
    let pixels = u64::from(width) * u64::from(height);
    if pixels > limits.max_frame_pixels {
        let what = format!("a frame of the video of {width}x{height} in pixels");
        return Err(Error::too_large(what, pixels, limits.max_frame_pixels));
    }
    let mut rgb = vec![0; pixels as usize * 3];
    match output.read_exact(&mut rgb).await {
        Ok(_) => Ok(Some(Picture { width, height, rgb })),
        Err(_) => Ok(None),
    }
}

fn wrong() -> Error {
    Error::Internal("ffmpeg answers with something else than pictures".into())
}

#[cfg(test)]
mod tests {
    use super::{next, select};
    use crate::error::Kind;
    use crate::policy::Limits;

    #[test]
    fn neighbours_are_one_range() {
        assert_eq!(select(&[0]), "select='eq(n,0)'");
        assert_eq!(select(&[0, 30, 31, 32, 99]), "select='eq(n,0)+between(n,30,32)+eq(n,99)'");
    }

    #[tokio::test]
    async fn pictures_are_read_one_after_the_other() {
        let mut output: &[u8] = b"P6\n1 2\n255\nabcdefP6\n1 1\n255\nxyzP6\n1 1\n255\nx";
        let limits = Limits::default();
        let first = next(&mut output, &limits).await.expect("a picture").expect("a picture");
        assert_eq!((first.width, first.height, first.rgb.as_slice()), (1, 2, &b"abcdef"[..]));
        let second = next(&mut output, &limits).await.expect("a picture").expect("a picture");
        assert_eq!(second.rgb, b"xyz");
        assert_eq!(next(&mut output, &limits).await, Ok(None));
    }

    #[tokio::test]
    async fn sizes_are_checked_before_the_pixels() {
        let limits = Limits { max_frame_pixels: 99, ..Limits::default() };
        let mut output: &[u8] = b"P6\n10 10\n255\n";
        let error = next(&mut output, &limits).await.expect_err("too large");
        assert_eq!(error.kind(), Kind::TooLarge);
        let mut output: &[u8] = b"P5\n1 1\n255\nx";
        assert_eq!(next(&mut output, &limits).await.expect_err("no picture").kind(), Kind::Internal);
    }
}
