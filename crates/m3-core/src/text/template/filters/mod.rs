//! Filters: `value | name(arguments)`. This file has the table and the small ones; text and sequence filters
//! have files of their own. Unknown names are errors, never passed through.

pub(crate) mod sequence;
mod text;

use super::arguments::Arguments;
use super::fault::Fault;
use super::json::{JsonStyle, dumps};
use super::print;
use super::traced::Traced;
use super::value::Value;
use super::{access, format};

type FilterFunction = fn(Value, &mut Arguments) -> Result<Value, Fault>;

/// Every filter by name.
const TABLE: &[(&str, FilterFunction)] = &[
    ("abs", abs),
    ("attr", attr),
    ("capitalize", text::capitalize),
    ("center", text::center),
    ("count", sequence::length),
    ("d", default),
    ("default", default),
    ("dictsort", sequence::dictsort),
    ("e", text::escape),
    ("escape", text::escape),
    ("first", sequence::first),
    ("float", to_float),
    ("format", format_percent),
    ("groupby", sequence::groupby),
    ("indent", text::indent),
    ("int", to_int),
    ("items", sequence::items),
    ("join", sequence::join_filter),
    ("last", sequence::last),
    ("length", sequence::length),
    ("list", sequence::list),
    ("lower", text::lower),
    ("map", sequence::map),
    ("max", sequence::max),
    ("min", sequence::min),
    ("reject", sequence::reject),
    ("rejectattr", sequence::rejectattr),
    ("replace", text::replace),
    ("reverse", sequence::reverse),
    ("round", round),
    ("safe", string),
    ("select", sequence::select),
    ("selectattr", sequence::selectattr),
    ("sort", sequence::sort),
    ("string", string),
    ("sum", sequence::sum),
    ("title", text::title),
    ("tojson", tojson),
    ("trim", text::trim),
    ("unique", sequence::unique),
    ("upper", text::upper),
    ("wordcount", text::wordcount),
];

/// Whether a filter of this name exists.
pub(crate) fn exists(name: &str) -> bool {
    TABLE.iter().any(|(candidate, _)| *candidate == name)
}

/// Applies the filter `name`.
pub(crate) fn apply(name: &str, value: Value, mut arguments: Arguments) -> Result<Value, Fault> {
    let Some((_, filter)) = TABLE.iter().find(|(candidate, _)| *candidate == name) else {
        return Err(Fault::new(format!("no filter named '{name}'")));
    };
    let result = filter(value, &mut arguments)?;
    arguments.finish(name)?;
    Ok(result)
}

fn default(value: Value, arguments: &mut Arguments) -> Result<Value, Fault> {
    let fallback = arguments.take("default_value").unwrap_or_else(|| Value::Text(Traced::default()));
    let also_false = arguments.take("boolean").is_some_and(|flag| flag.is_true());
    let replace = matches!(value, Value::Undefined(_)) || (also_false && !value.is_true());
    Ok(if replace { fallback } else { value })
}

fn string(value: Value, _: &mut Arguments) -> Result<Value, Fault> {
    print::to_text(&value).map(Value::Text)
}

fn attr(value: Value, arguments: &mut Arguments) -> Result<Value, Fault> {
    let name = arguments.need_text("attr", "name")?;
    match &value {
        // Unlike `value.name` this filter never looks at the items of a mapping.
        Value::Map(_) => access::attribute(&Value::Map(Default::default()), name.as_str()),
        other => access::attribute(other, name.as_str()),
    }
}

fn format_percent(value: Value, arguments: &mut Arguments) -> Result<Value, Fault> {
    let values = std::mem::take(&mut arguments.positional);
    format::percent(&print::to_text(&value)?, &Value::Tuple(std::rc::Rc::new(values)))
}

fn abs(value: Value, _: &mut Arguments) -> Result<Value, Fault> {
    match value {
        Value::Float(number) => Ok(Value::Float(number.abs())),
        other => match other.as_int().and_then(i128::checked_abs) {
            Some(number) => Ok(Value::Int(number)),
            None => Err(Fault::new(format!("bad operand type for abs(): '{}'", other.type_name()))),
        },
    }
}

