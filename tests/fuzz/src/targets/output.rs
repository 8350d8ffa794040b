//! The output parser on whatever a model may write. However the text is cut, the answer is one; arguments are JSON
//! objects; a call's markup never stands in the content.
//!
//! Head line: words that choose the options. Text: the output.

use std::sync::{Arc, OnceLock};

use fastrand::Rng;
use m3_core::text::parse::{
    Delta, Faults, OutputParser, Parsed, ParserOptions, Piece, ThinkingMode, ToolSet, fold,
};
use serde_json::{Value, json};

use super::{NS, head_and_text, markup, rng_of, world};
use crate::Target;
use crate::mutate::Dialect;

/// Cuts that are tried of each text, beside the whole and single characters.
const CUTS: usize = 6;

pub(super) struct Output;

impl Target for Output {
    fn name(&self) -> &'static str {
        "output"
    }

    fn dialect(&self) -> Dialect {
        Dialect::Text
    }

    fn words(&self) -> Vec<String> {
        let head = [
            "enabled",
            "disabled",
            "typed",
            "stop",
            "thinking-stop",
            "argument-stop",
            "keep-stop",
            "plain-thinking",
        ];
        markup().into_iter().chain(head.map(str::to_owned)).collect()
    }

    fn check(&mut self, input: &[u8]) -> Result<String, String> {
        let (head, text) = head_and_text(input);
        let options = options(&head);
        let (whole, faults, signature) = parse(&options, &[&text])?;
        let clean = faults == Faults::default() && whole.tool_calls.is_empty();
        let letters: Vec<&str> =
            text.char_indices().map(|(at, letter)| &text[at..at + letter.len_utf8()]).collect();
        same(&whole, &parse(&options, &letters)?.0, "letter by letter")?;
        let mut rng = rng_of(input);
        for _ in 0..CUTS {
            let pieces = cut(&text, &mut rng);
            same(&whole, &parse(&options, &pieces)?.0, &format!("cut as {pieces:?}"))?;
        }
        by_tokens(&options, &text, &whole)?;
        check_whole(&whole, &options, clean)?;
        Ok(signature)
    }
}

