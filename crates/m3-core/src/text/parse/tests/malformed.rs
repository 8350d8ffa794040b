//! Malformed tool markup: one test per situation of the specification's table, and neighbours of them.

use super::*;

fn weather() -> ParserOptions {
    tools(json!({"city": {"type": "string"}, "days": {"type": "integer"}, "tags": {"type": "array",
        "items": {"type": "string"}}, "addr": {"type": "object", "properties": {"town": {"type": "string"},
        "zip": {"type": "string"}}}, "note": {"type": ["string", "null"]}, "meta": {"type": "object"},
        "opt": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}))
}

/// Content and calls of an output.
fn answer(text: &str) -> (Option<String>, Vec<(String, Value)>, Faults) {
    let got = outcome(&weather(), &ns(text));
    assert_eq!(got.parsed.reasoning, None);
    let list = calls(&got.parsed).into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    (got.parsed.content, list, got.faults)
}

fn one(text: &str) -> (Value, Faults) {
    let (content, calls, faults) = answer(text);
    assert_eq!((content, calls.len()), (None, 1), "{text}");
    (calls[0].1.clone(), faults)
}

const OPEN: &str = "⟨<tool_call>\n⟨<invoke name=\"f\">";
const CLOSE: &str = "⟨</invoke>\n⟨</tool_call>";

#[test]
fn block_without_its_closing_tag() {
    let (content, calls, _) = answer(&format!("Ok {OPEN}⟨<city>Rome⟨</city>⟨</invoke>\n"));
    assert_eq!(content.as_deref(), Some("Ok "));
    assert_eq!(calls, [("f".into(), json!({"city": "Rome"}))]);
}

#[test]
fn call_without_its_closing_tag() {
    let (value, faults) = one(&format!("{OPEN}⟨<city>Rome⟨</city>⟨</tool_call>"));
    assert_eq!((value, faults.unclosed_calls), (json!({"city": "Rome"}), 1));
    let (_, calls, faults) = answer(&format!("{OPEN}⟨<days>1⟨</days>⟨<invoke name=\"g\">⟨<x>2⟨</x>{CLOSE}"));
    assert_eq!(calls, [("f".into(), json!({"days": 1})), ("g".into(), json!({"x": "2"}))]);
    assert_eq!(faults.unclosed_calls, 1);
}

#[test]
fn cut_inside_a_value() {
    let (value, faults) = one(&format!("{OPEN}⟨<days>3⟨</days>⟨<city>San Fr"));
    assert_eq!((value, faults.truncated_calls), (json!({"days": 3, "city": "San Fr"}), 1));
    let (value, faults) = one(&format!("{OPEN}⟨<city>Rome⟨</city>⟨<days>1"));
    assert_eq!((value, faults.dropped_parameters), (json!({"city": "Rome"}), 1));
    let (value, _) = one(&format!("{OPEN}⟨<addr>⟨<town>Oslo⟨</town>⟨<zip>01"));
    assert_eq!(value, json!({}));
    let (value, _) = one(&format!("{OPEN}⟨<city>Rome⟨</ci"));
    assert_eq!(value, json!({"city": "Rome"}));
}

#[test]
fn mismatched_closing_tag() {
    let (value, faults) = one(&format!("{OPEN}⟨<addr>⟨<town>Oslo⟨</city>⟨</addr>⟨<days>1⟨</days>{CLOSE}"));
    assert_eq!((value, faults.mismatched_tags), (json!({"days": 1}), 1));
    let (value, _) = one(&format!("{OPEN}⟨<days>1⟨</day>⟨<city>Rome⟨</city>{CLOSE}"));
    assert_eq!(value, json!({"city": "Rome"}));
    let (value, _) = one(&format!("{OPEN}⟨<addr>⟨<town>Oslo⟨</town>⟨</adr>⟨<city>Rome⟨</city>{CLOSE}"));
    assert_eq!(value, json!({"city": "Rome"}));
    let (value, _) = one(&format!("{OPEN}⟨<addr>⟨<town>Oslo⟨</town>⟨</town>⟨<zip>01⟨</zip>⟨</addr>{CLOSE}"));
    assert_eq!(value, json!({"addr": {"town": "Oslo", "zip": "01"}}));
    let (value, _) = one(&format!("{OPEN}⟨</nothing>⟨<city>Rome⟨</city>⟨</city>{CLOSE}"));
    assert_eq!(value, json!({"city": "Rome"}));
}

