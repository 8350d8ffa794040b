//! The answer of a GPU backend that cannot serve: no device, or its kernels were not built.
//!
//! A plugin builds and loads on any machine; only `probe` tells what is missing. Nothing here ever serves.

use m3_abi::{Backend, Driver, Error, OpenRequest, ProbeReport, ProbeRequest, Result};

use crate::driver::{self, Vendor};

/// A driver without kernels.
#[derive(Clone, Copy, Debug)]
pub struct Absent {
    /// As `--backend` takes it, e.g. `sm90`.
    pub name: &'static str,
    pub version: &'static str,
    pub vendor: Vendor,
}

impl Absent {
    /// Everything that is missing, so that it can be mended in one go.
    pub fn refusal(&self) -> String {
        let kernels = format!("kernels missing: run cargo xtask build --backend {}", self.name);
        match driver::count(self.vendor) {
            Ok(_) => kernels,
            Err(absence) => format!("no device: {absence}; {kernels}"),
        }
    }
}

impl Driver for Absent {
    fn name(&self) -> &str {
        self.name
    }

    fn version(&self) -> &str {
        self.version
    }

    fn probe(&self, _request: &ProbeRequest) -> Result<ProbeReport> {
        Err(Error::Unsupported(self.refusal()))
    }

    fn comm_id(&self) -> Result<Vec<u8>> {
        Err(Error::Unsupported(self.refusal()))
    }

    fn open(&self, _request: &OpenRequest) -> Result<Box<dyn Backend>> {
        Err(Error::Unsupported(self.refusal()))
    }
}
