//! The values a template works with, and what Python says about their truth, equality and order.
//! Printing is in `print`, JSON in `json`; nothing here evaluates template code.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::rc::Rc;

use super::fault::Fault;
use super::functions::Function;
use super::traced::Traced;
use crate::text::exact;

/// A Python-like value. Cloning is cheap: everything big is shared.
#[derive(Clone)]
pub(crate) enum Value {
    /// A missing variable, attribute or item; the text says which, for the error if it is used.
    Undefined(Rc<str>),
    None,
    Bool(bool),
    Int(i128),
    /// Digits, with their sign, of an integer beyond 127 bits. It can be printed and nothing else.
    Long(Rc<str>),
    Float(f64),
    Text(Traced),
    List(Rc<Vec<Value>>),
    Tuple(Rc<Vec<Value>>),
    Map(Rc<Dict>),
    Namespace(Rc<RefCell<Dict>>),
    Loop(Rc<LoopState>),
    /// Index into the interpreter's table of macros.
    Macro(usize),
    Function(Function),
    /// A method bound to its object, not yet called.
    Method(Rc<(Value, String)>),
}

/// A dictionary in insertion order. Chat data has few keys per mapping, so look-up is a scan.
#[derive(Clone, Default)]
pub(crate) struct Dict(pub(crate) Vec<(Value, Value)>);

/// What `loop` answers inside one iteration.
pub(crate) struct LoopState {
    pub(crate) index0: usize,
    pub(crate) length: usize,
    pub(crate) previous: Value,
    pub(crate) next: Value,
    /// Arguments of the last `loop.changed(...)`, shared by all iterations.
    pub(crate) changed: Rc<RefCell<Option<Vec<Value>>>>,
}

impl Dict {
    pub(crate) fn get(&self, key: &Value) -> Option<&Value> {
        self.0.iter().find(|(candidate, _)| equal(candidate, key)).map(|(_, value)| value)
    }

    pub(crate) fn get_name(&self, name: &str) -> Option<&Value> {
        self.0
            .iter()
            .find(|(key, _)| matches!(key, Value::Text(text) if text.as_str() == name))
            .map(|(_, value)| value)
    }

    pub(crate) fn insert(&mut self, key: Value, value: Value) {
        match self.0.iter_mut().find(|(candidate, _)| equal(candidate, &key)) {
            Some(entry) => entry.1 = value,
            None => self.0.push((key, value)),
        }
    }
}

impl Value {
    pub(crate) fn user(text: &str) -> Self {
        Value::Text(Traced::user(text))
    }

    pub(crate) fn list(items: Vec<Value>) -> Self {
        Value::List(Rc::new(items))
    }

    pub(crate) fn pair(first: Value, second: Value) -> Self {
        Value::Tuple(Rc::new(vec![first, second]))
    }

    /// Request data: every string, keys included, is the user's.
    pub(crate) fn from_json(json: &serde_json::Value) -> Result<Self, Fault> {
        if let Some(digits) = exact::integer(json) {
            return Ok(digits.parse().map_or_else(|_| Value::Long(digits.into()), Value::Int));
        }
        Ok(match json {
            serde_json::Value::Null => Value::None,
            serde_json::Value::Bool(flag) => Value::Bool(*flag),
            serde_json::Value::Number(number) => number_from_json(number)?,
            serde_json::Value::String(text) => Value::user(text),
            serde_json::Value::Array(items) => {
                Value::list(items.iter().map(Value::from_json).collect::<Result<_, _>>()?)
            }
            serde_json::Value::Object(entries) => {
                let entries = entries.iter().map(|(k, v)| Ok((Value::user(k), Value::from_json(v)?)));
                Value::Map(Rc::new(Dict(entries.collect::<Result<_, Fault>>()?)))
            }
        })
    }

    /// Python's `bool(value)`.
    pub(crate) fn is_true(&self) -> bool {
        match self {
            Value::Undefined(_) | Value::None => false,
            Value::Bool(flag) => *flag,
            Value::Int(number) => *number != 0,
            Value::Long(_) => true,
            Value::Float(number) => *number != 0.0,
            Value::Text(text) => !text.as_str().is_empty(),
            Value::List(items) | Value::Tuple(items) => !items.is_empty(),
            Value::Map(map) => !map.0.is_empty(),
            Value::Namespace(_)
            | Value::Loop(_)
            | Value::Macro(_)
            | Value::Function(_)
            | Value::Method(_) => true,
        }
    }

