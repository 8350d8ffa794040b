//! The toy backend in docs/backend-guide.md is the file that is built and loaded, and it serves.
#![allow(clippy::unwrap_used, reason = "a setup that fails fails the test")]

mod support;

use m3_abi::types::{self, NONE};
use m3_abi::{Driver, Error, OpenRequest, Output, Plugin, Step};

const TOY: &str = include_str!("../examples/toy.rs");

fn guide() -> String {
    std::fs::read_to_string(support::manifest_dir().join("../../docs/backend-guide.md")).unwrap()
}

#[test]
fn guide_shows_the_toy_that_is_built() {
    let guide = guide();
    let shown = guide.split("```rust\n").nth(1).and_then(|rest| rest.split("```\n").next()).unwrap();
    assert!(shown == TOY, "paste crates/m3-abi/examples/toy.rs into docs/backend-guide.md");
    assert!(guide.lines().count() <= 400 && TOY.lines().count() <= 220);
}

#[test]
fn guide_names_every_call_and_only_existing_files() {
    let guide = guide();
    let table = m3_abi::layout::layouts().into_iter().find(|layout| layout.name == "m3_table").unwrap();
    for entry in table.fields.iter().skip(6).take(11) {
        assert!(guide.contains(&format!("`{}`", entry.name)), "{} is not explained", entry.name);
    }
    for path in
        ["include/m3_backend.h", "crates/m3-abi/tests/c/plugin.c", "crates/backend-null", "docs/abi.md"]
    {
        assert!(support::manifest_dir().join("../..").join(path).exists(), "{path}");
    }
}

#[test]
fn toy_reads_through_its_page_table_and_scores_targets() {
    let plugin = Plugin::open(&support::rust_plugin("toy")).unwrap();
    let mut instance = support::warmed(&plugin);
    assert_eq!(support::serve(instance.as_mut()).unwrap(), [7, 4]);
    let part = m3_abi::types::Seq { num_logits: 2, target_offset: 0, ..support::seq(3, 1, 0) };
    let seqs = [m3_abi::types::Seq { num_tokens: 2, flags: 0, ..part }];
    let pages = [m3_abi::types::PageAppend { row: 0, first: 1, offset: 0, count: 1 }];
    let step = Step {
        seqs: &seqs,
        tokens: &[4, 1],
        targets: &[6, NONE],
        pages: &pages,
        page_ids: &[2],
        ..Step::default()
    };
    let ticket = instance.submit(&step).unwrap();
    let mut output = Output::with_capacity(2, 0);
    instance.wait(ticket, &mut output).unwrap();
    assert_eq!(output.tokens, [6, (3 + 4 + 7 + 4 + 1) % 10]);
}

#[test]
fn toy_takes_the_weights_of_any_checkpoint() {
    let plugin = Plugin::open(&support::rust_plugin("toy")).unwrap();
    let taken = plugin.probe(&m3_abi::ProbeRequest::default()).unwrap().weight_formats;
    for format in [types::FORMAT_F32, types::FORMAT_BF16, types::FORMAT_MXFP8] {
        assert!(taken & format != 0, "{format}");
    }
}

#[test]
fn toy_refuses_what_it_cannot_do_with_the_value() {
    let plugin = Plugin::open(&support::rust_plugin("toy")).unwrap();
    let refusal = plugin.open(&OpenRequest { tp: 2, ..support::request() }).map(|_| ()).unwrap_err();
    assert_eq!(refusal, Error::Unsupported("tp is 2; the toy backend has 1 rank".to_owned()));
    let mut empty = plugin.open(&support::request()).unwrap();
    assert!(empty.ready().unwrap_err().to_string().contains("was not loaded"));
}