fn typed() -> Arc<ToolSet> {
    static TOOLS: OnceLock<Arc<ToolSet>> = OnceLock::new();
    let tools = || {
        let properties = json!({"s": {"type": "string"}, "n": {"type": "integer"}, "m": {"type": ["string", "null"]},
            "o": {"type": "object", "properties": {"s": {"type": "string"}, "o": {"$ref": "#"}}},
            "l": {"anyOf": [{"type": "array", "items": {"type": "number"}}, {"type": "null"}]}, "filename": {}});
        let list = json!([{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": properties}}}]);
        Arc::new(ToolSet::from_json(&list).unwrap_or_default())
    };
    Arc::clone(TOOLS.get_or_init(tools))
}

fn options(head: &str) -> ParserOptions {
    let has = |word: &str| head.split(' ').any(|other| other == word);
    ParserOptions {
        thinking_mode: match (has("enabled"), has("disabled")) {
            (true, _) => ThinkingMode::Enabled,
            (false, true) => ThinkingMode::Disabled,
            _ => ThinkingMode::Adaptive,
        },
        tools: if has("typed") { typed() } else { Arc::default() },
        stop: if has("stop") {
            vec!["STOP".to_owned(), "字🌶".to_owned(), "\n\n".to_owned()]
        } else {
            Vec::new()
        },
        stop_in_reasoning: has("thinking-stop"),
        stop_in_arguments: has("argument-stop"),
        include_stop: has("keep-stop"),
        parse_reasoning: !has("plain-thinking"),
        markers: world().markers.clone(),
        ..ParserOptions::default()
    }
}

/// The answer to these pieces, and which kinds of deltas and faults came.
fn parse(options: &ParserOptions, pieces: &[&str]) -> Result<(Parsed, Faults, String), String> {
    let mut parser = OutputParser::new(options.clone());
    let mut deltas = Vec::new();
    for piece in pieces {
        deltas.extend(parser.push(Piece::text(piece)));
    }
    deltas.extend(parser.finish());
    in_order(&deltas)?;
    let kinds: String = deltas.iter().map(kind).collect();
    let signature = format!("{kinds} {:?} {}", parser.faults(), parser.stop_hit().is_some());
    Ok((fold(deltas), parser.faults(), signature))
}

fn kind(delta: &Delta) -> char {
    match delta {
        Delta::Reasoning(_) => 'r',
        Delta::Content(_) => 'c',
        Delta::ToolStart { .. } => 's',
        Delta::ToolArguments { .. } => 'a',
        Delta::ToolEnd { .. } => 'e',
    }
}

/// A call starts once, then has its arguments, then ends; calls are counted from zero and one is open at a time.
fn in_order(deltas: &[Delta]) -> Result<(), String> {
    let (mut started, mut open) = (0, None);
    for delta in deltas {
        let good = match delta {
            Delta::Reasoning(text) | Delta::Content(text) => !text.is_empty() && open.is_none(),
            Delta::ToolStart { index, .. } => {
                let good = open.is_none() && *index == started;
                (open, started) = (Some(*index), started + 1);
                good
            }
            Delta::ToolArguments { index, fragment } => open == Some(*index) && !fragment.is_empty(),
            Delta::ToolEnd { index } => open.take() == Some(*index),
        };
        if !good {
            return Err(format!("{delta:?} is out of order in {deltas:?}"));
        }
    }
    open.map_or(Ok(()), |index| Err(format!("call {index} has no end")))
}

fn cut<'t>(text: &'t str, rng: &mut Rng) -> Vec<&'t str> {
    let (mut pieces, mut from) = (Vec::new(), 0);
    let most = 1 + rng.usize(..12);
    let mut left = rng.usize(..most);
    for (at, _) in text.char_indices() {
        if left == 0 {
            pieces.push(&text[from..at]);
            (from, left) = (at, 1 + rng.usize(..most));
        }
        left -= 1;
    }
    pieces.push(&text[from..]);
    pieces
}

fn same(whole: &Parsed, other: &Parsed, how: &str) -> Result<(), String> {
    let plain = |parsed: &Parsed| {
        let calls = parsed.tool_calls.iter().map(|call| (call.name.clone(), call.arguments.clone()));
        (parsed.reasoning.clone(), parsed.content.clone(), calls.collect::<Vec<_>>())
    };
    match plain(whole) == plain(other) {
        true => Ok(()),
        false => Err(format!("{how} it is {other:?}; whole it is {whole:?}")),
    }
}

/// The same with markers as tokens, as a model samples them.
fn by_tokens(options: &ParserOptions, text: &str, whole: &Parsed) -> Result<(), String> {
    let tokenizer = &world().tokenizer;
    let ids = tokenizer.encode_special(text).map_err(|error| format!("cannot be encoded: {error}"))?;
    if tokenizer.decode(&ids, false) != text {
        // The tokenizer composes characters; the model cannot say this text.
        return Ok(());
    }
    let mut detokenizer = m3_core::text::detokenize::Detokenizer::new(Arc::clone(tokenizer));
    let mut parser = OutputParser::new(options.clone());
    let mut deltas = Vec::new();
    for id in ids {
        let text = detokenizer.push(id);
        deltas.extend(parser.push(Piece { token: Some(id), text: &text }));
    }
    deltas.extend(parser.push(Piece::text(&detokenizer.finish())));
    deltas.extend(parser.finish());
    in_order(&deltas)?;
    same(whole, &fold(deltas), "as tokens")
}

/// Tags that stand for something wherever content is read.
const TAGS: [&str; 4] = ["<tool_call>", "</tool_call>", "</invoke>", "<invoke name=\"f\">"];

/// `clean`: nothing was left out of the text, whose two sides could happen to spell a tag.
fn check_whole(whole: &Parsed, options: &ParserOptions, clean: bool) -> Result<(), String> {
    for call in &whole.tool_calls {
        let arguments = serde_json::from_str::<Value>(&call.arguments);
        if !arguments.as_ref().is_ok_and(Value::is_object) {
            return Err(format!("arguments are no JSON object: {:?}", call.arguments));
        }
        if call.name.is_empty() || call.name.contains(NS) {
            return Err(format!("a call has the name {:?}", call.name));
        }
    }
    let content = whole.content.as_deref().unwrap_or_default();
    for tag in TAGS {
        let tag = format!("{NS}{tag}");
        if clean && content.contains(&tag) {
            return Err(format!("{tag} stands in the content: {content:?}"));
        }
    }
    let reasoning = whole.reasoning.as_deref().unwrap_or_default();
    if options.parse_reasoning && reasoning.contains(&options.markers.think_close.text) {
        return Err(format!("the closer stands in the reasoning: {reasoning:?}"));
    }
    Ok(())
}
