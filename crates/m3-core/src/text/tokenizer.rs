//! The tokenizer: text to ids and ids to exact bytes, from a `tokenizer.json` with byte-level BPE.
//! Encoding runs on fastokens; the byte table and the added tokens are kept here. No chat template here.

mod vocabulary;

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use regex::Regex;

use super::TextError;
use vocabulary::ByteTable;

/// A tokenizer; share it in an `Arc`.
pub struct Tokenizer {
    engine: fastokens::Tokenizer,
    bytes: ByteTable,
    added: Vec<AddedToken>,
    added_ids: HashMap<String, u32>,
    /// All added texts, longest first, so that the leftmost and then longest one matches.
    added_pattern: Option<Regex>,
    special: Vec<bool>,
}

/// A token that stands for one fixed text and is never the result of merges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddedToken {
    /// Token id.
    pub id: u32,
    /// The text it stands for.
    pub content: String,
    /// Whether decoding may leave it out; markers that parsers need are added but not special.
    pub special: bool,
}

/// A piece of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Segment {
    /// Text in which no added token is recognised.
    Ordinary(String),
    /// One added token.
    Added {
        /// Token id.
        id: u32,
        /// The text the token stands for.
        text: String,
    },
}

impl Segment {
    /// The text of the segment, whichever kind it is.
    pub fn text(&self) -> &str {
        match self {
            Segment::Ordinary(text) | Segment::Added { text, .. } => text,
        }
    }
}

impl Tokenizer {
    /// Loads a `tokenizer.json`, with added tokens that only `tokenizer_config.json` beside it declares. The
    /// file's truncation, padding and automatic begin tokens are not used, nor the white-space options of
    /// added tokens in [`Self::encode_segments`].
    ///
    /// # Errors
    /// [`TextError::Read`] when the file cannot be read, [`TextError::Tokenizer`] when it is not byte-level BPE.
    pub fn from_file(path: &Path) -> Result<Self, TextError> {
        let refuse = |reason: String| TextError::Tokenizer(format!("{}: {reason}", path.display()));
        let mut json = read_json(path)?;
        let config_path = path.with_file_name("tokenizer_config.json");
        if config_path.exists() {
            vocabulary::add_from_config(&mut json, &read_json(&config_path)?).map_err(refuse)?;
        }
        let file = vocabulary::parse(&json).map_err(refuse)?;
        let mut engine = fastokens::Tokenizer::from_json(json).map_err(|error| refuse(error.to_string()))?;
        engine.set_truncation(None);
        engine.set_padding(None);
        let mut special = vec![false; file.bytes.len()];
        for token in &file.added {
            special[token.id as usize] = token.special;
        }
        let added_ids = file.added.iter().map(|token| (token.content.clone(), token.id)).collect();
        let added_pattern = added_pattern(&file.added).map_err(|error| refuse(error.to_string()))?;
        let tokenizer =
            Self { engine, bytes: file.bytes, added: file.added, added_ids, added_pattern, special };
        // The encoder builds its tables on first use (0.2 s for 200,000 tokens): now, not in somebody's first request.
        tokenizer.encode_ordinary("a")?;
        Ok(tokenizer)
    }

    /// Loads `dir/tokenizer.json`.
    ///
    /// # Errors
    /// As [`Self::from_file`].
    pub fn from_dir(dir: &Path) -> Result<Self, TextError> {
        Self::from_file(&dir.join("tokenizer.json"))
    }

    /// Encodes text in which nothing is a control token.
    ///
    /// # Errors
    /// [`TextError::Tokenizer`] when the vocabulary cannot spell the text.
    pub fn encode_ordinary(&self, text: &str) -> Result<Vec<u32>, TextError> {
        self.engine.encode_ordinary(text).map_err(|error| TextError::Tokenizer(error.to_string()))
    }

    /// Encodes a raw prompt whose added-token texts become added tokens. No begin token is put in front.
    ///
    /// # Errors
    /// As [`Self::encode_ordinary`].
    pub fn encode_special(&self, text: &str) -> Result<Vec<u32>, TextError> {
        self.engine.encode(text).map_err(|error| TextError::Tokenizer(error.to_string()))
    }

    /// Encodes a rendered prompt: every stretch of ordinary text between two added tokens in one piece.
    ///
    /// # Errors
    /// As [`Self::encode_ordinary`].
    pub fn encode_segments(&self, segments: &[Segment]) -> Result<Vec<u32>, TextError> {
        let mut ids = Vec::new();
        let mut rest = segments;
        while let Some(segment) = rest.first() {
            match segment {
                Segment::Added { id, .. } => {
                    ids.push(*id);
                    rest = &rest[1..];
                }
                Segment::Ordinary(text) => {
                    let is_ordinary = |segment: &&Segment| matches!(segment, Segment::Ordinary(_));
                    let count = rest.iter().take_while(is_ordinary).count();
                    // Merges may cross the seam between neighbouring pieces, so those are joined first.
                    if count == 1 {
                        ids.extend(self.encode_ordinary(text)?);
                    } else {
                        let joined: String = rest[..count].iter().map(Segment::text).collect();
                        ids.extend(self.encode_ordinary(&joined)?);
                    }
                    rest = &rest[count..];
                }
            }
        }
        Ok(ids)
    }

    /// The exact bytes `id` stands for (an added token: its text); `None` for ids without a token.
    pub fn token_bytes(&self, id: u32) -> Option<&[u8]> {
        self.bytes.get(id)
    }

    /// The added token with exactly this text.
    pub fn token_id(&self, text: &str) -> Option<u32> {
        self.added_ids.get(text).copied()
    }

    /// Every added token, by id.
    pub fn added_tokens(&self) -> &[AddedToken] {
        &self.added
    }

    /// One more than the highest id; some ids below it may have no token.
    pub fn vocab_len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether `id` is an added token flagged special.
    pub fn is_special(&self, id: u32) -> bool {
        self.special.get(id as usize).copied().unwrap_or(false)
    }

    /// The text of `ids`; bytes that are not UTF-8 become U+FFFD. `skip_special` leaves out tokens flagged
    /// special; ids without a token stand for nothing.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> String {
        let mut bytes = Vec::new();
        for &id in ids {
            if !(skip_special && self.is_special(id)) {
                bytes.extend_from_slice(self.token_bytes(id).unwrap_or_default());
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The added tokens in `text`, leftmost and then longest first, as byte ranges with ids.
    pub(crate) fn find_added<'a>(&'a self, text: &'a str) -> impl Iterator<Item = (Range<usize>, u32)> + 'a {
        let matches = self.added_pattern.iter().flat_map(move |pattern| pattern.find_iter(text));
        matches.filter_map(|found| Some((found.range(), self.token_id(found.as_str())?)))
    }
}

fn read_json(path: &Path) -> Result<serde_json::Value, TextError> {
    let name = path.display().to_string();
    let text =
        std::fs::read_to_string(path).map_err(|source| TextError::Read { path: name.clone(), source })?;
    serde_json::from_str(&text).map_err(|error| TextError::Tokenizer(format!("{name}: {error}")))
}

fn added_pattern(added: &[AddedToken]) -> Result<Option<Regex>, regex::Error> {
    let mut texts: Vec<&str> = added.iter().map(|token| token.content.as_str()).collect();
    texts.retain(|text| !text.is_empty());
    if texts.is_empty() {
        return Ok(None);
    }
    texts.sort_by_key(|text| std::cmp::Reverse(text.len()));
    let alternatives: Vec<String> = texts.into_iter().map(regex::escape).collect();
    Regex::new(&alternatives.join("|")).map(Some)
}
