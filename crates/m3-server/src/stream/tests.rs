//! A stream's joined deltas are the whole answer, in every API, wherever the text was cut and whenever it came.

use std::time::{Duration, Instant};

use m3_core::text::parse::Delta;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::coalesce::{Coalescer, Pacing};
use crate::anthropic::MessagesShape;
use crate::generate::{ChoiceEvent, Done, Output, Reason};
use crate::openai::generation::Delivery;
use crate::openai::reasoning::ReasoningNames;
use crate::responses::ResponsesShape;
use crate::shape::{ChatShape, Head, Named, Shape};

/// A part of an answer before it is cut.
#[derive(Clone, Debug)]
enum Part {
    Reasoning(String),
    Content(String),
    Call(String),
}

/// As the parser tells it, the texts cut after the given numbers of characters.
fn deltas(parts: &[Part], cuts: &[usize]) -> Vec<Delta> {
    let mut cuts = cuts.iter().cycle();
    let mut pieces = |text: &str| {
        let (mut left, mut pieces) = (text, Vec::new());
        while !left.is_empty() {
            let size = *cuts.next().unwrap();
            let end = left.char_indices().nth(size).map_or(left.len(), |(at, _)| at);
            pieces.push(left[..end].to_owned());
            left = &left[end..];
        }
        pieces
    };
    let (mut all, mut index) = (Vec::new(), 0);
    for part in parts {
        match part {
            Part::Reasoning(text) => all.extend(pieces(text).into_iter().map(Delta::Reasoning)),
            Part::Content(text) => all.extend(pieces(text).into_iter().map(Delta::Content)),
            Part::Call(value) => {
                all.push(Delta::ToolStart { index, id: format!("call_{index}"), name: "write".into() });
                let arguments = json!({ "a": value }).to_string();
                let fragments = pieces(&arguments).into_iter();
                all.extend(fragments.map(|fragment| Delta::ToolArguments { index, fragment }));
                all.push(Delta::ToolEnd { index });
                index += 1;
            }
        }
    }
    all
}

fn events(deltas: Vec<Delta>) -> Vec<ChoiceEvent> {
    let count = deltas.len() as u32;
    let output = |(at, delta): (usize, Delta)| {
        let completion_tokens = at as u32 + 1;
        ChoiceEvent::Output(Output { deltas: vec![delta], completion_tokens, ..Output::default() })
    };
    let done = Done {
        deltas: Vec::new(),
        reason: Reason::Stop,
        stop: None,
        completion_tokens: count,
        reasoning_tokens: 0,
        cached_tokens: 0,
    };
    deltas.into_iter().enumerate().map(output).chain([ChoiceEvent::Done(done)]).collect()
}

/// The chunks of a stream whose tokens come `gap` apart.
fn streamed<S: Shape>(mut shape: S, all: Vec<ChoiceEvent>, gap: Duration) -> Vec<(Option<String>, Value)> {
    let pacing =
        Pacing { min_tokens: 1, gather: Duration::from_millis(25), hold: Duration::from_millis(200) };
    let (mut coalescer, start) = (Coalescer::new(pacing), Instant::now());
    let mut chunks = shape.open();
    for (at, event) in all.into_iter().enumerate() {
        let now = start + gap * at as u32;
        coalescer.tick(now);
        coalescer.push(0, event, now);
        for (index, event) in coalescer.take_ready() {
            chunks.extend(shape.event(index, event).unwrap());
        }
    }
    chunks.extend(shape.close());
    let wire = |chunk: &S::Chunk| (chunk.name().map(str::to_owned), serde_json::to_value(chunk).unwrap());
    chunks.iter().map(wire).collect()
}

fn whole<S: Shape>(mut shape: S, all: Vec<ChoiceEvent>) -> Value {
    for event in all {
        for chunk in shape.event(0, event).unwrap() {
            shape.fold(chunk);
        }
    }
    serde_json::to_value(shape.whole()).unwrap()
}

fn head() -> Head {
    Head { id: "x".into(), created: 1, model: "m".into() }
}

fn chat() -> ChatShape {
    let names = ReasoningNames { reasoning_content: true, reasoning: false };
    ChatShape::new(head(), Delivery::default(), None, names, &[1, 2], 1)
}

/// What a chat client makes of the chunks, with the rules that every chunk keeps.
fn join_chat(chunks: &[(Option<String>, Value)]) -> Value {
    let (mut reasoning, mut content, mut calls, mut roles) = (String::new(), String::new(), Vec::new(), 0);
    for (_, chunk) in chunks {
        let delta = &chunk["choices"][0]["delta"];
        roles += u32::from(delta["role"].is_string());
        let (thought, said) = (delta["reasoning_content"].as_str(), delta["content"].as_str());
        assert!(thought.is_none() || said.is_none(), "reasoning and content in one delta");
        reasoning.push_str(thought.unwrap_or(""));
        content.push_str(said.unwrap_or(""));
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            if call["id"].is_string() {
                assert_eq!(call["function"]["arguments"], "", "the name comes before the arguments");
                calls.push(String::new());
            }
            calls[call["index"].as_u64().unwrap() as usize]
                .push_str(call["function"]["arguments"].as_str().unwrap());
        }
    }
    assert_eq!(roles, 1);
    json!({"reasoning": reasoning, "content": content, "calls": calls})
}

