//! What a schema does not allow, as cases: for `not`, `if` and the like. A case that must not be one of some values
//! carries them along ([`Case::except`]); they come off where the other keywords list the values, and a schema that
//! keeps any of them to its end is refused. What has no such form is refused by name.

use serde_json::{Map, Value};

use super::keywords::{count, list, object};
use super::read::{Node, Reader, error, escaped, limits, types};
use super::{Bound, Case, Except, Id, Number, Object};
use crate::text::grammar::GrammarError;

/// Words that say nothing about a value.
const SILENT: [&str; 15] = [
    "title",
    "description",
    "default",
    "examples",
    "$comment",
    "$schema",
    "$id",
    "id",
    "$anchor",
    "$defs",
    "definitions",
    "deprecated",
    "readOnly",
    "writeOnly",
    "nullable",
];

/// Where a schema stands and which ones around it speak of the same value.
pub(super) type Open = Vec<*const Value>;

impl<'v> Reader<'v> {
    /// The cases of which one holds exactly for values that the schema does not allow; fewer, never more.
    pub(super) fn complement(
        &mut self,
        schema: &'v Value,
        at: &str,
        open: &mut Open,
    ) -> Result<Vec<Case>, GrammarError> {
        let map = match schema {
            Value::Bool(true) => return Ok(Vec::new()),
            Value::Bool(false) => return Ok(vec![self.anything()?]),
            Value::Object(map) => map,
            _ => return Err(error(at, "a schema must be an object, true or false")),
        };
        self.enter(schema, at, open)?;
        let mut all = Vec::new();
        for (name, value) in map {
            if !SILENT.contains(&name.as_str()) {
                all.extend(self.complement_of(map, name, value, at, open)?);
            }
        }
        open.pop();
        if map.get("nullable") == Some(&Value::Bool(true)) && map.contains_key("type") {
            let no_null = self.other_types(&["null"])?;
            all = self.meet_all(all, no_null)?;
        }
        Ok(all)
    }

    fn complement_of(
        &mut self,
        map: &'v Map<String, Value>,
        name: &str,
        value: &'v Value,
        at: &str,
        open: &mut Open,
    ) -> Result<Vec<Case>, GrammarError> {
        let place = format!("{at}/{name}");
        let fail = |reason: String| error(&place, reason);
        match name {
            "type" => Ok(self.other_types(&types(map).map_err(fail)?.unwrap_or_default())?),
            "const" => Ok(vec![self.without(std::slice::from_ref(value), &place)?]),
            "enum" => Ok(vec![self.without(list(map, name).map_err(fail)?.unwrap_or_default(), &place)?]),
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => {
                self.outside(name, value, &place)
            }
            "required" => {
                let keys = list(map, name).map_err(fail)?.unwrap_or_default();
                keys.iter().filter_map(Value::as_str).map(|key| self.lacking(key)).collect()
            }
            "properties" => {
                let mut all = Vec::new();
                for (key, inner) in object(map, name).map_err(fail)?.into_iter().flatten() {
                    let inner = self.push(Node::Not(inner, format!("{place}/{}", escaped(key))))?;
                    all.push(self.object_with(key, inner)?);
                }
                Ok(all)
            }
            "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties" => {
                let limit = count(map, name).map_err(fail)?.unwrap_or(0);
                Ok(self.other_count(name, limit)?.into_iter().collect())
            }
            "allOf" | "anyOf" => {
                let mut all: Option<Vec<Case>> = None;
                for (index, inner) in list(map, name).map_err(fail)?.into_iter().flatten().enumerate() {
                    let one = self.complement(inner, &format!("{place}/{index}"), open)?;
                    all = Some(match all {
                        None => one,
                        Some(all) if name == "anyOf" => self.meet_all(all, one)?,
                        Some(all) => all.into_iter().chain(one).collect(),
                    });
                }
                Ok(all.unwrap_or_default())
            }
            "not" => self.schema_cases(value, &place, open),
            "$ref" => {
                let (target, place) = self.target(value, at)?;
                self.complement(target, &place, open)
            }
            // The draft's own words only; others are annotations.
            _ if is_keyword(name) => {
                Err(error(&place, format!("{name} cannot be turned round, which not, if and oneOf need")))
            }
            _ => Ok(Vec::new()),
        }
    }

