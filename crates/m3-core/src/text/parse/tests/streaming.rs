//! What is sent when, and how long it takes.

use std::time::Instant;

use super::*;

fn push(parser: &mut OutputParser, text: &str) -> Vec<Delta> {
    parser.push(Piece::text(&ns(text)))
}

fn fragment(text: &str) -> Vec<Delta> {
    vec![Delta::ToolArguments { index: 0, fragment: text.to_owned() }]
}

#[test]
fn string_arguments_are_sent_as_they_come() {
    let mut parser = OutputParser::new(tools(json!({"s": {"type": "string"}, "n": {"type": "integer"}})));
    assert_eq!(push(&mut parser, "⟨<tool_call>\n⟨<invoke name=\"f\""), []);
    let start = push(&mut parser, ">");
    assert!(matches!(&start[..], [Delta::ToolStart { index: 0, name, .. }] if name == "f"));
    assert_eq!(push(&mut parser, "⟨<s>"), fragment("{\"s\":\""));
    assert_eq!(push(&mut parser, "a\"b"), fragment("a\\\"b"));
    assert_eq!(push(&mut parser, "汉 ]<]"), fragment("汉 "));
    assert_eq!(push(&mut parser, "x⟨</s"), fragment("]<]x"));
    assert_eq!(push(&mut parser, ">"), fragment("\""));
    assert_eq!(push(&mut parser, "⟨<n>"), []);
    assert_eq!(push(&mut parser, "12"), []);
    assert_eq!(push(&mut parser, "⟨</n>"), []);
    let end = push(&mut parser, "⟨</invoke>");
    assert_eq!(end, [fragment(",\"n\":12}"), vec![Delta::ToolEnd { index: 0 }]].concat());
    assert_eq!(push(&mut parser, "\n⟨</tool_call>"), []);
    assert_eq!(parser.finish(), []);
    assert_eq!((parser.num_tool_calls(), parser.faults()), (1, Faults::default()));
}

#[test]
fn undeclared_strings_are_sent_as_they_come() {
    let mut parser = OutputParser::new(options());
    push(&mut parser, "⟨<tool_call>⟨<invoke name=\"f\">");
    assert_eq!(push(&mut parser, "⟨<s> \n"), []);
    assert_eq!(push(&mut parser, "a"), fragment("{\"s\":\" \\na"));
    assert_eq!(push(&mut parser, "b"), fragment("b"));
}

#[test]
fn nullable_strings_wait_only_while_they_may_be_null() {
    let mut parser = OutputParser::new(tools(json!({"s": {"type": ["string", "null"]}})));
    push(&mut parser, "⟨<tool_call>⟨<invoke name=\"f\">⟨<s>");
    assert_eq!(push(&mut parser, "nul"), []);
    assert_eq!(push(&mut parser, "e"), fragment("{\"s\":\"nule"));
    assert_eq!(push(&mut parser, "n"), fragment("n"));
}

#[test]
fn plain_text_is_never_held() {
    let mut parser = OutputParser::new(ParserOptions { thinking_mode: ThinkingMode::Enabled, ..options() });
    for word in ["I", " think", " <b", "> so", "."] {
        let deltas = push(&mut parser, word);
        assert_eq!(deltas, [Delta::Reasoning(word.into())]);
    }
    push(&mut parser, "</mm:think>");
    for (word, sent) in
        [("We", "We"), (" <b", " <b"), ("> ]<", "> "), ("[ said", "]<[ said"), (".]", "."), ("]", "]")]
    {
        assert_eq!(push(&mut parser, word), [Delta::Content(sent.into())], "{word}");
    }
    assert_eq!(parser.finish(), [Delta::Content("]".into())]);
}

/// Feeds a text a character at a time and returns the seconds it took.
fn seconds(options: &ParserOptions, text: &str) -> f64 {
    let start = Instant::now();
    let mut parser = OutputParser::new(options.clone());
    let mut sent = 0;
    let mut buffer = [0; 4];
    for character in text.chars() {
        sent += parser.push(Piece::text(character.encode_utf8(&mut buffer))).len();
    }
    sent += parser.finish().len();
    assert!(sent > 0);
    start.elapsed().as_secs_f64()
}

/// Outputs of about `size` bytes, each the worst of its kind.
fn long_outputs(size: usize) -> Vec<(&'static str, String)> {
    let fill = |unit: &str| unit.repeat(size / unit.len());
    vec![
        ("string argument", call(&ns(&format!("⟨<s>{}⟨</s>", fill("word \"quoted\"\n"))))),
        ("nested string", call(&ns(&format!("⟨<o>⟨<k>{}⟨</k>⟨</o>", fill("word "))))),
        ("repeated items", call(&ns(&format!("⟨<o>{}⟨</o>", fill("⟨<item>1⟨</item>"))))),
        (
            "many parameters",
            call(&(0..size / 60).map(|n| ns(&format!("⟨<p{n}>1⟨</p{n}>"))).collect::<String>()),
        ),
        ("false starts", fill("<mm:thin ]<]minimax>[ ")),
        ("false closers", call(&ns(&format!("⟨<s>{}⟨</s>", fill(&ns("⟨ </t>")))))),
        ("space before the answer", format!("{}x", fill(" \n"))),
        ("space behind the marker", ns(&format!("⟨{}", fill(" ")))),
        ("space in a value", call(&ns(&format!("⟨<s>{}⟨</s>⟨<u>{}", fill(" "), fill(" "))))),
        ("reasoning", format!("<mm:think>{}", fill("</mm:think "))),
        ("stray text", call(&ns(&format!("⟨{}", fill("stray "))))),
        ("tag without end", call(&ns(&format!("⟨<o>⟨<{}", fill("x"))))),
    ]
}

#[test]
fn a_two_megabyte_string_argument_a_character_at_a_time() {
    let text = call(&ns(&format!("⟨<s>{}⟨</s>", "0123456789abcde\n".repeat(1 << 17))));
    let options = tools(json!({"s": {"type": "string"}}));
    let took = seconds(&options, &text);
    assert!(took < 20.0, "{took} s");
    let parsed = run(&options, [Piece::text(&text)]).parsed;
    assert_eq!(value_of(&parsed.tool_calls[0].arguments)["s"].as_str().unwrap().len(), 1 << 21);
}

#[test]
fn time_grows_with_the_length_alone() {
    let options = ParserOptions {
        stop: vec!["word word x".into(), "<mm:thin ]<]minimax>[ y".into()],
        stop_in_arguments: true,
        ..tools(json!({"s": {"type": "string"}, "o": {"type": "object"}}))
    };
    let (small, factor) = (20_000, 8);
    for ((name, short), (_, long)) in long_outputs(small).into_iter().zip(long_outputs(small * factor)) {
        let (base, grown) = (seconds(&options, &short), seconds(&options, &long));
        // Quadratic work would take `factor` squared; the constant absorbs a busy machine.
        let limit = base * (factor * 4) as f64 + 0.5;
        assert!(grown < limit, "{name}: {base} s, then {grown} s");
    }
}
