//! Filters on lists, mappings and other iterables.

use std::cmp::Ordering;
use std::rc::Rc;

use minijinja::machinery::ast::BinOpKind;

use crate::text::template::arguments::Arguments;
use crate::text::template::fault::Fault;
use crate::text::template::print::to_text;
use crate::text::template::traced::{Traced, TracedBuilder};
use crate::text::template::value::{Value, equal, order};
use crate::text::template::{access, operators, strings, tests_of_values};

/// `separator.join(items)`; `strict` refuses items that are not strings, as `str.join` does.
pub(crate) fn join(items: &[Value], separator: &Traced, strict: bool) -> Result<Value, Fault> {
    let mut out = TracedBuilder::default();
    for (index, item) in items.iter().enumerate() {
        if strict && item.as_text().is_none() {
            let got = item.type_name();
            return Err(Fault::new(format!("sequence item {index}: expected str instance, {got} found")));
        }
        if index > 0 {
            out.push(separator);
        }
        out.push(&to_text(item)?);
    }
    Ok(Value::Text(out.finish()))
}

pub(super) fn join_filter(value: Value, arguments: &mut Arguments) -> Result<Value, Fault> {
    let separator = match arguments.take("d") {
        Some(separator) => to_text(&separator)?,
        None => Traced::default(),
    };
    let mut items = value.iterate()?;
    if let Some(path) = arguments.take("attribute") {
        items = Rc::new(items.iter().map(|item| by_path(item, &path)).collect::<Result<_, _>>()?);
    }
    join(&items, &separator, false)
}

pub(super) fn length(value: Value, _: &mut Arguments) -> Result<Value, Fault> {
    let count = match &value {
        Value::Text(text) => text.as_str().chars().count(),
        other if other.is_iterable() => other.iterate()?.len(),
        other => return Err(Fault::new(format!("object of type '{}' has no len()", other.type_name()))),
    };
    Ok(Value::Int(count as i128))
}

pub(super) fn list(value: Value, _: &mut Arguments) -> Result<Value, Fault> {
    value.iterate().map(Value::List)
}

pub(super) fn first(value: Value, _: &mut Arguments) -> Result<Value, Fault> {
    Ok(value.iterate()?.first().cloned().unwrap_or_else(|| nothing("first")))
}

pub(super) fn last(value: Value, _: &mut Arguments) -> Result<Value, Fault> {
    Ok(value.iterate()?.last().cloned().unwrap_or_else(|| nothing("last")))
}

fn nothing(which: &str) -> Value {
    Value::Undefined(format!("no {which} item, sequence was empty").into())
}

pub(super) fn reverse(value: Value, _: &mut Arguments) -> Result<Value, Fault> {
    if value.as_text().is_some() {
        let bounds = access::SliceBounds { start: None, stop: None, step: Some(-1) };
        return access::slice(&value, &bounds);
    }
    Ok(Value::list(value.iterate()?.iter().rev().cloned().collect()))
}

pub(super) fn items(value: Value, _: &mut Arguments) -> Result<Value, Fault> {
    match &value {
        Value::Undefined(_) => Ok(Value::list(Vec::new())),
        Value::Map(map) => {
            Ok(Value::list(map.0.iter().map(|(k, v)| Value::pair(k.clone(), v.clone())).collect()))
        }
        other => {
            Err(Fault::new(format!("can only get item pairs from a mapping, not {}", other.type_name())))
        }
    }
}

pub(super) fn dictsort(value: Value, arguments: &mut Arguments) -> Result<Value, Fault> {
    let case_sensitive = arguments.take("case_sensitive").is_some_and(|flag| flag.is_true());
    let by = arguments.take_text("dictsort", "by")?;
    let reverse = arguments.take("reverse").is_some_and(|flag| flag.is_true());
    let by_value = by.is_some_and(|by| by.as_str() == "value");
    let pairs = items(value, &mut Arguments::default())?.iterate()?;
    let index = Value::Int(i128::from(by_value));
    sorted(&pairs, case_sensitive, reverse, |pair| access::item(pair, &index)).map(Value::list)
}

