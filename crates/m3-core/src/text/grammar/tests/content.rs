//! Content: JSON by schema, expressions, choices, both kinds of grammars, structural tags.

use super::*;

fn texts(content: Content, seeds: std::ops::Range<u64>) -> Vec<String> {
    let walks = seeds.filter_map(|seed| {
        let mut mask =
            start(content_spec(content.clone())).unwrap_or_else(|error| panic!("{error}: {content:?}"));
        walk(&mut mask, &mut Random(seed), 400)
    });
    walks.map(|ids| world().tokenizer.decode(&ids, false)).collect()
}

/// Whether a text can be written, token by token as the tokenizer cuts it, and ended.
fn takes(content: &Content, text: &str) -> bool {
    let mut mask = start(content_spec(content.clone())).unwrap();
    for id in world().tokenizer.encode_ordinary(text).unwrap() {
        if !allowed(&mut mask).contains(&id) {
            return false;
        }
        mask.accept(id);
    }
    allowed(&mut mask).contains(&world().tokenizer.token_id(END).unwrap())
}

#[test]
fn json_fits_every_kind_of_schema() {
    for schema in [
        json!({}),
        json!(true),
        json!({"type": "object"}),
        json!({"type": "integer", "minimum": 3, "maximum": 250}),
        json!({"type": "integer", "multipleOf": 7, "minimum": 0}),
        json!({"type": "number", "exclusiveMinimum": -2.5, "maximum": 0}),
        json!({"type": "string", "minLength": 2, "maxLength": 5}),
        json!({"type": "string", "pattern": "^[a-z\"\\\\]{2,4}$"}),
        json!({"type": "string", "format": "date-time"}),
        json!({"enum": ["a", 1, null, {"b": [1, 2]}, "q\"\n"]}),
        json!({"const": {"a": "é"}}),
        json!({"type": ["string", "null", "boolean"]}),
        json!({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 4}),
        json!({"type": "array", "prefixItems": [{"type": "null"}, {"type": "string"}], "items": false}),
        json!({"type": "array", "items": {"type": "boolean"}, "minItems": 3}),
        json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"},
            "c": {"type": "null"}}, "required": ["b"], "additionalProperties": false}),
        json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a", "z"]}),
        json!({"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 3}),
        json!({"type": "object", "patternProperties": {"^n_": {"type": "integer"}, "^s_": {"type": "string"}},
            "additionalProperties": false}),
        json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"},
            "c": {"type": "integer"}}, "minProperties": 2, "maxProperties": 2, "additionalProperties": false}),
        json!({"allOf": [{"type": "object", "properties": {"a": {"type": "integer", "minimum": 3}}},
            {"properties": {"a": {"maximum": 5}, "b": {"type": "boolean"}}, "required": ["a", "b"]}]}),
        json!({"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "string", "maxLength": 2}}]}),
        json!({"$ref": "#/$defs/t", "$defs": {"t": {"type": "object", "properties": {
            "v": {"type": "integer"}, "l": {"$ref": "#/$defs/t"}, "r": {"$ref": "#/$defs/t"}},
            "required": ["v"], "additionalProperties": false}}}),
        json!({"type": "object", "properties": {"j": {"enum": ["x", "y"]}}, "required": ["j"],
            "unevaluatedProperties": false}),
    ] {
        let complete = check_json(&schema, 0..24);
        assert!(complete > 12, "only {complete} walks came to an end: {schema}");
    }
}

#[test]
fn json_is_taken_compact_and_indented() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"},
        "l": {"type": "array", "items": {"type": "string"}}}, "required": ["a", "l"]});
    let content = Content::Schema(schema);
    for text in [
        r#"{"a":1,"l":["x","y"]}"#,
        r#"{"a": 1, "l": ["x", "y"]}"#,
        "{\n  \"a\": 1,\n  \"l\": [\n    \"x\"\n  ]\n}",
        r#"{"a":-3,"l":[]}"#,
        r#"{"a":0,"l":["\"\\ \n é"]}"#.replace("\\n", "n").as_str(),
    ] {
        assert!(takes(&content, text), "{text}");
    }
    for text in [r#"{"a":1}"#, r#"{"l":[],"a":1}"#, r#"{"a":1.5,"l":[]}"#, r#"{"a":1,"l":[],"b":2}"#, "{", ""]
    {
        assert!(!takes(&content, text), "{text}");
    }
}

#[test]
fn white_space_is_bounded() {
    let content = Content::Schema(json!({"type": "array", "items": {"type": "integer"}}));
    assert!(takes(&content, "[\n  1]"));
    for text in ["[  1]", "[\n\n1]", &format!("[\n{}1]", " ".repeat(40)), " [1]", "[1] "] {
        assert!(!takes(&content, text), "{text:?}");
    }
}

