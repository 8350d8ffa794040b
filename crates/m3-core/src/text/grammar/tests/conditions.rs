//! Keywords that rule out, bind or name: `not`, `if`, dependent keys, names of keys, contained and unique items, and
//! branches that overlap.

use super::*;

/// Schemas of an object's property `p`, and how many different values the walks must reach.
fn schemas() -> Vec<Value> {
    let text = json!({"type": "string", "maxLength": 3});
    let pair = json!({"a": {"type": "integer"}, "b": {"type": "integer"}, "c": text});
    let object = |more: Value| {
        let mut schema = json!({"type": "object", "properties": pair, "additionalProperties": false});
        schema.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        schema
    };
    vec![
        json!({"type": ["string", "null", "boolean"], "maxLength": 3, "not": {"type": "null"}}),
        json!({"enum": ["x", "y", 1, null, true], "not": {"enum": ["x", 1.0, null]}}),
        json!({"type": "integer", "minimum": 0, "not": {"minimum": 10}}),
        json!({"type": ["integer", "boolean"], "not": {"anyOf": [{"type": "boolean"}, {"maximum": 7}]}}),
        json!({"type": "string", "maxLength": 9, "not": {"maxLength": 4}}),
        json!({"type": ["integer", "string"], "maxLength": 2, "not": {"not": {"type": "integer"}}}),
        json!({"type": ["string", "boolean"], "maxLength": 2, "not": {"type": "string", "minLength": 2}}),
        object(json!({"not": {"required": ["a", "b"]}})),
        object(json!({"not": {"properties": {"a": {"minimum": 5}}, "required": ["a"]}})),
        object(json!({"dependentRequired": {"a": ["b", "c"], "c": ["b"]}})),
        object(json!({"dependencies": {"a": ["b"]}})),
        object(json!({"dependentSchemas": {"a": {"properties": {"b": {"maximum": 3}}, "required": ["b"]}}})),
        object(json!({"required": ["a"], "if": {"properties": {"a": {"minimum": 10}}},
            "then": {"required": ["b"]}, "else": {"required": ["c"]}})),
        json!({"type": "object", "properties": {"kind": {"enum": ["x", "y", "z"]}, "n": {"type": "integer"}},
            "required": ["kind"], "additionalProperties": false,
            "if": {"properties": {"kind": {"const": "x"}}}, "then": {"required": ["n"]},
            "else": {"properties": {"n": false}}}),
        json!({"type": "object", "additionalProperties": {"type": "integer"}, "propertyNames": {"enum": ["a", "b"]}}),
        json!({"type": "object", "additionalProperties": {"type": "boolean"},
            "propertyNames": {"pattern": "^[a-z]+$"}, "maxProperties": 2}),
        json!({"type": "object", "additionalProperties": {"type": "null"}, "propertyNames": {"minLength": 2,
            "maxLength": 4}, "maxProperties": 2}),
        json!({"type": "array", "items": {"enum": ["a", "b", "c", "d"]}, "uniqueItems": true}),
        json!({"type": "array", "items": {"enum": ["a", "b", "c"]}, "uniqueItems": true, "minItems": 2,
            "maxItems": 3}),
        json!({"type": "array", "items": {"$ref": "#/$defs/e"}, "uniqueItems": true, "minItems": 3}),
        json!({"type": "array", "items": {"type": ["integer", "boolean"]}, "contains": {"type": "boolean"},
            "maxItems": 4}),
        json!({"type": "array", "items": {"enum": [1, 2, 3]}, "contains": {"const": 2}, "minItems": 2,
            "maxItems": 5}),
        json!({"oneOf": [{"type": "integer", "minimum": 0}, {"type": "integer", "maximum": 9}]}),
        json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "additionalProperties": false, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}),
        json!({"enum": [1, 2, 3, 4], "oneOf": [{"enum": [1, 2]}, {"enum": [2, 3]}]}),
    ]
}

#[test]
fn calls_and_json_keep_conditions() {
    for inner in schemas() {
        let parameters = json!({"type": "object", "properties": {"p": inner}, "required": ["p"],
            "additionalProperties": false, "$defs": {"e": {"enum": ["x", "y", "z"]}}});
        for complete in [check_calls(&parameters, 0..24), check_json(&parameters, 0..24)] {
            assert!(complete > 6, "only {complete} walks came to an end: {parameters}");
        }
    }
}

/// Whether a JSON text is allowed, token by token, and complete.
fn takes(schema: &Value, text: &str) -> bool {
    let mut mask = start(content_spec(Content::Schema(schema.clone()))).unwrap();
    for id in world().tokenizer.encode_ordinary(text).unwrap() {
        if !allowed(&mut mask).contains(&id) {
            return false;
        }
        mask.accept(id);
    }
    allowed(&mut mask).contains(&world().tokenizer.token_id(END).unwrap())
}

