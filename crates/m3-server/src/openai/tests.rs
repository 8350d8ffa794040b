//! Ranges, defaults and refusals of request fields.

use m3_core::text::parse::ThinkingMode;
use serde_json::{Map, Value, json};

use super::accepted::ACCEPTED;
use super::chat_request::ChatRequest;
use super::completion_request::{CompletionRequest, Prompt};
use super::generation::Limits;
use super::refused::{REFUSED, REFUSED_IN_CHAT};
use crate::error::ApiError;

const LIMITS: Limits = Limits { vocab_size: 1000, max_logprobs: 20, max_choices: 200, always_thinks: false };

fn chat(fields: Value) -> Result<ChatRequest, ApiError> {
    let mut body = json!({"messages": [{"role": "user", "content": "hi"}]});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    ChatRequest::read(body, LIMITS, &Map::new())
}

fn completion(fields: Value) -> Result<CompletionRequest, ApiError> {
    let mut body = json!({"prompt": "hi"});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    CompletionRequest::read(body, LIMITS)
}

#[test]
fn values_out_of_range_are_400_and_name_the_field() {
    for (fields, param) in [
        (json!({"temperature": 5}), "temperature"),
        (json!({"temperature": -0.1}), "temperature"),
        (json!({"temperature": "hot"}), "temperature"),
        (json!({"top_p": 1.1}), "top_p"),
        (json!({"top_p": -1}), "top_p"),
        (json!({"top_k": -2}), "top_k"),
        (json!({"min_p": 2}), "min_p"),
        (json!({"presence_penalty": 2.5}), "presence_penalty"),
        (json!({"frequency_penalty": -3}), "frequency_penalty"),
        (json!({"repetition_penalty": 0}), "repetition_penalty"),
        (json!({"max_tokens": -1}), "max_tokens"),
        (json!({"max_tokens": 1.5}), "max_tokens"),
        (json!({"max_completion_tokens": -1}), "max_completion_tokens"),
        (json!({"max_tokens": 3, "min_tokens": 4}), "min_tokens"),
        (json!({"n": 0}), "n"),
        (json!({"n": 129}), "n"),
        (json!({"seed": 1.5}), "seed"),
        (json!({"logit_bias": {"1000": 1}}), "logit_bias"),
        (json!({"logit_bias": {"x": 1}}), "logit_bias"),
        (json!({"logit_bias": {"1": 101}}), "logit_bias"),
        (json!({"stop": ""}), "stop"),
        (json!({"stop": ["a", ""]}), "stop"),
        (json!({"stop": 3}), "stop"),
        (json!({"stop": vec!["a"; 17]}), "stop"),
        (json!({"stop": "a".repeat(4097)}), "stop"),
        (json!({"stop": vec!["a".repeat(2000); 3]}), "stop"),
        (json!({"stop_token_ids": [1000]}), "stop_token_ids"),
        (json!({"stream_options": {"include_usage": 3}}), "stream_options.include_usage"),
        (json!({"stream_options": {"usage": true}}), "stream_options.usage"),
        (json!({"stream_options": true}), "stream_options"),
        (json!({"n": 2, "best_of": 1}), "best_of"),
        (json!({"best_of": 129}), "best_of"),
        (json!({"best_of": 2, "stream": true}), "best_of"),
        (json!({"prompt_logprobs": 21}), "prompt_logprobs"),
        (json!({"prompt_logprobs": 1, "stream": true}), "prompt_logprobs"),
        (json!({"bad_words": [""]}), "bad_words"),
        (json!({"bad_words": "a"}), "bad_words"),
        (json!({"bad_words": vec!["a"; 129]}), "bad_words"),
        (json!({"bad_words": ["a".repeat(4097)]}), "bad_words"),
        (json!({"allowed_token_ids": []}), "allowed_token_ids"),
        (json!({"allowed_token_ids": [1000]}), "allowed_token_ids"),
        (json!({"repetition_detection": true}), "repetition_detection"),
        (
            json!({"repetition_detection": {"max_pattern_size": 2000}}),
            "repetition_detection.max_pattern_size",
        ),
        (
            json!({"repetition_detection": {"max_pattern_size": 2, "min_count": 1}}),
            "repetition_detection.min_count",
        ),
        (
            json!({"repetition_detection": {"max_pattern_size": 2, "min_pattern_size": 3}}),
            "repetition_detection.min_pattern_size",
        ),
        (json!({"repetition_detection": {"size": 2}}), "repetition_detection.size"),
        (json!({"cache_salt": 3}), "cache_salt"),
        (json!({"request_id": "a b"}), "request_id"),
        (json!({"rid": ["x"]}), "rid"),
        (json!({"stream_interval": 0}), "stream_interval"),
        (json!({"nonsense": 1}), "nonsense"),
        (json!({"top_K": 40}), "top_K"),
    ] {
        assert_eq!(chat(fields.clone()).unwrap_err().param.as_deref(), Some(param), "chat {fields}");
        assert_eq!(
            completion(fields.clone()).unwrap_err().param.as_deref(),
            Some(param),
            "completion {fields}"
        );
    }
}

