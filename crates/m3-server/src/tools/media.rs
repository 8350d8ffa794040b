//! `m3 media inspect`: what an image or video becomes before the model sees it, in numbers and as a picture.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use m3_media::geometry::Geometry;
use m3_media::policy::Remote;
use m3_media::prepare::{self, Prepared};
use m3_media::sample::Sampling;
use m3_media::size::{FRAME_SIDE, IMAGE_SIDE, Rule, Size};
use m3_media::{Fetcher, Limits, Policy, Source, Wanted, digest, sniff, view};

use crate::args::Parsed;
use crate::vision::MediaKind;

/// What was asked for.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Also chooses the long-side rule.
    pub max_long_side: Option<u64>,
    /// The long-side rule with its own sides.
    pub long_side: bool,
    pub sampling: Sampling,
}

/// What a medium becomes.
pub struct Inspected {
    /// For people.
    pub report: String,
    /// The patches as a PNG file.
    pub png: Vec<u8>,
}

pub(super) fn run(parsed: &Parsed) -> anyhow::Result<()> {
    let [action, place] = parsed.words.as_slice() else {
        bail!("give what to look at: m3 media inspect FILE|URL");
    };
    ensure!(action == "inspect", "\"{action}\" is nothing that m3 media does; try m3 media inspect FILE|URL");
    let request = request(parsed)?;
    let bytes = read(place)?;
    let inspected = inspect(&bytes, &request)?;
    let mut out = std::io::stdout().lock();
    std::io::Write::write_all(&mut out, inspected.report.as_bytes())?;
    if let Some(file) = parsed.value("out") {
        std::fs::write(file, &inspected.png).with_context(|| format!("cannot write {file}"))?;
    }
    Ok(())
}

fn request(parsed: &Parsed) -> anyhow::Result<Request> {
    let number = |name: &str| -> anyhow::Result<Option<f64>> {
        let Some(text) = parsed.value(name) else { return Ok(None) };
        Ok(Some(text.parse().with_context(|| format!("--{name} is \"{text}\"; expected a number"))?))
    };
    let whole = |name: &str| -> anyhow::Result<Option<u64>> {
        let Some(text) = parsed.value(name) else { return Ok(None) };
        Ok(Some(text.parse().with_context(|| format!("--{name} is \"{text}\"; expected a whole number"))?))
    };
    let rule = parsed.value("media-size-rule").unwrap_or("area");
    ensure!(
        ["area", "long-side"].contains(&rule),
        "--media-size-rule is \"{rule}\"; expected area, long-side"
    );
    let default = Sampling::default();
    Ok(Request {
        max_long_side: whole("max-long-side-pixel")?,
        long_side: rule == "long-side",
        sampling: Sampling { fps: number("fps")?.unwrap_or(default.fps), max_frames: whole("max-frames")? },
    })
}

/// A file of this machine, or whatever else a request could name. Whoever types the address has chosen the host;
/// private addresses stay refused.
fn read(place: &str) -> anyhow::Result<Vec<u8>> {
    if Path::new(place).exists() {
        return std::fs::read(place).with_context(|| format!("cannot read {place}"));
    }
    let scheme = place.split_once(':').map(|(scheme, _)| scheme.to_ascii_lowercase());
    let known = scheme.is_some_and(|scheme| ["http", "https", "data"].contains(&scheme.as_str()));
    ensure!(known, "there is no file {place}, and it is no http, https or data address");
    let source = Source::parse(place)?;
    let wanted = if sniff_name(place) { Wanted::Video } else { Wanted::Image };
    let policy = Policy { remote: Remote::Any, ..Policy::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(async { Fetcher::new(policy)?.fetch(&source, wanted).await })?.to_vec())
}

/// Only chooses the limit on bytes; what the bytes are is read from the bytes.
fn sniff_name(place: &str) -> bool {
    [".mp4", ".mov", ".mkv", ".webm", ".avi"].iter().any(|end| place.to_ascii_lowercase().contains(end))
}

/// Decodes and prepares bytes as a server would.
///
/// # Errors
/// What a server would say about the medium.
pub fn inspect(bytes: &[u8], request: &Request) -> anyhow::Result<Inspected> {
    let (geometry, limits) = (Geometry::default(), Limits::default());
    let kind = if sniff::video(bytes).is_ok() { MediaKind::Video } else { MediaKind::Image };
    let rule = match (request.max_long_side, request.long_side, kind) {
        (Some(side), ..) => Rule::long_side(side, geometry.unit())?,
        (None, false, MediaKind::Image) => Rule::IMAGE,
        (None, false, MediaKind::Video) => Rule::VIDEO,
        (None, true, MediaKind::Image) => Rule::LongSide { max_side: IMAGE_SIDE },
        (None, true, MediaKind::Video) => Rule::LongSide { max_side: FRAME_SIDE },
    };
    let file = digest::of_file(bytes);
    let mut report = String::new();
    let prepared = match kind {
        MediaKind::Image => {
            let picture = m3_media::decode_image(bytes, &limits)?;
            writeln!(report, "image       {}", picture.size())?;
            prepare::image(&picture, &file, rule, &geometry, usize::MAX)?
        }
        MediaKind::Video => video(bytes, (rule, request.sampling), &limits, &mut report)?,
    };
    describe(&prepared, rule, &geometry, &mut report)?;
    Ok(Inspected { report, png: view::png(&view::view(&prepared, &geometry))? })
}

