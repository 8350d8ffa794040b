//! Types and members that schemas answer for, and schemas meant to exhaust the reader.

use serde_json::json;

use super::*;

fn set(parameters: Value) -> ToolSet {
    ToolSet::from_json(&json!([{"type": "function", "function": {"name": "f", "parameters": parameters}}]))
        .unwrap()
}

fn types_of(parameters: Value, key: &str) -> Option<TypeSet> {
    let set = set(parameters);
    set.types(&set.property(&set.parameters("f"), key))
}

fn one(schema: Value) -> Option<TypeSet> {
    types_of(json!({"type": "object", "properties": {"x": schema}}), "x")
}

#[test]
fn types_from_every_keyword() {
    let null_or_integer = TypeSet::INTEGER.union(TypeSet::NULL);
    for (schema, expected) in [
        (json!({"type": "integer"}), Some(TypeSet::INTEGER)),
        (json!({"type": ["integer", "null"]}), Some(null_or_integer)),
        (json!({"anyOf": [{"type": "integer"}, {"type": "null"}]}), Some(null_or_integer)),
        (json!({"oneOf": [{"type": "integer"}, {"type": "null"}]}), Some(null_or_integer)),
        (json!({"allOf": [{"type": "integer"}]}), Some(TypeSet::INTEGER)),
        (json!({"allOf": [{"type": "number"}, {"type": ["integer", "string"]}]}), Some(TypeSet::INTEGER)),
        (json!({"enum": [1, 2]}), Some(TypeSet::INTEGER)),
        (json!({"enum": ["a", null]}), Some(TypeSet::STRING.union(TypeSet::NULL))),
        (json!({"const": 3}), Some(TypeSet::INTEGER)),
        (json!({"type": "number", "enum": [1, 2]}), Some(TypeSet::INTEGER)),
        (json!({"type": "string", "nullable": true}), Some(TypeSet::STRING.union(TypeSet::NULL))),
        (json!({"properties": {"a": {}}}), Some(TypeSet::OBJECT)),
        (json!({"items": {}}), Some(TypeSet::ARRAY)),
        (json!({"description": "anything"}), None),
        (json!({"type": "date"}), None),
        (json!(true), None),
        (json!({"anyOf": [{"type": "integer"}, {}]}), None),
        (json!({"type": "integer", "const": "a"}), None),
        (json!({"$ref": "#/nowhere"}), None),
        (json!({"$ref": "https://example.org/schema"}), None),
    ] {
        assert_eq!(one(schema.clone()), expected, "{schema}");
    }
}

#[test]
fn references_resolve_and_cycles_end() {
    let parameters = json!({"$ref": "#/$defs/N", "$defs": {
        "N": {"type": "object", "properties": {"v": {"$ref": "#/$defs/V"}, "next": {"$ref": "#/$defs/N"}}},
        "V": {"anyOf": [{"$ref": "#/$defs/V"}, {"type": "integer"}]}}});
    let set = set(parameters);
    let mut view = set.parameters("f");
    for _ in 0..50 {
        assert_eq!(set.types(&set.property(&view, "v")), Some(TypeSet::INTEGER));
        view = set.property(&view, "next");
        assert_eq!(set.types(&view), Some(TypeSet::OBJECT));
    }
}

#[test]
fn references_with_percent_escapes_resolve() {
    let definitions = json!({"Page<int>": {"type": "integer"}, "a b": {"type": "boolean"},
        "a/b%": {"type": "number"}, "é": {"type": "null"}, "50%": {"type": "array"}});
    for (pointer, expected) in [
        ("#/$defs/Page%3Cint%3E", Some(TypeSet::INTEGER)),
        ("#/$defs/Page<int>", Some(TypeSet::INTEGER)),
        ("#/$defs/a%20b", Some(TypeSet::BOOLEAN)),
        ("#/$defs/a~1b%25", Some(TypeSet::NUMBER)),
        ("#/$defs/%C3%A9", Some(TypeSet::NULL)),
        ("#/%24defs/a b", Some(TypeSet::BOOLEAN)),
        ("#/$defs/50%", Some(TypeSet::ARRAY)),
        ("#/$defs/%FF", None),
        ("#/$defs/%é", None),
    ] {
        let parameters =
            json!({"type": "object", "properties": {"x": {"$ref": pointer}}, "$defs": definitions});
        assert_eq!(types_of(parameters, "x"), expected, "{pointer}");
    }
}

