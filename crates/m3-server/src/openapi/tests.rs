//! The description names every route and every field that the readers know.

use std::collections::BTreeSet;

use super::*;
use crate::openai::chat_request::ChatRequest;
use crate::openai::completion_request::CompletionRequest;
use crate::openai::fields::recorded;
use crate::openai::generation::Limits;
use crate::openai::refused::REFUSED;

fn described(name: &str) -> BTreeSet<String> {
    let document = document();
    let properties = document["components"]["schemas"][name]["properties"].as_object().unwrap();
    properties.keys().cloned().collect()
}

/// Fields that the reader looked for and that are not refused.
fn taken(read: impl FnOnce()) -> BTreeSet<String> {
    let refused = |name: &String| REFUSED.iter().any(|(refused, _)| refused == name);
    recorded(read).into_iter().filter(|name| !refused(name)).collect()
}

fn limits() -> Limits {
    Limits { vocab_size: 100, max_logprobs: 20, max_choices: 100, always_thinks: false }
}

#[test]
fn the_document_has_the_very_fields_that_are_read() {
    let body = json!({"messages": [{"role": "user", "content": "x"}]});
    let read = taken(|| drop(ChatRequest::read(body, limits(), &Map::new()).unwrap()));
    assert_eq!(described("ChatRequest"), read);
    let body = json!({"prompt": "x"});
    let read = taken(|| drop(CompletionRequest::read(body, limits()).unwrap()));
    assert_eq!(described("CompletionRequest"), read);
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
