//! PNG through the `png` crate. Text and colour profiles are skipped unread, so what is packed in them stays packed.

use super::{Header, Raw, broken, colour, orientation};
use crate::error::{Error, Result};
use crate::policy::Limits;
use crate::sniff::ImageFormat;
use png::{BitDepth, ColorType, Decoder, Limits as PngLimits, Reader, Transformations};
use std::io::Cursor;

/// What the decoder may hold beside the pixels: rows and small chunks.
const OVERHEAD: u64 = 16 << 20;

type Bytes<'a> = Cursor<&'a [u8]>;

fn decoder<'a>(bytes: &'a [u8], limits: &Limits) -> Result<(Header, Decoder<Bytes<'a>>)> {
    let room = usize::try_from(limits.max_pixels * 8 + OVERHEAD).unwrap_or(usize::MAX);
    let mut decoder = Decoder::new_with_limits(Cursor::new(bytes), PngLimits { bytes: room });
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    decoder.set_transformations(Transformations::EXPAND);
    let info = decoder.read_header_info().map_err(|error| broken("PNG", &error))?;
    let header = Header::checked(ImageFormat::Png, info.width, info.height, limits)?;
    Ok((header, decoder))
}

pub(super) fn header(bytes: &[u8], limits: &Limits) -> Result<Header> {
    decoder(bytes, limits).map(|(header, _)| header)
}

pub(super) fn decode(bytes: &[u8], limits: &Limits) -> Result<Raw> {
    let (header, decoder) = decoder(bytes, limits)?;
    let mut reader = decoder.read_info().map_err(|error| broken("PNG", &error))?;
    let size = reader.output_buffer_size().ok_or_else(|| broken("PNG", &"its size overflows"))?;
    let mut samples = vec![0; size];
    reader.next_frame(&mut samples).map_err(|error| broken("PNG", &error))?;
    let orientation = orientation(exif(&reader));
    let (colour, depth) = reader.output_color_type();
    let samples = match depth {
        BitDepth::Eight => samples,
        BitDepth::Sixteen => colour::high_bytes(samples),
        _ => return Err(Error::Internal("a PNG was not expanded to 8 bits".into())),
    };
    let rgb = match colour {
        ColorType::Grayscale => colour::from_grey(&samples),
        ColorType::GrayscaleAlpha => colour::from_grey_alpha(&samples),
        ColorType::Rgb => samples,
        ColorType::Rgba => colour::from_rgba(samples),
        ColorType::Indexed => return Err(Error::Internal("a PNG's palette was not applied".into())),
    };
    Ok(Raw { header, rgb, orientation })
}

/// EXIF in front of the pixels.
fn exif<'a>(reader: &'a Reader<Bytes<'_>>) -> Option<&'a [u8]> {
    reader.info().exif_metadata.as_deref()
}