#[test]
fn references_to_anchors_and_embedded_schemas_resolve() {
    let definitions = json!({
        "a": {"$anchor": "count", "type": "integer"},
        "b": {"$dynamicAnchor": "node", "type": "boolean"},
        "c": {"$id": "#old", "type": "number"},
        "d": {"$id": "https://example.org/d", "type": "array", "$defs": {"e": {"type": "null"}}},
        "f": {"enum": [{"$anchor": "data"}]},
    });
    for (reference, expected) in [
        (json!({"$ref": "#count"}), Some(TypeSet::INTEGER)),
        (json!({"$dynamicRef": "#node"}), Some(TypeSet::BOOLEAN)),
        (json!({"$ref": "#old"}), Some(TypeSet::NUMBER)),
        (json!({"$ref": "https://example.org/d"}), Some(TypeSet::ARRAY)),
        (json!({"$ref": "https://example.org/d#/$defs/e"}), Some(TypeSet::NULL)),
        (json!({"$ref": "#data"}), None),
        (json!({"$ref": "#nowhere"}), None),
        (json!({"$ref": "https://example.org/other"}), None),
    ] {
        let parameters = json!({"type": "object", "properties": {"x": reference}, "$defs": definitions});
        assert_eq!(types_of(parameters, "x"), expected, "{reference}");
    }
}

#[test]
fn conditions_and_dependencies_describe_members() {
    let parameters = json!({"type": "object", "properties": {"kind": {"type": "string"}},
        "if": {"properties": {"kind": {"const": "a"}}},
        "then": {"properties": {"n": {"type": "integer"}}},
        "else": {"properties": {"l": {"type": "array", "items": {"type": "number"}}}},
        "dependentSchemas": {"n": {"properties": {"m": {"type": "boolean"}}}}});
    for (key, expected) in [
        ("kind", Some(TypeSet::STRING)),
        ("n", Some(TypeSet::INTEGER)),
        ("l", Some(TypeSet::ARRAY)),
        ("m", Some(TypeSet::BOOLEAN)),
        ("other", None),
    ] {
        assert_eq!(types_of(parameters.clone(), key), expected, "{key}");
    }
    let both = TypeSet::INTEGER.union(TypeSet::STRING);
    assert_eq!(one(json!({"if": {}, "then": {"type": "integer"}, "else": {"type": "string"}})), Some(both));
    assert_eq!(one(json!({"if": {}, "then": {"type": "integer"}})), None);
    assert_eq!(one(json!({"then": {"type": "integer"}, "else": {"type": "integer"}})), None);
}

#[test]
fn properties_may_be_named_by_patterns() {
    let parameters = json!({"type": "object", "properties": {"n_special": {"type": "string"}},
        "patternProperties": {"^n_": {"type": "integer"}, "(?=x)": {"type": "null"}, "é$": {"type": "boolean"}},
        "additionalProperties": {"type": "number"}});
    for (key, expected) in [
        ("n_1", Some(TypeSet::INTEGER)),
        ("café", Some(TypeSet::BOOLEAN)),
        ("n_special", Some(TypeSet::STRING.union(TypeSet::INTEGER))),
        ("x", Some(TypeSet::NUMBER)),
    ] {
        assert_eq!(types_of(parameters.clone(), key), expected, "{key}");
    }
    let many: serde_json::Map<_, _> =
        (0..10_000).map(|at| (format!("^(a{{1,900}}){{1,900}}{at}$"), json!({"type": "integer"}))).collect();
    assert_eq!(types_of(json!({"type": "object", "patternProperties": many}), "a1"), None);
}

