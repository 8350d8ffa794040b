//! The tests after `is`.

use super::arguments::Arguments;
use super::fault::Fault;
use super::filters;
use super::operators;
use super::value::{Value, equal};
use minijinja::machinery::ast::CompareOpKind;

/// `value is name(arguments)`.
pub(crate) fn check(name: &str, value: &Value, mut arguments: Arguments) -> Result<bool, Fault> {
    let result = match name {
        "defined" => !matches!(value, Value::Undefined(_)),
        "undefined" => matches!(value, Value::Undefined(_)),
        "none" => matches!(value, Value::None),
        "boolean" => matches!(value, Value::Bool(_)),
        "true" => matches!(value, Value::Bool(true)),
        "false" => matches!(value, Value::Bool(false)),
        "integer" => matches!(value, Value::Int(_) | Value::Long(_)),
        "float" => matches!(value, Value::Float(_)),
        "number" => value.as_float().is_some() || matches!(value, Value::Long(_)),
        "string" => matches!(value, Value::Text(_)),
        "mapping" => matches!(value, Value::Map(_)),
        "sequence" => {
            matches!(
                value,
                Value::List(_) | Value::Tuple(_) | Value::Map(_) | Value::Text(_) | Value::Undefined(_)
            )
        }
        "iterable" => value.is_iterable(),
        "callable" => {
            matches!(value, Value::Macro(_) | Value::Function(_) | Value::Method(_) | Value::Loop(_))
        }
        "lower" | "upper" => {
            let text = super::print::to_text(value)?;
            let wanted = if name == "lower" { char::is_lowercase } else { char::is_uppercase };
            let other = if name == "lower" { char::is_uppercase } else { char::is_lowercase };
            text.as_str().chars().any(wanted) && !text.as_str().chars().any(other)
        }
        "even" | "odd" => integer(name, value)?.rem_euclid(2) == i128::from(name == "odd"),
        "divisibleby" => {
            let divisor = integer(name, &arguments.need(name, "num")?)?;
            if divisor == 0 {
                return Err(Fault::new("division by zero"));
            }
            integer(name, value)?.rem_euclid(divisor) == 0
        }
        "filter" => value.as_text().is_some_and(|text| filters::exists(text.as_str())),
        "sameas" => same(value, &arguments.need(name, "other")?),
        _ => {
            let Some(operator) = comparison(name) else {
                return Err(Fault::new(format!("no test named '{name}'")));
            };
            let other = arguments.need(name, "other")?;
            operators::compare(operator, value, &other)?
        }
    };
    arguments.finish(name)?;
    Ok(result)
}

fn comparison(name: &str) -> Option<CompareOpKind> {
    Some(match name {
        "eq" | "equalto" | "==" => CompareOpKind::Eq,
        "ne" | "!=" => CompareOpKind::Ne,
        "lt" | "lessthan" | "<" => CompareOpKind::Lt,
        "le" | "<=" => CompareOpKind::Lte,
        "gt" | "greaterthan" | ">" => CompareOpKind::Gt,
        "ge" | ">=" => CompareOpKind::Gte,
        "in" => CompareOpKind::In,
        _ => return None,
    })
}

fn integer(name: &str, value: &Value) -> Result<i128, Fault> {
    value.as_int().ok_or_else(|| Fault::new(format!("test '{name}' needs an int, not {}", value.type_name())))
}

/// `is sameas`: identity, which for these values means equal and of one type.
fn same(left: &Value, right: &Value) -> bool {
    left.type_name() == right.type_name() && equal(left, right)
}
