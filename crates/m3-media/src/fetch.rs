//! Getting a medium's bytes: the one door to the network and to local files. Every hop, every resolved address and
//! every byte passes the policy; nothing is decoded here and no bytes are logged.

mod file;
mod resolve;

pub use resolve::{Lookup, SystemLookup};

use crate::error::{Error, Result};
use crate::policy::{Limits, Policy, domain, shown};
use crate::source::{self, Source};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use reqwest::{Client, Response, StatusCode, Url, header};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Which kind of medium is wanted: it chooses the limit on bytes and the words of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// A picture.
    Image,
    /// A video.
    Video,
}

impl Wanted {
    fn word(self) -> &'static str {
        match self {
            Wanted::Image => "image",
            Wanted::Video => "video",
        }
    }

    fn max_bytes(self, limits: &Limits) -> u64 {
        match self {
            Wanted::Image => limits.max_image_bytes,
            Wanted::Video => limits.max_video_bytes,
        }
    }
}

/// Fetches media under a policy. One per server; cheap to share.
pub struct Fetcher {
    policy: Arc<Policy>,
    client: Client,
    turns: Semaphore,
}

impl Fetcher {
    /// A fetcher that resolves names by the system.
    ///
    /// # Errors
    /// [`Error::Internal`] if no TLS client can be made, or the policy's folder cannot be opened.
    pub fn new(policy: Policy) -> Result<Fetcher> {
        Fetcher::with_lookup(policy, Arc::new(SystemLookup))
    }

    /// A fetcher that resolves names by `lookup`; its answers are checked like the system's.
    ///
    /// # Errors
    /// As [`Fetcher::new`].
    pub fn with_lookup(policy: Policy, lookup: Arc<dyn Lookup>) -> Result<Fetcher> {
        if let Some(folder) = &policy.folder {
            file::check_folder(folder)?;
        }
        let policy = Arc::new(policy);
        let client = client(&policy, lookup)?;
        let turns = Semaphore::new(policy.fetches.max(1));
        Ok(Fetcher { policy, client, turns })
    }

    /// The rules it works by.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The bytes of `source`. Dropping the future ends the connection.
    ///
    /// # Errors
    /// The policy's refusals, limits and deadlines, and the other server's failures, as sentences for the client.
    pub async fn fetch(&self, source: &Source, wanted: Wanted) -> Result<Bytes> {
        let limit = wanted.max_bytes(&self.policy.limits);
        match source {
            Source::DataUri(bytes) if bytes.len() as u64 > limit => {
                Err(Error::too_large(format!("the {} in bytes", wanted.word()), bytes.len() as u64, limit))
            }
            Source::DataUri(bytes) => Ok(bytes.clone()),
            Source::File(path) => file::read(self.policy.folder.as_deref(), path, wanted, limit).await,
            Source::Url(url) => {
                self.policy.check_url(url)?;
                let seconds = self.policy.fetch_time.as_secs();
                let what = || format!("fetching the {} from {}", wanted.word(), host_of(url));
                tokio::time::timeout(self.policy.fetch_time, self.remote(url, wanted, limit))
                    .await
                    .unwrap_or_else(|_| Err(Error::Timeout { what: what(), seconds }))
            }
        }
    }

    async fn remote(&self, url: &Url, wanted: Wanted, limit: u64) -> Result<Bytes> {
        let _turn = self.turns.acquire().await.map_err(|_| Error::Internal("fetching has ended".into()))?;
        let (first, mut url) = (host_of(url), url.clone());
        for hop in 0..=self.policy.max_redirects {
            let told = |error| if hop == 0 { error } else { redirected(&first, error) };
            let response = self.hop(&url, wanted).await.map_err(told)?;
            if !response.status().is_redirection() {
                return body(response, &url, wanted, limit).await.map_err(told);
            }
            url = next(&url, &response).map_err(told)?;
        }
        Err(Error::Refused(format!(
            "fetching the {} takes more than {} redirects",
            wanted.word(),
            self.policy.max_redirects
        )))
    }

    /// One request. The policy is asked about the text before, about the resolved addresses by the resolver in
    /// between, and about the peer after.
    async fn hop(&self, url: &Url, wanted: Wanted) -> Result<Response> {
        self.policy.check_url(url)?;
        let host = domain::host(url)?;
        let sent = self.client.get(url.clone()).send().await;
        let response = sent.map_err(|error| failure(&error, &host, wanted, &self.policy))?;
        match response.remote_addr() {
            Some(peer) => self.policy.check_address(&host, peer.ip()).map(|()| response),
            None => Err(Error::Upstream(format!("the connection to {host} has no address"))),
        }
    }
}

