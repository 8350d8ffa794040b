//! The linked CPU backend against every suite: one rank in both modes, then several ranks.

use m3_abi::types::{DTYPE_BF16, DTYPE_F32};
use m3_tests::report::Report;
use m3_tests::suites;
use m3_tests::world::Setup;

fn holds(setup: &Setup) {
    let mut report = Report::default();
    suites::all(backend_cpu::driver(), setup, &mut report, &mut |_| {});
    report.assert_passed();
}

#[test]
fn one_rank_float32() {
    holds(&Setup::with_dtype(DTYPE_F32));
}

#[test]
fn one_rank_bfloat16() {
    holds(&Setup::with_dtype(DTYPE_BF16));
}

#[test]
fn two_ranks_float32() {
    holds(&Setup::with_ranks(DTYPE_F32, 2, 1));
}

#[test]
fn four_ranks_float32() {
    holds(&Setup::with_ranks(DTYPE_F32, 4, 1));
}

#[test]
fn two_ranks_with_whole_experts_float32() {
    holds(&Setup::with_ranks(DTYPE_F32, 2, 2));
}

#[test]
fn four_ranks_in_two_expert_groups_float32() {
    holds(&Setup::with_ranks(DTYPE_F32, 4, 2));
}
