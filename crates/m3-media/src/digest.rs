//! What a prepared medium is known by: a full digest over its bytes and everything that changes its patches.
//! Two media with the same pixels in another shape, or prepared in another way, never share one.

use sha2::{Digest as _, Sha256};

use crate::geometry::Geometry;
use crate::sample::Sampling;
use crate::size::{Rule, Size};

/// SHA-256 of a file, taken before it is decoded.
pub type FileDigest = [u8; 32];

/// Digest of a file's bytes.
pub fn of_file(bytes: &[u8]) -> FileDigest {
    Sha256::digest(bytes).into()
}

/// Everything besides the file that decides an image's or video's patches.
#[derive(Clone, Copy, Debug)]
pub struct Recipe<'a> {
    /// Of the decoded picture or frames.
    pub from: Size,
    /// After resizing.
    pub to: Size,
    pub rule: Rule,
    pub geometry: &'a Geometry,
    /// How the frames were chosen and which ones these are; `None` for an image.
    pub frames: Option<(Sampling, &'a [u64])>,
}

impl Recipe<'_> {
    /// The digest of a file prepared in this way.
    pub fn digest(&self, file: &FileDigest) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update(b"m3 medium 1");
        hash.update(file);
        for side in [self.from.height, self.from.width, self.to.height, self.to.width] {
            hash.update(side.to_le_bytes());
        }
        let (kind, limit) = match self.rule {
            Rule::Area { max_pixels } => (0u8, max_pixels),
            Rule::LongSide { max_side } => (1, u64::from(max_side)),
        };
        hash.update([kind]);
        hash.update(limit.to_le_bytes());
        for part in [self.geometry.patch, self.geometry.merge, self.geometry.temporal] {
            hash.update(part.to_le_bytes());
        }
        for part in self.geometry.mean.iter().chain(&self.geometry.std) {
            hash.update(part.to_le_bytes());
        }
        if let Some((sampling, indices)) = self.frames {
            hash.update(sampling.fps.to_le_bytes());
            hash.update(sampling.max_frames.map_or(0, |most| most.max(1)).to_le_bytes());
            hash.update((indices.len() as u64).to_le_bytes());
            indices.iter().for_each(|index| hash.update(index.to_le_bytes()));
        }
        hash.finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(height: u32, width: u32) -> Size {
        Size { height, width }
    }

    #[test]
    fn g9_everything_that_changes_patches_changes_the_digest() {
        let geometry = Geometry::default();
        let other_colours = Geometry { mean: [0.5; 3], ..geometry };
        let frames = [0, 30, 59];
        let image = Recipe {
            from: size(80, 120),
            to: size(84, 112),
            rule: Rule::IMAGE,
            geometry: &geometry,
            frames: None,
        };
        let faster = Sampling { fps: 2.0, max_frames: None };
        let fewer = Sampling { fps: 1.0, max_frames: Some(3) };
        let recipes = [
            image,
            // G9: equal bytes read as another shape.
            Recipe { from: size(120, 80), ..image },
            Recipe { to: size(112, 84), ..image },
            Recipe { rule: Rule::VIDEO, ..image },
            Recipe { rule: Rule::LongSide { max_side: 112 }, ..image },
            Recipe { geometry: &other_colours, ..image },
            Recipe { frames: Some((Sampling::default(), &frames)), ..image },
            Recipe { frames: Some((faster, &frames)), ..image },
            Recipe { frames: Some((fewer, &frames)), ..image },
            Recipe { frames: Some((fewer, &frames[..2])), ..image },
        ];
        let files = [of_file(b"one"), of_file(b"two")];
        let digests: std::collections::HashSet<_> =
            files.iter().flat_map(|file| recipes.iter().map(|recipe| recipe.digest(file))).collect();
        assert_eq!(digests.len(), files.len() * recipes.len());
        assert_eq!(image.digest(&files[0]), image.digest(&of_file(b"one")));
    }
}
