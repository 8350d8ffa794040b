//! Faults of other servers and hostile requests: each ends in a sentence or in a bounded answer.

use std::time::{Duration, Instant};

use super::*;

fn refusal(content: Content) -> GrammarError {
    let shown: String = format!("{content:?}").chars().take(200).collect();
    start(content_spec(content)).err().unwrap_or_else(|| panic!("{shown} must be refused"))
}

fn schema_refusal(schema: Value) -> (Option<String>, String) {
    let error = refusal(Content::Schema(schema));
    (error.pointer, error.reason)
}

#[test]
fn f1_an_empty_schema_ends_and_numbers_are_bounded() {
    let mut mask = start(content_spec(Content::Schema(json!({})))).unwrap();
    let digit = world().tokenizer.encode_ordinary("1").unwrap()[0];
    let mut written = 0;
    while allowed(&mut mask).contains(&digit) {
        mask.accept(digit);
        written += 1;
        assert!(written < 40, "a number goes on for ever");
    }
    assert!(allowed(&mut mask).contains(&world().tokenizer.token_id(END).unwrap()));
}

#[test]
fn f3_the_end_is_allowed_as_soon_as_complete_and_only_then() {
    let end = world().tokenizer.token_id(END).unwrap();
    let schema = json!({"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"],
        "additionalProperties": false});
    let mut mask = start(content_spec(Content::Schema(schema))).unwrap();
    for token in world().tokenizer.encode_ordinary("{\"a\": true}").unwrap() {
        assert!(!allowed(&mut mask).contains(&end));
        mask.accept(token);
    }
    assert_eq!(allowed(&mut mask), [end]);
}

#[test]
fn f4_a_schema_that_refers_to_itself_without_end_is_refused() {
    let (pointer, reason) =
        schema_refusal(json!({"$ref": "#/$defs/n", "$defs": {"n": {"$ref": "#/$defs/n"}}}));
    assert_eq!(pointer.as_deref(), Some("/$defs/n"));
    assert!(reason.contains("refers to itself"), "{reason}");
    let endless = json!({"$ref": "#/$defs/n", "$defs": {"n": {"type": "object", "required": ["x"],
        "properties": {"x": {"$ref": "#/$defs/n"}}}}});
    assert_eq!(schema_refusal(endless).1, "no value fits the schema");
}

#[test]
fn f6_what_cannot_be_honoured_is_refused_with_its_place() {
    for (schema, place) in [
        (json!({"properties": {"a": {"pattern": "(?=x)y"}}}), "/properties/a/pattern"),
        (json!({"properties": {"a": {"not": {"pattern": "x"}}}}), "/properties/a/not/pattern"),
        (json!({"type": "string", "not": {"enum": ["x"]}}), "/not/enum"),
        (json!({"items": {"uniqueItems": true}}), "/items/uniqueItems"),
        (json!({"uniqueItems": true, "items": {"enum": [1, 2, 3, 4, 5, 6, 7, 8, 9]}}), "/uniqueItems"),
        (json!({"if": {"items": {}}, "then": {"type": "null"}}), "/if/items"),
        (json!({"contains": {"type": "null"}, "maxContains": 3}), "/maxContains"),
        (json!({"contains": {"type": "null"}, "minContains": 2}), "/minContains"),
        (json!({"propertyNames": {"pattern": "^a", "minLength": 4}}), "/propertyNames"),
        (json!({"unevaluatedItems": false}), "/unevaluatedItems"),
        (json!({"$ref": "https://example.org/s"}), "/$ref"),
        (json!({"$ref": "#/nowhere"}), "/$ref"),
        (json!({"type": "date"}), ""),
        (json!({"anyOf": [{"type": "null"}, {"format": "iri"}]}), "/anyOf/1/format"),
        (json!({"oneOf": [{"type": "integer"}, {"type": "number"}]}), "/oneOf"),
        (json!({"properties": {"a/b": {"minLength": -1}}}), "/properties/a~1b"),
        (json!(3), ""),
    ] {
        let (pointer, reason) = schema_refusal(schema.clone());
        assert_eq!(pointer.as_deref(), Some(place), "{schema}: {reason}");
    }
    for content in [
        Content::Regex("(?=a)b".into()),
        Content::Regex("a(".into()),
        Content::Regex(String::new()),
        Content::Choice(Vec::new()),
        Content::Lark("start: nowhere".into()),
        Content::Lark("".into()),
        Content::Ebnf("root ::= missing".into()),
        Content::Ebnf("word ::= \"a\"".into()),
        Content::Ebnf("root ::= \"a".into()),
        Content::Ebnf("root ::= [z-a]".into()),
        Content::StructuralTag(json!({"format": {"type": "magic"}})),
        Content::StructuralTag(json!({"structures": [], "triggers": []})),
        Content::Schema(json!({"type": "string", "const": 3})),
        Content::Schema(json!({"type": "integer", "minimum": 5, "maximum": 4})),
    ] {
        let error = refusal(content.clone());
        let sentence = error.to_string();
        assert!(!sentence.is_empty() && sentence.len() < 500 && !error.busy, "{content:?}: {sentence}");
    }
}

