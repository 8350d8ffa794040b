//! Windows bitmaps through the `image` crate.

use super::{Header, Raw, broken, colour};
use crate::error::{Error, Result};
use crate::policy::Limits;
use crate::sniff::ImageFormat;
use image::codecs::bmp::BmpDecoder;
use image::metadata::Orientation;
use image::{ColorType, ImageDecoder};
use std::io::Cursor;

fn decoder<'a>(bytes: &'a [u8], limits: &Limits) -> Result<(Header, BmpDecoder<Cursor<&'a [u8]>>)> {
    let decoder = BmpDecoder::new(Cursor::new(bytes)).map_err(|error| broken("BMP", &error))?;
    let (width, height) = decoder.dimensions();
    Ok((Header::checked(ImageFormat::Bmp, width, height, limits)?, decoder))
}

pub(super) fn header(bytes: &[u8], limits: &Limits) -> Result<Header> {
    decoder(bytes, limits).map(|(header, _)| header)
}

pub(super) fn decode(bytes: &[u8], limits: &Limits) -> Result<Raw> {
    let (header, decoder) = decoder(bytes, limits)?;
    let kind = decoder.color_type();
    let mut pixels = vec![0; header.pixels() as usize * usize::from(kind.bytes_per_pixel())];
    decoder.read_image(&mut pixels).map_err(|error| broken("BMP", &error))?;
    let rgb = match kind {
        ColorType::L8 => colour::from_grey(&pixels),
        ColorType::Rgb8 => pixels,
        ColorType::Rgba8 => colour::from_rgba(pixels),
        _ => return Err(Error::Unsupported("the image is a BMP of an unusual colour type".into())),
    };
    Ok(Raw { header, rgb, orientation: Orientation::NoTransforms })
}