#[test]
fn nothing_is_lost_but_what_is_ruled_out() {
    let keys = json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "additionalProperties": false, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]});
    let bound = json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "additionalProperties": false, "dependentRequired": {"a": ["b"]}});
    let unique =
        json!({"type": "array", "items": {"enum": ["x", "y", "z"]}, "uniqueItems": true, "minItems": 1});
    let contains = json!({"type": "array", "items": {"type": "integer"}, "contains": {"const": 7}});
    let other = json!({"enum": ["x", "y", 3], "not": {"const": 3.0}});
    let nullable = json!({"type": ["null", "boolean"], "not": {"type": "string", "nullable": true}});
    for (schema, text, fits) in [
        (&keys, r#"{"a": 1}"#, true),
        (&keys, r#"{"b": 1}"#, true),
        (&keys, r#"{"a": 1, "b": 1}"#, false),
        (&keys, "{}", false),
        (&bound, r#"{"a": 1, "b": 1}"#, true),
        (&bound, r#"{"b": 1}"#, true),
        (&bound, "{}", true),
        (&bound, r#"{"a": 1}"#, false),
        (&unique, r#"["z", "x", "y"]"#, true),
        (&unique, r#"["y"]"#, true),
        (&unique, r#"["y", "y"]"#, false),
        (&unique, "[]", false),
        (&contains, "[1, 2, 7, 3]", true),
        (&contains, "[7]", true),
        (&contains, "[1, 2, 3]", false),
        (&contains, "[]", false),
        (&other, r#""y""#, true),
        (&other, "3", false),
        (&nullable, "null", false),
        (&nullable, "true", true),
    ] {
        assert_eq!(takes(schema, text), fits, "{text} under {schema}");
    }
}

/// A key stands once in an object of a call, and some keys cannot be made longer. However few keys are left, a walk
/// never comes to where no token is allowed: it ends, or the schema is refused beforehand with a reason.
#[test]
fn keys_that_run_out_leave_no_answer_stuck() {
    let keys = |more: Value| {
        let mut schema = json!({"type": "object"});
        schema.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        schema
    };
    let whole = json!({"type": "integer", "minimum": 0, "maximum": 9});
    let mut refused = Vec::new();
    for inner in [
        keys(json!({"patternProperties": {"^a$": whole}, "additionalProperties": false})),
        keys(json!({"patternProperties": {"^[xy]$": whole}, "additionalProperties": false})),
        keys(json!({"patternProperties": {"^(ab|abc|abd)$": whole}, "additionalProperties": false})),
        keys(
            json!({"patternProperties": {"^[a-c]{2}$": whole}, "additionalProperties": false, "minProperties": 4}),
        ),
        keys(
            json!({"additionalProperties": whole, "propertyNames": {"pattern": "^[0-9]$"}, "minProperties": 2}),
        ),
        keys(json!({"patternProperties": {"^b": whole}, "propertyNames": {"pattern": "^a"}})),
        keys(json!({"patternProperties": {"^b": whole}, "propertyNames": {"pattern": "^a"},
            "additionalProperties": false})),
        keys(json!({"patternProperties": {"^b": whole}, "propertyNames": {"enum": ["a", "c"]},
            "additionalProperties": false})),
        keys(json!({"patternProperties": {"^b": whole}, "propertyNames": {"enum": ["a", "ba"]}})),
        keys(json!({"patternProperties": {"^a": whole}, "propertyNames": {"pattern": "^a"},
            "additionalProperties": false})),
        keys(
            json!({"patternProperties": {"^b": whole}, "propertyNames": {"pattern": "^a"}, "minProperties": 1,
            "additionalProperties": false}),
        ),
        keys(json!({"patternProperties": {"^a$": whole}, "additionalProperties": false, "minProperties": 2})),
        keys(
            json!({"patternProperties": {"^[xy]$": whole}, "additionalProperties": false, "minProperties": 3}),
        ),
        keys(json!({"properties": {"z": whole}, "patternProperties": {"^[xyz]$": whole}, "minProperties": 4,
            "additionalProperties": false})),
        keys(
            json!({"patternProperties": {"^[xy]$": false}, "additionalProperties": false, "minProperties": 1}),
        ),
    ] {
        let parameters = json!({"type": "object", "properties": {"p": inner}, "required": ["p"],
            "additionalProperties": false});
        let (spec, _) = tool(parameters.clone());
        match world().compiler.compile(spec) {
            Ok(_) => assert!(check_calls(&parameters, 0..40) > 6, "few walks come to an end: {parameters}"),
            Err(error) => refused.push((inner.clone(), error.reason)),
        }
        match world().compiler.compile(content_spec(Content::Schema(parameters.clone()))) {
            Ok(_) => assert!(check_json(&parameters, 0..40) > 6, "few walks come to an end: {parameters}"),
            Err(error) => assert!(!error.reason.is_empty(), "{inner}"),
        }
    }
    // The last five ask for more keys than there are.
    assert_eq!(refused.len(), 5, "{refused:#?}");
}
