//! Bicubic resizing with antialiasing, bit for bit what the released processor's resizing gives on 8-bit pixels.
//!
//! That processor filters rows first, rounds to 8 bits, then filters columns. `fast_image_resize` in one call does it
//! the other way round, up to 18 levels off; called once per direction it gives the same bytes.

use fast_image_resize::images::{TypedImage, TypedImageRef};
use fast_image_resize::pixels::U8x3;
use fast_image_resize::{FilterType, ResizeAlg, ResizeOptions, Resizer};

use crate::error::{Error, Result};
use crate::picture::Picture;
use crate::size::Size;

/// The picture in another size; the same picture when it has that size already.
pub fn resize(picture: &Picture, to: Size) -> Result<Picture> {
    let mut resizer = Resizer::new();
    let wide = direction(&mut resizer, picture, to.width, picture.height)?;
    direction(&mut resizer, &wide, to.width, to.height)
}

/// Filters along the one direction in which the sizes differ.
fn direction(resizer: &mut Resizer, from: &Picture, width: u32, height: u32) -> Result<Picture> {
    if (from.width, from.height) == (width, height) {
        return Ok(from.clone());
    }
    let failed = |what: &dyn std::fmt::Display| {
        Error::Internal(format!("cannot resize {}x{} to {width}x{height}: {what}", from.width, from.height))
    };
    // One pixel type only: the crate's general images compile every kernel for every type into this one.
    let source = TypedImageRef::<U8x3>::from_buffer(from.width, from.height, &from.rgb);
    let source = source.map_err(|error| failed(&error))?;
    let mut rgb = vec![0; width as usize * height as usize * 3];
    let target = TypedImage::<U8x3>::from_buffer(width, height, &mut rgb);
    let mut target = target.map_err(|error| failed(&error))?;
    // Catmull-Rom is the bicubic kernel with a = -0.5; convolution widens it when shrinking, which is the antialiasing.
    let options =
        ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::CatmullRom)).use_alpha(false);
    resizer.resize_typed(&source, &mut target, &options).map_err(|error| failed(&error))?;
    Ok(Picture { width, height, rgb })
}

#[cfg(test)]
mod tests;
