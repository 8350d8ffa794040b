//! The first frame of a GIF, on a canvas that reaches as far as the frame does. Around the frame lies the transparent
//! colour if there is one, else the palette's first.

use super::{Header, Raw, broken};
use crate::error::Result;
use crate::policy::Limits;
use crate::sniff::ImageFormat;
use gif::{ColorOutput, DecodeOptions, Decoder, Frame, MemoryLimit};
use image::metadata::Orientation;

/// A decoder that stands before the first frame's pixels, and the canvas.
fn decoder<'a>(bytes: &'a [u8], limits: &Limits) -> Result<(Header, Decoder<&'a [u8]>)> {
    let mut options = DecodeOptions::new();
    options.set_color_output(ColorOutput::Indexed);
    options.set_memory_limit(MemoryLimit::Bytes(
        std::num::NonZeroU64::new(limits.max_pixels).unwrap_or(std::num::NonZeroU64::MIN),
    ));
    let mut decoder = options.read_info(bytes).map_err(|error| broken("GIF", &error))?;
    let (width, height) = (u32::from(decoder.width()), u32::from(decoder.height()));
    let frame = decoder.next_frame_info().map_err(|error| broken("GIF", &error))?;
    let frame = frame.ok_or_else(|| broken("GIF", &"it has no frame"))?;
    let width = width.max(u32::from(frame.left) + u32::from(frame.width));
    let height = height.max(u32::from(frame.top) + u32::from(frame.height));
    Ok((Header::checked(ImageFormat::Gif, width, height, limits)?, decoder))
}

pub(super) fn header(bytes: &[u8], limits: &Limits) -> Result<Header> {
    decoder(bytes, limits).map(|(header, _)| header)
}

pub(super) fn decode(bytes: &[u8], limits: &Limits) -> Result<Raw> {
    let (header, mut decoder) = decoder(bytes, limits)?;
    let mut indices = vec![0; decoder.buffer_size()];
    decoder.read_into_buffer(&mut indices).map_err(|error| broken("GIF", &error))?;
    let global = decoder.global_palette().map(<[u8]>::to_vec);
    let frame = decoder.current_frame_info().ok_or_else(|| broken("GIF", &"it has no frame"))?;
    let palette = frame.palette.clone().or(global);
    let rgb = painted(header, frame, &indices, |index| match &palette {
        Some(palette) => {
            palette.chunks_exact(3).nth(usize::from(index)).map_or([0; 3], |c| [c[0], c[1], c[2]])
        }
        // Without any palette the indices are grey values.
        None => [index; 3],
    });
    Ok(Raw { header, rgb, orientation: Orientation::NoTransforms })
}

fn painted(header: Header, frame: &Frame<'_>, indices: &[u8], colour: impl Fn(u8) -> [u8; 3]) -> Vec<u8> {
    let colours: Vec<[u8; 3]> = (0..=255).map(colour).collect();
    let (canvas, width) = (header.width as usize, usize::from(frame.width));
    let around = colours[usize::from(frame.transparent.unwrap_or(0))];
    let mut rgb: Vec<u8> = around.iter().copied().cycle().take(canvas * header.height as usize * 3).collect();
    if width == 0 {
        return rgb;
    }
    for (row, line) in indices.chunks_exact(width).enumerate() {
        let start = ((usize::from(frame.top) + row) * canvas + usize::from(frame.left)) * 3;
        for (pixel, index) in rgb[start..start + width * 3].chunks_exact_mut(3).zip(line) {
            pixel.copy_from_slice(&colours[usize::from(*index)]);
        }
    }
    rgb
}
