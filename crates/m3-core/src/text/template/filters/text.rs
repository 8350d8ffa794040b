//! Filters on strings. Their input is printed first, as Jinja does.

use crate::text::template::arguments::Arguments;
use crate::text::template::fault::Fault;
use crate::text::template::print::to_text;
use crate::text::template::strings::{self, Side};
use crate::text::template::traced::{Traced, TracedBuilder};
use crate::text::template::value::Value;

pub(super) fn upper(value: Value, _: &mut Arguments) -> Result<Value, Fault> {
    Ok(Value::Text(strings::upper(&to_text(&value)?)))
}

pub(super) fn lower(value: Value, _: &mut Arguments) -> Result<Value, Fault> {
    Ok(Value::Text(strings::lower(&to_text(&value)?)))
}

pub(super) fn capitalize(value: Value, _: &mut Arguments) -> Result<Value, Fault> {
    Ok(Value::Text(strings::capitalize(&to_text(&value)?)))
}

/// Jinja's own rule, which is not `str.title`: words begin after white space, hyphens and opening brackets.
pub(super) fn title(value: Value, _: &mut Arguments) -> Result<Value, Fault> {
    let begins = |previous: Option<char>| {
        previous.is_none_or(|c| strings::is_space(c) || matches!(c, '-' | '(' | '{' | '[' | '<'))
    };
    Ok(Value::Text(strings::title(&to_text(&value)?, begins)))
}

pub(super) fn trim(value: Value, arguments: &mut Arguments) -> Result<Value, Fault> {
    let characters = arguments.take_text("trim", "chars")?;
    let characters = characters.as_ref().map(Traced::as_str);
    Ok(Value::Text(strings::strip(&to_text(&value)?, characters, Side::Both)))
}

pub(super) fn replace(value: Value, arguments: &mut Arguments) -> Result<Value, Fault> {
    let old = to_text(&arguments.need("replace", "old")?)?;
    let new = to_text(&arguments.need("replace", "new")?)?;
    let limit = match arguments.take_int("replace", "count")? {
        Some(count) if count >= 0 => usize::try_from(count).unwrap_or(usize::MAX),
        _ => usize::MAX,
    };
    Ok(Value::Text(strings::replace(&to_text(&value)?, old.as_str(), &new, limit)))
}

pub(super) fn wordcount(value: Value, _: &mut Arguments) -> Result<Value, Fault> {
    Ok(Value::Int(strings::split_words(&to_text(&value)?, usize::MAX).len() as i128))
}

pub(super) fn center(value: Value, arguments: &mut Arguments) -> Result<Value, Fault> {
    let mut call = Arguments::default();
    let width = arguments.take("width").unwrap_or(Value::Int(80));
    call.positional.push(width);
    crate::text::template::methods::call(&Value::Text(to_text(&value)?), "center", call)
}

/// The entities of HTML. The characters that stand for others count as the user's.
pub(super) fn escape(value: Value, _: &mut Arguments) -> Result<Value, Fault> {
    let text = to_text(&value)?;
    let mut out = TracedBuilder::default();
    for (at, character) in text.as_str().char_indices() {
        match character {
            '&' => out.push_user("&amp;"),
            '<' => out.push_user("&lt;"),
            '>' => out.push_user("&gt;"),
            '\'' => out.push_user("&#39;"),
            '"' => out.push_user("&#34;"),
            _ => out.push_slice(&text, at..at + character.len_utf8()),
        }
    }
    Ok(Value::Text(out.finish()))
}

/// `indent(width=4, first=False, blank=False)`.
pub(super) fn indent(value: Value, arguments: &mut Arguments) -> Result<Value, Fault> {
    let margin = match arguments.take("width") {
        None => Traced::user("    "),
        Some(Value::Text(text)) => text,
        Some(other) => match other.as_int().and_then(|width| usize::try_from(width).ok()) {
            Some(width) if width <= 256 => Traced::user(&" ".repeat(width)),
            _ => return Err(Fault::new("indent width must be a string or an int of 0 to 256")),
        },
    };
    let first = arguments.take("first").is_some_and(|flag| flag.is_true());
    let blank = arguments.take("blank").is_some_and(|flag| flag.is_true());
    // Jinja adds a newline before it splits, so that a final one survives as an empty last line.
    let mut ended = TracedBuilder::default();
    ended.push(&to_text(&value)?);
    ended.push_user("\n");
    let mut out = TracedBuilder::default();
    for (index, line) in strings::split_lines(&ended.finish(), false).iter().enumerate() {
        if index > 0 {
            out.push_user("\n");
        }
        let wanted = if index == 0 { first } else { blank || !line.as_str().is_empty() };
        if wanted {
            out.push(&margin);
        }
        out.push(line);
    }
    Ok(Value::Text(out.finish()))
}
