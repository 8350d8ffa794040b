//! From a JSON Schema document to [`Schemas`]. Each schema object is read once however often it is referred to, so
//! recursive documents end; a schema that refers to itself without any value in between is refused.

use std::collections::{HashMap, HashSet};

use indexmap::IndexSet;
use serde_json::{Map, Number as JsonNumber, Value};

use super::disjoint::Exclusive;
use super::keywords::{count, list, object, refused};
use super::pattern::{UNSUPPORTED_FORMATS, format_pattern, search_pattern};
use super::{Array, Bound, Case, Decimal, Id, Number, Object, Schemas, Text};
use crate::text::grammar::GrammarError;

/// Most schemas of one document, combinations included.
const MAX_SCHEMAS: usize = 20_000;
/// Most alternatives of one schema after its keywords are combined.
pub(super) const MAX_CASES: usize = 4096;
/// Most schemas inside each other, references followed.
const MAX_NESTING: usize = 128;

/// Reads a document. Where the branches of a `oneOf` may overlap, what the others allow is taken out of each.
pub(in crate::text::grammar) fn read(document: &Value) -> Result<Schemas, GrammarError> {
    let mut turned = HashSet::new();
    let mut overlap: Option<GrammarError> = None;
    loop {
        match (read_once(document, &turned), &overlap) {
            (Ok((schemas, exclusive)), _) => {
                let Some((place, error)) = exclusive.iter().find_map(|one_of| one_of.overlap(&schemas))
                else {
                    return Ok(schemas);
                };
                if !turned.insert(place) {
                    return Err(error);
                }
                overlap = Some(error);
            }
            // Taking out has failed, so what counts is that the branches overlap.
            (Err(_), Some(overlap)) => return Err(overlap.clone()),
            (Err(error), None) => return Err(error),
        }
    }
}

fn read_once(document: &Value, turned: &HashSet<String>) -> Result<(Schemas, Vec<Exclusive>), GrammarError> {
    let mut reader = Reader {
        document,
        turned,
        nodes: Vec::new(),
        by_address: HashMap::new(),
        meets: HashMap::new(),
        any: None,
        never: None,
        exclusive: Vec::new(),
    };
    let root = reader.child(document, String::new())?;
    reader.read_from(0)?;
    debug_assert_eq!(root, Schemas::ROOT);
    let read = reader.nodes.len();
    reader.check_except()?;
    reader.read_from(read)?;
    let exclusive = std::mem::take(&mut reader.exclusive);
    let done = |node: Node<'_>| match node {
        Node::Done(cases) => cases,
        _ => unreachable!("every node was read"),
    };
    Ok((Schemas { nodes: reader.nodes.into_iter().map(done).collect() }, exclusive))
}

pub(super) enum Node<'v> {
    Schema(&'v Value, String),
    /// What the schema does not allow.
    Not(&'v Value, String),
    /// Both must hold.
    Meet(Id, Id),
    Done(Vec<Case>),
}

pub(super) struct Reader<'v> {
    document: &'v Value,
    /// Places of `oneOf` whose branches are taken out of each other.
    turned: &'v HashSet<String>,
    pub(super) nodes: Vec<Node<'v>>,
    by_address: HashMap<*const Value, Id>,
    pub(super) meets: HashMap<(Id, Id), Id>,
    pub(super) any: Option<Id>,
    pub(super) never: Option<Id>,
    exclusive: Vec<Exclusive>,
}

pub(super) fn error(at: &str, reason: impl Into<String>) -> GrammarError {
    GrammarError::at(at, reason)
}

impl<'v> Reader<'v> {
    /// Reads all nodes from `at` on, those that come up on the way included.
    fn read_from(&mut self, mut at: usize) -> Result<(), GrammarError> {
        while at < self.nodes.len() {
            self.cases(at)?;
            at += 1;
        }
        Ok(())
    }

    /// The node of a schema; it is read later.
    pub(super) fn child(&mut self, schema: &'v Value, at: String) -> Result<Id, GrammarError> {
        if *schema == Value::Bool(true) || schema.as_object().is_some_and(Map::is_empty) {
            // The root must be node 0.
            if !self.nodes.is_empty() {
                return self.any();
            }
        }
        if let Some(id) = self.by_address.get(&std::ptr::from_ref(schema)) {
            return Ok(*id);
        }
        let id = self.push(Node::Schema(schema, at))?;
        self.by_address.insert(std::ptr::from_ref(schema), id);
        Ok(id)
    }

