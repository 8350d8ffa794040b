//! Faults seen in other servers, each with an input of its own: reasoning (A) and tool calls (B). The differences
//! between paths that measuring found (S) are in `divergences`, stop strings (E) in `stops`.

use super::*;

fn adaptive(text: &str) -> (Option<String>, Option<String>) {
    let parsed = parse(&options(), &ns(text));
    assert_eq!(parsed.tool_calls, []);
    (parsed.reasoning, parsed.content)
}

fn pair(reasoning: Option<&str>, content: Option<&str>) -> (Option<String>, Option<String>) {
    (reasoning.map(str::to_owned), content.map(str::to_owned))
}

fn one(properties: Value, elements: &str) -> Value {
    arguments(&tools(properties), elements)
}

fn x(schema: Value, text: &str) -> Value {
    one(json!({"x": schema}), &format!("⟨<x>{text}⟨</x>"))["x"].clone()
}

#[test]
fn a1_markers_split_over_pieces() {
    let pieces = ["<mm", ":think>", "weigh it", "</mm:", "think>", "yes"];
    let got = run(&options(), pieces.map(Piece::text)).parsed;
    assert_eq!((got.reasoning, got.content), pair(Some("weigh it"), Some("yes")));
    let enabled = ParserOptions { thinking_mode: ThinkingMode::Enabled, ..options() };
    let got = run(&enabled, ["hm</m", "m:thi", "nk>", "yes"].map(Piece::text)).parsed;
    assert_eq!((got.reasoning, got.content), pair(Some("hm"), Some("yes")));
}

#[test]
fn a8_a_long_marker_in_three_pieces() {
    let enabled = ParserOptions { thinking_mode: ThinkingMode::Enabled, ..options() };
    let got = run(&enabled, ["</m", "m:thi", "nk>", "yes"].map(Piece::text)).parsed;
    assert_eq!((got.reasoning, got.content), pair(None, Some("yes")));
    let got = run(&options(), ["<mm:think>hm</m", "m:thi", "nk>", "yes"].map(Piece::text)).parsed;
    assert_eq!((got.reasoning, got.content), pair(Some("hm"), Some("yes")));
}

#[test]
fn a5_stray_closers_are_the_same_in_every_cut() {
    // `adaptive` reads the text at every cut and demands one result.
    for closers in ["</mm:think>", "</mm:think></mm:think>", "</mm:think>\n</mm:think>"] {
        assert_eq!(adaptive(&format!("{closers}Hello.")), pair(None, Some("Hello.")));
    }
}

