//! Ids of tool calls. M3's markup has none, so the parser makes one per call: `call_` and 24 hex digits.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// Where call ids come from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CallIds {
    /// Fresh for every parser and call of this process and, with overwhelming odds, of all others.
    #[default]
    Random,
    /// The same sequence for the same seed: for tests and replays.
    Seeded(u64),
}

/// Parsers made so far: two of them never share a seed within a process.
static PARSERS: AtomicU64 = AtomicU64::new(0);

/// Hands out ids, one per call.
#[derive(Debug, Clone)]
pub(super) struct IdSource {
    state: [u64; 2],
}

impl IdSource {
    pub(super) fn new(ids: CallIds) -> Self {
        let state = match ids {
            CallIds::Seeded(seed) => [seed, 0],
            CallIds::Random => {
                // The standard library's hasher keys are the operating system's randomness.
                let number = PARSERS.fetch_add(1, Ordering::Relaxed);
                let random = |salt: u64| {
                    let mut hasher = RandomState::new().build_hasher();
                    hasher.write_u64(number);
                    hasher.write_u64(salt);
                    hasher.finish()
                };
                [random(0), random(1)]
            }
        };
        Self { state }
    }

    /// The next id.
    pub(super) fn next(&mut self) -> String {
        self.state[0] = self.state[0].wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.state[1] = self.state[1].wrapping_add(1);
        let high = mix(self.state[0] ^ mix(self.state[1]));
        let low = mix(high ^ self.state[0].rotate_left(32));
        format!("call_{high:016x}{:08x}", low >> 32)
    }
}

/// A bijection that spreads every input bit over the output (the finaliser of SplitMix64).
fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn ids_have_the_documented_form_and_differ() {
        let mut seen = HashSet::new();
        for _ in 0..100 {
            let mut source = IdSource::new(CallIds::Random);
            for _ in 0..20 {
                let id = source.next();
                let hex = id.strip_prefix("call_").unwrap();
                assert_eq!(hex.len(), 24);
                assert!(hex.bytes().all(|byte| byte.is_ascii_hexdigit() && !byte.is_ascii_uppercase()));
                assert!(seen.insert(id));
            }
        }
    }

    #[test]
    fn a_seed_fixes_the_sequence() {
        let take = |seed| {
            let mut source = IdSource::new(CallIds::Seeded(seed));
            (0..3).map(|_| source.next()).collect::<Vec<_>>()
        };
        assert_eq!(take(7), take(7));
        assert_ne!(take(7), take(8));
    }
}
