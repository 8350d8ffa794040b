//! The Rust face of the hardware abstraction: what a backend implements and what the engine calls.
//!
//! The engine holds `Box<dyn Backend>`s and cannot tell a linked backend from a `dlopen`ed one: [`crate::load`]
//! implements these traits over a plugin's function table, [`crate::export`] makes such a table from an implementation.
//! Calls on one [`Backend`] are never concurrent. No text, no scheduling, no model here.

use crate::types::{MediaSpan, PageAppend, PageCopy, Ready, Region, RowBind, Seq, TokenBias, WarmShape};

/// The two ways a call can fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// Cannot be done here; nothing has changed. The sentence says what and what to do.
    Unsupported(String),
    /// The instance is dead.
    Fatal(String),
}

impl std::fmt::Display for Error {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Unsupported(reason) | Error::Fatal(reason) => formatter.write_str(reason),
        }
    }
}

impl std::error::Error for Error {}

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A point on an instance's timeline; tickets of one instance finish in order, starting at 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// What the host intends to serve; `config` is the text of `config.json`, empty when only devices are asked for.
#[derive(Clone, Debug, Default)]
pub struct ProbeRequest {
    pub config: Vec<u8>,
    pub tp: u32,
    pub ep: u32,
}

/// What a driver can do here. Bits are the `FORMAT_*`, `DTYPE_*`, `QUANT_*` and `PROBE_*` constants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeReport {
    pub score: u32,
    pub num_devices: u32,
    pub weight_formats: u32,
    pub dtypes: u32,
    pub kv_dtypes: u32,
    pub quant_mode: u32,
    pub flags: u32,
    pub memory_total_bytes: u64,
    pub memory_free_bytes: u64,
    pub device: String,
    pub arch: String,
    /// One line per op: "name: path it will take".
    pub paths: String,
}

/// Everything one rank needs to know; fields as in [`crate::types::OpenArgs`].
#[derive(Clone, Debug, Default)]
pub struct OpenRequest {
    pub flags: u32,
    pub rank: u32,
    pub tp: u32,
    pub ep: u32,
    pub dp: u32,
    pub node: u32,
    pub device: u32,
    pub dtype: u32,
    pub kv_dtype: u32,
    pub max_rows: u32,
    pub max_step_tokens: u32,
    pub max_context: u32,
    pub page_tokens: u32,
    pub max_logprobs: u32,
    pub num_threads: u32,
    pub page_memory_bytes: u64,
    pub collective_timeout_ms: u64,
    pub config: Vec<u8>,
    pub comm_id: Vec<u8>,
}

/// One tensor of this rank. Memory behind the pointers outlives `ready`, or the instance with `PROBE_KEEP_MAPPED`.
#[derive(Clone, Debug)]
pub struct TensorView<'a> {
    /// Canonical name, e.g. `language_model.model.layers.3.self_attn.q_proj.weight`.
    pub name: &'a str,
    /// One `FORMAT_*`.
    pub format: u32,
    pub shape: &'a [u64],
    /// In elements, as long as `shape`.
    pub strides: &'a [u64],
    /// Null for a synthetic tensor.
    pub data: *const u8,
    /// Null when the format has no scales.
    pub scale: *const u8,
    pub scale_stride: u64,
    pub group_offset: u32,
    pub seed: u64,
}

/// One step; see [`crate::types::StepArgs`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Step<'a> {
    pub id: u64,
    pub releases: &'a [u32],
    pub binds: &'a [RowBind],
    pub pages: &'a [PageAppend],
    pub page_ids: &'a [u32],
    pub seqs: &'a [Seq],
    pub tokens: &'a [u32],
    pub targets: &'a [u32],
    pub masks: &'a [u32],
    pub history: &'a [u32],
    pub biases: &'a [TokenBias],
    pub media: &'a [MediaSpan],
}

/// Results of a step, a slot per logits position; see [`crate::types::OutputArgs`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Output {
    pub tokens: Vec<u32>,
    pub logprobs: Vec<f32>,
    pub faults: Vec<u32>,
    pub ranks: Vec<u32>,
    /// `tokens.len() * top_capacity`.
    pub top_ids: Vec<u32>,
    pub top_logprobs: Vec<f32>,
    pub top_capacity: usize,
    pub device_time_us: u64,
}

