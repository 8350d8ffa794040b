//! Every broken rule of a step is Fatal with a sentence, and the life before serving has its order.
#![allow(clippy::unwrap_used, reason = "a setup that fails fails the test")]

mod support;

use std::time::{Duration, Instant};

use m3_abi::types::{MediaSpan, PageCopy, RowBind, TokenBias};
use m3_abi::{Backend, Driver, Error, OpenRequest, Output, Plugin, ProbeRequest, Ticket};
use support::{Bench, Draft, opened, request, settings};

fn started() -> Bench {
    let mut bench = Bench::new("{}");
    bench.run(Draft::new().bind(0).pages(0, 0, &[2, 5]).part(0, 0, &[3, 1, 4, 1, 5], Some(0)));
    bench
}

#[track_caller]
fn check(draft: Draft, sentence: &str) {
    started().fatal(draft, sentence);
}

#[test]
fn rows() {
    check(Draft::new().release(1), "release of row 1, which is not bound");
    check(Draft::new().release(4), "row 4; there are 4 rows");
    check(Draft::new().release(0).release(0), "release of row 0, which is not bound");
    check(Draft::new().bind(0), "row 0 is bound again without a release");
    check(Draft::new().bind(9), "bind of row 9; there are 4 rows");
    check(Draft::new().part(1, 0, &[1], None), "a part for row 1, which is not bound");
    check(Draft::new().part(0, 5, &[1], None).part(0, 6, &[1], None), "row 0 has two parts in one step");
}

#[test]
fn settings_of_a_row() {
    let with = |change: fn(&mut RowBind)| {
        let mut bind = settings(1);
        change(&mut bind);
        Draft::new().bind_with(bind)
    };
    check(with(|bind| bind.num_logprobs = 6), "row 1 asks for 6 log-probabilities; opened with 5");
    check(with(|bind| bind.temperature = -1.0), "row 1 has temperature -1");
    check(with(|bind| bind.temperature = f32::NAN), "row 1 has temperature NaN");
    check(with(|bind| bind.top_p = 0.0), "row 1 has top_p 0");
    check(with(|bind| bind.repetition_penalty = 0.0), "row 1 has repetition_penalty 0");
    check(with(|bind| bind.prompt_len = 3), "history 0..+3 is outside the 0");
    check(with(|bind| bind.num_biases = 1), "biases 0..+1 is outside the 0");
    let mut draft = with(|bind| bind.num_biases = 1);
    draft.biases.push(TokenBias { token: 100, bias: 1.0 });
    check(draft, "row 1 has bias 1 for token 100; the vocabulary has 100");
}

#[test]
fn page_tables() {
    check(Draft::new().pages(1, 0, &[1]), "pages for row 1, which is not bound");
    check(Draft::new().pages(0, 1, &[1]), "row 0 gets page entry 1 but has 2 entries");
    check(Draft::new().pages(0, 3, &[1]), "row 0 gets page entry 3 but has 2 entries");
    check(Draft::new().pages(0, 2, &[8]), "page 8 of 8 does not exist");
    check(Draft::new().pages(0, 2, &[5]), "row 0 gets page 5 twice");
    let mut draft = Draft::new().pages(0, 2, &[1]);
    draft.pages[0].count = 2;
    check(draft, "page_ids 0..+2 is outside the 1");
}

#[test]
fn positions() {
    check(Draft::new().part(0, 6, &[1], None), "row 0 continues at position 6; 5 is next");
    check(Draft::new().part(0, 4, &[1], None), "row 0 continues at position 4; 5 is next");
    check(Draft::new().part(0, 5, &[1, 1, 1, 1], None), "row 0 has 2 pages; position 8 needs one more");
    check(Draft::new().part(0, 31, &[1, 1], None), "reaches position 31+2; the longest context is 32");
    check(Draft::new().part(0, 5, &[1; 17], None), "the step has 17 tokens; opened with 16");
    check(Draft::new().part(0, 5, &[], None), "row 0 has 0 tokens");
    check(
        Draft::new().part(0, 5, &[1], None).edit(|seq| seq.num_logits = 2),
        "row 0 has 1 tokens and wants 2 logits",
    );
}

#[test]
fn tokens_and_chains() {
    check(Draft::new().part(0, 5, &[100], None), "row 0 has token 100; the vocabulary has 100");
    check(
        Draft::new().part(0, 5, &[1], None).edit(|seq| seq.token_offset = 1),
        "tokens 1..+1 is outside the 1",
    );
    check(Draft::new().part(0, 5, &[1], None).edit(|seq| seq.flags = 6), "unknown flags 0x6");
    let fresh = Draft::new().bind(1).pages(1, 0, &[0]).chained(1, 0, 0);
    check(fresh, "row 1 is chained to a token that it has not sampled");
    check(Draft::new().part(0, 5, &[1], Some(2)), "row 0 samples output 2; 1 is next");
    check(Draft::new().part(0, 5, &[1], Some(0)), "row 0 samples output 0; 1 is next");
}

