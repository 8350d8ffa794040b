//! The HTTP side: address, streams, stored responses, and who may ask how much (in files of their own).

use std::net::{IpAddr, ToSocketAddrs};
use std::str::FromStr;
use std::time::Duration;

use super::access::AccessOptions;
use super::guard::{GuardOptions, HealthOptions};
use super::media::MediaOptions;
use super::values::{bad, count, seconds};
use crate::args::numbers::parse_bytes;
use crate::args::{ArgError, Parsed};
use crate::openai::reasoning::ReasoningNames;
use crate::stream::{Pacing, StreamOptions};

/// The HTTP side.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    pub host: IpAddr,
    pub port: u16,
    pub access: AccessOptions,
    pub guard: GuardOptions,
    pub health: HealthOptions,
    pub stream: StreamOptions,
    pub drain: Duration,
    pub max_body_bytes: usize,
    pub stream_buffer: usize,
    pub always_usage: bool,
    pub reasoning_names: ReasoningNames,
    /// Most responses kept for `previous_response_id`; 0 = none.
    pub max_responses: usize,
    pub max_response_bytes: usize,
    /// Leave some agents' volatile first line in system texts.
    pub keep_billing_header: bool,
    /// Serve the page at `/`.
    pub ui: bool,
    /// Where images and videos may come from, and how much of them.
    pub media: MediaOptions,
}

impl HttpOptions {
    pub(super) fn read(parsed: &Parsed) -> Result<Self, ArgError> {
        Ok(HttpOptions {
            host: host(parsed, "host")?,
            port: count(parsed, "port", 0, 65_535)?.unwrap_or(30_000) as u16,
            access: AccessOptions::read(parsed)?,
            guard: GuardOptions::read(parsed)?,
            health: HealthOptions::read(parsed)?,
            stream: stream(parsed)?,
            drain: seconds(parsed, "shutdown-timeout", 300.0)?,
            max_body_bytes: count(parsed, "max-body-mb", 1, 4096)?.unwrap_or(64) as usize * (1 << 20),
            stream_buffer: count(parsed, "stream-buffer", 1, 1 << 20)?.unwrap_or(4096) as usize,
            always_usage: parsed.has("enable-force-include-usage"),
            reasoning_names: reasoning_names(parsed)?,
            max_responses: count(parsed, "max-stored-responses", 0, 1 << 20)?.unwrap_or(1024) as usize,
            max_response_bytes: response_bytes(parsed)?,
            keep_billing_header: parsed.has("keep-billing-header"),
            ui: !parsed.has("no-ui"),
            media: MediaOptions::read(parsed)?,
        })
    }
}

fn stream(parsed: &Parsed) -> Result<StreamOptions, ArgError> {
    let milliseconds = |name: &str, default: u64| {
        let given = count(parsed, name, 0, 10_000)?;
        Ok(Duration::from_millis(given.unwrap_or(default)))
    };
    let (gather, hold) = (milliseconds("stream-gather-ms", 25)?, milliseconds("stream-hold-ms", 200)?);
    let min_tokens = count(parsed, "stream-interval", 1, 1 << 20)?.unwrap_or(1) as usize;
    // Token ids without text never grow into a packet's worth of characters: gathering is all they wait for.
    let textless = parsed.has("skip-tokenizer-init") && min_tokens == 1;
    let pacing = Pacing { min_tokens, gather, hold: if textless { hold.min(gather * 2) } else { hold } };
    Ok(StreamOptions { pacing, heartbeat: seconds(parsed, "heartbeat-secs", 10.0)? })
}

/// An address, or a name this machine knows, such as `localhost`.
pub(super) fn host(parsed: &Parsed, flag: &str) -> Result<IpAddr, ArgError> {
    let host = parsed.value(flag).unwrap_or("127.0.0.1");
    if let Ok(address) = IpAddr::from_str(host.trim_matches(['[', ']'])) {
        return Ok(address);
    }
    let found = (host, 0).to_socket_addrs().map(Iterator::collect::<Vec<_>>).unwrap_or_default();
    // Clients that are told a name try IPv4 too, but not all of them IPv6.
    let best = found.iter().find(|address| address.is_ipv4()).or(found.first());
    let expected = "an IP address, such as 127.0.0.1 or 0.0.0.0, or a name that has one";
    best.map(|address| address.ip()).ok_or_else(|| bad(flag, host, expected))
}

fn reasoning_names(parsed: &Parsed) -> Result<ReasoningNames, ArgError> {
    let text = parsed.value("reasoning-field").unwrap_or("reasoning_content");
    ReasoningNames::parse(text)
        .ok_or_else(|| bad("reasoning-field", text, "reasoning_content, reasoning or both"))
}

fn response_bytes(parsed: &Parsed) -> Result<usize, ArgError> {
    let Some(text) = parsed.value("stored-response-bytes") else { return Ok(256 << 20) };
    let bytes = parse_bytes(text).and_then(|bytes| usize::try_from(bytes).ok());
    bytes.ok_or_else(|| bad("stored-response-bytes", text, "bytes, such as 1G or 256M"))
}
