//! WEBP through `image-webp`, of an animated one the first frame. The decoder takes memory by the size in each frame's
//! own header, so those are held against the limits too, not only the canvas.

use super::{Header, Raw, broken, colour, orientation};
use crate::error::{Error, Result};
use crate::policy::Limits;
use crate::sniff::ImageFormat;
use image_webp::WebPDecoder;
use std::io::Cursor;

type Decoder<'a> = WebPDecoder<Cursor<&'a [u8]>>;

fn decoder<'a>(bytes: &'a [u8], limits: &Limits) -> Result<(Header, Decoder<'a>)> {
    check_frames(bytes, limits)?;
    let mut decoder = WebPDecoder::new(Cursor::new(bytes)).map_err(|error| broken("WEBP", &error))?;
    decoder.set_memory_limit(bytes.len());
    let (width, height) = decoder.dimensions();
    Ok((Header::checked(ImageFormat::Webp, width, height, limits)?, decoder))
}

pub(super) fn header(bytes: &[u8], limits: &Limits) -> Result<Header> {
    decoder(bytes, limits).map(|(header, _)| header)
}

pub(super) fn decode(bytes: &[u8], limits: &Limits) -> Result<Raw> {
    let (header, mut decoder) = decoder(bytes, limits)?;
    let size = decoder.output_buffer_size().ok_or_else(|| broken("WEBP", &"its size overflows"))?;
    let mut pixels = vec![0; size];
    decoder.read_image(&mut pixels).map_err(|error| broken("WEBP", &error))?;
    // A broken EXIF block costs the orientation, not the picture.
    let exif = decoder.exif_metadata().unwrap_or_default();
    let rgb = if decoder.has_alpha() { colour::from_rgba(pixels) } else { pixels };
    Ok(Raw { header, rgb, orientation: orientation(exif.as_deref()) })
}

/// Walks the chunks, into the animation's frames as well, and checks the size that each bitstream names.
fn check_frames(bytes: &[u8], limits: &Limits) -> Result<()> {
    let mut rest = bytes.get(12..).unwrap_or_default();
    while let Some((name, body, after)) = chunk(rest) {
        match name {
            b"ANMF" => {
                let mut inner = body.get(16..).unwrap_or_default();
                while let Some((name, body, after)) = chunk(inner) {
                    check_frame(name, body, limits)?;
                    inner = after;
                }
            }
            _ => check_frame(name, body, limits)?,
        }
        rest = after;
    }
    Ok(())
}

/// One chunk: its name, its body as far as it is there, and what follows it.
fn chunk(bytes: &[u8]) -> Option<(&[u8; 4], &[u8], &[u8])> {
    let (name, rest) = bytes.split_first_chunk::<4>()?;
    let (size, rest) = rest.split_first_chunk::<4>()?;
    let size = u32::from_le_bytes(*size) as usize;
    let padded = size.saturating_add(size & 1).min(rest.len());
    Some((name, &rest[..size.min(rest.len())], &rest[padded..]))
}

fn check_frame(name: &[u8; 4], body: &[u8], limits: &Limits) -> Result<()> {
    let size = match name {
        b"VP8 " => body.get(6..10).map(|size| {
            let side = |low: u8, high: u8| u32::from(u16::from_le_bytes([low, high]) & 0x3fff);
            (side(size[0], size[1]), side(size[2], size[3]))
        }),
        b"VP8L" => body.get(1..5).map(|size| {
            let bits = u32::from_le_bytes([size[0], size[1], size[2], size[3]]);
            ((bits & 0x3fff) + 1, (bits >> 14 & 0x3fff) + 1)
        }),
        _ => None,
    };
    match size {
        Some((0, _) | (_, 0)) => {
            Err(Error::Broken("the image is a broken WEBP: a frame has no pixels".into()))
        }
        Some((width, height)) => Header::checked(ImageFormat::Webp, width, height, limits).map(|_| ()),
        None => Ok(()),
    }
}
