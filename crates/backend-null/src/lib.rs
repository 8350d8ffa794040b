//! The scripted backend: no model, deterministic tokens, simulated time, and a referee of every step.
//!
//! It makes the server and the scheduler testable and benchable alone. A token depends on every token before it as
//! *read back from the pages*, so a chunk, prefix hit, preemption or page move that is wrong by one slot changes the
//! output or is Fatal. What it does not do: arithmetic, penalties, the exact temperature, taps.
//!
//! Behaviour is set in the config handed to `open`, see [`options::Options`].

pub mod distribution;
mod instance;
pub mod options;
mod outputs;
mod pages;
mod rows;
mod step;

use m3_abi::types::{
    DTYPE_BF16, DTYPE_F32, DTYPE_FP8_E4M3, FORMAT_BF16, FORMAT_BLOCK_FP8, FORMAT_F32, FORMAT_MXFP8,
    FORMAT_NVFP4, PROBE_BY_NAME_ONLY, PROBE_ENCODES, QUANT_WEIGHT_ONLY,
};
use m3_abi::{Backend, Driver, Error, LinkedBackend, OpenRequest, ProbeReport, ProbeRequest, Result};

/// The driver, with the name `null`.
#[derive(Clone, Copy, Debug, Default)]
pub struct NullDriver;

/// For programs that link this backend in.
pub const LINKED: LinkedBackend = m3_abi::linked_backend!("null", NullDriver);

impl Driver for NullDriver {
    fn name(&self) -> &str {
        "null"
    }

    fn version(&self) -> &str {
        env!("CARGO_PKG_VERSION")
    }

    fn probe(&self, request: &ProbeRequest) -> Result<ProbeReport> {
        if !request.config.is_empty() {
            options::Options::parse(&request.config).map_err(Error::Unsupported)?;
        }
        Ok(ProbeReport {
            score: 1,
            num_devices: 1,
            weight_formats: FORMAT_F32 | FORMAT_BF16 | FORMAT_MXFP8 | FORMAT_BLOCK_FP8 | FORMAT_NVFP4,
            dtypes: DTYPE_F32 | DTYPE_BF16,
            kv_dtypes: DTYPE_F32 | DTYPE_BF16 | DTYPE_FP8_E4M3,
            quant_mode: QUANT_WEIGHT_ONLY,
            flags: PROBE_BY_NAME_ONLY | PROBE_ENCODES,
            memory_total_bytes: 0,
            memory_free_bytes: 0,
            device: "scripted tokens".to_owned(),
            arch: "none".to_owned(),
            paths: "sample: a hash of the tokens before, or a script".to_owned(),
        })
    }

    fn comm_id(&self) -> Result<Vec<u8>> {
        Ok(b"null".to_vec())
    }

    fn open(&self, request: &OpenRequest) -> Result<Box<dyn Backend>> {
        Ok(Box::new(instance::Instance::open(request)?))
    }
}
