//! What a video is, asked of `ffprobe`: size, rate, number of frames. The limits are held elsewhere.

use super::child::{INPUT, Workplace};
use super::{Job, program};
use crate::error::{Error, Result};
use crate::picture::Meta;
use tokio::io::AsyncReadExt;

/// ffprobe answers five short lines; more is a file that plays tricks.
const MAX_ANSWER: u64 = 64 << 10;

/// Asks for the first stream that is a moving picture. Frames are counted as packets, which needs no decoding, or
/// `by_decoding`, which is exact.
pub(super) async fn probe(job: &Job<'_>, workplace: &Workplace, by_decoding: bool) -> Result<Meta> {
    let mut arguments = vec!["-v".to_owned(), "quiet".into()];
    arguments.extend(job.input_options());
    let entries = "stream=width,height,avg_frame_rate,r_frame_rate,nb_read_packets,nb_read_frames";
    for argument in [
        "-select_streams",
        "V:0",
        if by_decoding { "-count_frames" } else { "-count_packets" },
        "-show_entries",
        entries,
        "-of",
        "default=noprint_wrappers=1",
        "-i",
        INPUT,
    ] {
        arguments.push(argument.into());
    }
    let mut child = workplace.start(&program(job.limits, "ffprobe"), &arguments, job.limits)?;
    let mut answer = Vec::new();
    let output = child.stdout.take().ok_or_else(|| Error::Internal("ffprobe has no output".into()))?;
    let read = output.take(MAX_ANSWER).read_to_end(&mut answer).await;
    read.map_err(|error| Error::Internal(format!("cannot read from ffprobe: {error}")))?;
    let status =
        child.wait().await.map_err(|error| Error::Internal(format!("cannot wait for ffprobe: {error}")))?;
    if !status.success() {
        return Err(Error::Broken("the video cannot be read".into()));
    }
    parse(&String::from_utf8_lossy(&answer))
}

/// Reads lines of `name=value`.
fn parse(answer: &str) -> Result<Meta> {
    let value = |name: &str| {
        answer
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
            .filter(|value| *value != "N/A")
    };
    let number = |name: &str| value(name).and_then(|value| value.parse::<u64>().ok()).unwrap_or(0);
    let side = |name: &str| u32::try_from(number(name)).unwrap_or(u32::MAX);
    let fps = value("avg_frame_rate").and_then(rate).or_else(|| value("r_frame_rate").and_then(rate));
    let total_frames = number("nb_read_frames").max(number("nb_read_packets"));
    let meta = Meta { width: side("width"), height: side("height"), fps: fps.unwrap_or(0.0), total_frames };
    if meta.width == 0 || meta.height == 0 {
        return Err(Error::Broken("the video has no moving picture".into()));
    }
    if total_frames == 0 || fps.is_none() {
        return Err(Error::Broken(format!(
            "the video has {total_frames} frames and a rate of {} per second",
            meta.fps
        )));
    }
    Ok(meta)
}

/// A rate such as `30000/1001`, if it is one.
fn rate(text: &str) -> Option<f64> {
    let (above, below) = text.split_once('/').unwrap_or((text, "1"));
    let rate = above.parse::<f64>().ok()? / below.parse::<f64>().ok()?;
    (rate.is_finite() && rate > 0.0).then_some(rate)
}

#[cfg(test)]
mod tests {
    use super::{parse, rate};

    #[test]
    fn answers_are_read() {
        let text =
            "width=640\nheight=360\nr_frame_rate=60/1\navg_frame_rate=30000/1001\nnb_read_packets=100\n";
        let meta = parse(text).expect("an answer");
        assert_eq!((meta.width, meta.height, meta.total_frames), (640, 360, 100));
        assert!((meta.fps - 29.97003).abs() < 1e-5);
        let text = text.replace("30000/1001", "0/0");
        assert_eq!(parse(&text).expect("an answer").fps, 60.0);
    }

    #[test]
    fn answers_without_pictures_are_refused() {
        for (text, wanted) in [
            ("", "no moving picture"),
            ("width=2\nheight=N/A\n", "no moving picture"),
            ("width=2\nheight=2\navg_frame_rate=1/1\nnb_read_packets=0\n", "0 frames"),
            ("width=2\nheight=2\navg_frame_rate=0/0\nr_frame_rate=0/0\nnb_read_packets=9\n", "rate of 0"),
        ] {
            let sentence = parse(text).expect_err(text).to_string();
            assert!(sentence.contains(wanted), "{sentence}");
        }
        for text in ["0/0", "1/0", "-1/1", "", "x/1", "nan/1", "inf"] {
            assert_eq!(rate(text), None, "{text}");
        }
    }
}
