//! Words that belong to one request alone and can be found again in any text.

/// What every nonce begins with, so that somebody else's is seen as well.
const MARK: &str = "nonce";

/// Differs between any two requests of a run.
pub(crate) fn nonce(number: u64) -> String {
    // Spread, so that neighbours share no long beginning.
    format!("{MARK}{:016x}", number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// The nonces of a text, in order; a part of one counts, as part of whatever it is.
pub(crate) fn found(text: &str) -> Vec<&str> {
    let starts = text.match_indices(MARK).map(|(at, _)| at);
    starts
        .map(|at| {
            let rest = &text[at + MARK.len()..];
            let len = rest.bytes().take_while(u8::is_ascii_hexdigit).count().min(16);
            &text[at..at + MARK.len() + len]
        })
        .collect()
}

/// What an answer to the request with `own` has: how often its own nonce, and the first that is not its own.
pub(crate) fn judge<'a>(text: &'a str, own: &str) -> (usize, Option<&'a str>) {
    let all = found(text);
    (
        all.iter().filter(|nonce| **nonce == own).count(),
        all.into_iter().find(|nonce| !own.starts_with(*nonce)),
    )
}

#[test]
fn nonces_differ_and_are_found_again() {
    let all: std::collections::BTreeSet<String> = (0..10_000).map(nonce).collect();
    assert_eq!(all.len(), 10_000);
    let (own, other) = (nonce(1), nonce(2));
    assert_eq!(judge(&format!("a {own}, {own}b"), &own), (2, None));
    assert_eq!(judge(&format!("{own} {other}"), &own), (1, Some(other.as_str())));
    assert_eq!(judge(&own[..12], &own), (0, None), "cut off, and still its own");
}
