//! The description names every route and every field that the readers know.

use std::collections::BTreeSet;

use super::*;
use crate::anthropic::{self, MessagesRequest};
use crate::native::{self, GenerateRequest};
use crate::openai::chat_request::ChatRequest;
use crate::openai::completion_request::CompletionRequest;
use crate::openai::fields::recorded;
use crate::openai::generation::Limits;
use crate::openai::refused::{REFUSED, REFUSED_IN_CHAT};
use crate::responses::{self, ResponsesRequest};
use crate::routes::bodies;

fn described(name: &str) -> BTreeSet<String> {
    let document = document();
    let properties = document["components"]["schemas"][name]["properties"].as_object().unwrap();
    properties.keys().cloned().collect()
}

/// Fields that the readers looked for and that are not refused; `more` are refused or renamed by one reader alone.
fn taken(more: &[&str], read: impl FnOnce()) -> BTreeSet<String> {
    let refused = |name: &String| {
        let all = REFUSED.iter().map(|(refused, _)| *refused);
        all.chain(more.iter().copied()).any(|refused| refused == name)
    };
    recorded(read).into_iter().filter(|name| !refused(name)).collect()
}

fn names(refused: &[(&'static str, &str)]) -> Vec<&'static str> {
    refused.iter().chain(REFUSED_IN_CHAT).map(|(name, _)| *name).collect()
}

fn limits() -> Limits {
    Limits { vocab_size: 100, max_logprobs: 20, max_choices: 100, always_thinks: false }
}

fn read_chat(body: Value) {
    drop(ChatRequest::read(body, limits(), &Map::new()).unwrap());
}

fn object(map: &Map<String, Value>) -> Value {
    Value::Object(map.clone())
}

/// What each body's readers take.
fn read_fields(body: &str) -> BTreeSet<String> {
    let messages = json!([{"role": "user", "content": "x"}]);
    match body {
        "ChatRequest" => taken(&names(&[]), || read_chat(json!({"messages": messages}))),
        "CompletionRequest" => {
            taken(&[], || drop(CompletionRequest::read(json!({"prompt": "x"}), limits()).unwrap()))
        }
        "ResponsesRequest" => taken(&names(responses::request::REFUSED), || {
            let request =
                ResponsesRequest::read(json!({"input": "x"}), |_| unreachable!("no history")).unwrap();
            read_chat(object(&request.chat));
        }),
        "MessagesRequest" => taken(&names(anthropic::request::REFUSED), || {
            let body = json!({"messages": messages, "max_tokens": 1});
            read_chat(object(&MessagesRequest::read(body, false, false).unwrap().chat));
        }),
        "GenerateRequest" => {
            let more = [&native::request::REFUSED[..], &native::request::OTHERS_NAMES].concat();
            taken(&more, || {
                let request = GenerateRequest::read(json!({"text": "x"})).unwrap();
                drop(CompletionRequest::read(object(&request.completion), limits()).unwrap());
            })
        }
        "TokenizeRequest" => {
            let model = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/m3-nano");
            let tokenizer = m3_core::text::tokenizer::Tokenizer::from_dir(&model).unwrap();
            let raw = taken(&[], || {
                drop(bodies::tokenize_raw(&tokenizer, json!({"prompt": "x"}), |_| Ok(())).unwrap());
            });
            let own = ["messages", "return_token_strs"].map(str::to_owned);
            raw.into_iter().chain(own).chain(read_fields("ChatRequest")).collect()
        }
        "DetokenizeRequest" => {
            taken(&[], || drop(bodies::DetokenizeRequest::read(json!({"tokens": [1]})).unwrap()))
        }
        "ParseCallRequest" => {
            taken(&[], || drop(bodies::ParseCallRequest::read(json!({"text": "x"})).unwrap()))
        }
        "ParseReasoningRequest" => {
            taken(&[], || drop(bodies::ParseReasoningRequest::read(json!({"text": "x"})).unwrap()))
        }
        "AbortRequest" => taken(&[], || drop(bodies::AbortRequest::read(json!({"rid": "x"})).unwrap())),
        "LoggingRequest" => {
            taken(&[], || drop(bodies::LoggingRequest::read(json!({"level": "info"})).unwrap()))
        }
        // A chat, completion or response, as it says itself.
        "AnyRequest" => BTreeSet::new(),
        other => panic!("nothing here reads {other}"),
    }
}

#[test]
fn every_body_is_described_with_the_very_fields_that_are_read() {
    let mut wrong = Vec::new();
    for body in BODIES {
        let (described, read) = (described(body.name), read_fields(body.name));
        let unread: Vec<_> = described.difference(&read).collect();
        let unsaid: Vec<_> = read.difference(&described).collect();
        if !unread.is_empty() || !unsaid.is_empty() {
            wrong.push(format!("{}: not read {unread:?}, not described {unsaid:?}", body.name));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_route_and_every_reference_is_there() {
    let document = document();
    for row in ROUTES {
        let path = row.path.replace("{*", "{");
        assert!(document["paths"][&path][row.method].is_object(), "{} {path}", row.method);
        let known = row.body.is_empty() || document["components"]["schemas"][row.body].is_object();
        assert!(known, "{} of {path}", row.body);
    }
    let mut ids: Vec<&str> = Vec::new();
    for methods in document["paths"].as_object().unwrap().values() {
        ids.extend(methods.as_object().unwrap().values().map(|one| one["operationId"].as_str().unwrap()));
    }
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!((ids.len(), count), (ROUTES.len(), ROUTES.len()), "ids are unique");
}

#[test]
fn the_page_works_without_a_network() {
    for outside in ["http:", "https:", "//cdn", "@import", "src="] {
        assert!(!PAGE.contains(outside), "{outside}");
    }
}