    pub(super) fn push(&mut self, node: Node<'v>) -> Result<Id, GrammarError> {
        if self.nodes.len() >= MAX_SCHEMAS {
            return Err(error("", format!("the schema has more than {MAX_SCHEMAS} parts")));
        }
        self.nodes.push(node);
        Ok(self.nodes.len() - 1)
    }

    /// The schema that allows everything.
    pub(super) fn any(&mut self) -> Result<Id, GrammarError> {
        if let Some(id) = self.any {
            return Ok(id);
        }
        let id = self.push(Node::Done(Vec::new()))?;
        self.any = Some(id);
        self.nodes[id] = Node::Done(vec![Case::any(id)]);
        Ok(id)
    }

    /// The cases of a node, read now if they were not.
    pub(super) fn cases(&mut self, id: Id) -> Result<Vec<Case>, GrammarError> {
        let cases = match &self.nodes[id] {
            Node::Done(cases) => return Ok(cases.clone()),
            Node::Schema(schema, at) => {
                let (schema, at) = (*schema, at.clone());
                self.schema_cases(schema, &at, &mut Vec::new())?
            }
            Node::Not(schema, at) => {
                let (schema, at) = (*schema, at.clone());
                self.complement(schema, &at, &mut Vec::new())?
            }
            Node::Meet(left, right) => {
                let (left, right) = (*left, *right);
                let (left, right) = (self.cases(left)?, self.cases(right)?);
                self.meet_all(left, right)?
            }
        };
        self.nodes[id] = Node::Done(cases.clone());
        Ok(cases)
    }

    /// `open` are the schemas around this one that speak of the same value.
    pub(super) fn schema_cases(
        &mut self,
        schema: &'v Value,
        at: &str,
        open: &mut Vec<*const Value>,
    ) -> Result<Vec<Case>, GrammarError> {
        let map = match schema {
            Value::Bool(true) => return Ok(vec![Case::any(self.any()?)]),
            Value::Bool(false) => return Ok(Vec::new()),
            Value::Object(map) => map,
            _ => return Err(error(at, "a schema must be an object, true or false")),
        };
        if let Some(name) = refused(map) {
            return Err(error(&format!("{at}/{name}"), format!("the keyword {name} is not supported")));
        }
        self.enter(schema, at, open)?;
        let own = self.own_case(map, at)?;
        let mut cases = if own.is_empty() { Vec::new() } else { vec![own] };
        cases = self.combine(map, at, open, cases)?;
        cases = self.conditions(map, at, open, cases)?;
        if map.get("unevaluatedProperties") == Some(&Value::Bool(false)) {
            cases
                .iter_mut()
                .filter_map(|case| case.object.as_mut())
                .for_each(|object| object.additional = None);
        } else if map.get("unevaluatedProperties").is_some_and(|value| *value != Value::Bool(true)) {
            let place = format!("{at}/unevaluatedProperties");
            return Err(error(&place, "unevaluatedProperties may only be true or false"));
        }
        if map.get("nullable") == Some(&Value::Bool(true)) && map.contains_key("type") {
            cases.push(Case { null: true, ..Case::default() });
        }
        open.pop();
        Ok(cases)
    }

    /// One more schema that speaks of the same value.
    pub(super) fn enter(
        &self,
        schema: &'v Value,
        at: &str,
        open: &mut Vec<*const Value>,
    ) -> Result<(), GrammarError> {
        if open.contains(&std::ptr::from_ref(schema)) {
            return Err(error(at, "the schema refers to itself without a value in between"));
        }
        if open.len() >= MAX_NESTING {
            return Err(error(at, format!("more than {MAX_NESTING} schemas speak of one value")));
        }
        open.push(std::ptr::from_ref(schema));
        Ok(())
    }