#[test]
fn b7_a_long_string_flows_from_its_first_characters_on() {
    let mut parser =
        OutputParser::new(tools(json!({"path": {"type": "string"}, "content": {"type": "string"}})));
    let mut deltas =
        parser.push(Piece::text(&ns("⟨<tool_call>⟨<invoke name=\"f\">⟨<path>a.rs⟨</path>⟨<content>")));
    assert_eq!(fold(deltas.clone()).tool_calls[0].arguments, r#"{"path":"a.rs","content":""#);
    for _ in 0..1000 {
        let more = parser.push(Piece::text("let x;\n10"));
        assert_eq!(more, [Delta::ToolArguments { index: 0, fragment: "let x;\\n10".into() }]);
        deltas.extend(more);
    }
    deltas.extend(parser.push(Piece::text(&ns("⟨</content>⟨</invoke>⟨</tool_call>"))));
    deltas.extend(parser.finish());
    let arguments = value_of(&fold(deltas).tool_calls[0].arguments);
    assert_eq!(arguments["content"], "let x;\n10".repeat(1000));
}

#[test]
fn a2_start_state_comes_from_the_mode() {
    let enabled = ParserOptions { thinking_mode: ThinkingMode::Enabled, ..options() };
    let parsed = parse(&enabled, "weigh</mm:think>yes");
    assert_eq!((parsed.reasoning, parsed.content), pair(Some("weigh"), Some("yes")));
}

#[test]
fn a4_stray_closers_at_the_start() {
    assert_eq!(adaptive("</mm:think></mm:think>Hello again."), pair(None, Some("Hello again.")));
    assert_eq!(adaptive("</mm:think>\n</mm:think>\nHello."), pair(None, Some("\nHello.")));
    assert_eq!(adaptive("<mm:think>t</mm:think> </mm:think>Hello."), pair(Some("t"), Some("Hello.")));
    assert_eq!(adaptive("It ends with </mm:think>."), pair(None, Some("It ends with </mm:think>.")));
}

#[test]
fn a7_closer_inside_a_later_delta() {
    let got = run(&options(), ["<mm:think>t</mm:think>a", "b</mm:think>c"].map(Piece::text)).parsed;
    assert_eq!((got.reasoning, got.content), pair(Some("t"), Some("ab</mm:think>c")));
}

#[test]
fn a13_nothing_is_lost_in_large_pieces() {
    let text = "<mm:think>one two three</mm:think>four five";
    let pieces: Vec<_> = text.as_bytes().chunks(4).map(|chunk| std::str::from_utf8(chunk).unwrap()).collect();
    let got = run(&options(), pieces.into_iter().map(Piece::text)).parsed;
    assert_eq!((got.reasoning, got.content), pair(Some("one two three"), Some("four five")));
}

#[test]
fn b1_parameters_named_like_added_tokens() {
    let names = [
        "filename",
        "filepath",
        "file_content",
        "commit_message",
        "code_context",
        "reponame",
        "add_file",
        "edit_file",
        "delete_file",
        "rename_file",
        "review_comment",
        "issue_comment",
        "function_call",
        "think",
    ];
    for name in names {
        let elements = format!("⟨<{name}>a.md⟨</{name}>⟨<content>Hi⟨</content>");
        let expected = json!({name: "a.md", "content": "Hi"});
        assert_eq!(arguments(&options(), &elements), expected);
        assert_eq!(one(json!({name: {"type": "string"}}), &elements), expected);
    }
}

#[test]
fn b1_a_lost_opening_tag_is_recovered() {
    let elements = "⟨report.md⟨</filename>⟨<content>Hi⟨</content>";
    assert_eq!(arguments(&options(), elements), json!({"filename": "report.md", "content": "Hi"}));
    let got = outcome(&tools(json!({"count": {"type": "integer"}})), &call(&ns("\n⟨3⟨</count>")));
    assert_eq!(calls(&got.parsed)[0].1, json!({"count": 3}));
    assert_eq!(got.faults.recovered_parameters, 1);
}

#[test]
fn b1_a_dropped_token_text_is_restored() {
    let mut options = options();
    options.markers.tag_tokens = Arc::new([(200_006, "<filename>".to_owned())].into());
    let text = ns("⟨<tool_call>⟨<invoke name=\"f\">⟨");
    let tail = ns("a.md⟨</filename>⟨</invoke>⟨</tool_call>");
    let lost = Piece { token: Some(200_006), text: "" };
    let got = run(&options, [Piece::text(&text), lost, Piece::text(&tail)]);
    assert_eq!(calls(&got.parsed), [("f", json!({"filename": "a.md"}))]);
    assert_eq!(got.faults.total(), 0);
}

#[test]
fn b1_tag_like_tokens_stay_in_answers_and_reasoning() {
    let mut options = options();
    options.markers.tag_tokens = Arc::new([(200_006, "<filename>".to_owned())].into());
    let lost = Piece { token: Some(200_006), text: "" };
    let end = Piece { token: Some(200_020), text: "" };
    let text = Piece::text;
    let pieces = [text("<mm:think>the "), lost, text("</mm:think>write "), lost, text("x</filename>"), end];
    let got = run(&options, pieces);
    assert_eq!(got.parsed.reasoning.as_deref(), Some("the <filename>"));
    assert_eq!(got.parsed.content.as_deref(), Some("write <filename>x</filename>"));
    // Completions read no markup: there special tokens have no text, as their callers expect.
    let raw = ParserOptions { parse_tools: false, parse_reasoning: false, ..options };
    assert_eq!(run(&raw, [lost, text("a")]).parsed.content.as_deref(), Some("a"));
}

#[test]
fn b2_one_of_at_the_top() {
    let parameters = json!({"type": "object", "oneOf": [
        {"properties": {"n": {"type": "number"}}},
        {"properties": {"l": {"type": "array", "items": {"type": "string"}}}},
        {"properties": {"l": {"type": "array", "items": {"type": "integer"}}}}]});
    assert_eq!(arguments(&schema(parameters.clone()), "⟨<n>42⟨</n>"), json!({"n": 42}));
    let twelve = "⟨<l>⟨<item>12⟨</item>⟨<item>34⟨</item>⟨</l>";
    let either = arguments(&schema(parameters.clone()), twelve);
    assert!(either == json!({"l": ["12", "34"]}) || either == json!({"l": [12, 34]}), "{either}");
    let mut one = parameters;
    one["oneOf"].as_array_mut().unwrap().remove(1);
    assert_eq!(arguments(&schema(one), twelve), json!({"l": [12, 34]}));
}

#[test]
fn b4_nested_lists_of_objects() {
    let todos = json!({"type": "array", "items": {"type": "object", "properties": {"id": {"type": "integer"},
        "text": {"type": "string"}, "done": {"type": "boolean"}}}});
    let item =
        |id: u32, done| format!("⟨<item>⟨<id>{id}⟨</id>⟨<text>{id}⟨</text>⟨<done>{done}⟨</done>⟨</item>");
    let text = format!("{}\n{}", item(1, true), item(2, false));
    let expected = json!([{"id": 1, "text": "1", "done": true}, {"id": 2, "text": "2", "done": false}]);
    assert_eq!(x(todos, &text), expected);
}

#[test]
fn b5_strings_that_look_like_numbers() {
    assert_eq!(x(json!({"type": "string"}), "00501"), json!("00501"));
}

#[test]
fn b8_no_marker_in_the_visible_answer() {
    let parsed = parse(&options(), &format!("Sure.{}", call("")));
    assert_eq!((parsed.content.as_deref(), parsed.tool_calls.len()), (Some("Sure."), 1));
}

#[test]
fn b10_false_starts_are_released_at_once() {
    let mut parser = OutputParser::new(options());
    assert_eq!(parser.push(Piece::text("The symbol ]<]")), [Delta::Content("The symbol ".into())]);
    assert_eq!(parser.push(Piece::text(" is odd.")), [Delta::Content("]<] is odd.".into())]);
}

#[test]
fn b11_stray_text_between_parameters() {
    let got = outcome(&options(), &call(&ns("⟨<a>1⟨</a> oops ⟨<b>2⟨</b>")));
    assert_eq!(calls(&got.parsed)[0].1, json!({"a": "1", "b": "2"}));
    assert_eq!(got.faults.stray_text, 1);
}

#[test]
fn b13_markup_characters_in_values() {
    let code = "if a < b && c > d: <div class=\"x\">&amp;</div> ]]> ]<] </x>";
    assert_eq!(x(json!({"type": "string"}), code), json!(code));
}

#[test]
fn b14_single_quoted_names() {
    let parsed = parse(&options(), &ns("⟨<tool_call>⟨<invoke name='f'>⟨<a>1⟨</a>⟨</invoke>⟨</tool_call>"));
    assert_eq!(calls(&parsed), [("f", json!({"a": "1"}))]);
}

#[test]
fn b16_names_with_hyphens_and_other_signs() {
    let properties =
        json!({"-A": {"type": "integer"}, "-n": {"type": "boolean"}, "a b": {}, "a.b/c": {}, "ключ": {}});
    let elements = "⟨<-A>3⟨</-A>⟨<-n>true⟨</-n>⟨<a b>1⟨</a b>⟨<a.b/c>2⟨</a.b/c>⟨<ключ>3⟨</ключ>";
    assert_eq!(
        one(properties, elements),
        json!({"-A": 3, "-n": true, "a b": "1", "a.b/c": "2", "ключ": "3"})
    );
}

#[test]
fn b22_recursive_references() {
    let parameters = json!({"$ref": "#/$defs/N", "$defs": {"N": {"type": "object",
        "properties": {"v": {"type": "integer"}, "next": {"$ref": "#/$defs/N"}}}}});
    let elements = "⟨<v>1⟨</v>⟨<next>⟨<v>2⟨</v>⟨<next>⟨<v>3⟨</v>⟨<next>⟨<v>4⟨</v>⟨</next>⟨</next>⟨</next>";
    let expected = json!({"v": 1, "next": {"v": 2, "next": {"v": 3, "next": {"v": 4}}}});
    assert_eq!(arguments(&schema(parameters), elements), expected);
}

#[test]
fn b23_keys_in_a_name_attribute() {
    let elements = "⟨<parameter name=\"a\">1⟨</parameter>⟨<parameter name='b'>⟨<c>2⟨</c>⟨</parameter>";
    let value = one(json!({"a": {"type": "integer"}}), elements);
    assert_eq!(value, json!({"a": 1, "b": {"c": "2"}}));
}

#[test]
fn b25_output_cut_inside_a_call_is_closed() {
    let mut parser = OutputParser::new(options());
    let mut deltas = parser.push(Piece::text(&ns("⟨<tool_call>⟨<invoke name=\"f\">⟨<a>text")));
    deltas.extend(parser.finish());
    assert_eq!(deltas.last(), Some(&Delta::ToolEnd { index: 0 }));
    assert_eq!(fold(deltas).tool_calls[0].arguments, r#"{"a":"text"}"#);
    assert_eq!(parser.faults().truncated_calls, 1);
}

#[test]
fn b26_undeclared_tools_are_answered() {
    let text = ns("Again.⟨<tool_call>⟨<invoke name=\"old_tool\">⟨<a>1⟨</a>⟨</invoke>⟨</tool_call>");
    let got = outcome(&tools(json!({})), &text);
    assert_eq!(got.parsed.content.as_deref(), Some("Again."));
    assert_eq!(calls(&got.parsed), [("old_tool", json!({"a": "1"}))]);
    assert_eq!(got.faults.undeclared_tools, 1);
}

#[test]
fn b28_ids_are_given_once_and_differ() {
    let text = ns("⟨<tool_call>⟨<invoke name=\"f\">⟨</invoke>⟨<invoke name=\"f\">⟨</invoke>⟨</tool_call>");
    let random = ParserOptions { call_ids: CallIds::Random, ..options() };
    let parsed = run(&random, [Piece::text(&text)]).parsed;
    assert_ne!(parsed.tool_calls[0].id, parsed.tool_calls[1].id);
}
