//! Commands for people who debug templates, tokens and parsers: plain functions over standard input and output.
//! JSON lines in, JSON lines out; a line that fails gives `{"error": …}` and the next one goes on.

mod convert;
mod media;
mod parse;
mod render;
mod tokenize;

use std::io::{BufRead, Write};

use serde::Serialize;

use crate::args::{ModelOptions, Parsed};
use crate::model::load_tokenizer;
use crate::place::model_dir;
use m3_core::text::tokenizer::Tokenizer;

pub use media::{Inspected, Request as InspectRequest, inspect};
pub use parse::{ParseLine, parse_line};
pub use render::{RenderLine, render_line};

/// `m3 convert`.
pub fn convert(parsed: &Parsed) -> anyhow::Result<()> {
    convert::run(parsed)
}

/// `m3 media`.
pub fn media(parsed: &Parsed) -> anyhow::Result<()> {
    media::run(parsed)
}

/// `m3 parse`.
pub fn parse(parsed: &Parsed) -> anyhow::Result<()> {
    parse::run(parsed)
}

/// `m3 render`.
pub fn render(parsed: &Parsed) -> anyhow::Result<()> {
    render::run(parsed)
}

/// `m3 tokenize`.
pub fn tokenize(parsed: &Parsed) -> anyhow::Result<()> {
    let flags = tokenize::Flags {
        text: parsed.value("text").map(str::to_owned),
        special: !parsed.has("no-special"),
        decode: parsed.has("decode"),
    };
    tokenize::run(&tokenizer(&ModelOptions::read(parsed)?)?, flags)
}

/// Standard output, whose reader may have had enough.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

/// The tokenizer that was named, else the model's.
fn tokenizer(options: &ModelOptions) -> anyhow::Result<Tokenizer> {
    let place = match &options.tokenizer {
        Some(place) => place.clone(),
        None => model_dir(options)?,
    };
    Ok(load_tokenizer(&place)?)
}

/// Applies `line` to every line of standard input that is not empty; says how many there were.
fn for_each_line<T: Serialize>(mut line: impl FnMut(&str) -> Result<T, String>) -> anyhow::Result<usize> {
    #[derive(Serialize)]
    struct Failed {
        error: String,
    }
    let mut out = std::io::stdout().lock();
    let mut count = 0;
    for bytes in std::io::stdin().lock().split(b'\n') {
        let bytes = bytes?;
        if bytes.trim_ascii().is_empty() {
            continue;
        }
        count += 1;
        let text = std::str::from_utf8(&bytes).map_err(|error| format!("the line is not UTF-8: {error}"));
        match text.and_then(&mut line) {
            Ok(value) => serde_json::to_writer(&mut out, &value)?,
            Err(error) => serde_json::to_writer(&mut out, &Failed { error })?,
        }
        writeln!(out)?;
    }
    Ok(count)
}