fn video(
    bytes: &[u8],
    (rule, sampling): (Rule, Sampling),
    limits: &Limits,
    report: &mut String,
) -> anyhow::Result<Prepared> {
    sampling.check()?;
    let mut unfit = None;
    let clip = m3_media::decode_video(bytes, limits, |video| {
        sampling.choose(video, limits.max_chosen_frames).unwrap_or_else(|error| {
            unfit = Some(error);
            Vec::new()
        })
    });
    if let Some(error) = unfit {
        return Err(error.into());
    }
    let clip = clip?;
    let from = clip.frames.first().context("the video has no frame")?.size();
    let seconds = clip.total_frames as f64 / clip.fps;
    writeln!(
        report,
        "video       {from}, {} frames at {:.3} a second, {seconds:.2} s",
        clip.total_frames, clip.fps
    )?;
    writeln!(report, "frames      {}", list(&clip.frame_indices))?;
    let digest = digest::of_file(bytes);
    Ok(prepare::video(&clip, (&digest, from), (rule, sampling), &Geometry::default(), usize::MAX)?)
}

fn describe(prepared: &Prepared, rule: Rule, geometry: &Geometry, report: &mut String) -> std::fmt::Result {
    let [times, rows, columns] = prepared.grid;
    let to = Size { height: rows * geometry.patch, width: columns * geometry.patch };
    let rule = match rule {
        Rule::Area { max_pixels } => format!("area, at most {max_pixels} pixels"),
        Rule::LongSide { max_side } => format!("long side, at most {max_side} pixels"),
    };
    writeln!(report, "rule        {rule}")?;
    writeln!(report, "resized to  {to}")?;
    writeln!(report, "grid        {times} x {rows} x {columns} patches of {0} x {0}", geometry.patch)?;
    if !prepared.timestamps.is_empty() {
        writeln!(report, "times       {} s", list(&prepared.timestamps))?;
        writeln!(report, "tokens      {} in each of {times} temporal patches", prepared.tokens_per_time)?;
    }
    // Each run stands between two brackets; the text of times depends on the tokenizer.
    writeln!(report, "tokens      {}, and {} brackets", prepared.tokens(), 2 * times)?;
    let digest: String = prepared.digest.iter().map(|byte| format!("{byte:02x}")).collect();
    writeln!(report, "digest      {digest}")
}

fn list<T: ToString>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn png(width: u32, height: u32) -> Vec<u8> {
        let picture = m3_media::Picture { width, height, rgb: vec![90; (width * height * 3) as usize] };
        view::png(&picture).expect("a PNG")
    }

    #[test]
    fn an_image_is_described_and_drawn() {
        let inspected = inspect(&png(640, 480), &Request::default()).expect("an image");
        for line in [
            "image       640x480\n",
            "rule        area, at most 451584 pixels\n",
            "resized to  644x476\n",
            "grid        1 x 34 x 46 patches of 14 x 14\n",
            "tokens      391, and 2 brackets\n",
        ] {
            assert!(inspected.report.contains(line), "{line}{}", inspected.report);
        }
        assert!(m3_media::decode_image(&inspected.png, &Limits::default()).is_ok());
        let request = Request { max_long_side: Some(252), ..Request::default() };
        let inspected = inspect(&png(640, 480), &request).expect("an image");
        assert!(inspected.report.contains("resized to  252x196\n"), "{}", inspected.report);
        let request = Request { long_side: true, ..Request::default() };
        let inspected = inspect(&png(1024, 768), &request).expect("an image");
        assert!(inspected.report.contains("tokens      999,"), "{}", inspected.report);
    }

    #[test]
    fn what_cannot_be_prepared_says_why() {
        let error = |bytes: &[u8], request: &Request| match inspect(bytes, request) {
            Ok(inspected) => panic!("{}", inspected.report),
            Err(error) => error.to_string(),
        };
        assert!(error(&png(1, 201), &Request::default()).contains("the limit is 200 times"));
        let request = Request { max_long_side: Some(100), ..Request::default() };
        assert!(error(&png(9, 9), &request).starts_with("max_long_side_pixel is 100"));
        assert!(!error(b"no picture", &Request::default()).is_empty());
    }
}
