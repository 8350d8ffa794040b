//! A plugin that panics or dies, in every entry: the process lives, the instance does not.
#![allow(clippy::unwrap_used, reason = "a setup that fails fails the test")]

mod support;

use m3_abi::{Backend, Driver, Error, OpenRequest, Output, Plugin, ProbeRequest, Step, Ticket};
use support::{embedding, request, rust_plugin};

fn plugin() -> Plugin {
    Plugin::open(&rust_plugin("faulty")).unwrap()
}

fn opened(script: &str) -> Box<dyn Backend> {
    plugin().open(&OpenRequest { config: script.as_bytes().to_vec(), ..request() }).unwrap()
}

#[track_caller]
fn fatal<T: std::fmt::Debug>(outcome: m3_abi::Result<T>) -> String {
    match outcome {
        Err(Error::Fatal(sentence)) => sentence,
        other => panic!("not fatal: {other:?}"),
    }
}

/// All calls of a life, in order, until the first that fails.
fn live(instance: &mut dyn Backend) -> m3_abi::Result<()> {
    instance.load(&embedding())?;
    instance.ready()?;
    instance.reserve(1)?;
    instance.warm(&[])?;
    let ticket = instance.submit(&Step::default())?;
    instance.wait(ticket, &mut Output::with_capacity(1, 0))?;
    instance.done().map(|_| ())
}

#[test]
fn panic_in_any_call_kills_the_instance_with_a_sentence() {
    for entry in ["load", "ready", "reserve", "warm", "submit", "wait", "done"] {
        let mut instance = opened(entry);
        let sentence = fatal(live(instance.as_mut()));
        assert_eq!(sentence, format!("panicked in {entry}: {entry} as asked"));
        let later = fatal(instance.submit(&Step::default()));
        assert_eq!(later, format!("this instance is dead: {sentence}"));
    }
}

#[test]
fn fatal_in_any_call_kills_the_instance_with_its_sentence() {
    for entry in ["load", "ready", "reserve", "warm", "submit", "wait", "done"] {
        let mut instance = opened(&format!("fatal {entry}"));
        assert_eq!(fatal(live(instance.as_mut())), format!("{entry} failed as asked"));
        assert!(fatal(instance.done()).contains("dead"));
    }
}

#[test]
fn panics_before_there_is_an_instance() {
    let request = ProbeRequest { config: b"probe".to_vec(), tp: 1, ep: 1 };
    assert_eq!(fatal(plugin().probe(&request)), "panicked in probe: probe as asked");
    let request = OpenRequest { config: b"open".to_vec(), ..support::request() };
    assert_eq!(fatal(plugin().open(&request).map(|_| ())), "panicked in open: open as asked");
    assert!(plugin().probe(&ProbeRequest::default()).is_ok(), "the driver lives on");
}

#[test]
fn panic_in_close_is_contained() {
    let mut instance = opened("close");
    live(instance.as_mut()).unwrap();
    drop(instance);
    live(opened("").as_mut()).unwrap();
}

#[test]
fn other_instances_survive_a_panic() {
    let (mut dying, mut living) = (opened("submit"), opened(""));
    fatal(live(dying.as_mut()));
    live(living.as_mut()).unwrap();
}

#[test]
fn output_that_outgrows_the_hosts_room_is_fatal() {
    let sentence = fatal(live(opened("long output").as_mut()));
    assert_eq!(sentence, "the backend made 2 tokens where the host has room for 1");
}

#[test]
fn comm_ids_and_pages_longer_than_the_first_guess_arrive_whole() {
    let id = plugin().comm_id().unwrap();
    assert_eq!((id.len(), id[9_999]), (10_000, 9_999_u32 as u8));
    let mut instance = opened("");
    instance.load(&embedding()).unwrap();
    assert_eq!(instance.ready().unwrap().page_bytes, 1);
    let mut bytes = Vec::new();
    instance.read_pages(&[3, 4], &mut bytes).unwrap();
    assert_eq!(bytes, [3, 3, 3, 3, 4, 4, 4, 4]);
    assert_eq!(instance.done().unwrap(), Ticket(0));
}

#[test]
fn what_the_trait_does_not_implement_is_unsupported() {
    let refusal = opened("").regions().unwrap_err();
    assert_eq!(refusal, Error::Unsupported("this backend cannot name its page buffers".to_owned()));
}