    /// What `$ref`, `allOf`, `anyOf` and `oneOf` make of the cases.
    fn combine(
        &mut self,
        map: &'v Map<String, Value>,
        at: &str,
        open: &mut Vec<*const Value>,
        mut cases: Vec<Case>,
    ) -> Result<Vec<Case>, GrammarError> {
        if let Some(reference) = map.get("$ref") {
            let (target, place) = self.target(reference, at)?;
            let inner = self.schema_cases(target, &place, open)?;
            cases = self.meet_all(cases, inner)?;
        }
        for (index, schema) in
            list(map, "allOf").map_err(|reason| error(at, reason))?.into_iter().flatten().enumerate()
        {
            let inner = self.schema_cases(schema, &format!("{at}/allOf/{index}"), open)?;
            cases = self.meet_all(cases, inner)?;
        }
        for name in ["anyOf", "oneOf"] {
            let Some(branches) = list(map, name).map_err(|reason| error(at, reason))? else { continue };
            if branches.is_empty() {
                return Err(error(&format!("{at}/{name}"), format!("{name} must not be empty")));
            }
            let mut all = Vec::new();
            for (index, schema) in branches.iter().enumerate() {
                let inner = self.schema_cases(schema, &format!("{at}/{name}/{index}"), open)?;
                all.push(self.meet_all(cases.clone(), inner)?);
            }
            if name == "oneOf" && self.turned.contains(&format!("{at}/oneOf")) {
                all = self.only_one(branches, all, &format!("{at}/oneOf"), open)?;
            } else if name == "oneOf" && branches.len() > 1 {
                self.exclusive.push(Exclusive { at: format!("{at}/oneOf"), branches: all.clone() });
            }
            cases = all.into_iter().flatten().collect();
        }
        if cases.len() > MAX_CASES {
            return Err(error(at, format!("the schema has more than {MAX_CASES} alternatives")));
        }
        Ok(cases)
    }

    /// Where a local `$ref` points, and its place.
    pub(super) fn target(&self, reference: &Value, at: &str) -> Result<(&'v Value, String), GrammarError> {
        let place = format!("{at}/$ref");
        let text = reference.as_str().ok_or_else(|| error(&place, "$ref must be a string"))?;
        let shown: String = text.chars().take(200).collect();
        let Some(pointer) = text.strip_prefix('#') else {
            return Err(error(&place, format!("$ref \"{shown}\" is outside the document")));
        };
        let pointer = percent_decoded(pointer).unwrap_or_else(|| pointer.to_owned());
        let found = match pointer.is_empty() || pointer.starts_with('/') {
            true => self.document.pointer(&pointer).map(|target| (target, pointer)),
            false => anchor(self.document, &pointer, 0).map(|target| (target, format!("/$anchor:{pointer}"))),
        };
        found.ok_or_else(|| error(&place, format!("$ref \"{shown}\" points nowhere")))
    }

    /// What the keywords of this object say by themselves.
    fn own_case(&mut self, map: &'v Map<String, Value>, at: &str) -> Result<Case, GrammarError> {
        let mut case = Case::any(self.any()?);
        let fail = |reason: String| error(at, reason);
        if let Some(types) = types(map).map_err(fail)? {
            case.keep(&types);
        }
        if let Some(number) = &mut case.number {
            limits(map, number).map_err(fail)?;
        }
        case.number = case.number.filter(|number| !super::number::is_void(number));
        if let Some(text) = &mut case.text {
            read_text(map, text, at)?;
        }
        case.text = case.text.filter(|text| text.max.is_none_or(|max| max >= text.min));
        if case.array.is_some() {
            case.array = self.array(map, at)?;
        }
        if case.object.is_some() {
            case.object = self.object(map, at)?;
        }
        let listed = match (map.get("const"), list(map, "enum").map_err(fail)?) {
            (Some(value), Some(list)) if !list.contains(value) => Some(Vec::new()),
            (Some(value), _) => Some(vec![value.clone()]),
            (None, list) => list.map(<[Value]>::to_vec),
        };
        if let Some(values) = listed {
            let fitting = self.fitting(&case, values)?;
            case = Case { values: Some(fitting), ..case };
        }
        Ok(case)
    }