#[test]
fn undeclared_tool() {
    let (content, calls, faults) =
        answer(&ns("⟨<tool_call>⟨<invoke name=\"ghost\">⟨<x>1⟨</x>⟨</invoke>⟨</tool_call>"));
    assert_eq!((content, faults.undeclared_tools), (None, 1));
    assert_eq!(calls, [("ghost".into(), json!({"x": "1"}))]);
}

#[test]
fn text_after_a_block() {
    let (content, calls, _) = answer(&format!("{OPEN}{CLOSE}\nDone."));
    assert_eq!((content.as_deref(), calls.len()), (Some("\nDone."), 1));
}

#[test]
fn white_space_around_blocks_is_no_content() {
    let (content, calls, faults) = answer(&format!("\n \n{OPEN}{CLOSE}\n\n{OPEN}{CLOSE}\n"));
    assert_eq!((content, calls.len(), faults.total()), (None, 2, 0));
    let got = outcome(&weather(), &ns(&format!("<mm:think>t</mm:think>\n\n{OPEN}{CLOSE}")));
    assert_eq!((got.parsed.reasoning.as_deref(), got.parsed.content), (Some("t"), None));
}

#[test]
fn text_beside_child_elements() {
    let (value, faults) = one(&format!("{OPEN}⟨<meta>hello⟨<a>1⟨</a>⟨</meta>{CLOSE}"));
    assert_eq!((value, faults.stray_text), (json!({"meta": {"a": "1", "$text": "hello"}}), 1));
    let (value, _) = one(&format!("{OPEN}⟨<tags>⟨<item>a⟨</item> and ⟨<item>b⟨</item>⟨</tags>{CLOSE}"));
    assert_eq!(value, json!({"tags": ["a", "b"]}));
}

#[test]
fn repeated_parameter() {
    let (value, faults) = one(&format!("{OPEN}⟨<city>A⟨</city>⟨<days>1⟨</days>⟨<city>B⟨</city>{CLOSE}"));
    assert_eq!((value, faults.repeated_keys), (json!({"city": "A", "days": 1}), 1));
    let (value, faults) = one(&format!("{OPEN}⟨<days>1⟨</days>\n⟨<days>2⟨</days>{CLOSE}"));
    assert_eq!((value, faults.repeated_keys), (json!({"days": [1, 2]}), 1));
    let (value, _) = one(&format!("{OPEN}⟨<days>1⟨</days>⟨<opt>1⟨</opt>⟨<days>2⟨</days>{CLOSE}"));
    assert_eq!(value, json!({"days": 1, "opt": 1}));
    let (value, _) = one(&format!("{OPEN}⟨<tags>a⟨</tags>⟨<tags>b⟨</tags>{CLOSE}"));
    assert_eq!(value, json!({"tags": ["a", "b"]}));
    let (value, _) = one(&format!("{OPEN}⟨<note>null⟨</note>⟨<note>x⟨</note>{CLOSE}"));
    assert_eq!(value, json!({"note": [null, "x"]}));
}

#[test]
fn empty_array() {
    let (value, _) = one(&format!("{OPEN}⟨<tags>⟨</tags>{CLOSE}"));
    assert_eq!(value, json!({"tags": []}));
}

#[test]
fn array_children_of_another_name() {
    let (value, _) = one(&format!("{OPEN}⟨<tags>⟨<tag>a⟨</tag>⟨<tag>b⟨</tag>⟨</tags>{CLOSE}"));
    assert_eq!(value, json!({"tags": ["a", "b"]}));
}

