//! Changing inputs: bytes and words of any text, and values of JSON trees. What a target reads as a head line before
//! its JSON is left whole most of the time.

use fastrand::Rng;
use serde_json::{Map, Number, Value};

/// How inputs are built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// A head line, then text.
    Text,
    /// A head line, then JSON.
    Json,
}

/// Strings that break readers of text.
const ODD: [&str; 24] = [
    "",
    " ",
    "\n",
    "\n\n",
    "\r\n",
    "\0",
    "\u{feff}",
    "\u{2028}",
    "\u{fffd}",
    "é",
    "e\u{301}",
    "汉字",
    "👩‍👩‍👧‍👦",
    "\"",
    "\\",
    "\\u0000",
    "data: ",
    "[DONE]",
    "</s>",
    "{{ x }}",
    "%s",
    "../..",
    "a.b[0]",
    "null",
];
/// Numbers at the edges of types.
const NUMBERS: [&str; 22] = [
    "0",
    "-0",
    "1",
    "-1",
    "2",
    "0.5",
    "1.0",
    "1e2",
    "1e-7",
    "1e400",
    "-1e308",
    "127",
    "128",
    "255",
    "65536",
    "2147483648",
    "4294967296",
    "9007199254740993",
    "9223372036854775808",
    "18446744073709551616",
    "123456789012345678901234567890",
    "3.14",
];
/// Most edits of one change.
const MAX_EDITS: usize = 6;
/// Most values of a tree that an edit may reach.
const MAX_NODES: usize = 4096;

/// Changes inputs of one target.
pub struct Mutator {
    dialect: Dialect,
    words: Vec<String>,
    /// Values and keys that stand in the corpus.
    values: Vec<Value>,
    keys: Vec<String>,
}

impl Mutator {
    /// Learns values and keys from the corpus.
    pub fn new(dialect: Dialect, words: Vec<String>, corpus: &[Vec<u8>]) -> Self {
        let (mut values, mut keys) = (Vec::new(), Vec::new());
        if dialect == Dialect::Json {
            for input in corpus {
                let (_, body) = cut(input);
                if let Ok(value) = serde_json::from_slice(body) {
                    collect(&value, &mut values, &mut keys);
                }
            }
        }
        let mut words: Vec<String> = words.into_iter().chain(ODD.map(str::to_owned)).collect();
        words.sort();
        words.dedup();
        keys.extend(words.iter().cloned());
        Mutator { dialect, words, values, keys }
    }

    /// A changed copy of some input of the pool.
    pub fn change(&self, pool: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
        let Some(parent) = rng.choice(pool) else { return Vec::new() };
        let edits = 1 + rng.usize(..MAX_EDITS);
        let (head, body) = cut(parent);
        let tree =
            (self.dialect == Dialect::Json).then(|| serde_json::from_slice::<Value>(body).ok()).flatten();
        // One in eight trees is broken as text as well.
        if let Some(mut tree) = tree {
            (0..edits).for_each(|_| self.edit_tree(&mut tree, pool, rng));
            let mut input = [head, b"\n", tree.to_string().as_bytes()].concat();
            if rng.u8(..8) == 0 {
                self.edit_bytes(&mut input, pool, rng);
            }
            return input;
        }
        let mut input = parent.clone();
        (0..edits).for_each(|_| self.edit_bytes(&mut input, pool, rng));
        input
    }