#[test]
fn expressions_and_choices_are_whole_texts() {
    let regex = Content::Regex("[a-c]{2,3}-[0-9]+/x?".into());
    for (text, fits) in [("ab-1/", true), ("abc-12/x", true), ("a-1/", false), ("ab-/", false), ("", false)] {
        assert_eq!(takes(&regex, text), fits, "{text}");
    }
    let choice = Content::Choice(vec!["yes".into(), "yes, but".into(), "no \"quotes\"\n".into()]);
    for (text, fits) in
        [("yes", true), ("yes, but", true), ("no \"quotes\"\n", true), ("ye", false), ("No", false)]
    {
        assert_eq!(takes(&choice, text), fits, "{text}");
    }
    assert!(texts(regex, 0..8).iter().all(|text| text.contains('-')));
}

#[test]
fn both_kinds_of_grammars_are_read() {
    let lark = Content::Lark("start: item (\",\" item)*\nitem: /[a-z]{1,3}/ | \"(\" start \")\"".into());
    let ebnf = Content::Ebnf(
        "# a list\nroot ::= item (\",\" item)*\nitem ::= word | \"(\" root \")\"\nword ::= [a-z] [a-z]{0,2}\n".into(),
    );
    for content in [lark, ebnf] {
        for (text, fits) in
            [("a", true), ("abc,(d,e)", true), ("((a))", true), ("abcd", false), ("(a", false)]
        {
            assert_eq!(takes(&content, text), fits, "{text} {content:?}");
        }
    }
    let escapes = Content::Ebnf("root ::= \"\\x41\\n\" [^a-z\\]\\-]+ \"\\\"\" .?".into());
    assert!(takes(&escapes, "A\n12\"") && takes(&escapes, "A\nQ\"x") && !takes(&escapes, "A\nx\""));
}

#[test]
fn structural_tags_leave_other_text_free() {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
        "additionalProperties": false});
    let legacy = json!({"type": "structural_tag", "triggers": ["<fn="],
        "structures": [{"begin": "<fn=a>", "schema": schema, "end": "</fn>"},
                       {"begin": "<fn=b>", "schema": {"type": "boolean"}, "end": "</fn>"}]});
    let format = json!({"type": "structural_tag", "format": {"type": "triggered_tags", "triggers": ["<fn="],
        "tags": [{"begin": "<fn=a>", "content": {"type": "json_schema", "json_schema": schema}, "end": "</fn>"},
                 {"begin": "<fn=b>", "content": {"type": "json_schema", "json_schema": {"type": "boolean"}},
                  "end": "</fn>"}]}});
    for tag in [legacy, format] {
        let content = Content::StructuralTag(tag);
        for (text, fits) in [
            ("plain < text", true),
            ("see <fn=a>{\"n\": 3}</fn> and <fn=b>true</fn>!", true),
            ("see <fn=a>{\"n\": \"x\"}</fn>", false),
            ("see <fn=c>", false),
            ("see <fn=a>{\"n\": 3}", false),
        ] {
            assert_eq!(takes(&content, text), fits, "{text}");
        }
    }
    let sequence = Content::StructuralTag(json!({"format": {"type": "sequence", "elements": [
        {"type": "any_text"}, {"type": "const_string", "value": "=>"},
        {"type": "or", "elements": [{"type": "regex", "pattern": "[0-9]+"}, {"type": "const_string", "value": "none"}]},
    ]}}));
    for (text, fits) in [("a = b =>12", true), ("=>none", true), ("a = b", false), ("a =>x", false)] {
        assert_eq!(takes(&sequence, text), fits, "{text}");
    }
}

#[test]
fn long_texts_are_counted_in_pieces() {
    for (min, max) in [(0, 5000), (1500, 1501), (1023, 2048), (1300, 1400), (2000, usize::MAX)] {
        let mut schema = json!({"type": "string", "minLength": min});
        if max != usize::MAX {
            schema["maxLength"] = max.into();
        }
        let content = Content::Schema(schema);
        for length in
            [0, 1, 1022, 1023, 1299, 1300, 1400, 1401, 1500, 1501, 1502, 1999, 2000, 2048, 2049, 5000, 5001]
        {
            let text = format!("\"{}\"", "ab\\n".repeat(length / 3) + &"x".repeat(length % 3));
            assert_eq!(takes(&content, &text), (min..=max).contains(&length), "{min} {max} {length}");
        }
    }
}

#[test]
fn anchors_are_followed() {
    let content = Content::Schema(
        json!({"type": "object", "properties": {"k": {"$anchor": "here", "enum": ["x", "y"]},
        "j": {"$ref": "#here"}}, "required": ["j"], "additionalProperties": false}),
    );
    assert!(takes(&content, r#"{"j":"x"}"#) && takes(&content, r#"{"k":"y","j":"x"}"#));
    assert!(!takes(&content, r#"{"j":"z"}"#));
}
