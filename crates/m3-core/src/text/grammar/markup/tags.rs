//! Tags of the model's markup in a grammar. The namespace marker and the block's tags are tokens of their own, and only
//! as tokens are they written; everything between is ordinary text in which no marker can stand.

use std::collections::HashMap;

use crate::text::grammar::GrammarError;
use crate::text::grammar::lark::literal;
use crate::text::parse::Markers;

/// Longest key, in bytes; the parser takes tags of up to 256.
const MAX_KEY: usize = 240;

/// Writes tags.
#[derive(Debug)]
pub(in crate::text::grammar) struct TagWriter {
    namespace: String,
    namespace_text: String,
    open: String,
    close: String,
    /// Tokens that stand for a whole opening tag, by its text.
    tag_tokens: HashMap<String, u32>,
}

/// Whether a key can stand in a tag.
pub(super) fn is_writable(key: &str) -> bool {
    !key.is_empty()
        && key.len() <= MAX_KEY
        && key.trim() == key
        && !key.starts_with('/')
        && !key.contains(['<', '>', '\n', '\r'])
}

impl TagWriter {
    pub(in crate::text::grammar) fn new(markers: &Markers) -> Result<Self, GrammarError> {
        let token = |marker: &crate::text::parse::Marker| {
            let reason = || GrammarError::whole(format!("the tokenizer has no token for {}", marker.text));
            marker.token.map(|id| format!("<[{id}]>")).ok_or_else(reason)
        };
        Ok(TagWriter {
            namespace: token(&markers.namespace)?,
            namespace_text: markers.namespace.text.clone(),
            open: token(&markers.tool_open)?,
            close: token(&markers.tool_close)?,
            tag_tokens: markers.tag_tokens.iter().map(|(id, text)| (text.clone(), *id)).collect(),
        })
    }

    pub(super) fn block_open(&self) -> String {
        format!("{} {}", self.namespace, self.open)
    }

    pub(super) fn block_close(&self) -> String {
        format!("{} {}", self.namespace, self.close)
    }

    /// A tag as text.
    pub(super) fn raw(&self, tag: &str) -> String {
        format!("{} {}", self.namespace, literal(tag))
    }

    /// An element with its tags; an opening tag that is also a token may be written as either.
    pub(super) fn element(&self, key: &str, content: &str) -> String {
        let tag = format!("<{key}>");
        let open = match self.tag_tokens.get(&tag) {
            Some(id) => format!("{} ({} | <[{id}]>)", self.namespace, literal(&tag)),
            None => self.raw(&tag),
        };
        format!("{open} {content} {}", self.raw(&format!("</{key}>")))
    }

    /// An element whose tags are terminals.
    pub(super) fn free_element(&self, open: &str, content: &str, close: &str) -> String {
        format!("{ns} {open} {content} {ns} {close}", ns = self.namespace)
    }

    /// Expression for texts with the namespace marker in them.
    pub(super) fn marked_text(&self) -> String {
        format!("(?s:.)*{}(?s:.)*", regex::escape(&self.namespace_text))
    }

    /// Whether the namespace marker stands in a text.
    pub(super) fn is_in(&self, text: &str) -> bool {
        text.contains(&self.namespace_text)
    }
}
