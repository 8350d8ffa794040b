//! The miniature's byte-level BPE: merges learned from `corpus.txt`, then M3's 61 added tokens.

use super::config::{FIRST_ADDED, MERGES};
use anyhow::{Result, ensure};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

const CORPUS: &str = include_str!("corpus.txt");

/// M3's added tokens in id order, one a line; the seven that survive "skip special tokens" start with `+`.
const ADDED: &str = include_str!("added_tokens.txt");

/// Split pattern of M3's vocabulary.
const PATTERN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// The printable character that stands for a byte in byte-level BPE files.
fn byte_character(byte: u8) -> char {
    let printable = |b: u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if printable(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|&b| !printable(b)).count() as u32;
    char::from_u32(256 + before).expect("256..324 are characters")
}

/// Words of the corpus: letters with at most one character before them, runs of others, as the pattern would cut them nearly.
fn words() -> BTreeMap<Vec<usize>, usize> {
    let mut counts = BTreeMap::new();
    for line in CORPUS.lines() {
        let mut word = String::new();
        for character in line.chars() {
            let last = word.chars().last();
            let joins = last.is_none_or(|last| {
                last.is_alphabetic() == character.is_alphabetic() && !character.is_whitespace()
            }) || (word.chars().count() == 1 && last == Some(' ') && !character.is_numeric());
            if !joins || character.is_numeric() {
                *counts.entry(bytes_of(&word)).or_default() += 1;
                word.clear();
            }
            word.push(character);
        }
        *counts.entry(bytes_of(&word)).or_default() += 1;
    }
    counts
}

fn bytes_of(word: &str) -> Vec<usize> {
    word.bytes().map(usize::from).collect()
}

/// Greedy merges by count; ties go to the lower pair, so the result is fixed.
fn learn() -> Result<Vec<(usize, usize)>> {
    let mut words: Vec<(Vec<usize>, usize)> = words().into_iter().collect();
    let mut merges = Vec::new();
    let mut spelled: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    let mut known: BTreeSet<Vec<u8>> = BTreeSet::new();
    while merges.len() < MERGES {
        let mut counts: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        for (word, count) in &words {
            for pair in word.windows(2) {
                *counts.entry((pair[0], pair[1])).or_default() += count;
            }
        }
        // A token's spelling is its key in the file, so two merges must not spell the same.
        let spelling = |&(left, right): &(usize, usize)| [&spelled[left][..], &spelled[right][..]].concat();
        counts.retain(|pair, _| !known.contains(&spelling(pair)));
        let best = counts.iter().max_by(|a, b| a.1.cmp(b.1).then(b.0.cmp(a.0)));
        let Some((&pair, _)) = best else {
            break;
        };
        words.iter_mut().for_each(|(word, _)| merge(word, pair, spelled.len()));
        let spelling = spelling(&pair);
        known.insert(spelling.clone());
        spelled.push(spelling);
        merges.push(pair);
    }
    ensure!(merges.len() == MERGES, "the corpus gives {} merges; {MERGES} are needed", merges.len());
    Ok(merges)
}

fn merge(word: &mut Vec<usize>, pair: (usize, usize), id: usize) {
    let mut at = 0;
    while at + 1 < word.len() {
        if (word[at], word[at + 1]) == pair {
            word[at] = id;
            word.remove(at + 1);
        }
        at += 1;
    }
}

pub(super) fn tokenizer_json() -> Result<Vec<u8>> {
    let mut tokens: Vec<String> = (0..=255).map(|byte| byte_character(byte).to_string()).collect();
    let mut pairs = Vec::new();
    for (left, right) in learn()? {
        pairs.push(json!([tokens[left], tokens[right]]));
        tokens.push(format!("{}{}", tokens[left], tokens[right]));
    }
    let vocab: Map<String, Value> =
        tokens.into_iter().zip(0usize..).map(|(token, id)| (token, json!(id))).collect();
    ensure!(vocab.len() == FIRST_ADDED, "two merges spell the same token");
    let value = json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": added_tokens()?,
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Removed", "invert": true},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
        ]},
        "post_processor": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": vocab, "merges": pairs,
        },
    });
    let mut text = serde_json::to_string_pretty(&value)?;
    text.push('\n');
    Ok(text.into_bytes())
}

fn added_tokens() -> Result<Vec<Value>> {
    let lines: Vec<&str> = ADDED.lines().collect();
    ensure!(lines.len() == 61, "there are {} added tokens; M3 has 61", lines.len());
    let entry = |(index, line): (usize, &&str)| {
        let content = line.strip_prefix('+').unwrap_or(line);
        json!({
            "id": FIRST_ADDED + index, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": !line.starts_with('+'),
        })
    };
    Ok(lines.iter().enumerate().map(entry).collect())
}

#[cfg(test)]
mod tests {
    use super::byte_character;

    #[test]
    fn bytes_map_to_256_different_printable_characters() {
        let characters: std::collections::BTreeSet<char> = (0..=255).map(byte_character).collect();
        assert_eq!(characters.len(), 256);
        assert_eq!((byte_character(b' '), byte_character(b'\n'), byte_character(b'A')), ('Ġ', 'Ċ', 'A'));
    }
}
