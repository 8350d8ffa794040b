//! Microseconds since the engine started. The scheduler is handed times and never asks for one, so that a simulation
//! can bring its own.

use std::time::Instant;

#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock that reads 0 now.
    pub fn start() -> Self {
        Clock { start: Instant::now() }
    }

    pub fn now_us(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}
