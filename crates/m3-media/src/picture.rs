//! What decoding ends in: pictures of 8-bit RGB, and clips of them. No decoding and no resizing here.

use crate::size::Size;

/// A decoded picture, upright (EXIF orientation is applied).
#[derive(Clone, PartialEq, Eq)]
pub struct Picture {
    /// Pixels in a row, at least 1.
    pub width: u32,
    /// Rows, at least 1.
    pub height: u32,
    /// `height * width * 3` bytes: rows from the top, pixels from the left, red, green, blue.
    pub rgb: Vec<u8>,
}

impl Picture {
    /// Height and width.
    pub fn size(&self) -> Size {
        Size { height: self.height, width: self.width }
    }
}

impl std::fmt::Debug for Picture {
    /// Sizes only: pixels belong into no log.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Picture({}x{})", self.width, self.height)
    }
}

/// What a video says of itself before its frames are decoded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Meta {
    /// Pixels in a row of a frame, before a rotation that the container may ask for.
    pub width: u32,
    /// Rows of a frame.
    pub height: u32,
    /// Frames per second, above 0: the average over the video.
    pub fps: f64,
    /// Frames in the video, at least 1; the index of the last one is one less.
    pub total_frames: u64,
}

/// The chosen frames of a video.
#[derive(Clone, Debug, PartialEq)]
pub struct Clip {
    /// The frames in the order of `frame_indices`, all of one size.
    pub frames: Vec<Picture>,
    /// Which frames of the video these are, counted from 0, ascending; as many as `frames`.
    pub frame_indices: Vec<u64>,
    /// Frames per second of the video, not of the choice.
    pub fps: f64,
    /// Frames in the video.
    pub total_frames: u64,
}
