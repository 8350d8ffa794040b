//! Where the references of a schema document point: JSON pointers, anchors, and embedded schemas by their `$id`.
//! Nothing outside the document is ever fetched; such references stay unknown.

use std::cell::OnceCell;
use std::collections::HashMap;

use serde_json::Value;

/// The targets of one document.
pub(super) struct References<'v> {
    document: &'v Value,
    names: OnceCell<Names<'v>>,
}

/// Schemas that have a name.
#[derive(Default)]
struct Names<'v> {
    /// `$anchor`, `$dynamicAnchor`, and the old `$id: "#name"`.
    anchors: HashMap<&'v str, &'v Value>,
    /// Embedded schemas by `$id` or `id`, without a fragment.
    ids: HashMap<&'v str, &'v Value>,
}

impl<'v> References<'v> {
    pub(super) fn new(document: &'v Value) -> Self {
        Self { document, names: OnceCell::new() }
    }

    /// The schemas that this one refers to.
    pub(super) fn of(&self, schema: &'v Value) -> Vec<&'v Value> {
        let keywords = ["$ref", "$dynamicRef", "$recursiveRef"];
        let texts = keywords.iter().filter_map(|keyword| schema.get(keyword)?.as_str());
        texts.filter_map(|text| self.target(text)).collect()
    }

    /// As a URI a reference may carry percent escapes.
    fn target(&self, text: &str) -> Option<&'v Value> {
        self.literal(text).or_else(|| self.literal(&without_escapes(text)?))
    }

    fn literal(&self, text: &str) -> Option<&'v Value> {
        let (base, fragment) = text.split_once('#').unwrap_or((text, ""));
        let resource = if base.is_empty() { self.document } else { *self.names().ids.get(base)? };
        if fragment.is_empty() || fragment.starts_with('/') {
            return resource.pointer(fragment);
        }
        self.names().anchors.get(fragment).copied()
    }

    fn names(&self) -> &Names<'v> {
        self.names.get_or_init(|| Names::of(self.document))
    }
}

impl<'v> Names<'v> {
    /// Reads the whole document once. Data (`enum`, `const`, examples) has no names.
    fn of(document: &'v Value) -> Self {
        const DATA: [&str; 5] = ["enum", "const", "default", "examples", "example"];
        let mut names = Self::default();
        let mut open = vec![document];
        while let Some(value) = open.pop() {
            match value {
                Value::Object(entries) => {
                    names.note(value);
                    let inner = entries.iter().filter(|(key, _)| !DATA.contains(&key.as_str()));
                    open.extend(inner.map(|(_, value)| value));
                }
                Value::Array(items) => open.extend(items),
                _ => {}
            }
        }
        names
    }

    fn note(&mut self, schema: &'v Value) {
        let text = |keyword: &str| schema.get(keyword).and_then(Value::as_str);
        for anchor in ["$anchor", "$dynamicAnchor"].into_iter().filter_map(text) {
            self.anchors.entry(anchor).or_insert(schema);
        }
        for id in ["$id", "id"].into_iter().filter_map(text) {
            match id.strip_prefix('#') {
                Some(anchor) => self.anchors.entry(anchor).or_insert(schema),
                None => self.ids.entry(id.trim_end_matches('#')).or_insert(schema),
            };
        }
    }
}

/// `text` with every `%` and two hexadecimal digits replaced by their byte. `None` when that is not UTF-8 or a
/// `%` stands alone.
fn without_escapes(text: &str) -> Option<String> {
    let mut pieces = text.split('%');
    let mut bytes = pieces.next()?.as_bytes().to_vec();
    for piece in pieces {
        let digits = piece.get(..2).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(&piece.as_bytes()[2..]);
    }
    String::from_utf8(bytes).ok()
}
