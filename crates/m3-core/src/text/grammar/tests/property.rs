//! Random schemas, random walks: what comes out always fits, as JSON and as a call in markup.

use proptest::prelude::*;

use super::*;

/// A leaf's schema.
fn leaf() -> impl Strategy<Value = Value> {
    let bounds = (-50i64..50, 0i64..60, any::<bool>());
    prop_oneof![
        Just(json!({"type": "null"})),
        Just(json!({"type": "boolean"})),
        Just(json!({"type": "string"})),
        Just(json!({})),
        (0u64..4, 0u64..5).prop_map(|(min, more)| json!({"type": "string", "minLength": min,
            "maxLength": min + more})),
        bounds.prop_map(|(low, width, exclusive)| match exclusive {
            true => json!({"type": "integer", "exclusiveMinimum": low, "maximum": low + width + 1}),
            false =>
                json!({"type": "number", "minimum": low as f64 / 4.0, "maximum": (low + width) as f64 / 4.0}),
        }),
        prop::sample::subsequence(
            vec![
                json!("a"),
                json!("7"),
                json!(7),
                json!("null"),
                json!(null),
                json!(true),
                json!("true"),
                json!(1.5),
                json!("x y\n"),
                json!(""),
                json!([1]),
                json!({"k": "v"})
            ],
            1..5
        )
        .prop_map(|values| json!({"enum": values})),
        prop::sample::subsequence(vec!["null", "boolean", "integer", "number", "string"], 1..4)
            .prop_map(|types| json!({"type": types})),
        prop::sample::select(vec!["^[a-c]{1,3}$", "[0-9]x", "^-?[0-9]+$", "^(true|null|yes)$"])
            .prop_map(|pattern| json!({"type": "string", "pattern": pattern})),
        (1u64..9).prop_map(|of| json!({"type": "integer", "multipleOf": of, "minimum": 0})),
    ]
}

fn key() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a", "b", "item", "filename", "-n", "two words", "k.1", "invoke"])
}

fn object(inner: impl Strategy<Value = Value> + Clone) -> impl Strategy<Value = Value> {
    let members = prop::collection::btree_map(key(), (inner.clone(), any::<bool>()), 0..4);
    let additional = prop_oneof![
        3 => Just(None),
        2 => Just(Some(json!(false))),
        1 => Just(Some(json!(true))),
        2 => inner.clone().prop_map(Some)
    ];
    let patterns = prop_oneof![
        4 => Just(None),
        1 => (inner.clone(), inner).prop_map(|(one, other)| Some(json!({"^x_": one, "_y$": other})))
    ];
    (members, additional, patterns, 0u64..2).prop_map(|(members, additional, patterns, min)| {
        let required: Vec<_> =
            members.iter().filter(|(_, (_, required))| *required).map(|(key, _)| key).collect();
        let mut schema = json!({"type": "object", "required": required, "minProperties": min,
            "properties": members.iter().map(|(key, (value, _))| ((*key).to_owned(), value.clone()))
                .collect::<serde_json::Map<_, _>>()});
        if let Some(patterns) = patterns {
            schema["patternProperties"] = patterns;
        }
        if let Some(additional) = additional {
            schema["additionalProperties"] = additional;
        }
        schema
    })
}

fn schema() -> impl Strategy<Value = Value> {
    leaf().prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            3 => object(inner.clone()),
            2 => (inner.clone(), 0u64..3, 0u64..3).prop_map(|(items, min, more)| json!({"type": "array",
                "items": items, "minItems": min, "maxItems": min + more})),
            1 => (prop::collection::vec(inner.clone(), 1..3), inner.clone()).prop_map(|(prefix, items)| {
                json!({"type": "array", "prefixItems": prefix, "items": items, "maxItems": 4})
            }),
            2 => prop::collection::vec(inner.clone(), 1..4).prop_map(|branches| json!({"anyOf": branches})),
            1 => (inner.clone(), inner.clone()).prop_map(|(one, other)| json!({"allOf": [one, other]})),
            1 => inner.prop_map(|inner| json!({"type": "object", "required": ["v"], "properties":
                {"v": inner, "more": {"type": "array", "items": {"$ref": "#/$defs/self"}}}})),
        ]
    })
}

/// What may be refused: schemas that nothing fits, and what a key written twice could break.
fn is_known(error: &GrammarError) -> bool {
    let known =
        ["no value fits", "no arguments that the schema allows", "leave no value", "could be written twice"];
    known.iter().any(|part| error.reason.contains(part))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn calls_of_random_schemas_are_valid(inner in schema(), required in any::<bool>(), seed in 0u64..1000) {
        let required = if required { vec!["p"] } else { Vec::new() };
        let parameters = json!({"type": "object", "properties": {"p": inner}, "required": required,
            "$defs": {"self": inner}});
        match world().compiler.compile(tool(parameters.clone()).0) {
            Ok(_) => { check_calls(&parameters, seed..seed + 3); }
            Err(error) => prop_assert!(is_known(&error), "{error}: {parameters}"),
        }
    }

    #[test]
    fn json_of_random_schemas_is_valid(schema in schema(), seed in 0u64..1000) {
        let schema = json!({"allOf": [schema], "$defs": {"self": schema}});
        match world().compiler.compile(content_spec(Content::Schema(schema.clone()))) {
            Ok(_) => { check_json(&schema, seed..seed + 3); }
            Err(error) => prop_assert!(is_known(&error), "{error}: {schema}"),
        }
    }
}