fn bare_chat(answer: &Value) -> Value {
    let message = &answer["choices"][0]["message"];
    let calls = message["tool_calls"].as_array().into_iter().flatten();
    let calls: Vec<Value> = calls.map(|call| call["function"]["arguments"].clone()).collect();
    let text = |name: &str| message[name].as_str().unwrap_or("").to_owned();
    json!({"reasoning": text("reasoning_content"), "content": text("content"), "calls": calls})
}

/// Items without ids and times.
fn bare_items(response: &Value) -> Vec<Value> {
    let items = response["output"].as_array().unwrap().iter();
    items.map(|item| json!([item["type"], item["content"], item["arguments"], item["status"]])).collect()
}

/// Every item's text, from its deltas and from the event that closes it.
fn join_items(chunks: &[(Option<String>, Value)]) -> (Vec<String>, Vec<String>) {
    let (mut grown, mut closed): (Vec<String>, Vec<String>) = Default::default();
    for (at, (name, event)) in chunks.iter().enumerate() {
        assert_eq!(event["sequence_number"], at);
        match name.as_deref().unwrap() {
            "response.output_item.added" => grown.push(String::new()),
            kind if kind.ends_with(".delta") => {
                let index = event["output_index"].as_u64().unwrap() as usize;
                grown[index].push_str(event["delta"].as_str().unwrap());
            }
            "response.function_call_arguments.done" => {
                closed.push(event["arguments"].as_str().unwrap().into())
            }
            "response.output_text.done" | "response.reasoning_text.done" => {
                closed.push(event["text"].as_str().unwrap().into());
            }
            _ => {}
        }
    }
    (grown, closed)
}

fn join_blocks(chunks: &[(Option<String>, Value)]) -> Vec<String> {
    let mut blocks = Vec::new();
    for (name, event) in chunks {
        match name.as_deref().unwrap() {
            "content_block_start" => blocks.push(String::new()),
            "content_block_delta" => {
                let delta = &event["delta"];
                let texts =
                    ["text", "thinking", "partial_json"].iter().filter_map(|name| delta[*name].as_str());
                blocks.last_mut().unwrap().extend(texts);
            }
            _ => {}
        }
    }
    blocks
}

fn block_texts(message: &Value) -> Vec<String> {
    let text = |block: &Value| match block["type"].as_str().unwrap() {
        "tool_use" => block["input"].to_string(),
        kind => block[kind].as_str().unwrap().to_owned(),
    };
    message["content"].as_array().unwrap().iter().map(text).collect()
}

fn any_parts() -> impl Strategy<Value = Vec<Part>> {
    let text = "[a-zA-Z \n<>/\"\\\\字🌶]{1,600}";
    let part = prop_oneof![
        text.prop_map(Part::Reasoning),
        text.prop_map(Part::Content),
        "[a-z\"\\\\\n 字🌶]{0,900}".prop_map(Part::Call),
    ];
    proptest::collection::vec(part, 0..7)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn joined_deltas_are_the_whole_answer(
        parts in any_parts(),
        cuts in proptest::collection::vec(1..40_usize, 1..9),
        gap in 0..120_u64,
    ) {
        let (all, gap) = (|| events(deltas(&parts, &cuts)), Duration::from_millis(gap));
        let in_one = |parts: &[Part]| events(deltas(parts, &[usize::MAX]));

        let answer = bare_chat(&whole(chat(), in_one(&parts)));
        prop_assert_eq!(&join_chat(&streamed(chat(), all(), gap)), &answer);
        prop_assert_eq!(&bare_chat(&whole(chat(), all())), &answer);

        let response = || ResponsesShape::new(head(), Map::new(), None, 2);
        let answer = whole(response(), in_one(&parts));
        let chunks = streamed(response(), all(), gap);
        let (grown, closed) = join_items(&chunks);
        prop_assert_eq!(&grown, &closed);
        prop_assert_eq!(bare_items(&chunks.last().unwrap().1["response"]), bare_items(&answer));
        prop_assert_eq!(chunks.last().unwrap().0.as_deref(), Some("response.completed"));

        let message = || MessagesShape::new(head(), 2);
        let answer = block_texts(&whole(message(), in_one(&parts)));
        let chunks = streamed(message(), all(), gap);
        prop_assert_eq!(join_blocks(&chunks), answer);
        prop_assert_eq!(chunks.last().unwrap().0.as_deref(), Some("message_stop"));
    }
}
