//! Patch order by a picture whose pixels say where they are, and by the specification's examples.

use super::*;

/// No normalisation: a value is its level.
fn plain() -> Geometry {
    Geometry { mean: [0.0; 3], std: [1.0 / 255.0; 3], ..Geometry::default() }
}

fn picture(width: u32, height: u32, pixel: impl Fn(u32, u32, u32) -> u8) -> Picture {
    let positions = (0..height).flat_map(|y| (0..width).flat_map(move |x| (0..3).map(move |c| (x, y, c))));
    Picture { width, height, rgb: positions.map(|(x, y, colour)| pixel(x, y, colour)).collect() }
}

#[test]
fn patches_come_in_squares_that_become_tokens() {
    // Every pixel holds its patch's number in reading order: 4 rows of 6.
    let numbered = picture(84, 56, |x, y, _| (y / 14 * 6 + x / 14) as u8);
    let rows = patches(std::slice::from_ref(&numbered), numbered.size(), &plain());
    assert_eq!(rows.len(), 24 * 1176);
    let order: Vec<f32> = rows.chunks(1176).map(|row| row[0]).collect();
    let expected = [0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11, 12, 13, 18, 19, 14, 15, 20, 21, 16, 17, 22, 23]
        .map(|n| n as f32);
    assert_eq!(order, expected);
    assert!(rows.chunks(1176).all(|row| row.iter().all(|value| *value == row[0])));
}

#[test]
fn a_row_is_colour_then_frame_then_y_then_x() {
    let first = picture(28, 28, |x, y, colour| (colour * 80 + y * 2 + x) as u8);
    let second = picture(28, 28, |x, y, colour| (colour * 80 + y * 2 + x + 5) as u8);
    let rows = patches(&[first.clone(), second.clone()], first.size(), &plain());
    let at = |row: usize, colour: usize, frame: usize, y: usize, x: usize| {
        rows[row * 1176 + ((colour * 2 + frame) * 14 + y) * 14 + x]
    };
    for (colour, y, x) in (0..3).flat_map(|c| (0..14).flat_map(move |y| (0..14).map(move |x| (c, y, x)))) {
        let level = |top: usize, left: usize| (colour * 80 + (top + y) * 2 + left + x) as f32;
        for (row, (top, left)) in [(0, 0), (0, 14), (14, 0), (14, 14)].into_iter().enumerate() {
            assert!((at(row, colour, 0, y, x) - level(top, left)).abs() < 1e-3);
            assert!((at(row, colour, 1, y, x) - level(top, left) - 5.0).abs() < 1e-3);
        }
    }
}

#[test]
fn an_image_is_its_own_second_frame_and_an_odd_clip_repeats_its_last() {
    let frame = |level: u8| picture(28, 28, |_, _, _| level);
    let image = patches(&[frame(7)], frame(7).size(), &plain());
    assert_eq!(image, patches(&[frame(7), frame(7)], frame(7).size(), &plain()));
    let odd = patches(&[frame(1), frame(2), frame(3)], frame(1).size(), &plain());
    let padded = patches(&[frame(1), frame(2), frame(3), frame(3)], frame(1).size(), &plain());
    assert_eq!(odd, padded);
    assert_ne!(odd, patches(&[frame(1), frame(2), frame(3), frame(2)], frame(1).size(), &plain()));
}

#[test]
fn grids_count_times_rows_and_columns() {
    let geometry = Geometry::default();
    let size = Size { height: 364, width: 644 };
    let grid = geometry.grid(5, size);
    assert_eq!((grid, geometry.tokens_per_time(grid), geometry.row_len()), ([3, 26, 46], 299, 1176));
    let image = geometry.grid(1, Size { height: 476, width: 644 });
    assert_eq!((image, geometry.tokens_per_time(image)), ([1, 34, 46], 391));
}
