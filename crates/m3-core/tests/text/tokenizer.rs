//! Encoding must give the ids of the reference library, decoding the exact bytes back.

use std::collections::BTreeSet;

use m3_core::text::TextError;
use m3_core::text::tokenizer::{Segment, Tokenizer};
use proptest::prelude::*;

use crate::support::{ADDED, released_tokenizer, shared_data, small_tokenizer, tokenizer_json};

/// Code, prose in several scripts, numbers, odd white space and text that NFC changes.
const PIECES: [&str; 30] = [
    "fn main() {\n    let total: u64 = values.iter().sum();\n}\n",
    "def f(x):\n\treturn {'a': [1, 2.5, None]}\n",
    "#include <stdio.h>\r\nint main(void) { return 0; }\r\n",
    "https://example.org/a/b?c=d&e=f#g ",
    "The quick brown fox doesn't jump; they're, we'll, I'd, it's. ",
    "人工智能正在改变世界，模型需要处理很长的上下文。",
    "こんにちは世界、トークナイザーの試験です。",
    "안녕하세요, 긴 문맥을 다루는 모델입니다. ",
    "Größe, naïve café, Ångström, ﬁn. ",
    "Cafe\u{301} A\u{30a}ngstro\u{308}m \u{1112}\u{1161}\u{11ab} ",
    "🙂🙃👩‍👩‍👧‍👦🏳️‍🌈🇰🇷 ",
    "\u{a0}\u{2003}\u{3000}\t\t  \u{200b}\u{feff}",
    "\n\n\n   \n \r\n\r ",
    "1234567890 3.14159 1e-7 0xDEADBEEF 1,000,000 ",
    "١٢٣ ४५६ Ⅷ ½ ",
    "\u{0}\u{1}\u{7f}\u{85}\u{2028}",
    "{\"k\": [true, false, null], \"é\": \"\\u00e9\"}",
    "SELECT * FROM t WHERE a>=1 AND b<>2;\n//\n/*---*/",
    "<div class=\"x\">&amp;</div>\n",
    "مرحبا بالعالم שלום עולם ",
    "Привет, мир! Ёлка. ",
    "สวัสดีชาวโลก नमस्ते दुनिया ",
    "DŽ ǅ ʰ ª º ſ İ ı ",
    "'S 'RE 'Ll x'ſ ",
    "]<]minimax[>[<tool_call>]~b]user [e~[ ",
    "a.b/c\\d-e_f+g=h|i~j`k^l ",
    "\u{e000}\u{f8ff}\u{fffd}\u{10ffff}",
    "ｆｕｌｌ　ｗｉｄｔｈ ",
    "x\u{300}\u{301}\u{302}\u{303}y\u{323}\u{307} ",
    "    deep\n        deeper\n            deepest\n",
];

/// A small deterministic generator, so that a failure can be repeated.
fn mixed_corpus(seed: u64, pieces: usize) -> String {
    let mut state = seed;
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize
    };
    let mut corpus = String::new();
    for _ in 0..pieces {
        let piece = PIECES[next() % PIECES.len()];
        let characters: Vec<char> = piece.chars().collect();
        let start = next() % characters.len();
        let end = start + 1 + next() % (characters.len() - start);
        corpus.extend(&characters[start..end]);
    }
    corpus
}

fn reference(json: &str) -> tokenizers::Tokenizer {
    json.parse().unwrap()
}

/// With added tokens and without, the ids must be the reference's.
fn compare(
    ours: &Tokenizer,
    with_added: &tokenizers::Tokenizer,
    ordinary: &tokenizers::Tokenizer,
    text: &str,
) {
    let ids = |library: &tokenizers::Tokenizer| library.encode_fast(text, false).unwrap().get_ids().to_vec();
    assert_eq!(ours.encode_ordinary(text).unwrap(), ids(ordinary), "ordinary ids of {text:?}");
    assert_eq!(ours.encode_special(text).unwrap(), ids(with_added), "special ids of {text:?}");
}

fn without_added(json: &str) -> String {
    let mut file: serde_json::Value = serde_json::from_str(json).unwrap();
    file["added_tokens"] = serde_json::json!([]);
    file.to_string()
}

#[test]
fn small_vocabulary_has_the_reference_ids() {
    let json = tokenizer_json().to_string();
    let (with_added, ordinary) = (reference(&json), reference(&without_added(&json)));
    for seed in 0..200 {
        let mut text = mixed_corpus(seed, 20);
        text.push_str(ADDED[seed as usize % ADDED.len()].0);
        text.push_str(&mixed_corpus(seed + 1000, 3));
        compare(&small_tokenizer(), &with_added, &ordinary, &text);
    }
}

#[test]
fn released_vocabulary_has_the_reference_ids() {
    let Some(data) = shared_data() else { return };
    let json = std::fs::read_to_string(data.join("tokenizer.reconstructed.json")).unwrap();
    let (with_added, ordinary) = (reference(&json), reference(&without_added(&json)));
    let ours = released_tokenizer(&data);
    for piece in PIECES {
        compare(&ours, &with_added, &ordinary, piece);
    }
    for seed in 0..300 {
        compare(&ours, &with_added, &ordinary, &mixed_corpus(seed, 40));
    }
    let long = mixed_corpus(7, 20_000);
    assert!(long.len() > 200_000);
    compare(&ours, &with_added, &ordinary, &long);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn round_trip_of_any_text(text in any::<String>()) {
        let tokenizer = small_tokenizer();
        let ids = tokenizer.encode_ordinary(&text).unwrap();
        let decoded = tokenizer.decode(&ids, false);
        // NFC may have changed the text once; after that everything is stable.
        prop_assert_eq!(&tokenizer.decode(&tokenizer.encode_ordinary(&decoded).unwrap(), true), &decoded);
        if text.is_ascii() {
            prop_assert_eq!(decoded, text);
        }
    }
}

