//! What one client may take from the others: requests in a time and requests at once, of the server and of each
//! client. The engine's queue is bounded elsewhere.

mod bucket;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use axum::http::StatusCode;

use crate::args::{GuardOptions, Rate};
use crate::error::ApiError;
use bucket::Bucket;

/// Clients remembered before those with nothing to remember are forgotten.
const MANY_CLIENTS: usize = 4096;

/// Whose requests are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Client {
    /// The position of its key.
    Key(usize),
    /// Where there are no keys; of an IPv6 address the first half, which is what one site has.
    Address(IpAddr),
}

/// All limits of one server.
#[derive(Debug)]
pub struct Limits {
    options: GuardOptions,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    server: Option<Counter>,
    clients: HashMap<Client, Counter>,
}

#[derive(Debug)]
struct Counter {
    bucket: Option<Bucket>,
    running: usize,
}

/// A request that counts as being answered until this is dropped.
#[derive(Debug)]
pub struct Permit {
    limits: Arc<Limits>,
    client: Client,
}

impl Client {
    /// The client behind an address.
    pub fn at(address: IpAddr) -> Self {
        Client::Address(match address.to_canonical() {
            IpAddr::V6(long) => IpAddr::V6(Ipv6Addr::from_bits(long.to_bits() >> 64 << 64)),
            short => short,
        })
    }
}

impl Limits {
    pub fn new(options: GuardOptions) -> Arc<Self> {
        Arc::new(Limits { options, state: Mutex::default() })
    }

    /// Counts a request, or 429 with when to come again. A refused request counts for nobody.
    pub fn enter(self: &Arc<Self>, client: Client, now: Instant) -> Result<Permit, ApiError> {
        let options = &self.options;
        let mut state = self.lock();
        let State { server, clients } = &mut *state;
        if clients.len() >= MANY_CLIENTS {
            clients.retain(|_, counter| counter.running > 0 || !counter.is_rested(now));
        }
        let server = server.get_or_insert_with(|| Counter::new(options.rate, now));
        let own = clients.entry(client).or_insert_with(|| Counter::new(options.key_rate, now));
        let whose = if matches!(client, Client::Key(_)) { "this key" } else { "this address" };
        server.check("this server", options.concurrency, now)?;
        own.check(whose, options.key_concurrency, now)?;
        server.count();
        own.count();
        Ok(Permit { limits: Arc::clone(self), client })
    }

    /// Every change is complete in itself, so a panic elsewhere leaves it usable.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.limits.lock();
        let State { server, clients } = &mut *state;
        for counter in server.iter_mut().chain(clients.get_mut(&self.client)) {
            counter.running = counter.running.saturating_sub(1);
        }
    }
}

impl Counter {
    fn new(rate: Option<Rate>, now: Instant) -> Self {
        Counter { bucket: rate.map(|rate| Bucket::new(rate, now)), running: 0 }
    }

    fn check(&mut self, whose: &str, most: usize, now: Instant) -> Result<(), ApiError> {
        if most > 0 && self.running >= most {
            let sentence =
                format!("{} requests of {whose} are being answered; the limit is {most}", self.running);
            return Err(too_many(sentence, "concurrency_limit_exceeded", 1));
        }
        let Some(bucket) = &mut self.bucket else { return Ok(()) };
        let wait = bucket.wait(now);
        if wait.is_zero() {
            return Ok(());
        }
        let seconds = wait.as_secs_f64().ceil().max(1.0) as u32;
        let Rate { requests, period } = bucket.rate();
        let sentence = format!(
            "{whose} is limited to {requests} requests in {} s; the next one is taken in {seconds} s",
            period.as_secs()
        );
        Err(too_many(sentence, "rate_limit_exceeded", seconds))
    }

    fn count(&mut self) {
        self.running += 1;
        self.bucket.iter_mut().for_each(Bucket::take);
    }

    fn is_rested(&mut self, now: Instant) -> bool {
        self.bucket.as_mut().is_none_or(|bucket| bucket.is_full(now))
    }
}

fn too_many(sentence: String, code: &'static str, seconds: u32) -> ApiError {
    let error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, sentence).with_code(code);
    ApiError { retry_after_secs: Some(seconds), ..error }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn limits(change: impl Fn(&mut GuardOptions)) -> Arc<Limits> {
        let words = ["serve".to_owned()];
        let parsed = crate::args::parse(&words).unwrap();
        let mut options = crate::args::Options::read(&parsed).unwrap().http.guard;
        change(&mut options);
        Limits::new(options)
    }

    #[test]
    fn clients_are_counted_apart_and_permits_come_back() {
        let limits = limits(|options| (options.concurrency, options.key_concurrency) = (3, 2));
        let now = Instant::now();
        let enter = |key| limits.enter(Client::Key(key), now);
        let (first, _second) = (enter(0).unwrap(), enter(0).unwrap());
        let error = enter(0).unwrap_err();
        assert_eq!(error.message, "2 requests of this key are being answered; the limit is 2");
        assert_eq!((error.code, error.retry_after_secs), (Some("concurrency_limit_exceeded"), Some(1)));
        let _third = enter(1).unwrap();
        assert!(enter(1).unwrap_err().message.contains("3 requests of this server"));
        drop(first);
        enter(1).unwrap();
    }

    #[test]
    fn a_rate_says_when_to_come_again_and_refusals_do_not_count() {
        let rate = Rate { requests: 2, period: Duration::from_secs(60) };
        let limits = limits(|options| options.key_rate = Some(rate));
        let (now, site) = (Instant::now(), |text: &str| Client::at(text.parse().unwrap()));
        for _ in 0..2 {
            limits.enter(site("10.0.0.1"), now).unwrap();
        }
        for _ in 0..10 {
            let error = limits.enter(site("::ffff:10.0.0.1"), now).unwrap_err();
            assert_eq!(error.retry_after_secs, Some(30));
            assert!(error.message.starts_with("this address is limited to 2 requests in 60 s"), "{error:?}");
        }
        limits.enter(site("10.0.0.2"), now).unwrap();
        limits.enter(site("10.0.0.1"), now + Duration::from_secs(31)).unwrap();
        assert_eq!(site("2001:db8::1"), site("2001:db8::2"));
        assert_ne!(site("2001:db8::1"), site("2001:db9::1"));
    }

    #[test]
    fn many_rested_clients_are_forgotten() {
        let rate = Rate { requests: 5, period: Duration::from_secs(1) };
        let limits = limits(|options| options.key_rate = Some(rate));
        let now = Instant::now();
        for key in 0..MANY_CLIENTS {
            limits.enter(Client::Key(key), now).unwrap();
        }
        limits.enter(Client::Key(0), now + Duration::from_secs(2)).unwrap();
        assert_eq!(limits.lock().clients.len(), 1);
    }
}