#[test]
fn values_at_the_limits_are_taken() {
    let request = chat(json!({
        "temperature": 2, "top_p": 0, "top_k": -1, "min_p": 1, "seed": -1, "n": 128, "stop": vec!["a"; 16],
        "max_tokens": 512_000, "max_completion_tokens": 0, "logit_bias": {"999": -100}, "presence_penalty": -2,
        "user": "u", "metadata": {"a": "b"}, "store": true, "service_tier": "auto", "skip_special_tokens": true,
    }))
    .unwrap();
    assert_eq!(request.generation.max_tokens, Some(0), "the newer name wins");
    assert_eq!(request.generation.seed, Some(u64::MAX));
    assert_eq!(request.generation.top_k, Some(0));
    assert_eq!(request.generation.logit_bias, [(999, -100.0)]);
}

#[test]
fn a_stop_string_of_megabytes_is_refused_with_both_numbers() {
    let error = chat(json!({"stop": ["x", "a".repeat(5_000_000)], "n": 16})).unwrap_err();
    assert_eq!(error.message, "stop string 1 has 5000000 bytes; this server takes up to 4096");
    let error = completion(json!({"stop": vec!["é".repeat(1000); 3]})).unwrap_err();
    assert_eq!(error.message, "the stop strings have 6000 bytes in all; this server takes up to 4096");
    assert_eq!(chat(json!({"stop": "a".repeat(4096)})).unwrap().generation.stop[0].len(), 4096);
}

#[test]
fn answers_that_can_never_all_be_admitted_are_400_with_both_numbers() {
    let error = completion(json!({"prompt": ["a", "b", "c"], "n": 67})).unwrap_err();
    assert_eq!((error.status.as_u16(), error.param.as_deref()), (400, Some("n")));
    assert!(error.message.contains("201") && error.message.contains("200"), "{}", error.message);
    let error = completion(json!({"prompt": vec!["a"; 201]})).unwrap_err();
    assert_eq!(error.param.as_deref(), Some("prompt"));
    completion(json!({"prompt": ["a", "b"], "n": 100})).unwrap();
    let few = Limits { max_choices: 3, ..LIMITS };
    let body = json!({"messages": [{"role": "user", "content": "hi"}], "n": 4});
    assert_eq!(ChatRequest::read(body, few, &Map::new()).unwrap_err().param.as_deref(), Some("n"));
}

#[test]
fn a_huge_number_is_named_in_a_few_characters() {
    for (fields, message) in [
        (json!({"temperature": 1e300}), "temperature is 1e300; it must be from 0 to 2"),
        (json!({"max_tokens": 1e300}), "max_tokens is 1e300; it must be a whole number from 0 to 4294967295"),
        (
            json!({"logit_bias": {"1": -1e200}}),
            "logit_bias of token 1 is -1e200; it must be from -100 to 100",
        ),
        (json!({"top_k": 2.5}), "top_k is 2.5; it must be a whole number from -1 to 4294967295"),
        (json!({"top_p": "x"}), "top_p is a string; it must be a number from 0 to 1"),
    ] {
        assert_eq!(chat(fields).unwrap_err().message, message);
    }
    let error = completion(json!({"prompt": [1e300]})).unwrap_err();
    assert_eq!(error.message, "prompt[0] is 1e300; expected a token id");
}

