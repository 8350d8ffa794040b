//! Inputs on which measured servers differ between their own paths (S1 to S28), one test for each row.

use super::*;

fn one(properties: Value, elements: &str) -> Value {
    arguments(&tools(properties), elements)
}

/// The value of the parameter `x` with this schema.
fn x(schema: Value, text: &str) -> Value {
    one(json!({"x": schema}), &format!("⟨<x>{text}⟨</x>"))["x"].clone()
}

fn texts(text: &str) -> (Option<String>, Option<String>) {
    let parsed = parse(&options(), &ns(text));
    assert_eq!(parsed.tool_calls, []);
    (parsed.reasoning, parsed.content)
}

fn pair(reasoning: Option<&str>, content: Option<&str>) -> (Option<String>, Option<String>) {
    (reasoning.map(str::to_owned), content.map(str::to_owned))
}

#[test]
fn s1_an_object_holding_a_child_of_its_own_name() {
    let node = json!({"type": "object", "properties": {"name": {"type": "string"}, "x": {"type": "object"}}});
    let value = x(node, "⟨<name>a⟨</name>⟨<x>⟨<name>b⟨</name>⟨</x>");
    assert_eq!(value, json!({"name": "a", "x": {"name": "b"}}));
}

#[test]
fn s2_a_last_line_break_is_kept() {
    assert_eq!(x(json!({"type": "string"}), "line1\nline2\n"), json!("line1\nline2\n"));
}

#[test]
fn s3_spaces_of_a_nested_string_are_kept() {
    let object = json!({"type": "object", "properties": {"s": {"type": "string"}}});
    assert_eq!(x(object, "⟨<s>  x  ⟨</s>"), json!({"s": "  x  "}));
}

#[test]
fn s4_an_empty_array_element() {
    assert_eq!(x(json!({"type": "array"}), ""), json!([]));
}

#[test]
fn s5_null_of_a_nullable_string() {
    assert_eq!(x(json!({"type": ["string", "null"]}), "null"), json!(null));
}

#[test]
fn s6_numbers_beyond_a_double_stay_text() {
    assert_eq!(x(json!({"type": "number"}), "1e400"), json!("1e400"));
}

#[test]
fn s7_repeated_scalars_follow_one_rule() {
    assert_eq!(one(json!({}), "⟨<x>a⟨</x>⟨<x>b⟨</x>"), json!({"x": "a"}));
    assert_eq!(one(json!({"x": {"type": "integer"}}), "⟨<x>1⟨</x>⟨<x>2⟨</x>"), json!({"x": [1, 2]}));
}

#[test]
fn s8_the_namespace_marker_inside_a_string() {
    for text in [
        "a ⟨ b",
        "⟨",
        "⟨⟨",
        "⟨x",
        "⟨</y>",
        "⟨<y>1⟨</y>",
        "⟨<tool_call>",
        "⟨</xx>",
        "⟨ <x>",
        "⟨</x",
        "⟨<invoke name=\"g\">",
    ] {
        assert_eq!(x(json!({"type": "string"}), text), json!(ns(text)), "{text}");
        let text = format!("a{text}");
        assert_eq!(x(json!({}), &text), json!(ns(&text)), "{text}");
        let nested = json!({"type": "object", "properties": {"s": {"type": "string"}}});
        if !text.contains("x>") {
            assert_eq!(x(nested, &format!("⟨<s>{text}⟨</s>")), json!({"s": ns(&text)}), "{text}");
        }
    }
}

#[test]
fn s9_json_text_in_an_object() {
    assert_eq!(x(json!({"type": "object"}), "{\"a\": 1}"), json!({"a": 1}));
}

#[test]
fn s10_json_text_in_an_array() {
    assert_eq!(x(json!({"type": "array"}), "[1,2]"), json!([1, 2]));
}

#[test]
fn s11_output_cut_inside_the_second_parameter() {
    let options = tools(json!({"a": {"type": "integer"}, "b": {"type": "integer"}}));
    for tail in ["⟨<b>2", "⟨<b>", "⟨<b", "⟨"] {
        let parsed = parse(&options, &ns(&format!("⟨<tool_call>\n⟨<invoke name=\"f\">⟨<a>1⟨</a>{tail}")));
        assert_eq!(calls(&parsed), [("f", json!({"a": 1}))], "{tail}");
        assert_eq!(parsed.content, None);
    }
}

#[test]
fn s12_a_lost_opening_tag_is_recovered_and_no_key_has_a_slash() {
    let elements = "⟨report.md⟨</filename>⟨<content>Hi⟨</content>";
    assert_eq!(arguments(&options(), elements), json!({"filename": "report.md", "content": "Hi"}));
}

