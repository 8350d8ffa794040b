//! Where media go in a prompt: the template's single marker of each becomes its tokens, and every token that a row
//! replaces is noted. Knows token ids and counts; no pixels, no JSON.

use m3_core::request::{Medium, MediumRun};
use m3_media::prepare::Prepared;

use super::{MediaKind, MediaTokens, VisionSide};
use crate::error::ApiError;

/// Text to ids, as the tokenizer makes them of text that stands alone.
pub(super) type Encode<'a> = &'a dyn Fn(&str) -> Result<Vec<u32>, ApiError>;

/// A prompt with its media.
#[derive(Clone)]
pub struct Placed {
    pub ids: Vec<u32>,
    /// In the order of their first rows.
    pub media: Vec<Medium>,
    pub tokens: MediaTokens,
}

/// How prompts are expanded.
pub struct Placer<'a> {
    pub vision: &'a VisionSide,
    /// Of the times in a video; `None` without a tokenizer.
    pub encode: Option<Encode<'a>>,
    /// The field that errors about counts name.
    pub param: &'a str,
}

/// The first media token of a prompt whose request brings no media: its position and kind.
pub fn find_media_token(vision: &VisionSide, ids: &[u32]) -> Option<(usize, MediaKind)> {
    let kind = |id: u32| MediaKind::ALL.into_iter().find(|kind| vision.token(*kind) == id);
    ids.iter().enumerate().find_map(|(at, id)| Some((at, kind(*id)?)))
}

impl Placer<'_> {
    /// Expands `ids`. Media of each kind are matched with the tokens of that kind, in order.
    ///
    /// A prompt has one token for each medium, or is expanded already and then has exactly as many as the media have
    /// rows, run by run; anything else is 400.
    pub fn place(&self, ids: &[u32], media: Vec<(MediaKind, Prepared)>) -> Result<Placed, ApiError> {
        let of_kind = |wanted: MediaKind| -> Vec<&Prepared> {
            media.iter().filter(|(kind, _)| *kind == wanted).map(|(_, prepared)| prepared).collect()
        };
        let (images, videos) = (of_kind(MediaKind::Image), of_kind(MediaKind::Video));
        let singles = [
            self.is_single(ids, MediaKind::Image, &images)?,
            self.is_single(ids, MediaKind::Video, &videos)?,
        ];
        let mut next = [images.into_iter(), videos.into_iter()];
        let mut expanded = Vec::with_capacity(ids.len());
        for &id in ids {
            let kind = MediaKind::ALL.into_iter().find(|kind| self.vision.token(*kind) == id);
            match kind.filter(|kind| singles[*kind as usize]) {
                Some(kind) => {
                    if let Some(medium) = next[kind as usize].next() {
                        self.expand(kind, medium, &mut expanded)?;
                    }
                }
                None => expanded.push(id),
            }
        }
        self.assign(expanded, media)
    }

    /// Whether each medium of a kind has one token, that is to be expanded.
    fn is_single(&self, ids: &[u32], kind: MediaKind, media: &[&Prepared]) -> Result<bool, ApiError> {
        let found = ids.iter().filter(|id| **id == self.vision.token(kind)).count();
        let rows: usize = media.iter().map(|medium| medium.tokens()).sum();
        if found == media.len() {
            return Ok(true);
        }
        if found == rows {
            return Ok(false);
        }
        let (word, count) = (kind.word(), media.len());
        let sentence = format!(
            "the prompt has {found} {word} tokens and the request brings {count} {word}s of {rows} tokens; there must \
             be one token for each {word}, or {rows}"
        );
        Err(ApiError::invalid(self.param, sentence))
    }

    fn expand(&self, kind: MediaKind, medium: &Prepared, out: &mut Vec<u32>) -> Result<(), ApiError> {
        let missing = || {
            let sentence = "without a tokenizer (or without its image markers) this server cannot expand an image \
                            token; send prompts with the media's tokens in place";
            ApiError::invalid(self.param, sentence)
        };
        let [start, end] = self.vision.brackets.ok_or_else(missing)?;
        for time in 0..medium.grid[0] as usize {
            // Its own piece of text: what stands before must not merge with it.
            if let Some(seconds) = medium.timestamps.get(time) {
                let encode = self.encode.ok_or_else(missing)?;
                out.extend(encode(&format!("]<]{seconds} seconds[>["))?);
            }
            out.push(start);
            out.extend(std::iter::repeat_n(self.vision.token(kind), medium.tokens_per_time));
            out.push(end);
        }
        Ok(())
    }

    /// Gives each medium the positions of its rows.
    fn assign(&self, ids: Vec<u32>, media: Vec<(MediaKind, Prepared)>) -> Result<Placed, ApiError> {
        let positions = |kind: MediaKind| -> Vec<u32> {
            let token = self.vision.token(kind);
            ids.iter().enumerate().filter(|(_, id)| **id == token).map(|(at, _)| at as u32).collect()
        };
        let positions = MediaKind::ALL.map(positions);
        let tokens = MediaTokens { image: positions[0].len() as u32, video: positions[1].len() as u32 };
        let mut used = [0; 2];
        let mut placed = Vec::with_capacity(media.len());
        for (kind, prepared) in media {
            let first = used[kind as usize];
            used[kind as usize] += prepared.tokens();
            let mine = &positions[kind as usize][first..used[kind as usize]];
            placed.push(medium(&prepared, self.runs(kind, mine, prepared.tokens_per_time)?));
        }
        placed.sort_by_key(|medium| medium.runs.first().map(|run| run.first_position));
        Ok(Placed { ids, media: placed, tokens })
    }

    /// One run for each temporal patch; a gap inside one says that the prompt was expanded for other media.
    fn runs(&self, kind: MediaKind, positions: &[u32], per_time: usize) -> Result<Vec<MediumRun>, ApiError> {
        let run = |part: &[u32]| {
            let (first, last) = (part[0], part[part.len() - 1]);
            let len = part.len() as u32;
            if last - first + 1 == len {
                return Ok(MediumRun { first_position: first, len });
            }
            let sentence = format!(
                "the {} tokens from position {first} on are not {per_time} in a row, as this {0} has them",
                kind.word()
            );
            Err(ApiError::invalid(self.param, sentence))
        };
        positions.chunks(per_time).map(run).collect()
    }
}

fn medium(prepared: &Prepared, runs: Vec<MediumRun>) -> Medium {
    Medium {
        digest: prepared.digest,
        patches: std::sync::Arc::clone(&prepared.patches),
        row_len: prepared.row_len,
        grid: prepared.grid,
        runs,
    }
}
