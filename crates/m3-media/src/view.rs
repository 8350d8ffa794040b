//! A picture of prepared patches, for people: what the vision tower reads, put back together from the very rows, with a
//! line around each patch and a stronger one around each token. For looking, not for computing.

use crate::error::{Error, Result};
use crate::geometry::Geometry;
use crate::picture::Picture;
use crate::prepare::Prepared;

/// Small media are enlarged to about so many pixels across.
const WIDE: usize = 700;
/// Between patches of one token.
const PATCH_LINE: [u8; 3] = [128, 128, 128];
/// Around tokens.
const TOKEN_LINE: [u8; 3] = [255, 0, 160];
/// Around and between frames.
const MARGIN: usize = 4;

/// Draws all frames: one below the other by time, the frames of one temporal patch side by side. An image is shown once,
/// since both its frames are the same.
pub fn view(prepared: &Prepared, geometry: &Geometry) -> Picture {
    let [times, rows, columns] = prepared.grid.map(|count| count as usize);
    let across = if prepared.timestamps.is_empty() { 1 } else { geometry.temporal as usize };
    let patch = geometry.patch as usize;
    let scale = (WIDE / (columns * patch * across)).max(1);
    // Every patch brings a line to its left and above it; the last line of all closes the frame.
    let cell = patch * scale + 1;
    let (wide, high) = (columns * cell + 1 + MARGIN, rows * cell + 1 + MARGIN);
    let mut canvas = Canvas::new(across * wide + MARGIN, times * high + MARGIN);
    for (time, slot) in (0..times).flat_map(|time| (0..across).map(move |slot| (time, slot))) {
        let (left, top) = (MARGIN + slot * wide, MARGIN + time * high);
        canvas.lines((left, top), (columns, rows), (cell, geometry.merge as usize));
        let frame = Frame { prepared, geometry, time, slot };
        for (y, x) in (0..rows * patch).flat_map(|y| (0..columns * patch).map(move |x| (y, x))) {
            let colour = frame.colour(y, x);
            let corner = (
                left + x / patch * cell + 1 + x % patch * scale,
                top + y / patch * cell + 1 + y % patch * scale,
            );
            canvas.square(corner, scale, colour);
        }
    }
    canvas.into_picture()
}

/// A picture as a PNG file.
pub fn png(picture: &Picture) -> Result<Vec<u8>> {
    let failed = |what: String| Error::Internal(format!("the picture cannot be written: {what}"));
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, picture.width, picture.height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header().map_err(|error| failed(error.to_string()))?;
    writer.write_image_data(&picture.rgb).map_err(|error| failed(error.to_string()))?;
    writer.finish().map_err(|error| failed(error.to_string()))?;
    Ok(file)
}

/// One frame of prepared patches.
struct Frame<'a> {
    prepared: &'a Prepared,
    geometry: &'a Geometry,
    time: usize,
    slot: usize,
}

impl Frame<'_> {
    /// The pixel's levels: the patch that holds it is found in merge order, and its values are scaled back.
    fn colour(&self, y: usize, x: usize) -> [u8; 3] {
        let (patch, merge) = (self.geometry.patch as usize, self.geometry.merge as usize);
        let [_, rows, columns] = self.prepared.grid.map(|count| count as usize);
        let (row, column) = (y / patch, x / patch);
        let square = row / merge * (columns / merge) + column / merge;
        let index =
            self.time * rows * columns + square * merge * merge + row % merge * merge + column % merge;
        let values = &self.prepared.patches[index * self.prepared.row_len..];
        std::array::from_fn(|colour| {
            let line = (colour * self.geometry.temporal as usize + self.slot) * patch + y % patch;
            let value = values[line * patch + x % patch];
            ((value * self.geometry.std[colour] + self.geometry.mean[colour]) * 255.0).round() as u8
        })
    }
}

/// Pixels that are drawn on.
struct Canvas {
    width: usize,
    rgb: Vec<u8>,
}

impl Canvas {
    fn new(width: usize, height: usize) -> Self {
        Canvas { width, rgb: vec![255; width * height * 3] }
    }

    fn square(&mut self, (left, top): (usize, usize), side: usize, colour: [u8; 3]) {
        for y in top..top + side {
            let first = (y * self.width + left) * 3;
            self.rgb[first..first + side * 3]
                .chunks_exact_mut(3)
                .for_each(|pixel| pixel.copy_from_slice(&colour));
        }
    }

    /// The grid of a frame at `corner`, of `columns` x `rows` cells; every `merge`th line is a token's.
    fn lines(
        &mut self,
        (left, top): (usize, usize),
        (columns, rows): (usize, usize),
        (cell, merge): (usize, usize),
    ) {
        // Tokens' lines last, so that they are not crossed.
        for strong in [false, true] {
            let colour = if strong { TOKEN_LINE } else { PATCH_LINE };
            let wanted = |line: &usize| line.is_multiple_of(merge) == strong;
            for row in (0..=rows).filter(wanted) {
                (0..=columns * cell).for_each(|x| self.square((left + x, top + row * cell), 1, colour));
            }
            for column in (0..=columns).filter(wanted) {
                (0..=rows * cell).for_each(|y| self.square((left + column * cell, top + y), 1, colour));
            }
        }
    }

    fn into_picture(self) -> Picture {
        let height = self.rgb.len() / 3 / self.width;
        Picture { width: self.width as u32, height: height as u32, rgb: self.rgb }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prepare;
    use crate::size::Rule;

    /// Every pixel that was prepared is found again at its place, unscaled.
    #[test]
    fn a_view_shows_the_very_pixels_between_its_lines() {
        let (width, height) = (84 * 7, 56);
        let pixels = (0..width * height * 3).map(|at| (at * 37 % 251) as u8);
        let picture = Picture { width, height, rgb: pixels.collect() };
        let geometry = Geometry::default();
        let prepared = prepare::image(&picture, &[0; 32], Rule::IMAGE, &geometry, 1000).expect("prepared");
        let seen = view(&prepared, &geometry);
        assert_eq!((seen.width, seen.height), (42 * 15 + 1 + 8, 4 * 15 + 1 + 8));
        let at = |picture: &Picture, x: u32, y: u32| {
            let first = ((y * picture.width + x) * 3) as usize;
            picture.rgb[first..first + 3].to_vec()
        };
        for (x, y) in (0..width).flat_map(|x| (0..height).map(move |y| (x, y))) {
            let place = |at: u32| 4 + at / 14 * 15 + 1 + at % 14;
            assert_eq!(at(&seen, place(x), place(y)), at(&picture, x, y), "pixel {x}, {y}");
        }
        assert_eq!(at(&seen, 4, 4), TOKEN_LINE);
        assert_eq!(at(&seen, 4 + 15, 4 + 3), PATCH_LINE);
        assert_eq!(at(&seen, 4 + 30, 4 + 3), TOKEN_LINE);
        let file = png(&seen).expect("a PNG");
        assert_eq!(crate::decode_image(&file, &crate::Limits::default()), Ok(seen));
    }
}