#[test]
fn s13_the_outer_closer_is_missing() {
    let options = tools(json!({"a": {"type": "integer"}}));
    for tail in ["⟨</invoke>", "⟨</invoke>\n", "⟨</inv", ""] {
        let parsed = parse(&options, &ns(&format!("⟨<tool_call>\n⟨<invoke name=\"f\">⟨<a>1⟨</a>{tail}")));
        assert_eq!(calls(&parsed), [("f", json!({"a": 1}))], "{tail}");
        assert_eq!(parsed.content, None);
    }
}

#[test]
fn s14_an_undeclared_tool_is_called() {
    let text = ns("⟨<tool_call>⟨<invoke name=\"ghost\">⟨<a>1⟨</a>⟨</invoke>⟨</tool_call>");
    assert_eq!(calls(&parse(&tools(json!({})), &text)), [("ghost", json!({"a": "1"}))]);
}

#[test]
fn s15_a_name_in_single_quotes() {
    let text = ns("⟨<tool_call>⟨<invoke name='f'>⟨<a>1⟨</a>⟨</invoke>⟨</tool_call>");
    assert_eq!(calls(&parse(&options(), &text)), [("f", json!({"a": "1"}))]);
}

#[test]
fn s16_any_of_an_array_and_null() {
    let schema = json!({"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]});
    assert_eq!(x(schema, "⟨<item>1⟨</item>⟨<item>2⟨</item>"), json!([1, 2]));
}

#[test]
fn s17_a_reference_to_a_definition() {
    let parameters = json!({"type": "object", "properties": {"x": {"$ref": "#/$defs/P"}},
        "$defs": {"P": {"type": "object", "properties": {"n": {"type": "integer"}}}}});
    assert_eq!(arguments(&schema(parameters), "⟨<x>⟨<n>1⟨</n>⟨</x>"), json!({"x": {"n": 1}}));
}

#[test]
fn s18_one_of_at_the_top() {
    let parameters = json!({"type": "object", "oneOf": [{"properties": {"n": {"type": "number"}}},
        {"properties": {"l": {"type": "array"}}}]});
    assert_eq!(arguments(&schema(parameters), "⟨<n>42⟨</n>"), json!({"n": 42}));
}

#[test]
fn s19_an_enum_of_integers_and_all_of() {
    assert_eq!(x(json!({"enum": [1, 2, 3]}), "3"), json!(3));
    assert_eq!(x(json!({"allOf": [{"type": "integer"}]}), "3"), json!(3));
}

#[test]
fn s20_a_constant() {
    assert_eq!(x(json!({"const": 3}), "3"), json!(3));
}

#[test]
fn s21_an_integer_or_a_string() {
    assert_eq!(x(json!({"type": ["integer", "string"]}), "007"), json!("007"));
    assert_eq!(x(json!({"type": ["integer", "string"]}), "7"), json!(7));
}

#[test]
fn s22_an_integer_written_with_a_point() {
    assert_eq!(x(json!({"type": "integer"}), "3.0").to_string(), "3");
}

#[test]
fn s23_items_without_a_schema() {
    assert_eq!(arguments(&options(), "⟨<x>⟨<item>a⟨</item>⟨</x>"), json!({"x": ["a"]}));
}

#[test]
fn s24_stray_text_between_parameters() {
    let got = outcome(&options(), &call(&ns("⟨<a>1⟨</a> oops ⟨<b>2⟨</b>")));
    assert_eq!(calls(&got.parsed)[0].1, json!({"a": "1", "b": "2"}));
    assert_eq!(got.faults.stray_text, 1);
}

#[test]
fn s25_a_closer_character_by_character() {
    assert_eq!(texts("</mm:think>Hello"), pair(None, Some("Hello")));
}

#[test]
fn s26_two_closers_leak_neither() {
    assert_eq!(texts("</mm:think></mm:think>Hello"), pair(None, Some("Hello")));
    assert_eq!(texts("<mm:think>r</mm:think></mm:think>Hello"), pair(Some("r"), Some("Hello")));
}

#[test]
fn s27_tool_markup_inside_reasoning_stays_reasoning() {
    let text = format!("<mm:think>so{}", call(""));
    assert_eq!(texts(&text), pair(text.strip_prefix("<mm:think>"), None));
}

#[test]
fn s28_an_answer_that_mentions_the_opener() {
    assert_eq!(
        texts("<mm:think>t</mm:think>Write <mm:think> first."),
        pair(Some("t"), Some("Write <mm:think> first."))
    );
    assert_eq!(texts("Write <mm:think> first."), pair(Some(" first."), Some("Write ")));
}
