//! Two schemas that must both hold, as one. Properties that both name are combined when they are first looked at, so
//! recursive schemas combine as well.

use indexmap::IndexMap;
use serde_json::Value;

use super::read::{MAX_CASES, Node, Reader, error};
use super::{Array, Bound, Case, Id, Number, Object, Text};
use crate::text::grammar::GrammarError;

/// The stronger of two lower limits.
pub(super) fn higher(left: Bound, right: Bound) -> Bound {
    let first = (&left.value, left.exclusive) >= (&right.value, right.exclusive);
    if first { left } else { right }
}

/// The stronger of two upper limits.
pub(super) fn lower(left: Bound, right: Bound) -> Bound {
    let first = (&left.value, !left.exclusive) <= (&right.value, !right.exclusive);
    if first { left } else { right }
}

fn both<T>(left: Option<T>, right: Option<T>, join: impl FnOnce(T, T) -> T) -> Option<T> {
    match (left, right) {
        (Some(left), Some(right)) => Some(join(left, right)),
        (left, right) => left.or(right),
    }
}

impl Reader<'_> {
    /// Every combination of a case of each that anything fits.
    pub(super) fn meet_all(&mut self, left: Vec<Case>, right: Vec<Case>) -> Result<Vec<Case>, GrammarError> {
        if left.len().saturating_mul(right.len()) > MAX_CASES {
            return Err(error("", format!("the schema combines to more than {MAX_CASES} alternatives")));
        }
        let mut all = Vec::new();
        for one in &left {
            for other in &right {
                let case = self.meet(one.clone(), other.clone())?;
                all.extend(Some(case).filter(|case| !case.is_empty()));
            }
        }
        Ok(all)
    }

    fn meet(&mut self, left: Case, right: Case) -> Result<Case, GrammarError> {
        let listed = match (&left.values, &right.values) {
            (Some(values), Some(others)) => {
                Some(values.iter().filter(|value| others.contains(value)).cloned().collect())
            }
            (Some(values), None) => Some(self.fitting(&right, values.clone())?),
            (None, Some(values)) => Some(self.fitting(&left, values.clone())?),
            (None, None) => None,
        };
        let except = [left.except, right.except].concat();
        if let Some(values) = listed {
            let mut case = Case { values: Some(values), except, ..Case::default() };
            case.settle_except();
            return Ok(case);
        }
        let mut case = Case {
            null: left.null && right.null,
            boolean: left.boolean && right.boolean,
            number: meet_numbers(left.number, right.number)?,
            text: left.text.zip(right.text).and_then(|(left, right)| meet_texts(left, right)),
            array: match left.array.zip(right.array) {
                Some((left, right)) => self.meet_arrays(&left, &right)?,
                None => None,
            },
            object: match left.object.zip(right.object) {
                Some((left, right)) => self.meet_objects(&left, &right)?,
                None => None,
            },
            values: None,
            except,
        };
        case.settle_except();
        Ok(case)
    }

    /// The schema that both hold.
    fn meet_ids(&mut self, left: Id, right: Id) -> Result<Id, GrammarError> {
        if left == right || Some(right) == self.any {
            return Ok(left);
        }
        if Some(left) == self.any {
            return Ok(right);
        }
        let pair = (left.min(right), left.max(right));
        if let Some(id) = self.meets.get(&pair) {
            return Ok(*id);
        }
        let id = self.push(Node::Meet(left, right))?;
        self.meets.insert(pair, id);
        Ok(id)
    }

    fn meet_options(&mut self, left: Option<Id>, right: Option<Id>) -> Result<Option<Id>, GrammarError> {
        left.zip(right).map(|(left, right)| self.meet_ids(left, right)).transpose()
    }

    fn meet_arrays(&mut self, left: &Array, right: &Array) -> Result<Option<Array>, GrammarError> {
        let at = |array: &Array, index: usize| array.prefix.get(index).copied().or(array.items);
        let mut prefix = Vec::new();
        let mut max = both(left.max, right.max, usize::min);
        for index in 0..left.prefix.len().max(right.prefix.len()) {
            match self.meet_options(at(left, index), at(right, index))? {
                Some(id) => prefix.push(id),
                None => {
                    max = both(max, Some(index), usize::min);
                    break;
                }
            }
        }
        let items = self.meet_options(left.items, right.items)?;
        let min = left.min.max(right.min);
        let unique = left.unique || right.unique;
        let array = Array { prefix, items, min, max, unique };
        Ok(Some(array).filter(|array| array.max.is_none_or(|max| max >= min)))
    }

    fn meet_objects(&mut self, left: &Object, right: &Object) -> Result<Option<Object>, GrammarError> {
        let mut properties = IndexMap::new();
        for key in left.properties.keys().chain(right.properties.keys()) {
            if properties.contains_key(key) {
                continue;
            }
            let (one, other) = (self.value_of(left, key)?, self.value_of(right, key)?);
            let id = match self.meet_options(one, other)? {
                Some(id) => id,
                None => self.never()?,
            };
            properties.insert(key.clone(), id);
        }
        let mut patterns: Vec<(String, Id)> = Vec::new();
        for (object, beside) in [(left, right), (right, left)] {
            for (pattern, id) in &object.patterns {
                if patterns.iter().any(|(known, _)| known == pattern) {
                    continue;
                }
                let same = beside.patterns.iter().find(|(known, _)| known == pattern).map(|(_, id)| *id);
                // A key that fits patterns of both is not written, so the other's rule for unnamed keys is enough.
                let id = match self.meet_options(Some(*id), same.or(beside.additional))? {
                    Some(id) => id,
                    None => self.never()?,
                };
                patterns.push((pattern.clone(), id));
            }
        }
        let additional = self.meet_options(left.additional, right.additional)?;
        self.settle(Object {
            properties,
            required: left.required.union(&right.required).cloned().collect(),
            patterns,
            additional,
            open: (left.open || left.properties.is_empty())
                && (right.open || right.properties.is_empty())
                && (left.open || right.open),
            min: left.min.max(right.min),
            max: both(left.max, right.max, usize::min),
        })
    }

    /// What an object says of a key: its property, patterns or the rule for other keys; `None` = it must be absent.
    pub(super) fn value_of(&mut self, object: &Object, key: &str) -> Result<Option<Id>, GrammarError> {
        let mut id = object.properties.get(key).copied();
        for (pattern, value) in &object.patterns {
            // Patterns were compiled when they were read.
            let fits = regex::Regex::new(&format!("^(?:{pattern})$")).is_ok_and(|regex| regex.is_match(key));
            if fits {
                id = Some(match id {
                    Some(id) => self.meet_ids(id, *value)?,
                    None => *value,
                });
            }
        }
        Ok(id.or(object.additional))
    }

    /// Named keys take on what patterns say of them, required keys are named, and what cannot be is dropped.
    pub(super) fn settle(&mut self, mut object: Object) -> Result<Option<Object>, GrammarError> {
        let keys: Vec<String> = object.properties.keys().chain(&object.required).cloned().collect();
        for key in keys {
            match self.value_of(&object, &key)? {
                Some(id) => {
                    object.properties.insert(key, id);
                }
                None => return Ok(None),
            }
        }
        let most = object.max.unwrap_or(usize::MAX);
        let fits = object.min <= most && object.required.len() <= most;
        Ok(fits.then_some(object))
    }

    /// The schema that nothing fits.
    pub(super) fn never(&mut self) -> Result<Id, GrammarError> {
        if let Some(id) = self.never {
            return Ok(id);
        }
        let id = self.push(Node::Done(Vec::new()))?;
        self.never = Some(id);
        Ok(id)
    }

    /// Those of the values that the case allows.
    pub(super) fn fitting(&mut self, case: &Case, values: Vec<Value>) -> Result<Vec<Value>, GrammarError> {
        let mut fitting = Vec::new();
        for value in values {
            if self.fits(case, &value, 0)? {
                fitting.push(value);
            }
        }
        Ok(fitting)
    }
}