impl Output {
    /// Slots for `capacity` positions with `top_capacity` alternatives each, all marked unset.
    pub fn with_capacity(capacity: usize, top_capacity: usize) -> Self {
        Output {
            tokens: vec![crate::types::NONE; capacity],
            logprobs: vec![f32::NEG_INFINITY; capacity],
            faults: vec![0; capacity],
            ranks: vec![crate::types::NONE; capacity],
            top_ids: vec![crate::types::NONE; capacity * top_capacity],
            top_logprobs: vec![f32::NEG_INFINITY; capacity * top_capacity],
            top_capacity,
            device_time_us: 0,
        }
    }
}

/// An encoded medium on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Media {
    pub handle: u64,
    pub num_rows: u32,
    pub ticket: Ticket,
    pub bytes: u64,
}

/// A tap's values, row-major.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tap {
    pub shape: Vec<u64>,
    pub data: Vec<f32>,
}

/// One kind of device: finds devices and opens instances. One per library.
pub trait Driver: Send + Sync + 'static {
    /// Short name as `--backend` takes it, e.g. `cpu`, `sm90`.
    fn name(&self) -> &str;
    /// Version of the backend, for `m3 backends`.
    fn version(&self) -> &str;
    /// Refuses with the reason why nothing can be served here.
    fn probe(&self, request: &ProbeRequest) -> Result<ProbeReport>;
    /// Opaque bytes that rank 0 makes and every rank of a world is given.
    fn comm_id(&self) -> Result<Vec<u8>>;
    fn open(&self, request: &OpenRequest) -> Result<Box<dyn Backend>>;
}

fn cannot<T>(what: &str) -> Result<T> {
    Err(Error::Unsupported(format!("this backend cannot {what}")))
}

/// One rank on one device. Before serving: `load`*, `ready`, `reserve`, `warm`; then `submit` and `wait`.
pub trait Backend: Send {
    fn load(&mut self, tensor: &TensorView<'_>) -> Result<()>;
    fn ready(&mut self) -> Result<Ready>;
    fn reserve(&mut self, num_pages: u64) -> Result<()>;
    /// Tune and capture; after this nothing allocates.
    fn warm(&mut self, shapes: &[WarmShape]) -> Result<()>;

    /// Returns at enqueue; at most two steps may be in flight.
    fn submit(&mut self, step: &Step<'_>) -> Result<Ticket>;
    /// Until `ticket` is done; fills the output (rank 0; other ranks leave it alone).
    fn wait(&mut self, ticket: Ticket, output: &mut Output) -> Result<()>;
    /// Newest finished ticket (0 = none yet), without blocking.
    fn done(&mut self) -> Result<Ticket>;

    fn copy_pages(&mut self, _copies: &[PageCopy]) -> Result<()> {
        cannot("copy pages")
    }
    /// Canonical order: layer, lane (K, V, index-K), KV head, token, dim; one page after the other.
    fn read_pages(&mut self, _pages: &[u32], _bytes: &mut Vec<u8>) -> Result<()> {
        cannot("read pages")
    }
    fn write_pages(&mut self, _pages: &[u32], _bytes: &[u8]) -> Result<()> {
        cannot("write pages")
    }
    fn regions(&mut self) -> Result<Vec<Region>> {
        cannot("name its page buffers")
    }
    /// `patches`: rows of `row_len`; `grids`: t, h, w per medium. Every rank gets the same calls in the same order.
    fn encode(&mut self, _patches: &[f32], _row_len: usize, _grids: &[[u32; 3]]) -> Result<Media> {
        cannot("encode images")
    }
    fn media_free(&mut self, _handle: u64) -> Result<()> {
        cannot("free media")
    }
    /// A named point of the last step that was waited for, opened with `OPEN_TAPS`.
    fn tap(&mut self, _name: &str) -> Result<Tap> {
        cannot("read taps")
    }
    fn trace(&mut self, _begin: bool) -> Result<()> {
        cannot("trace")
    }
}