    /// Python's type name, for error texts.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Value::Undefined(_) => "Undefined",
            Value::None => "NoneType",
            Value::Bool(_) => "bool",
            Value::Int(_) | Value::Long(_) => "int",
            Value::Float(_) => "float",
            Value::Text(_) => "str",
            Value::List(_) => "list",
            Value::Tuple(_) => "tuple",
            Value::Map(_) => "dict",
            Value::Namespace(_) => "Namespace",
            Value::Loop(_) => "LoopContext",
            Value::Macro(_) => "Macro",
            Value::Function(_) => "function",
            Value::Method(_) => "method",
        }
    }

    /// The items Python would iterate over: characters of a string, keys of a mapping.
    pub(crate) fn iterate(&self) -> Result<Rc<Vec<Value>>, Fault> {
        Ok(match self {
            Value::List(items) | Value::Tuple(items) => items.clone(),
            Value::Map(map) => Rc::new(map.0.iter().map(|(key, _)| key.clone()).collect()),
            Value::Text(text) => Rc::new(characters(text)),
            Value::Undefined(_) => Rc::new(Vec::new()),
            other => return Err(Fault::new(format!("'{}' object is not iterable", other.type_name()))),
        })
    }

    /// Whether [`Self::iterate`] would succeed.
    pub(crate) fn is_iterable(&self) -> bool {
        matches!(
            self,
            Value::List(_) | Value::Tuple(_) | Value::Map(_) | Value::Text(_) | Value::Undefined(_)
        )
    }

    /// The number behind `int`, `float` and `bool`.
    pub(crate) fn as_float(&self) -> Option<f64> {
        match self {
            Value::Bool(flag) => Some(f64::from(u8::from(*flag))),
            Value::Int(number) => Some(*number as f64),
            Value::Float(number) => Some(*number),
            _ => None,
        }
    }

    /// The integer behind `int` and `bool`.
    pub(crate) fn as_int(&self) -> Option<i128> {
        match self {
            Value::Bool(flag) => Some(i128::from(*flag)),
            Value::Int(number) => Some(*number),
            _ => None,
        }
    }

    pub(crate) fn as_text(&self) -> Option<&Traced> {
        match self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// The characters of a string as strings of one character each.
pub(crate) fn characters(text: &Traced) -> Vec<Value> {
    let whole = text.as_str();
    whole.char_indices().map(|(at, c)| Value::Text(text.slice(at..at + c.len_utf8()))).collect()
}

fn number_from_json(number: &serde_json::Number) -> Result<Value, Fault> {
    if let Some(integer) = number.as_i128() {
        return Ok(Value::Int(integer));
    }
    match number.as_f64() {
        Some(float) => Ok(Value::Float(float)),
        None => Err(Fault::new(format!("number {number} is outside what this engine can represent"))),
    }
}

/// Python's `==`. Origin never matters: strings are equal when their characters are.
pub(crate) fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Undefined(_), Value::Undefined(_)) | (Value::None, Value::None) => true,
        (Value::Text(a), Value::Text(b)) => a.as_str() == b.as_str(),
        (Value::List(a), Value::List(b)) | (Value::Tuple(a), Value::Tuple(b)) => {
            a.len() == b.len() && a.iter().zip(b.iter()).all(|(x, y)| equal(x, y))
        }
        (Value::Map(a), Value::Map(b)) => {
            a.0.len() == b.0.len() && a.0.iter().all(|(key, x)| b.get(key).is_some_and(|y| equal(x, y)))
        }
        (Value::Namespace(a), Value::Namespace(b)) => Rc::ptr_eq(a, b),
        (Value::Macro(a), Value::Macro(b)) => a == b,
        (Value::Long(a), Value::Long(b)) => a == b,
        _ => match (left.as_int(), right.as_int()) {
            (Some(a), Some(b)) => a == b,
            _ => matches!((left.as_float(), right.as_float()), (Some(a), Some(b)) if a == b),
        },
    }
}

/// Python's ordering; `operator` is only named in the error for values that have none.
pub(crate) fn order(left: &Value, right: &Value, operator: &str) -> Result<Option<Ordering>, Fault> {
    if let (Some(a), Some(b)) = (left.as_int(), right.as_int()) {
        return Ok(Some(a.cmp(&b)));
    }
    if let (Some(a), Some(b)) = (left.as_float(), right.as_float()) {
        return Ok(a.partial_cmp(&b));
    }
    match (left, right) {
        (Value::Text(a), Value::Text(b)) => Ok(Some(a.as_str().cmp(b.as_str()))),
        (Value::List(a), Value::List(b)) | (Value::Tuple(a), Value::Tuple(b)) => {
            for (x, y) in a.iter().zip(b.iter()) {
                if !equal(x, y) {
                    return order(x, y, operator);
                }
            }
            Ok(Some(a.len().cmp(&b.len())))
        }
        (Value::Undefined(what), _) | (_, Value::Undefined(what)) => Err(Fault::new(what.to_string())),
        _ => Err(Fault::new(format!(
            "'{operator}' not supported between instances of '{}' and '{}'",
            left.type_name(),
            right.type_name()
        ))),
    }
}
