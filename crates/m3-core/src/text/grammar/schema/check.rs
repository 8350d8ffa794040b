//! Does a value fit? Asked of the values that `enum` and `const` list, against the keywords beside them.

use serde_json::Value;

use super::except::equal;
use super::read::{Reader, decimal_of, error};
use super::{Case, Number, Text};
use crate::text::grammar::GrammarError;

const MAX_DEPTH: usize = 64;

impl Reader<'_> {
    /// Whether the case allows the value; `depth` values are around it.
    pub(super) fn fits(&mut self, case: &Case, value: &Value, depth: usize) -> Result<bool, GrammarError> {
        if depth > MAX_DEPTH {
            return Err(error("", format!("a listed value nests deeper than {MAX_DEPTH}")));
        }
        if let Some(values) = &case.values {
            return Ok(values.contains(value));
        }
        if case.except.iter().any(|except| equal(&except.value, value)) {
            return Ok(false);
        }
        Ok(match value {
            Value::Null => case.null,
            Value::Bool(_) => case.boolean,
            Value::Number(number) => case.number.as_ref().is_some_and(|limits| within(limits, number)),
            Value::String(text) => case.text.as_ref().is_some_and(|limits| allowed(limits, text)),
            Value::Array(items) => self.array_fits(case, items, depth)?,
            Value::Object(_) => self.object_fits(case, value, depth)?,
        })
    }

    fn id_fits(&mut self, id: usize, value: &Value, depth: usize) -> Result<bool, GrammarError> {
        for case in self.cases(id)? {
            if self.fits(&case, value, depth + 1)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn array_fits(&mut self, case: &Case, items: &[Value], depth: usize) -> Result<bool, GrammarError> {
        let Some(array) = &case.array else { return Ok(false) };
        if items.len() < array.min || array.max.is_some_and(|max| items.len() > max) {
            return Ok(false);
        }
        let twice = |at: usize| items[..at].iter().any(|item| equal(item, &items[at]));
        if array.unique && (0..items.len()).any(twice) {
            return Ok(false);
        }
        for (index, item) in items.iter().enumerate() {
            let Some(id) = array.prefix.get(index).copied().or(array.items) else { return Ok(false) };
            if Some(id) != self.any && !self.id_fits(id, item, depth)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn object_fits(&mut self, case: &Case, value: &Value, depth: usize) -> Result<bool, GrammarError> {
        let (Some(object), Some(map)) = (case.object.clone(), value.as_object()) else { return Ok(false) };
        let counted = map.len() >= object.min && object.max.is_none_or(|max| map.len() <= max);
        if !counted || !object.required.iter().all(|key| map.contains_key(key)) {
            return Ok(false);
        }
        for (key, inner) in map {
            let Some(id) = self.value_of(&object, key)? else { return Ok(false) };
            if Some(id) != self.any && !self.id_fits(id, inner, depth)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn within(limits: &Number, number: &serde_json::Number) -> bool {
    let Some(value) = decimal_of(number) else { return false };
    let above = limits.min.as_ref().is_none_or(|bound| match bound.exclusive {
        true => value > bound.value,
        false => value >= bound.value,
    });
    let below = limits.max.as_ref().is_none_or(|bound| match bound.exclusive {
        true => value < bound.value,
        false => value <= bound.value,
    });
    let multiple = limits.multiple.is_none_or(|of| {
        number.as_i64().is_some_and(|whole| whole % i64::from(of) == 0)
            || number.as_f64().is_some_and(|value| value % f64::from(of) == 0.0)
    });
    above && below && multiple && (!limits.integer || value.is_whole())
}

/// Whether a string is within its limits.
pub(in crate::text::grammar) fn allowed(limits: &Text, text: &str) -> bool {
    let length = text.chars().count();
    let fits = |pattern: &String| {
        regex::Regex::new(&format!("^(?:{pattern})$")).is_ok_and(|regex| regex.is_match(text))
    };
    length >= limits.min && limits.max.is_none_or(|max| length <= max) && limits.patterns.iter().all(fits)
}
