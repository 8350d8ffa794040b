//! Which size a picture is resized to: the area rule of the released processor and the long-side rule of MiniMax's API.
//! Only numbers are here, no pixels.
//!
//! Both rules round half to even, as the processors they are held against do; every step is one IEEE operation in
//! their order, because a tie at a half decides 28 pixels.

use crate::error::{Error, Result};

/// Height before width, as the model's grids are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Size {
    pub height: u32,
    pub width: u32,
}

impl std::fmt::Display for Size {
    /// As people say it: width first.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}x{}", self.width, self.height)
    }
}

/// How the size is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// At most (and at least [`MIN_PIXELS`]) so many pixels after resizing.
    Area { max_pixels: u64 },
    /// Neither side longer than this; a side shorter than [`MIN_SIDE`] is enlarged.
    LongSide { max_side: u32 },
}

/// The area rule's smallest picture: 56 x 56.
pub const MIN_PIXELS: u64 = 3_136;
/// The area rule's largest image: 672 x 672.
pub const IMAGE_PIXELS: u64 = 451_584;
/// The area rule's largest video frame: 768 squares of 28 x 28.
pub const FRAME_PIXELS: u64 = 602_112;
/// Longest side of an image under the long-side rule, unless asked otherwise.
pub const IMAGE_SIDE: u32 = 2_016;
/// Longest side of a video frame under the long-side rule, unless asked otherwise.
pub const FRAME_SIDE: u32 = 756;
/// The long-side rule enlarges pictures with a shorter side than this.
pub const MIN_SIDE: u32 = 112;
/// Largest longest side that may be asked for.
pub const MAX_SIDE: u32 = 3_584;
/// Most pixels of a picture under the long-side rule: 3,584 x 3,584.
pub const MAX_PIXELS: u64 = 12_845_056;
/// Longest side divided by shortest.
pub const MAX_RATIO: f64 = 200.0;
/// Most pixels in all resized frames of a video.
pub const MAX_VOLUME: u64 = 301_056_000;

impl Rule {
    /// The area rule for images.
    pub const IMAGE: Rule = Rule::Area { max_pixels: IMAGE_PIXELS };
    /// The area rule for frames of a video.
    pub const VIDEO: Rule = Rule::Area { max_pixels: FRAME_PIXELS };

    /// The long-side rule with a side that a client asked for: a multiple of `unit` from 112 to 3,584.
    pub fn long_side(side: u64, unit: u32) -> Result<Rule> {
        let fits = (u64::from(MIN_SIDE)..=u64::from(MAX_SIDE)).contains(&side);
        if !fits || !side.is_multiple_of(u64::from(unit)) {
            return Err(Error::Shape(format!(
                "max_long_side_pixel is {side}; it must be a multiple of {unit} from {MIN_SIDE} to {MAX_SIDE}"
            )));
        }
        Ok(Rule::LongSide { max_side: side as u32 })
    }

    /// The size that a picture is resized to; both sides are multiples of `unit` pixels.
    pub fn apply(self, from: Size, unit: u32) -> Result<Size> {
        let (long, short) = (from.height.max(from.width), from.height.min(from.width));
        if short == 0 {
            return Err(Error::Shape(format!("the picture is {from}; both sides must have a pixel")));
        }
        let ratio = f64::from(long) / f64::from(short);
        if ratio > MAX_RATIO {
            return Err(Error::Shape(format!(
                "the picture is {from}, {ratio:.1} times as long as wide; the limit is {MAX_RATIO} times"
            )));
        }
        match self {
            Rule::Area { max_pixels } => Ok(by_area(from, f64::from(unit), max_pixels)),
            Rule::LongSide { max_side } => by_long_side(from, unit, max_side),
        }
    }
}

/// The multiple of `unit` nearest to `side`, halves to the even multiple, at least one unit.
fn nearest(side: f64, unit: f64) -> f64 {
    unit.max((side / unit).round_ties_even() * unit)
}

fn by_area(from: Size, unit: f64, max_pixels: u64) -> Size {
    let (height, width) = (f64::from(from.height), f64::from(from.width));
    let (mut new_height, mut new_width) = (nearest(height, unit), nearest(width, unit));
    let (most, least) = (max_pixels as f64, MIN_PIXELS as f64);
    if new_height * new_width > most {
        let shrink = (height * width / most).sqrt();
        new_height = unit.max((height / shrink / unit).floor() * unit);
        new_width = unit.max((width / shrink / unit).floor() * unit);
    } else if new_height * new_width < least {
        let grow = (least / (height * width)).sqrt();
        new_height = (height * grow / unit).ceil() * unit;
        new_width = (width * grow / unit).ceil() * unit;
    }
    Size { height: new_height as u32, width: new_width as u32 }
}

fn by_long_side(from: Size, unit: u32, max_side: u32) -> Result<Size> {
    let (height, width) = (f64::from(from.height), f64::from(from.width));
    let (long, short) = (height.max(width), height.min(width));
    let (cap, least) = (f64::from(max_side), f64::from(MIN_SIDE));
    let scale = if long > cap {
        cap / long
    } else if short < least {
        // Enlarging a narrow picture must not lift its long side over the cap.
        (least / short).min(cap / long)
    } else {
        1.0
    };
    let unit = f64::from(unit);
    let size =
        Size { height: nearest(height * scale, unit) as u32, width: nearest(width * scale, unit) as u32 };
    let pixels = u64::from(size.height) * u64::from(size.width);
    if pixels > MAX_PIXELS {
        return Err(Error::Shape(format!(
            "the picture would have {pixels} pixels after resizing to {size}; the limit is {MAX_PIXELS}"
        )));
    }
    Ok(size)
}

/// Refuses a video whose frames together have more pixels than the model takes.
pub fn check_volume(frames: usize, size: Size) -> Result<()> {
    let volume = frames as u64 * u64::from(size.height) * u64::from(size.width);
    if volume > MAX_VOLUME {
        return Err(Error::Shape(format!(
            "{frames} frames of {size} have {volume} pixels; the limit is {MAX_VOLUME}: ask for a lower fps, fewer \
             frames or a smaller max_long_side_pixel"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
