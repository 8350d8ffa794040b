//! Arithmetic of media that the reference, the backends and the engine share: how many rows a grid has, in which order
//! its patches lie, which of them attend to each other, and how they are rotated.
//!
//! A medium is a grid of t x h x w patches. Rows of patches come in merge order: t outermost, then groups of
//! `merge x merge` neighbours, row-major inside a group. No weights and no pixels here.

use std::ops::Range;

use crate::config::VisionConfig;
use crate::rope::Rope;

/// Most patches of one medium: what the volume limit of a video comes to, with room above it.
pub const MOST_PATCHES: u64 = 1 << 22;

/// Most pixels of a video's frame by the released processor's rule; an image has fewer.
const FRAME_PIXELS: usize = 602_112;

/// Patches of the longest segment that the released processor's sizes make.
pub fn longest_segment(config: &VisionConfig) -> usize {
    FRAME_PIXELS / (config.patch_size * config.patch_size) * config.segment_max_frames
}

/// Why patches and grids cannot be encoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GridError {
    #[error("no grid was given; a medium needs one")]
    None,
    #[error("rows of {row_len} values were given; a patch of this model has {wanted}")]
    RowLen { row_len: usize, wanted: usize },
    #[error("a grid of {t} x {h} x {w} patches; every side must be at least 1")]
    Empty { t: u32, h: u32, w: u32 },
    #[error("a grid of {t} x {h} x {w} patches; height and width must be multiples of {merge}")]
    Ragged { t: u32, h: u32, w: u32, merge: usize },
    #[error("the grids have {patches} patches; at most {MOST_PATCHES} are taken at once")]
    TooMany { patches: u64 },
    #[error("{values} patch values were given; grids of {patches} patches have {wanted}")]
    Values { values: usize, patches: u64, wanted: u64 },
}

impl VisionConfig {
    /// Values of a patch row: channel, time, y, x.
    pub fn row_len(&self) -> usize {
        self.num_channels * self.temporal_patch_size * self.patch_size * self.patch_size
    }

    /// Patches that become one row of the text model.
    pub fn merged_patches(&self) -> usize {
        self.merge_size * self.merge_size
    }

    pub fn head_dim(&self) -> usize {
        self.hidden_size / self.num_heads
    }
}

/// Checks what [`m3_abi::Backend::encode`] was given; returns the number of patches.
///
/// # Errors
/// With the value and the limit.
pub fn check_grids(
    config: &VisionConfig,
    values: usize,
    row_len: usize,
    grids: &[[u32; 3]],
) -> Result<usize, GridError> {
    let wanted = config.row_len();
    if row_len != wanted {
        return Err(GridError::RowLen { row_len, wanted });
    }
    if grids.is_empty() {
        return Err(GridError::None);
    }
    let mut patches = 0u64;
    for &[t, h, w] in grids {
        if t == 0 || h == 0 || w == 0 {
            return Err(GridError::Empty { t, h, w });
        }
        let merge = config.merge_size;
        if !(h as usize).is_multiple_of(merge) || !(w as usize).is_multiple_of(merge) {
            return Err(GridError::Ragged { t, h, w, merge });
        }
        // Three u32 may overflow 64 bits.
        let sides = u64::from(t).saturating_mul(u64::from(h)).saturating_mul(u64::from(w));
        patches = patches.saturating_add(sides);
    }
    if patches > MOST_PATCHES {
        return Err(GridError::TooMany { patches });
    }
    let wanted = patches * row_len as u64;
    if values as u64 != wanted {
        return Err(GridError::Values { values, patches, wanted });
    }
    Ok(patches as usize)
}

/// Rows of patches that attend to each other, of all grids in order: runs of at most `segment_max_frames` temporal
/// patches of one medium.
pub fn segments(config: &VisionConfig, grids: &[[u32; 3]]) -> Vec<Range<usize>> {
    let mut segments = Vec::new();
    let mut first = 0;
    for &[t, h, w] in grids {
        let frame = h as usize * w as usize;
        let mut frames_left = t as usize;
        while frames_left > 0 {
            let frames = frames_left.min(config.segment_max_frames);
            segments.push(first..first + frames * frame);
            first += frames * frame;
            frames_left -= frames;
        }
    }
    segments
}

/// Time, y and x of every row of patches; time starts over in each segment.
pub fn places(config: &VisionConfig, grids: &[[u32; 3]]) -> Vec<[u32; 3]> {
    let merge = config.merge_size as u32;
    let patches = grids.iter().map(|grid| grid.iter().map(|&side| side as usize).product::<usize>());
    let mut places = Vec::with_capacity(patches.sum());
    for &[t, h, w] in grids {
        for frame in 0..t {
            let time = frame % config.segment_max_frames as u32;
            for (row, column) in
                (0..h / merge).flat_map(|row| (0..w / merge).map(move |column| (row, column)))
            {
                let inside = (0..merge).flat_map(|y| (0..merge).map(move |x| (y, x)));
                places.extend(inside.map(|(y, x)| [time, row * merge + y, column * merge + x]));
            }
        }
    }
    places
}