#[test]
fn limits_without_a_type_imply_one() {
    for (schema, expected) in [
        (json!({"minimum": 0}), Some(TypeSet::NUMBER)),
        (json!({"minItems": 1}), Some(TypeSet::ARRAY)),
        (json!({"additionalProperties": {"type": "integer"}}), Some(TypeSet::OBJECT)),
        (json!({"unevaluatedProperties": {"type": "integer"}}), None),
        (json!({"minimum": 0, "minItems": 1}), None),
    ] {
        assert_eq!(one(schema.clone()), expected, "{schema}");
    }
    let long = crate::text::exact::keep_integers(b"{\"enum\":[123456789012345678901234567890]}").into_owned();
    assert_eq!(one(serde_json::from_slice(&long).unwrap()), Some(TypeSet::INTEGER));
}

#[test]
fn hostile_schemas_end() {
    assert_eq!(one(json!({"$ref": "#/properties/x"})), None);
    assert_eq!(one(json!({"anyOf": [{"$ref": "#/properties/x"}, {"$ref": "#/properties/x"}]})), None);
    let mut definitions = serde_json::Map::new();
    for level in 0..60 {
        let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
        definitions.insert(format!("d{level}"), json!({"anyOf": [next, next], "allOf": [next, next]}));
    }
    definitions.insert("d60".into(), json!({"type": "object", "properties": {"a": {"type": "integer"}}}));
    let wide = set(json!({"$ref": "#/$defs/d0", "$defs": definitions}));
    let view = wide.property(&wide.parameters("f"), "a");
    assert_eq!(wide.types(&view), Some(TypeSet::INTEGER));
    let mut chain = serde_json::Map::new();
    for level in 0..20_000 {
        chain.insert(format!("d{level}"), json!({"$ref": format!("#/$defs/d{}", level + 1)}));
    }
    let long = set(json!({"$ref": "#/$defs/d0", "$defs": chain}));
    assert_eq!(long.types(&long.parameters("f")), None);
}

#[test]
fn properties_come_from_all_branches() {
    let parameters = json!({"type": "object", "oneOf": [
        {"properties": {"n": {"type": "number"}}},
        {"properties": {"l": {"type": "array", "items": {"type": "string"}}}},
        {"properties": {"l": {"type": "array", "items": {"type": "integer"}}}}]});
    let set = set(parameters);
    let root = set.parameters("f");
    assert_eq!(set.types(&set.property(&root, "n")), Some(TypeSet::NUMBER));
    let list = set.property(&root, "l");
    assert_eq!(set.types(&list), Some(TypeSet::ARRAY));
    assert_eq!(set.types(&set.item(&list, 0)), Some(TypeSet::STRING.union(TypeSet::INTEGER)));
    assert!(set.property(&root, "other").is_unknown());
}

#[test]
fn items_and_additional_properties() {
    let set = set(json!({"type": "object", "properties": {
        "t": {"type": "array", "prefixItems": [{"type": "integer"}], "items": {"type": "string"}},
        "m": {"type": "object", "additionalProperties": {"type": "boolean"}}, "o": {"type": "object"}}}));
    let root = set.parameters("f");
    let tuple = set.property(&root, "t");
    assert_eq!(set.types(&set.item(&tuple, 0)), Some(TypeSet::INTEGER));
    assert_eq!(set.types(&set.item(&tuple, 1)), Some(TypeSet::STRING));
    let map = set.property(&root, "m");
    assert_eq!(set.types(&set.property(&map, "any")), Some(TypeSet::BOOLEAN));
    assert!(set.describes_properties(&map));
    assert!(!set.describes_properties(&set.property(&root, "o")));
    assert!(set.names_property(&root, "t") && !set.names_property(&map, "any"));
}

#[test]
fn setup_errors_name_the_place() {
    let message = |tools: Value| ToolSet::from_json(&tools).unwrap_err().to_string();
    assert_eq!(message(json!({})), "tools must be a list, got an object");
    assert_eq!(message(json!([3])), "tools[0] must be an object with a function, got a number");
    assert_eq!(message(json!([{"function": {}}])), "tools[0]: function.name must be a non-empty string");
    let bad = json!([{"name": "ok"}, {"function": {"name": "f", "parameters": "x"}}]);
    assert_eq!(message(bad), "tools[1] (\"f\"): parameters must be an object, got a string");
    assert!(ToolSet::from_json(&Value::Null).unwrap().is_empty());
    assert!(ToolSet::from_json(&json!([{"name": "ok"}])).unwrap().declares("ok"));
}
