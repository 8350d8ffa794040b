//! Properties over generated outputs, well formed and broken: the split does not matter, arguments are always
//! valid JSON, markup of a well-formed output never shows, and a call reads back as it was written.

use proptest::prelude::*;

use super::*;

/// Text of one line of an output: markup, parts of markup, and ordinary text, in any order.
fn scraps() -> impl Strategy<Value = String> {
    let fixed = [
        "⟨",
        "⟨<tool_call>",
        "⟨</tool_call>",
        "⟨<invoke name=\"f\">",
        "⟨<invoke name='g'>",
        "⟨<invoke>",
        "⟨</invoke>",
        "⟨<s>",
        "⟨</s>",
        "⟨<n>",
        "⟨</n>",
        "⟨<o>",
        "⟨</o>",
        "⟨<l>",
        "⟨</l>",
        "⟨<item>",
        "⟨</item>",
        "⟨<u>",
        "⟨</u>",
        "⟨ <m>",
        "⟨\n</m>",
        "⟨<a/>",
        "<mm:think>",
        "</mm:think>",
        "<mm:",
        "</mm:think",
        "]<]",
        "]<]minimax[>",
        "<tool_call>",
        "\n",
        " ",
        "null",
        "12",
        "3.0",
        "{\"a\":1}",
        "[1,2]",
        "x",
        "汉字",
        "🌶️",
        "\"",
        "\\",
        "STOP",
        "ST",
        "⟨<",
        "⟨</",
        "⟨<tool",
        ">",
    ];
    let scrap = prop_oneof![
        8 => prop::sample::select(fixed.to_vec()).prop_map(ns),
        1 => "[a-z<>\\]\\[/ é]{0,6}",
    ];
    prop::collection::vec(scrap, 0..40).prop_map(|scraps| scraps.concat())
}

fn any_options() -> impl Strategy<Value = ParserOptions> {
    let modes = [ThinkingMode::Adaptive, ThinkingMode::Enabled, ThinkingMode::Disabled];
    let flags = prop::array::uniform6(any::<bool>());
    (prop::sample::select(modes.to_vec()), flags).prop_map(|(thinking_mode, flags)| {
        let [typed, stopping, in_reasoning, in_arguments, include_stop, parse_reasoning] = flags;
        let base = if typed {
            tools(
                json!({"s": {"type": "string"}, "n": {"type": "integer"}, "m": {"type": ["string", "null"]},
                "o": {"type": "object"}, "l": {"type": "array", "items": {"type": "number"}}}),
            )
        } else {
            options()
        };
        ParserOptions {
            thinking_mode,
            stop: if stopping { vec!["STOP".into(), "字🌶".into(), "\n\n".into()] } else { Vec::new() },
            stop_in_reasoning: in_reasoning,
            stop_in_arguments: in_arguments,
            include_stop,
            parse_reasoning,
            ..base
        }
    })
}

/// Text that a model writes as a value: anything but the namespace marker.
fn plain() -> impl Strategy<Value = String> {
    "[a-z<>/&\"\\\\ \n\\]\\[汉🌶]{0,12}"
}

/// A value and the elements that write it.
fn written() -> impl Strategy<Value = (Value, String)> {
    let leaf = plain().prop_map(|text| (json!(text), text));
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..4).prop_map(|items| {
                let text = items.iter().map(|(_, text)| format!("⟨<item>{text}⟨</item>")).collect();
                (Value::Array(items.into_iter().map(|(value, _)| value).collect()), text)
            }),
            prop::collection::btree_map("[b-h]{1,3}", inner, 1..4).prop_map(|entries| {
                let text =
                    entries.iter().map(|(key, (_, text))| format!("⟨<{key}>{text}⟨</{key}>")).collect();
                (Value::Object(entries.into_iter().map(|(key, (value, _))| (key, value)).collect()), text)
            }),
        ]
    })
}

proptest! {
    #[test]
    fn the_split_never_matters(options in any_options(), text in scraps()) {
        outcome(&options, &text);
    }

    #[test]
    fn every_cut_of_broken_output_is_answered(options in any_options(), text in scraps(), at in any::<prop::sample::Index>()) {
        let ends: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
        let prefix = &text[..ends[at.index(ends.len())]];
        let whole = run(&options, [Piece::text(prefix)]);
        let inner: Vec<usize> = prefix.char_indices().map(|(at, _)| at).skip(1).collect();
        prop_assert_eq!(run(&options, cut(prefix, &inner)), whole);
    }

    #[test]
    fn calls_read_back_as_they_were_written(
        reasoning in plain(), content in plain(), values in prop::collection::vec(written(), 1..4)
    ) {
        let elements: String = values.iter().enumerate().map(|(n, (_, text))| format!("⟨<p{n}>{text}⟨</p{n}>")).collect();
        let text = format!("<mm:think>.{reasoning}</mm:think>.{content}{}", call(&ns(&elements)));
        let text = ns(&text);
        prop_assume!(!reasoning.contains("mm:think") && !content.contains("mm:think"));
        let got = run(&options(), [Piece::text(&text)]);
        prop_assert_eq!(got.parsed.reasoning, Some(format!(".{reasoning}")));
        prop_assert_eq!(got.parsed.content, Some(format!(".{content}")));
        let expected: serde_json::Map<_, _> =
            values.iter().enumerate().map(|(n, (value, _))| (format!("p{n}"), value.clone())).collect();
        prop_assert_eq!(value_of(&got.parsed.tool_calls[0].arguments), Value::Object(expected));
        prop_assert_eq!(got.faults, Faults::default());
    }
}