#[test]
fn no_field_s_value_is_echoed_at_length() {
    let long = "x".repeat(10_000);
    for fields in [
        json!({"temperature": long}),
        json!({"tool_choice": long}),
        json!({"stream": long}),
        json!({"logit_bias": {long.as_str(): 1}}),
        json!({"thinking": {"type": [long]}}),
        json!({"chat_template_kwargs": {"thinking_mode": {"a": long}}}),
        json!({"reasoning": {long.as_str(): 1}}),
        json!({"tools": [{"type": "function", "function": {"name": long}}]}),
        json!({"messages": [{"role": long}]}),
        json!({"messages": [{"role": "user", "content": [{"type": long}]}]}),
        json!({"messages": [{"role": "tool", "tool_call_id": long}]}),
    ] {
        let error = chat(fields).unwrap_err();
        assert!(error.message.chars().count() < 400, "{}", error.message);
        assert!(error.param.unwrap().chars().count() < 202);
    }
}

#[test]
fn null_is_the_same_as_absent() {
    let request =
        chat(json!({"temperature": null, "stop": null, "tools": null, "tool_choice": null, "n": null,
        "stream_options": null, "response_format": null, "logprobs": null}))
        .unwrap();
    assert_eq!(request.generation.temperature, None);
    assert_eq!(request.generation.n, 1);
    assert_eq!(request.logprobs, None);
}

#[test]
fn what_cannot_be_honoured_is_refused_and_neutral_values_are_not() {
    for (fields, param) in [
        (json!({"use_beam_search": true}), "use_beam_search"),
        (json!({"bootstrap_room": 7}), "bootstrap_room"),
        (json!({"logprob_token_ids": [1]}), "logprob_token_ids"),
        (json!({"dry_multiplier": 0.8}), "dry_multiplier"),
        (json!({"truncate_prompt_tokens": 5}), "truncate_prompt_tokens"),
        (json!({"suffix": "x"}), "suffix"),
    ] {
        let error = chat(fields.clone()).unwrap_err();
        assert_eq!(
            (error.param.as_deref(), error.code),
            (Some(param), Some("unsupported_parameter")),
            "{fields}"
        );
    }
    chat(json!({
        "response_format": {"type": "text"}, "best_of": 1, "use_beam_search": false, "separate_reasoning": true,
        "stream_reasoning": true, "continue_final_message": false, "return_hidden_states": false, "suffix": "",
        "no_stop_trim": false, "ignore_eos": false, "length_penalty": 1.0,
    }))
    .unwrap();
}

#[test]
fn a_choice_of_tools_is_kept_and_one_that_is_absent_is_refused() {
    use super::tool_choice::ToolMode;
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    let choose = |choice: Value| chat(json!({"tools": tools, "tool_choice": choice}));
    assert_eq!(choose(json!("required")).unwrap().tool_choice.mode, ToolMode::Required);
    assert!(choose(json!({"type": "function", "function": {"name": "f"}})).unwrap().tool_choice.named);
    for choice in [json!("sometimes"), json!({"type": "function", "function": {"name": "g"}})] {
        assert_eq!(choose(choice).unwrap_err().param.as_deref(), Some("tool_choice"));
    }
    assert_eq!(chat(json!({"tool_choice": "required"})).unwrap_err().param.as_deref(), Some("tool_choice"));
    assert_eq!(choose(json!("auto")).unwrap().tools.len(), 1);
    let none = choose(json!("none")).unwrap();
    assert!(none.tools.is_empty() && !none.parse_tools);
}

#[test]
fn server_defaults_of_the_template_give_way_to_the_request() {
    let defaults = json!({"thinking_mode": "disabled", "model_identity": "X"}).as_object().unwrap().clone();
    let read = |fields: Value| {
        let mut body = json!({"messages": [{"role": "user", "content": "hi"}]});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        ChatRequest::read(body, LIMITS, &defaults).unwrap()
    };
    let plain = read(json!({}));
    assert_eq!(
        (plain.thinking_mode, &plain.template_kwargs["model_identity"]),
        (ThinkingMode::Disabled, &json!("X"))
    );
    assert_eq!(read(json!({"thinking": {"type": "enabled"}})).thinking_mode, ThinkingMode::Enabled);
}

