//! Keywords that make alternatives of a schema: `not`, `if`, dependent keys, names of keys, and what an array contains.
//! Each is met with the cases that the other keywords have made.

use serde_json::{Map, Value};

use super::complement::Open;
use super::keywords::{list, object};
use super::read::{Reader, error, escaped};
use super::{Array, Case, Object, Text};
use crate::text::grammar::GrammarError;

/// Places at which an item that an array must contain is written at the latest.
const CONTAINED_WITHIN: usize = 8;

impl<'v> Reader<'v> {
    /// The cases that these keywords leave.
    pub(super) fn conditions(
        &mut self,
        map: &'v Map<String, Value>,
        at: &str,
        open: &mut Open,
        mut cases: Vec<Case>,
    ) -> Result<Vec<Case>, GrammarError> {
        if let Some(schema) = map.get("not") {
            let other = self.complement(schema, &format!("{at}/not"), open)?;
            cases = self.meet_all(cases, other)?;
        }
        if let Some(schema) = map.get("if").filter(|_| map.contains_key("then") || map.contains_key("else")) {
            let all = self.branches_of_if(map, schema, at, open)?;
            cases = self.meet_all(cases, all)?;
        }
        for name in ["dependentRequired", "dependentSchemas", "dependencies"] {
            for (key, wanted) in object(map, name).map_err(|reason| error(at, reason))?.into_iter().flatten()
            {
                let place = format!("{at}/{name}/{}", escaped(key));
                let all = self.with_or_without(key, wanted, &place, open)?;
                cases = self.meet_all(cases, all)?;
            }
        }
        if let Some(schema) = map.get("propertyNames").filter(|schema| **schema != Value::Bool(true)) {
            let names = self.named_like(schema, &format!("{at}/propertyNames"), open)?;
            cases = self.meet_all(cases, vec![names])?;
        }
        if let Some(schema) = map.get("contains") {
            let all = self.containing(map, schema, at)?;
            cases = self.meet_all(cases, all)?;
        }
        Ok(cases)
    }

    /// What each branch of a `oneOf` allows and no other does. `made` are the branches' own cases.
    pub(super) fn only_one(
        &mut self,
        branches: &'v [Value],
        made: Vec<Vec<Case>>,
        at: &str,
        open: &mut Open,
    ) -> Result<Vec<Vec<Case>>, GrammarError> {
        let mut others = Vec::new();
        for (index, schema) in branches.iter().enumerate() {
            others.push(self.complement(schema, &format!("{at}/{index}"), open)?);
        }
        let mut all = Vec::new();
        for (index, mut cases) in made.into_iter().enumerate() {
            for (_, other) in others.iter().enumerate().filter(|(other, _)| *other != index) {
                cases = self.meet_all(cases, other.clone())?;
            }
            all.push(cases);
        }
        match all.iter().all(Vec::is_empty) {
            true => Err(error(at, "no branch allows anything that the others do not")),
            false => Ok(all),
        }
    }

    fn branches_of_if(
        &mut self,
        map: &'v Map<String, Value>,
        condition: &'v Value,
        at: &str,
        open: &mut Open,
    ) -> Result<Vec<Case>, GrammarError> {
        let place = format!("{at}/if");
        let yes = self.schema_cases(condition, &place, open)?;
        let no = self.complement(condition, &place, open)?;
        let mut all = Vec::new();
        for (name, cases) in [("then", yes), ("else", no)] {
            all.extend(match map.get(name) {
                None => cases,
                Some(schema) => {
                    let inner = self.schema_cases(schema, &format!("{at}/{name}"), open)?;
                    self.meet_all(cases, inner)?
                }
            });
        }
        Ok(all)
    }

    /// Values without a key, and objects with it and what it brings: other keys, or a schema.
    fn with_or_without(
        &mut self,
        key: &str,
        wanted: &'v Value,
        at: &str,
        open: &mut Open,
    ) -> Result<Vec<Case>, GrammarError> {
        let mut without = self.anything()?;
        without.object = self.lacking(key)?.object;
        let mut with = self.any_object()?;
        with.required.insert(key.to_owned());
        if let Value::Array(keys) = wanted {
            for key in keys {
                let key = key.as_str().ok_or_else(|| error(at, "it must be a list of strings"))?;
                with.required.insert(key.to_owned());
            }
        }
        let with = self.settle(with)?;
        let mut with = vec![Case { object: with, ..Case::default() }];
        if !wanted.is_array() {
            let inner = self.schema_cases(wanted, at, open)?;
            with = self.meet_all(with, inner)?;
        }
        Ok([vec![without], with].concat())
    }