fn round(value: Value, arguments: &mut Arguments) -> Result<Value, Fault> {
    let precision = arguments.take_int("round", "precision")?.unwrap_or(0);
    let method = arguments.take_text("round", "method")?;
    let is_common = method.as_ref().is_none_or(|method| method.as_str() == "common");
    if let (Some(number), true, true) = (value.as_int(), is_common, precision >= 0) {
        return Ok(Value::Int(number));
    }
    let number = value
        .as_float()
        .ok_or_else(|| Fault::new(format!("round needs a number, not {}", value.type_name())))?;
    if !(-300..=300).contains(&precision) {
        return Err(Fault::new(format!("round precision {precision} is outside -300..300")));
    }
    let scale = 10f64.powi(precision as i32);
    let rounded = match method.as_ref().map_or("common", |method| method.as_str()) {
        // The decimal printer rounds the exact binary value half to even, as Python does.
        "common" if precision >= 0 => {
            let digits = precision as usize;
            format!("{number:.digits$}").parse().unwrap_or(number)
        }
        "common" => (number * scale).round_ties_even() / scale,
        "ceil" => (number * scale).ceil() / scale,
        "floor" => (number * scale).floor() / scale,
        other => return Err(Fault::new(format!("round method '{other}' is not common, ceil or floor"))),
    };
    Ok(Value::Float(rounded))
}

fn to_int(value: Value, arguments: &mut Arguments) -> Result<Value, Fault> {
    let fallback = arguments.take("default").unwrap_or(Value::Int(0));
    let base = arguments.take_int("int", "base")?.unwrap_or(10);
    let number = match &value {
        Value::Float(number) if number.is_finite() => Some(number.trunc() as i128),
        Value::Text(text) => parse_int(text.as_str(), base),
        other => other.as_int(),
    };
    Ok(number.map_or(fallback, Value::Int))
}

fn parse_int(text: &str, base: i128) -> Option<i128> {
    let text = text.trim().replace('_', "");
    let radix = u32::try_from(base).ok().filter(|radix| (2..=36).contains(radix))?;
    let digits = match radix {
        16 => text.trim_start_matches("0x").trim_start_matches("0X"),
        8 => text.trim_start_matches("0o").trim_start_matches("0O"),
        2 => text.trim_start_matches("0b").trim_start_matches("0B"),
        _ => text.as_str(),
    };
    match i128::from_str_radix(digits, radix) {
        Ok(number) => Some(number),
        Err(_) => text.parse::<f64>().ok().filter(|number| number.is_finite()).map(|n| n.trunc() as i128),
    }
}

fn to_float(value: Value, arguments: &mut Arguments) -> Result<Value, Fault> {
    let fallback = arguments.take("default").unwrap_or(Value::Float(0.0));
    let number = match &value {
        Value::Text(text) => text.as_str().trim().parse().ok(),
        other => other.as_float(),
    };
    Ok(number.map_or(fallback, Value::Float))
}

fn tojson(value: Value, arguments: &mut Arguments) -> Result<Value, Fault> {
    // Order of the reference filter: ensure_ascii, indent, separators, sort_keys.
    let ensure_ascii = arguments.take("ensure_ascii").is_some_and(|flag| flag.is_true());
    let indent = match arguments.take("indent") {
        None | Some(Value::None) => None,
        Some(Value::Text(text)) => Some(text.as_str().to_owned()),
        Some(other) => match other.as_int() {
            Some(width) if width <= 64 => Some(" ".repeat(usize::try_from(width).unwrap_or(0))),
            _ => return Err(Fault::new("tojson indent must be a string or an int of at most 64")),
        },
    };
    let (mut item_separator, mut key_separator) =
        (if indent.is_some() { "," } else { ", " }.to_owned(), ": ".to_owned());
    match arguments.take("separators") {
        None | Some(Value::None) => {}
        Some(Value::Tuple(pair) | Value::List(pair)) if pair.len() == 2 => {
            item_separator = print::to_text(&pair[0])?.as_str().to_owned();
            key_separator = print::to_text(&pair[1])?.as_str().to_owned();
        }
        Some(_) => return Err(Fault::new("tojson separators must be a pair of strings")),
    }
    let sort_keys = arguments.take("sort_keys").is_some_and(|flag| flag.is_true());
    let style = JsonStyle { ensure_ascii, indent, item_separator, key_separator, sort_keys };
    dumps(&value, &style).map(Value::Text)
}