#[test]
fn log_probabilities_have_each_route_s_own_form() {
    assert_eq!(chat(json!({"logprobs": true})).unwrap().logprobs, Some(0));
    assert_eq!(chat(json!({"logprobs": true, "top_logprobs": 20})).unwrap().logprobs, Some(20));
    assert_eq!(chat(json!({"top_logprobs": 2})).unwrap_err().param.as_deref(), Some("top_logprobs"));
    assert_eq!(
        chat(json!({"logprobs": true, "top_logprobs": 21})).unwrap_err().param.as_deref(),
        Some("top_logprobs")
    );
    assert_eq!(completion(json!({"logprobs": 3})).unwrap().logprobs, Some(3));
    assert_eq!(completion(json!({"logprobs": 21})).unwrap_err().param.as_deref(), Some("logprobs"));
    assert_eq!(completion(json!({"logprobs": true})).unwrap_err().param.as_deref(), Some("logprobs"));
}

#[test]
fn prompts_come_in_four_forms() {
    let prompts = |prompt: Value| completion(json!({"prompt": prompt})).map(|request| request.prompts);
    let text = |text: &str| Prompt::Text(text.into());
    assert_eq!(prompts(json!("a")).unwrap(), [text("a")]);
    assert_eq!(prompts(json!(["a", "b"])).unwrap(), [text("a"), text("b")]);
    assert_eq!(prompts(json!([1, 2])).unwrap(), [Prompt::Tokens(vec![1, 2])]);
    assert_eq!(prompts(json!([[1], [2, 3]])).unwrap(), [Prompt::Tokens(vec![1]), Prompt::Tokens(vec![2, 3])]);
    for (prompt, param) in [
        (json!(null), "prompt"),
        (json!([]), "prompt"),
        (json!({}), "prompt"),
        (json!([1, -1]), "prompt[1]"),
        (json!([[1.5]]), "prompt[0][0]"),
        (json!(["a", {}]), "prompt[1]"),
    ] {
        assert_eq!(prompts(prompt).unwrap_err().param.as_deref(), Some(param));
    }
    assert_eq!(completion(json!({})).unwrap().generation.max_tokens, None);
    assert_eq!(completion(json!({"max_tokens": 0})).unwrap().generation.max_tokens, Some(0));
}

#[test]
fn the_fields_without_effect_are_those_that_the_document_lists() {
    let document = include_str!("../../../../docs/serving.md");
    let start = document.find("Accepted without effect:").expect("the document has the list");
    let list = document[start..].split("\n\n").next().unwrap();
    let listed: Vec<&str> = list.split('`').skip(1).step_by(2).collect();
    let names: Vec<&str> = ACCEPTED.iter().map(|(name, _)| *name).collect();
    assert_eq!(listed, names);
    for name in names {
        chat(json!({name: "x"})).unwrap();
        completion(json!({name: {"a": 1}})).unwrap();
    }
}

#[test]
fn the_refused_fields_are_those_that_the_document_lists() {
    let document = include_str!("../../../../docs/serving.md");
    let start = document.find("Refused, with why:").expect("the document has the list");
    let list = document[start..].split("\n\n").nth(1).unwrap();
    let rows = list.lines().skip(2).map(|row| row.trim_matches('|').split_once('|').unwrap());
    let listed: Vec<(String, String)> = rows
        .flat_map(|(names, why)| {
            let names: Vec<&str> = names.split('`').skip(1).step_by(2).collect();
            names.into_iter().map(move |name| (name.to_owned(), why.trim().to_owned()))
        })
        .collect();
    let mut refused: Vec<(String, String)> = REFUSED
        .iter()
        .chain(REFUSED_IN_CHAT)
        .map(|(name, why)| ((*name).to_owned(), (*why).to_owned()))
        .collect();
    let mut sorted = listed;
    sorted.sort();
    refused.sort();
    assert_eq!(sorted, refused);
}

