//! Pixels of other kinds to 8-bit RGB, in place where they shrink. Only arithmetic; which kind it is the decoders say.

/// Grey to RGB.
pub(super) fn from_grey(grey: &[u8]) -> Vec<u8> {
    grey.iter().flat_map(|value| [*value; 3]).collect()
}

/// Grey and alpha to RGB; alpha is dropped.
pub(super) fn from_grey_alpha(pixels: &[u8]) -> Vec<u8> {
    pixels.chunks_exact(2).flat_map(|pixel| [pixel[0]; 3]).collect()
}

/// RGB and alpha to RGB; alpha is dropped, so a hidden colour shows.
pub(super) fn from_rgba(mut pixels: Vec<u8>) -> Vec<u8> {
    let count = pixels.len() / 4;
    for pixel in 0..count {
        pixels.copy_within(4 * pixel..4 * pixel + 3, 3 * pixel);
    }
    pixels.truncate(3 * count);
    pixels.shrink_to_fit();
    pixels
}

/// 16-bit samples, high byte first, scaled to 8 bits by their high byte.
pub(super) fn high_bytes(mut samples: Vec<u8>) -> Vec<u8> {
    let count = samples.len() / 2;
    for sample in 0..count {
        samples[sample] = samples[2 * sample];
    }
    samples.truncate(count);
    samples
}