#[test]
fn nullable_string_without_text() {
    let (value, _) = one(&format!("{OPEN}⟨<note>⟨</note>{CLOSE}"));
    assert_eq!(value, json!({"note": ""}));
}

#[test]
fn block_without_calls() {
    let (content, calls, _) = answer("⟨<tool_call>\n⟨</tool_call>");
    assert_eq!((content, calls.len()), (None, 0));
    let (content, calls, faults) = answer("a⟨<tool_call>what⟨</tool_call>b");
    assert_eq!((content.as_deref(), calls.len(), faults.stray_text), (Some("ab"), 0, 1));
}

#[test]
fn call_names_in_other_quotes() {
    for name in ["'f'", "f", "\"f\"", "\" f \""] {
        let (_, calls, _) = answer(&format!("⟨<tool_call>⟨<invoke name={name}>⟨<days>1⟨</days>{CLOSE}"));
        assert_eq!(calls, [("f".into(), json!({"days": 1}))], "{name}");
    }
}

#[test]
fn call_without_a_name() {
    let (content, calls, faults) =
        answer(&format!("⟨<tool_call>⟨<invoke>⟨<days>1⟨</days>⟨</invoke>⟨<invoke name=\"f\">{CLOSE}"));
    assert_eq!((content, calls.len(), faults.nameless_calls), (None, 1, 1));
}

#[test]
fn fraction_for_an_integer() {
    let (value, faults) = one(&format!("{OPEN}⟨<days>3.7⟨</days>{CLOSE}"));
    assert_eq!((value, faults.untypable_values), (json!({"days": 3.7}), 1));
}

#[test]
fn integer_or_null() {
    let (value, _) = one(&format!("{OPEN}⟨<opt>5⟨</opt>{CLOSE}"));
    assert_eq!(value, json!({"opt": 5}));
    let (value, _) = one(&format!("{OPEN}⟨<opt>null⟨</opt>{CLOSE}"));
    assert_eq!(value, json!({"opt": null}));
}

#[test]
fn white_space_of_strings_is_kept() {
    let (value, _) = one(&format!("{OPEN}⟨<city>\n a \n⟨</city>⟨<addr>⟨<zip> 1 ⟨</zip>⟨</addr>{CLOSE}"));
    assert_eq!(value, json!({"city": "\n a \n", "addr": {"zip": " 1 "}}));
}

#[test]
fn white_space_behind_the_namespace_marker() {
    let text = "⟨\n<tool_call>\n⟨ <invoke name=\"f\">⟨\t<days>1⟨ \n</days>⟨ </invoke>⟨ </tool_call>";
    assert_eq!(one(text).0, json!({"days": 1}));
    let text = format!("⟨{}<tool_call>", " ".repeat(65));
    assert_eq!(answer(&text).0, Some(ns(&text)));
}

#[test]
fn self_closed_elements_are_empty() {
    let (value, _) = one(&format!("{OPEN}⟨<city/>⟨<addr>⟨<town/>⟨</addr>⟨<tags/>{CLOSE}"));
    assert_eq!(value, json!({"city": "", "addr": {"town": ""}, "tags": []}));
}

#[test]
fn nesting_beyond_the_limit_is_text() {
    for depth in [100, 126, 127, 128, 129, 400] {
        let text = format!("{OPEN}{}1{}{CLOSE}", "⟨<a>".repeat(depth), "⟨</a>".repeat(depth));
        let got = run(&weather(), [Piece::text(&ns(&text))]);
        let arguments = &got.parsed.tool_calls[0].arguments;
        assert!(value_of(arguments).is_object());
        assert_eq!(got.faults.too_deep > 0, depth > 127, "{depth}");
    }
    let twice = "⟨<a>⟨<b>0⟨</b>⟨<b>".repeat(120) + "1" + &"⟨</b>⟨</a>".repeat(120);
    let got = run(&weather(), [Piece::text(&ns(&format!("{OPEN}{twice}{CLOSE}")))]);
    assert!(value_of(&got.parsed.tool_calls[0].arguments).is_object());
}

