//! What the operator allows: which hosts, addresses, ports and folders, and how much of everything. The defaults are
//! the safe ones: no remote address, no local file. No input or output here.

pub mod address;
pub mod domain;

pub use domain::Domain;

use crate::error::{Error, Result};
use ipnet::IpNet;
use reqwest::Url;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Which hosts a client may name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remote {
    /// None; data URIs only. The default.
    Refused,
    /// These and no others, redirects included.
    Domains(Vec<Domain>),
    /// Every host with public addresses.
    Any,
}

/// All rules for getting a medium's bytes. `Default` is what a server without flags does.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Which hosts may be named. Default: none.
    pub remote: Remote,
    /// Ports that may be named. Default: 80 and 443.
    pub ports: Vec<u16>,
    /// Networks that are private by the table and allowed nevertheless. Default: none.
    pub networks: Vec<IpNet>,
    /// The folder whose files `file:` addresses may name. Default: none.
    pub folder: Option<PathBuf>,
    /// Redirects that are followed. Default: 3.
    pub max_redirects: u32,
    /// Time for a connection, names and TLS included. Default: 5 s.
    pub connect_time: Duration,
    /// Time for everything from the first name to the last byte. Default: 20 s.
    pub fetch_time: Duration,
    /// Fetches at once; more wait. Default: 16.
    pub fetches: usize,
    /// Limits on what is decoded.
    pub limits: Limits,
}

/// Limits on a medium, checked before the work that they bound.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes of an encoded image. Default: 32 MiB.
    pub max_image_bytes: u64,
    /// Bytes of an encoded video. Default: 256 MiB.
    pub max_video_bytes: u64,
    /// Pixels of an image, read from its header. Default: 64 Mi (8192 x 8192).
    pub max_pixels: u64,
    /// Pixels of a video's frame. Default: 4096 x 2304.
    pub max_frame_pixels: u64,
    /// Length of a video in seconds. Default: 3600.
    pub max_video_seconds: u64,
    /// Frames in a video, chosen or not. Default: 216000 (an hour at 60 per second).
    pub max_video_frames: u64,
    /// Frames that may be chosen of a video. Default: 768.
    pub max_chosen_frames: u64,
    /// Bytes of all frames that are kept of a video. Default: 2 GiB.
    pub max_clip_bytes: u64,
    /// Time for a video, all of it. Default: 60 s.
    pub video_time: Duration,
    /// Address space of the video decoder, bytes. Default: 4 GiB.
    pub video_memory: u64,
    /// The program that decodes videos; `ffprobe` is expected beside it or on the path. Default: `ffmpeg`.
    pub ffmpeg: PathBuf,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_image_bytes: 32 << 20,
            max_video_bytes: 256 << 20,
            max_pixels: 64 << 20,
            max_frame_pixels: 4096 * 2304,
            max_video_seconds: 3600,
            max_video_frames: 216_000,
            max_chosen_frames: 768,
            max_clip_bytes: 2 << 30,
            video_time: Duration::from_secs(60),
            video_memory: 4 << 30,
            ffmpeg: "ffmpeg".into(),
        }
    }
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            remote: Remote::Refused,
            ports: vec![80, 443],
            networks: Vec::new(),
            folder: None,
            max_redirects: 3,
            connect_time: Duration::from_secs(5),
            fetch_time: Duration::from_secs(20),
            fetches: 16,
            limits: Limits::default(),
        }
    }
}

impl Policy {
    /// Whether `url` may be asked, as far as its text tells: scheme, credentials, port, host, literal address.
    ///
    /// # Errors
    /// [`Error::Refused`] with the rule. The sentence repeats the host that the client wrote, never a resolved address.
    pub fn check_url(&self, url: &Url) -> Result<()> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(Error::Refused("media are fetched by https and http only".into()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Error::Refused("the address of a medium carries a user name or a password".into()));
        }
        let port = url.port_or_known_default().unwrap_or(0);
        let host = domain::host(url)?;
        self.check_host(&host)?;
        if !self.ports.contains(&port) {
            let allowed = self.ports.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
            return Err(Error::Refused(format!(
                "port {port} of a medium's address is not one of the allowed ports: {allowed}"
            )));
        }
        match host.parse::<IpAddr>() {
            Ok(address) => self.check_address(&host, address),
            Err(_) => Ok(()),
        }
    }

    /// Whether `host` may be named at all: the list of domains, and names that are never public.
    fn check_host(&self, host: &str) -> Result<()> {
        match &self.remote {
            Remote::Refused => Err(Error::Refused(
                "this server fetches no remote media; send the bytes as data:<type>;base64,<bytes>, \
                 or let the operator set --allowed-media-domains"
                    .into(),
            )),
            Remote::Domains(domains) if domains.iter().any(|domain| domain.matches(host)) => Ok(()),
            Remote::Domains(_) => {
                Err(Error::Refused(format!("the host \"{host}\" is not one of the allowed media domains")))
            }
            Remote::Any if domain::is_internal(host) => Err(internal(host)),
            Remote::Any => Ok(()),
        }
    }

    /// Whether a connection to `address`, which `host` is or was resolved to, may be made.
    ///
    /// # Errors
    /// [`Error::Refused`]; the sentence names the host, not the address.
    pub fn check_address(&self, host: &str, address: IpAddr) -> Result<()> {
        let canonical = address.to_canonical();
        if self.networks.iter().any(|network| network.contains(&canonical)) || address::is_public(address) {
            return Ok(());
        }
        Err(internal(host))
    }
}

fn internal(host: &str) -> Error {
    Error::Refused(format!(
        "the host \"{host}\" is not on the public internet, and media are fetched only from there"
    ))
}

/// An address for sentences and logs: without its query, which often holds a signature, and not endless.
pub fn shown(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    let text = url.to_string();
    match text.char_indices().nth(200) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests;
