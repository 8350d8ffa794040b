//! What the vision tower expects of its input: patch sizes and the colours' mean and spread. The sizes stand in a
//! checkpoint's config; the colours are those of every M3 checkpoint. No rule for choosing sizes is here.

/// How pixels become patch rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Geometry {
    /// Pixels along a side of a patch.
    pub patch: u32,
    /// Patches along a side of the square that becomes one token.
    pub merge: u32,
    /// Frames in a patch.
    pub temporal: u32,
    /// Of red, green and blue, as parts of 1.
    pub mean: [f32; 3],
    /// Standard deviations of red, green and blue, as parts of 1.
    pub std: [f32; 3],
}

impl Default for Geometry {
    /// M3's own: patches of 14 x 14 pixels and 2 frames, merged 2 x 2.
    #[allow(clippy::excessive_precision, reason = "written as the released processor's file has them")]
    fn default() -> Self {
        Geometry {
            patch: 14,
            merge: 2,
            temporal: 2,
            mean: [0.481_454_66, 0.457_827_5, 0.408_210_73],
            std: [0.268_629_54, 0.261_302_58, 0.275_777_11],
        }
    }
}

impl Geometry {
    /// Both sides of every prepared picture are multiples of this many pixels: the side of one token.
    pub fn unit(&self) -> u32 {
        self.patch * self.merge
    }

    /// Values in a patch row: 3 colours x frames x rows x columns.
    pub fn row_len(&self) -> usize {
        3 * self.temporal as usize * (self.patch as usize).pow(2)
    }

    /// t, h, w in patches of `frames` frames of the given size, the last frame repeated to fill its patch.
    pub fn grid(&self, frames: usize, size: crate::size::Size) -> [u32; 3] {
        let times = frames.div_ceil(self.temporal as usize) as u32;
        [times, size.height / self.patch, size.width / self.patch]
    }

    /// Tokens that one temporal patch of a grid comes to.
    pub fn tokens_per_time(&self, grid: [u32; 3]) -> usize {
        grid[1] as usize * grid[2] as usize / (self.merge as usize).pow(2)
    }
}
