//! A JSON object that is being read: which keys were looked at, what was wrong, what nobody knew.
//!
//! Reading never stops at the first fault: a getter notes the problem and returns `None` or a stand-in, and the
//! caller refuses at the end when the notes hold any problem. No model knowledge here.

use std::cell::RefCell;
use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::error::ConfigProblem;

/// Largest width, so that no sum over a whole tensor table comes near 2^64 bytes.
const LARGEST_WIDTH: usize = 1 << 18;
/// Largest number of heads, and of values in a head.
const LARGEST_HEAD: usize = 1 << 12;

/// What reading has found so far, shared by all sections of a file.
#[derive(Default)]
pub(super) struct Notes {
    pub(super) problems: RefCell<Vec<ConfigProblem>>,
    pub(super) unknown_keys: RefCell<Vec<String>>,
}

impl Notes {
    pub(super) fn problem(&self, key: impl Into<String>, value: impl ToString, supported: impl ToString) {
        let problem =
            ConfigProblem { key: key.into(), value: value.to_string(), supported: supported.to_string() };
        let mut problems = self.problems.borrow_mut();
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    }

    pub(super) fn missing(&self, keys: &str, supported: impl ToString) {
        self.problem(keys, "missing", supported);
    }
}

/// An object of the file; an absent one reads as empty.
pub(super) struct Section<'a> {
    path: String,
    map: Option<&'a Map<String, Value>>,
    seen: RefCell<BTreeSet<String>>,
    pub(super) notes: &'a Notes,
}

impl<'a> Section<'a> {
    /// `what` is how a message calls the file.
    pub(super) fn root(value: &'a Value, what: &str, notes: &'a Notes) -> Self {
        let map = value.as_object();
        if map.is_none() {
            notes.problem(what, short(value), "an object");
        }
        Section { path: String::new(), map, seen: RefCell::default(), notes }
    }

    pub(super) fn is_present(&self) -> bool {
        self.map.is_some()
    }

    /// The full name of a key, for messages.
    pub(super) fn name(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// The value; `null` reads as absent.
    pub(super) fn get(&self, key: &str) -> Option<&'a Value> {
        self.seen.borrow_mut().insert(key.to_owned());
        self.map.and_then(|map| map.get(key)).filter(|value| !value.is_null())
    }

    /// An object inside this one.
    pub(super) fn section(&self, key: &str) -> Section<'a> {
        let value = self.get(key);
        let map = value.and_then(Value::as_object);
        if let (Some(value), None) = (value, map) {
            self.notes.problem(self.name(key), short(value), "an object");
        }
        Section { path: self.name(key), map, seen: RefCell::default(), notes: self.notes }
    }

    fn typed<T>(&self, key: &str, supported: &str, convert: impl Fn(&'a Value) -> Option<T>) -> Option<T> {
        let value = self.get(key)?;
        let converted = convert(value);
        if converted.is_none() {
            self.notes.problem(self.name(key), short(value), supported);
        }
        converted
    }

    /// A width or a similar size, at least 1.
    pub(super) fn count(&self, key: &str) -> Option<usize> {
        self.whole(key, 1, LARGEST_WIDTH)
    }

    /// Heads or values of a head, at least 1.
    pub(super) fn head(&self, key: &str) -> Option<usize> {
        self.whole(key, 1, LARGEST_HEAD)
    }

    pub(super) fn whole(&self, key: &str, least: usize, most: usize) -> Option<usize> {
        self.typed(key, &format!("a whole number from {least} to {most}"), |value| {
            value
                .as_u64()
                .and_then(|number| usize::try_from(number).ok())
                .filter(|number| (least..=most).contains(number))
        })
    }

    pub(super) fn positive(&self, key: &str) -> Option<f64> {
        // Most of these are computed with as f32, where a number may turn into infinity or 0.
        let usable = |number: &f64| (*number as f32).is_finite() && *number as f32 > 0.0;
        self.typed(key, "a number above 0 that f32 can hold", |value| value.as_f64().filter(usable))
    }

    pub(super) fn flag(&self, key: &str) -> Option<bool> {
        self.typed(key, "true or false", Value::as_bool)
    }

    pub(super) fn list(&self, key: &str) -> Option<&'a [Value]> {
        self.typed(key, "a list", |value| value.as_array().map(Vec::as_slice))
    }

    /// A known field for which only these values are implemented. An absent field is fine.
    pub(super) fn only(&self, key: &str, supported: &[Value]) {
        let Some(value) = self.get(key) else { return };
        if !supported.iter().any(|one| same(one, value)) {
            let names = supported.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ");
            let names = if names.is_empty() { "absent or null".to_owned() } else { names };
            self.notes.problem(self.name(key), short(value), names);
        }
    }

    /// Keys that are known and have no influence on what is computed.
    pub(super) fn ignore(&self, keys: &[&str]) {
        self.seen.borrow_mut().extend(keys.iter().map(|key| (*key).to_owned()));
    }

    /// Hands every key that nobody asked for to the log.
    pub(super) fn finish(self) {
        let Some(map) = self.map else { return };
        let seen = self.seen.borrow();
        let mut unknown = self.notes.unknown_keys.borrow_mut();
        unknown.extend(map.keys().filter(|key| !seen.contains(*key)).map(|key| self.name(key)));
    }
}

/// Numbers compare by value: `7` and `7.0` are the same setting.
fn same(one: &Value, other: &Value) -> bool {
    match (one.as_f64(), other.as_f64()) {
        (Some(one), Some(other)) => one == other,
        _ => one == other,
    }
}

/// A value for a message, cut where it would flood it.
pub(super) fn short(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= 60 { text } else { text.chars().take(57).chain("...".chars()).collect() }
}

/// The value of a setting that may stand in several places; all that are given must agree.
/// `places` is how the message calls them.
pub(super) fn agreed<T: PartialEq + std::fmt::Debug + Copy>(
    notes: &Notes,
    places: &str,
    values: &[Option<T>],
) -> Option<T> {
    let mut given = values.iter().flatten();
    let first = *given.next()?;
    if let Some(other) = given.find(|value| **value != first) {
        notes.problem(places, format!("{first:?} and {other:?}"), "one value in all places");
    }
    Some(first)
}

/// As [`agreed`], and a problem when no place has it.
pub(super) fn required<T: PartialEq + std::fmt::Debug + Copy>(
    notes: &Notes,
    places: &str,
    values: &[Option<T>],
) -> Option<T> {
    let problems_before = notes.problems.borrow().len();
    let value = agreed(notes, places, values);
    if value.is_none() && !notes.problems.borrow()[..problems_before].iter().any(|p| places.contains(&p.key))
    {
        notes.missing(places, "a value; nothing is guessed");
    }
    value
}
