//! Grammars from whatever a request may ask for: they compile or are refused with a reason, in time; what is compiled
//! always leaves a token to sample, and what a walk through it writes fits the schema.
//!
//! Head line: the kind. JSON: its schema, expression, choices, grammar or structural tag.

use std::sync::Arc;

use fastrand::Rng;
use m3_core::request::TokenMask;
use m3_core::text::detokenize::Detokenizer;
use m3_core::text::grammar::{CallRules, CallableTool, Content, GrammarMask, GrammarSpec};
use m3_core::text::parse::{OutputParser, ParserOptions, Piece, ThinkingMode, ToolSet, fold};
use serde_json::{Value, json};

use super::{rng_of, without_values, world};
use crate::Target;
use crate::mutate::{Dialect, cut};

/// End of a turn in the bundled vocabulary.
const END: &str = "[e~[";
/// Longest walk, in tokens.
const LONGEST: usize = 250;

pub(super) struct Grammar;

impl Target for Grammar {
    fn name(&self) -> &'static str {
        "grammar"
    }

    fn dialect(&self) -> Dialect {
        Dialect::Json
    }

    fn words(&self) -> Vec<String> {
        let words = [
            "[a-z]+",
            "(a|b)*",
            "\\d{2,4}",
            "^x$",
            "(?=x)",
            "\\b",
            "a{1000}",
            "root ::= \"a\" root | \"b\"",
            "start: \"a\"+",
            "%regex",
            "date",
            "uuid",
            "email",
            "$ref",
            "#/$defs/n",
            "#",
            "minLength",
            "maxItems",
            "multipleOf",
            "not",
            "if",
            "then",
            "else",
            "dependentSchemas",
            "contains",
            "uniqueItems",
            "propertyNames",
            "unevaluatedItems",
            "$dynamicRef",
            "oneOf",
        ];
        words.map(str::to_owned).into()
    }

    fn check(&mut self, input: &[u8]) -> Result<String, String> {
        let (kind, body) = cut(input);
        let Ok(value) = serde_json::from_slice::<Value>(body) else { return Ok("no JSON".to_owned()) };
        let Some((spec, typing)) = spec(&String::from_utf8_lossy(kind), &value) else {
            return Ok("no spec".to_owned());
        };
        let schema = matches!(spec.content, Some(Content::Schema(_))).then_some(&value);
        let calls = spec.calls.is_some();
        let compiled = match world().compiler.compile(spec) {
            Ok(compiled) => Arc::new(compiled),
            Err(error) if error.to_string().is_empty() => return Err("refused without a reason".to_owned()),
            Err(error) => return Ok(without_values(&error.to_string())),
        };
        let mut rng = rng_of(input);
        let mut ended = 0;
        for _ in 0..2 {
            let mask = GrammarMask::new(Arc::clone(&compiled), end().into_iter().collect());
            let Some(ids) = walk(mask, &mut rng)? else { continue };
            ended += 1;
            match (schema, calls) {
                (Some(schema), _) => fits(schema, &text_of(&ids))?,
                (_, true) => called(&ids, &typing, &value)?,
                _ => {}
            }
        }
        Ok(format!("{} {ended} {}", String::from_utf8_lossy(kind), keywords(&value)))
    }
}

fn end() -> Option<u32> {
    world().tokenizer.token_id(END)
}

/// Which words of JSON Schema stand in it: a new set is something new.
fn keywords(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let mut keys: Vec<&str> =
                members.keys().map(String::as_str).filter(|key| key.len() > 3).collect();
            keys.sort_unstable();
            keys.join(",")
        }
        _ => String::new(),
    }
}

fn spec(kind: &str, value: &Value) -> Option<(GrammarSpec, Arc<ToolSet>)> {
    let text = || value.as_str().map(str::to_owned);
    let content = match kind {
        "schema" => Content::Schema(value.clone()),
        "regex" => Content::Regex(text()?),
        "choice" => {
            let words = value.as_array()?.iter().map(|word| word.as_str().map(str::to_owned));
            Content::Choice(words.collect::<Option<_>>()?)
        }
        "lark" => Content::Lark(text()?),
        "ebnf" => Content::Ebnf(text()?),
        "structural" => Content::StructuralTag(value.clone()),
        "calls" => return calls(value),
        _ => return None,
    };
    let spec = GrammarSpec {
        content: Some(content),
        calls: None,
        lazy: false,
        thinking: ThinkingMode::Disabled,
        reads_calls: false,
    };
    Some((spec, Arc::default()))
}

