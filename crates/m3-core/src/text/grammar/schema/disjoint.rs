//! `oneOf` allows what exactly one branch allows. What is written from one branch must therefore never fit another;
//! where that cannot be shown the schema is refused, because writing from any of them would be a guess.

use serde_json::Value;

use super::{Bound, Case, Id, Object, Schemas};
use crate::text::grammar::GrammarError;

/// How deep properties are compared.
const MAX_DEPTH: usize = 4;

/// The branches of one `oneOf`.
pub(super) struct Exclusive {
    pub(super) at: String,
    pub(super) branches: Vec<Vec<Case>>,
}

impl Exclusive {
    /// Its place and what is wrong when two branches may fit one value.
    pub(super) fn overlap(&self, schemas: &Schemas) -> Option<(String, GrammarError)> {
        for (one, branch) in self.branches.iter().enumerate() {
            for (other, beside) in self.branches.iter().enumerate().filter(|(other, _)| *other != one) {
                let apart = |case: &Case| beside.iter().all(|beside| apart(schemas, case, beside, 0));
                if !branch.iter().all(apart) {
                    let reason = format!(
                        "branches {} and {} may both fit one value; give each a property with a const of its own, \
                         or use anyOf",
                        one.min(other),
                        one.max(other)
                    );
                    return Some((self.at.clone(), GrammarError::at(&self.at, reason)));
                }
            }
        }
        None
    }
}

/// True when nothing written from `case` fits `beside`.
fn apart(schemas: &Schemas, case: &Case, beside: &Case, depth: usize) -> bool {
    match (&case.values, &beside.values) {
        (Some(values), Some(others)) => return values.iter().all(|value| !others.contains(value)),
        (Some(values), None) => return values.iter().all(|value| !has_type(beside, value)),
        (None, Some(others)) => return others.iter().all(|value| !has_type(case, value)),
        (None, None) => {}
    }
    let numbers = match (&case.number, &beside.number) {
        (Some(one), Some(other)) => above(&one.min, &other.max) || above(&other.min, &one.max),
        _ => true,
    };
    let texts = case.text.is_none() || beside.text.is_none();
    let arrays = match (&case.array, &beside.array) {
        (Some(one), Some(other)) => {
            one.max.is_some_and(|max| max < other.min) || other.max.is_some_and(|max| max < one.min)
        }
        _ => true,
    };
    let objects = match (&case.object, &beside.object) {
        (Some(one), Some(other)) => objects_apart(schemas, one, other, depth),
        _ => true,
    };
    let words = (case.null && beside.null) || (case.boolean && beside.boolean);
    !words && numbers && texts && arrays && objects
}

fn above(low: &Option<Bound>, high: &Option<Bound>) -> bool {
    let (Some(low), Some(high)) = (low, high) else { return false };
    low.value > high.value || (low.value == high.value && (low.exclusive || high.exclusive))
}

fn objects_apart(schemas: &Schemas, one: &Object, other: &Object, depth: usize) -> bool {
    // Keys outside the named ones are only written where the schema is open.
    let writes = |key: &String| one.properties.contains_key(key) || one.open || !one.patterns.is_empty();
    if other.required.iter().any(|key| !writes(key)) {
        return true;
    }
    one.required.iter().any(|key| {
        let mine = one.properties.get(key);
        match (mine, other.properties.get(key)) {
            (Some(_), None) => other.additional.is_none() && other.patterns.is_empty(),
            (Some(mine), Some(theirs)) => depth < MAX_DEPTH && ids_apart(schemas, *mine, *theirs, depth + 1),
            (None, _) => false,
        }
    })
}

fn ids_apart(schemas: &Schemas, one: Id, other: Id, depth: usize) -> bool {
    let beside = schemas.cases(other);
    schemas.cases(one).iter().all(|case| beside.iter().all(|other| apart(schemas, case, other, depth)))
}

fn has_type(case: &Case, value: &Value) -> bool {
    match value {
        Value::Null => case.null,
        Value::Bool(_) => case.boolean,
        Value::Number(_) => case.number.is_some(),
        Value::String(text) => case.text.as_ref().is_some_and(|limits| super::check::allowed(limits, text)),
        Value::Array(_) => case.array.is_some(),
        Value::Object(_) => case.object.is_some(),
    }
}
