//! `m3 parse`: the output parser the server uses, over text, pieces of text, or token ids.

use std::sync::Arc;

use m3_core::text::detokenize::Detokenizer;
use m3_core::text::parse::{Delta, Markers, OutputParser, ParserOptions, Piece, ThinkingMode, ToolSet, fold};
use m3_core::text::tokenizer::Tokenizer;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::args::{ModelOptions, Parsed};
use crate::model::markers;
use crate::openai::thinking::mode_of;

/// One line in: one of `text`, `chunks` and `token_chunks`.
#[derive(Debug, Deserialize)]
pub struct ParseLine {
    text: Option<String>,
    chunks: Option<Vec<String>>,
    token_chunks: Option<Vec<Vec<u32>>>,
    thinking_mode: Option<Value>,
    tools: Option<Value>,
}

/// One line out.
#[derive(Debug, Serialize)]
pub struct ParsedLine {
    pub reasoning: Option<String>,
    pub content: Option<String>,
    pub tool_calls: Vec<CallLine>,
}

/// One call; the arguments are the very JSON that the server would send as text.
#[derive(Debug, Serialize)]
pub struct CallLine {
    pub name: String,
    pub arguments: Box<RawValue>,
}

pub(super) fn run(parsed: &Parsed) -> anyhow::Result<()> {
    let options = ModelOptions::read(parsed)?;
    let named = options.tokenizer.is_some() || options.dir.is_some();
    // Only token chunks need a tokenizer, so nothing is looked for unasked.
    let tokenizer = if named { Some(Arc::new(super::tokenizer(&options)?)) } else { None };
    super::for_each_line(|text| parse_line(tokenizer.as_ref(), text)).map(|_| ())
}

/// Parses one line.
pub fn parse_line(tokenizer: Option<&Arc<Tokenizer>>, text: &str) -> Result<ParsedLine, String> {
    let line: ParseLine =
        serde_json::from_str(text).map_err(|error| format!("the line is not valid: {error}"))?;
    let given = [line.text.is_some(), line.chunks.is_some(), line.token_chunks.is_some()];
    match given.iter().filter(|given| **given).count() {
        1 => {}
        0 => return Err("the line has none of text, chunks and token_chunks".to_owned()),
        count => {
            return Err(format!("the line has {count} of text, chunks and token_chunks; give one of them"));
        }
    }
    let mut parser = OutputParser::new(options(&line, tokenizer)?);
    let mut deltas = Vec::new();
    match (&line.token_chunks, &line.chunks, &line.text) {
        (Some(chunks), _, _) => {
            let tokenizer = tokenizer.ok_or("token_chunks need --tokenizer FILE or --model DIR")?;
            if let Some(id) = chunks.iter().flatten().find(|id| tokenizer.token_bytes(**id).is_none()) {
                return Err(format!(
                    "token id {id} stands for nothing; the tokenizer has {} tokens",
                    tokenizer.vocab_len()
                ));
            }
            feed_tokens(&mut parser, &mut deltas, tokenizer, chunks);
        }
        (None, Some(chunks), _) => {
            chunks.iter().for_each(|chunk| deltas.extend(parser.push(Piece::text(chunk))));
        }
        (None, None, text) => {
            deltas.extend(text.iter().flat_map(|text| parser.push(Piece::text(text))));
        }
    }
    deltas.extend(parser.finish());
    answer(deltas)
}

fn options(line: &ParseLine, tokenizer: Option<&Arc<Tokenizer>>) -> Result<ParserOptions, String> {
    let thinking_mode = match &line.thinking_mode {
        None | Some(Value::Null) => ThinkingMode::default(),
        Some(mode) => mode_of("thinking_mode", mode).map_err(|error| error.message)?,
    };
    let tools = line.tools.as_ref().unwrap_or(&Value::Null);
    Ok(ParserOptions {
        thinking_mode,
        tools: Arc::new(ToolSet::from_json(tools).map_err(|error| error.to_string())?),
        markers: tokenizer.map_or_else(Markers::default, |tokenizer| markers(tokenizer)),
        ..ParserOptions::default()
    })
}

/// As the server does it: special tokens have no text, the parser looks at their ids.
fn feed_tokens(
    parser: &mut OutputParser,
    deltas: &mut Vec<Delta>,
    tokenizer: &Arc<Tokenizer>,
    chunks: &[Vec<u32>],
) {
    let mut detokenizer = Detokenizer::new(Arc::clone(tokenizer));
    for token in chunks.iter().flatten() {
        let text = if tokenizer.is_special(*token) {
            deltas.extend(parser.push(Piece::text(&detokenizer.finish())));
            String::new()
        } else {
            detokenizer.push(*token)
        };
        deltas.extend(parser.push(Piece { token: Some(*token), text: &text }));
    }
    let tail = detokenizer.finish();
    deltas.extend(parser.push(Piece::text(&tail)));
}

fn answer(deltas: Vec<Delta>) -> Result<ParsedLine, String> {
    let parsed = fold(deltas);
    let call = |call: m3_core::text::parse::ParsedCall| {
        let arguments = RawValue::from_string(call.arguments)
            .map_err(|error| format!("the arguments of {} are not JSON: {error}", call.name))?;
        Ok(CallLine { name: call.name, arguments })
    };
    let tool_calls = parsed.tool_calls.into_iter().map(call).collect::<Result<_, String>>()?;
    Ok(ParsedLine { reasoning: parsed.reasoning, content: parsed.content, tool_calls })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nano() -> Arc<Tokenizer> {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/random/m3-nano");
        Arc::new(Tokenizer::from_dir(dir.as_ref()).unwrap())
    }

    /// Two halves of an emoji with a special token between them are two broken characters, not one emoji.
    #[test]
    fn a_special_token_inside_a_character_does_not_join_its_halves() {
        let tokenizer = nano();
        let end = tokenizer.token_id("[e~[").unwrap();
        let line = format!(r#"{{"token_chunks":[[240,159],[{end}],[152,128]]}}"#);
        let content = parse_line(Some(&tokenizer), &line).unwrap().content.unwrap();
        assert_eq!(content, "\u{fffd}\u{fffd}\u{fffd}");
    }

    #[test]
    fn an_unknown_token_id_is_named_with_the_limit() {
        let error = parse_line(Some(&nano()), r#"{"token_chunks":[[999999]]}"#).unwrap_err();
        assert!(error.contains("999999") && error.contains("1021"), "{error}");
    }
}
