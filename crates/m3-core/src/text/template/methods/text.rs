//! The methods of Python's `str`.

use super::characters::{asked, cased};
use crate::text::template::arguments::Arguments;
use crate::text::template::fault::Fault;
use crate::text::template::filters::sequence::join;
use crate::text::template::format;
use crate::text::template::strings::{self, Side};
use crate::text::template::traced::{Traced, TracedBuilder};
use crate::text::template::value::Value;

/// Every method name this file answers.
pub(super) const NAMES: [&str; 41] = [
    "capitalize",
    "casefold",
    "center",
    "count",
    "endswith",
    "find",
    "format",
    "index",
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "islower",
    "isnumeric",
    "isprintable",
    "isspace",
    "isupper",
    "join",
    "ljust",
    "lower",
    "lstrip",
    "partition",
    "removeprefix",
    "removesuffix",
    "replace",
    "rfind",
    "rindex",
    "rjust",
    "rpartition",
    "rsplit",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "swapcase",
    "title",
    "upper",
    "zfill",
    "encode",
];

/// Widest result of the padding methods, in characters.
const MAX_WIDTH: i128 = 1 << 20;

pub(super) fn call(text: &Traced, name: &str, mut arguments: Arguments) -> Result<Value, Fault> {
    if name == "format" {
        return format::braces(text, &arguments);
    }
    let result = match name {
        "strip" | "lstrip" | "rstrip" => {
            let side = match name {
                "strip" => Side::Both,
                "lstrip" => Side::Left,
                _ => Side::Right,
            };
            let characters = arguments.take_text(name, "chars")?;
            Value::Text(strings::strip(text, characters.as_ref().map(Traced::as_str), side))
        }
        "split" | "rsplit" => split(text, name, &mut arguments)?,
        "splitlines" => {
            let keep = arguments.take("keepends").is_some_and(|value| value.is_true());
            texts(strings::split_lines(text, keep))
        }
        "partition" | "rpartition" => partition(text, name, &mut arguments)?,
        "startswith" | "endswith" => affix(text, name, &mut arguments)?,
        "removeprefix" | "removesuffix" => {
            let part = arguments.need_text(name, "affix")?;
            Value::Text(without(text, part.as_str(), name == "removeprefix"))
        }
        "find" | "rfind" | "index" | "rindex" | "count" => search(text, name, &mut arguments)?,
        "replace" => {
            let old = arguments.need_text(name, "old")?;
            let new = arguments.need_text(name, "new")?;
            let limit = limit(arguments.take_int(name, "count")?);
            Value::Text(strings::replace(text, old.as_str(), &new, limit))
        }
        "join" => join(&arguments.need(name, "iterable")?.iterate()?, text, true)?,
        "ljust" | "rjust" | "center" | "zfill" => padded(text, name, &mut arguments)?,
        _ => match cased(text, name) {
            Some(changed) => Value::Text(changed),
            None => Value::Bool(asked(text.as_str(), name)?),
        },
    };
    arguments.finish(name)?;
    Ok(result)
}

fn texts(pieces: Vec<Traced>) -> Value {
    Value::list(pieces.into_iter().map(Value::Text).collect())
}

/// Python's "at most n, -1 for all".
fn limit(count: Option<i128>) -> usize {
    count.and_then(|count| usize::try_from(count).ok()).unwrap_or(usize::MAX)
}

fn split(text: &Traced, name: &str, arguments: &mut Arguments) -> Result<Value, Fault> {
    let separator = arguments.take_text(name, "sep")?;
    let limit = limit(arguments.take_int(name, "maxsplit")?);
    let pieces = match (&separator, name) {
        (Some(separator), _) if separator.as_str().is_empty() => return Err(Fault::new("empty separator")),
        (Some(separator), "split") => strings::split(text, separator.as_str(), limit),
        (Some(separator), _) => strings::split_right(text, separator.as_str(), limit),
        (None, "split") => strings::split_words(text, limit),
        (None, _) => strings::split_words_right(text, limit),
    };
    Ok(texts(pieces))
}