fn calls(parameters: &Value) -> Option<(GrammarSpec, Arc<ToolSet>)> {
    let list = json!([{"type": "function", "function": {"name": "f", "parameters": parameters}}]);
    let typing = Arc::new(ToolSet::from_json(&list).ok()?);
    let tool = CallableTool { name: "f".to_owned(), parameters: Some(parameters.clone()), strict: true };
    let rules = CallRules {
        tools: vec![tool],
        typing: Arc::clone(&typing),
        markers: world().markers.clone(),
        parallel: false,
    };
    let spec = GrammarSpec {
        content: None,
        calls: Some(rules),
        lazy: false,
        thinking: ThinkingMode::Disabled,
        reads_calls: true,
    };
    Some((spec, typing))
}

/// The tokens of a random walk that has ended; `None` when it was cut.
fn walk(mut mask: GrammarMask, rng: &mut Rng) -> Result<Option<Vec<u32>>, String> {
    let mut ids = Vec::new();
    let mut words = vec![0; world().tokenizer.vocab_len().div_ceil(32)];
    while ids.len() < LONGEST {
        words.fill(0);
        mask.fill(&mut words);
        let allowed: Vec<u32> = (0..words.len() as u32 * 32)
            .filter(|id| words[*id as usize / 32] >> (id % 32) & 1 == 1)
            .collect();
        let may_end = end().is_some_and(|end| allowed.contains(&end));
        let Some(id) = rng.choice(&allowed) else {
            return Err(format!("no token is left after {:?}", text_of(&ids)));
        };
        if may_end && (Some(*id) == end() || rng.u8(..4) == 0) {
            return Ok(Some(ids));
        }
        if Some(*id) == end() {
            continue;
        }
        mask.accept(*id);
        ids.push(*id);
    }
    Ok(None)
}

fn text_of(ids: &[u32]) -> String {
    world().tokenizer.decode(ids, false)
}

fn fits(schema: &Value, text: &str) -> Result<(), String> {
    let value: Value = serde_json::from_str(text).map_err(|error| format!("{text:?} is no JSON: {error}"))?;
    valid(schema, &value)
}

fn valid(schema: &Value, value: &Value) -> Result<(), String> {
    // What the checking library cannot read is no measure.
    let Ok(validator) = jsonschema::draft202012::new(schema) else { return Ok(()) };
    match validator.validate(value) {
        Ok(()) => Ok(()),
        Err(errors) => {
            let reasons: Vec<String> = errors.map(|error| error.to_string()).collect();
            Err(format!("{value} does not fit {schema}: {}", reasons.join("; ")))
        }
    }
}

fn called(ids: &[u32], typing: &Arc<ToolSet>, schema: &Value) -> Result<(), String> {
    let tokenizer = &world().tokenizer;
    let options = ParserOptions {
        thinking_mode: ThinkingMode::Disabled,
        tools: Arc::clone(typing),
        markers: world().markers.clone(),
        ..ParserOptions::default()
    };
    let (mut parser, mut detokenizer) = (OutputParser::new(options), Detokenizer::new(Arc::clone(tokenizer)));
    let mut deltas = Vec::new();
    for id in ids {
        deltas.extend(parser.push(Piece { token: Some(*id), text: &detokenizer.push(*id) }));
    }
    deltas.extend(parser.finish());
    let parsed = fold(deltas);
    let [call] = parsed.tool_calls.as_slice() else { return Err(format!("{:?} is no call", text_of(ids))) };
    let value: Value =
        serde_json::from_str(&call.arguments).map_err(|error| format!("{:?}: {error}", call.arguments))?;
    valid(schema, &value)
}
