//! From resized pixels to the rows the vision tower reads: normalised, cut into patches, put in merge order.
//!
//! Rows: time outermost, then squares of `merge` x `merge` patches from the top left, then the patches inside a square.
//! Values of a row: colour, frame, y, x.

use std::sync::Arc;

use crate::geometry::Geometry;
use crate::picture::Picture;
use crate::size::Size;

/// The patch rows of frames of one size, whose sides are multiples of the geometry's unit: `t * h * w * row_len`
/// values. The last frame fills up the last temporal patch, so an image is its own second frame.
///
/// # Panics
/// Without frames, or when a frame's size is not `size` or no multiple of the unit.
pub fn patches(frames: &[Picture], size: Size, geometry: &Geometry) -> Arc<[f32]> {
    let unit = geometry.unit();
    assert!(
        size.height.is_multiple_of(unit) && size.width.is_multiple_of(unit),
        "{size} is not in units of {unit}"
    );
    assert!(frames.iter().all(|frame| (frame.height, frame.width) == (size.height, size.width)));
    let grid = geometry.grid(frames.len(), size);
    let count = grid.iter().map(|&part| part as usize).product::<usize>() * geometry.row_len();
    let mut rows: Arc<[f32]> = std::iter::repeat_n(0.0, count).collect();
    // Nobody else has it yet: filled in place, since a video's rows may take gigabytes.
    let Some(values) = Arc::get_mut(&mut rows) else { unreachable!("the allocation is new") };
    let levels = levels(geometry);
    let per_time = count / grid[0] as usize;
    for (time, values) in values.chunks_exact_mut(per_time).enumerate() {
        let frame = |slot: usize| {
            let at = time * geometry.temporal as usize + slot;
            &frames[at.min(frames.len() - 1)].rgb[..]
        };
        let cut = Cut { geometry, levels: &levels, width: size.width as usize };
        let corners = corners(geometry, size);
        for (row, corner) in values.chunks_exact_mut(geometry.row_len()).zip(corners) {
            cut.fill(row, corner, frame);
        }
    }
    rows
}

/// The normalised value of every 8-bit level of every colour.
///
/// Mean and deviation are scaled up to levels and a level is never divided by 255: the order in which the reference
/// computes, so that the last bit agrees too.
fn levels(geometry: &Geometry) -> [[f32; 256]; 3] {
    std::array::from_fn(|colour| {
        let (mean, std) = (geometry.mean[colour] * 255.0, geometry.std[colour] * 255.0);
        std::array::from_fn(|level| (level as f32 - mean) / std)
    })
}

/// Top left pixels (y, x) of the patches of one time, in merge order.
fn corners(geometry: &Geometry, size: Size) -> impl Iterator<Item = (usize, usize)> {
    let (patch, merge) = (geometry.patch as usize, geometry.merge as usize);
    let unit = patch * merge;
    let (squares_down, squares_across) = (size.height as usize / unit, size.width as usize / unit);
    let squares = (0..squares_down).flat_map(move |y| (0..squares_across).map(move |x| (y * unit, x * unit)));
    squares.flat_map(move |(top, left)| {
        (0..merge * merge).map(move |inner| (top + inner / merge * patch, left + inner % merge * patch))
    })
}

/// What all patches of one time have in common.
struct Cut<'a> {
    geometry: &'a Geometry,
    levels: &'a [[f32; 256]; 3],
    width: usize,
}

impl Cut<'_> {
    /// Fills one row: colour, frame, y, x.
    fn fill<'f>(&self, row: &mut [f32], (top, left): (usize, usize), frame: impl Fn(usize) -> &'f [u8]) {
        let patch = self.geometry.patch as usize;
        let temporal = self.geometry.temporal as usize;
        for (line, values) in row.chunks_exact_mut(patch).enumerate() {
            let (colour, slot, y) = (line / patch / temporal, line / patch % temporal, line % patch);
            let first = ((top + y) * self.width + left) * 3 + colour;
            let pixels = frame(slot)[first..].iter().step_by(3);
            for (value, &level) in values.iter_mut().zip(pixels) {
                *value = self.levels[colour][usize::from(level)];
            }
        }
    }
}

#[cfg(test)]
mod tests;
