//! Images and videos of a request, from the parts of its messages to places in its prompt: which part says what, what
//! the model takes, where each medium's rows go. Fetching and decoding are `m3-media`'s; computing is the engine's.

mod load;
mod options;
mod part;
mod placing;

use m3_core::model::config::ModelConfig;
use m3_core::text::tokenizer::Tokenizer;
use m3_media::geometry::Geometry;
use m3_media::size::{FRAME_SIDE, IMAGE_SIDE, Rule};

pub use load::{add_media, check, load, place, place_loaded};
pub use options::MediaOptions;
pub use part::{MediaPart, is_media, raw_part, read_medium};
pub use placing::{Placed, Placer, find_media_token};

/// An image or a video: each has its own token, its own sizes and its own limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MediaKind {
    Image,
    Video,
}

impl MediaKind {
    /// Both.
    pub const ALL: [MediaKind; 2] = [MediaKind::Image, MediaKind::Video];

    /// As the template, the API and people call it.
    pub fn word(self) -> &'static str {
        match self {
            MediaKind::Image => "image",
            MediaKind::Video => "video",
        }
    }
}

/// Tokens of a prompt that stand for pixels, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MediaTokens {
    pub image: u32,
    pub video: u32,
}

/// How sizes are chosen when a request does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SizeRule {
    /// The released processor's.
    #[default]
    Area,
    /// MiniMax's API's.
    LongSide,
    /// The same with this side for images and frames.
    LongSideOf(u32),
}

/// Most media in one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediaLimits {
    pub images: usize,
    pub videos: usize,
}

impl Default for MediaLimits {
    /// What the model's maker tests providers with.
    fn default() -> Self {
        MediaLimits { images: 200, videos: 20 }
    }
}

impl MediaLimits {
    /// Of one kind.
    pub fn of(&self, kind: MediaKind) -> usize {
        match kind {
            MediaKind::Image => self.images,
            MediaKind::Video => self.videos,
        }
    }
}

/// Why a server takes no images and videos.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextOnly {
    #[error("this model takes text only")]
    Model,
    #[error("this server's backend encodes no images and no videos")]
    Backend,
    #[error("this server takes text only (--language-model-only)")]
    Operator,
}

/// What the served model takes besides text.
#[derive(Clone, Debug)]
pub struct VisionSide {
    pub geometry: Geometry,
    pub image_token: u32,
    pub video_token: u32,
    /// Tokens before and after an image and each temporal patch of a video; unknown without a tokenizer.
    pub brackets: Option<[u32; 2]>,
    pub size_rule: SizeRule,
    pub limits: MediaLimits,
}

impl VisionSide {
    /// Of a checkpoint; `None` when it has no vision part.
    pub fn of(
        config: &ModelConfig,
        tokenizer: Option<&Tokenizer>,
        size_rule: SizeRule,
        limits: MediaLimits,
    ) -> Option<Self> {
        let vision = config.vision.as_ref()?;
        let marker = |text: &str| tokenizer.and_then(|tokenizer| tokenizer.token_id(text));
        // Videos have brackets of their own in the vocabulary; the model was trained with the image's.
        let brackets = marker("]<]start of image[>[").zip(marker("]<]end of image[>["));
        Some(VisionSide {
            geometry: Geometry {
                patch: vision.patch_size as u32,
                merge: vision.merge_size as u32,
                temporal: vision.temporal_patch_size as u32,
                ..Geometry::default()
            },
            image_token: config.image_token_id?,
            video_token: config.video_token_id?,
            brackets: brackets.map(|(start, end)| [start, end]),
            size_rule,
            limits,
        })
    }

    /// The token whose rows a medium of this kind replaces.
    pub fn token(&self, kind: MediaKind) -> u32 {
        match kind {
            MediaKind::Image => self.image_token,
            MediaKind::Video => self.video_token,
        }
    }

    /// The rule for a medium, with the longest side that its request asked for.
    pub fn rule(&self, kind: MediaKind, max_long_side: Option<u64>) -> m3_media::Result<Rule> {
        match (max_long_side, self.size_rule, kind) {
            (Some(side), _, _) => Rule::long_side(side, self.geometry.unit()),
            (None, SizeRule::Area, MediaKind::Image) => Ok(Rule::IMAGE),
            (None, SizeRule::Area, MediaKind::Video) => Ok(Rule::VIDEO),
            (None, SizeRule::LongSide, MediaKind::Image) => Ok(Rule::LongSide { max_side: IMAGE_SIDE }),
            (None, SizeRule::LongSide, MediaKind::Video) => Ok(Rule::LongSide { max_side: FRAME_SIDE }),
            (None, SizeRule::LongSideOf(side), _) => Rule::long_side(side.into(), self.geometry.unit()),
        }
    }
}

#[cfg(test)]
mod tests;