fn meet_numbers(left: Option<Number>, right: Option<Number>) -> Result<Option<Number>, GrammarError> {
    let Some((left, right)) = left.zip(right) else { return Ok(None) };
    let multiple = match (left.multiple, right.multiple) {
        (Some(one), Some(other)) => Some(common_multiple(one, other)?),
        (one, other) => one.or(other),
    };
    let number = Number {
        integer: left.integer || right.integer,
        min: both(left.min, right.min, higher),
        max: both(left.max, right.max, lower),
        multiple,
    };
    Ok(Some(number).filter(|number| !super::number::is_void(number)))
}

fn common_multiple(one: u32, other: u32) -> Result<u32, GrammarError> {
    let (mut divisor, mut rest) = (one, other);
    while rest > 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    let product = u64::from(one / divisor) * u64::from(other);
    let fits = u32::try_from(product).ok().filter(|product| *product < 1_000_000_000);
    fits.ok_or_else(|| {
        error("", format!("multipleOf {one} and {other} have no common multiple below 1000000000"))
    })
}

fn meet_texts(left: Text, right: Text) -> Option<Text> {
    let mut patterns = left.patterns;
    patterns.extend(right.patterns);
    patterns.sort();
    patterns.dedup();
    let text = Text { min: left.min.max(right.min), max: both(left.max, right.max, usize::min), patterns };
    Some(text).filter(|text| text.max.is_none_or(|max| max >= text.min))
}
