//! Videos whose every frame says its number, made by the installed ffmpeg; without one the tests say so and pass.

use super::{decode, decode_video};
use crate::error::{Error, Kind};
use crate::picture::{Meta, Picture};
use crate::policy::Limits;
use std::process::{Command, Stdio};
use std::time::Duration;

/// A video of grey frames, the n-th with the value 8n (+16), by the installed ffmpeg.
fn video(frames: u32, options: &[&str], container: &str) -> Option<Vec<u8>> {
    let folder = tempfile::tempdir().expect("a folder");
    let output = folder.path().join(format!("video.{container}"));
    let source = "color=black:size=64x48:rate=10,geq=lum='16+8*N':cb=128:cr=128";
    let status = Command::new("ffmpeg")
        .args(["-v", "error", "-nostdin", "-f", "lavfi", "-i", source, "-frames:v", &frames.to_string()])
        .args(options)
        .arg(&output)
        .stdin(Stdio::null())
        .status();
    if !status.is_ok_and(|status| status.success()) {
        m3_testdata::skip(&format!("no ffmpeg here makes {container} with {options:?}"));
        return None;
    }
    Some(std::fs::read(output).expect("a video"))
}

fn mp4() -> Option<Vec<u8>> {
    video(25, &["-c:v", "libx264", "-pix_fmt", "yuv420p", "-bf", "2"], "mp4")
}

/// Which frame of [`video`] a picture is: luma 16..235 was spread to 0..255.
fn number(picture: &Picture) -> u64 {
    let mean = picture.rgb.iter().map(|value| f64::from(*value)).sum::<f64>() / picture.rgb.len() as f64;
    (mean * 219.0 / 255.0 / 8.0).round() as u64
}

#[test]
fn chosen_frames_come_by_their_index_from_every_container() {
    let cases: [(&str, &[&str]); 6] = [
        ("mp4", &["-c:v", "libx264", "-pix_fmt", "yuv420p", "-bf", "2"]),
        (
            "mp4",
            &["-c:v", "libx264", "-pix_fmt", "yuv420p", "-movflags", "+faststart+frag_keyframe+empty_moov"],
        ),
        ("mov", &["-c:v", "mpeg4", "-q:v", "2"]),
        ("mkv", &["-c:v", "libx265", "-pix_fmt", "yuv420p", "-x265-params", "log-level=none"]),
        ("webm", &["-c:v", "libvpx-vp9", "-pix_fmt", "yuv420p"]),
        ("avi", &["-c:v", "mjpeg", "-q:v", "2"]),
    ];
    for (container, options) in cases {
        let Some(bytes) = video(25, options, container) else { continue };
        let mut seen = None;
        let clip = decode_video(&bytes, &Limits::default(), |meta: &Meta| {
            seen = Some(*meta);
            vec![24, 0, 7, 8, 9, 10, 20, 7]
        })
        .expect(container);
        let meta = seen.expect("the choice was asked");
        assert_eq!((meta.width, meta.height, meta.total_frames, meta.fps), (64, 48, 25, 10.0), "{container}");
        assert_eq!(clip.frame_indices, [0, 7, 8, 9, 10, 20, 24], "{container}");
        assert_eq!((clip.fps, clip.total_frames), (10.0, 25));
        assert_eq!(clip.frames.iter().map(number).collect::<Vec<_>>(), clip.frame_indices, "{container}");
        assert!(clip.frames.iter().all(|frame| (frame.width, frame.height) == (64, 48)));
    }
}