/// A client that follows no redirect, knows no proxy, keeps no connection and no cookie, and decompresses nothing.
fn client(policy: &Arc<Policy>, lookup: Arc<dyn Lookup>) -> Result<Client> {
    let internal =
        |error: &dyn std::fmt::Display| Error::Internal(format!("cannot make an HTTP client: {error}"));
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| internal(&error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut headers = header::HeaderMap::new();
    headers.insert(header::ACCEPT, header::HeaderValue::from_static("image/*,video/*;q=0.9,*/*;q=0.1"));
    headers.insert(header::ACCEPT_ENCODING, header::HeaderValue::from_static("identity"));
    Client::builder()
        .tls_backend_preconfigured(tls)
        .http1_only()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .pool_max_idle_per_host(0)
        .connect_timeout(policy.connect_time)
        .user_agent(concat!("m3-media/", env!("CARGO_PKG_VERSION")))
        .default_headers(headers)
        .dns_resolver(Arc::new(resolve::Checked::new(policy.clone(), lookup)))
        .build()
        .map_err(|error| internal(&error))
}

/// An error behind a redirect from `first`, the host that the client wrote: where it led, and whether there is such a
/// host, is nobody's business.
fn redirected(first: &str, error: Error) -> Error {
    match error {
        Error::Refused(_) => Error::Refused(format!("{first} redirects to an address that is not allowed")),
        Error::Upstream(_) => {
            Error::Upstream(format!("{first} redirects to an address that gives nothing usable"))
        }
        other => other,
    }
}

/// Where a redirect leads.
fn next(from: &Url, response: &Response) -> Result<Url> {
    let host = host_of(from);
    let wrong = |what: &str| Error::Upstream(format!("{host} answers with a redirect {what}"));
    let location = response.headers().get(header::LOCATION).ok_or_else(|| wrong("without a location"))?;
    let location = location.to_str().map_err(|_| wrong("to an address that is no text"))?;
    let to = from.join(location).map_err(|_| wrong("to an address that cannot be read"))?;
    if from.scheme() == "https" && to.scheme() == "http" {
        return Err(Error::Refused(format!("{host} redirects from https to http")));
    }
    if !matches!(to.scheme(), "http" | "https") {
        return Err(Error::Refused(format!("{host} redirects to something else than https or http")));
    }
    source::url(to.as_str())
}

/// The body, as long as it keeps to the limit.
async fn body(response: Response, url: &Url, wanted: Wanted, limit: u64) -> Result<Bytes> {
    let host = host_of(url);
    accepted(&response, &host, wanted)?;
    let too_large = |size| Error::too_large(format!("the {} in bytes", wanted.word()), size, limit);
    let announced = response.content_length();
    if announced.is_some_and(|length| length > limit) {
        return Err(too_large(announced.unwrap_or(0)));
    }
    let mut bytes = BytesMut::new();
    let mut stream = response.bytes_stream();
    while let Some(chunk) = stream.next().await {
        let chunk = chunk
            .map_err(|_| Error::Upstream(format!("{host} broke off while sending the {}", wanted.word())))?;
        if (bytes.len() + chunk.len()) as u64 > limit {
            return Err(too_large((bytes.len() + chunk.len()) as u64));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes.freeze())
}

/// Status and encoding. A compressed body was not asked for, and a small one may unpack to anything.
fn accepted(response: &Response, host: &str, wanted: Wanted) -> Result<()> {
    let status = response.status();
    if status != StatusCode::OK {
        let sentence =
            format!("{host} answers with status {} instead of the {}", status.as_u16(), wanted.word());
        return Err(if status.is_client_error() {
            Error::Refused(sentence)
        } else {
            Error::Upstream(sentence)
        });
    }
    let encoded = response.headers().get_all(header::CONTENT_ENCODING);
    if encoded.iter().any(|value| !value.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return Err(Error::Refused(format!(
            "{host} sends the {} with a content encoding that was not asked for",
            wanted.word()
        )));
    }
    Ok(())
}

/// A failed request as a sentence: the policy's own refusal if the resolver made one, else a word without addresses.
fn failure(error: &reqwest::Error, host: &str, wanted: Wanted, policy: &Policy) -> Error {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(inner) = cause {
        if let Some(refusal) = inner.downcast_ref::<Error>() {
            return refusal.clone();
        }
        if has_wrong_certificate(inner) {
            let word = wanted.word();
            return Error::Upstream(format!(
                "the certificate of {host} is not trusted, so the {word} was not fetched"
            ));
        }
        cause = inner.source();
    }
    tracing::debug!(
        host,
        timeout = error.is_timeout(),
        connect = error.is_connect(),
        "fetching a medium failed"
    );
    if error.is_timeout() {
        return Error::Timeout {
            what: format!("connecting to {host}"),
            seconds: policy.connect_time.as_secs(),
        };
    }
    let what = if error.is_connect() { "cannot be reached" } else { "gives no proper answer" };
    Error::Upstream(format!("{host} {what}, so the {} was not fetched", wanted.word()))
}

/// Whether TLS ended because the server is not shown to be who it should be. An I/O error does not name what it wraps
/// as its source, and here one wraps another.
fn has_wrong_certificate(mut error: &(dyn std::error::Error + 'static)) -> bool {
    while let Some(inner) = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref) {
        error = inner;
    }
    matches!(
        error.downcast_ref(),
        Some(rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented)
    )
}

fn host_of(url: &Url) -> String {
    domain::host(url).unwrap_or_else(|_| shown(url))
}
