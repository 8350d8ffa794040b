//! The CPU backend linked and from its file: one table, equal answers. What it computes is for the conformance suite.
#![allow(clippy::unwrap_used, reason = "a setup that fails fails the test")]

use m3_abi::discover::file_name;
use m3_abi::{Driver, Error, LinkedBackend, OpenRequest, Plugin, ProbeReport, ProbeRequest};

const LINKED: LinkedBackend = m3_abi::linked_backend!("cpu", backend_cpu::CpuDriver::detect());

#[test]
fn linked_and_loaded_from_its_file() {
    let test = std::env::current_exe().unwrap();
    let file = test.parent().unwrap().join(file_name("cpu"));
    let (linked, loaded) = (Plugin::linked(&LINKED).unwrap(), Plugin::open(&file).unwrap());
    assert_eq!((linked.name(), linked.version()), (loaded.name(), loaded.version()));
    let report = |plugin: &Plugin| {
        let report = plugin.probe(&ProbeRequest::default()).unwrap();
        ProbeReport { memory_free_bytes: 0, ..report }
    };
    assert_eq!(report(&linked), report(&loaded));
    assert_eq!(report(&linked).score, 10);
    let refusal = |plugin: &Plugin| plugin.open(&OpenRequest::default()).map(|_| ()).unwrap_err();
    assert!(matches!(refusal(&linked), Error::Unsupported(_)));
    assert_eq!(refusal(&linked), refusal(&loaded));
}