    pub(super) fn anything(&mut self) -> Result<Case, GrammarError> {
        Ok(Case::any(self.any()?))
    }

    /// Values of types that are not named. Fractions have no case of their own, so `integer` bars all numbers.
    fn other_types(&mut self, named: &[&str]) -> Result<Vec<Case>, GrammarError> {
        let any = self.anything()?;
        let other = |name: &str| !named.contains(&name);
        let case = Case {
            null: other("null"),
            boolean: other("boolean"),
            number: any.number.filter(|_| other("number") && other("integer")),
            text: any.text.filter(|_| other("string")),
            array: any.array.filter(|_| other("array")),
            object: any.object.filter(|_| other("object")),
            ..Case::default()
        };
        Ok(Some(case).filter(|case| !case.is_empty()).into_iter().collect())
    }

    fn without(&mut self, values: &[Value], at: &str) -> Result<Case, GrammarError> {
        let mut case = self.anything()?;
        let except = |value: &Value| Except { value: value.clone(), at: at.to_owned() };
        case.except = values.iter().map(except).collect();
        case.settle_except();
        Ok(case)
    }

    /// Numbers outside of a limit.
    fn outside(&mut self, name: &str, value: &Value, at: &str) -> Result<Vec<Case>, GrammarError> {
        let one: Map<String, Value> = [(name.to_owned(), value.clone())].into_iter().collect();
        let mut number = Number::default();
        limits(&one, &mut number).map_err(|reason| error(at, reason))?;
        let turned = |bound: Bound| Bound { exclusive: !bound.exclusive, ..bound };
        let number = Number { min: number.max.map(turned), max: number.min.map(turned), ..Number::default() };
        if number.min.is_none() && number.max.is_none() {
            return Err(error(at, format!("{name} must be a number here")));
        }
        Ok(vec![Case { number: Some(number), ..Case::default() }])
    }

    /// An object without a key.
    pub(super) fn lacking(&mut self, key: &str) -> Result<Case, GrammarError> {
        let never = self.never()?;
        let mut object = self.any_object()?;
        object.properties.insert(key.to_owned(), never);
        Ok(Case { object: Some(object), ..Case::default() })
    }

    /// An object with a key and its value.
    fn object_with(&mut self, key: &str, value: Id) -> Result<Case, GrammarError> {
        let mut object = self.any_object()?;
        object.properties.insert(key.to_owned(), value);
        object.required.insert(key.to_owned());
        Ok(Case { object: Some(object), ..Case::default() })
    }

    pub(super) fn any_object(&mut self) -> Result<Object, GrammarError> {
        let object = self.anything()?.object;
        Ok(object.expect("any value may be an object"))
    }

    /// Values beyond a limit on their length.
    fn other_count(&mut self, name: &str, limit: usize) -> Result<Option<Case>, GrammarError> {
        let any = self.anything()?;
        let (low, high) = match name.starts_with("min") {
            true if limit == 0 => return Ok(None),
            true => (0, Some(limit - 1)),
            false => (limit + 1, None),
        };
        let mut case = Case::default();
        if name.ends_with("Length") {
            case.text = any.text.map(|text| super::Text { min: low, max: high, ..text });
        } else if name.ends_with("Items") {
            case.array = any.array.map(|array| super::Array { min: low, max: high, ..array });
        } else {
            case.object = any.object.map(|object| Object { min: low, max: high, ..object });
        }
        Ok(Some(case))
    }
}

/// Whether JSON Schema defines the word as a restriction.
fn is_keyword(name: &str) -> bool {
    const OTHERS: [&str; 18] = [
        "pattern",
        "format",
        "multipleOf",
        "items",
        "prefixItems",
        "additionalItems",
        "uniqueItems",
        "patternProperties",
        "additionalProperties",
        "unevaluatedProperties",
        "unevaluatedItems",
        "oneOf",
        "if",
        "then",
        "else",
        "$dynamicRef",
        "$recursiveRef",
        "contains",
    ];
    OTHERS.contains(&name) || super::keywords::is_restriction(name)
}
