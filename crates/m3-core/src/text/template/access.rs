//! Attributes, items and slices with Python's and Jinja's rules: `a.b` tries the attribute first (so
//! `d.items` is the method even when the data has a key of that name), `a['b']` tries the item first.

use std::rc::Rc;

use super::fault::Fault;
use super::methods;
use super::print;
use super::value::{LoopState, Value, characters};

/// `value.name`.
pub(crate) fn attribute(value: &Value, name: &str) -> Result<Value, Fault> {
    if let Value::Undefined(what) = value {
        return Err(Fault::new(what.to_string()));
    }
    if methods::exists(value, name) {
        return Ok(Value::Method(Rc::new((value.clone(), name.to_owned()))));
    }
    let found = match value {
        Value::Map(map) => map.get_name(name).cloned(),
        Value::Namespace(fields) => fields.borrow().get_name(name).cloned(),
        Value::Loop(state) => loop_attribute(state, name),
        _ => None,
    };
    Ok(found.unwrap_or_else(|| missing(value, name)))
}

/// `value[key]`.
pub(crate) fn item(value: &Value, key: &Value) -> Result<Value, Fault> {
    let found = match (value, key) {
        (Value::Undefined(what), _) => return Err(Fault::new(what.to_string())),
        (Value::Map(map), _) => map.get(key).cloned(),
        (Value::List(items) | Value::Tuple(items), _) => match key.as_int() {
            Some(index) => position(index, items.len()).map(|at| items[at].clone()),
            None => None,
        },
        (Value::Text(text), _) => match key.as_int() {
            Some(index) => nth_character(text, index),
            None => None,
        },
        _ => None,
    };
    match (found, key) {
        (Some(found), _) => Ok(found),
        (None, Value::Text(name)) => attribute(value, name.as_str()),
        (None, _) => Ok(missing(value, print::to_text(key)?.as_str())),
    }
}

fn missing(value: &Value, name: &str) -> Value {
    let type_name = match value {
        Value::None => "None".to_owned(),
        other => format!("'{} object'", other.type_name()),
    };
    Value::Undefined(format!("{type_name} has no attribute '{name}'").into())
}

fn nth_character(text: &super::traced::Traced, index: i128) -> Option<Value> {
    let count = if index < 0 { text.as_str().chars().count() } else { usize::MAX };
    let at = position(index, count)?;
    let (start, character) = text.as_str().char_indices().nth(at)?;
    Some(Value::Text(text.slice(start..start + character.len_utf8())))
}

/// A Python index, negative ones from the end; `None` outside.
fn position(index: i128, length: usize) -> Option<usize> {
    let index = if index < 0 { index + length as i128 } else { index };
    usize::try_from(index).ok().filter(|at| *at < length)
}

fn loop_attribute(state: &LoopState, name: &str) -> Option<Value> {
    let number = |value: usize| Some(Value::Int(value as i128));
    match name {
        "index" => number(state.index0 + 1),
        "index0" => number(state.index0),
        "revindex" => number(state.length - state.index0),
        "revindex0" => number(state.length - state.index0 - 1),
        "first" => Some(Value::Bool(state.index0 == 0)),
        "last" => Some(Value::Bool(state.index0 + 1 == state.length)),
        "length" => number(state.length),
        // Only recursive loops, which this engine refuses, go deeper than 1.
        "depth" => number(1),
        "depth0" => number(0),
        "previtem" => Some(state.previous.clone()),
        "nextitem" => Some(state.next.clone()),
        _ => None,
    }
}

/// The three optional numbers of `value[start:stop:step]`.
pub(crate) struct SliceBounds {
    pub(crate) start: Option<i128>,
    pub(crate) stop: Option<i128>,
    pub(crate) step: Option<i128>,
}

/// `value[start:stop:step]` of a list, tuple or string.
pub(crate) fn slice(value: &Value, bounds: &SliceBounds) -> Result<Value, Fault> {
    match value {
        Value::List(items) => Ok(Value::list(pick(items, bounds)?)),
        Value::Tuple(items) => Ok(Value::Tuple(Rc::new(pick(items, bounds)?))),
        Value::Text(text) => {
            let mut builder = super::traced::TracedBuilder::default();
            for character in pick(&characters(text), bounds)? {
                print::write(&character, &mut builder)?;
            }
            Ok(Value::Text(builder.finish()))
        }
        Value::Undefined(what) => Err(Fault::new(what.to_string())),
        other => Err(Fault::new(format!("'{}' object cannot be sliced", other.type_name()))),
    }
}

fn pick(items: &[Value], bounds: &SliceBounds) -> Result<Vec<Value>, Fault> {
    let step = bounds.step.unwrap_or(1);
    if step == 0 {
        return Err(Fault::new("slice step cannot be zero"));
    }
    let length = items.len() as i128;
    let (low, high) = if step > 0 { (0, length) } else { (-1, length - 1) };
    let clamp = |index: i128| (if index < 0 { index.saturating_add(length) } else { index }).clamp(low, high);
    let start = bounds.start.map_or(if step > 0 { low } else { high }, clamp);
    let stop = bounds.stop.map_or(if step > 0 { high } else { low }, clamp);
    let mut picked = Vec::new();
    let mut at = start;
    while (step > 0 && at < stop) || (step < 0 && at > stop) {
        picked.push(items[at as usize].clone());
        at = at.saturating_add(step);
    }
    Ok(picked)
}
