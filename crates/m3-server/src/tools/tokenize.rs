//! `m3 tokenize`: text to ids, or ids to text.

use std::io::{Read, Write};

use m3_core::text::tokenizer::Tokenizer;

/// What was asked for.
pub(super) struct Flags {
    /// `None` reads standard input.
    pub(super) text: Option<String>,
    /// Marker texts become added tokens.
    pub(super) special: bool,
    pub(super) decode: bool,
}

/// Prints `{"count":…,"tokens":[…]}`, or the text.
pub(super) fn run(tokenizer: &Tokenizer, flags: Flags) -> anyhow::Result<()> {
    let text = match flags.text {
        Some(text) => text,
        None => {
            let mut text = String::new();
            std::io::stdin().lock().read_to_string(&mut text)?;
            text
        }
    };
    let mut out = std::io::stdout().lock();
    if flags.decode {
        let words = text.split(|letter: char| letter.is_whitespace() || ",[]".contains(letter));
        let ids = words
            .filter(|word| !word.is_empty())
            .map(|word| word.parse::<u32>().map_err(|_| anyhow::anyhow!("\"{word}\" is no token id")));
        writeln!(out, "{}", tokenizer.decode(&ids.collect::<anyhow::Result<Vec<_>>>()?, false))?;
        return Ok(());
    }
    let ids = if flags.special { tokenizer.encode_special(&text) } else { tokenizer.encode_ordinary(&text) }?;
    writeln!(out, "{}", serde_json::json!({ "count": ids.len(), "tokens": ids }))?;
    Ok(())
}
