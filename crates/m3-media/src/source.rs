//! Where a medium comes from, read from a client's string: an address, a data URI, a file. Parsing touches neither the
//! network nor the disk, and decides nothing about what is allowed; [`crate::fetch`] does.

mod data;

use crate::error::{Error, Result};
use bytes::Bytes;
use reqwest::Url;

/// An address longer than this is a mistake, most often base64 without its `data:` prefix.
const MAX_URL_CHARACTERS: usize = 8192;

/// Where a medium comes from.
#[derive(Clone, PartialEq, Eq)]
pub enum Source {
    /// An `http` or `https` address without credentials.
    Url(Url),
    /// The medium itself, inside the string.
    DataUri(Bytes),
    /// A file of the server's machine, as the absolute path that was asked for; not checked yet.
    File(String),
}

impl std::fmt::Debug for Source {
    /// Without the medium's bytes, and without an address's query, which often holds a signature.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Source::Url(url) => write!(formatter, "Url({})", crate::policy::shown(url)),
            Source::DataUri(bytes) => write!(formatter, "DataUri({} bytes)", bytes.len()),
            Source::File(_) => write!(formatter, "File"),
        }
    }
}

impl Source {
    /// Reads `text` as an address, a data URI or a `file:` address. Scheme names are read in any letter case, and
    /// white space around the whole is ignored.
    ///
    /// # Errors
    /// [`Error::Source`] with a sentence, if it is none of these.
    pub fn parse(text: &str) -> Result<Source> {
        let text = text.trim();
        let Some((scheme, rest)) = text.split_once(':') else {
            return Err(Error::Source(match text.len() {
                0 => "the address of a medium is empty".into(),
                length => format!(
                    "the address of a medium ({length} characters) has no scheme; \
                     send an https address or data:<type>;base64,<bytes>"
                ),
            }));
        };
        match scheme.to_ascii_lowercase().as_str() {
            "data" => data::parse(rest).map(Source::DataUri),
            "file" => file(rest).map(Source::File),
            "http" | "https" => url(text).map(Source::Url),
            _ => Err(Error::Source(format!(
                "the scheme \"{}\" of a medium's address is not one of https, http, data and file",
                scheme.chars().take(32).collect::<String>().escape_debug()
            ))),
        }
    }

    /// Base64 without a `data:` prefix, in every spelling that a data URI may have.
    ///
    /// # Errors
    /// [`Error::Source`] if it is no base64.
    pub fn base64(text: &str) -> Result<Source> {
        data::base64(text.as_bytes()).map(Source::DataUri)
    }
}

/// An address as the network will use it: hosts in odd spellings (`0x7f.1`) become what they mean.
pub(crate) fn url(text: &str) -> Result<Url> {
    if text.len() > MAX_URL_CHARACTERS {
        return Err(Error::too_large(
            "the address of a medium in characters",
            text.len() as u64,
            MAX_URL_CHARACTERS as u64,
        ));
    }
    let mut url = Url::parse(text)
        .map_err(|error| Error::Source(format!("the address of a medium cannot be read: {error}")))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Error::Source("the address of a medium carries a user name or a password".into()));
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err(Error::Source("the address of a medium names no host".into()));
    }
    url.set_fragment(None);
    Ok(url)
}

/// The path of `file:PATH`, `file:///PATH` and `file://localhost/PATH`. The URL parser is not used: it would resolve
/// `..` silently, and a path with it is refused.
fn file(rest: &str) -> Result<String> {
    let path = match rest.strip_prefix("//") {
        None => rest,
        Some(rest) => {
            let start = rest.find('/').unwrap_or(rest.len());
            let (host, path) = rest.split_at(start);
            if !host.is_empty() && !host.eq_ignore_ascii_case("localhost") {
                return Err(Error::Source("a file address must not name another host".into()));
            }
            path
        }
    };
    let bytes = data::percent_decoded(path.as_bytes());
    let path = String::from_utf8(bytes)
        .map_err(|_| Error::Source("the path of a file address is not UTF-8".into()))?;
    if !path.starts_with('/') || path.contains('\0') {
        return Err(Error::Source("a file address needs an absolute path: file:///folder/name".into()));
    }
    Ok(path)
}

#[cfg(test)]
mod tests;
