//! A small byte-level BPE tokenizer and a small chat template of our own, for tests without released files.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use m3_core::text::TextError;
use m3_core::text::template::{ChatTemplate, RenderInput, Rendered};
use m3_core::text::tokenizer::{Segment, Tokenizer};
use serde_json::{Value, json};

/// The added tokens of the small tokenizer: text and whether it is special.
pub(crate) const ADDED: [(&str, bool); 11] = [
    ("<|start|>", true),
    ("<|stop|>", true),
    ("<|picture|>", true),
    ("<file>", true),
    ("<ponder>", false),
    ("</ponder>", false),
    ("<call>", false),
    ("</call>", false),
    ("[ns]", false),
    ("<entry>", true),
    ("<file>s", true),
];

const CORPUS: &str = "The quick reply holds the text of the answer.\n\nA second answer follows: (see the text).\n\
    fn reply(text: &str) -> String { text.to_owned() }\n>call>call>name>name.\n\n\
    Größe und Länge, déjà vu. 中文回答中文文本，回答。 한국어 답변 한국어 텍스트. 🙂🙂🙃 👩‍👩‍👧 12345 2024-02-29 \
    {\"name\": \"reply\", \"text\": \"the answer\"} <name>the text</name>";

const MERGES: usize = 220;

/// Split as GPT-style tokenizers do it; ours has contractions left out.
const SPLIT: &str =
    r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// The printable stand-in of every byte, as byte-level vocabularies write them.
fn byte_alphabet() -> Vec<char> {
    let mut next = 256;
    (0..=255u8)
        .map(|byte| {
            if matches!(byte, 33..=126 | 161..=172 | 174..=255) {
                return char::from(byte);
            }
            next += 1;
            char::from_u32(next - 1).unwrap()
        })
        .collect()
}

/// Trains merges on [`CORPUS`]: always the most frequent pair, ties by spelling.
fn train(alphabet: &[char]) -> Vec<(String, String)> {
    let mut pieces: Vec<String> =
        CORPUS.bytes().map(|byte| alphabet[usize::from(byte)].to_string()).collect();
    let mut merges = Vec::new();
    for _ in 0..MERGES {
        let mut counts: HashMap<(&str, &str), usize> = HashMap::new();
        for pair in pieces.windows(2) {
            *counts.entry((&pair[0], &pair[1])).or_default() += 1;
        }
        let best = counts.into_iter().max_by_key(|(pair, count)| (*count, std::cmp::Reverse(*pair))).unwrap();
        let (left, right) = (best.0.0.to_owned(), best.0.1.to_owned());
        let mut joined = Vec::with_capacity(pieces.len());
        let mut rest = pieces.iter().peekable();
        while let Some(piece) = rest.next() {
            match rest.next_if(|next| *piece == left && **next == right) {
                Some(next) => joined.push(format!("{piece}{next}")),
                None => joined.push(piece.clone()),
            }
        }
        pieces = joined;
        merges.push((left, right));
    }
    merges
}

/// The whole `tokenizer.json`.
pub(crate) fn tokenizer_json() -> Value {
    let alphabet = byte_alphabet();
    let mut vocab = serde_json::Map::new();
    for character in &alphabet {
        vocab.insert(character.to_string(), json!(vocab.len()));
    }
    let merges = train(&alphabet);
    for (left, right) in &merges {
        vocab.insert(format!("{left}{right}"), json!(vocab.len()));
    }
    let added: Vec<Value> = ADDED
        .iter()
        .enumerate()
        .map(|(index, (content, special))| {
            json!({"id": vocab.len() + index, "content": content, "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false, "special": special})
        })
        .collect();
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": SPLIT}, "behavior": "Removed", "invert": true},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]},
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": vocab, "merges": merges.iter().map(|(a, b)| json!([a, b])).collect::<Vec<_>>()},
    })
}

/// The small tokenizer, loaded once.
pub(crate) fn small_tokenizer() -> Arc<Tokenizer> {
    static LOADED: OnceLock<Arc<Tokenizer>> = OnceLock::new();
    let load = || {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("tokenizer.json"), tokenizer_json().to_string()).unwrap();
        Arc::new(Tokenizer::from_dir(dir.path()).unwrap())
    };
    LOADED.get_or_init(load).clone()
}

pub(crate) const SMALL_TEMPLATE: &str = include_str!("data/chat.jinja");

/// The shared folder when the released files lie in it.
pub(crate) fn shared_data() -> Option<PathBuf> {
    m3_testdata::shared("template_cases.json")
}

/// The released vocabulary, loaded once.
pub(crate) fn released_tokenizer(data: &Path) -> Arc<Tokenizer> {
    static LOADED: OnceLock<Arc<Tokenizer>> = OnceLock::new();
    let load = || Arc::new(Tokenizer::from_file(&data.join("tokenizer.reconstructed.json")).unwrap());
    LOADED.get_or_init(load).clone()
}

pub(crate) fn released_template(data: &Path) -> ChatTemplate {
    let source = std::fs::read_to_string(data.join("chat_template.m3.jinja")).unwrap();
    ChatTemplate::from_source(&source).unwrap()
}

/// Renders `{"messages", "tools", "kwargs", "add_generation_prompt"}`.
pub(crate) fn render(
    template: &ChatTemplate,
    case: &Value,
    tokenizer: &Tokenizer,
) -> Result<Rendered, TextError> {
    let input = RenderInput {
        messages: &case["messages"],
        tools: Some(&case["tools"]),
        add_generation_prompt: case["add_generation_prompt"].as_bool().unwrap_or(true),
        kwargs: case["kwargs"].as_object(),
    };
    let rendered = template.render(&input, Some(tokenizer))?;
    let joined: String = rendered.segments.iter().map(Segment::text).collect();
    assert_eq!(joined, rendered.prompt, "segments do not join to the prompt");
    Ok(rendered)
}
