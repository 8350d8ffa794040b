//! Arguments typed by schema, through the whole parser.

use super::*;

fn typed(schema: Value, text: &str) -> Value {
    let value = arguments(&tools(json!({"x": schema})), &format!("⟨<x>{text}⟨</x>"));
    value["x"].clone()
}

#[test]
fn scalars() {
    assert_eq!(typed(json!({"type": "integer"}), "42"), json!(42));
    assert_eq!(typed(json!({"type": "integer"}), " 42\n"), json!(42));
    assert_eq!(typed(json!({"type": "number"}), "9.50"), json!(9.5));
    assert_eq!(typed(json!({"type": "boolean"}), "TRUE"), json!(true));
    assert_eq!(typed(json!({"type": "null"}), "null"), json!(null));
    assert_eq!(typed(json!({"type": "string"}), "null"), json!("null"));
    assert_eq!(typed(json!({"type": "string"}), "12345"), json!("12345"));
    assert_eq!(typed(json!({"type": "integer"}), ""), json!(""));
    assert_eq!(typed(json!({}), "true"), json!("true"));
    assert_eq!(typed(json!({"type": ["string", "null"]}), "nullable"), json!("nullable"));
    assert_eq!(typed(json!({"type": ["string", "null"]}), " Null "), json!(null));
    assert_eq!(typed(json!({"type": ["string", "null"]}), " nul"), json!(" nul"));
}

#[test]
fn numbers_keep_their_digits() {
    let options = tools(json!({"n": {"type": "number"}, "i": {"type": "integer"}}));
    let text =
        call(&ns("⟨<n>0.1000000000000000055511151231257827⟨</n>⟨<i>123456789012345678901234567890⟨</i>"));
    let parsed = parse(&options, &text);
    assert_eq!(
        parsed.tool_calls[0].arguments,
        r#"{"n":0.1000000000000000055511151231257827,"i":123456789012345678901234567890}"#
    );
}

#[test]
fn keys_keep_the_order_of_the_output() {
    let options = tools(json!({"a": {"type": "integer"}, "b": {"type": "string"}, "c": {"type": "object"}}));
    let text = call(&ns("⟨<c>⟨<z>1⟨</z>⟨<y>2⟨</y>⟨</c>⟨<b>x⟨</b>⟨<a>1⟨</a>"));
    assert_eq!(parse(&options, &text).tool_calls[0].arguments, r#"{"c":{"z":"1","y":"2"},"b":"x","a":1}"#);
}

#[test]
fn containers_as_json_text_and_as_elements() {
    let items = json!({"type": "array", "items": {"type": "object", "properties": {"id": {"type": "integer"},
        "text": {"type": "string"}, "done": {"type": "boolean"}}}});
    let element = "⟨<item>⟨<id>1⟨</id>⟨<text>007⟨</text>⟨<done>false⟨</done>⟨</item>\n";
    let expected = json!({"id": 1, "text": "007", "done": false});
    assert_eq!(typed(items.clone(), &format!("\n{element}{element}")), json!([expected, expected]));
    assert_eq!(typed(items.clone(), " [{\"id\": 1}] "), json!([{"id": 1}]));
    assert_eq!(typed(items, "[{\"id\": 1}"), json!("[{\"id\": 1}"));
    assert_eq!(typed(json!({"type": "object"}), "{\"a\":[1]}"), json!({"a": [1]}));
    assert_eq!(typed(json!({"type": "object"}), " \n"), json!({}));
}

#[test]
fn objects_without_described_properties_infer_literals() {
    let text = "⟨<a>1⟨</a>⟨<b>true⟨</b>⟨<n>null⟨</n>⟨<c>⟨<item>x⟨</item>⟨<item>2⟨</item>⟨</c>";
    let expected = json!({"a": "1", "b": true, "n": null, "c": ["x", "2"]});
    assert_eq!(typed(json!({"type": "object"}), text), expected);
    assert_eq!(typed(json!({}), text), expected);
    let no_tools = arguments(&options(), &format!("⟨<x>{text}⟨</x>"));
    assert_eq!(no_tools["x"], json!({"a": "1", "b": "true", "n": "null", "c": ["x", "2"]}));
    let described = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
    assert_eq!(typed(described, text), json!({"a": 1, "b": "true", "n": "null", "c": ["x", "2"]}));
}

#[test]
fn values_that_may_be_strings_or_containers() {
    let either = json!({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "integer"}}]});
    assert_eq!(typed(either.clone(), "plain ⟨<item>1⟨</item>"), json!(ns("plain ⟨<item>1⟨</item>")));
    assert_eq!(typed(either.clone(), "⟨<item>1⟨</item>"), json!([1]));
    assert_eq!(typed(either, "[1]"), json!([1]));
    let object =
        json!({"oneOf": [{"type": "object", "properties": {"a": {"type": "integer"}}}, {"type": "array"}]});
    assert_eq!(typed(object.clone(), "⟨<a>1⟨</a>"), json!({"a": 1}));
    assert_eq!(typed(object, "⟨<item>1⟨</item>"), json!(["1"]));
}

#[test]
fn elements_for_a_scalar_become_an_object() {
    assert_eq!(typed(json!({"type": "integer"}), "⟨<a>1⟨</a>"), json!({"a": "1"}));
    assert_eq!(typed(json!({"type": "string"}), "⟨<a>1⟨</a>"), json!(ns("⟨<a>1⟨</a>")));
}