fn partition(text: &Traced, name: &str, arguments: &mut Arguments) -> Result<Value, Fault> {
    let separator = arguments.need_text(name, "sep")?;
    let (whole, part) = (text.as_str(), separator.as_str());
    if part.is_empty() {
        return Err(Fault::new("empty separator"));
    }
    let found = if name == "partition" { whole.find(part) } else { whole.rfind(part) };
    let empty = Traced::default();
    let pieces = match found {
        Some(at) => {
            let end = at + part.len();
            [text.slice(0..at), text.slice(at..end), text.slice(end..whole.len())]
        }
        None if name == "partition" => [text.clone(), empty.clone(), empty],
        None => [empty.clone(), empty, text.clone()],
    };
    Ok(Value::Tuple(std::rc::Rc::new(pieces.into_iter().map(Value::Text).collect())))
}

fn affix(text: &Traced, name: &str, arguments: &mut Arguments) -> Result<Value, Fault> {
    let wanted = arguments.need(name, "affix")?;
    let candidates = match &wanted {
        Value::Tuple(items) => items.to_vec(),
        single => vec![single.clone()],
    };
    for candidate in candidates {
        let Value::Text(part) = candidate else {
            let got = candidate.type_name();
            return Err(Fault::new(format!("{name} first arg must be str or a tuple of str, not {got}")));
        };
        let (whole, part) = (text.as_str(), part.as_str());
        if if name == "startswith" { whole.starts_with(part) } else { whole.ends_with(part) } {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}

fn without(text: &Traced, part: &str, prefix: bool) -> Traced {
    let whole = text.as_str();
    match if prefix { whole.strip_prefix(part) } else { whole.strip_suffix(part) } {
        Some(_) if prefix => text.slice(part.len()..whole.len()),
        Some(rest) => text.slice(0..rest.len()),
        None => text.clone(),
    }
}

fn search(text: &Traced, name: &str, arguments: &mut Arguments) -> Result<Value, Fault> {
    let wanted = arguments.need_text(name, "sub")?;
    let (whole, part) = (text.as_str(), wanted.as_str());
    if name == "count" {
        return Ok(Value::Int(whole.matches(part).count() as i128));
    }
    let found = if name.starts_with('r') { whole.rfind(part) } else { whole.find(part) };
    match found {
        Some(at) => Ok(Value::Int(whole[..at].chars().count() as i128)),
        None if name.ends_with("find") => Ok(Value::Int(-1)),
        None => Err(Fault::new("substring not found")),
    }
}

fn padded(text: &Traced, name: &str, arguments: &mut Arguments) -> Result<Value, Fault> {
    let width = arguments.take_int(name, "width")?.unwrap_or(0);
    if width > MAX_WIDTH {
        return Err(Fault::new(format!("{name} width {width} is over the limit of {MAX_WIDTH}")));
    }
    let length = text.as_str().chars().count();
    let missing = usize::try_from(width).unwrap_or(0).saturating_sub(length);
    if name == "zfill" {
        let sign = usize::from(text.as_str().starts_with(['+', '-']));
        let mut out = TracedBuilder::default();
        out.push_slice(text, 0..sign);
        out.push_user(&"0".repeat(missing));
        out.push_slice(text, sign..text.as_str().len());
        return Ok(Value::Text(out.finish()));
    }
    let fill = arguments.take_text(name, "fillchar")?;
    let fill = fill.and_then(|fill| fill.as_str().chars().next()).unwrap_or(' ');
    // CPython gives the odd character to the left when both the margin and the width are odd.
    let left = missing / 2 + (missing & usize::try_from(width).unwrap_or(0) & 1);
    let margins = match name {
        "ljust" => (0, missing),
        "rjust" => (missing, 0),
        _ => (left, missing - left),
    };
    Ok(Value::Text(strings::pad(text, margins, fill)))
}