#[test]
fn every_id_has_its_exact_bytes() {
    let tokenizer = small_tokenizer();
    assert_eq!(tokenizer.vocab_len(), 256 + 220 + ADDED.len());
    for byte in 0..=255u8 {
        assert_eq!(tokenizer.token_bytes(u32::from(byte)), Some(&[byte][..]));
    }
    let distinct: BTreeSet<&[u8]> =
        (0..tokenizer.vocab_len() as u32).filter_map(|id| tokenizer.token_bytes(id)).collect();
    assert_eq!(distinct.len(), tokenizer.vocab_len());
    for (text, special) in ADDED {
        let id = tokenizer.token_id(text).unwrap();
        assert_eq!(tokenizer.token_bytes(id), Some(text.as_bytes()));
        let kept = if special { "" } else { text };
        assert_eq!(tokenizer.decode(&[id, u32::from(b'x')], true), format!("{kept}x"));
        assert_eq!(tokenizer.decode(&[id], false), text);
    }
    assert_eq!(tokenizer.token_bytes(u32::MAX), None);
    assert_eq!(tokenizer.token_id("x"), None);
    assert_eq!(tokenizer.decode(&[0xe4, 0xb8], false), "\u{fffd}");
}

#[test]
fn ordinary_text_between_markers_is_one_piece() {
    let tokenizer = small_tokenizer();
    let ordinary = |text: &str| Segment::Ordinary(text.to_owned());
    let marker = |text: &str| Segment::Added { id: tokenizer.token_id(text).unwrap(), text: text.to_owned() };
    let split =
        [ordinary("the te"), ordinary("xt of the"), marker("<file>"), ordinary("<file>"), ordinary("")];
    let mut expected = tokenizer.encode_ordinary("the text of the").unwrap();
    expected.push(tokenizer.token_id("<file>").unwrap());
    expected.extend(tokenizer.encode_ordinary("<file>").unwrap());
    assert_eq!(tokenizer.encode_segments(&split).unwrap(), expected);
    assert_eq!(tokenizer.encode_segments(&[]).unwrap(), Vec::<u32>::new());
}

#[test]
fn unusable_files_are_refused_with_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokenizer.json");
    assert!(matches!(Tokenizer::from_dir(dir.path()), Err(TextError::Read { .. })));
    let load = |json: serde_json::Value| {
        std::fs::write(&path, json.to_string()).unwrap();
        Tokenizer::from_file(&path).err().map(|error| error.to_string()).unwrap_or_default()
    };
    let mut json = tokenizer_json();
    json["model"]["type"] = "Unigram".into();
    assert!(load(json).contains("\"Unigram\" is not supported"));
    let mut json = tokenizer_json();
    json["decoder"] = serde_json::Value::Null;
    assert!(load(json).contains("ByteLevel"));
    let mut json = tokenizer_json();
    json["added_tokens"][0]["id"] = 9_000_000.into();
    assert!(load(json).contains("9000000 is over the limit of 4000000"));
    std::fs::write(&path, "{").unwrap();
    assert!(Tokenizer::from_file(&path).is_err());
}

#[test]
fn added_tokens_of_the_configuration_beside_it_count() {
    let dir = tempfile::tempdir().unwrap();
    let mut json = tokenizer_json();
    let all = json["added_tokens"].as_array().unwrap().clone();
    let moved = all.last().unwrap().clone();
    json["added_tokens"].as_array_mut().unwrap().pop();
    let config = serde_json::json!({"added_tokens_decoder": {moved["id"].to_string(): moved, "0": all[0]}});
    std::fs::write(dir.path().join("tokenizer.json"), json.to_string()).unwrap();
    std::fs::write(dir.path().join("tokenizer_config.json"), config.to_string()).unwrap();
    let tokenizer = Tokenizer::from_dir(dir.path()).unwrap();
    assert_eq!(tokenizer.added_tokens(), small_tokenizer().added_tokens());
    let id = tokenizer.token_id("<file>s").unwrap();
    assert_eq!(tokenizer.encode_special("a<file>sb").unwrap()[1], id);
}

#[test]
fn tokenizer_and_template_are_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Tokenizer>();
    shared::<m3_core::text::template::ChatTemplate>();
    let text = mixed_corpus(3, 200);
    let expected = small_tokenizer().encode_ordinary(&text).unwrap();
    let encode = || small_tokenizer().encode_ordinary(&text).unwrap();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(encode)).collect();
        threads.into_iter().for_each(|thread| assert_eq!(thread.join().unwrap(), expected));
    });
}

#[test]
fn a_missing_file_is_reported_with_its_reason_once() {
    use std::error::Error;
    let dir = tempfile::tempdir().unwrap();
    let Err(error) = Tokenizer::from_dir(dir.path()) else { panic!("an empty folder has no tokenizer") };
    let reason = error.source().expect("the reason is the cause").to_string();
    let chain = format!("{error}: {reason}");
    assert_eq!(chain.matches("os error").count(), 1, "{chain}");
    assert!(chain.starts_with("cannot read ") && chain.contains("tokenizer.json"), "{chain}");
}
