//! The plain `#[repr(C)]` structs that cross the plugin line, exactly as `include/m3_backend.h` declares them.
//!
//! Growth rules: every struct that crosses by pointer opens with `size` (its own `sizeof` on the side that made it);
//! elements of an array have no `size`, their array's [`Span::stride`] plays that part. Fields are only ever
//! appended, reserved fields are zero, integers have fixed width and there is no implicit padding.
//! Nothing here owns memory: a pointer is valid for the duration of the call unless its field says longer.

/// Major version: both sides must agree.
pub const MAJOR: u32 = 1;
/// Minor version: may differ either way; presence of a field is tested through `size` or `stride`.
pub const MINOR: u32 = 0;

/// The only three outcomes of a call.
pub const STATUS_OK: i32 = 0;
/// Cannot be done here; said before serving, with a reason. Nothing has changed.
pub const STATUS_UNSUPPORTED: i32 = 1;
/// The instance is dead: the engine ends every request and turns health red.
pub const STATUS_FATAL: i32 = 2;

/// "No value" in the `u32` fields that say so.
pub const NONE: u32 = u32::MAX;

/// An array: `count` elements, `stride` bytes apart (so that an element type may grow).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub data: *const core::ffi::c_void,
    pub count: u64,
    pub stride: u64,
}

/// Text or bytes written by the callee into the caller's memory; `len` may exceed `capacity` when it was cut.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Text {
    pub data: *mut u8,
    pub capacity: u64,
    pub len: u64,
}

/// Weight formats, a bit each in [`Probe::weight_formats`].
pub const FORMAT_F32: u32 = 1;
pub const FORMAT_BF16: u32 = 2;
/// e4m3fn values with one UE8M0 scale byte for 32 values along the last dimension.
pub const FORMAT_MXFP8: u32 = 4;
/// e4m3fn values with one f32 scale for each 128 x 128 tile.
pub const FORMAT_BLOCK_FP8: u32 = 8;
/// e2m1 pairs, e4m3 scale for 16 values, one f32 scale.
pub const FORMAT_NVFP4: u32 = 16;

/// Compute and KV dtypes, a bit each in [`Probe::dtypes`] and [`Probe::kv_dtypes`], one value in [`OpenArgs`].
pub const DTYPE_F32: u32 = 1;
pub const DTYPE_BF16: u32 = 2;
pub const DTYPE_FP8_E4M3: u32 = 4;

/// How quantised linears are computed (the mode a backend is compared in).
pub const QUANT_WEIGHT_ONLY: u32 = 0;
pub const QUANT_W8A8: u32 = 1;
pub const QUANT_BLOCK_FP8: u32 = 2;

/// [`Probe::flags`]: tensor pointers must stay valid until `close`, not only until `ready`.
pub const PROBE_KEEP_MAPPED: u32 = 1;
/// [`Probe::flags`]: never taken by `auto`, only when asked for by name or path (test backends).
pub const PROBE_BY_NAME_ONLY: u32 = 2;
/// [`Probe::flags`]: `encode` works for a model whose config and checkpoint have a vision tower.
pub const PROBE_ENCODES: u32 = 4;

/// [`OpenArgs::flags`]: run rank R of world W with collectives skipped; output is meaningless (benchmarks only).
pub const OPEN_SOLO: u32 = 1;
/// [`OpenArgs::flags`]: keep the named points of the last step for `tap` (slow; conformance only).
pub const OPEN_TAPS: u32 = 2;

/// Given by the host to `m3_backend_query`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Host {
    pub size: u32,
    pub major: u32,
    pub minor: u32,
    pub reserved: u32,
    /// May be null. Level 1 error, 2 warn, 3 info, 4 debug. Callable from any thread until the process ends.
    pub log: Option<unsafe extern "C" fn(level: u32, text: *const u8, len: u64)>,
}

/// What the host intends to serve, so that `probe` can refuse shapes by name.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ProbeArgs {
    pub size: u32,
    pub tp: u32,
    pub ep: u32,
    pub reserved: u32,
    /// Bytes of `config.json`; count 0 when only devices are asked for.
    pub config: Span,
}

/// The answer of `probe`. Texts are caller-allocated.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    pub size: u32,
    /// 0 means unusable; `auto` takes the highest. CPU answers 10, GPUs 100 and more.
    pub score: u32,
    pub num_devices: u32,
    pub weight_formats: u32,
    pub dtypes: u32,
    pub kv_dtypes: u32,
    pub quant_mode: u32,
    pub flags: u32,
    pub memory_total_bytes: u64,
    pub memory_free_bytes: u64,
    /// Human name of the devices, e.g. "NVIDIA H200".
    pub device: Text,
    /// Architecture, e.g. "sm_90a".
    pub arch: Text,
    /// One line per op: "name: path it will take".
    pub paths: Text,
}

