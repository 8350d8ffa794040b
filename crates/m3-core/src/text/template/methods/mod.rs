//! Methods of strings, mappings, lists and `loop`. Nothing here changes an object: the reference renderer
//! runs templates in a sandbox where `append`, `update` and the like are refused, and so does this one.

mod characters;
mod text;

use super::arguments::Arguments;
use super::fault::Fault;
use super::value::{Dict, LoopState, Value, equal};

const DICT: [&str; 11] =
    ["clear", "copy", "fromkeys", "get", "items", "keys", "pop", "popitem", "setdefault", "update", "values"];
const LIST: [&str; 11] =
    ["append", "clear", "copy", "count", "extend", "index", "insert", "pop", "remove", "reverse", "sort"];

/// Whether Python finds a method `name` on `value`, whatever items it has.
pub(crate) fn exists(value: &Value, name: &str) -> bool {
    match value {
        Value::Text(_) => text::NAMES.contains(&name),
        Value::Map(_) => DICT.contains(&name),
        Value::List(_) => LIST.contains(&name),
        Value::Tuple(_) => matches!(name, "count" | "index"),
        Value::Loop(_) => matches!(name, "cycle" | "changed"),
        _ => false,
    }
}

/// Calls `value.name(...)`.
pub(crate) fn call(value: &Value, name: &str, arguments: Arguments) -> Result<Value, Fault> {
    match value {
        Value::Text(string) => text::call(string, name, arguments),
        Value::Map(map) => dict_method(map, name, arguments),
        Value::List(items) | Value::Tuple(items) => list_method(items, name, arguments),
        Value::Loop(state) => loop_method(state, name, arguments),
        other => Err(Fault::new(format!("'{}' object has no method '{name}'", other.type_name()))),
    }
}

fn dict_method(map: &Dict, name: &str, mut arguments: Arguments) -> Result<Value, Fault> {
    let result = match name {
        "items" => Value::list(map.0.iter().map(|(k, v)| Value::pair(k.clone(), v.clone())).collect()),
        "keys" => Value::list(map.0.iter().map(|(key, _)| key.clone()).collect()),
        "values" => Value::list(map.0.iter().map(|(_, value)| value.clone()).collect()),
        "get" => {
            let key = arguments.need("get", "key")?;
            let default = arguments.take("default").unwrap_or(Value::None);
            map.get(&key).cloned().unwrap_or(default)
        }
        "copy" => Value::Map(std::rc::Rc::new(map.clone())),
        _ => return Err(Fault::new(format!("access to '{name}' of a dict is unsafe in a chat template"))),
    };
    arguments.finish(name)?;
    Ok(result)
}

fn list_method(items: &[Value], name: &str, mut arguments: Arguments) -> Result<Value, Fault> {
    let result = match name {
        "count" => {
            let wanted = arguments.need("count", "value")?;
            Value::Int(items.iter().filter(|item| equal(item, &wanted)).count() as i128)
        }
        "index" => {
            let wanted = arguments.need("index", "value")?;
            match items.iter().position(|item| equal(item, &wanted)) {
                Some(at) => Value::Int(at as i128),
                None => return Err(Fault::new("the value is not in the list")),
            }
        }
        "copy" => Value::list(items.to_vec()),
        _ => return Err(Fault::new(format!("access to '{name}' of a list is unsafe in a chat template"))),
    };
    arguments.finish(name)?;
    Ok(result)
}

fn loop_method(state: &LoopState, name: &str, arguments: Arguments) -> Result<Value, Fault> {
    if !arguments.named.is_empty() {
        return Err(Fault::new(format!("loop.{name}() takes no keyword arguments")));
    }
    let values = arguments.positional;
    if name == "cycle" {
        if values.is_empty() {
            return Err(Fault::new("loop.cycle() needs at least one value"));
        }
        return Ok(values[state.index0 % values.len()].clone());
    }
    let mut last = state.changed.borrow_mut();
    let same = last.as_ref().is_some_and(|last: &Vec<Value>| {
        last.len() == values.len() && last.iter().zip(&values).all(|(a, b)| equal(a, b))
    });
    *last = Some(values);
    Ok(Value::Bool(!same))
}