    /// Objects all of whose keys fit a schema: a list of names, or one expression.
    fn named_like(&mut self, schema: &'v Value, at: &str, open: &mut Open) -> Result<Case, GrammarError> {
        let mut case = self.anything()?;
        let any = self.any()?;
        let cases = self.schema_cases(schema, at, open)?;
        let mut made = Object { additional: None, ..self.any_object()? };
        let (mut names, mut patterns) = (Vec::new(), Vec::new());
        for names_case in cases {
            if let Some(first) = names_case.except.first() {
                return Err(error(&first.at, "names of keys cannot be barred one by one"));
            }
            match (names_case.values, names_case.text) {
                (Some(values), _) => names.extend(values),
                (None, Some(text)) => patterns.push(name_pattern(text, at)?),
                (None, None) => {}
            }
        }
        let names = names.iter().filter_map(Value::as_str);
        match patterns.is_empty() {
            true => made.properties.extend(names.map(|name| (name.to_owned(), any))),
            false => {
                let all = patterns.into_iter().chain(names.map(regex::escape));
                let all = all.map(|pattern| format!("({pattern})")).collect::<Vec<_>>().join("|");
                made.patterns.push((all, any));
            }
        }
        case.object = Some(made);
        Ok(case)
    }

    /// Arrays with at least one item that fits, at each of the first places in turn.
    fn containing(
        &mut self,
        map: &'v Map<String, Value>,
        schema: &'v Value,
        at: &str,
    ) -> Result<Vec<Case>, GrammarError> {
        let whole = |name: &str| super::keywords::count(map, name).map_err(|reason| error(at, reason));
        let (least, most) = (whole("minContains")?.unwrap_or(1), whole("maxContains")?);
        if let Some(most) = most {
            let reason =
                format!("maxContains is {most}; an upper limit on what is contained is not supported");
            return Err(error(&format!("{at}/maxContains"), reason));
        }
        let any = self.anything()?;
        if least == 0 {
            return Ok(vec![any]);
        }
        if least > 1 {
            let reason = format!("minContains is {least}; at most 1 is supported");
            return Err(error(&format!("{at}/minContains"), reason));
        }
        let wanted = self.child(schema, format!("{at}/contains"))?;
        let free = self.any()?;
        let mut all = vec![Case { array: None, ..any }];
        for place in 0..CONTAINED_WITHIN {
            let mut prefix = vec![free; place];
            prefix.push(wanted);
            let array = Array { min: prefix.len(), prefix, items: Some(free), max: None, unique: false };
            all.push(Case { array: Some(array), ..Case::default() });
        }
        Ok(all)
    }

    /// Whether `uniqueItems` is asked for; only where it can be kept.
    pub(super) fn unique(
        &self,
        map: &'v Map<String, Value>,
        at: &str,
        max: Option<usize>,
    ) -> Result<bool, GrammarError> {
        if map.get("uniqueItems") != Some(&Value::Bool(true)) || max.is_some_and(|max| max < 2) {
            return Ok(false);
        }
        let mut items = map.get("items");
        if let Some(reference) = items.and_then(|items| items.get("$ref")) {
            items = Some(self.target(reference, &format!("{at}/items"))?.0);
        }
        let listed = items.and_then(Value::as_object).and_then(|items| list(items, "enum").ok().flatten());
        match listed.is_some_and(|values| values.len() <= super::MAX_UNIQUE)
            && !map.contains_key("prefixItems")
        {
            true => Ok(true),
            false => {
                let reason = format!(
                    "uniqueItems is supported for items that an enum of up to {} values lists",
                    super::MAX_UNIQUE
                );
                Err(error(&format!("{at}/uniqueItems"), reason))
            }
        }
    }
}

/// The expression of texts within these limits.
fn name_pattern(text: Text, at: &str) -> Result<String, GrammarError> {
    let limited = text.min > 0 || text.max.is_some();
    match text.patterns.as_slice() {
        [] => {
            let max = text.max.map(|max| max.to_string()).unwrap_or_default();
            Ok(format!("(?s:.){{{},{max}}}", text.min))
        }
        [one] if !limited => Ok(one.clone()),
        _ => Err(error(at, "names of keys may have one pattern, or limits on their length, not both")),
    }
}