#[test]
fn f9_heavy_schemas_are_made_or_refused_in_time() {
    let branch = |index: usize| {
        json!({"type": "object", "properties": {format!("k{index}"): {"const": index}},
        "required": [format!("k{index}")]})
    };
    let branches: Vec<Value> = (0..500).map(branch).collect();
    let items: Vec<String> = (0..2000).map(|index| format!("value number {index}")).collect();
    let mut deep = json!({"type": "integer"});
    for _ in 0..60 {
        deep = json!({"type": "object", "properties": {"n": deep}, "required": ["n"]});
    }
    for schema in [json!({"anyOf": branches}), json!({"enum": items}), deep] {
        let begun = Instant::now();
        let mut mask = start(content_spec(Content::Schema(schema))).unwrap();
        assert!(!allowed(&mut mask).is_empty());
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    }
    let mut chain = serde_json::Map::new();
    for level in 0..5_000 {
        chain.insert(format!("d{level}"), json!({"$ref": format!("#/$defs/d{}", level + 1)}));
    }
    let too_deep = json!({"$ref": "#/$defs/d0", "$defs": chain});
    assert!(refusal(Content::Schema(too_deep)).reason.contains("schemas speak of one value"));
    let choice = |index: usize| {
        let property = |name: &str| json!({"properties": {format!("{name}{index}"): {"type": "null"}}});
        json!({"anyOf": [property("a"), property("b")]})
    };
    let product = json!({"type": "object", "allOf": (0..16).map(choice).collect::<Vec<_>>()});
    assert!(refusal(Content::Schema(product)).reason.contains("alternatives"));
    let huge = Content::Regex("a".repeat(600 << 10));
    assert!(refusal(huge).reason.contains("bytes"));
}

#[test]
fn b17_b22_calls_are_forced_and_recursive_schemas_end() {
    let (spec, _) = tool(json!({"$ref": "#/$defs/N", "$defs": {"N": {"type": "object", "properties": {
        "v": {"type": "integer"}, "next": {"$ref": "#/$defs/N"}}}}}));
    let mut mask = start(spec).unwrap();
    assert_eq!(allowed(&mut mask), [world().markers.namespace.token.unwrap()]);
}

#[test]
fn a_refusal_names_the_tool_and_the_place() {
    let (spec, _) =
        tool(json!({"type": "object", "properties": {"a": {"type": "array", "uniqueItems": true}}}));
    let error = start(spec).err().unwrap();
    assert_eq!(
        error.to_string(),
        "parameters of tool \"f\": at /properties/a/uniqueItems: uniqueItems is supported for items that an enum of up \
         to 8 values lists"
    );
}
