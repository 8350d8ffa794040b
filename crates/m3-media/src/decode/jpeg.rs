//! JPEG through `zune-jpeg`: grey, YCbCr, RGB, CMYK and YCCK, baseline and progressive. A file that ends too early is
//! refused; one that is damaged inside is shown as far as it goes, as other readers do.

use super::{Header, Raw, broken, colour, orientation};
use crate::error::{Error, Result};
use crate::policy::Limits;
use crate::sniff::ImageFormat;
use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

/// Passes over the picture; each costs time for every pixel, and a progressive file needs about ten.
const MAX_SCANS: usize = 64;

type Decoder<'a> = JpegDecoder<ZCursor<&'a [u8]>>;

fn decoder<'a>(bytes: &'a [u8], limits: &Limits) -> Result<(Header, Decoder<'a>)> {
    // Leniency is for files that have their end; without one only a faultless stream tells that nothing is missing.
    let options = DecoderOptions::default()
        .set_strict_mode(!has_end(bytes))
        .set_max_width(usize::from(u16::MAX))
        .set_max_height(usize::from(u16::MAX))
        .jpeg_set_max_scans(MAX_SCANS);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    decoder.decode_headers().map_err(|error| broken("JPEG", &error))?;
    let info = decoder.info().ok_or_else(|| broken("JPEG", &"it has no frame header"))?;
    let header = Header::checked(ImageFormat::Jpeg, u32::from(info.width), u32::from(info.height), limits)?;
    Ok((header, decoder))
}

pub(super) fn header(bytes: &[u8], limits: &Limits) -> Result<Header> {
    decoder(bytes, limits).map(|(header, _)| header)
}

pub(super) fn decode(bytes: &[u8], limits: &Limits) -> Result<Raw> {
    let (header, mut decoder) = decoder(bytes, limits)?;
    let grey = match decoder.input_colorspace() {
        Some(ColorSpace::Luma) => true,
        Some(ColorSpace::YCbCr | ColorSpace::RGB | ColorSpace::CMYK | ColorSpace::YCCK) => false,
        _ => return Err(Error::Unsupported("the image is a JPEG of an unusual colour space".into())),
    };
    let wanted = if grey { ColorSpace::Luma } else { ColorSpace::RGB };
    decoder.set_options(decoder.options().jpeg_set_out_colorspace(wanted));
    let samples = decoder.decode().map_err(|error| broken("JPEG", &error))?;
    let orientation = orientation(decoder.exif().map(Vec::as_slice));
    let rgb = if grey { colour::from_grey(&samples) } else { samples };
    if rgb.len() as u64 != header.pixels() * 3 {
        return Err(broken("JPEG", &"it has another number of pixels than its header says"));
    }
    Ok(Raw { header, rgb, orientation })
}

/// Whether an end-of-image marker follows the first scan; thumbnails inside the headers have their own, which do not
/// count.
fn has_end(bytes: &[u8]) -> bool {
    let mut at = 2;
    while let Some(&[0xff, marker, high, low]) = bytes.get(at..at + 4) {
        if marker == 0xda {
            break;
        }
        at += match marker {
            0xff => 1,
            0x01 | 0xd0..=0xd9 => 2,
            _ => 2 + usize::from(u16::from_be_bytes([high, low])),
        };
    }
    bytes.get(at..).is_some_and(|scans| memchr::memmem::find(scans, b"\xff\xd9").is_some())
}