/// One instance: one rank on one device.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct OpenArgs {
    pub size: u32,
    pub flags: u32,
    pub rank: u32,
    /// World size: ranks that share the model.
    pub tp: u32,
    /// Expert-parallel groups, a divisor of `tp`; 1 = experts are cut by width, `tp` = whole experts per rank.
    pub ep: u32,
    /// Reserved, 0: more is refused until built.
    pub dp: u32,
    pub node: u32,
    pub device: u32,
    /// One `DTYPE_*`: activations and residual stream.
    pub dtype: u32,
    /// One `DTYPE_*`: K, V and index-K.
    pub kv_dtype: u32,
    /// Table rows: most sequences known to the device at once.
    pub max_rows: u32,
    /// Most tokens in one step.
    pub max_step_tokens: u32,
    /// Longest context in tokens.
    pub max_context: u32,
    /// Tokens of a page = tokens of a sparse block.
    pub page_tokens: u32,
    /// Most alternatives asked for per position.
    pub max_logprobs: u32,
    /// Worker threads of a CPU rank; 0 = the backend decides.
    pub num_threads: u32,
    /// Most bytes for pages; 0 = the backend decides from free memory.
    pub page_memory_bytes: u64,
    /// A collective older than this is aborted and its rank named; 0 = 300 s.
    pub collective_timeout_ms: u64,
    /// Bytes of `config.json`.
    pub config: Span,
    /// What `comm_id` of rank 0 returned; count 0 when `tp` is 1.
    pub comm_id: Span,
}

/// One tensor, already cut for this rank. `data` is null for a synthetic tensor (filled from `seed` on the device).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Tensor {
    pub size: u32,
    /// One `FORMAT_*`.
    pub format: u32,
    pub num_dims: u32,
    /// MXFP8: values of the first scale group that lie before the first column (a cut inside a group).
    pub group_offset: u32,
    pub shape: [u64; 5],
    /// In elements.
    pub strides: [u64; 5],
    /// Canonical name: the released naming scheme, whatever the file used.
    pub name: Span,
    pub data: *const u8,
    pub scale: *const u8,
    /// Scale entries from one row of scales to the next.
    pub scale_stride: u64,
    pub seed: u64,
}

/// The answer of `ready`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Ready {
    pub size: u32,
    pub reserved: u32,
    /// Bytes of K, V and index-K of all layers for one page on this rank.
    pub page_bytes: u64,
    /// Pages that fit the memory limit.
    pub max_pages: u64,
    pub weight_bytes: u64,
    pub workspace_bytes: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ReserveArgs {
    pub size: u32,
    pub reserved: u32,
    pub num_pages: u64,
}

/// One shape that will be sent.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WarmShape {
    pub num_tokens: u32,
    pub num_seqs: u32,
    pub context_len: u32,
    pub reserved: u32,
}

/// Settings of a table row, sent once when a sequence gets the row (and again after preemption).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowBind {
    pub row: u32,
    /// Alternatives wanted per position with the sampled one's log-probability; [`NONE`] = no log-probabilities at all.
    pub num_logprobs: u32,
    /// Randomness is Philox(seed, output index).
    pub seed: u64,
    /// 0 = greedy (lowest id on ties).
    pub temperature: f32,
    pub top_p: f32,
    pub min_p: f32,
    /// 0 = off.
    pub top_k: u32,
    /// 1.0 = off.
    pub repetition_penalty: f32,
    pub presence_penalty: f32,
    pub frequency_penalty: f32,
    /// Prompt ids that penalties look at: `history[history_offset ..][.. prompt_len]`, then `output_len` generated ones.
    pub history_offset: u32,
    pub prompt_len: u32,
    pub output_len: u32,
    /// Into `Step::biases`.
    pub bias_offset: u32,
    pub num_biases: u32,
}

impl RowBind {
    /// The most likely token always, no log-probabilities, nothing added or penalised.
    pub const fn greedy(row: u32) -> Self {
        RowBind {
            row,
            num_logprobs: NONE,
            seed: 0,
            temperature: 0.0,
            top_p: 1.0,
            min_p: 0.0,
            top_k: 0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            history_offset: 0,
            prompt_len: 0,
            output_len: 0,
            bias_offset: 0,
            num_biases: 0,
        }
    }
}

/// Added to the logit of `token` before anything else.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenBias {
    pub token: u32,
    pub bias: f32,
}

/// New entries of a row's page table: `page_ids[offset..][..count]` become entries `first..`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageAppend {
    pub row: u32,
    pub first: u32,
    pub offset: u32,
    pub count: u32,
}

/// [`Seq::flags`]: the single input token is the one this row sampled last (its value may not be known to the host yet).
pub const SEQ_CHAINED: u32 = 1;

