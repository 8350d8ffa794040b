//! The checks, grouped by what they hold a backend against.

pub mod compare;
pub mod consistency;
pub mod edges;
pub mod goldens;
pub mod media;
pub mod pages;
pub mod replay;
pub mod sampling;
pub mod sampling_steps;

use crate::report::Report;
use crate::world::Setup;
use m3_abi::Driver;

/// Text cases of each golden checkpoint: prefill answers, then the greedy one.
pub const GOLDENS: [(&str, &[&str], &str); 6] = [
    ("text", &["text_1", "text_2", "text_17", "text_64", "text_129", "text_200"], "greedy_text"),
    ("long16", &["text_40", "text_1000"], "greedy_long"),
    ("long128", &["text_2700"], "greedy_long"),
    ("vl", &["text_24"], "greedy_text"),
    ("vl_mxfp8", &["text_24"], "greedy_text"),
    ("real128", &["text_20", "text_300", "text_1500"], "greedy_long"),
];

/// Everything, in the mode of `setup`.
pub fn all(driver: &dyn Driver, setup: &Setup, report: &mut Report, progress: &mut dyn FnMut(&str)) {
    goldens::run(driver, setup, report, progress);
    media::run(driver, setup, report, progress);
    consistency::run(driver, setup, report, progress);
    pages::run(driver, setup, report, progress);
    replay::run(driver, setup, report, progress);
    edges::run(driver, setup, report, progress);
    sampling::run(driver, setup, report, progress);
    sampling_steps::run(driver, setup, report, progress);
}

/// "float32 tp2 ep1 NAME".
pub(crate) fn label(setup: &Setup, name: &str) -> String {
    let dtype = if setup.is_exact() { "float32" } else { "bfloat16" };
    format!("{dtype} tp{} ep{} {name}", setup.tp, setup.ep)
}