#[test]
fn elements_may_carry_the_names_of_the_grammar() {
    let (value, _) =
        one(&format!("{OPEN}⟨<invoke>a⟨</invoke>⟨<tool_call>b⟨</tool_call>⟨<item>c⟨</item>{CLOSE}"));
    assert_eq!(value, json!({"invoke": "a", "tool_call": "b", "item": "c"}));
}

#[test]
fn a_call_whose_block_was_not_opened_is_a_call() {
    let (content, calls, faults) =
        answer("Hi ⟨<invoke name=\"f\">⟨<days>1⟨</days>⟨</invoke>\n⟨</tool_call>after");
    assert_eq!(content.as_deref(), Some("Hi after"));
    assert_eq!(calls, [("f".to_owned(), json!({"days": 1}))]);
    assert_eq!(faults.mismatched_tags, 1);
    let (content, calls, _) =
        answer("⟨<invoke name=\"f\">⟨</invoke>\n⟨<invoke name=\"g\">⟨</invoke>\n and ]<] more");
    assert_eq!(content.as_deref(), Some("and ]<] more"));
    assert_eq!(calls.len(), 2);
    let (content, calls, _) = answer("⟨<invoke name=\"f\">⟨<city>Rome");
    assert_eq!((content, calls), (None, vec![("f".to_owned(), json!({"city": "Rome"}))]));
}

#[test]
fn closing_tags_that_close_nothing_do_not_show() {
    for text in ["Hi ⟨</tool_call>there", "Hi ⟨</invoke>there", "Hi ⟨</invoke>⟨ </tool_call>there"] {
        let (content, calls, faults) = answer(text);
        assert_eq!((content.as_deref(), calls.len()), (Some("Hi there"), 0), "{text}");
        assert!(faults.mismatched_tags > 0);
    }
    let (content, calls, _) =
        answer("a⟨<tool_call>⟨<tool_call>⟨<invoke name=\"f\">⟨</invoke>⟨</tool_call>⟨</tool_call>b");
    assert_eq!((content.as_deref(), calls.len()), (Some("ab"), 1));
}

#[test]
fn an_opening_tag_that_the_end_has_cut_does_not_show() {
    for tail in ["⟨", "⟨⟨", "⟨ ]<]mini", "⟨<", "⟨ <tool_ca", "⟨</tool_call", "⟨ <invoke name=\"f"]
    {
        let (content, calls, _) = answer(&format!("Hi {tail}"));
        assert_eq!((content.as_deref(), calls.len()), (Some("Hi "), 0), "{tail}");
    }
    // What only resembles the marker is text.
    for tail in ["⟨x", "⟨<b>", "]<]mini"] {
        let (content, _, _) = answer(&format!("Hi {tail}"));
        assert_eq!(content, Some(ns(&format!("Hi {tail}"))), "{tail}");
    }
}

/// Sampled at high temperatures a model ends its answer in the middle of markup that it never began.
#[test]
fn a_parameters_end_in_content_is_left_out_and_its_text_stays() {
    for (text, content) in [
        ("The farm + 3⟨</count>\n", "The farm + 3\n"),
        ("YOU⟨</unit>⟨</invoke>\n⟨</tool_call>", "YOU\n"),
        ("Hi ⟨ </days> there", "Hi  there"),
        ("a⟨</dä", "a"),
    ] {
        let got = parse(&options(), &ns(text));
        assert_eq!(got.content.as_deref(), Some(content), "{text}");
        assert!(got.tool_calls.is_empty(), "{text}");
    }
    // Text behind a marker is no markup.
    assert_eq!(parse(&options(), &ns("x⟨hello")).content, Some(ns("x⟨hello")));
}
