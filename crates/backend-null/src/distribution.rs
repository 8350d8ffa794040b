//! The pretended model: a hash chain over tokens instead of hidden states, and a distribution whose ranks are known.
//!
//! At a position with favourite `f` the token `f + r (mod vocab)` has rank `r` and probability `2^-(r+1)` (the last
//! rank takes what is left), so log-probabilities, ranks and alternatives need no vocabulary-wide work and can be
//! recomputed by a test.

/// Chain value before the first token.
pub const START: u64 = 0x4d33_6e75_6c6c_0001;

/// A fixed 64-bit mix; every bit of the input moves about half of the output's.
pub fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Chain value after one more input.
pub fn chain(before: u64, input: u64) -> u64 {
    mix(before ^ mix(input))
}

/// Greedy token after these tokens, without a script: what an engine test compares with.
pub fn expected(tokens: &[u32], vocab: u32) -> u32 {
    let end = tokens.iter().fold(START, |before, token| chain(before, u64::from(*token)));
    favourite(end, vocab)
}

/// Most likely token after a chain value.
pub fn favourite(end: u64, vocab: u32) -> u32 {
    (mix(end) % u64::from(vocab)) as u32
}

pub fn rank(token: u32, favourite: u32, vocab: u32) -> u32 {
    (u64::from(token) + u64::from(vocab) - u64::from(favourite)).rem_euclid(u64::from(vocab)) as u32
}

pub fn token_at(rank: u32, favourite: u32, vocab: u32) -> u32 {
    ((u64::from(favourite) + u64::from(rank)) % u64::from(vocab)) as u32
}

/// Natural log of the probability of a rank.
pub fn log_probability(rank: u32, vocab: u32) -> f32 {
    -(rank.saturating_add(1).min(vocab.max(2) - 1) as f32) * std::f32::consts::LN_2
}

/// Settings of a draw; the names are those of a row's settings.
#[derive(Clone, Copy, Debug)]
pub struct Draw {
    pub seed: u64,
    pub temperature: f32,
    pub top_k: u32,
    pub top_p: f32,
    pub min_p: f32,
}

/// Rank drawn for an output index: rank 0 when greedy, else geometric as the distribution says, inside the filters.
pub fn drawn_rank(draw: &Draw, output_index: u32, vocab: u32) -> u32 {
    if draw.temperature == 0.0 {
        return 0;
    }
    let noise = mix(draw.seed ^ mix(u64::from(output_index)));
    let mut kept = vocab;
    if draw.top_k > 0 {
        kept = kept.min(draw.top_k);
    }
    if draw.top_p < 1.0 {
        kept = kept.min((-(1.0 - draw.top_p).log2()).ceil().max(1.0) as u32);
    }
    if draw.min_p > 0.0 {
        kept = kept.min((-draw.min_p.log2()).floor().max(0.0) as u32 + 1);
    }
    noise.leading_zeros() % kept
}
