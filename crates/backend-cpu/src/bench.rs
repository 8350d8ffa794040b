//! How fast this backend is, and what share of the machine that is: what `cargo xtask bench cpu` prints.
//!
//! First the machine's own limits (read bandwidth of all threads, the best GEMM rate found), then decode and prefill of a
//! synthetic model with M3's proportions whose weights are many times the last cache. Wall time, medians; a busy machine
//! shows. [`run_vision`] is `cargo xtask bench vision`: a picture at the released tower's shape.

mod limits;
mod model;
mod vision;

use m3_abi::{Error, Result};
use serde::Serialize;

pub use limits::Limits;
pub use vision::{VisionRate, VisionReport, operations, run_vision};

use crate::kernels::Kernels;
use crate::kernels::matrix::Format;
use crate::machine;
use model::Bench;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// Threads; 0 = all cores.
    pub num_threads: usize,
    /// Tokens of a prefill step.
    pub prefill_tokens: usize,
    /// Tokens in the pages before decode is timed.
    pub context: usize,
    /// Sequences that decode together, a measurement each.
    pub batches: Vec<usize>,
    /// Steps timed for each measurement; the median counts.
    pub repeats: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options { num_threads: 0, prefill_tokens: 512, context: 512, batches: vec![1, 4], repeats: 7 }
    }
}

/// One measurement of steps.
#[derive(Clone, Debug, Serialize)]
pub struct Rate {
    pub tokens_per_s: f64,
    /// Median of a step.
    pub step_ms: f64,
    /// Weights and keys and values read by a step, in 10^9 bytes a second.
    pub gb_per_s: f64,
    pub share_of_bandwidth: f64,
    /// Multiply-adds of a step counted as two, in 10^9 a second.
    pub gflops: f64,
    /// Of the best GEMM rate of the mode.
    pub share_of_gemm: f64,
}

/// One model and mode.
#[derive(Clone, Debug, Serialize)]
pub struct ModelReport {
    /// Format of the linears: `bf16` or `mxfp8`.
    pub weights: String,
    /// Activations: `float32` or `bfloat16`.
    pub dtype: String,
    pub weight_bytes: u64,
    pub prefill_tokens: usize,
    pub prefill: Rate,
    pub context: usize,
    pub decode: Vec<DecodeReport>,
}

#[derive(Clone, Debug, Serialize)]
pub struct DecodeReport {
    pub batch: usize,
    pub rate: Rate,
}

/// Everything `bench cpu` shows.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub cpu: String,
    pub isa: String,
    pub num_threads: usize,
    pub limits: Limits,
    pub models: Vec<ModelReport>,
}

/// Measures; `progress` is told what comes next.
///
/// # Errors
/// When the synthetic model does not fit into memory.
pub fn run(options: &Options, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    let kernels = Kernels::detect();
    let num_threads = if options.num_threads == 0 { machine::num_cores() } else { options.num_threads };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(num_threads).build();
    let pool = pool.map_err(|error| Error::Unsupported(format!("{num_threads} threads: {error}")))?;
    progress("limits of the machine");
    let limits = pool.install(|| Limits::measure(kernels));
    drop(pool);
    let mut models = Vec::new();
    for (format, is_bf16) in [(Format::Bf16, true), (Format::Mxfp8, true), (Format::Bf16, false)] {
        let bench = Bench { format, is_bf16, num_threads };
        progress(&bench.name());
        models.push(bench.measure(options, &limits)?);
    }
    Ok(Report { cpu: machine::cpu_name(), isa: kernels.isa().name().to_owned(), num_threads, limits, models })
}
