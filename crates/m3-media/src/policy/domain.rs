//! Hosts by name: the list of allowed domains, and names that are never on the public internet. No resolving here.

use crate::error::{Error, Result};
use reqwest::Url;

/// Last labels of names that resolve only inside some network.
const INTERNAL_ENDINGS: [&str; 10] =
    ["localhost", "local", "localdomain", "internal", "intranet", "lan", "home", "corp", "private", "test"];

/// One entry of the list of allowed media domains: `example.com` for that host alone, `*.example.com` for every host
/// under it and not for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    name: String,
    below: bool,
}

impl Domain {
    /// Reads an entry; letter case, a trailing dot and international spelling are evened out as in addresses.
    ///
    /// # Errors
    /// [`Error::Source`] if it is no host: a scheme, a path, a port or a star elsewhere.
    pub fn parse(text: &str) -> Result<Domain> {
        let wrong = || {
            Error::Source(format!(
                "\"{}\" is not a media domain; write a host such as example.com, or *.example.com for all below it",
                text.escape_debug()
            ))
        };
        let (name, below) = match text.trim().strip_prefix("*.") {
            Some(name) => (name, true),
            None => (text.trim(), false),
        };
        let fits = |character: char| {
            !matches!(character, '/' | '@' | '?' | '#' | '*' | '\\') && !character.is_whitespace()
        };
        if name.is_empty() || !name.chars().all(fits) {
            return Err(wrong());
        }
        let url = Url::parse(&format!("http://{name}/")).map_err(|_| wrong())?;
        if url.port().is_some() || name.ends_with(":80") {
            return Err(wrong());
        }
        Ok(Domain { name: host(&url)?, below })
    }

    /// Whether `host`, as [`host`] gives it, falls under this entry.
    pub fn matches(&self, host: &str) -> bool {
        match self.below {
            false => host == self.name,
            true => host.strip_suffix(&self.name).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
        }
    }
}

/// The host of an address in one spelling: lower case, no trailing dot, no brackets.
pub(crate) fn host(url: &Url) -> Result<String> {
    let host = url.host_str().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
    if host.is_empty() {
        return Err(Error::Source("the address of a medium names no host".into()));
    }
    Ok(host.to_ascii_lowercase())
}

/// Names that no public host has: single labels (`metadata`, `localhost`) and the endings of inner networks.
pub(crate) fn is_internal(host: &str) -> bool {
    if host.parse::<std::net::IpAddr>().is_ok() {
        return false;
    }
    match host.rsplit_once('.') {
        None => true,
        Some((_, last)) => INTERNAL_ENDINGS.contains(&last),
    }
}
