//! The shared collection of outputs, at every split and as the model's own tokens. Skipped, loudly, where the
//! collection is not at hand; the other modules need no data.

use std::path::PathBuf;

use super::*;

fn collection() -> Option<(PathBuf, Value)> {
    let data = m3_testdata::shared("parser_cases.json")?;
    let text = std::fs::read_to_string(data.join("parser_cases.json")).unwrap();
    Some((data, value_of(&text)))
}

fn case_options(case: &Value) -> ParserOptions {
    let thinking_mode = match case["thinking_mode"].as_str().unwrap() {
        "adaptive" => ThinkingMode::Adaptive,
        "enabled" => ThinkingMode::Enabled,
        "disabled" => ThinkingMode::Disabled,
        other => panic!("{other}"),
    };
    ParserOptions { thinking_mode, tools: Arc::new(ToolSet::from_json(&case["tools"]).unwrap()), ..options() }
}

fn as_json(parsed: &Parsed) -> Value {
    let calls: Vec<_> = calls(parsed)
        .into_iter()
        .map(|(name, arguments)| json!({"name": name, "arguments": arguments}))
        .collect();
    json!({"reasoning": parsed.reasoning, "content": parsed.content, "tool_calls": calls})
}

fn accepts(case: &Value, expected: &str, got: &Value) -> bool {
    let also = case.get("also_acceptable").and_then(Value::as_array).cloned().unwrap_or_default();
    got == &case[expected] || also.contains(got)
}

#[test]
fn whole_cases_at_every_split() {
    let Some((_, cases)) = collection() else { return };
    let list = cases["batch"].as_array().unwrap();
    assert!(list.len() >= 60);
    for case in list {
        let got = as_json(&parse(&case_options(case), case["text"].as_str().unwrap()));
        assert!(accepts(case, "expected", &got), "{}: {got}", case["id"]);
    }
}

#[test]
fn streaming_cases() {
    let Some((_, cases)) = collection() else { return };
    let list = cases["streaming"].as_array().unwrap();
    assert!(list.len() >= 11);
    for case in list {
        let chunks: Vec<&str> =
            case["chunks"].as_array().unwrap().iter().map(|c| c.as_str().unwrap()).collect();
        let options = case_options(case);
        let got = run(&options, chunks.iter().map(|chunk| Piece::text(chunk)));
        assert!(accepts(case, "expected_joined", &as_json(&got.parsed)), "{}: {got:?}", case["id"]);
        assert_eq!(got, outcome(&options, &chunks.concat()), "{}", case["id"]);
    }
}

#[test]
fn whole_cases_token_by_token() {
    let Some((data, cases)) = collection() else { return };
    let tokenizer = tokenizers::Tokenizer::from_file(data.join("tokenizer.reconstructed.json")).unwrap();
    for case in cases["batch"].as_array().unwrap() {
        let text = case["text"].as_str().unwrap();
        let options = case_options(case);
        let encoding = tokenizer.encode(text, false).unwrap();
        let mut from = 0;
        let mut pieces = Vec::new();
        for (id, (_, end)) in encoding.get_ids().iter().zip(encoding.get_offsets()) {
            // Tokens inside a character share its offsets; only the first of them carries the text.
            let end = (*end).max(from);
            pieces.push(Piece { token: Some(*id), text: &text[from..end] });
            from = end;
        }
        assert_eq!(from, text.len());
        assert_eq!(run(&options, pieces), run(&options, [Piece::text(text)]), "{}", case["id"]);
    }
}
