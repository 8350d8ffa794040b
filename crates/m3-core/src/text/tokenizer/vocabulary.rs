//! Reads the parts of a `tokenizer.json` that say what every id stands for, down to the byte.
//! How text is split and merged is the encoder's business.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;

use super::AddedToken;

/// Ids a file may use; far above any real vocabulary, it bounds the table.
const MAX_ID: u32 = 4_000_000;

#[derive(Deserialize)]
struct TokenizerFile {
    #[serde(default)]
    added_tokens: Vec<AddedEntry>,
    #[serde(default)]
    decoder: Option<Decoder>,
    model: Model,
}

#[derive(Deserialize)]
struct AddedEntry {
    id: u32,
    content: String,
    #[serde(default)]
    special: bool,
}

#[derive(Deserialize)]
struct Decoder {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    decoders: Vec<Decoder>,
}

#[derive(Deserialize)]
struct Model {
    #[serde(rename = "type", default)]
    kind: Option<String>,
    vocab: HashMap<String, u32>,
}

/// What [`parse`] found.
pub(super) struct Vocabulary {
    pub(super) bytes: ByteTable,
    pub(super) added: Vec<AddedToken>,
}

/// The bytes of every id, end to end in one buffer.
pub(super) struct ByteTable {
    data: Vec<u8>,
    /// Per id: where its bytes start and end; an id without a token is empty at 0.
    spans: Vec<(u32, u32)>,
}

impl ByteTable {
    pub(super) fn get(&self, id: u32) -> Option<&[u8]> {
        let &(start, end) = self.spans.get(id as usize)?;
        (start < end).then(|| &self.data[start as usize..end as usize])
    }

    pub(super) fn len(&self) -> usize {
        self.spans.len()
    }

    fn set(&mut self, id: u32, bytes: &[u8]) -> Result<(), String> {
        if id > MAX_ID {
            return Err(format!("token id {id} is over the limit of {MAX_ID}"));
        }
        if self.spans.len() <= id as usize {
            self.spans.resize(id as usize + 1, (0, 0));
        }
        let start = u32::try_from(self.data.len()).map_err(|_| "the vocabulary is over 4 GiB".to_owned())?;
        self.data.extend_from_slice(bytes);
        let end = u32::try_from(self.data.len()).map_err(|_| "the vocabulary is over 4 GiB".to_owned())?;
        self.spans[id as usize] = (start, end);
        Ok(())
    }
}

/// Adds to `tokenizer` the added tokens that only `config` (`added_tokens_decoder`) declares.
pub(super) fn add_from_config(tokenizer: &mut Value, config: &Value) -> Result<(), String> {
    let Some(declared) = config["added_tokens_decoder"].as_object() else {
        return Ok(());
    };
    if tokenizer["added_tokens"].is_null() {
        tokenizer["added_tokens"] = Value::Array(Vec::new());
    }
    let Some(known) = tokenizer["added_tokens"].as_array_mut() else {
        return Err("\"added_tokens\" is not a list".to_owned());
    };
    for (id, token) in declared {
        let id: u32 = id.parse().map_err(|_| format!("added token id {id:?} is not a number"))?;
        if known.iter().any(|entry| entry["id"] == id || entry["content"] == token["content"]) {
            continue;
        }
        let mut entry = token.clone();
        let fields = entry.as_object_mut().ok_or_else(|| format!("added token {id} is not an object"))?;
        fields.insert("id".to_owned(), id.into());
        known.push(entry);
    }
    Ok(())
}

/// Reads the vocabulary; the error is a sentence without the file's name.
pub(super) fn parse(tokenizer: &Value) -> Result<Vocabulary, String> {
    let file = TokenizerFile::deserialize(tokenizer).map_err(|error| error.to_string())?;
    if let Some(kind) = file.model.kind.filter(|kind| kind != "BPE") {
        return Err(format!("model type {kind:?} is not supported, only \"BPE\""));
    }
    if !file.decoder.as_ref().is_some_and(is_byte_level) {
        return Err("the decoder is not \"ByteLevel\", so tokens do not spell bytes".to_owned());
    }
    let alphabet = alphabet();
    let mut bytes = ByteTable { data: Vec::new(), spans: Vec::new() };
    let mut spelled = Vec::new();
    for (token, id) in &file.model.vocab {
        spelled.clear();
        for character in token.chars() {
            match alphabet.get(&character) {
                Some(byte) => spelled.push(*byte),
                None => return Err(format!("token {token:?} (id {id}) is not in the byte alphabet")),
            }
        }
        bytes.set(*id, &spelled)?;
    }
    let mut added: Vec<AddedToken> = file
        .added_tokens
        .into_iter()
        .map(|entry| AddedToken { id: entry.id, content: entry.content, special: entry.special })
        .collect();
    added.sort_by_key(|token| token.id);
    for token in &added {
        bytes.set(token.id, token.content.as_bytes())?;
    }
    Ok(Vocabulary { bytes, added })
}

fn is_byte_level(decoder: &Decoder) -> bool {
    decoder.kind == "ByteLevel" || decoder.decoders.iter().any(is_byte_level)
}

/// The printable stand-in of every byte: itself where it prints, else the next code point from 256 on.
fn alphabet() -> HashMap<char, u8> {
    let mut next = 256;
    let mut map = HashMap::new();
    for byte in 0..=u8::MAX {
        let prints = matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
        let code = if prints {
            u32::from(byte)
        } else {
            next += 1;
            next - 1
        };
        map.insert(char::from_u32(code).expect("code points below 512 are characters"), byte);
    }
    map
}
