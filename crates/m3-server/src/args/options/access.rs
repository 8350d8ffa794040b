//! Who may ask and from where: keys, the admin side, TLS and cross-origin pages. Opens no file but those with keys.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use super::http::host;
use super::values::{bad, conflict, count};
use crate::args::{ArgError, Parsed};
use crate::secret::Secret;

/// Keys of clients, one a line of the variable's text.
const API_KEY_VARIABLE: &str = "M3_API_KEY";
/// The admin's key.
const ADMIN_KEY_VARIABLE: &str = "M3_ADMIN_API_KEY";

/// Who may ask.
#[derive(Clone, Debug)]
pub struct AccessOptions {
    /// Any of them lets a client in; none = everyone may ask.
    pub api_keys: Vec<Secret>,
    /// Needed for what changes the server's state or touches other callers' requests.
    pub admin_key: Option<Secret>,
    /// Where that is served, and nothing else; `None` = beside everything else.
    pub admin: Option<SocketAddr>,
    pub tls: Option<TlsOptions>,
    /// Pages of other origins that a browser may let ask; `None` = no such page.
    pub cors: Option<CorsOptions>,
}

/// Files in PEM form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsOptions {
    /// The server's certificate first, then those of its issuers.
    pub certificates: PathBuf,
    pub key: PathBuf,
}

/// What a browser is told about pages of other origins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CorsOptions {
    /// `*` alone means every page.
    pub origins: Vec<String>,
    /// Empty = what the page asks for.
    pub methods: Vec<String>,
    pub headers: Vec<String>,
    pub credentials: bool,
}

impl AccessOptions {
    pub(super) fn read(parsed: &Parsed) -> Result<Self, ArgError> {
        let variable = |name: &str| std::env::var(name).ok();
        let admin_port = count(parsed, "admin-port", 0, 65_535)?;
        if admin_port.is_none() && parsed.has("admin-host") {
            return Err(bad("admin-host", parsed.value("admin-host").unwrap_or(""), "--admin-port as well"));
        }
        let admin_host: Option<IpAddr> = admin_port.map(|_| host(parsed, "admin-host")).transpose()?;
        Ok(AccessOptions {
            api_keys: keys(parsed, ["api-key", "api-key-file"], variable(API_KEY_VARIABLE))?,
            admin_key: admin_key(parsed, variable(ADMIN_KEY_VARIABLE))?,
            admin: admin_host.zip(admin_port).map(|(host, port)| SocketAddr::new(host, port as u16)),
            tls: tls(parsed)?,
            cors: cors(parsed)?,
        })
    }
}

/// Keys of a flag, of the lines of a file, and of a variable's.
fn keys(
    parsed: &Parsed,
    [flag, file]: [&'static str; 2],
    variable: Option<String>,
) -> Result<Vec<Secret>, ArgError> {
    let lines = |text: &str| {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let mut all = parsed.many(flag).to_vec();
    if all.iter().any(|key| key.trim().is_empty()) {
        return Err(bad(flag, "", "a key of at least one character"));
    }
    if let Some(path) = parsed.value(file) {
        let text = std::fs::read_to_string(path)
            .map_err(|error| bad(file, path, &format!("a readable file ({error})")))?;
        let found = lines(&text);
        if found.is_empty() {
            return Err(bad(file, path, "a file with at least one key"));
        }
        all.extend(found);
    }
    if let Some(text) = variable {
        let found = lines(&text);
        if found.is_empty() {
            // A blank secret must not open the server to everybody.
            return Err(bad(
                flag,
                "",
                "a key: its environment variable is set and empty, so give it one or unset it",
            ));
        }
        all.extend(found);
    }
    Ok(all.iter().map(|key| Secret::new(key)).collect())
}

fn admin_key(parsed: &Parsed, variable: Option<String>) -> Result<Option<Secret>, ArgError> {
    let mut all = keys(parsed, ["admin-api-key", "admin-api-key-file"], variable)?;
    match all.len() {
        0 | 1 => Ok(all.pop()),
        more => Err(bad("admin-api-key", &format!("{more} keys"), "one key")),
    }
}

fn tls(parsed: &Parsed) -> Result<Option<TlsOptions>, ArgError> {
    let file = |name: &str| parsed.value(name).map(PathBuf::from);
    match (file("ssl-certfile"), file("ssl-keyfile")) {
        (Some(certificates), Some(key)) => Ok(Some(TlsOptions { certificates, key })),
        (None, None) => Ok(None),
        (Some(only), None) => Err(bad("ssl-certfile", &only.display().to_string(), "--ssl-keyfile as well")),
        (None, Some(only)) => Err(bad("ssl-keyfile", &only.display().to_string(), "--ssl-certfile as well")),
    }
}

fn cors(parsed: &Parsed) -> Result<Option<CorsOptions>, ArgError> {
    let origins = list(parsed, "allowed-origins")?;
    let dependent = ["allowed-methods", "allowed-headers", "allow-credentials"];
    if origins.is_empty() {
        return match dependent.into_iter().find(|name| parsed.has(name)) {
            Some(name) => Err(bad(name, parsed.value(name).unwrap_or(""), "--allowed-origins as well")),
            None => Ok(None),
        };
    }
    let credentials = parsed.has("allow-credentials");
    if credentials && origins.iter().any(|origin| origin == "*") {
        let reason = "every page of the world could act for whoever is signed in; name the origins";
        return Err(conflict("--allow-credentials", "--allowed-origins *", reason));
    }
    let is_origin = |text: &str| text == "*" || (text.contains("://") && !text.ends_with('/'));
    if let Some(wrong) = origins.iter().find(|origin| !is_origin(origin)) {
        return Err(bad("allowed-origins", wrong, "origins such as https://chat.example, or *"));
    }
    let every = |names: Vec<String>| if names == ["*"] { Vec::new() } else { names };
    Ok(Some(CorsOptions {
        origins,
        methods: every(list(parsed, "allowed-methods")?),
        headers: every(list(parsed, "allowed-headers")?),
        credentials,
    }))
}

/// A JSON list as vLLM takes it, or words with commas between them.
fn list(parsed: &Parsed, name: &str) -> Result<Vec<String>, ArgError> {
    let Some(text) = parsed.value(name) else { return Ok(Vec::new()) };
    if text.trim_start().starts_with('[') {
        return serde_json::from_str(text)
            .map_err(|error| bad(name, text, &format!("a JSON list of texts ({error})")));
    }
    Ok(text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect())
}