pub(super) fn sort(value: Value, arguments: &mut Arguments) -> Result<Value, Fault> {
    let reverse = arguments.take("reverse").is_some_and(|flag| flag.is_true());
    let case_sensitive = arguments.take("case_sensitive").is_some_and(|flag| flag.is_true());
    let path = arguments.take("attribute");
    let key = |item: &Value| path.as_ref().map_or_else(|| Ok(item.clone()), |path| by_path(item, path));
    sorted(&value.iterate()?, case_sensitive, reverse, key).map(Value::list)
}

fn sorted(
    items: &[Value],
    case_sensitive: bool,
    reverse: bool,
    key: impl Fn(&Value) -> Result<Value, Fault>,
) -> Result<Vec<Value>, Fault> {
    let mut keyed = Vec::with_capacity(items.len());
    for item in items {
        keyed.push((fold_case(key(item)?, case_sensitive), item.clone()));
    }
    let mut fault = None;
    keyed.sort_by(|(a, _), (b, _)| {
        let ordering = order(a, b, "<").unwrap_or_else(|error| {
            fault.get_or_insert(error);
            None
        });
        let ordering = ordering.unwrap_or(Ordering::Equal);
        if reverse { ordering.reverse() } else { ordering }
    });
    match fault {
        Some(fault) => Err(fault),
        None => Ok(keyed.into_iter().map(|(_, item)| item).collect()),
    }
}

fn fold_case(key: Value, case_sensitive: bool) -> Value {
    match key {
        Value::Text(text) if !case_sensitive => Value::Text(strings::lower(&text)),
        other => other,
    }
}

pub(super) fn unique(value: Value, arguments: &mut Arguments) -> Result<Value, Fault> {
    let case_sensitive = arguments.take("case_sensitive").is_some_and(|flag| flag.is_true());
    let path = arguments.take("attribute");
    let mut seen: Vec<Value> = Vec::new();
    let mut kept = Vec::new();
    for item in value.iterate()?.iter() {
        let key = path.as_ref().map_or_else(|| Ok(item.clone()), |path| by_path(item, path))?;
        let key = fold_case(key, case_sensitive);
        if !seen.iter().any(|other| equal(other, &key)) {
            seen.push(key);
            kept.push(item.clone());
        }
    }
    Ok(Value::list(kept))
}

pub(super) fn min(value: Value, arguments: &mut Arguments) -> Result<Value, Fault> {
    extreme(value, arguments, Ordering::Less)
}

pub(super) fn max(value: Value, arguments: &mut Arguments) -> Result<Value, Fault> {
    extreme(value, arguments, Ordering::Greater)
}

fn extreme(value: Value, arguments: &mut Arguments, wanted: Ordering) -> Result<Value, Fault> {
    let case_sensitive = arguments.take("case_sensitive").is_some_and(|flag| flag.is_true());
    let path = arguments.take("attribute");
    let mut best: Option<(Value, Value)> = None;
    for item in value.iterate()?.iter() {
        let key = path.as_ref().map_or_else(|| Ok(item.clone()), |path| by_path(item, path))?;
        let key = fold_case(key, case_sensitive);
        let better = match &best {
            Some((best_key, _)) => order(&key, best_key, "<")? == Some(wanted),
            None => true,
        };
        if better {
            best = Some((key, item.clone()));
        }
    }
    Ok(best
        .map_or_else(|| Value::Undefined("no aggregated item, sequence was empty".into()), |(_, item)| item))
}

