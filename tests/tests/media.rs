//! Pictures and videos on the linked CPU backend and the reference, alone, so that they are quick to ask for; and what a
//! backend without a vision tower is told.

use m3_abi::types::{DTYPE_BF16, DTYPE_F32, PROBE_ENCODES};
use m3_abi::{Backend, Driver, OpenRequest, ProbeReport, ProbeRequest, Result};
use m3_model::reference::ReferenceDriver;
use m3_tests::report::{Report, Verdict};
use m3_tests::suites::media;
use m3_tests::world::Setup;

fn holds(driver: &dyn Driver, setup: &Setup) {
    let mut report = Report::default();
    media::run(driver, setup, &mut report, &mut |_| {});
    report.assert_passed();
}

#[test]
fn reference() {
    holds(&ReferenceDriver::default(), &Setup::with_dtype(DTYPE_F32));
}

#[test]
fn cpu_float32() {
    holds(backend_cpu::driver(), &Setup::with_dtype(DTYPE_F32));
}

#[test]
fn cpu_bfloat16() {
    holds(backend_cpu::driver(), &Setup::with_dtype(DTYPE_BF16));
}

#[test]
fn cpu_two_ranks() {
    holds(backend_cpu::driver(), &Setup::with_ranks(DTYPE_F32, 2, 1));
}

/// The reference without the word that it encodes.
struct TextOnly;

impl Driver for TextOnly {
    fn name(&self) -> &str {
        "text-only"
    }

    fn version(&self) -> &str {
        "0"
    }

    fn probe(&self, request: &ProbeRequest) -> Result<ProbeReport> {
        let probe = ReferenceDriver::default().probe(request)?;
        Ok(ProbeReport { flags: probe.flags & !PROBE_ENCODES, ..probe })
    }

    fn comm_id(&self) -> Result<Vec<u8>> {
        ReferenceDriver::default().comm_id()
    }

    fn open(&self, request: &OpenRequest) -> Result<Box<dyn Backend>> {
        ReferenceDriver::default().open(request)
    }
}

#[test]
fn a_backend_that_does_not_encode_is_skipped_by_name() {
    let mut report = Report::default();
    media::run(&TextOnly, &Setup::with_dtype(DTYPE_F32), &mut report, &mut |_| {});
    assert_eq!(report.lines.len(), 18);
    for line in &report.lines {
        assert_eq!(line.verdict, Verdict::Skip("this backend encodes no media".to_owned()), "{}", line.check);
    }
}