    fn array(&mut self, map: &'v Map<String, Value>, at: &str) -> Result<Option<Array>, GrammarError> {
        let fail = |reason: String| error(at, reason);
        let (prefix_name, items_name) = match (map.get("prefixItems"), map.get("items")) {
            (Some(_), _) => ("prefixItems", "items"),
            (None, Some(Value::Array(_))) => ("items", "additionalItems"),
            (None, _) => ("prefixItems", "items"),
        };
        let mut prefix = Vec::new();
        for (index, schema) in list(map, prefix_name).map_err(fail)?.into_iter().flatten().enumerate() {
            prefix.push(self.child(schema, format!("{at}/{prefix_name}/{index}"))?);
        }
        let items = match map.get(items_name) {
            None => Some(self.any()?),
            Some(Value::Bool(false)) => None,
            Some(schema) => Some(self.child(schema, format!("{at}/{items_name}"))?),
        };
        let max = count(map, "maxItems").map_err(fail)?;
        let array = Array {
            prefix,
            items,
            min: count(map, "minItems").map_err(fail)?.unwrap_or(0),
            max,
            unique: self.unique(map, at, max)?,
        };
        Ok(Some(array).filter(|array| array.max.is_none_or(|max| max >= array.min)))
    }

    fn object(&mut self, map: &'v Map<String, Value>, at: &str) -> Result<Option<Object>, GrammarError> {
        let fail = |reason: String| error(at, reason);
        let mut made = Object {
            properties: Default::default(),
            required: IndexSet::new(),
            patterns: Vec::new(),
            additional: None,
            open: false,
            min: count(map, "minProperties").map_err(fail)?.unwrap_or(0),
            max: count(map, "maxProperties").map_err(fail)?,
        };
        for (key, schema) in object(map, "properties").map_err(fail)?.into_iter().flatten() {
            let id = self.child(schema, format!("{at}/properties/{}", escaped(key)))?;
            made.properties.insert(key.clone(), id);
        }
        for (pattern, schema) in object(map, "patternProperties").map_err(fail)?.into_iter().flatten() {
            let place = format!("{at}/patternProperties/{}", escaped(pattern));
            let expression = search_pattern(pattern).map_err(|reason| error(&place, reason))?;
            made.patterns.push((expression, self.child(schema, place)?));
        }
        made.additional = match map.get("additionalProperties") {
            None => Some(self.any()?),
            Some(Value::Bool(false)) => None,
            Some(schema) => Some(self.child(schema, format!("{at}/additionalProperties"))?),
        };
        made.open = map.contains_key("additionalProperties") || made.properties.is_empty();
        for key in list(map, "required").map_err(fail)?.into_iter().flatten() {
            let key = key.as_str().ok_or_else(|| error(at, "required must be a list of strings"))?;
            made.required.insert(key.to_owned());
        }
        self.settle(made)
    }
}

/// The types named; `None` = all.
pub(super) fn types(map: &Map<String, Value>) -> Result<Option<Vec<&str>>, String> {
    let wrong =
        || "type must be one of null, boolean, integer, number, string, array, object, or a list of them";
    let all = match map.get("type") {
        None => return Ok(None),
        Some(Value::String(name)) => vec![name.as_str()],
        Some(Value::Array(names)) => {
            names.iter().map(Value::as_str).collect::<Option<Vec<_>>>().ok_or_else(wrong)?
        }
        Some(_) => return Err(wrong().to_owned()),
    };
    let known = ["null", "boolean", "integer", "number", "string", "array", "object"];
    if all.is_empty() || all.iter().any(|name| !known.contains(name)) {
        return Err(wrong().to_owned());
    }
    Ok(Some(all))
}

impl Case {
    /// Everything; `any` is the schema that allows everything.
    pub(super) fn any(any: Id) -> Self {
        let object = Object {
            properties: Default::default(),
            required: IndexSet::new(),
            patterns: Vec::new(),
            additional: Some(any),
            open: true,
            min: 0,
            max: None,
        };
        Case {
            null: true,
            boolean: true,
            number: Some(Number::default()),
            text: Some(Text::default()),
            array: Some(Array { prefix: Vec::new(), items: Some(any), min: 0, max: None, unique: false }),
            object: Some(object),
            values: None,
            except: Vec::new(),
        }
    }

    fn keep(&mut self, types: &[&str]) {
        let has = |name: &str| types.contains(&name);
        self.null = has("null");
        self.boolean = has("boolean");
        self.text = self.text.take().filter(|_| has("string"));
        self.array = self.array.take().filter(|_| has("array"));
        self.object = self.object.take().filter(|_| has("object"));
        self.number = self.number.take().filter(|_| has("integer") || has("number"));
        if let Some(number) = &mut self.number {
            number.integer = !has("number");
        }
    }
}

