//! Keys that clients prove themselves with: compared in constant time, and never printed.

use std::fmt;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// A key. Only its digest is kept, so that neither a log, a panic nor an info route can tell it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

impl Secret {
    /// Forgets the text and keeps its digest.
    pub fn new(text: &str) -> Self {
        Secret(Sha256::digest(text.as_bytes()).into())
    }

    /// Whether `given` is the key. The time taken tells neither where a guess is wrong nor how long the key is.
    pub fn is(&self, given: &str) -> bool {
        self.0.ct_eq(&Secret::new(given).0).into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret(…)")
    }
}

/// The position of the key that `given` is. All are compared, so that the time taken does not tell which one.
pub fn find(keys: &[Secret], given: &str) -> Option<usize> {
    let keys = keys.iter().enumerate();
    keys.fold(None, |found, (at, key)| if key.is(given) { Some(at) } else { found })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_and_never_shown() {
        let keys = [Secret::new("first"), Secret::new("second")];
        assert_eq!(find(&keys, "second"), Some(1));
        for wrong in ["", "firs", "firstx", "First", "second "] {
            assert_eq!(find(&keys, wrong), None, "{wrong}");
        }
        assert_eq!(format!("{:?}", keys[0]), "Secret(…)");
    }
}
