//! The scalar reference under the same suites: what they ask can be met, and they can fail.

use m3_abi::types::DTYPE_F32;
use m3_model::reference::ReferenceDriver;
use m3_tests::feed::{Row, one};
use m3_tests::golden::{self, Case};
use m3_tests::report::Report;
use m3_tests::suites::{self, goldens};
use m3_tests::world::{Setup, World};

#[test]
fn reference_passes_every_suite() {
    let mut report = Report::default();
    suites::all(&ReferenceDriver::default(), &Setup::with_dtype(DTYPE_F32), &mut report, &mut |_| {});
    report.assert_passed();
}

#[test]
fn wrong_checkpoint_fails_the_golden_suite() {
    let case = Case::load("long16", "text_40").unwrap();
    let checkpoint = golden::checkpoint("text").unwrap();
    let mut world =
        World::open(&ReferenceDriver::default(), &checkpoint, &Setup::with_dtype(DTYPE_F32)).unwrap();
    let error = goldens::prefill_case(&mut world, &case, true).unwrap_err().to_string();
    assert!(error.contains("layer_out.0"), "{error}");
}

#[test]
fn skipping_positions_is_refused() {
    let checkpoint = golden::checkpoint("text").unwrap();
    let mut world =
        World::open(&ReferenceDriver::default(), &checkpoint, &Setup::with_dtype(DTYPE_F32)).unwrap();
    let mut row = Row::new(0);
    one(&mut world, &mut row, &[1, 2, 3], 1).unwrap();
    row.computed = 9;
    let error = one(&mut world, &mut row, &[4], 1).unwrap_err().to_string();
    assert!(error.contains("position"), "{error}");
}
