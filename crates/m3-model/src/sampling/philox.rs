//! Philox4x32-10, the counter-based generator: the same number for (seed, output index) on every rank and backend.

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
/// Added to the key after every round (golden ratio and square root of 3, as fractions of 2^32).
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: u32 = 10;

/// One block of four random words.
pub fn philox4x32_10(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..ROUNDS {
        let left = u64::from(MULTIPLIERS[0]) * u64::from(counter[0]);
        let right = u64::from(MULTIPLIERS[1]) * u64::from(counter[2]);
        counter = [
            (right >> 32) as u32 ^ counter[1] ^ key[0],
            right as u32,
            (left >> 32) as u32 ^ counter[3] ^ key[1],
            left as u32,
        ];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

/// The number in (0, 1) that chooses output `output_index` of a row with this seed: word 0 of the block whose counter
/// is (output index, 0, 0, 0) and whose key is the seed (low word first), plus a half, over 2^32.
pub fn uniform(seed: u64, output_index: u32) -> f64 {
    let word = philox4x32_10([output_index, 0, 0, 0], [seed as u32, (seed >> 32) as u32])[0];
    (f64::from(word) + 0.5) / 4_294_967_296.0
}