pub(super) fn sum(value: Value, arguments: &mut Arguments) -> Result<Value, Fault> {
    let path = arguments.take("attribute");
    let mut total = arguments.take("start").unwrap_or(Value::Int(0));
    for item in value.iterate()?.iter() {
        let item = path.as_ref().map_or_else(|| Ok(item.clone()), |path| by_path(item, path))?;
        total = operators::arithmetic(BinOpKind::Add, &total, &item)?;
    }
    Ok(total)
}

pub(super) fn map(value: Value, arguments: &mut Arguments) -> Result<Value, Fault> {
    let items = value.iterate()?;
    if let Some(path) = arguments.take_named("attribute") {
        let default = arguments.take_named("default");
        let pick = |item: &Value| match (by_path(item, &path)?, &default) {
            (Value::Undefined(_), Some(default)) => Ok(default.clone()),
            (found, _) => Ok(found),
        };
        return items.iter().map(pick).collect::<Result<_, _>>().map(Value::list);
    }
    let name = arguments.need_text("map", "filter")?;
    let rest = std::mem::take(arguments);
    let apply = |item: &Value| super::apply(name.as_str(), item.clone(), rest.clone());
    items.iter().map(apply).collect::<Result<_, _>>().map(Value::list)
}

pub(super) fn select(value: Value, arguments: &mut Arguments) -> Result<Value, Fault> {
    filtered(value, arguments, false, true)
}

pub(super) fn reject(value: Value, arguments: &mut Arguments) -> Result<Value, Fault> {
    filtered(value, arguments, false, false)
}

pub(super) fn selectattr(value: Value, arguments: &mut Arguments) -> Result<Value, Fault> {
    filtered(value, arguments, true, true)
}

pub(super) fn rejectattr(value: Value, arguments: &mut Arguments) -> Result<Value, Fault> {
    filtered(value, arguments, true, false)
}

fn filtered(value: Value, arguments: &mut Arguments, by_attribute: bool, keep: bool) -> Result<Value, Fault> {
    let path = if by_attribute { Some(arguments.need("selectattr", "attribute")?) } else { None };
    let test = arguments.take_text("select", "test")?;
    let rest = std::mem::take(arguments);
    let mut kept = Vec::new();
    for item in value.iterate()?.iter() {
        let subject = path.as_ref().map_or_else(|| Ok(item.clone()), |path| by_path(item, path))?;
        let holds = match &test {
            Some(name) => tests_of_values::check(name.as_str(), &subject, rest.clone())?,
            None => subject.is_true(),
        };
        if holds == keep {
            kept.push(item.clone());
        }
    }
    Ok(Value::list(kept))
}

/// Pairs `(key, items)` in the order of the keys.
pub(super) fn groupby(value: Value, arguments: &mut Arguments) -> Result<Value, Fault> {
    let path = arguments.need("groupby", "attribute")?;
    let default = arguments.take("default");
    let key = |item: &Value| match (by_path(item, &path)?, &default) {
        (Value::Undefined(_), Some(default)) => Ok(default.clone()),
        (found, _) => Ok(found),
    };
    let mut groups: Vec<(Value, Vec<Value>)> = Vec::new();
    for item in sorted(&value.iterate()?, false, false, key)? {
        let item_key = key(&item)?;
        match groups.last_mut() {
            Some((last, members))
                if equal(&fold_case(last.clone(), false), &fold_case(item_key.clone(), false)) =>
            {
                members.push(item);
            }
            _ => groups.push((item_key, vec![item])),
        }
    }
    Ok(Value::list(groups.into_iter().map(|(key, members)| Value::pair(key, Value::list(members))).collect()))
}

/// `attribute="a.b.0"`: attributes and positions separated by dots.
fn by_path(item: &Value, path: &Value) -> Result<Value, Fault> {
    let Value::Text(path) = path else {
        return access::item(item, path);
    };
    path.as_str().split('.').try_fold(item.clone(), |value, part| {
        let key = match part.parse::<i128>() {
            Ok(index) => Value::Int(index),
            Err(_) => Value::user(part),
        };
        access::item(&value, &key)
    })
}