#[test]
fn whole_numbers_may_be_written_with_a_point() {
    let generation = completion(json!({"max_tokens": 16.0, "top_k": -1.0, "n": 2.0})).unwrap().generation;
    assert_eq!((generation.max_tokens, generation.top_k, generation.n), (Some(16), Some(0), 2));
}

#[test]
fn a_salt_and_an_extra_key_are_told_apart() {
    let salt = |fields| completion(fields).unwrap().generation.cache_salt;
    assert_eq!(salt(json!({"cache_salt": "a"})), Some("a".into()));
    let all = [
        salt(json!({})),
        salt(json!({"cache_salt": "a"})),
        salt(json!({"extra_key": "a"})),
        salt(json!({"cache_salt": "a", "extra_key": "b"})),
        salt(json!({"cache_salt": "ab"})),
        salt(json!({"extra_key": "ab"})),
    ];
    let different: std::collections::HashSet<_> = all.iter().collect();
    assert_eq!(different.len(), all.len(), "{all:?}");
}

mod any_body {
    //! Bodies that no client would send: an answer or a 400, never a panic.

    use proptest::prelude::*;

    use super::*;
    use crate::openai::accepted::ACCEPTED;
    use crate::openai::refused::REFUSED;

    const NAMES: &[&str] = &[
        "messages",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "model",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "seed",
        "n",
        "best_of",
        "max_tokens",
        "max_completion_tokens",
        "min_tokens",
        "stop",
        "stop_token_ids",
        "logit_bias",
        "allowed_token_ids",
        "bad_words",
        "logprobs",
        "top_logprobs",
        "prompt_logprobs",
        "stream",
        "stream_options",
        "thinking",
        "enable_thinking",
        "reasoning",
        "reasoning_effort",
        "chat_template_kwargs",
        "thinking_token_budget",
        "include_reasoning",
        "separate_reasoning",
        "reasoning_split",
        "stream_reasoning",
        "repetition_detection",
        "cache_salt",
        "extra_key",
        "request_id",
        "rid",
        "priority",
        "echo",
        "prompt",
        "continue_final_message",
        "add_generation_prompt",
        "ignore_eos",
        "parse_special",
        "response_format",
    ];

    fn any_json() -> impl Strategy<Value = Value> {
        let words = [
            "role",
            "user",
            "assistant",
            "tool",
            "content",
            "text",
            "type",
            "function",
            "name",
            "arguments",
            "tool_calls",
            "tool_call_id",
            "id",
            "max_pattern_size",
            "include_usage",
            "effort",
            "enabled",
            "{}",
            "{",
        ];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            (-3i64..5).prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            prop::sample::select(words.to_vec()).prop_map(Value::from),
            "\\PC{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 5, move |inner| {
            let key = prop_oneof![prop::sample::select(words.to_vec()).prop_map(str::to_owned), "[a-z]{1,4}"];
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map(key, inner, 0..5)
                    .prop_map(|map| map.into_iter().collect::<Map<_, _>>().into()),
            ]
        })
    }

    fn any_fields() -> impl Strategy<Value = Map<String, Value>> {
        let refused = REFUSED.iter().map(|(name, _)| *name);
        let known: Vec<&str> =
            NAMES.iter().copied().chain(refused).chain(ACCEPTED.iter().map(|(name, _)| *name)).collect();
        let name = prop_oneof![9 => prop::sample::select(known).prop_map(str::to_owned), 1 => "[a-z_]{1,8}"];
        prop::collection::vec((name, any_json()), 0..6).prop_map(|fields| fields.into_iter().collect())
    }

    proptest! {
        #[test]
        fn every_body_is_taken_or_refused(fields in any_fields(), whole in any_json()) {
            let checked = |error: ApiError| {
                prop_assert!(error.status.is_client_error(), "{}", error.message);
                prop_assert!(error.message.chars().count() <= 1001);
                Ok(())
            };
            for outcome in [chat(Value::Object(fields.clone())), ChatRequest::read(whole.clone(), LIMITS, &Map::new())] {
                outcome.map_or_else(checked, |_| Ok(()))?;
            }
            for outcome in [completion(Value::Object(fields)), CompletionRequest::read(whole, LIMITS)] {
                outcome.map_or_else(checked, |_| Ok(()))?;
            }
        }
    }
}
