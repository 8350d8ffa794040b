//! `'%s' % value` and `'{}'.format(value)`: the plain conversions templates use, no width or alignment.

use super::arguments::Arguments;
use super::fault::Fault;
use super::print;
use super::traced::{Traced, TracedBuilder};
use super::value::Value;

/// `pattern % arguments` with `%s`, `%r`, `%d`, `%i`, `%f`, `%.Nf` and `%%`.
pub(crate) fn percent(pattern: &Traced, arguments: &Value) -> Result<Value, Fault> {
    let mut values = match arguments {
        Value::Tuple(items) => items.iter(),
        single => std::slice::from_ref(single).iter(),
    };
    let whole = pattern.as_str();
    let mut out = TracedBuilder::default();
    let mut at = 0;
    while let Some(found) = whole[at..].find('%') {
        out.push_slice(pattern, at..at + found);
        let rest = &whole[at + found + 1..];
        let length = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let Some(conversion) = rest[length..].chars().next() else {
            return Err(Fault::new("incomplete format"));
        };
        let percent_at = at + found;
        at = percent_at + 1 + length + conversion.len_utf8();
        if conversion == '%' {
            out.push_slice(pattern, percent_at..percent_at + 1);
            continue;
        }
        let value = values.next().ok_or_else(|| Fault::new("not enough arguments for format string"))?;
        convert(&mut out, conversion, &rest[..length], value)?;
    }
    out.push_slice(pattern, at..whole.len());
    if values.next().is_some() && matches!(arguments, Value::Tuple(_) | Value::Text(_)) {
        return Err(Fault::new("not all arguments converted during string formatting"));
    }
    Ok(Value::Text(out.finish()))
}

fn convert(out: &mut TracedBuilder, conversion: char, options: &str, value: &Value) -> Result<(), Fault> {
    match (conversion, options) {
        ('s', "") => print::write(value, out)?,
        ('r', "") => print::write_repr(value, out)?,
        ('d' | 'i', "") => match (value.as_int(), value.as_float()) {
            (Some(number), _) => out.push_user(&number.to_string()),
            (None, Some(number)) => out.push_user(&(number.trunc() as i128).to_string()),
            _ => {
                return Err(Fault::new(format!(
                    "%d format: a number is required, not {}",
                    value.type_name()
                )));
            }
        },
        ('f', digits) if digits.is_empty() || digits.starts_with('.') => {
            let digits = match digits.trim_start_matches('.') {
                "" => 6,
                text => text.parse().ok().filter(|n| *n <= 100).ok_or_else(|| {
                    Fault::new(format!("{text} digits after the point are over the limit of 100"))
                })?,
            };
            let number = value
                .as_float()
                .ok_or_else(|| Fault::new(format!("must be real number, not {}", value.type_name())))?;
            out.push_user(&format!("{number:.digits$}"));
        }
        _ => return Err(Fault::new(format!("format '%{options}{conversion}' is not supported"))),
    }
    Ok(())
}

/// `pattern.format(...)` with `{}`, `{0}`, `{name}`, `{{` and `}}`.
pub(crate) fn braces(pattern: &Traced, arguments: &Arguments) -> Result<Value, Fault> {
    let whole = pattern.as_str();
    let mut out = TracedBuilder::default();
    let (mut at, mut automatic) = (0, 0);
    while let Some(found) = whole[at..].find(['{', '}']) {
        let brace = at + found;
        out.push_slice(pattern, at..brace);
        let doubled = whole[brace + 1..].starts_with(&whole[brace..=brace]);
        if doubled {
            out.push_slice(pattern, brace..brace + 1);
            at = brace + 2;
            continue;
        }
        let Some(length) = whole[brace..].find('}').filter(|_| whole[brace..].starts_with('{')) else {
            return Err(Fault::new("single '{' or '}' encountered in format string"));
        };
        let field = &whole[brace + 1..brace + length];
        let index = if field.is_empty() { Some(automatic) } else { field.parse().ok() };
        automatic += usize::from(field.is_empty());
        let value = match index {
            Some(index) => arguments.positional.get(index),
            None => arguments.named.iter().find(|(name, _)| name == field).map(|(_, value)| value),
        };
        let value =
            value.ok_or_else(|| Fault::new(format!("format() has no value for the field '{{{field}}}'")))?;
        print::write(value, &mut out)?;
        at = brace + length + 1;
    }
    out.push_slice(pattern, at..whole.len());
    Ok(Value::Text(out.finish()))
}
