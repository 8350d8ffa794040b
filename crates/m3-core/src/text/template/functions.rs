//! The functions every chat template may call, as the reference renderer offers them.

use std::cell::RefCell;
use std::rc::Rc;

use super::arguments::Arguments;
use super::clock;
use super::fault::Fault;
use super::print;
use super::traced::Traced;
use super::value::{Dict, Value};

/// Longest `range()`, in items.
const MAX_RANGE: usize = 1_000_000;

/// A global function.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Function {
    RaiseException,
    StrftimeNow,
    Namespace,
    Range,
    Dict,
}

impl Function {
    pub(crate) const ALL: &'static [(&'static str, Function)] = &[
        ("raise_exception", Function::RaiseException),
        ("strftime_now", Function::StrftimeNow),
        ("namespace", Function::Namespace),
        ("range", Function::Range),
        ("dict", Function::Dict),
    ];

    pub(crate) fn call(self, mut arguments: Arguments) -> Result<Value, Fault> {
        match self {
            Function::RaiseException => {
                let message = arguments.need("raise_exception", "message")?;
                arguments.finish("raise_exception")?;
                Err(Fault::Raised(print::to_text(&message)?.as_str().to_owned()))
            }
            Function::StrftimeNow => {
                let pattern = arguments.need_text("strftime_now", "format")?;
                arguments.finish("strftime_now")?;
                Ok(Value::Text(Traced::template(&clock::now(pattern.as_str())?)))
            }
            Function::Namespace => Ok(Value::Namespace(Rc::new(RefCell::new(named_dict(arguments)?)))),
            Function::Dict => Ok(Value::Map(Rc::new(named_dict(arguments)?))),
            Function::Range => range(&arguments),
        }
    }
}

/// `dict(mapping, name=value, ...)`.
fn named_dict(mut arguments: Arguments) -> Result<Dict, Fault> {
    let mut dict = match arguments.positional.pop() {
        None => Dict::default(),
        Some(Value::Map(map)) if arguments.positional.is_empty() => (*map).clone(),
        Some(other) => {
            return Err(Fault::new(format!(
                "dict() and namespace() take one dict, not {}",
                other.type_name()
            )));
        }
    };
    for (name, value) in arguments.named {
        dict.insert(Value::user(&name), value);
    }
    Ok(dict)
}

fn range(arguments: &Arguments) -> Result<Value, Fault> {
    let mut numbers = Vec::new();
    for value in &arguments.positional {
        numbers.push(
            value
                .as_int()
                .ok_or_else(|| Fault::new(format!("range() takes integers, not {}", value.type_name())))?,
        );
    }
    let (start, stop, step) = match numbers[..] {
        [stop] => (0, stop, 1),
        [start, stop] => (start, stop, 1),
        [start, stop, step] if step != 0 => (start, stop, step),
        _ => return Err(Fault::new("range() takes one to three integers, the step not zero")),
    };
    let mut items = Vec::new();
    let mut at = start;
    while (step > 0 && at < stop) || (step < 0 && at > stop) {
        if items.len() == MAX_RANGE {
            return Err(Fault::new(format!("range() is over the limit of {MAX_RANGE} items")));
        }
        items.push(Value::Int(at));
        at = at.saturating_add(step);
    }
    Ok(Value::list(items))
}
