//! Python's operators: arithmetic, `~`, comparisons and `in`.

use std::cmp::Ordering;

use minijinja::machinery::ast::{BinOpKind, CompareOpKind};

use super::expression::contains;
use super::fault::Fault;
use super::format;
use super::print;
use super::traced::TracedBuilder;
use super::value::{Value, equal, order};

/// Longest string or list `*` may make, in bytes or items.
const MAX_REPEATED: usize = 1 << 24;

pub(crate) fn negate(value: &Value) -> Result<Value, Fault> {
    match value {
        Value::Float(number) => Ok(Value::Float(-number)),
        other => match other.as_int().and_then(i128::checked_neg) {
            Some(number) => Ok(Value::Int(number)),
            None => Err(Fault::new(format!("bad operand type for unary -: '{}'", other.type_name()))),
        },
    }
}

pub(crate) fn compare(operator: CompareOpKind, left: &Value, right: &Value) -> Result<bool, Fault> {
    let ordered = |name, accept: fn(Ordering) -> bool| Ok(order(left, right, name)?.is_some_and(accept));
    match operator {
        CompareOpKind::Eq => Ok(equal(left, right)),
        CompareOpKind::Ne => Ok(!equal(left, right)),
        CompareOpKind::Lt => ordered("<", Ordering::is_lt),
        CompareOpKind::Lte => ordered("<=", Ordering::is_le),
        CompareOpKind::Gt => ordered(">", Ordering::is_gt),
        CompareOpKind::Gte => ordered(">=", Ordering::is_ge),
        CompareOpKind::In => is_in(left, right),
        CompareOpKind::NotIn => is_in(left, right).map(|found| !found),
    }
}

/// `needle in container`.
pub(crate) fn is_in(needle: &Value, container: &Value) -> Result<bool, Fault> {
    match container {
        Value::Text(text) => match needle {
            Value::Text(part) => Ok(text.as_str().contains(part.as_str())),
            other => Err(Fault::new(format!(
                "'in <string>' requires string as left operand, not {}",
                other.type_name()
            ))),
        },
        Value::Map(map) => Ok(map.get(needle).is_some()),
        Value::List(items) | Value::Tuple(items) => Ok(contains(items, needle)),
        Value::Undefined(_) => Ok(false),
        other => Err(Fault::new(format!("argument of type '{}' is not iterable", other.type_name()))),
    }
}

/// Every operator that makes a new value.
pub(crate) fn arithmetic(operator: BinOpKind, left: &Value, right: &Value) -> Result<Value, Fault> {
    if matches!(operator, BinOpKind::Concat) {
        let mut joined = TracedBuilder::default();
        print::write(left, &mut joined)?;
        print::write(right, &mut joined)?;
        return Ok(Value::Text(joined.finish()));
    }
    for side in [left, right] {
        if let Value::Undefined(what) = side {
            return Err(Fault::new(what.to_string()));
        }
    }
    match (operator, left, right) {
        (BinOpKind::Add, Value::Text(a), Value::Text(b)) => {
            let mut joined = TracedBuilder::default();
            joined.push(a);
            joined.push(b);
            Ok(Value::Text(joined.finish()))
        }
        (BinOpKind::Add, Value::List(a), Value::List(b)) => {
            Ok(Value::list(a.iter().chain(b.iter()).cloned().collect()))
        }
        (BinOpKind::Add, Value::Tuple(a), Value::Tuple(b)) => {
            Ok(Value::Tuple(std::rc::Rc::new(a.iter().chain(b.iter()).cloned().collect())))
        }
        (BinOpKind::Mul, Value::Text(_) | Value::List(_), count) if count.as_int().is_some() => {
            repeat(left, count.as_int().unwrap_or(0))
        }
        (BinOpKind::Mul, count, Value::Text(_) | Value::List(_)) if count.as_int().is_some() => {
            repeat(right, count.as_int().unwrap_or(0))
        }
        (BinOpKind::Rem, Value::Text(pattern), arguments) => format::percent(pattern, arguments),
        _ => match (left.as_int(), right.as_int()) {
            (Some(a), Some(b)) => integers(operator, a, b),
            _ => match (left.as_float(), right.as_float()) {
                (Some(a), Some(b)) => floats(operator, a, b),
                _ => Err(unsupported(operator, left, right)),
            },
        },
    }
}