pub(super) fn limits(map: &Map<String, Value>, number: &mut Number) -> Result<(), String> {
    let decimal = |name: &str| -> Result<Option<Decimal>, String> {
        let value = match map.get(name) {
            None => return Ok(None),
            Some(Value::Number(value)) => value,
            Some(_) => return Err(format!("{name} must be a number")),
        };
        let read = Decimal::of(value).ok_or_else(|| format!("{name} has too many digits"));
        read.map(Some)
    };
    let bound = |value: Option<Decimal>, exclusive| value.map(|value| Bound { value, exclusive });
    // Draft 4 says `exclusiveMinimum: true` beside `minimum`.
    let flag = |name: &str| map.get(name) == Some(&Value::Bool(true));
    let (low_flag, high_flag) = (flag("exclusiveMinimum"), flag("exclusiveMaximum"));
    let exclusive = |name: &str| match map.get(name) {
        Some(Value::Bool(_)) => Ok(None),
        _ => decimal(name),
    };
    let lows = [bound(decimal("minimum")?, low_flag), bound(exclusive("exclusiveMinimum")?, true)];
    let highs = [bound(decimal("maximum")?, high_flag), bound(exclusive("exclusiveMaximum")?, true)];
    number.min = lows.into_iter().flatten().reduce(super::meet::higher);
    number.max = highs.into_iter().flatten().reduce(super::meet::lower);
    if let Some(multiple) = map.get("multipleOf") {
        let whole = multiple.as_f64().filter(|value| value.fract() == 0.0 && (1.0..1e6).contains(value));
        let whole = whole.ok_or("multipleOf must be a whole number from 1 to 999999")? as u32;
        number.integer = true;
        number.multiple = Some(whole).filter(|whole| *whole > 1);
    }
    Ok(())
}

fn read_text(map: &Map<String, Value>, text: &mut Text, at: &str) -> Result<(), GrammarError> {
    text.min = count(map, "minLength").map_err(|reason| error(at, reason))?.unwrap_or(0);
    text.max = count(map, "maxLength").map_err(|reason| error(at, reason))?;
    if let Some(pattern) = map.get("pattern") {
        let place = format!("{at}/pattern");
        let pattern = pattern.as_str().ok_or_else(|| error(&place, "pattern must be a string"))?;
        text.patterns.push(search_pattern(pattern).map_err(|reason| error(&place, reason))?);
    }
    if let Some(name) = map.get("format").and_then(Value::as_str) {
        match format_pattern(name) {
            Some(pattern) => text.patterns.push(pattern),
            None if UNSUPPORTED_FORMATS.contains(&name) => {
                let known = super::FORMATS.join(", ");
                let reason = format!("the format {name} is not supported; supported are {known}");
                return Err(error(&format!("{at}/format"), reason));
            }
            // By JSON Schema's rules a name it does not define says nothing about values.
            None => {}
        }
    }
    Ok(())
}

/// The schema with this `$anchor`.
fn anchor<'v>(value: &'v Value, name: &str, depth: usize) -> Option<&'v Value> {
    if depth > MAX_NESTING {
        return None;
    }
    match value {
        Value::Object(map) if map.get("$anchor").and_then(Value::as_str) == Some(name) => Some(value),
        Value::Object(map) => map.values().find_map(|inner| anchor(inner, name, depth + 1)),
        Value::Array(list) => list.iter().find_map(|inner| anchor(inner, name, depth + 1)),
        _ => None,
    }
}

/// A key as a part of a JSON pointer.
pub(super) fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut pieces = text.split('%');
    let mut bytes = pieces.next()?.as_bytes().to_vec();
    for piece in pieces {
        bytes.push(u8::from_str_radix(piece.get(..2)?, 16).ok()?);
        bytes.extend_from_slice(&piece.as_bytes()[2..]);
    }
    String::from_utf8(bytes).ok()
}

/// The exact value of a JSON number.
pub(super) fn decimal_of(number: &JsonNumber) -> Option<Decimal> {
    Decimal::of(number)
}
