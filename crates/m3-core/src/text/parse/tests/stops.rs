//! Stop strings through the whole parser.

use super::*;

fn stopping(stops: &[&str]) -> ParserOptions {
    ParserOptions { stop: stops.iter().map(|text| (*text).to_owned()).collect(), ..options() }
}

fn check(options: &ParserOptions, text: &str, content: Option<&str>, stop: Option<&str>) {
    let got = outcome(options, &ns(text));
    assert_eq!((got.parsed.content.as_deref(), got.stop.as_deref()), (content, stop), "{text:?}");
}

#[test]
fn e6_e7_a_stop_string_across_pieces_leaks_nothing() {
    let options = stopping(&["own fox"]);
    check(&options, "The quick brown fox jumps", Some("The quick br"), Some("own fox"));
    let mut parser = OutputParser::new(options);
    assert_eq!(parser.push(Piece::text("The quick br")), [Delta::Content("The quick br".into())]);
    assert_eq!(parser.push(Piece::text("own")), []);
    assert_eq!(parser.push(Piece::text(" fox")), []);
    assert_eq!(parser.stop_hit(), Some("own fox"));
}

#[test]
fn e9_text_after_the_stop_string_is_gone() {
    check(&stopping(&["five"]), "one four five six seven", Some("one four "), Some("five"));
    let text = format!("a five {}", call(""));
    let parsed = parse(&stopping(&["five"]), &text);
    assert_eq!((parsed.content.as_deref(), parsed.tool_calls.len()), (Some("a "), 0));
}

#[test]
fn e10_stop_strings_of_wide_characters() {
    check(&stopping(&["。好"]), "你。。好吗", Some("你。"), Some("。好"));
    check(&stopping(&["🌶️"]), "a🌶b🌶️c", Some("a🌶b"), Some("🌶️"));
    check(&stopping(&["。好"]), "你。", Some("你。"), None);
}

#[test]
fn e12_reasoning_and_arguments_are_left_alone_by_default() {
    let options = stopping(&["\n\n", "STOP"]);
    let text = format!("<mm:think>a\n\nb STOP</mm:think>c{}\n\nd", call(&ns("⟨<x>e\n\nSTOP⟨</x>")));
    let got = outcome(&options, &text);
    assert_eq!(got.parsed.reasoning.as_deref(), Some("a\n\nb STOP"));
    assert_eq!(calls(&got.parsed), [("f", json!({"x": "e\n\nSTOP"}))]);
    assert_eq!((got.parsed.content.as_deref(), got.stop.as_deref()), (Some("c"), Some("\n\n")));
}

#[test]
fn stop_strings_in_reasoning_when_asked() {
    let options = ParserOptions { stop_in_reasoning: true, ..stopping(&["STOP"]) };
    let got = outcome(&options, "<mm:think>a STOP b</mm:think>c");
    assert_eq!((got.parsed.reasoning.as_deref(), got.parsed.content), (Some("a "), None));
    assert_eq!(got.stop.as_deref(), Some("STOP"));
    check(&options, "<mm:think>ST</mm:think>OP", Some("OP"), None);
}

#[test]
fn stop_strings_in_arguments_when_asked() {
    let options = ParserOptions {
        stop_in_arguments: true,
        stop: vec!["STOP".into()],
        ..tools(json!({"s": {"type": "string"}, "n": {"type": "integer"}, "o": {"type": "object"}}))
    };
    for (elements, expected) in [
        ("⟨<n>1⟨</n>⟨<s>a\nSTOP b⟨</s>", json!({"n": 1, "s": "a\n"})),
        ("⟨<n>1⟨</n>⟨<o>⟨<k>STOP⟨</k>⟨</o>", json!({"n": 1})),
        ("⟨<s>ST⟨</s>⟨<n>1STOP⟨</n>", json!({"s": "ST"})),
    ] {
        let got = outcome(&options, &format!("x{}y", call(&ns(elements))));
        assert_eq!(calls(&got.parsed), [("f", expected)], "{elements}");
        assert_eq!((got.stop.as_deref(), got.parsed.content.as_deref()), (Some("STOP"), Some("x")));
    }
    let kept = ParserOptions { include_stop: true, ..options };
    let got = outcome(&kept, &call(&ns("⟨<s>aSTOP⟨</s>")));
    assert_eq!(calls(&got.parsed), [("f", json!({"s": "aSTOP"}))]);
}

#[test]
fn the_stop_string_can_be_kept() {
    let options = ParserOptions { include_stop: true, ..stopping(&["fox"]) };
    check(&options, "a fox b", Some("a fox"), Some("fox"));
}

#[test]
fn held_text_is_released_before_markup_and_at_the_end() {
    let options = stopping(&["abc"]);
    check(&options, "xab", Some("xab"), None);
    let got = outcome(&options, &format!("xab{}c", call("")));
    assert_eq!((got.parsed.content.as_deref(), got.stop), (Some("xabc"), None));
    check(&options, "ab<mm:think>r</mm:think>c", Some("abc"), None);
}

#[test]
fn stop_strings_see_white_space_before_the_answer_and_markers_do_not_hide() {
    check(&stopping(&["\n\n"]), "\n\nHello", None, Some("\n\n"));
    check(&stopping(&["\n\n"]), "  \n", Some("  \n"), None);
    check(&stopping(&["</mm:think>"]), "</mm:think>a</mm:think>b", Some("a"), Some("</mm:think>"));
    let parsed = parse(&stopping(&["\n\n"]), &format!("\n\n{}", call("")));
    assert_eq!(parsed.tool_calls.len(), 1);
}

#[test]
fn an_empty_stop_string_stops_nothing() {
    check(&stopping(&[""]), "text", Some("text"), None);
}
