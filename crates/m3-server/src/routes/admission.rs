//! Who may do what: probes are open, answers need a key where there are keys, and what changes the server's state or
//! touches the requests of others needs the admin's.

use std::net::IpAddr;

use axum::http::{HeaderMap, HeaderName, Method, StatusCode, header};

use crate::app::App;
use crate::error::ApiError;
use crate::limits::Client;
use crate::listen::Peer;
use crate::secret::{Secret, find};

/// Anthropic's clients send the key here.
const X_API_KEY: &str = "x-api-key";

/// Probes must work without a key: routers and kubelets have none. The document and the page tell nothing of this
/// server; the page asks for the key and sends it itself.
const OPEN: [&str; 8] = ["/", "/health", "/live", "/ready", "/startup", "/ping", "/openapi.json", "/docs"];
const OPEN_BELOW: &str = "/ui/";
/// What changes the server's state or touches the requests of others; so does everything below `/admin/`.
const ADMIN: [&str; 4] = ["/flush_cache", "/reset_prefix_cache", "/abort_request", "/configure_logging"];
const METRICS: &str = "/metrics";

/// Whose request it is: the position of its key, 0 without keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller(pub usize);

/// Which port a request came through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// The only one there is.
    Only,
    /// Beside it there is one for the admin.
    Public,
    Admin,
}

/// What a request may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Open,
    Admin,
    Metrics,
    /// Makes the engine or a thread work: counted by the limits. Every route that is sent something, unless it is
    /// named above.
    Work,
    Info,
}

impl Class {
    pub(super) fn of(method: &Method, path: &str) -> Self {
        let sends = matches!(*method, Method::POST | Method::PUT | Method::PATCH);
        match path {
            METRICS => Class::Metrics,
            path if OPEN.contains(&path) || path.starts_with(OPEN_BELOW) => Class::Open,
            path if ADMIN.contains(&path) || path.starts_with("/admin/") => Class::Admin,
            "/health_generate" => Class::Work,
            _ if sends => Class::Work,
            _ => Class::Info,
        }
    }

    /// Whether this door serves it; each thing is behind one door only, but for the probes.
    pub(super) fn is_behind(self, door: Door) -> bool {
        match self {
            Class::Open => true,
            Class::Admin | Class::Metrics => door != Door::Public,
            Class::Work | Class::Info => door != Door::Admin,
        }
    }
}

/// Whose request it is, or why it is refused.
pub(super) fn admit(
    app: &App,
    door: Door,
    class: Class,
    headers: &HeaderMap,
    peer: Option<Peer>,
) -> Result<Caller, ApiError> {
    let access = &app.http.access;
    let given = given_key(headers).unwrap_or("");
    let is_admin = access.admin_key.as_ref().is_some_and(|key| key.is(given));
    match class {
        Class::Open => Ok(Caller(0)),
        Class::Admin => match &access.admin_key {
            Some(_) if is_admin => Ok(Caller(0)),
            Some(_) => Err(refused("the admin key is needed: send it as \"Authorization: Bearer KEY\"")),
            None => without_admin_key(door, &access.api_keys, peer, headers),
        },
        Class::Metrics if is_admin => Ok(Caller(0)),
        Class::Metrics | Class::Work | Class::Info => with_key(&access.api_keys, given),
    }
}

/// Whose limits count.
pub(super) fn client(app: &App, caller: Caller, peer: Option<Peer>) -> Client {
    match peer {
        Some(Peer(address)) if app.http.access.api_keys.is_empty() => Client::at(address.ip()),
        _ => Client::Key(caller.0),
    }
}

fn with_key(keys: &[Secret], given: &str) -> Result<Caller, ApiError> {
    if keys.is_empty() {
        return Ok(Caller(0));
    }
    let sentence =
        "a valid API key is needed: send it as \"Authorization: Bearer KEY\" or \"x-api-key: KEY\"";
    find(keys, given).map(Caller).ok_or_else(|| refused(sentence))
}

/// Only whoever is on this machine may change a server's state when nobody has said who else may; and on a port that
/// asks others for keys, nobody.
fn without_admin_key(
    door: Door,
    keys: &[Secret],
    peer: Option<Peer>,
    headers: &HeaderMap,
) -> Result<Caller, ApiError> {
    let is_local = peer.is_some_and(|Peer(address)| address.ip().to_canonical().is_loopback());
    let sentence = if door == Door::Only && !keys.is_empty() {
        "this needs an admin key and the server has none: start it with --admin-api-key"
    } else if !is_local || speaks_for_another(headers) {
        "without an admin key this is answered to the server's own machine alone, to no page of another origin and through \
         no proxy: start it with --admin-api-key"
    } else {
        return Ok(Caller(0));
    };
    Err(ApiError::new(StatusCode::FORBIDDEN, sentence).with_code("admin_only"))
}