#[test]
fn a_rotated_video_is_set_upright() {
    let Some(bytes) = mp4() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let (plain, turned) = (folder.path().join("a.mp4"), folder.path().join("b.mp4"));
    std::fs::write(&plain, bytes).expect("written");
    let status = Command::new("ffmpeg")
        .args(["-v", "error", "-nostdin", "-i"])
        .arg(&plain)
        .args(["-c", "copy", "-metadata:s:v:0", "rotate=90"])
        .arg(&turned)
        .status();
    assert!(status.expect("ffmpeg").success());
    let bytes = std::fs::read(&turned).expect("a video");
    if !bytes.windows(8).any(|window| window == [0, 0, 0, 0, 0, 1, 0, 0]) {
        println!("this ffmpeg may write rotations otherwise");
    }
    let clip = decode_video(&bytes, &Limits::default(), |_| vec![0, 24]).expect("a clip");
    assert_eq!((clip.frames[0].width, clip.frames[0].height), (48, 64));
    assert_eq!(clip.frames.iter().map(number).collect::<Vec<_>>(), [0, 24]);
}

/// Frames 0..5 are 64x48, 5..10 are 96x80: later frames keep their number and get the first ones' size.
#[test]
fn a_size_that_changes_in_the_middle_does_not_restart_the_count() {
    let folder = tempfile::tempdir().expect("a folder");
    let raw = folder.path().join("joined.h264");
    let mut joined = Vec::new();
    for (size, first) in [("64x48", 0), ("96x80", 5)] {
        let source = format!("color=black:size={size}:rate=10,geq=lum='16+8*(N+{first})':cb=128:cr=128");
        let part = folder.path().join("part.h264");
        let made = Command::new("ffmpeg")
            .args(["-v", "error", "-nostdin", "-y", "-f", "lavfi", "-i", &source, "-frames:v", "5"])
            .args(["-c:v", "libx264", "-bf", "0", "-pix_fmt", "yuv420p"])
            .arg(&part)
            .status();
        if !made.is_ok_and(|status| status.success()) {
            m3_testdata::skip("no ffmpeg here makes H.264");
            return;
        }
        joined.extend(std::fs::read(part).expect("a part"));
    }
    std::fs::write(&raw, joined).expect("written");
    let video = folder.path().join("joined.mkv");
    let joining = ["-v", "error", "-nostdin", "-f", "h264", "-framerate", "10", "-i"];
    let status = Command::new("ffmpeg").args(joining).arg(&raw).args(["-c", "copy"]).arg(&video).status();
    assert!(status.expect("ffmpeg").success());
    let bytes = std::fs::read(video).expect("a video");
    let clip = decode_video(&bytes, &Limits::default(), |_| vec![1, 3, 8]).expect("a clip");
    assert_eq!(clip.frames.iter().map(number).collect::<Vec<_>>(), [1, 3, 8]);
    assert!(clip.frames.iter().all(|frame| (frame.width, frame.height) == (64, 48)));
}

#[test]
fn limits_are_held_before_frames_are_made() {
    let Some(bytes) = mp4() else { return };
    let all = |meta: &Meta| (0..meta.total_frames).collect();
    for (limits, wanted) in [
        (Limits { max_video_bytes: 99, ..Limits::default() }, "the video in bytes is"),
        (
            Limits { max_frame_pixels: 64 * 48 - 1, ..Limits::default() },
            "in pixels is 3072, above the limit of 3071",
        ),
        (
            Limits { max_video_frames: 24, ..Limits::default() },
            "the video in frames is 25, above the limit of 24",
        ),
        (
            Limits { max_video_seconds: 2, ..Limits::default() },
            "the video in seconds is 3, above the limit of 2",
        ),
        (Limits { max_chosen_frames: 24, ..Limits::default() }, "the chosen frames of the video is 25"),
        (
            Limits { max_clip_bytes: 64 * 48 * 3 * 24, ..Limits::default() },
            "25 chosen frames of the video in bytes",
        ),
    ] {
        let error = decode_video(&bytes, &limits, all).expect_err(wanted);
        assert_eq!(error.kind(), Kind::TooLarge);
        assert!(error.to_string().contains(wanted), "{error}");
    }
}

#[test]
fn a_video_that_takes_too_long_ends() {
    let Some(bytes) = mp4() else { return };
    let limits = Limits { video_time: Duration::from_millis(1), ..Limits::default() };
    assert_eq!(decode_video(&bytes, &limits, |_| vec![0]).expect_err("late").kind(), Kind::Timeout);
}

