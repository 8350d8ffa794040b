//! Which keywords a schema may have. Those that restrict values and are not built are refused by name; words that JSON
//! Schema does not define are annotations by its rules.

use serde_json::{Map, Value};

/// Keywords that restrict values and cannot be honoured.
const REFUSED: [&str; 5] = ["unevaluatedItems", "$dynamicRef", "$recursiveRef", "extends", "disallow"];
/// Keywords that restrict values and have no opposite here.
const ONE_WAY: [&str; 6] =
    ["dependentRequired", "dependentSchemas", "dependencies", "minContains", "maxContains", "propertyNames"];

/// Whether the word restricts values in a way that nothing else here names.
pub(super) fn is_restriction(name: &str) -> bool {
    REFUSED.contains(&name) || ONE_WAY.contains(&name)
}

/// The first keyword that would have to be ignored.
pub(super) fn refused(schema: &Map<String, Value>) -> Option<&'static str> {
    REFUSED.into_iter().find(|name| match (*name, schema.get(*name)) {
        (_, None) => false,
        // What asks for nothing is nothing to refuse.
        ("unevaluatedItems", Some(Value::Bool(true))) => false,
        (_, Some(value)) => value.as_object().is_none_or(|map| !map.is_empty()),
    })
}

/// A whole number of at least 0 under a keyword, also written as `3.0`.
pub(super) fn count(schema: &Map<String, Value>, name: &str) -> Result<Option<usize>, String> {
    let Some(value) = schema.get(name) else { return Ok(None) };
    let whole = value.as_f64().filter(|number| number.fract() == 0.0 && *number >= 0.0 && *number < 1e15);
    whole
        .map(|number| Some(number as usize))
        .ok_or_else(|| format!("{name} must be a whole number, 0 or more"))
}

/// An object under a keyword.
pub(super) fn object<'v>(
    schema: &'v Map<String, Value>,
    name: &str,
) -> Result<Option<&'v Map<String, Value>>, String> {
    match schema.get(name) {
        None => Ok(None),
        Some(Value::Object(map)) => Ok(Some(map)),
        Some(_) => Err(format!("{name} must be an object")),
    }
}

/// A list under a keyword.
pub(super) fn list<'v>(schema: &'v Map<String, Value>, name: &str) -> Result<Option<&'v [Value]>, String> {
    match schema.get(name) {
        None => Ok(None),
        Some(Value::Array(list)) => Ok(Some(list)),
        Some(_) => Err(format!("{name} must be a list")),
    }
}
