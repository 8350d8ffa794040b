//! Tests of the whole parser. [`parse`] runs one output at many splits and demands one result, so every test
//! below is also a test of chunk invariance.

mod attributes;
mod cases;
mod cuts;
mod divergences;
mod generated;
mod malformed;
mod public_faults;
mod reasoning;
mod stops;
mod streaming;
mod typing;

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;

/// The namespace marker.
const NS: &str = "]<]minimax[>[";

/// `⟨` stands for the namespace marker in test texts.
fn ns(text: &str) -> String {
    text.replace('⟨', NS)
}

/// A block with one call of `f` and these elements.
fn call(elements: &str) -> String {
    ns(&format!("⟨<tool_call>\n⟨<invoke name=\"f\">{elements}⟨</invoke>\n⟨</tool_call>"))
}

/// Options with tools `f` of these properties.
fn tools(properties: Value) -> ParserOptions {
    schema(json!({"type": "object", "properties": properties}))
}

/// Options with a tool `f` of this schema.
fn schema(parameters: Value) -> ParserOptions {
    let list = json!([{"type": "function", "function": {"name": "f", "parameters": parameters}}]);
    ParserOptions { tools: Arc::new(ToolSet::from_json(&list).unwrap()), ..options() }
}

fn options() -> ParserOptions {
    ParserOptions { call_ids: CallIds::Seeded(1), ..ParserOptions::default() }
}

/// What a run of the parser shows at its end.
#[derive(Debug, Clone, PartialEq)]
struct Outcome {
    parsed: Parsed,
    stop: Option<String>,
    faults: Faults,
}

/// Feeds pieces and folds the deltas.
fn run<'a>(options: &ParserOptions, pieces: impl IntoIterator<Item = Piece<'a>>) -> Outcome {
    let mut parser = OutputParser::new(options.clone());
    let mut deltas = Vec::new();
    for piece in pieces {
        deltas.extend(parser.push(piece));
    }
    deltas.extend(parser.finish());
    assert!(parser.finish().is_empty() && parser.push(Piece::text("x")).is_empty());
    check_order(&deltas, parser.num_tool_calls());
    Outcome { parsed: fold(deltas), stop: parser.stop_hit().map(str::to_owned), faults: parser.faults() }
}

/// Calls start once, in order, each ended before the next begins; no delta is empty.
fn check_order(deltas: &[Delta], calls: usize) {
    let (mut started, mut open) = (0, None);
    for delta in deltas {
        match delta {
            Delta::Reasoning(text) | Delta::Content(text) => assert!(!text.is_empty() && open.is_none()),
            Delta::ToolStart { index, id, name } => {
                assert!(open.is_none() && *index == started && id.len() == 29 && !name.is_empty());
                open = Some(*index);
                started += 1;
            }
            Delta::ToolArguments { index, fragment } => assert!(open == Some(*index) && !fragment.is_empty()),
            Delta::ToolEnd { index } => {
                assert_eq!(open, Some(*index));
                open = None;
            }
        }
    }
    assert_eq!((started, open), (calls, None));
}

/// A small generator of repeatable choices.
struct Choices(u64);

impl Choices {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit.max(1)
    }
}

/// Cuts a text behind the given byte positions.
fn cut<'t>(text: &'t str, positions: &[usize]) -> Vec<Piece<'t>> {
    let mut from = 0;
    let mut pieces = Vec::new();
    for position in positions.iter().copied().chain([text.len()]) {
        pieces.push(Piece::text(&text[from..position]));
        from = position;
    }
    pieces
}

/// Every split that the tests demand one result of: none, each single one, all, tokens, and `random` random ones.
fn splits(text: &str, random: usize) -> Vec<Vec<usize>> {
    let inner: Vec<usize> = text.char_indices().map(|(at, _)| at).skip(1).collect();
    let mut all = vec![Vec::new(), inner.clone()];
    all.extend(inner.iter().map(|at| vec![*at]));
    let mut choices = Choices(text.len() as u64);
    for _ in 0..random {
        let one_in = 1 + choices.below(20);
        all.push(inner.iter().copied().filter(|_| choices.below(one_in) == 0).collect());
    }
    all
}

/// The text as pieces with the markers as tokens; `spelled` decides whether the marker's text is given.
fn marker_tokens(text: &str, spelled: bool) -> Vec<Piece<'_>> {
    let known = [(NS, 200_058), ("<mm:think>", 200_059), ("</mm:think>", 200_060)];
    let mut pieces = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let next = known.iter().filter_map(|(marker, id)| Some((rest.find(marker)?, *marker, *id))).min();
        let Some((at, marker, id)) = next else { break };
        let before = rest[..at].char_indices().map(|(at, character)| &rest[at..at + character.len_utf8()]);
        pieces.extend(before.map(Piece::text));
        pieces.push(Piece { token: Some(id), text: if spelled { marker } else { "" } });
        rest = &rest[at + marker.len()..];
    }
    pieces.push(Piece::text(rest));
    pieces
}

/// The one outcome of an output at all splits.
fn outcome(options: &ParserOptions, text: &str) -> Outcome {
    let whole = run(options, [Piece::text(text)]);
    for positions in splits(text, 50) {
        assert_eq!(run(options, cut(text, &positions)), whole, "{text:?} cut at {positions:?}");
    }
    for spelled in [true, false] {
        assert_eq!(run(options, marker_tokens(text, spelled)), whole, "{text:?} as tokens");
    }
    for parsed in &whole.parsed.tool_calls {
        assert!(value_of(&parsed.arguments).is_object(), "{text:?}: {}", parsed.arguments);
    }
    whole
}

fn parse(options: &ParserOptions, text: &str) -> Parsed {
    outcome(options, text).parsed
}

fn value_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Names and arguments of all calls.
fn calls(parsed: &Parsed) -> Vec<(&str, Value)> {
    parsed.tool_calls.iter().map(|call| (call.name.as_str(), value_of(&call.arguments))).collect()
}

/// Arguments of the only call of `f` in an answer of nothing else.
fn arguments(options: &ParserOptions, elements: &str) -> Value {
    let parsed = parse(options, &call(&ns(elements)));
    assert_eq!((parsed.reasoning.as_deref(), parsed.content.as_deref()), (None, None), "{elements}");
    assert_eq!(parsed.tool_calls.len(), 1, "{elements}");
    calls(&parsed)[0].1.clone()
}
