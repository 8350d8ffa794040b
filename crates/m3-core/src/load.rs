//! From a checkpoint to ranks that can be served: open, load, ready, reserve and warm, on all ranks in parallel.
//! Everything that can fail, fails here, with a sentence that names the rank and the tensor.

/// How to load; `DTYPE_*` are [`m3_abi::types`]' constants.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    pub dtype: u32,
    pub kv_dtype: u32,
    pub tp: u32,
    pub ep: u32,
    pub max_rows: u32,
    pub max_step_tokens: u32,
    pub max_context: u32,
    /// Most bytes for pages on each rank; 0 = the backend decides.
    pub page_memory_bytes: u64,
    /// Worker threads of a CPU rank; 0 = the backend decides.
    pub num_threads: u32,
    pub max_logprobs: u32,
    /// Keep a second, packed copy of the weights where that is faster.
    pub pack_weights: bool,
    /// Keep the named points of the last step (slow; conformance only).
    pub taps: bool,
    /// A collective older than this is aborted; 0 = the backend's default.
    pub collective_timeout_ms: u64,
}

/// How far a rank is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    Opening,
    Loading { done_bytes: u64, total_bytes: u64 },
    Repacking,
    Reserving { pages: u64 },
    Warming,
    Ready,
}

/// Ranks that take steps, and the memory plan they agreed on.
pub struct LoadedModel {
    /// In rank order.
    pub ranks: Vec<Box<dyn m3_abi::Backend>>,
    /// Equal on all ranks.
    pub num_pages: usize,
    /// Per rank, of the largest one.
    pub page_bytes: u64,
    pub weight_bytes: u64,
    pub workspace_bytes: u64,
}
