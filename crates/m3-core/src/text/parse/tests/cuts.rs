//! Output cut at every byte: arguments are valid JSON, complete calls are kept, both ways of feeding agree.

use super::*;

fn long_answer() -> (ParserOptions, String) {
    let options = tools(json!({"s": {"type": "string"}, "n": {"type": "integer"}, "l": {"type": "array",
        "items": {"type": "integer"}}, "o": {"type": "object"}, "m": {"type": ["string", "null"]}}));
    let text = "<mm:think>weigh 汉</mm:think>Two calls.\n⟨<tool_call>\n\
        ⟨<invoke name=\"f\">⟨<s>a \"q\" 🌶️\n⟨</s>⟨<n>42⟨</n>⟨<l>⟨<item>1⟨</item>\n⟨<item>2⟨</item>⟨</l>⟨</invoke>\n\
        ⟨<invoke name=\"g\">⟨<u>free⟨</u>⟨<v>⟨<k>1⟨</k>⟨</v>⟨</invoke>\n⟨</tool_call>and\n⟨<tool_call>\n\
        ⟨<invoke name=\"f\">⟨<o>⟨<a>true⟨</a>⟨</o>⟨<m>null⟨</m>⟨<s>]<] ⟨ x⟨</s>⟨</invoke>\n⟨</tool_call>\nend";
    (options, ns(text))
}

#[test]
fn every_prefix_gives_valid_calls_in_both_ways() {
    let (options, text) = long_answer();
    let whole = outcome(&options, &text);
    let full = calls(&whole.parsed);
    assert_eq!(whole.faults, Faults { undeclared_tools: 1, ..Faults::default() });
    assert_eq!(full.len(), 3);
    assert_eq!(full[0].1, json!({"s": "a \"q\" 🌶️\n", "n": 42, "l": [1, 2]}));
    assert_eq!(full[1].1, json!({"u": "free", "v": {"k": "1"}}));
    assert_eq!(full[2].1, json!({"o": {"a": true}, "m": null, "s": ns("]<] ⟨ x")}));
    for end in text.char_indices().map(|(at, _)| at) {
        let prefix = &text[..end];
        let at_once = run(&options, [Piece::text(prefix)]);
        let characters = splits(prefix, 3);
        for positions in characters.iter().take(2).chain(characters.iter().rev().take(3)) {
            assert_eq!(run(&options, cut(prefix, positions)), at_once, "{prefix:?}");
        }
        check_prefix(&at_once.parsed, &full, prefix);
    }
}

/// Calls closed within the prefix are whole; the last one may lack parameters, and of its strings the end.
fn check_prefix(parsed: &Parsed, full: &[(&str, Value)], prefix: &str) {
    let got = calls(parsed);
    let closed = prefix.matches("</invoke>").count();
    assert_eq!(&got[..closed], &full[..closed], "{prefix:?}");
    assert!(got.len() <= closed + 1);
    let Some((name, arguments)) = got.get(closed) else { return };
    assert_eq!(*name, full[closed].0);
    for (key, value) in arguments.as_object().unwrap() {
        let whole = &full[closed].1[key];
        match (value.as_str(), whole.as_str()) {
            // What may be a tag's beginning at the very end is left out.
            (Some(begun), Some(text)) => assert!(text.starts_with(begun), "{prefix:?}: {key} {begun:?}"),
            _ => assert_eq!(value, whole, "{prefix:?}: {key}"),
        }
    }
}
