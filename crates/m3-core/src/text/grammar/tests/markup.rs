//! Calls in the model's markup, schema by schema.

use super::*;

fn object(properties: Value, required: Value) -> Value {
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

#[test]
fn calls_fit_every_kind_of_schema() {
    for parameters in [
        object(json!({"city": {"type": "string"}, "days": {"type": "integer"}}), json!(["city"])),
        object(json!({"n": {"type": "number", "minimum": -1.5, "exclusiveMaximum": 20}}), json!(["n"])),
        object(json!({"e": {"enum": ["a", "b c", 3, null, true, "3", [1], {"a": 1}]}}), json!(["e"])),
        object(json!({"s": {"type": ["string", "null"], "maxLength": 4}}), json!(["s"])),
        object(
            json!({"s": {"anyOf": [{"type": "integer", "minimum": 0, "maximum": 9},
            {"type": "string", "minLength": 3}]}}),
            json!(["s"]),
        ),
        object(
            json!({"l": {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 3}}),
            json!(["l"]),
        ),
        object(
            json!({"l": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "boolean"}],
            "items": {"type": "string", "maxLength": 3}}}),
            json!(["l"]),
        ),
        object(
            json!({"o": {"type": "object", "properties": {"a": {"type": "boolean"},
            "b": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "null"}},
            "required": ["x"], "additionalProperties": false}}}, "required": ["a"]}}),
            json!(["o"]),
        ),
        object(
            json!({"m": {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 2,
            "maxProperties": 4}}),
            json!(["m"]),
        ),
        object(
            json!({"filename": {"type": "string"}, "tool_call": {"type": "integer"},
            "invoke": {"type": "string", "maxLength": 3}, "item": {"type": "boolean"}}),
            json!(["filename", "tool_call", "invoke", "item"]),
        ),
        json!({"type": "object", "oneOf": [
            {"properties": {"k": {"const": "a"}, "n": {"type": "number"}}, "required": ["k", "n"]},
            {"properties": {"k": {"const": "b"}, "l": {"type": "array", "items": {"type": "string"}}},
             "required": ["k", "l"]}]}),
        json!({"$ref": "#/$defs/N", "$defs": {"N": {"type": "object", "properties": {
            "v": {"type": "integer"}, "next": {"$ref": "#/$defs/N"}}, "required": ["v"]}}}),
        object(
            json!({"any": {}, "free": {"type": "object"}, "list": {"type": "array"}}),
            json!(["any", "free", "list"]),
        ),
        object(
            json!({"d": {"type": "string", "format": "date"}, "p": {"type": "string",
            "pattern": "^[a-c]{2,4}$"}, "m": {"type": "integer", "multipleOf": 7}}),
            json!(["d", "p", "m"]),
        ),
    ] {
        let complete = check_calls(&parameters, 0..24);
        assert!(complete > 12, "only {complete} walks came to an end: {parameters}");
    }
}