#[test]
fn slots_that_were_not_written_by_this_sequence() {
    let hit = |pages: &[u32], first| Draft::new().bind(1).pages(1, 0, pages).part(1, first, &[1], Some(0));
    check(hit(&[0, 1], 4), "read of unwritten slot: row 1 position 0 (page 0 slot 0)");
    check(hit(&[5, 1], 1), "read of another sequence's slot: row 1 position 0 (page 5 slot 0)");
    check(hit(&[2, 5], 6), "read of unwritten slot: row 1 position 5 (page 5 slot 1)");
    check(hit(&[2], 5), "row 1 starts at position 5 with 1 pages");
    let mut bench = started();
    bench.run(Draft::new().release(0).bind(1).pages(1, 0, &[2]).part(1, 0, &[9, 9], Some(0)));
    bench.fatal(
        Draft::new().bind(0).pages(0, 0, &[2, 1]).part(0, 4, &[1], Some(0)),
        "another sequence's slot: row 0 position 2",
    );
}

#[test]
fn a_page_that_changes_under_its_reader() {
    let mut bench = started();
    bench.run(Draft::new().bind(1).pages(1, 0, &[0]).part(1, 0, &[8, 8, 8, 8], None));
    bench.instance.copy_pages(&[PageCopy { from: 0, to: 2 }]).unwrap();
    bench.fatal(Draft::new().part(0, 5, &[1], Some(1)), "read of another sequence's slot: row 0 position 4");
}

#[test]
fn pages_with_two_holders_are_not_written() {
    check(
        Draft::new().bind(1).pages(1, 0, &[2, 5]).part(1, 5, &[1], Some(0)),
        "row 1 writes page 5, which 2 rows hold",
    );
    let mut bench = started();
    bench.run(Draft::new().bind(1).pages(1, 0, &[2]));
    let copied = bench.instance.copy_pages(&[PageCopy { from: 5, to: 2 }]);
    assert!(
        matches!(copied, Err(Error::Fatal(said)) if said.contains("page 2 is overwritten while 2 rows hold it"))
    );
}

#[test]
fn outputs_targets_masks_and_media() {
    let two = Draft::new().bind(1).pages(1, 0, &[0]).part(0, 5, &[1], Some(1)).part(1, 0, &[1], Some(0));
    check(two, "output slot 0 belongs to two parts");
    let target = |draft: Draft| draft.edit(|seq| seq.target_offset = 0);
    check(target(Draft::new().part(0, 5, &[1], Some(1))), "targets 0..+1 is outside the 0");
    let mut draft = target(Draft::new().part(0, 5, &[1], Some(1)));
    draft.targets.push(100);
    check(draft, "row 0 has target 100; the vocabulary has 100");
    let mut draft = Draft::new().part(0, 5, &[1], Some(1)).edit(|seq| seq.mask_offset = 0);
    draft.masks = vec![1; 3];
    check(draft, "masks 0..+4 is outside the 3");
    let mut draft = Draft::new().part(0, 5, &[1], Some(1));
    draft.media.push(MediaSpan { handle: 1, row: 0, first_position: 5, len: 1, first_row: 0 });
    check(draft.clone(), "row 0 uses medium 1, which is not encoded");
    let with_medium = |change: fn(&mut MediaSpan), sentence: &str| {
        let mut bench = started();
        let media = bench.instance.encode(&[0.0; 8], 2, &[[1, 2, 2]]).unwrap();
        let mut draft = draft.clone();
        draft.media[0].handle = media.handle;
        change(&mut draft.media[0]);
        bench.fatal(draft, sentence);
    };
    with_medium(|span| span.first_row = 1, "uses rows 1+1 of medium 2, which has 1");
    with_medium(|span| span.first_position = 4, "medium 2 at 4+1 is outside row 0's part");
}

#[test]
fn two_steps_in_flight_and_no_more() {
    let mut bench = started();
    bench.submit(&Draft::new().chained(0, 5, 1)).unwrap();
    bench.submit(&Draft::new().chained(0, 6, 2)).unwrap();
    bench.fatal(Draft::new().chained(0, 7, 3), "while 2 are not waited for");
}

