//! Pictures from bytes: the format is read from the bytes, the size from the header and held against the limits, and
//! only then pixels are made. Colours become 8-bit RGB as Pillow's `convert("RGB")` makes them (alpha is dropped, not
//! blended), and EXIF orientation is applied. No fetching, no resizing, no videos.

mod bmp;
mod colour;
mod gif;
mod jpeg;
mod png;
mod webp;

use crate::error::{Error, Result};
use crate::picture::Picture;
use crate::policy::Limits;
use crate::sniff::{self, ImageFormat};
use image::metadata::Orientation;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Bytes that decoding takes per pixel at most, the result included: the coefficients of a progressive JPEG of four
/// components (8), its rows (3), the upright copy (3) and what rows are made from.
const WORKING_BYTES: u64 = 16;

/// What a picture says of itself before it is decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Which decoder reads it.
    pub format: ImageFormat,
    /// Pixels in a row, before the orientation is applied.
    pub width: u32,
    /// Rows.
    pub height: u32,
}

impl Header {
    /// Pixels of the picture.
    pub fn pixels(&self) -> u64 {
        u64::from(self.width) * u64::from(self.height)
    }

    /// Memory that decoding may take, in bytes.
    pub fn working_bytes(&self) -> u64 {
        self.pixels() * WORKING_BYTES
    }

    fn checked(format: ImageFormat, width: u32, height: u32, limits: &Limits) -> Result<Header> {
        let header = Header { format, width, height };
        if width == 0 || height == 0 {
            return Err(Error::Broken(format!(
                "the image is {width}x{height} pixels, so there is nothing to see"
            )));
        }
        if header.pixels() > limits.max_pixels {
            let what = format!("the image of {width}x{height} in pixels");
            return Err(Error::too_large(what, header.pixels(), limits.max_pixels));
        }
        Ok(header)
    }
}

/// A decoder's outcome before the picture is set upright.
struct Raw {
    header: Header,
    rgb: Vec<u8>,
    orientation: Orientation,
}

/// Reads format and size, and holds both against `limits`; makes no pixels.
///
/// # Errors
/// Formats that are not decoded, broken headers, and sizes above the limits.
pub fn header(bytes: &[u8], limits: &Limits) -> Result<Header> {
    let format = checked_format(bytes, limits)?;
    guarded(|| match format {
        ImageFormat::Png => png::header(bytes, limits),
        ImageFormat::Jpeg => jpeg::header(bytes, limits),
        ImageFormat::Gif => gif::header(bytes, limits),
        ImageFormat::Webp => webp::header(bytes, limits),
        ImageFormat::Bmp => bmp::header(bytes, limits),
    })
}

/// Decodes a picture; of an animated one the first frame. Blocks: call it off the async threads, or through
/// [`crate::pool::Pool`].
///
/// # Errors
/// As [`header`], and pixels that break their format's rules.
pub fn decode_image(bytes: &[u8], limits: &Limits) -> Result<Picture> {
    let format = checked_format(bytes, limits)?;
    guarded(|| {
        let raw = match format {
            ImageFormat::Png => png::decode(bytes, limits),
            ImageFormat::Jpeg => jpeg::decode(bytes, limits),
            ImageFormat::Gif => gif::decode(bytes, limits),
            ImageFormat::Webp => webp::decode(bytes, limits),
            ImageFormat::Bmp => bmp::decode(bytes, limits),
        }?;
        upright(raw)
    })
}

fn checked_format(bytes: &[u8], limits: &Limits) -> Result<ImageFormat> {
    if bytes.len() as u64 > limits.max_image_bytes {
        return Err(Error::too_large("the image in bytes", bytes.len() as u64, limits.max_image_bytes));
    }
    sniff::image(bytes)
}

/// A decoder that panics on broken bytes fails this picture, and nothing else.
fn guarded<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(Error::Broken("the image cannot be decoded".into())))
}

fn broken(format: &str, error: &dyn std::fmt::Display) -> Error {
    Error::Broken(format!("the image is a broken {format}: {error}"))
}

fn upright(raw: Raw) -> Result<Picture> {
    let Raw { header: Header { width, height, .. }, rgb, orientation } = raw;
    if orientation == Orientation::NoTransforms {
        return Ok(Picture { width, height, rgb });
    }
    let buffer = image::RgbImage::from_raw(width, height, rgb)
        .ok_or_else(|| Error::Internal("a decoder gave another number of pixels than its header".into()))?;
    let mut turned = image::DynamicImage::ImageRgb8(buffer);
    turned.apply_orientation(orientation);
    let (width, height) = (turned.width(), turned.height());
    Ok(Picture { width, height, rgb: turned.into_rgb8().into_raw() })
}

/// The orientation in an EXIF block; none or a broken one means upright.
fn orientation(exif: Option<&[u8]>) -> Orientation {
    exif.map(|exif| exif.strip_prefix(b"Exif\0\0").unwrap_or(exif))
        .and_then(Orientation::from_exif_chunk)
        .unwrap_or(Orientation::NoTransforms)
}

#[cfg(test)]
mod tests;
