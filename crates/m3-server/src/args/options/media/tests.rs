//! Flags about media: the defaults that docs/security.md promises, lists in every spelling, and refusals.

use m3_media::policy::Remote;
use std::time::Duration;

use super::MediaOptions;
use crate::args::parse;

fn read(line: &str) -> Result<MediaOptions, String> {
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let parsed = parse(&words).map_err(|error| error.to_string())?;
    MediaOptions::read(&parsed).map_err(|error| error.to_string())
}

#[test]
fn without_flags_nothing_is_fetched_and_the_limits_are_the_documented_ones() {
    let options = read("serve").expect("defaults");
    let (policy, limits) = (&options.policy, &options.policy.limits);
    assert_eq!((&policy.remote, &policy.folder), (&Remote::Refused, &None));
    assert_eq!((policy.ports.as_slice(), policy.networks.len()), (&[80, 443][..], 0));
    assert_eq!((policy.max_redirects, policy.fetches), (3, 16));
    assert_eq!((policy.fetch_time, policy.connect_time), (Duration::from_secs(20), Duration::from_secs(5)));
    assert_eq!((limits.max_image_bytes, limits.max_video_bytes), (32 << 20, 256 << 20));
    assert_eq!((limits.max_pixels, limits.max_frame_pixels), (67_108_864, 4096 * 2304));
    assert_eq!((limits.max_video_seconds, limits.max_video_frames), (3600, 216_000));
    assert_eq!((limits.max_chosen_frames, limits.max_clip_bytes), (768, 2 << 30));
    assert_eq!((limits.video_time, limits.video_memory), (Duration::from_secs(60), 4 << 30));
    assert!(options.decoders >= 1 && options.decoders <= 8);
    assert_eq!(options.decode_bytes, 4 << 30);
    // The words of the documentation.
    let text = include_str!("../../../../../../docs/security.md");
    for promise in [
        "67,108,864",
        "32 MiB, 256 MiB",
        "3600 s, 216,000 frames",
        "768, and 2 GiB",
        "4096 x 2304",
        "20 s for all",
    ] {
        assert!(text.contains(promise), "docs/security.md does not say {promise}");
    }
}

#[test]
fn lists_may_be_words_commas_or_several_flags() {
    let lines = [
        "serve --allowed-media-domains a.example *.b.example",
        "serve --allowed-media-domains a.example,*.b.example",
        "serve --allowed-media-domains a.example --allowed-media-domains *.b.example",
    ];
    let shown: Vec<String> =
        lines.iter().map(|line| format!("{:?}", read(line).expect(line).policy.remote)).collect();
    assert_eq!(shown[0], shown[1]);
    assert_eq!(shown[0], shown[2]);
    assert_eq!(read("serve --allow-remote-media").expect("any").policy.remote, Remote::Any);
    let options = read("serve --allowed-media-ports 443 8443 --allowed-media-networks 10.1.0.0/16,fd00::/8")
        .expect("lists");
    assert_eq!(options.policy.ports, [443, 8443]);
    assert_eq!(options.policy.networks.len(), 2);
}

#[test]
fn limits_are_read() {
    let options = read(
        "serve --max-image-mb 1 --max-image-pixels 1M --max-video-mb 2 --max-video-secs 3 --max-video-frames 4 \
         --max-chosen-frames 5 --video-decode-secs 0.5 --media-fetch-secs 7 --media-max-redirects 0 --media-fetches 9 \
         --media-decoders 3 --media-decode-bytes 1G --ffmpeg /opt/ffmpeg --allowed-local-media-path /media",
    )
    .expect("limits");
    let (policy, limits) = (&options.policy, &options.policy.limits);
    assert_eq!(
        (limits.max_image_bytes, limits.max_pixels, limits.max_video_bytes),
        (1 << 20, 1 << 20, 2 << 20)
    );
    assert_eq!((limits.max_video_seconds, limits.max_video_frames, limits.max_chosen_frames), (3, 4, 5));
    assert_eq!((limits.video_time, policy.fetch_time), (Duration::from_millis(500), Duration::from_secs(7)));
    assert_eq!(
        (policy.max_redirects, policy.fetches, options.decoders, options.decode_bytes),
        (0, 9, 3, 1 << 30)
    );
    assert_eq!(limits.ffmpeg.to_str(), Some("/opt/ffmpeg"));
    assert_eq!(policy.folder.as_deref().and_then(|path| path.to_str()), Some("/media"));
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (line, wanted) in [
        ("serve --allowed-media-domains https://a.example", "hosts such as example.com"),
        ("serve --allowed-media-domains *", "hosts such as example.com"),
        ("serve --allowed-media-domains ,", "hosts such as example.com"),
        ("serve --allowed-media-domains a.example --allow-remote-media", "the other all"),
        ("serve --allowed-media-ports 0", "ports from 1 to 65535"),
        ("serve --allowed-media-networks 10.0.0.0", "networks such as"),
        ("serve --allowed-local-media-path media", "an absolute path"),
        ("serve --media-fetch-secs 0", "seconds above 0"),
        ("serve --media-decoders 0", "from 1 to 1024"),
        ("serve --media-decode-bytes 5", "bytes from 1M"),
        ("serve --max-image-mb 0", "from 1 to 4096"),
    ] {
        let sentence = read(line).expect_err(line);
        assert!(sentence.contains(wanted), "{line}: {sentence}");
    }
}
