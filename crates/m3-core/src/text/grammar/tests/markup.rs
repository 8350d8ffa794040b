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

/// Whether calls can be written as the tokenizer cuts them, and ended.
fn takes(spec: GrammarSpec, text: &str) -> bool {
    let mut mask = start(spec).unwrap();
    for id in world().tokenizer.encode_special(text).unwrap() {
        if !allowed(&mut mask).contains(&id) {
            return false;
        }
        mask.accept(id);
    }
    allowed(&mut mask).contains(&world().tokenizer.token_id(END).unwrap())
}

#[test]
fn calls_are_taken_as_the_tokenizer_cuts_them() {
    let parameters = object(
        json!({"path": {"type": "string"}, "n": {"type": "integer"}, "map": {"type": "object",
            "additionalProperties": {"type": "string"}}}),
        json!(["path", "map"]),
    );
    let ns = &world().markers.namespace.text;
    let call = |arguments: &str| {
        format!("{ns}<tool_call>\n{ns}<invoke name=\"f\">{arguments}{ns}</invoke>\n{ns}</tool_call>")
    };
    let tag = |key: &str, value: &str| format!("{ns}<{key}>{value}{ns}</{key}>");
    let map = |inner: &str| tag("map", inner);
    for (arguments, fits) in [
        (tag("path", "a <b> ]<] \n") + &map(""), true),
        (tag("path", "") + &tag("n", "3") + &map(&(tag("x", "1") + &tag("a-b.c", "z"))), true),
        (tag("path", "x") + &map(&(tag("x", "1") + &tag("x", "2"))), false),
        (tag("path", "x") + &map(&format!("{ns}<x>1{ns}</y>")), false),
        (tag("path", "x") + &map(&tag("item", "1")), false),
        (tag("n", "3") + &tag("path", "x") + &map(""), false),
        (map(""), false),
        (tag("path", "x") + &tag("n", "3.5") + &map(""), false),
    ] {
        assert_eq!(takes(tool(parameters.clone()).0, &call(&arguments)), fits, "{arguments}");
    }
}