/// Rotation by time, y and x: each axis has a third of a head's dims, rounded down to pairs; the rest passes through.
#[derive(Clone, Debug, PartialEq)]
pub struct AxialRope {
    axis: Rope,
}

impl AxialRope {
    pub fn new(config: &VisionConfig) -> Self {
        let axis_dim = config.head_dim() / 3 / 2 * 2;
        AxialRope { axis: Rope::new(config.rope_theta, axis_dim) }
    }

    /// Pairs that are rotated: those of time, then of y, then of x. For [`Rope::rotate`].
    pub fn num_pairs(&self) -> usize {
        3 * self.axis.frequencies.len()
    }

    /// Cosine and sine per pair of a patch at time, y, x.
    pub fn angles(&self, place: [u32; 3]) -> Vec<(f32, f32)> {
        place.iter().flat_map(|&along| self.axis.angles(along)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn released() -> VisionConfig {
        VisionConfig {
            hidden_size: 1280,
            num_layers: 32,
            num_heads: 16,
            intermediate_size: 5120,
            patch_size: 14,
            temporal_patch_size: 2,
            merge_size: 2,
            num_channels: 3,
            layer_norm_eps: 1e-5,
            rope_theta: 10_000.0,
            segment_max_frames: 4,
            projector_hidden_size: 6144,
        }
    }

    #[test]
    fn patches_go_by_groups_of_the_merge() {
        let places = places(&released(), &[[1, 4, 6]]);
        let expected = [
            [0, 0],
            [0, 1],
            [1, 0],
            [1, 1],
            [0, 2],
            [0, 3],
            [1, 2],
            [1, 3],
            [0, 4],
            [0, 5],
            [1, 4],
            [1, 5],
            [2, 0],
            [2, 1],
            [3, 0],
            [3, 1],
        ];
        assert_eq!(places.len(), 24);
        for (place, [y, x]) in places.iter().zip(expected) {
            assert_eq!(*place, [0, y, x]);
        }
    }

    #[test]
    fn videos_are_cut_into_runs_of_four_and_time_starts_over() {
        let grids = [[1, 2, 2], [10, 2, 4]];
        assert_eq!(segments(&released(), &grids), [0..4, 4..36, 36..68, 68..84]);
        let times: Vec<u32> = places(&released(), &grids).chunks(4).map(|group| group[0][0]).collect();
        let two_each = |frames: &[u32]| frames.iter().flat_map(|&t| [t, t]).collect::<Vec<_>>();
        assert_eq!(times, [vec![0], two_each(&[0, 1, 2, 3, 0, 1, 2, 3, 0, 1])].concat());
    }

    #[test]
    fn released_heads_rotate_seventy_eight_of_eighty_dims() {
        let rope = AxialRope::new(&released());
        assert_eq!(rope.num_pairs(), 39);
        let published = [1.0, 0.492_388_26, 0.242_446_2, 0.119_377_66];
        for (found, wanted) in rope.axis.frequencies.iter().zip(published) {
            assert!((found - wanted).abs() < 1e-7, "{found} is not {wanted}");
        }
        assert!((rope.axis.frequencies[12] - 0.000_203_09).abs() < 1e-8);
        let angles = rope.angles([0, 3, 0]);
        assert_eq!(angles[0], (1.0, 0.0));
        assert_eq!(angles[13], (3f64.cos() as f32, 3f64.sin() as f32));
        assert_eq!(angles[26], (1.0, 0.0));
    }

    #[test]
    fn wrong_grids_are_refused_with_the_value_and_the_limit() {
        let config = released();
        let check = |values, row_len, grids: &[[u32; 3]]| check_grids(&config, values, row_len, grids);
        assert_eq!(check(24 * 1176, 1176, &[[1, 4, 6]]), Ok(24));
        assert_eq!(check(0, 1176, &[]), Err(GridError::None));
        assert_eq!(check(24 * 588, 588, &[[1, 4, 6]]), Err(GridError::RowLen { row_len: 588, wanted: 1176 }));
        assert_eq!(check(0, 1176, &[[1, 0, 6]]), Err(GridError::Empty { t: 1, h: 0, w: 6 }));
        let ragged = check(15 * 1176, 1176, &[[1, 3, 5]]).unwrap_err().to_string();
        assert_eq!(ragged, "a grid of 1 x 3 x 5 patches; height and width must be multiples of 2");
        let huge = check(1176, 1176, &[[u32::MAX, u32::MAX - 1, u32::MAX - 1]]).unwrap_err();
        assert_eq!(huge, GridError::TooMany { patches: u64::MAX });
        let short = check(23 * 1176, 1176, &[[1, 4, 6]]).unwrap_err().to_string();
        assert_eq!(short, "27048 patch values were given; grids of 24 patches have 28224");
    }
}
