//! Where images and videos may come from and how much of them is taken: the policy of `m3-media` from flags. Whether
//! the folder of local media exists is checked when the server starts.

use std::path::PathBuf;
use std::time::Duration;

use m3_media::policy::{Domain, Remote};
use m3_media::{Limits, Policy};

use super::values::{bad, conflict, count, seconds};
use crate::args::numbers::parse_bytes;
use crate::args::{ArgError, Parsed};

/// Everything about media that an operator decides.
#[derive(Clone, Debug)]
pub struct MediaOptions {
    /// Where from, and limits on each medium.
    pub policy: Policy,
    /// Media decoded at once.
    pub decoders: usize,
    /// Memory that decoding takes together, bytes.
    pub decode_bytes: u64,
}

impl MediaOptions {
    pub(super) fn read(parsed: &Parsed) -> Result<Self, ArgError> {
        let default = Policy::default();
        let policy = Policy {
            remote: remote(parsed)?,
            ports: ports(parsed)?.unwrap_or(default.ports),
            networks: networks(parsed)?,
            folder: folder(parsed)?,
            max_redirects: number(parsed, "media-max-redirects", 0, 20, default.max_redirects.into())? as u32,
            connect_time: default.connect_time,
            fetch_time: time(parsed, "media-fetch-secs", default.fetch_time)?,
            fetches: number(parsed, "media-fetches", 1, 4096, default.fetches as u64)? as usize,
            limits: limits(parsed)?,
        };
        // One decoder per processor keeps them busy; more only take memory.
        let processors = std::thread::available_parallelism().map_or(1, usize::from).min(8) as u64;
        let decoders = number(parsed, "media-decoders", 1, 1024, processors)? as usize;
        Ok(MediaOptions { policy, decoders, decode_bytes: decode_bytes(parsed)? })
    }
}

fn number(parsed: &Parsed, name: &str, least: u64, most: u64, default: u64) -> Result<u64, ArgError> {
    Ok(count(parsed, name, least, most)?.unwrap_or(default))
}

fn time(parsed: &Parsed, name: &str, default: Duration) -> Result<Duration, ArgError> {
    let time = seconds(parsed, name, default.as_secs_f64())?;
    match time.is_zero() {
        true => Err(bad(name, "0", "seconds above 0 and up to 86400")),
        false => Ok(time),
    }
}

fn limits(parsed: &Parsed) -> Result<Limits, ArgError> {
    const MIB: u64 = 1 << 20;
    let default = Limits::default();
    Ok(Limits {
        max_image_bytes: number(parsed, "max-image-mb", 1, 4096, default.max_image_bytes / MIB)? * MIB,
        max_pixels: number(parsed, "max-image-pixels", 1, 1 << 30, default.max_pixels)?,
        max_video_bytes: number(parsed, "max-video-mb", 1, 65_536, default.max_video_bytes / MIB)? * MIB,
        max_video_seconds: number(parsed, "max-video-secs", 1, 1 << 20, default.max_video_seconds)?,
        max_video_frames: number(parsed, "max-video-frames", 1, 1 << 32, default.max_video_frames)?,
        max_chosen_frames: number(parsed, "max-chosen-frames", 1, 1 << 16, default.max_chosen_frames)?,
        video_time: time(parsed, "video-decode-secs", default.video_time)?,
        ffmpeg: parsed.value("ffmpeg").map_or(default.ffmpeg, PathBuf::from),
        ..Limits::default()
    })
}

/// Lists may be given as several words, with commas, or in several flags.
fn list<'a>(parsed: &'a Parsed, name: &str) -> impl Iterator<Item = &'a str> {
    parsed.many(name).iter().flat_map(|word| word.split(',')).map(str::trim).filter(|word| !word.is_empty())
}

fn remote(parsed: &Parsed) -> Result<Remote, ArgError> {
    let expected = "hosts such as example.com, or *.example.com for all below one";
    let name = "allowed-media-domains";
    let read = |text: &str| Domain::parse(text).map_err(|_| bad(name, text, expected));
    let domains = list(parsed, name).map(read).collect::<Result<Vec<_>, _>>()?;
    match (parsed.has(name), parsed.has("allow-remote-media")) {
        (true, true) => Err(conflict(
            "--allowed-media-domains",
            "--allow-remote-media",
            "one is a list of hosts, the other all",
        )),
        (true, false) if domains.is_empty() => Err(bad(name, "", expected)),
        (true, false) => Ok(Remote::Domains(domains)),
        (false, true) => Ok(Remote::Any),
        (false, false) => Ok(Remote::Refused),
    }
}

fn ports(parsed: &Parsed) -> Result<Option<Vec<u16>>, ArgError> {
    let name = "allowed-media-ports";
    let read = |text: &str| {
        let port = text.parse().ok().filter(|port| *port > 0);
        port.ok_or_else(|| bad(name, text, "ports from 1 to 65535"))
    };
    let ports = list(parsed, name).map(read).collect::<Result<Vec<u16>, _>>()?;
    Ok(parsed.has(name).then_some(ports))
}

fn networks(parsed: &Parsed) -> Result<Vec<ipnet::IpNet>, ArgError> {
    let name = "allowed-media-networks";
    let read =
        |text: &str| text.parse().map_err(|_| bad(name, text, "networks such as 10.1.0.0/16 or fd00:1::/32"));
    list(parsed, name).map(read).collect()
}

fn folder(parsed: &Parsed) -> Result<Option<PathBuf>, ArgError> {
    let name = "allowed-local-media-path";
    let Some(text) = parsed.value(name) else { return Ok(None) };
    match text.starts_with('/') {
        true => Ok(Some(PathBuf::from(text))),
        false => Err(bad(name, text, "an absolute path to a folder")),
    }
}

fn decode_bytes(parsed: &Parsed) -> Result<u64, ArgError> {
    let name = "media-decode-bytes";
    let Some(text) = parsed.value(name) else { return Ok(4 << 30) };
    let bytes = parse_bytes(text).filter(|bytes| *bytes >= 1 << 20);
    bytes.ok_or_else(|| bad(name, text, "bytes from 1M, such as 4G or 512M"))
}

#[cfg(test)]
mod tests;
