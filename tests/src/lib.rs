//! Conformance suites: they hold any backend, linked or loaded from a file, against the golden checkpoints and the
//! scalar reference, through nothing but `m3-abi`. A vendor's acceptance runs exactly these.

pub mod feed;
pub mod golden;
pub mod report;
pub mod suites;
pub mod world;

use anyhow::Result;
use m3_abi::Driver;
use report::Report;
use world::Setup;

/// Runs every suite on `driver` in the modes that its probe declares; only checks whose name holds one of `only`, unless
/// that is empty.
///
/// # Errors
/// Only when the golden data cannot be read or the driver refuses to probe; everything else is a line of the report.
pub fn conformance(driver: &dyn Driver, only: &[String], progress: &mut dyn FnMut(&str)) -> Result<Report> {
    let probe = driver.probe(&m3_abi::ProbeRequest::default())?;
    let mut report = Report { only: only.to_vec(), ..Report::default() };
    for (dtype, name) in [(m3_abi::types::DTYPE_F32, "float32"), (m3_abi::types::DTYPE_BF16, "bfloat16")] {
        if probe.dtypes & dtype == 0 {
            report.skip(name, "not offered by this backend");
            continue;
        }
        suites::all(driver, &Setup::with_dtype(dtype), &mut report, progress);
    }
    Ok(report)
}