    fn edit_bytes(&self, input: &mut Vec<u8>, pool: &[Vec<u8>], rng: &mut Rng) {
        let at = rng.usize(..=input.len());
        let end = (at + rng.usize(..24)).min(input.len());
        match rng.u8(..7) {
            0 => drop(input.drain(at..end)),
            1 | 2 => self.splice(input, at, at, rng),
            3 => self.splice(input, at, end, rng),
            4 => {
                let copy = input[at..end].to_vec();
                let to = rng.usize(..=input.len());
                input.splice(to..to, copy);
            }
            5 => {
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= 1 << rng.u8(..8);
                }
            }
            _ => {
                let other = rng.choice(pool).map_or(&[][..], Vec::as_slice);
                let from = rng.usize(..=other.len());
                let to = (from + rng.usize(..64)).min(other.len());
                input.splice(at..at, other[from..to].iter().copied());
            }
        }
    }

    fn splice(&self, input: &mut Vec<u8>, from: usize, to: usize, rng: &mut Rng) {
        let word = rng.choice(&self.words).map_or("", String::as_str);
        input.splice(from..to, word.bytes());
    }

    fn edit_tree(&self, tree: &mut Value, pool: &[Vec<u8>], rng: &mut Rng) {
        let count = nodes(tree).min(MAX_NODES);
        let mut steps = rng.usize(..count);
        let Some(node) = node(tree, &mut steps) else { return };
        match rng.u8(..10) {
            0..3 => *node = self.value(rng),
            3 => {
                let inside = std::mem::take(node);
                *node = match rng.bool() {
                    true => Value::Array(vec![inside]),
                    false => Value::Object([(self.key(rng), inside)].into_iter().collect()),
                };
            }
            4 => {
                let other = rng.choice(pool).and_then(|input| serde_json::from_slice(cut(input).1).ok());
                *node = other.unwrap_or_default();
            }
            _ => self.edit_inside(node, rng),
        }
    }

    fn edit_inside(&self, node: &mut Value, rng: &mut Rng) {
        match node {
            Value::Object(members) => self.edit_members(members, rng),
            Value::Array(items) => {
                let at = rng.usize(..=items.len());
                match (rng.u8(..4), items.get(at).cloned()) {
                    (0, Some(_)) => drop(items.remove(at)),
                    (1, Some(copy)) => items.insert(at, copy),
                    (2, Some(copy)) => items.extend(std::iter::repeat_n(copy, rng.usize(..40))),
                    _ => items.insert(at, self.value(rng)),
                }
            }
            Value::String(text) => {
                let mut bytes = std::mem::take(text).into_bytes();
                self.edit_bytes(&mut bytes, &[], rng);
                *text = String::from_utf8_lossy(&bytes).into_owned();
            }
            other => *other = self.value(rng),
        }
    }

    fn edit_members(&self, members: &mut Map<String, Value>, rng: &mut Rng) {
        let at = rng.usize(..members.len().max(1));
        let present = members.keys().nth(at).cloned();
        match (rng.u8(..4), present) {
            (0, Some(key)) => drop(members.shift_remove(&key)),
            (1, Some(key)) => {
                if let Some(value) = members.shift_remove(&key) {
                    members.insert(self.key(rng), value);
                }
            }
            (2, Some(key)) => drop(members.insert(key, self.value(rng))),
            _ => drop(members.insert(self.key(rng), self.value(rng))),
        }
    }

    fn key(&self, rng: &mut Rng) -> String {
        rng.choice(&self.keys).cloned().unwrap_or_default()
    }

    fn value(&self, rng: &mut Rng) -> Value {
        match rng.u8(..8) {
            0 => Value::Null,
            1 => rng.bool().into(),
            2 | 3 => number(rng),
            4 => rng.choice(&self.words).cloned().unwrap_or_default().into(),
            5 => [Value::Array(Vec::new()), Value::Object(Map::new())][rng.usize(..2)].clone(),
            _ => rng.choice(&self.values).cloned().unwrap_or_default(),
        }
    }
}

/// A number as text may have it; what a double cannot hold stays a string.
fn number(rng: &mut Rng) -> Value {
    let text = rng.choice(NUMBERS).unwrap_or("0");
    serde_json::from_str::<Number>(text).map_or_else(|_| text.into(), Value::Number)
}

/// Head line and the rest.
pub fn cut(input: &[u8]) -> (&[u8], &[u8]) {
    match input.iter().position(|byte| *byte == b'\n') {
        Some(at) => (&input[..at], &input[at + 1..]),
        None => (&[], input),
    }
}

fn collect(value: &Value, values: &mut Vec<Value>, keys: &mut Vec<String>) {
    values.push(value.clone());
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect(item, values, keys)),
        Value::Object(members) => members.iter().for_each(|(key, value)| {
            keys.push(key.clone());
            collect(value, values, keys);
        }),
        _ => {}
    }
}

fn nodes(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(nodes).sum(),
        Value::Object(members) => members.values().map(nodes).sum(),
        _ => 0,
    }
}

/// The value that many steps into the tree, depth first.
fn node<'a>(value: &'a mut Value, steps: &mut usize) -> Option<&'a mut Value> {
    if *steps == 0 {
        return Some(value);
    }
    *steps -= 1;
    match value {
        Value::Array(items) => items.iter_mut().find_map(|item| node(item, steps)),
        Value::Object(members) => members.values_mut().find_map(|member| node(member, steps)),
        _ => None,
    }
}
