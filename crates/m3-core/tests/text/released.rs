//! The released template and vocabulary against the handed-out cases. The files belong to the model's publisher
//! and lie outside the repository; without them every test here says so and passes.

use serde_json::Value;

use crate::support::{released_template, released_tokenizer, render, shared_data};

#[test]
fn every_template_case_in_text_and_ids() {
    let Some(data) = shared_data() else { return };
    let (template, tokenizer) = (released_template(&data), released_tokenizer(&data));
    let text = std::fs::read_to_string(data.join("template_cases.json")).unwrap();
    let file: Value = serde_json::from_str(&text).unwrap();
    let mut rendered_cases = 0;
    for case in file["cases"].as_array().unwrap() {
        let id = case["id"].as_str().unwrap();
        match (render(&template, case, &tokenizer), case["rendered"].as_str()) {
            (Ok(rendered), Some(expected)) => {
                assert_eq!(rendered.prompt, expected, "text of {id}");
                let ids = tokenizer.encode_segments(&rendered.segments).unwrap();
                let expected: Vec<u32> = serde_json::from_value(case["token_ids"].clone()).unwrap();
                assert_eq!(ids, expected, "ids of {id}");
                rendered_cases += 1;
            }
            (Err(error), None) => {
                let expected = case["error"].as_str().unwrap();
                let reason = expected.split_once(": ").map_or(expected, |(_, reason)| reason);
                assert!(error.to_string().ends_with(reason), "{id} failed with {error}, not {expected}");
            }
            (Ok(_), None) => panic!("{id} must fail with {}", case["error"]),
            (Err(error), Some(_)) => panic!("{id} failed: {error}"),
        }
    }
    assert!(rendered_cases > 20, "only {rendered_cases} cases rendered");
}

#[test]
fn known_ids_of_the_released_vocabulary() {
    let Some(data) = shared_data() else { return };
    let tokenizer = released_tokenizer(&data);
    assert_eq!(tokenizer.encode_ordinary(";\n//").unwrap(), [58184]);
    assert_eq!(tokenizer.encode_ordinary("Cafe\u{301}").unwrap(), [67, 154_797]);
    assert_eq!(tokenizer.encode_ordinary("Café").unwrap(), [67, 154_797]);
    assert_eq!(tokenizer.decode(&[67, 154_797], false), "Café");
    assert_eq!(tokenizer.vocab_len(), 200_061);
    assert_eq!(tokenizer.added_tokens().len(), 61);
    assert_eq!(tokenizer.token_bytes(200_061), None);
    for byte in 0..=255u8 {
        assert_eq!(tokenizer.token_bytes(u32::from(byte)), Some(&[byte][..]));
    }
    let markers: Vec<u32> = (200_050..=200_053).chain(200_058..=200_060).collect();
    let text: String = markers.iter().map(|id| tokenizer.decode(&[*id], false)).collect();
    assert_eq!(tokenizer.decode(&markers, true), text, "markers must survive skipping of special tokens");
    assert_eq!(tokenizer.decode(&[200_020, 10, 200_019], true), "\n");
}

#[test]
fn user_text_spelling_any_added_token_stays_text() {
    let Some(data) = shared_data() else { return };
    let tokenizer = released_tokenizer(&data);
    for token in tokenizer.added_tokens() {
        let ids = tokenizer.encode_ordinary(&format!("a{}b", token.content)).unwrap();
        assert!(ids.iter().all(|id| *id < 200_000), "{} became a control token", token.content);
        assert_eq!(tokenizer.encode_special(&token.content).unwrap(), [token.id]);
    }
}
