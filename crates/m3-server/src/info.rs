//! What the info routes tell about this server: how it was started, in the names of SGLang's `/server_info`. Nothing
//! here is secret: no keys, no environment, no command line.

use m3_core::engine::EngineConfig;
use m3_core::metrics::EngineStats;
use serde_json::{Value, json};

use crate::args::Options;

/// Facts that do not change after loading.
#[derive(Clone, Debug, Default)]
pub struct ServerInfo {
    pub computer: Computer,
    pub tp: u32,
    pub ep: u32,
    pub num_pages: usize,
    pub page_tokens: usize,
    pub max_running: usize,
    pub max_queued: usize,
    pub max_step_tokens: usize,
    pub prefix_cache: bool,
    /// `mxfp8` or `none`.
    pub quantization: &'static str,
    /// As the flags name them.
    pub dtype: &'static str,
    pub kv_dtype: &'static str,
    pub model_type: String,
    pub architectures: Vec<String>,
    pub memory: MemoryFacts,
}

/// What was measured while loading; bytes are those of the rank that needs most.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryFacts {
    pub weight_bytes: u64,
    /// Of one page.
    pub page_bytes: u64,
    pub workspace_bytes: u64,
    /// From opening the devices until they can take steps.
    pub load_seconds: f64,
    /// From the first look at the folder until then.
    pub startup_seconds: f64,
}

/// What computes, as the backend says itself.
#[derive(Clone, Debug, Default)]
pub struct Computer {
    pub backend: String,
    pub device: String,
    /// Which kernel each operation takes, a line each.
    pub paths: Vec<String>,
}

impl Computer {
    /// From the answer to the probe.
    pub fn new(backend: &str, report: &m3_abi::ProbeReport) -> Self {
        let device = format!("{} x {}", report.num_devices, report.device);
        Computer {
            backend: backend.to_owned(),
            device,
            paths: report.paths.lines().map(str::to_owned).collect(),
        }
    }
}

impl ServerInfo {
    /// From what was chosen at load. The checkpoint's config says what kind of model it is.
    pub fn new(
        computer: Computer,
        options: &Options,
        engine: &EngineConfig,
        config_json: &[u8],
        quantization: &'static str,
    ) -> Self {
        let config: Value = serde_json::from_slice(config_json).unwrap_or_default();
        let names = config["architectures"].as_array().into_iter().flatten();
        ServerInfo {
            computer,
            tp: options.backend.tp,
            ep: options.backend.ep,
            num_pages: engine.num_pages,
            page_tokens: engine.page_tokens,
            max_running: engine.max_running,
            max_queued: engine.max_queued,
            max_step_tokens: engine.max_step_tokens,
            prefix_cache: engine.prefix_cache,
            quantization,
            dtype: dtype_name(options.backend.dtype),
            kv_dtype: dtype_name(options.backend.kv_dtype),
            model_type: config["model_type"].as_str().unwrap_or("minimax_m3").to_owned(),
            architectures: names.filter_map(Value::as_str).map(str::to_owned).collect(),
            memory: MemoryFacts::default(),
        }
    }

    /// The part of `/server_info` that does not change.
    pub fn fields(&self) -> Value {
        json!({
            "backend": self.computer.backend,
            "device": self.computer.device,
            "backend_paths": self.computer.paths,
            "tp_size": self.tp,
            "ep_size": self.ep,
            "dp_size": 1,
            "pp_size": 1,
            "load_balance_method": "round_robin",
            "disaggregation_mode": "null",
            "is_embedding": false,
            "page_size": self.page_tokens,
            "max_total_tokens": self.num_pages * self.page_tokens,
            "max_total_num_tokens": self.num_pages * self.page_tokens,
            "max_running_requests": self.max_running,
            "max_queued_requests": self.max_queued,
            "chunked_prefill_size": self.max_step_tokens,
            "disable_radix_cache": !self.prefix_cache,
            "quantization": self.quantization,
            "dtype": self.dtype,
            "kv_cache_dtype": self.kv_dtype,
            "weight_version": "default",
        })
    }
}

/// Tokens a second of the last step: every row of a decode step gives one.
pub fn generation_rate(stats: &EngineStats) -> f64 {
    let step = &stats.last_step;
    if stats.running == 0 || step.wall_us == 0 {
        0.0
    } else {
        step.num_seqs as f64 / (step.wall_us as f64 / 1e6)
    }
}

fn dtype_name(bits: u32) -> &'static str {
    use m3_abi::types::{DTYPE_BF16, DTYPE_F32, DTYPE_FP8_E4M3};
    match bits {
        DTYPE_F32 => "float32",
        DTYPE_BF16 => "bfloat16",
        DTYPE_FP8_E4M3 => "fp8_e4m3",
        _ => "auto",
    }
}