#[test]
fn broken_videos_are_refused() {
    let Some(bytes) = mp4() else { return };
    let refused = |bytes: &[u8]| decode_video(bytes, &Limits::default(), |meta| vec![meta.total_frames - 1]);
    for cut in [bytes.len() / 3, 40] {
        assert_eq!(refused(&bytes[..cut]).expect_err("cut").kind(), Kind::Invalid);
    }
    for (bytes, wanted) in [
        (&b""[..], "the video is empty"),
        (b"#EXTM3U\n/etc/passwd\n", "is a playlist"),
        (b"ffconcat version 1.0\nfile /etc/passwd\n", "is a playlist"),
        (b"\x89PNG\r\n\x1a\n", "is a picture; send it as image_url"),
        (b"\x1a\x45\xdf\xa3garbage", "cannot be read"),
    ] {
        let sentence = refused(bytes).expect_err(wanted).to_string();
        assert!(sentence.contains(wanted), "{sentence}");
    }
}

#[test]
fn a_video_without_its_last_frames_is_counted_by_decoding() {
    // MJPEG in AVI, cut in the middle of the frames: the index is gone, and the header still says 25.
    let Some(bytes) = video(25, &["-c:v", "mjpeg", "-q:v", "2"], "avi") else { return };
    let mut asked = Vec::new();
    let clip = decode_video(&bytes[..bytes.len() * 2 / 3], &Limits::default(), |meta| {
        asked.push(meta.total_frames);
        vec![0, meta.total_frames - 1]
    })
    .expect("what is there");
    let last = *clip.frame_indices.last().expect("a frame");
    assert!(last < 24 && Some(&(last + 1)) == asked.last(), "{asked:?} {last}");
    assert_eq!(clip.frames.iter().map(number).collect::<Vec<_>>(), clip.frame_indices);
}

#[test]
fn an_absent_ffmpeg_is_named() {
    let limits = Limits { ffmpeg: "/absent/ffmpeg".into(), ..Limits::default() };
    let bytes = b"\0\0\0\x18ftypisom\0\0\0\0isommp41";
    let error = decode_video(bytes, &limits, |_| vec![0]).expect_err("absent");
    assert!(matches!(&error, Error::Absent { program, .. } if program == "/absent/ffprobe"), "{error}");
}

#[tokio::test]
async fn a_cancelled_video_leaves_nothing_behind() {
    let Some(bytes) = mp4() else { return };
    let limits = Limits::default();
    let before = folders();
    let slow = |picture| {
        std::thread::sleep(Duration::from_millis(5));
        Ok(picture)
    };
    let work = decode(&bytes, &limits, |meta| (0..meta.total_frames).collect(), slow);
    let cancelled = tokio::time::timeout(Duration::from_millis(60), work).await;
    drop(cancelled);
    let left: Vec<_> = folders().into_iter().filter(|name| !before.contains(name)).collect();
    for folder in left {
        // Other tests of this file may run beside; theirs go too.
        for _ in 0..500 {
            if !folder.exists() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(!folder.exists(), "{}", folder.display());
    }
}

fn folders() -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(std::env::temp_dir()).expect("the folder for temporary files");
    entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("m3-video-")))
        .collect()
}

#[tokio::test]
async fn frames_can_be_shrunk_as_they_come() {
    let Some(bytes) = mp4() else { return };
    let limits = Limits { max_clip_bytes: 25 * 3, ..Limits::default() };
    let first_pixel = |picture: Picture| Ok(Picture { width: 1, height: 1, rgb: picture.rgb[..3].to_vec() });
    let clip =
        decode(&bytes, &limits, |meta| (0..meta.total_frames).collect(), first_pixel).await.expect("a clip");
    assert_eq!(clip.frames.len(), 25);
    let refuse = |_| Err(Error::Broken("enough".into()));
    let error = decode(&bytes, &limits, |_| vec![3], refuse).await.expect_err("refused");
    assert_eq!(error.to_string(), "enough");
}