fn repeat(value: &Value, count: i128) -> Result<Value, Fault> {
    let count = usize::try_from(count.max(0)).unwrap_or(usize::MAX);
    let length = match value {
        Value::Text(text) => text.as_str().len(),
        Value::List(items) => items.len(),
        _ => 0,
    };
    if length.saturating_mul(count) > MAX_REPEATED {
        return Err(Fault::new(format!("a repetition of {length} x {count} is over {MAX_REPEATED}")));
    }
    match value {
        Value::Text(text) => {
            let mut repeated = TracedBuilder::default();
            if length > 0 {
                (0..count).for_each(|_| repeated.push(text));
            }
            Ok(Value::Text(repeated.finish()))
        }
        Value::List(items) if length > 0 => {
            Ok(Value::list((0..count).flat_map(|_| items.iter().cloned()).collect()))
        }
        _ => Ok(Value::list(Vec::new())),
    }
}

fn integers(operator: BinOpKind, a: i128, b: i128) -> Result<Value, Fault> {
    let result = match operator {
        BinOpKind::Add => a.checked_add(b),
        BinOpKind::Sub => a.checked_sub(b),
        BinOpKind::Mul => a.checked_mul(b),
        BinOpKind::Div | BinOpKind::FloorDiv | BinOpKind::Rem if b == 0 => {
            return Err(Fault::new("division by zero"));
        }
        BinOpKind::Div => return Ok(Value::Float(a as f64 / b as f64)),
        // Python rounds towards minus infinity; the remainder takes the divisor's sign.
        BinOpKind::FloorDiv => {
            a.checked_div_euclid(b).map(|q| if b < 0 && a.rem_euclid(b) != 0 { q - 1 } else { q })
        }
        BinOpKind::Rem => a.checked_rem(b).map(|r| if r != 0 && (r < 0) != (b < 0) { r + b } else { r }),
        BinOpKind::Pow if b < 0 => return Ok(Value::Float((a as f64).powf(b as f64))),
        BinOpKind::Pow => u32::try_from(b).ok().and_then(|exponent| a.checked_pow(exponent)),
        _ => return Err(unsupported(operator, &Value::Int(a), &Value::Int(b))),
    };
    result.map(Value::Int).ok_or_else(|| Fault::new("an integer result is over 127 bits"))
}

fn floats(operator: BinOpKind, a: f64, b: f64) -> Result<Value, Fault> {
    if b == 0.0 && matches!(operator, BinOpKind::Div | BinOpKind::FloorDiv | BinOpKind::Rem) {
        return Err(Fault::new("float division by zero"));
    }
    Ok(Value::Float(match operator {
        BinOpKind::Add => a + b,
        BinOpKind::Sub => a - b,
        BinOpKind::Mul => a * b,
        BinOpKind::Div => a / b,
        BinOpKind::FloorDiv => (a / b).floor(),
        BinOpKind::Rem => a - b * (a / b).floor(),
        BinOpKind::Pow => a.powf(b),
        _ => return Err(unsupported(operator, &Value::Float(a), &Value::Float(b))),
    }))
}

fn unsupported(operator: BinOpKind, left: &Value, right: &Value) -> Fault {
    let sign = match operator {
        BinOpKind::Add => "+",
        BinOpKind::Sub => "-",
        BinOpKind::Mul => "*",
        BinOpKind::Div => "/",
        BinOpKind::FloorDiv => "//",
        BinOpKind::Rem => "%",
        _ => "**",
    };
    let (a, b) = (left.type_name(), right.type_name());
    Fault::new(format!("unsupported operand type(s) for {sign}: '{a}' and '{b}'"))
}