/// A browser or a proxy on this machine that passes on what somebody elsewhere wants: a page of another origin, a name
/// that was made to point here, a forwarded request.
fn speaks_for_another(headers: &HeaderMap) -> bool {
    let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let site = text(HeaderName::from_static("sec-fetch-site"));
    let from_elsewhere = site.is_some_and(|site| !matches!(site, "same-origin" | "none"));
    let host = text(header::HOST).unwrap_or("localhost");
    let of_another = text(header::ORIGIN).is_some_and(|origin| origin.split("://").nth(1) != Some(host));
    let forwarded = ["forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip"];
    let passed_on = forwarded.iter().any(|name| headers.contains_key(*name));
    from_elsewhere || of_another || passed_on || !names_this_machine(host)
}

/// Whether a `Host` is this machine's own name for itself.
fn names_this_machine(host: &str) -> bool {
    let name = match host.strip_prefix('[').and_then(|host| host.split_once(']')) {
        Some((name, _)) => name,
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    let is_loopback = |address: IpAddr| address.to_canonical().is_loopback();
    name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(is_loopback)
}

fn refused(sentence: &str) -> ApiError {
    ApiError::new(StatusCode::UNAUTHORIZED, sentence).with_code("invalid_api_key")
}

fn given_key(headers: &HeaderMap) -> Option<&str> {
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let scheme = |value: &&str| value.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("bearer "));
    let bearer = bearer.filter(scheme).map(|value| value[7..].trim());
    bearer.or_else(|| headers.get(X_API_KEY).and_then(|value| value.to_str().ok()).map(str::trim))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::ROUTES;

    #[test]
    fn a_route_that_is_sent_something_is_never_free() {
        for row in ROUTES {
            let method = row.method.to_uppercase().parse().unwrap();
            let class = Class::of(&method, row.path);
            let free = matches!(class, Class::Open | Class::Info);
            assert!(
                row.method == "get" || row.method == "delete" || !free || row.path == "/ping",
                "{}",
                row.path
            );
        }
        assert_eq!(Class::of(&Method::GET, "/flush_cache"), Class::Admin);
        assert_eq!(Class::of(&Method::GET, "/admin/anything"), Class::Admin);
        assert_eq!(Class::of(&Method::GET, "/health_generate"), Class::Work);
    }

    #[test]
    fn without_an_admin_key_only_this_machine_changes_the_state() {
        let peer = |text: &str| Some(Peer(text.parse().unwrap()));
        let plain = HeaderMap::new();
        let allowed = |door, keys: &[Secret], peer| without_admin_key(door, keys, peer, &plain).is_ok();
        let key = [Secret::new("k")];
        assert!(allowed(Door::Only, &[], peer("127.0.0.1:5")) && allowed(Door::Only, &[], peer("[::1]:5")));
        assert!(allowed(Door::Admin, &key, peer("127.0.0.1:5")));
        assert!(!allowed(Door::Only, &key, peer("127.0.0.1:5")));
        for far in [peer("10.0.0.1:5"), peer("[2001:db8::1]:5"), None] {
            assert!(!allowed(Door::Only, &[], far) && !allowed(Door::Admin, &key, far));
        }
    }

    #[test]
    fn pages_and_proxies_on_this_machine_do_not_speak_for_it() {
        let headers = |pairs: &[(&'static str, &'static str)]| {
            let pairs = pairs.iter().map(|(name, value)| {
                (HeaderName::from_static(name), axum::http::HeaderValue::from_static(value))
            });
            pairs.collect::<HeaderMap>()
        };
        for own in [
            &[("host", "127.0.0.1:30000")][..],
            &[
                ("host", "localhost:30000"),
                ("origin", "http://localhost:30000"),
                ("sec-fetch-site", "same-origin"),
            ],
            &[("host", "[::1]:30000"), ("sec-fetch-site", "none")],
            &[("host", "LOCALHOST")],
        ] {
            assert!(!speaks_for_another(&headers(own)), "{own:?}");
        }
        for other in [
            &[("host", "127.0.0.1:30000"), ("origin", "http://evil.example")][..],
            &[("host", "127.0.0.1:30000"), ("origin", "http://127.0.0.1:8000")],
            &[("host", "127.0.0.1:30000"), ("origin", "null")],
            &[("host", "127.0.0.1:30000"), ("sec-fetch-site", "cross-site")],
            &[("host", "127.0.0.1:30000"), ("sec-fetch-site", "same-site")],
            &[("host", "evil.example:30000")],
            &[("host", "localhost.evil.example")],
            &[("host", "127.0.0.1:30000"), ("x-forwarded-for", "8.8.8.8")],
            &[("host", "127.0.0.1:30000"), ("forwarded", "for=8.8.8.8")],
        ] {
            assert!(speaks_for_another(&headers(other)), "{other:?}");
        }
    }

    #[test]
    fn every_class_has_its_door() {
        for class in [Class::Open, Class::Admin, Class::Metrics, Class::Work, Class::Info] {
            assert!(class.is_behind(Door::Only));
            let doors = [Door::Public, Door::Admin].map(|door| class.is_behind(door));
            assert_eq!(
                doors.into_iter().filter(|open| *open).count(),
                if class == Class::Open { 2 } else { 1 }
            );
        }
    }
}
