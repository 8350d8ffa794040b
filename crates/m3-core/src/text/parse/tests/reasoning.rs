//! Where reasoning ends and content begins.

use super::*;

fn split(mode: ThinkingMode, text: &str) -> (Option<String>, Option<String>) {
    let parsed = parse(&ParserOptions { thinking_mode: mode, ..options() }, &ns(text));
    assert_eq!(parsed.tool_calls, []);
    (parsed.reasoning, parsed.content)
}

fn check(mode: ThinkingMode, text: &str, reasoning: Option<&str>, content: Option<&str>) {
    let got = split(mode, text);
    assert_eq!((got.0.as_deref(), got.1.as_deref()), (reasoning, content), "{mode:?} {text:?}");
}

#[test]
fn undecided_start_in_adaptive_and_disabled_mode() {
    for mode in [ThinkingMode::Adaptive, ThinkingMode::Disabled] {
        check(mode, "", None, None);
        check(mode, "Plain.", None, Some("Plain."));
        check(mode, "\n\nPlain.", None, Some("\n\nPlain."));
        check(mode, " \n", None, Some(" \n"));
        check(mode, "<mm:think>why</mm:think>so", Some("why"), Some("so"));
        check(mode, "\n <mm:think>why</mm:think>so", Some("why"), Some("so"));
        check(mode, "</mm:think>so", None, Some("so"));
        check(mode, " \n</mm:think>\nso", None, Some("\nso"));
        check(mode, "</mm:think>", None, None);
        check(mode, "</mm:think>\n<mm:think>why</mm:think>so", Some("why"), Some("so"));
        check(mode, "x</mm:think>y", None, Some("x</mm:think>y"));
    }
}

#[test]
fn enabled_mode_starts_inside() {
    let mode = ThinkingMode::Enabled;
    check(mode, "why</mm:think>so", Some("why"), Some("so"));
    check(mode, "<mm:think>why</mm:think>so", Some("why"), Some("so"));
    check(mode, "\n<mm:think>\nwhy</mm:think>so", Some("\nwhy"), Some("so"));
    check(mode, "\n why\n</mm:think>so", Some("\n why\n"), Some("so"));
    check(mode, "a<mm:think>b</mm:think>c", Some("a<mm:think>b"), Some("c"));
    check(mode, "<mm:think><mm:think>b</mm:think>c", Some("<mm:think>b"), Some("c"));
    check(mode, "never closed", Some("never closed"), None);
    check(mode, "</mm:think>so", None, Some("so"));
    check(mode, " </mm:think>so", Some(" "), Some("so"));
}

#[test]
fn reasoning_in_the_middle_and_twice() {
    let mode = ThinkingMode::Adaptive;
    check(mode, "Sure. <mm:think>hm</mm:think> Done.", Some("hm"), Some("Sure.  Done."));
    check(
        mode,
        "<mm:think>a</mm:think>b<mm:think>c</mm:think>d",
        Some("a"),
        Some("b<mm:think>c</mm:think>d"),
    );
    check(mode, "<mm:think></mm:think>b<mm:think>c", None, Some("b<mm:think>c"));
    check(mode, "<mm:think>a</mm:think>\n\nb", Some("a"), Some("\n\nb"));
    check(mode, "<mm:think>a<mm:think>b</mm:think>c", Some("a<mm:think>b"), Some("c"));
}

#[test]
fn false_starts_are_released_as_text() {
    let mode = ThinkingMode::Adaptive;
    for text in ["a <", "<mm:", "</mm:thin", "a <mm:thing> b", "]<]mini", "x⟨hello", "⟨<tool_calls>"] {
        check(mode, text, None, Some(&ns(text)));
        check(ThinkingMode::Enabled, text, Some(&ns(text)), None);
    }
}

#[test]
fn switched_off_parsing_passes_text_untouched() {
    let text = ns(
        "\n</mm:think>a<mm:think>b</mm:think> ⟨<tool_call>\n⟨<invoke name=\"f\">⟨</invoke>⟨</tool_call>\n",
    );
    for thinking_mode in [ThinkingMode::Adaptive, ThinkingMode::Enabled, ThinkingMode::Disabled] {
        let off = ParserOptions { thinking_mode, parse_reasoning: false, parse_tools: false, ..options() };
        assert_eq!(parse(&off, &text).content.as_deref(), Some(text.as_str()));
        let no_reasoning = ParserOptions { parse_tools: true, ..off };
        let parsed = parse(&no_reasoning, &text);
        assert_eq!(parsed.content.as_deref(), Some("\n</mm:think>a<mm:think>b</mm:think> "));
        assert_eq!(parsed.tool_calls.len(), 1);
    }
    let no_tools = ParserOptions { parse_tools: false, ..options() };
    let parsed = parse(&no_tools, &text);
    assert_eq!(parsed.reasoning.as_deref(), Some("b"));
    let rest = text.split_once("</mm:think> ").unwrap().1;
    assert_eq!(parsed.content.as_deref(), Some(format!("a {rest}").as_str()));
}

#[test]
fn the_parser_says_whether_reasoning_is_open() {
    let mut parser = OutputParser::new(ParserOptions { thinking_mode: ThinkingMode::Enabled, ..options() });
    assert!(parser.reasoning_open());
    parser.push(Piece::text("why</mm:thi"));
    assert!(parser.reasoning_open());
    parser.push(Piece::text("nk>"));
    assert!(!parser.reasoning_open());
    let mut parser = OutputParser::new(options());
    assert!(!parser.reasoning_open());
    parser.push(Piece { token: Some(200_059), text: "" });
    assert!(parser.reasoning_open());
}
