//! How many requests a time allows: a bucket that refills steadily. Time comes from the caller; nothing sleeps here.

use std::time::{Duration, Instant};

use crate::args::Rate;

/// Starts full: a rate of 600/min lets 600 come at once, then ten a second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    rate: Rate,
    level: f64,
    at: Instant,
}

impl Bucket {
    pub(super) fn new(rate: Rate, now: Instant) -> Self {
        Bucket { rate, level: f64::from(rate.requests), at: now }
    }

    /// Zero when a request may come now, else how long until one may.
    pub(super) fn wait(&mut self, now: Instant) -> Duration {
        let most = f64::from(self.rate.requests);
        let per_second = most / self.rate.period.as_secs_f64();
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.level = (self.level + passed * per_second).min(most);
        self.at = self.at.max(now);
        if self.level >= 1.0 {
            Duration::ZERO
        } else {
            Duration::from_secs_f64((1.0 - self.level) / per_second)
        }
    }

    /// Counts a request; only after [`Bucket::wait`] was zero.
    pub(super) fn take(&mut self) {
        self.level -= 1.0;
    }

    /// Whether nothing has to be remembered of it.
    pub(super) fn is_full(&mut self, now: Instant) -> bool {
        self.wait(now);
        self.level >= f64::from(self.rate.requests)
    }

    pub(super) fn rate(&self) -> Rate {
        self.rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_bucket_empties_at_once_and_refills_steadily() {
        let start = Instant::now();
        let mut bucket = Bucket::new(Rate { requests: 60, period: Duration::from_secs(60) }, start);
        for _ in 0..60 {
            assert_eq!(bucket.wait(start), Duration::ZERO);
            bucket.take();
        }
        assert_eq!(bucket.wait(start).as_secs_f64().round(), 1.0);
        let later = start + Duration::from_millis(2500);
        for _ in 0..2 {
            assert_eq!(bucket.wait(later), Duration::ZERO);
            bucket.take();
        }
        assert_eq!(bucket.wait(later).as_millis(), 500);
        assert!(!bucket.is_full(later) && bucket.is_full(start + Duration::from_secs(120)));
        // A clock that goes back gives nothing away.
        assert_eq!(Bucket::new(bucket.rate(), later).wait(start), Duration::ZERO);
    }
}