/// A request's part of a step: `num_tokens` tokens at positions `first_position..`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seq {
    pub row: u32,
    pub flags: u32,
    pub first_position: u32,
    pub num_tokens: u32,
    /// Into `Step::tokens`; unused when chained.
    pub token_offset: u32,
    /// The last `num_logits` positions of this part need logits (0 = none), one output slot each from `output_offset`.
    pub num_logits: u32,
    pub output_offset: u32,
    /// Into `Step::targets`, one per logits position: a token id is scored, [`NONE`] is sampled; the field itself [`NONE`] = sample all.
    pub target_offset: u32,
    /// Into `Step::masks`, in words, `ceil(vocab / 32)` words per sampled position; [`NONE`] = everything is allowed.
    pub mask_offset: u32,
    /// Output index (Philox counter) of the first sampled position.
    pub output_index: u32,
}

/// Rows `first_row..` of an encoded medium replace the embeddings at `first_position..` of a row's sequence.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediaSpan {
    pub handle: u64,
    pub row: u32,
    pub first_position: u32,
    pub len: u32,
    pub first_row: u32,
}

/// One pass of the model over a batch. Applied in this order: releases, binds, pages, then the sequences.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct StepArgs {
    pub size: u32,
    pub reserved: u32,
    pub id: u64,
    /// `u32` rows whose sequence has ended or been preempted.
    pub releases: Span,
    /// [`RowBind`]
    pub binds: Span,
    /// [`PageAppend`]
    pub pages: Span,
    /// `u32`
    pub page_ids: Span,
    /// [`Seq`]
    pub seqs: Span,
    /// `u32`
    pub tokens: Span,
    /// `u32`
    pub targets: Span,
    /// `u32` words; owned by the host until the ticket completes.
    pub masks: Span,
    /// `u32`
    pub history: Span,
    /// [`TokenBias`]
    pub biases: Span,
    /// [`MediaSpan`]
    pub media: Span,
}

/// [`OutputArgs::faults`]: this row's logits held NaN; its token and log-probabilities are meaningless.
pub const FAULT_NAN: u32 = 1;
/// Every token was masked away.
pub const FAULT_EMPTY_MASK: u32 = 2;

/// Results of a step, in caller memory, one slot per logits position.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct OutputArgs {
    pub size: u32,
    /// Slots available.
    pub capacity: u32,
    /// Alternatives per slot in `top_ids` and `top_logprobs`.
    pub top_capacity: u32,
    pub reserved: u32,
    pub tokens: *mut u32,
    /// Natural log of the model's own distribution (before temperature, filters and penalties).
    pub logprobs: *mut f32,
    /// `FAULT_*` bits.
    pub faults: *mut u32,
    /// Rank of the token in its distribution, 0 = most likely; `NONE` when not asked for.
    pub ranks: *mut u32,
    /// `capacity * top_capacity`, most likely first; unused entries are [`NONE`].
    pub top_ids: *mut u32,
    pub top_logprobs: *mut f32,
    /// Device time of the step; 0 when unknown.
    pub device_time_us: u64,
}

/// Patches of images and videos to encode.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EncodeArgs {
    pub size: u32,
    pub reserved: u32,
    /// `f32` values (`count` counts values): rows of `row_len`, normalised, in merge order.
    pub patches: Span,
    pub row_len: u64,
    /// `u32` triples t, h, w in patches, a triple per medium.
    pub grids: Span,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct EncodeResult {
    pub size: u32,
    /// Rows an embedding can use.
    pub num_rows: u32,
    pub handle: u64,
    pub ticket: u64,
    /// Device bytes held until `media_free`.
    pub bytes: u64,
}

/// A named point of the last step, as `f32` (ids too: they are exact below 2^24).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TapArgs {
    pub size: u32,
    pub num_dims: u32,
    /// E.g. `layer_out.3`.
    pub name: Span,
    pub data: *mut f32,
    /// In values; when too small the call sets `shape` and writes nothing.
    pub capacity: u64,
    pub shape: [u64; 5],
}

/// One page buffer a transfer engine may register.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Region {
    pub base: u64,
    pub len_bytes: u64,
    /// 0 host, 1 CUDA, 2 HIP.
    pub memory_kind: u32,
    pub device: u32,
    /// Bytes from one page to the next.
    pub page_stride_bytes: u64,
    /// First layer and number of layers held, and lanes (bit 0 K, 1 V, 2 index-K).
    pub first_layer: u32,
    pub num_layers: u32,
    pub lanes: u32,
    pub dtype: u32,
    /// Equal on two instances = direct transfer is possible.
    pub layout_hash: u64,
}

/// A page copied on the device.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageCopy {
    pub from: u32,
    pub to: u32,
}

/// Page buffers, written by the callee into the caller's array.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RegionArgs {
    pub size: u32,
    pub reserved: u32,
    pub data: *mut Region,
    /// In elements.
    pub capacity: u64,
    /// Bytes from one element to the next in the caller's array.
    pub stride: u64,
    /// How many there are; more than `capacity` means that only `capacity` were written.
    pub count: u64,
}
