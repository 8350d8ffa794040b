//! Names of open elements. A grammar cannot demand that a closing tag repeats a name it does not know, nor that a key
//! comes only once; this does, beside the grammar, for objects whose keys no schema names.

use std::collections::HashSet;

use super::mask::{allows, clear};
use super::vocabulary::Vocabulary;

/// What is open in one block of calls.
#[derive(Debug, Clone, Default)]
pub(super) struct OpenNames {
    open: Vec<Element>,
    /// What was written of a tag since its namespace marker.
    tag: Option<Vec<u8>>,
}

#[derive(Debug, Clone)]
struct Element {
    name: Vec<u8>,
    children: HashSet<Vec<u8>>,
}

/// Tags that may stand several times in one element.
const REPEATED: [&[u8]; 2] = [b"item", b"invoke"];

impl OpenNames {
    /// Follows a token of the block.
    pub(super) fn push(&mut self, token: u32, vocabulary: &Vocabulary) {
        if Some(token) == vocabulary.markers.namespace.token {
            self.tag = Some(Vec::new());
            return;
        }
        let Some(tag) = &mut self.tag else { return };
        tag.extend_from_slice(vocabulary.bytes(token));
        let Some(end) = tag.iter().position(|byte| *byte == b'>') else { return };
        let tag = self.tag.take().unwrap_or_default();
        match tag[..end].strip_prefix(b"</") {
            Some(_) => {
                self.open.pop();
            }
            None => self.begin(&tag[..end]),
        }
    }

    fn begin(&mut self, tag: &[u8]) {
        let inner = tag.strip_prefix(b"<").unwrap_or(tag);
        let name = if inner.starts_with(b"invoke name=") { b"invoke" } else { inner };
        if let Some(parent) = self.open.last_mut() {
            parent.children.insert(name.to_vec());
        }
        self.open.push(Element { name: name.to_vec(), children: HashSet::new() });
    }

    /// Takes out of a mask what would close another element than the innermost, or repeat a key.
    pub(super) fn bar(&self, words: &mut [u32], vocabulary: &Vocabulary) {
        let (Some(tag), Some(top)) = (&self.tag, self.open.last()) else { return };
        let close = [b"</", top.name.as_slice(), b">"].concat();
        if tag.starts_with(b"</") {
            let rest = close.get(tag.len()..).unwrap_or_default();
            let mut kept = vocabulary.beginnings(rest);
            let beyond = |token: &&u32| vocabulary.bytes(**token).starts_with(rest);
            kept.extend(vocabulary.tag_ends.iter().filter(beyond));
            return keep_only(words, &kept);
        }
        if tag.len() < 2 {
            let rest = &close[tag.len()..];
            for token in &vocabulary.slashes {
                let bytes = vocabulary.bytes(*token);
                let closes = [tag.as_slice(), bytes].concat().starts_with(b"</");
                if closes && !rest.starts_with(bytes) && !bytes.starts_with(rest) {
                    clear(words, *token);
                }
            }
        }
        for token in
            vocabulary.tag_ends.iter().filter(|token| allows(words, **token)).copied().collect::<Vec<_>>()
        {
            let whole = [tag.as_slice(), vocabulary.bytes(token)].concat();
            let end = whole.iter().position(|byte| *byte == b'>').unwrap_or(whole.len());
            let name = whole[..end].strip_prefix(b"<").unwrap_or_default();
            if top.children.contains(name) && !REPEATED.contains(&name) {
                clear(words, token);
            }
        }
    }
}

impl OpenNames {
    /// Allowed tokens that lead towards a key that was written before, and so perhaps to a tag that cannot be ended.
    pub(super) fn repeats(&self, words: &[u32], vocabulary: &Vocabulary) -> Vec<u32> {
        let (Some(tag), Some(top)) = (&self.tag, self.open.last()) else { return Vec::new() };
        let mut all = Vec::new();
        for name in top.children.iter().filter(|name| !REPEATED.contains(&name.as_slice())) {
            let whole = [b"<", name.as_slice()].concat();
            let Some(rest) = whole.strip_prefix(tag.as_slice()) else { continue };
            let towards = vocabulary.beginnings(rest).into_iter();
            // The bracket alone decides nothing yet.
            all.extend(towards.filter(|token| tag.len() + vocabulary.bytes(*token).len() > 1));
        }
        all.retain(|token| allows(words, *token));
        all.sort_unstable();
        all.dedup();
        all
    }

    /// A tag is being written.
    pub(super) fn in_tag(&self) -> bool {
        self.tag.is_some()
    }
}

fn keep_only(words: &mut [u32], tokens: &[u32]) {
    let kept: Vec<u32> = tokens.iter().copied().filter(|token| allows(words, *token)).collect();
    words.fill(0);
    kept.into_iter().for_each(|token| super::mask::set(words, token));
}