#[test]
fn tickets_are_waited_for_once_and_a_short_output_is_refused() {
    let mut bench = started();
    let ticket = bench.submit(&Draft::new().chained(0, 5, 1)).unwrap();
    let short = bench.instance.wait(ticket, &mut Output::with_capacity(0, 0)).unwrap_err();
    assert_eq!(short, Error::Unsupported("output slot 0 is needed; the host gave 0".to_owned()));
    bench.wait(ticket).unwrap();
    assert!(matches!(bench.wait(ticket), Err(Error::Unsupported(_))));
}

#[test]
fn asked_for_faults_and_panics() {
    let draft = || Draft::new().bind(0).pages(0, 0, &[0]).part(0, 0, &[1], Some(0));
    Bench::new(r#"{"fault_at": 1}"#).fatal(draft(), "step 1 fails as asked");
    let mut bench = Bench::new(r#"{"panic_at": 2}"#);
    bench.run(draft());
    bench.fatal(Draft::new().chained(0, 1, 1), "panicked in submit: step 2 panics as asked");
    bench.fatal(Draft::new().chained(0, 1, 1), "this instance is dead");
}

#[test]
fn simulated_time_passes_on_the_device_not_in_submit() {
    let mut bench = Bench::new(r#"{"step_us": 20000, "token_us": 10000}"#);
    let start = Instant::now();
    let ticket = bench.submit(&Draft::new().bind(0).pages(0, 0, &[0]).part(0, 0, &[1, 2], Some(0))).unwrap();
    assert_eq!(bench.instance.done().unwrap(), Ticket(0));
    let next = bench.submit(&Draft::new().chained(0, 2, 1)).unwrap();
    assert_eq!(bench.wait(ticket).unwrap().device_time_us, 40_000);
    assert!(start.elapsed() >= Duration::from_millis(40));
    assert_eq!(bench.wait(next).unwrap().device_time_us, 30_000);
    assert!(start.elapsed() >= Duration::from_millis(70));
    assert_eq!(bench.instance.done().unwrap(), Ticket(2));
}

#[track_caller]
fn check_open(change: impl FnOnce(&mut OpenRequest), sentence: &str) {
    let mut request = request("{}");
    change(&mut request);
    match opened(&request).map(|_| ()) {
        Err(Error::Unsupported(said)) => assert!(said.contains(sentence), "{said:?} lacks {sentence:?}"),
        other => panic!("{sentence}: {other:?}"),
    }
}

#[test]
fn what_open_refuses() {
    check_open(|it| it.rank = 1, "rank 1 of 1 does not exist");
    check_open(|it| it.tp = 2, "2 ranks need a comm id");
    check_open(|it| it.ep = 3, "3 expert groups do not divide 1 ranks");
    check_open(|it| it.dp = 2, "dp 2 and node 0");
    check_open(|it| it.max_rows = 0, "max_rows is 0");
    check_open(|it| it.config = b"{}".to_vec(), "neither vocab_size nor m3_null.vocab");
    check_open(|it| it.config = b"text".to_vec(), "config cannot be read");
    check_open(|it| it.config = request_with(r#"{"speed": 1}"#), "unknown field `speed`");
    check_open(|it| it.config = request_with(r#"{"eos": 100}"#), "names token 100; the vocabulary has 100");
    check_open(
        |it| it.config = request_with(r#"{"page_bytes": 63}"#),
        "page_bytes is 63; a page needs at least 64",
    );
    check_open(|it| it.config = request_with(r#"{"max_pages": 7}"#), "8 pages are asked for; 1 to 7 fit");
    check_open(|it| it.page_memory_bytes = 63, "no page of 64 bytes fits");
}

fn request_with(null: &str) -> Vec<u8> {
    request(null).config
}

#[test]
fn the_order_before_serving_is_kept() {
    let plugin = Plugin::linked(&backend_null::LINKED).unwrap();
    let mut instance: Box<dyn Backend> = plugin.open(&request("{}")).unwrap();
    assert!(
        instance.reserve(1).is_err()
            && instance.warm(&[]).is_err()
            && instance.submit(&Default::default()).is_err()
    );
    instance.ready().unwrap();
    assert!(instance.ready().is_err());
    instance.reserve(1).unwrap();
    instance.warm(&[]).unwrap();
    instance.submit(&Default::default()).unwrap();
}

#[test]
fn probe_reads_the_config_and_auto_never_takes_it() {
    let plugin = Plugin::linked(&backend_null::LINKED).unwrap();
    let report = plugin.probe(&ProbeRequest::default()).unwrap();
    assert_ne!(report.flags & m3_abi::types::PROBE_BY_NAME_ONLY, 0);
    let config = b"[]".to_vec();
    assert!(plugin.probe(&ProbeRequest { config, tp: 1, ep: 1 }).is_err());
}
