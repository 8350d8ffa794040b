//! The time of day, which only stamps what is shown. It may jump at any moment, so nothing waits for it and nothing is
//! measured by it: that is `std::time::Instant`'s work, and a rule of `cargo xtask tidy`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Since 1970; zero on a clock that is before it.
pub fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
