//! The same backend linked and from its file: equal tokens, and two copies in one process do not meet.
#![allow(clippy::unwrap_used, reason = "a setup that fails fails the test")]

use std::path::PathBuf;

use m3_abi::discover::file_name;
use m3_abi::types::{NONE, PageAppend, RowBind, Seq};
use m3_abi::{Backend, Driver, OpenRequest, Output, Plugin, Step};

/// The plugin file that cargo built for this test.
fn file() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().join(file_name("null"))
}

fn opened(plugin: &Plugin) -> Box<dyn Backend> {
    let config = br#"{"vocab_size": 1000}"#.to_vec();
    let request = OpenRequest {
        tp: 1,
        ep: 1,
        max_rows: 1,
        max_step_tokens: 16,
        max_context: 64,
        page_tokens: 16,
        config,
        ..OpenRequest::default()
    };
    let mut instance = plugin.open(&request).unwrap();
    instance.ready().unwrap();
    instance.reserve(4).unwrap();
    instance.warm(&[]).unwrap();
    instance
}

/// Token after the prompt.
fn token(instance: &mut dyn Backend, prompt: &[u32]) -> u32 {
    let bind = RowBind::greedy(0);
    let seq = Seq {
        row: 0,
        flags: 0,
        first_position: 0,
        num_tokens: prompt.len() as u32,
        token_offset: 0,
        num_logits: 1,
        output_offset: 0,
        target_offset: NONE,
        mask_offset: NONE,
        output_index: 0,
    };
    let pages = [PageAppend { row: 0, first: 0, offset: 0, count: 1 }];
    let step = Step {
        binds: &[bind],
        pages: &pages,
        page_ids: &[1],
        seqs: &[seq],
        tokens: prompt,
        ..Step::default()
    };
    let ticket = instance.submit(&step).unwrap();
    let mut output = Output::with_capacity(1, 0);
    instance.wait(ticket, &mut output).unwrap();
    output.tokens[0]
}

#[test]
fn linked_and_loaded_from_its_file() {
    let (linked, loaded) = (Plugin::linked(&backend_null::LINKED).unwrap(), Plugin::open(&file()).unwrap());
    assert_eq!((linked.name(), linked.version()), (loaded.name(), loaded.version()));
    let prompt = [5, 4, 3];
    let expected = backend_null::distribution::expected(&prompt, 1000);
    let (mut one, mut other) = (opened(&linked), opened(&loaded));
    assert_eq!(token(one.as_mut(), &prompt), expected);
    assert_eq!(token(other.as_mut(), &prompt), expected);
}
