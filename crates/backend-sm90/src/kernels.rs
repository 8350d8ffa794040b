//! Launch stubs of every kernel in `kernels/manifest.toml`. Generated: do not edit.
//!
//! This file is the lock of the kernels' arguments: `cargo xtask build --backend sm90` fails when it would
//! write another one, and writes it with `--bless`. Which kernel is launched when is not decided here.

use m3_gpu::arguments::{ArgumentList, Matrix};
use m3_gpu::kernels::{Contract, KernelSet, Loader, Queue};
use m3_gpu::launch::{DevicePointer, LaunchError, Launcher, MapElement};
use m3_gpu::pack::Pack;

/// The target whose packs fit these stubs.
pub const TARGET: &str = "sm90";

/// The tools that a pack must have been made with.
pub const TOOLCHAIN: &[(&str, &str)] = &[
    ("nvidia-cuda-cccl", "13.0.85"),
    ("nvidia-cuda-crt", "13.0.88"),
    ("nvidia-cuda-nvcc", "13.0.88"),
    ("nvidia-cuda-runtime", "13.0.96"),
    ("nvidia-nvvm", "13.0.88"),
    ("triton", "3.9.0"),
];

/// Shapes that kernels are compiled for, and their dims.
pub const SHAPES: &[(&str, &[(&str, i64)])] = &[
    (
        "M3 TP1",
        &[
            ("block", 128),
            ("dense_width", 12288),
            ("expert_width", 3072),
            ("experts", 128),
            ("experts_per_token", 4),
            ("group", 16),
            ("head_dim", 128),
            ("hidden", 6144),
            ("index_dim", 128),
            ("index_heads", 4),
            ("kv_heads", 4),
            ("query_heads", 64),
            ("rotary_dim", 64),
            ("shared_width", 3072),
            ("topk", 16),
            ("vocab", 200064),
        ],
    ),
    (
        "M3 TP2",
        &[
            ("block", 128),
            ("dense_width", 6144),
            ("expert_width", 1536),
            ("experts", 128),
            ("experts_per_token", 4),
            ("group", 16),
            ("head_dim", 128),
            ("hidden", 6144),
            ("index_dim", 128),
            ("index_heads", 2),
            ("kv_heads", 2),
            ("query_heads", 32),
            ("rotary_dim", 64),
            ("shared_width", 1536),
            ("topk", 16),
            ("vocab", 100032),
        ],
    ),
    (
        "M3 TP4",
        &[
            ("block", 128),
            ("dense_width", 3072),
            ("expert_width", 768),
            ("experts", 128),
            ("experts_per_token", 4),
            ("group", 16),
            ("head_dim", 128),
            ("hidden", 6144),
            ("index_dim", 128),
            ("index_heads", 1),
            ("kv_heads", 1),
            ("query_heads", 16),
            ("rotary_dim", 64),
            ("shared_width", 768),
            ("topk", 16),
            ("vocab", 50016),
        ],
    ),
    (
        "M3 TP8",
        &[
            ("block", 128),
            ("dense_width", 1536),
            ("expert_width", 384),
            ("experts", 128),
            ("experts_per_token", 4),
            ("group", 8),
            ("head_dim", 128),
            ("hidden", 6144),
            ("index_dim", 128),
            ("index_heads", 1),
            ("kv_heads", 1),
            ("query_heads", 8),
            ("rotary_dim", 64),
            ("shared_width", 384),
            ("topk", 16),
            ("vocab", 25008),
        ],
    ),
    (
        "m3-nano TP1",
        &[
            ("block", 128),
            ("dense_width", 768),
            ("expert_width", 64),
            ("experts", 16),
            ("experts_per_token", 4),
            ("group", 2),
            ("head_dim", 128),
            ("hidden", 256),
            ("index_dim", 128),
            ("index_heads", 2),
            ("kv_heads", 2),
            ("query_heads", 4),
            ("rotary_dim", 64),
            ("shared_width", 64),
            ("topk", 4),
            ("vocab", 2560),
        ],
    ),
    (
        "m3-nano TP2",
        &[
            ("block", 128),
            ("dense_width", 384),
            ("expert_width", 32),
            ("experts", 16),
            ("experts_per_token", 4),
            ("group", 2),
            ("head_dim", 128),
            ("hidden", 256),
            ("index_dim", 128),
            ("index_heads", 1),
            ("kv_heads", 1),
            ("query_heads", 2),
            ("rotary_dim", 64),
            ("shared_width", 32),
            ("topk", 4),
            ("vocab", 1280),
        ],
    ),
    (
        "text TP1",
        &[
            ("block", 128),
            ("dense_width", 256),
            ("expert_width", 64),
            ("experts", 8),
            ("experts_per_token", 4),
            ("group", 2),
            ("head_dim", 32),
            ("hidden", 128),
            ("index_dim", 32),
            ("index_heads", 4),
            ("kv_heads", 4),
            ("query_heads", 8),
            ("rotary_dim", 16),
            ("shared_width", 64),
            ("topk", 16),
            ("vocab", 512),
        ],
    ),
    (
        "vl_mxfp8 TP1",
        &[
            ("block", 128),
            ("dense_width", 128),
            ("expert_width", 64),
            ("experts", 12),
            ("experts_per_token", 4),
            ("group", 16),
            ("head_dim", 32),
            ("hidden", 128),
            ("index_dim", 32),
            ("index_heads", 2),
            ("kv_heads", 2),
            ("query_heads", 32),
            ("rotary_dim", 16),
            ("shared_width", 64),
            ("topk", 16),
            ("vocab", 512),
        ],
    ),
    (
        "long16 TP1",
        &[
            ("block", 16),
            ("dense_width", 128),
            ("expert_width", 32),
            ("experts", 8),
            ("experts_per_token", 4),
            ("group", 4),
            ("head_dim", 32),
            ("hidden", 64),
            ("index_dim", 32),
            ("index_heads", 2),
            ("kv_heads", 2),
            ("query_heads", 8),
            ("rotary_dim", 16),
            ("shared_width", 32),
            ("topk", 4),
            ("vocab", 512),
        ],
    ),
    (
        "long128 TP1",
        &[
            ("block", 128),
            ("dense_width", 128),
            ("expert_width", 32),
            ("experts", 8),
            ("experts_per_token", 4),
            ("group", 2),
            ("head_dim", 128),
            ("hidden", 64),
            ("index_dim", 128),
            ("index_heads", 4),
            ("kv_heads", 4),
            ("query_heads", 8),
            ("rotary_dim", 64),
            ("shared_width", 32),
            ("topk", 16),
            ("vocab", 512),
        ],
    ),
    (
        "real128 TP1",
        &[
            ("block", 128),
            ("dense_width", 512),
            ("expert_width", 128),
            ("experts", 16),
            ("experts_per_token", 4),
            ("group", 4),
            ("head_dim", 128),
            ("hidden", 256),
            ("index_dim", 128),
            ("index_heads", 2),
            ("kv_heads", 2),
            ("query_heads", 8),
            ("rotary_dim", 64),
            ("shared_width", 128),
            ("topk", 4),
            ("vocab", 1024),
        ],
    ),
];

/// What each stub expects of a pack, for `m3_gpu::kernels::check`.
pub const CONTRACTS: &[Contract] = &[
    ScaleAdd::CONTRACT,
    ScaleAddCuda::CONTRACT,
    AddNorm::CONTRACT,
    GatherNorm::CONTRACT,
    Embed::CONTRACT,
    Swiglu::CONTRACT,
    FillSynthetic::CONTRACT,
    ScatterI32::CONTRACT,
    CopyPages::CONTRACT,
    PoisonPages::CONTRACT,
    GemmBf16::CONTRACT,
    GemmMxfp8::CONTRACT,
    GemmBf16F32::CONTRACT,
    RouterLogits::CONTRACT,
    RouterChoose::CONTRACT,
    GroupRows::CONTRACT,
    MoeUpBf16::CONTRACT,
    MoeDownBf16::CONTRACT,
    MoeUpMxfp8::CONTRACT,
    MoeDownMxfp8::CONTRACT,
    MoeUpStream::CONTRACT,
    MoeDownStream::CONTRACT,
    GemmStream::CONTRACT,
    MoeCombine::CONTRACT,
    RopeAngles::CONTRACT,
    NormRopeStore::CONTRACT,
    IndexScoreDecode::CONTRACT,
    IndexScorePrefill::CONTRACT,
    SelectBlocks::CONTRACT,
    SparseAttendDecode::CONTRACT,
    SparseMergeDecode::CONTRACT,
    SparseCount::CONTRACT,
    SparseOffsets::CONTRACT,
    SparseFill::CONTRACT,
    SparseAttendPrefill::CONTRACT,
    SparseMergePrefill::CONTRACT,
    DenseAttendPrefill::CONTRACT,
    DenseAttendDecode::CONTRACT,
    DenseMerge::CONTRACT,
    SampleScan::CONTRACT,
    SampleChoose::CONTRACT,
    SampleLogprobs::CONTRACT,
    CountHistory::CONTRACT,
];

/// Every kernel, loaded for one shape on one device.
#[derive(Clone, Debug)]
pub struct Kernels {
    pub scale_add: ScaleAdd,
    pub scale_add_cuda: ScaleAddCuda,
    pub add_norm: AddNorm,
    pub gather_norm: GatherNorm,
    pub embed: Embed,
    pub swiglu: Swiglu,
    pub fill_synthetic: FillSynthetic,
    pub scatter_i32: ScatterI32,
    pub copy_pages: CopyPages,
    pub poison_pages: PoisonPages,
    pub gemm_bf16: GemmBf16,
    pub gemm_mxfp8: GemmMxfp8,
    pub gemm_bf16_f32: GemmBf16F32,
    pub router_logits: RouterLogits,
    pub router_choose: RouterChoose,
    pub group_rows: GroupRows,
    pub moe_up_bf16: MoeUpBf16,
    pub moe_down_bf16: MoeDownBf16,
    pub moe_up_mxfp8: MoeUpMxfp8,
    pub moe_down_mxfp8: MoeDownMxfp8,
    pub moe_up_stream: MoeUpStream,
    pub moe_down_stream: MoeDownStream,
    pub gemm_stream: GemmStream,
    pub moe_combine: MoeCombine,
    pub rope_angles: RopeAngles,
    pub norm_rope_store: NormRopeStore,
    pub index_score_decode: IndexScoreDecode,
    pub index_score_prefill: IndexScorePrefill,
    pub select_blocks: SelectBlocks,
    pub sparse_attend_decode: SparseAttendDecode,
    pub sparse_merge_decode: SparseMergeDecode,
    pub sparse_count: SparseCount,
    pub sparse_offsets: SparseOffsets,
    pub sparse_fill: SparseFill,
    pub sparse_attend_prefill: SparseAttendPrefill,
    pub sparse_merge_prefill: SparseMergePrefill,
    pub dense_attend_prefill: DenseAttendPrefill,
    pub dense_attend_decode: DenseAttendDecode,
    pub dense_merge: DenseMerge,
    pub sample_scan: SampleScan,
    pub sample_choose: SampleChoose,
    pub sample_logprobs: SampleLogprobs,
    pub count_history: CountHistory,
}

impl Kernels {
    /// Loads what the pack holds for a shape; `shape` is what `Pack::covers` answered.
    pub fn load(launcher: &dyn Launcher, pack: &Pack<'_>, shape: usize) -> Result<Self, LaunchError> {
        let mut loader = Loader::new(launcher, pack, shape)?;
        Ok(Kernels {
            scale_add: ScaleAdd(KernelSet::load(&mut loader, ScaleAdd::CONTRACT)?),
            scale_add_cuda: ScaleAddCuda(KernelSet::load(&mut loader, ScaleAddCuda::CONTRACT)?),
            add_norm: AddNorm(KernelSet::load(&mut loader, AddNorm::CONTRACT)?),
            gather_norm: GatherNorm(KernelSet::load(&mut loader, GatherNorm::CONTRACT)?),
            embed: Embed(KernelSet::load(&mut loader, Embed::CONTRACT)?),
            swiglu: Swiglu(KernelSet::load(&mut loader, Swiglu::CONTRACT)?),
            fill_synthetic: FillSynthetic(KernelSet::load(&mut loader, FillSynthetic::CONTRACT)?),
            scatter_i32: ScatterI32(KernelSet::load(&mut loader, ScatterI32::CONTRACT)?),
            copy_pages: CopyPages(KernelSet::load(&mut loader, CopyPages::CONTRACT)?),
            poison_pages: PoisonPages(KernelSet::load(&mut loader, PoisonPages::CONTRACT)?),
            gemm_bf16: GemmBf16(KernelSet::load(&mut loader, GemmBf16::CONTRACT)?),
            gemm_mxfp8: GemmMxfp8(KernelSet::load(&mut loader, GemmMxfp8::CONTRACT)?),
            gemm_bf16_f32: GemmBf16F32(KernelSet::load(&mut loader, GemmBf16F32::CONTRACT)?),
            router_logits: RouterLogits(KernelSet::load(&mut loader, RouterLogits::CONTRACT)?),
            router_choose: RouterChoose(KernelSet::load(&mut loader, RouterChoose::CONTRACT)?),
            group_rows: GroupRows(KernelSet::load(&mut loader, GroupRows::CONTRACT)?),
            moe_up_bf16: MoeUpBf16(KernelSet::load(&mut loader, MoeUpBf16::CONTRACT)?),
            moe_down_bf16: MoeDownBf16(KernelSet::load(&mut loader, MoeDownBf16::CONTRACT)?),
            moe_up_mxfp8: MoeUpMxfp8(KernelSet::load(&mut loader, MoeUpMxfp8::CONTRACT)?),
            moe_down_mxfp8: MoeDownMxfp8(KernelSet::load(&mut loader, MoeDownMxfp8::CONTRACT)?),
            moe_up_stream: MoeUpStream(KernelSet::load(&mut loader, MoeUpStream::CONTRACT)?),
            moe_down_stream: MoeDownStream(KernelSet::load(&mut loader, MoeDownStream::CONTRACT)?),
            gemm_stream: GemmStream(KernelSet::load(&mut loader, GemmStream::CONTRACT)?),
            moe_combine: MoeCombine(KernelSet::load(&mut loader, MoeCombine::CONTRACT)?),
            rope_angles: RopeAngles(KernelSet::load(&mut loader, RopeAngles::CONTRACT)?),
            norm_rope_store: NormRopeStore(KernelSet::load(&mut loader, NormRopeStore::CONTRACT)?),
            index_score_decode: IndexScoreDecode(KernelSet::load(&mut loader, IndexScoreDecode::CONTRACT)?),
            index_score_prefill: IndexScorePrefill(KernelSet::load(
                &mut loader,
                IndexScorePrefill::CONTRACT,
            )?),
            select_blocks: SelectBlocks(KernelSet::load(&mut loader, SelectBlocks::CONTRACT)?),
            sparse_attend_decode: SparseAttendDecode(KernelSet::load(
                &mut loader,
                SparseAttendDecode::CONTRACT,
            )?),
            sparse_merge_decode: SparseMergeDecode(KernelSet::load(
                &mut loader,
                SparseMergeDecode::CONTRACT,
            )?),
            sparse_count: SparseCount(KernelSet::load(&mut loader, SparseCount::CONTRACT)?),
            sparse_offsets: SparseOffsets(KernelSet::load(&mut loader, SparseOffsets::CONTRACT)?),
            sparse_fill: SparseFill(KernelSet::load(&mut loader, SparseFill::CONTRACT)?),
            sparse_attend_prefill: SparseAttendPrefill(KernelSet::load(
                &mut loader,
                SparseAttendPrefill::CONTRACT,
            )?),
            sparse_merge_prefill: SparseMergePrefill(KernelSet::load(
                &mut loader,
                SparseMergePrefill::CONTRACT,
            )?),
            dense_attend_prefill: DenseAttendPrefill(KernelSet::load(
                &mut loader,
                DenseAttendPrefill::CONTRACT,
            )?),
            dense_attend_decode: DenseAttendDecode(KernelSet::load(
                &mut loader,
                DenseAttendDecode::CONTRACT,
            )?),
            dense_merge: DenseMerge(KernelSet::load(&mut loader, DenseMerge::CONTRACT)?),
            sample_scan: SampleScan(KernelSet::load(&mut loader, SampleScan::CONTRACT)?),
            sample_choose: SampleChoose(KernelSet::load(&mut loader, SampleChoose::CONTRACT)?),
            sample_logprobs: SampleLogprobs(KernelSet::load(&mut loader, SampleLogprobs::CONTRACT)?),
            count_history: CountHistory(KernelSet::load(&mut loader, CountHistory::CONTRACT)?),
        })
    }
}

/// Arguments of [`ScaleAdd`].
#[derive(Clone, Copy, Debug)]
pub struct ScaleAddArguments {
    /// `*bf16`, a multiple of 16.
    pub x: DevicePointer,
    /// `*bf16`, a multiple of 16.
    pub y: DevicePointer,
    /// `*bf16`, a multiple of 16.
    pub out: DevicePointer,
    /// `i32`.
    pub count: i32,
    /// `f32`.
    pub factor: f32,
}

/// `kernels/selfcheck/scale_add.py`, function `scale_add`.
#[derive(Clone, Debug)]
pub struct ScaleAdd(KernelSet);

impl ScaleAdd {
    /// Arguments and variants as the pack must have them.
    pub const CONTRACT: Contract = Contract {
        kernel: "scale_add",
        text: "scale_add(x: *bf16 @16, y: *bf16 @16, out: *bf16 @16, count: i32, factor: f32)",
        variants: &[],
    };

    /// Compiled in.
    pub const BLOCK: u32 = 1024;

    /// Whether it was compiled for the loaded shape.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.0.has(0)
    }

    /// Checks the arguments and puts one launch into the queue.
    pub fn launch(
        &self,
        queue: &Queue<'_>,
        grid: [u32; 3],
        arguments: &ScaleAddArguments,
    ) -> Result<(), LaunchError> {
        let mut list = ArgumentList::new("scale_add");
        list.pointer("x", arguments.x, 16)?;
        list.pointer("y", arguments.y, 16)?;
        list.pointer("out", arguments.out, 16)?;
        list.i32("count", arguments.count, 1)?;
        list.f32(arguments.factor)?;
        self.0.launch(queue, grid, 0, &mut list)
    }
}

/// Arguments of [`ScaleAddCuda`].
#[derive(Clone, Copy, Debug)]
pub struct ScaleAddCudaArguments {
    /// `*bf16`, a multiple of 2.
    pub x: DevicePointer,
    /// `*bf16`, a multiple of 2.
    pub y: DevicePointer,
    /// `*bf16`, a multiple of 2.
    pub out: DevicePointer,
    /// `i32`.
    pub count: i32,
    /// `f32`.
    pub factor: f32,
}

/// `kernels/selfcheck/scale_add.cu`, function `scale_add_cuda`.
#[derive(Clone, Debug)]
pub struct ScaleAddCuda(KernelSet);

impl ScaleAddCuda {
    /// Arguments and variants as the pack must have them.
    pub const CONTRACT: Contract = Contract {
        kernel: "scale_add_cuda",
        text: "scale_add_cuda(x: *bf16 @2, y: *bf16 @2, out: *bf16 @2, count: i32, factor: f32)",
        variants: &[],
    };

    /// Compiled in.
    pub const THREADS: u32 = 256;

    /// Whether it was compiled for the loaded shape.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.0.has(0)
    }

    /// Checks the arguments and puts one launch into the queue.
    pub fn launch(
        &self,
        queue: &Queue<'_>,
        grid: [u32; 3],
        arguments: &ScaleAddCudaArguments,
    ) -> Result<(), LaunchError> {
        let mut list = ArgumentList::new("scale_add_cuda");
        list.pointer("x", arguments.x, 2)?;
        list.pointer("y", arguments.y, 2)?;
        list.pointer("out", arguments.out, 2)?;
        list.i32("count", arguments.count, 1)?;
        list.f32(arguments.factor)?;
        self.0.launch(queue, grid, 0, &mut list)
    }
}

/// Arguments of [`AddNorm`].
#[derive(Clone, Copy, Debug)]
pub struct AddNormArguments {
    /// `*bf16`, a multiple of 16.
    pub residual: DevicePointer,
    /// `*bf16`, a multiple of 16, or null.
    pub pending: DevicePointer,
    /// `*bf16`, a multiple of 16.
    pub weight: DevicePointer,
    /// `*bf16`, a multiple of 16.
    pub out: DevicePointer,
    /// `f32`.
    pub eps: f32,
}

/// What [`AddNorm`] was compiled as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AddNormVariant {
    Pending,
    First,
}

impl AddNormVariant {
    /// In the manifest's order.
    pub const ALL: [Self; 2] = [Self::Pending, Self::First];

    #[must_use]
    pub const fn has_pending(self) -> u32 {
        match self {
            Self::Pending => 1,
            Self::First => 0,
        }
    }
}

/// `kernels/norm/norm.py`, function `add_norm`.
#[derive(Clone, Debug)]
pub struct AddNorm(KernelSet);

impl AddNorm {
    /// Arguments and variants as the pack must have them.
    pub const CONTRACT: Contract = Contract {
        kernel: "add_norm",
        text: "add_norm(residual: *bf16 @16, pending: *bf16 @16 null, weight: *bf16 @16, out: *bf16 @16, eps: f32) as Pending | First",
        variants: &["Pending", "First"],
    };

    /// Whether it was compiled for the loaded shape.
    #[must_use]
    pub fn is_loaded(&self, variant: AddNormVariant) -> bool {
        self.0.has(variant as usize)
    }

    /// Checks the arguments and puts one launch into the queue.
    pub fn launch(
        &self,
        queue: &Queue<'_>,
        grid: [u32; 3],
        variant: AddNormVariant,
        arguments: &AddNormArguments,
    ) -> Result<(), LaunchError> {
        let mut list = ArgumentList::new("add_norm");
        list.pointer("residual", arguments.residual, 16)?;
        list.nullable_pointer("pending", arguments.pending, 16)?;
        list.pointer("weight", arguments.weight, 16)?;
        list.pointer("out", arguments.out, 16)?;
        list.f32(arguments.eps)?;
        self.0.launch(queue, grid, variant as usize, &mut list)
    }
}

/// Arguments of [`GatherNorm`].
#[derive(Clone, Copy, Debug)]
pub struct GatherNormArguments {
    /// `*bf16`, a multiple of 16.
    pub residual: DevicePointer,
    /// `*bf16`, a multiple of 16.
    pub pending: DevicePointer,
    /// `*bf16`, a multiple of 16.
    pub weight: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub tokens: DevicePointer,
    /// `*bf16`, a multiple of 16.
    pub out: DevicePointer,
    /// `f32`.
    pub eps: f32,
}

/// `kernels/norm/norm.py`, function `gather_norm`.
#[derive(Clone, Debug)]
pub struct GatherNorm(KernelSet);

impl GatherNorm {
    /// Arguments and variants as the pack must have them.
    pub const CONTRACT: Contract = Contract {
        kernel: "gather_norm",
        text: "gather_norm(residual: *bf16 @16, pending: *bf16 @16, weight: *bf16 @16, tokens: *i32 @4, out: *bf16 @16, eps: f32)",
        variants: &[],
    };

    /// Whether it was compiled for the loaded shape.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.0.has(0)
    }

    /// Checks the arguments and puts one launch into the queue.
    pub fn launch(
        &self,
        queue: &Queue<'_>,
        grid: [u32; 3],
        arguments: &GatherNormArguments,
    ) -> Result<(), LaunchError> {
        let mut list = ArgumentList::new("gather_norm");
        list.pointer("residual", arguments.residual, 16)?;
        list.pointer("pending", arguments.pending, 16)?;
        list.pointer("weight", arguments.weight, 16)?;
        list.pointer("tokens", arguments.tokens, 4)?;
        list.pointer("out", arguments.out, 16)?;
        list.f32(arguments.eps)?;
        self.0.launch(queue, grid, 0, &mut list)
    }
}

/// Arguments of [`Embed`].
#[derive(Clone, Copy, Debug)]
pub struct EmbedArguments {
    /// `*i32`, a multiple of 4.
    pub ids: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub token_rows: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub last_tokens: DevicePointer,
    /// `*i32`, a multiple of 4, or null.
    pub media_index: DevicePointer,
    /// `*bf16`, a multiple of 16, or null.
    pub media: DevicePointer,
    /// `*bf16`, a multiple of 16.
    pub table: DevicePointer,
    /// `*bf16`, a multiple of 16.
    pub out: DevicePointer,
    /// `i32`.
    pub first_id: i32,
    /// `i32`.
    pub num_ids: i32,
}

/// `kernels/embed/embed.py`, function `embed`.
#[derive(Clone, Debug)]
pub struct Embed(KernelSet);

impl Embed {
    /// Arguments and variants as the pack must have them.
    pub const CONTRACT: Contract = Contract {
        kernel: "embed",
        text: "embed(ids: *i32 @4, token_rows: *i32 @4, last_tokens: *i32 @4, media_index: *i32 @4 null, media: *bf16 @16 null, table: *bf16 @16, out: *bf16 @16, first_id: i32, num_ids: i32)",
        variants: &[],
    };

    /// Whether it was compiled for the loaded shape.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.0.has(0)
    }

    /// Checks the arguments and puts one launch into the queue.
    pub fn launch(
        &self,
        queue: &Queue<'_>,
        grid: [u32; 3],
        arguments: &EmbedArguments,
    ) -> Result<(), LaunchError> {
        let mut list = ArgumentList::new("embed");
        list.pointer("ids", arguments.ids, 4)?;
        list.pointer("token_rows", arguments.token_rows, 4)?;
        list.pointer("last_tokens", arguments.last_tokens, 4)?;
        list.nullable_pointer("media_index", arguments.media_index, 4)?;
        list.nullable_pointer("media", arguments.media, 16)?;
        list.pointer("table", arguments.table, 16)?;
        list.pointer("out", arguments.out, 16)?;
        list.i32("first_id", arguments.first_id, 1)?;
        list.i32("num_ids", arguments.num_ids, 1)?;
        self.0.launch(queue, grid, 0, &mut list)
    }
}

/// Arguments of [`Swiglu`].
#[derive(Clone, Copy, Debug)]
pub struct SwigluArguments {
    /// `*bf16`, a multiple of 16.
    pub gate_up: DevicePointer,
    /// `*bf16`, a multiple of 16.
    pub out: DevicePointer,
    /// `i32`, a multiple of 16.
    pub inner: i32,
    /// `f32`.
    pub alpha: f32,
    /// `f32`.
    pub limit: f32,
}

/// `kernels/swiglu/swiglu.py`, function `swiglu`.
#[derive(Clone, Debug)]
pub struct Swiglu(KernelSet);

impl Swiglu {
    /// Arguments and variants as the pack must have them.
    pub const CONTRACT: Contract = Contract {
        kernel: "swiglu",
        text: "swiglu(gate_up: *bf16 @16, out: *bf16 @16, inner: i32 @16, alpha: f32, limit: f32)",
        variants: &[],
    };

    /// Compiled in.
    pub const BLOCK: u32 = 1024;

    /// Whether it was compiled for the loaded shape.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.0.has(0)
    }

    /// Checks the arguments and puts one launch into the queue.
    pub fn launch(
        &self,
        queue: &Queue<'_>,
        grid: [u32; 3],
        arguments: &SwigluArguments,
    ) -> Result<(), LaunchError> {
        let mut list = ArgumentList::new("swiglu");
        list.pointer("gate_up", arguments.gate_up, 16)?;
        list.pointer("out", arguments.out, 16)?;
        list.i32("inner", arguments.inner, 16)?;
        list.f32(arguments.alpha)?;
        list.f32(arguments.limit)?;
        self.0.launch(queue, grid, 0, &mut list)
    }
}

/// Arguments of [`FillSynthetic`].
#[derive(Clone, Copy, Debug)]
pub struct FillSyntheticArguments {
    /// `*u32`, a multiple of 16.
    pub out: DevicePointer,
    /// `i64`.
    pub words: i64,
    /// `i64`.
    pub seed: i64,
    /// `f32`.
    pub deviation: f32,
}

/// What [`FillSynthetic`] was compiled as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FillSyntheticVariant {
    F32,
    Bf16,
    E4m3,
}

impl FillSyntheticVariant {
    /// In the manifest's order.
    pub const ALL: [Self; 3] = [Self::F32, Self::Bf16, Self::E4m3];

    #[must_use]
    pub const fn kind(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::Bf16 => 1,
            Self::E4m3 => 2,
        }
    }
}

/// `kernels/fill/fill.py`, function `fill_synthetic`.
#[derive(Clone, Debug)]
pub struct FillSynthetic(KernelSet);

impl FillSynthetic {
    /// Arguments and variants as the pack must have them.
    pub const CONTRACT: Contract = Contract {
        kernel: "fill_synthetic",
        text: "fill_synthetic(out: *u32 @16, words: i64, seed: i64, deviation: f32) as F32 | Bf16 | E4m3",
        variants: &["F32", "Bf16", "E4m3"],
    };

    /// Compiled in.
    pub const BLOCK: u32 = 1024;

    /// Whether it was compiled for the loaded shape.
    #[must_use]
    pub fn is_loaded(&self, variant: FillSyntheticVariant) -> bool {
        self.0.has(variant as usize)
    }

    /// Checks the arguments and puts one launch into the queue.
    pub fn launch(
        &self,
        queue: &Queue<'_>,
        grid: [u32; 3],
        variant: FillSyntheticVariant,
        arguments: &FillSyntheticArguments,
    ) -> Result<(), LaunchError> {
        let mut list = ArgumentList::new("fill_synthetic");
        list.pointer("out", arguments.out, 16)?;
        list.i64("words", arguments.words, 1)?;
        list.i64("seed", arguments.seed, 1)?;
        list.f32(arguments.deviation)?;
        self.0.launch(queue, grid, variant as usize, &mut list)
    }
}

/// Arguments of [`ScatterI32`].
#[derive(Clone, Copy, Debug)]
pub struct ScatterI32Arguments {
    /// `*i32`, a multiple of 4.
    pub target: DevicePointer,
    /// `*i64`, a multiple of 8.
    pub index: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub value: DevicePointer,
    /// `i32`.
    pub count: i32,
}

/// `kernels/pages/pages.py`, function `scatter_i32`.
#[derive(Clone, Debug)]
pub struct ScatterI32(KernelSet);

impl ScatterI32 {
    /// Arguments and variants as the pack must have them.
    pub const CONTRACT: Contract = Contract {
        kernel: "scatter_i32",
        text: "scatter_i32(target: *i32 @4, index: *i64 @8, value: *i32 @4, count: i32)",
        variants: &[],
    };

    /// Compiled in.
    pub const BLOCK: u32 = 256;

    /// Whether it was compiled for the loaded shape.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.0.has(0)
    }

    /// Checks the arguments and puts one launch into the queue.
    pub fn launch(
        &self,
        queue: &Queue<'_>,
        grid: [u32; 3],
        arguments: &ScatterI32Arguments,
    ) -> Result<(), LaunchError> {
        let mut list = ArgumentList::new("scatter_i32");
        list.pointer("target", arguments.target, 4)?;
        list.pointer("index", arguments.index, 8)?;
        list.pointer("value", arguments.value, 4)?;
        list.i32("count", arguments.count, 1)?;
        self.0.launch(queue, grid, 0, &mut list)
    }
}

/// Arguments of [`CopyPages`].
#[derive(Clone, Copy, Debug)]
pub struct CopyPagesArguments {
    /// `*u32`, a multiple of 16.
    pub pool: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub sources: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub targets: DevicePointer,
    /// `i64`, a multiple of 16.
    pub page_words: i64,
}

/// `kernels/pages/pages.py`, function `copy_pages`.
#[derive(Clone, Debug)]
pub struct CopyPages(KernelSet);

impl CopyPages {
    /// Arguments and variants as the pack must have them.
    pub const CONTRACT: Contract = Contract {
        kernel: "copy_pages",
        text: "copy_pages(pool: *u32 @16, sources: *i32 @4, targets: *i32 @4, page_words: i64 @16)",
        variants: &[],
    };

    /// Compiled in.
    pub const BLOCK: u32 = 4096;

    /// Whether it was compiled for the loaded shape.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.0.has(0)
    }

    /// Checks the arguments and puts one launch into the queue.
    pub fn launch(
        &self,
        queue: &Queue<'_>,
        grid: [u32; 3],
        arguments: &CopyPagesArguments,
    ) -> Result<(), LaunchError> {
        let mut list = ArgumentList::new("copy_pages");
        list.pointer("pool", arguments.pool, 16)?;
        list.pointer("sources", arguments.sources, 4)?;
        list.pointer("targets", arguments.targets, 4)?;
        list.i64("page_words", arguments.page_words, 16)?;
        self.0.launch(queue, grid, 0, &mut list)
    }
}

/// Arguments of [`PoisonPages`].
#[derive(Clone, Copy, Debug)]
pub struct PoisonPagesArguments {
    /// `*u32`, a multiple of 16.
    pub pool: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub pages: DevicePointer,
    /// `i64`, a multiple of 16.
    pub page_words: i64,
}

/// `kernels/pages/pages.py`, function `poison_pages`.
#[derive(Clone, Debug)]
pub struct PoisonPages(KernelSet);

impl PoisonPages {
    /// Arguments and variants as the pack must have them.
    pub const CONTRACT: Contract = Contract {
        kernel: "poison_pages",
        text: "poison_pages(pool: *u32 @16, pages: *i32 @4, page_words: i64 @16)",
        variants: &[],
    };

    /// Compiled in.
    pub const BLOCK: u32 = 4096;

    /// Whether it was compiled for the loaded shape.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.0.has(0)
    }

    /// Checks the arguments and puts one launch into the queue.
    pub fn launch(
        &self,
        queue: &Queue<'_>,
        grid: [u32; 3],
        arguments: &PoisonPagesArguments,
    ) -> Result<(), LaunchError> {
        let mut list = ArgumentList::new("poison_pages");
        list.pointer("pool", arguments.pool, 16)?;
        list.pointer("pages", arguments.pages, 4)?;
        list.i64("page_words", arguments.page_words, 16)?;
        self.0.launch(queue, grid, 0, &mut list)
    }
}

/// Arguments of [`GemmBf16`].
#[derive(Clone, Copy, Debug)]
pub struct GemmBf16Arguments {
    /// `*bf16`, a multiple of 16.
    pub x: DevicePointer,
    /// `*bf16`, a multiple of 16.
    pub w: DevicePointer,
    /// `*u8`, or null.
    pub scales: DevicePointer,
    /// `*bf16`, a multiple of 16.
    pub out: DevicePointer,
    /// `*f32`, a multiple of 16, or null.
    pub partials: DevicePointer,
    /// `*i32`, a multiple of 4, or null.
    pub counters: DevicePointer,
    /// `i32`.
    pub m: i32,
    /// `i32`, a multiple of 16.
    pub n: i32,
    /// `i32`, a multiple of 16.
    pub k: i32,
}

/// What [`GemmBf16`] was compiled as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GemmBf16Variant {
    Decode16,
    Decode32,
    Decode64,
    Prefill,
}

impl GemmBf16Variant {
    /// In the manifest's order.
    pub const ALL: [Self; 4] = [Self::Decode16, Self::Decode32, Self::Decode64, Self::Prefill];

    #[must_use]
    pub const fn block_m(self) -> u32 {
        match self {
            Self::Decode16 => 16,
            Self::Decode32 => 32,
            Self::Decode64 => 64,
            Self::Prefill => 128,
        }
    }

    #[must_use]
    pub const fn block_n(self) -> u32 {
        match self {
            Self::Decode16 => 64,
            Self::Decode32 => 64,
            Self::Decode64 => 64,
            Self::Prefill => 256,
        }
    }

    #[must_use]
    pub const fn block_k(self) -> u32 {
        match self {
            Self::Decode16 => 128,
            Self::Decode32 => 128,
            Self::Decode64 => 128,
            Self::Prefill => 64,
        }
    }

    #[must_use]
    pub const fn group_m(self) -> u32 {
        8
    }

    #[must_use]
    pub const fn format(self) -> u32 {
        0
    }

    #[must_use]
    pub const fn swap(self) -> u32 {
        match self {
            Self::Decode16 => 1,
            Self::Decode32 => 1,
            Self::Decode64 => 1,
            Self::Prefill => 0,
        }
    }

    #[must_use]
    pub const fn split(self) -> u32 {
        match self {
            Self::Decode16 => 1,
            Self::Decode32 => 1,
            Self::Decode64 => 1,
            Self::Prefill => 0,
        }
    }

    #[must_use]
    pub const fn num_warps(self) -> u32 {
        match self {
            Self::Decode16 => 4,
            Self::Decode32 => 4,
            Self::Decode64 => 4,
            Self::Prefill => 8,
        }
    }

    #[must_use]
    pub const fn num_stages(self) -> u32 {
        4
    }
}

/// `kernels/gemm/gemm.py`, function `gemm`.
#[derive(Clone, Debug)]
pub struct GemmBf16(KernelSet);

impl GemmBf16 {
    /// Arguments and variants as the pack must have them.
    pub const CONTRACT: Contract = Contract {
        kernel: "gemm_bf16",
        text: "gemm_bf16(x: *bf16 @16, w: *bf16 @16, scales: *u8 null, out: *bf16 @16, partials: *f32 @16 null, counters: *i32 @4 null, M: i32, N: i32 @16, K: i32 @16) as Decode16 | Decode32 | Decode64 | Prefill",
        variants: &["Decode16", "Decode32", "Decode64", "Prefill"],
    };

    /// Compiled in.
    pub const OUT_F32: u32 = 0;

    /// Whether it was compiled for the loaded shape.
    #[must_use]
    pub fn is_loaded(&self, variant: GemmBf16Variant) -> bool {
        self.0.has(variant as usize)
    }

    /// Checks the arguments and puts one launch into the queue.
    pub fn launch(
        &self,
        queue: &Queue<'_>,
        grid: [u32; 3],
        variant: GemmBf16Variant,
        arguments: &GemmBf16Arguments,
    ) -> Result<(), LaunchError> {
        let mut list = ArgumentList::new("gemm_bf16");
        list.pointer("x", arguments.x, 16)?;
        list.pointer("w", arguments.w, 16)?;
        list.nullable_pointer("scales", arguments.scales, 1)?;
        list.pointer("out", arguments.out, 16)?;
        list.nullable_pointer("partials", arguments.partials, 16)?;
        list.nullable_pointer("counters", arguments.counters, 4)?;
        list.i32("M", arguments.m, 1)?;
        list.i32("N", arguments.n, 16)?;
        list.i32("K", arguments.k, 16)?;
        self.0.launch(queue, grid, variant as usize, &mut list)
    }
}

/// Arguments of [`GemmMxfp8`].
#[derive(Clone, Copy, Debug)]
pub struct GemmMxfp8Arguments {
    /// `*bf16`, a multiple of 16.
    pub x: DevicePointer,
    /// `*u8`, a multiple of 16.
    pub w: DevicePointer,
    /// `*u8`, a multiple of 16.
    pub scales: DevicePointer,
    /// `*bf16`, a multiple of 16.
    pub out: DevicePointer,
    /// `*f32`, a multiple of 16, or null.
    pub partials: DevicePointer,
    /// `*i32`, a multiple of 4, or null.
    pub counters: DevicePointer,
    /// `i32`.
    pub m: i32,
    /// `i32`, a multiple of 16.
    pub n: i32,
    /// `i32`, a multiple of 16.
    pub k: i32,
}

/// What [`GemmMxfp8`] was compiled as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GemmMxfp8Variant {
    Decode16Any,
    Decode32Any,
    Decode64Any,
    PrefillAny,
    Decode16,
    Decode32,
    Decode64,
    Prefill,
}

impl GemmMxfp8Variant {
    /// In the manifest's order.
    pub const ALL: [Self; 8] = [
        Self::Decode16Any,
        Self::Decode32Any,
        Self::Decode64Any,
        Self::PrefillAny,
        Self::Decode16,
        Self::Decode32,
        Self::Decode64,
        Self::Prefill,
    ];

    #[must_use]
    pub const fn block_m(self) -> u32 {
        match self {
            Self::Decode16Any => 16,
            Self::Decode32Any => 32,
            Self::Decode64Any => 64,
            Self::PrefillAny => 128,
            Self::Decode16 => 16,
            Self::Decode32 => 32,
            Self::Decode64 => 64,
            Self::Prefill => 128,
        }
    }

    #[must_use]
    pub const fn block_n(self) -> u32 {
        match self {
            Self::Decode16Any => 64,
            Self::Decode32Any => 64,
            Self::Decode64Any => 64,
            Self::PrefillAny => 128,
            Self::Decode16 => 64,
            Self::Decode32 => 64,
            Self::Decode64 => 64,
            Self::Prefill => 128,
        }
    }

    #[must_use]
    pub const fn block_k(self) -> u32 {
        128
    }

    #[must_use]
    pub const fn group_m(self) -> u32 {
        8
    }

    #[must_use]
    pub const fn format(self) -> u32 {
        match self {
            Self::Decode16Any => 1,
            Self::Decode32Any => 1,
            Self::Decode64Any => 1,
            Self::PrefillAny => 1,
            Self::Decode16 => 2,
            Self::Decode32 => 2,
            Self::Decode64 => 2,
            Self::Prefill => 2,
        }
    }

    #[must_use]
    pub const fn swap(self) -> u32 {
        1
    }

    #[must_use]
    pub const fn split(self) -> u32 {
        match self {
            Self::Decode16Any => 1,
            Self::Decode32Any => 1,
            Self::Decode64Any => 1,
            Self::PrefillAny => 0,
            Self::Decode16 => 1,
            Self::Decode32 => 1,
            Self::Decode64 => 1,
            Self::Prefill => 0,
        }
    }

    #[must_use]
    pub const fn num_warps(self) -> u32 {
        match self {
            Self::Decode16Any => 4,
            Self::Decode32Any => 4,
            Self::Decode64Any => 4,
            Self::PrefillAny => 8,
            Self::Decode16 => 4,
            Self::Decode32 => 4,
            Self::Decode64 => 4,
            Self::Prefill => 8,
        }
    }

    #[must_use]
    pub const fn num_stages(self) -> u32 {
        match self {
            Self::Decode16Any => 4,
            Self::Decode32Any => 4,
            Self::Decode64Any => 4,
            Self::PrefillAny => 3,
            Self::Decode16 => 4,
            Self::Decode32 => 4,
            Self::Decode64 => 4,
            Self::Prefill => 3,
        }
    }
}

/// `kernels/gemm/gemm.py`, function `gemm`.
#[derive(Clone, Debug)]
pub struct GemmMxfp8(KernelSet);

impl GemmMxfp8 {
    /// Arguments and variants as the pack must have them.
    pub const CONTRACT: Contract = Contract {
        kernel: "gemm_mxfp8",
        text: "gemm_mxfp8(x: *bf16 @16, w: *u8 @16, scales: *u8 @16, out: *bf16 @16, partials: *f32 @16 null, counters: *i32 @4 null, M: i32, N: i32 @16, K: i32 @16) as Decode16Any | Decode32Any | Decode64Any | PrefillAny | Decode16 | Decode32 | Decode64 | Prefill",
        variants: &[
            "Decode16Any",
            "Decode32Any",
            "Decode64Any",
            "PrefillAny",
            "Decode16",
            "Decode32",
            "Decode64",
            "Prefill",
        ],
    };

    /// Compiled in.
    pub const OUT_F32: u32 = 0;

    /// Whether it was compiled for the loaded shape.
    #[must_use]
    pub fn is_loaded(&self, variant: GemmMxfp8Variant) -> bool {
        self.0.has(variant as usize)
    }

    /// Checks the arguments and puts one launch into the queue.
    pub fn launch(
        &self,
        queue: &Queue<'_>,
        grid: [u32; 3],
        variant: GemmMxfp8Variant,
        arguments: &GemmMxfp8Arguments,
    ) -> Result<(), LaunchError> {
        let mut list = ArgumentList::new("gemm_mxfp8");
        list.pointer("x", arguments.x, 16)?;
        list.pointer("w", arguments.w, 16)?;
        list.pointer("scales", arguments.scales, 16)?;
        list.pointer("out", arguments.out, 16)?;
        list.nullable_pointer("partials", arguments.partials, 16)?;
        list.nullable_pointer("counters", arguments.counters, 4)?;
        list.i32("M", arguments.m, 1)?;
        list.i32("N", arguments.n, 16)?;
        list.i32("K", arguments.k, 16)?;
        self.0.launch(queue, grid, variant as usize, &mut list)
    }
}

/// Arguments of [`GemmBf16F32`].
#[derive(Clone, Copy, Debug)]
pub struct GemmBf16F32Arguments {
    /// `*bf16`, a multiple of 16.
    pub x: DevicePointer,
    /// `*bf16`, a multiple of 16.
    pub w: DevicePointer,
    /// `*u8`, or null.
    pub scales: DevicePointer,
    /// `*f32`, a multiple of 16.
    pub out: DevicePointer,
    /// `*f32`, a multiple of 16, or null.
    pub partials: DevicePointer,
    /// `*i32`, a multiple of 4, or null.
    pub counters: DevicePointer,
    /// `i32`.
    pub m: i32,
    /// `i32`, a multiple of 16.
    pub n: i32,
    /// `i32`, a multiple of 16.
    pub k: i32,
}

/// What [`GemmBf16F32`] was compiled as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GemmBf16F32Variant {
    Decode16,
    Decode32,
    Decode64,
    Prefill,
}

impl GemmBf16F32Variant {
    /// In the manifest's order.
    pub const ALL: [Self; 4] = [Self::Decode16, Self::Decode32, Self::Decode64, Self::Prefill];

    #[must_use]
    pub const fn block_m(self) -> u32 {
        match self {
            Self::Decode16 => 16,
            Self::Decode32 => 32,
            Self::Decode64 => 64,
            Self::Prefill => 128,
        }
    }

    #[must_use]
    pub const fn block_n(self) -> u32 {
        match self {
            Self::Decode16 => 64,
            Self::Decode32 => 64,
            Self::Decode64 => 64,
            Self::Prefill => 256,
        }
    }

    #[must_use]
    pub const fn block_k(self) -> u32 {
        match self {
            Self::Decode16 => 128,
            Self::Decode32 => 128,
            Self::Decode64 => 128,
            Self::Prefill => 64,
        }
    }

    #[must_use]
    pub const fn group_m(self) -> u32 {
        8
    }

    #[must_use]
    pub const fn format(self) -> u32 {
        0
    }

    #[must_use]
    pub const fn swap(self) -> u32 {
        match self {
            Self::Decode16 => 1,
            Self::Decode32 => 1,
            Self::Decode64 => 1,
            Self::Prefill => 0,
        }
    }

    #[must_use]
    pub const fn split(self) -> u32 {
        match self {
            Self::Decode16 => 1,
            Self::Decode32 => 1,
            Self::Decode64 => 1,
            Self::Prefill => 0,
        }
    }

    #[must_use]
    pub const fn num_warps(self) -> u32 {
        match self {
            Self::Decode16 => 4,
            Self::Decode32 => 4,
            Self::Decode64 => 4,
            Self::Prefill => 8,
        }
    }

    #[must_use]
    pub const fn num_stages(self) -> u32 {
        4
    }
}

/// `kernels/gemm/gemm.py`, function `gemm`.
#[derive(Clone, Debug)]
pub struct GemmBf16F32(KernelSet);

impl GemmBf16F32 {
    /// Arguments and variants as the pack must have them.
    pub const CONTRACT: Contract = Contract {
        kernel: "gemm_bf16_f32",
        text: "gemm_bf16_f32(x: *bf16 @16, w: *bf16 @16, scales: *u8 null, out: *f32 @16, partials: *f32 @16 null, counters: *i32 @4 null, M: i32, N: i32 @16, K: i32 @16) as Decode16 | Decode32 | Decode64 | Prefill",
        variants: &["Decode16", "Decode32", "Decode64", "Prefill"],
    };

    /// Compiled in.
    pub const OUT_F32: u32 = 1;

    /// Whether it was compiled for the loaded shape.
    #[must_use]
    pub fn is_loaded(&self, variant: GemmBf16F32Variant) -> bool {
        self.0.has(variant as usize)
    }

    /// Checks the arguments and puts one launch into the queue.
    pub fn launch(
        &self,
        queue: &Queue<'_>,
        grid: [u32; 3],
        variant: GemmBf16F32Variant,
        arguments: &GemmBf16F32Arguments,
    ) -> Result<(), LaunchError> {
        let mut list = ArgumentList::new("gemm_bf16_f32");
        list.pointer("x", arguments.x, 16)?;
        list.pointer("w", arguments.w, 16)?;
        list.nullable_pointer("scales", arguments.scales, 1)?;
        list.pointer("out", arguments.out, 16)?;
        list.nullable_pointer("partials", arguments.partials, 16)?;
        list.nullable_pointer("counters", arguments.counters, 4)?;
        list.i32("M", arguments.m, 1)?;
        list.i32("N", arguments.n, 16)?;
        list.i32("K", arguments.k, 16)?;
        self.0.launch(queue, grid, variant as usize, &mut list)
    }
}

/// Arguments of [`RouterLogits`].
#[derive(Clone, Copy, Debug)]
pub struct RouterLogitsArguments {
    /// `*bf16`, a multiple of 16.
    pub x: DevicePointer,
    /// `*f32`, a multiple of 16.
    pub w: DevicePointer,
    /// `*f32`, a multiple of 16.
    pub partials: DevicePointer,
    /// `i32`.
    pub t: i32,
    /// `i32`.
    pub e: i32,
    /// `i32`, a multiple of 16.
    pub k: i32,
}

/// What [`RouterLogits`] was compiled as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RouterLogitsVariant {
    Decode,
    Prefill,
}

impl RouterLogitsVariant {
    /// In the manifest's order.
    pub const ALL: [Self; 2] = [Self::Decode, Self::Prefill];

    #[must_use]
    pub const fn block_t(self) -> u32 {
        match self {
            Self::Decode => 16,
            Self::Prefill => 64,
        }
    }

    #[must_use]
    pub const fn num_warps(self) -> u32 {
        match self {
            Self::Decode => 4,
            Self::Prefill => 8,
        }
    }

    #[must_use]
    pub const fn num_stages(self) -> u32 {
        match self {
            Self::Decode => 4,
            Self::Prefill => 3,
        }
    }
}

/// `kernels/router/router.py`, function `router_logits`.
#[derive(Clone, Debug)]
pub struct RouterLogits(KernelSet);

impl RouterLogits {
    /// Arguments and variants as the pack must have them.
    pub const CONTRACT: Contract = Contract {
        kernel: "router_logits",
        text: "router_logits(x: *bf16 @16, w: *f32 @16, partials: *f32 @16, T: i32, E: i32, K: i32 @16) as Decode | Prefill",
        variants: &["Decode", "Prefill"],
    };

    /// Compiled in.
    pub const BLOCK_E: u32 = 128;
    /// Compiled in.
    pub const BLOCK_K: u32 = 64;

    /// Whether it was compiled for the loaded shape.
    #[must_use]
    pub fn is_loaded(&self, variant: RouterLogitsVariant) -> bool {
        self.0.has(variant as usize)
    }

    /// Checks the arguments and puts one launch into the queue.
    pub fn launch(
        &self,
        queue: &Queue<'_>,
        grid: [u32; 3],
        variant: RouterLogitsVariant,
        arguments: &RouterLogitsArguments,
    ) -> Result<(), LaunchError> {
        let mut list = ArgumentList::new("router_logits");
        list.pointer("x", arguments.x, 16)?;
        list.pointer("w", arguments.w, 16)?;
        list.pointer("partials", arguments.partials, 16)?;
        list.i32("T", arguments.t, 1)?;
        list.i32("E", arguments.e, 1)?;
        list.i32("K", arguments.k, 16)?;
        self.0.launch(queue, grid, variant as usize, &mut list)
    }
}

/// Arguments of [`RouterChoose`].
#[derive(Clone, Copy, Debug)]
pub struct RouterChooseArguments {
    /// `*f32`, a multiple of 16.
    pub partials: DevicePointer,
    /// `*f32`, a multiple of 16.
    pub bias: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub live: DevicePointer,
    /// `*f32`, a multiple of 16, or null.
    pub scores: DevicePointer,
    /// `*i32`, a multiple of 16.
    pub ids: DevicePointer,
    /// `*f32`, a multiple of 16.
    pub weights: DevicePointer,
    /// `*i32`, a multiple of 4, or null.
    pub offsets: DevicePointer,
    /// `*i32`, a multiple of 16, or null.
    pub rows: DevicePointer,
    /// `i32`.
    pub t: i32,
    /// `i32`.
    pub e: i32,
    /// `i32`.
    pub splits: i32,
}

/// `kernels/router/router.py`, function `router_choose`.
#[derive(Clone, Debug)]
pub struct RouterChoose(KernelSet);

impl RouterChoose {
    /// Arguments and variants as the pack must have them.
    pub const CONTRACT: Contract = Contract {
        kernel: "router_choose",
        text: "router_choose(partials: *f32 @16, bias: *f32 @16, live: *i32 @4, scores: *f32 @16 null, ids: *i32 @16, weights: *f32 @16, offsets: *i32 @4 null, rows: *i32 @16 null, T: i32, E: i32, splits: i32)",
        variants: &[],
    };

    /// Compiled in.
    pub const BLOCK_E: u32 = 128;

    /// Whether it was compiled for the loaded shape.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.0.has(0)
    }

    /// Checks the arguments and puts one launch into the queue.
    pub fn launch(
        &self,
        queue: &Queue<'_>,
        grid: [u32; 3],
        arguments: &RouterChooseArguments,
    ) -> Result<(), LaunchError> {
        let mut list = ArgumentList::new("router_choose");
        list.pointer("partials", arguments.partials, 16)?;
        list.pointer("bias", arguments.bias, 16)?;
        list.pointer("live", arguments.live, 4)?;
        list.nullable_pointer("scores", arguments.scores, 16)?;
        list.pointer("ids", arguments.ids, 16)?;
        list.pointer("weights", arguments.weights, 16)?;
        list.nullable_pointer("offsets", arguments.offsets, 4)?;
        list.nullable_pointer("rows", arguments.rows, 16)?;
        list.i32("T", arguments.t, 1)?;
        list.i32("E", arguments.e, 1)?;
        list.i32("splits", arguments.splits, 1)?;
        self.0.launch(queue, grid, 0, &mut list)
    }
}

/// Arguments of [`GroupRows`].
#[derive(Clone, Copy, Debug)]
pub struct GroupRowsArguments {
    /// `*i32`, a multiple of 16.
    pub ids: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub offsets: DevicePointer,
    /// `*i32`, a multiple of 16.
    pub rows: DevicePointer,
    /// `i32`.
    pub t: i32,
    /// `i32`.
    pub e: i32,
}

/// `kernels/router/router.py`, function `group_rows`.
#[derive(Clone, Debug)]
pub struct GroupRows(KernelSet);

impl GroupRows {
    /// Arguments and variants as the pack must have them.
    pub const CONTRACT: Contract = Contract {
        kernel: "group_rows",
        text: "group_rows(ids: *i32 @16, offsets: *i32 @4, rows: *i32 @16, T: i32, E: i32)",
        variants: &[],
    };

    /// Compiled in.
    pub const BLOCK: u32 = 4096;

    /// Whether it was compiled for the loaded shape.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.0.has(0)
    }

    /// Checks the arguments and puts one launch into the queue.
    pub fn launch(
        &self,
        queue: &Queue<'_>,
        grid: [u32; 3],
        arguments: &GroupRowsArguments,
    ) -> Result<(), LaunchError> {
        let mut list = ArgumentList::new("group_rows");
        list.pointer("ids", arguments.ids, 16)?;
        list.pointer("offsets", arguments.offsets, 4)?;
        list.pointer("rows", arguments.rows, 16)?;
        list.i32("T", arguments.t, 1)?;
        list.i32("E", arguments.e, 1)?;
        self.0.launch(queue, grid, 0, &mut list)
    }
}

/// Arguments of [`MoeUpBf16`].
#[derive(Clone, Copy, Debug)]
pub struct MoeUpBf16Arguments {
    /// `*bf16`, a multiple of 16.
    pub x: DevicePointer,
    /// `*bf16`, a multiple of 16.
    pub w: DevicePointer,
    /// `*u8`, or null.
    pub scales: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub offsets: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub rows: DevicePointer,
    /// `*bf16`, a multiple of 16.
    pub inner: DevicePointer,
    /// `*f32`, a multiple of 16, or null.
    pub partials: DevicePointer,
    /// `*i32`, a multiple of 4, or null.
    pub counters: DevicePointer,
    /// `i32`.
    pub t: i32,
    /// `i32`, a multiple of 16.
    pub k: i32,
    /// `i32`, a multiple of 16.
    pub i: i32,
    /// `i32`.
    pub groups: i32,
    /// `f32`.
    pub alpha: f32,
    /// `f32`.
    pub limit: f32,
}

/// What [`MoeUpBf16`] was compiled as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MoeUpBf16Variant {
    Decode16,
    Decode32,
    Decode64,
    Prefill,
    DenseDecode16,
    DenseDecode32,
    DenseDecode64,
    DensePrefill,
}

impl MoeUpBf16Variant {
    /// In the manifest's order.
    pub const ALL: [Self; 8] = [
        Self::Decode16,
        Self::Decode32,
        Self::Decode64,
        Self::Prefill,
        Self::DenseDecode16,
        Self::DenseDecode32,
        Self::DenseDecode64,
        Self::DensePrefill,
    ];

    #[must_use]
    pub const fn top_k(self) -> u32 {
        match self {
            Self::Decode16 => 4,
            Self::Decode32 => 4,
            Self::Decode64 => 4,
            Self::Prefill => 4,
            Self::DenseDecode16 => 1,
            Self::DenseDecode32 => 1,
            Self::DenseDecode64 => 1,
            Self::DensePrefill => 1,
        }
    }

    #[must_use]
    pub const fn block_m(self) -> u32 {
        match self {
            Self::Decode16 => 16,
            Self::Decode32 => 32,
            Self::Decode64 => 64,
            Self::Prefill => 128,
            Self::DenseDecode16 => 16,
            Self::DenseDecode32 => 32,
            Self::DenseDecode64 => 64,
            Self::DensePrefill => 128,
        }
    }

    #[must_use]
    pub const fn block_i(self) -> u32 {
        match self {
            Self::Decode16 => 32,
            Self::Decode32 => 32,
            Self::Decode64 => 32,
            Self::Prefill => 128,
            Self::DenseDecode16 => 32,
            Self::DenseDecode32 => 32,
            Self::DenseDecode64 => 32,
            Self::DensePrefill => 128,
        }
    }

    #[must_use]
    pub const fn block_k(self) -> u32 {
        match self {
            Self::Decode16 => 128,
            Self::Decode32 => 128,
            Self::Decode64 => 128,
            Self::Prefill => 64,
            Self::DenseDecode16 => 128,
            Self::DenseDecode32 => 128,
            Self::DenseDecode64 => 128,
            Self::DensePrefill => 64,
        }
    }

    #[must_use]
    pub const fn format(self) -> u32 {
        0
    }

    #[must_use]
    pub const fn swap(self) -> u32 {
        match self {
            Self::Decode16 => 1,
            Self::Decode32 => 1,
            Self::Decode64 => 1,
            Self::Prefill => 0,
            Self::DenseDecode16 => 1,
            Self::DenseDecode32 => 1,
            Self::DenseDecode64 => 1,
            Self::DensePrefill => 0,
        }
    }

    #[must_use]
    pub const fn split(self) -> u32 {
        match self {
            Self::Decode16 => 1,
            Self::Decode32 => 1,
            Self::Decode64 => 1,
            Self::Prefill => 0,
            Self::DenseDecode16 => 1,
            Self::DenseDecode32 => 1,
            Self::DenseDecode64 => 1,
            Self::DensePrefill => 0,
        }
    }

    #[must_use]
    pub const fn num_warps(self) -> u32 {
        match self {
            Self::Decode16 => 4,
            Self::Decode32 => 4,
            Self::Decode64 => 4,
            Self::Prefill => 8,
            Self::DenseDecode16 => 4,
            Self::DenseDecode32 => 4,
            Self::DenseDecode64 => 4,
            Self::DensePrefill => 8,
        }
    }

    #[must_use]
    pub const fn num_stages(self) -> u32 {
        match self {
            Self::Decode16 => 4,
            Self::Decode32 => 4,
            Self::Decode64 => 4,
            Self::Prefill => 3,
            Self::DenseDecode16 => 4,
            Self::DenseDecode32 => 4,
            Self::DenseDecode64 => 4,
            Self::DensePrefill => 3,
        }
    }
}

/// `kernels/moe/moe.py`, function `moe_up`.
#[derive(Clone, Debug)]
pub struct MoeUpBf16(KernelSet);

impl MoeUpBf16 {
    /// Arguments and variants as the pack must have them.
    pub const CONTRACT: Contract = Contract {
        kernel: "moe_up_bf16",
        text: "moe_up_bf16(x: *bf16 @16, w: *bf16 @16, scales: *u8 null, offsets: *i32 @4, rows: *i32 @4, inner: *bf16 @16, partials: *f32 @16 null, counters: *i32 @4 null, T: i32, K: i32 @16, I: i32 @16, groups: i32, alpha: f32, limit: f32) as Decode16 | Decode32 | Decode64 | Prefill | DenseDecode16 | DenseDecode32 | DenseDecode64 | DensePrefill",
        variants: &[
            "Decode16",
            "Decode32",
            "Decode64",
            "Prefill",
            "DenseDecode16",
            "DenseDecode32",
            "DenseDecode64",
            "DensePrefill",
        ],
    };

    /// Compiled in.
    pub const BLOCK_E: u32 = 256;

    /// Whether it was compiled for the loaded shape.
    #[must_use]
    pub fn is_loaded(&self, variant: MoeUpBf16Variant) -> bool {
        self.0.has(variant as usize)
    }

    /// Checks the arguments and puts one launch into the queue.
    pub fn launch(
        &self,
        queue: &Queue<'_>,
        grid: [u32; 3],
        variant: MoeUpBf16Variant,
        arguments: &MoeUpBf16Arguments,
    ) -> Result<(), LaunchError> {
        let mut list = ArgumentList::new("moe_up_bf16");
        list.pointer("x", arguments.x, 16)?;
        list.pointer("w", arguments.w, 16)?;
        list.nullable_pointer("scales", arguments.scales, 1)?;
        list.pointer("offsets", arguments.offsets, 4)?;
        list.pointer("rows", arguments.rows, 4)?;
        list.pointer("inner", arguments.inner, 16)?;
        list.nullable_pointer("partials", arguments.partials, 16)?;
        list.nullable_pointer("counters", arguments.counters, 4)?;
        list.i32("T", arguments.t, 1)?;
        list.i32("K", arguments.k, 16)?;
        list.i32("I", arguments.i, 16)?;
        list.i32("groups", arguments.groups, 1)?;
        list.f32(arguments.alpha)?;
        list.f32(arguments.limit)?;
        self.0.launch(queue, grid, variant as usize, &mut list)
    }
}

/// Arguments of [`MoeDownBf16`].
#[derive(Clone, Copy, Debug)]
pub struct MoeDownBf16Arguments {
    /// `*bf16`, a multiple of 16.
    pub inner: DevicePointer,
    /// `*bf16`, a multiple of 16.
    pub w: DevicePointer,
    /// `*u8`, or null.
    pub scales: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub offsets: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub rows: DevicePointer,
    /// `*bf16`, a multiple of 16.
    pub y: DevicePointer,
    /// `i32`, a multiple of 16.
    pub n: i32,
    /// `i32`, a multiple of 16.
    pub i: i32,
    /// `i32`.
    pub groups: i32,
}

/// What [`MoeDownBf16`] was compiled as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MoeDownBf16Variant {
    Decode16,
    Decode32,
    Decode64,
    Prefill,
}

impl MoeDownBf16Variant {
    /// In the manifest's order.
    pub const ALL: [Self; 4] = [Self::Decode16, Self::Decode32, Self::Decode64, Self::Prefill];

    #[must_use]
    pub const fn block_m(self) -> u32 {
        match self {
            Self::Decode16 => 16,
            Self::Decode32 => 32,
            Self::Decode64 => 64,
            Self::Prefill => 128,
        }
    }

    #[must_use]
    pub const fn block_n(self) -> u32 {
        match self {
            Self::Decode16 => 64,
            Self::Decode32 => 64,
            Self::Decode64 => 64,
            Self::Prefill => 256,
        }
    }

    #[must_use]
    pub const fn block_k(self) -> u32 {
        match self {
            Self::Decode16 => 64,
            Self::Decode32 => 128,
            Self::Decode64 => 128,
            Self::Prefill => 64,
        }
    }

    #[must_use]
    pub const fn format(self) -> u32 {
        0
    }

    #[must_use]
    pub const fn swap(self) -> u32 {
        match self {
            Self::Decode16 => 1,
            Self::Decode32 => 1,
            Self::Decode64 => 1,
            Self::Prefill => 0,
        }
    }

    #[must_use]
    pub const fn num_warps(self) -> u32 {
        match self {
            Self::Decode16 => 4,
            Self::Decode32 => 4,
            Self::Decode64 => 4,
            Self::Prefill => 8,
        }
    }

    #[must_use]
    pub const fn num_stages(self) -> u32 {
        3
    }
}

/// `kernels/moe/moe.py`, function `moe_down`.
#[derive(Clone, Debug)]
pub struct MoeDownBf16(KernelSet);

impl MoeDownBf16 {
    /// Arguments and variants as the pack must have them.
    pub const CONTRACT: Contract = Contract {
        kernel: "moe_down_bf16",
        text: "moe_down_bf16(inner: *bf16 @16, w: *bf16 @16, scales: *u8 null, offsets: *i32 @4, rows: *i32 @4, y: *bf16 @16, N: i32 @16, I: i32 @16, groups: i32) as Decode16 | Decode32 | Decode64 | Prefill",
        variants: &["Decode16", "Decode32", "Decode64", "Prefill"],
    };

    /// Compiled in.
    pub const BLOCK_E: u32 = 256;

    /// Whether it was compiled for the loaded shape.
    #[must_use]
    pub fn is_loaded(&self, variant: MoeDownBf16Variant) -> bool {
        self.0.has(variant as usize)
    }

    /// Checks the arguments and puts one launch into the queue.
    pub fn launch(
        &self,
        queue: &Queue<'_>,
        grid: [u32; 3],
        variant: MoeDownBf16Variant,
        arguments: &MoeDownBf16Arguments,
    ) -> Result<(), LaunchError> {
        let mut list = ArgumentList::new("moe_down_bf16");
        list.pointer("inner", arguments.inner, 16)?;
        list.pointer("w", arguments.w, 16)?;
        list.nullable_pointer("scales", arguments.scales, 1)?;
        list.pointer("offsets", arguments.offsets, 4)?;
        list.pointer("rows", arguments.rows, 4)?;
        list.pointer("y", arguments.y, 16)?;
        list.i32("N", arguments.n, 16)?;
        list.i32("I", arguments.i, 16)?;
        list.i32("groups", arguments.groups, 1)?;
        self.0.launch(queue, grid, variant as usize, &mut list)
    }
}

/// Arguments of [`MoeUpMxfp8`].
#[derive(Clone, Copy, Debug)]
pub struct MoeUpMxfp8Arguments {
    /// `*bf16`, a multiple of 16.
    pub x: DevicePointer,
    /// `*u8`, a multiple of 16.
    pub w: DevicePointer,
    /// `*u8`, a multiple of 16.
    pub scales: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub offsets: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub rows: DevicePointer,
    /// `*bf16`, a multiple of 16.
    pub inner: DevicePointer,
    /// `*f32`, a multiple of 16, or null.
    pub partials: DevicePointer,
    /// `*i32`, a multiple of 4, or null.
    pub counters: DevicePointer,
    /// `i32`.
    pub t: i32,
    /// `i32`, a multiple of 16.
    pub k: i32,
    /// `i32`, a multiple of 16.
    pub i: i32,
    /// `i32`.
    pub groups: i32,
    /// `f32`.
    pub alpha: f32,
    /// `f32`.
    pub limit: f32,
}

/// What [`MoeUpMxfp8`] was compiled as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MoeUpMxfp8Variant {
    Decode16Any,
    Decode32Any,
    Decode64Any,
    PrefillAny,
    DenseDecode16Any,
    DenseDecode32Any,
    DenseDecode64Any,
    DensePrefillAny,
    Decode16,
    Decode32,
    Decode64,
    Prefill,
    DenseDecode16,
    DenseDecode32,
    DenseDecode64,
    DensePrefill,
}

impl MoeUpMxfp8Variant {
    /// In the manifest's order.
    pub const ALL: [Self; 16] = [
        Self::Decode16Any,
        Self::Decode32Any,
        Self::Decode64Any,
        Self::PrefillAny,
        Self::DenseDecode16Any,
        Self::DenseDecode32Any,
        Self::DenseDecode64Any,
        Self::DensePrefillAny,
        Self::Decode16,
        Self::Decode32,
        Self::Decode64,
        Self::Prefill,
        Self::DenseDecode16,
        Self::DenseDecode32,
        Self::DenseDecode64,
        Self::DensePrefill,
    ];

    #[must_use]
    pub const fn top_k(self) -> u32 {
        match self {
            Self::Decode16Any => 4,
            Self::Decode32Any => 4,
            Self::Decode64Any => 4,
            Self::PrefillAny => 4,
            Self::DenseDecode16Any => 1,
            Self::DenseDecode32Any => 1,
            Self::DenseDecode64Any => 1,
            Self::DensePrefillAny => 1,
            Self::Decode16 => 4,
            Self::Decode32 => 4,
            Self::Decode64 => 4,
            Self::Prefill => 4,
            Self::DenseDecode16 => 1,
            Self::DenseDecode32 => 1,
            Self::DenseDecode64 => 1,
            Self::DensePrefill => 1,
        }
    }

    #[must_use]
    pub const fn block_m(self) -> u32 {
        match self {
            Self::Decode16Any => 16,
            Self::Decode32Any => 32,
            Self::Decode64Any => 64,
            Self::PrefillAny => 128,
            Self::DenseDecode16Any => 16,
            Self::DenseDecode32Any => 32,
            Self::DenseDecode64Any => 64,
            Self::DensePrefillAny => 128,
            Self::Decode16 => 16,
            Self::Decode32 => 32,
            Self::Decode64 => 64,
            Self::Prefill => 128,
            Self::DenseDecode16 => 16,
            Self::DenseDecode32 => 32,
            Self::DenseDecode64 => 64,
            Self::DensePrefill => 128,
        }
    }

    #[must_use]
    pub const fn block_i(self) -> u32 {
        match self {
            Self::Decode16Any => 32,
            Self::Decode32Any => 32,
            Self::Decode64Any => 32,
            Self::PrefillAny => 64,
            Self::DenseDecode16Any => 32,
            Self::DenseDecode32Any => 32,
            Self::DenseDecode64Any => 32,
            Self::DensePrefillAny => 64,
            Self::Decode16 => 32,
            Self::Decode32 => 32,
            Self::Decode64 => 32,
            Self::Prefill => 64,
            Self::DenseDecode16 => 32,
            Self::DenseDecode32 => 32,
            Self::DenseDecode64 => 32,
            Self::DensePrefill => 64,
        }
    }

    #[must_use]
    pub const fn block_k(self) -> u32 {
        128
    }

    #[must_use]
    pub const fn format(self) -> u32 {
        match self {
            Self::Decode16Any => 1,
            Self::Decode32Any => 1,
            Self::Decode64Any => 1,
            Self::PrefillAny => 1,
            Self::DenseDecode16Any => 1,
            Self::DenseDecode32Any => 1,
            Self::DenseDecode64Any => 1,
            Self::DensePrefillAny => 1,
            Self::Decode16 => 2,
            Self::Decode32 => 2,
            Self::Decode64 => 2,
            Self::Prefill => 2,
            Self::DenseDecode16 => 2,
            Self::DenseDecode32 => 2,
            Self::DenseDecode64 => 2,
            Self::DensePrefill => 2,
        }
    }

    #[must_use]
    pub const fn swap(self) -> u32 {
        1
    }

    #[must_use]
    pub const fn split(self) -> u32 {
        match self {
            Self::Decode16Any => 1,
            Self::Decode32Any => 1,
            Self::Decode64Any => 1,
            Self::PrefillAny => 0,
            Self::DenseDecode16Any => 1,
            Self::DenseDecode32Any => 1,
            Self::DenseDecode64Any => 1,
            Self::DensePrefillAny => 0,
            Self::Decode16 => 1,
            Self::Decode32 => 1,
            Self::Decode64 => 1,
            Self::Prefill => 0,
            Self::DenseDecode16 => 1,
            Self::DenseDecode32 => 1,
            Self::DenseDecode64 => 1,
            Self::DensePrefill => 0,
        }
    }

    #[must_use]
    pub const fn num_warps(self) -> u32 {
        match self {
            Self::Decode16Any => 4,
            Self::Decode32Any => 4,
            Self::Decode64Any => 4,
            Self::PrefillAny => 8,
            Self::DenseDecode16Any => 4,
            Self::DenseDecode32Any => 4,
            Self::DenseDecode64Any => 4,
            Self::DensePrefillAny => 8,
            Self::Decode16 => 4,
            Self::Decode32 => 4,
            Self::Decode64 => 4,
            Self::Prefill => 8,
            Self::DenseDecode16 => 4,
            Self::DenseDecode32 => 4,
            Self::DenseDecode64 => 4,
            Self::DensePrefill => 8,
        }
    }

    #[must_use]
    pub const fn num_stages(self) -> u32 {
        match self {
            Self::Decode16Any => 4,
            Self::Decode32Any => 4,
            Self::Decode64Any => 4,
            Self::PrefillAny => 3,
            Self::DenseDecode16Any => 4,
            Self::DenseDecode32Any => 4,
            Self::DenseDecode64Any => 4,
            Self::DensePrefillAny => 3,
            Self::Decode16 => 4,
            Self::Decode32 => 4,
            Self::Decode64 => 4,
            Self::Prefill => 3,
            Self::DenseDecode16 => 4,
            Self::DenseDecode32 => 4,
            Self::DenseDecode64 => 4,
            Self::DensePrefill => 3,
        }
    }
}

/// `kernels/moe/moe.py`, function `moe_up`.
#[derive(Clone, Debug)]
pub struct MoeUpMxfp8(KernelSet);

impl MoeUpMxfp8 {
    /// Arguments and variants as the pack must have them.
    pub const CONTRACT: Contract = Contract {
        kernel: "moe_up_mxfp8",
        text: "moe_up_mxfp8(x: *bf16 @16, w: *u8 @16, scales: *u8 @16, offsets: *i32 @4, rows: *i32 @4, inner: *bf16 @16, partials: *f32 @16 null, counters: *i32 @4 null, T: i32, K: i32 @16, I: i32 @16, groups: i32, alpha: f32, limit: f32) as Decode16Any | Decode32Any | Decode64Any | PrefillAny | DenseDecode16Any | DenseDecode32Any | DenseDecode64Any | DensePrefillAny | Decode16 | Decode32 | Decode64 | Prefill | DenseDecode16 | DenseDecode32 | DenseDecode64 | DensePrefill",
        variants: &[
            "Decode16Any",
            "Decode32Any",
            "Decode64Any",
            "PrefillAny",
            "DenseDecode16Any",
            "DenseDecode32Any",
            "DenseDecode64Any",
            "DensePrefillAny",
            "Decode16",
            "Decode32",
            "Decode64",
            "Prefill",
            "DenseDecode16",
            "DenseDecode32",
            "DenseDecode64",
            "DensePrefill",
        ],
    };

    /// Compiled in.
    pub const BLOCK_E: u32 = 256;

    /// Whether it was compiled for the loaded shape.
    #[must_use]
    pub fn is_loaded(&self, variant: MoeUpMxfp8Variant) -> bool {
        self.0.has(variant as usize)
    }

    /// Checks the arguments and puts one launch into the queue.
    pub fn launch(
        &self,
        queue: &Queue<'_>,
        grid: [u32; 3],
        variant: MoeUpMxfp8Variant,
        arguments: &MoeUpMxfp8Arguments,
    ) -> Result<(), LaunchError> {
        let mut list = ArgumentList::new("moe_up_mxfp8");
        list.pointer("x", arguments.x, 16)?;
        list.pointer("w", arguments.w, 16)?;
        list.pointer("scales", arguments.scales, 16)?;
        list.pointer("offsets", arguments.offsets, 4)?;
        list.pointer("rows", arguments.rows, 4)?;
        list.pointer("inner", arguments.inner, 16)?;
        list.nullable_pointer("partials", arguments.partials, 16)?;
        list.nullable_pointer("counters", arguments.counters, 4)?;
        list.i32("T", arguments.t, 1)?;
        list.i32("K", arguments.k, 16)?;
        list.i32("I", arguments.i, 16)?;
        list.i32("groups", arguments.groups, 1)?;
        list.f32(arguments.alpha)?;
        list.f32(arguments.limit)?;
        self.0.launch(queue, grid, variant as usize, &mut list)
    }
}

/// Arguments of [`MoeDownMxfp8`].
#[derive(Clone, Copy, Debug)]
pub struct MoeDownMxfp8Arguments {
    /// `*bf16`, a multiple of 16.
    pub inner: DevicePointer,
    /// `*u8`, a multiple of 16.
    pub w: DevicePointer,
    /// `*u8`, a multiple of 16.
    pub scales: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub offsets: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub rows: DevicePointer,
    /// `*bf16`, a multiple of 16.
    pub y: DevicePointer,
    /// `i32`, a multiple of 16.
    pub n: i32,
    /// `i32`, a multiple of 16.
    pub i: i32,
    /// `i32`.
    pub groups: i32,
}

/// What [`MoeDownMxfp8`] was compiled as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MoeDownMxfp8Variant {
    Decode16Any,
    Decode32Any,
    Decode64Any,
    PrefillAny,
    Decode16,
    Decode32,
    Decode64,
    Prefill,
}

impl MoeDownMxfp8Variant {
    /// In the manifest's order.
    pub const ALL: [Self; 8] = [
        Self::Decode16Any,
        Self::Decode32Any,
        Self::Decode64Any,
        Self::PrefillAny,
        Self::Decode16,
        Self::Decode32,
        Self::Decode64,
        Self::Prefill,
    ];

    #[must_use]
    pub const fn block_m(self) -> u32 {
        match self {
            Self::Decode16Any => 16,
            Self::Decode32Any => 32,
            Self::Decode64Any => 64,
            Self::PrefillAny => 128,
            Self::Decode16 => 16,
            Self::Decode32 => 32,
            Self::Decode64 => 64,
            Self::Prefill => 128,
        }
    }

    #[must_use]
    pub const fn block_n(self) -> u32 {
        match self {
            Self::Decode16Any => 128,
            Self::Decode32Any => 64,
            Self::Decode64Any => 64,
            Self::PrefillAny => 128,
            Self::Decode16 => 128,
            Self::Decode32 => 64,
            Self::Decode64 => 64,
            Self::Prefill => 128,
        }
    }

    #[must_use]
    pub const fn block_k(self) -> u32 {
        128
    }

    #[must_use]
    pub const fn format(self) -> u32 {
        match self {
            Self::Decode16Any => 1,
            Self::Decode32Any => 1,
            Self::Decode64Any => 1,
            Self::PrefillAny => 1,
            Self::Decode16 => 2,
            Self::Decode32 => 2,
            Self::Decode64 => 2,
            Self::Prefill => 2,
        }
    }

    #[must_use]
    pub const fn swap(self) -> u32 {
        1
    }

    #[must_use]
    pub const fn num_warps(self) -> u32 {
        match self {
            Self::Decode16Any => 4,
            Self::Decode32Any => 4,
            Self::Decode64Any => 4,
            Self::PrefillAny => 8,
            Self::Decode16 => 4,
            Self::Decode32 => 4,
            Self::Decode64 => 4,
            Self::Prefill => 8,
        }
    }

    #[must_use]
    pub const fn num_stages(self) -> u32 {
        3
    }
}

/// `kernels/moe/moe.py`, function `moe_down`.
#[derive(Clone, Debug)]
pub struct MoeDownMxfp8(KernelSet);

impl MoeDownMxfp8 {
    /// Arguments and variants as the pack must have them.
    pub const CONTRACT: Contract = Contract {
        kernel: "moe_down_mxfp8",
        text: "moe_down_mxfp8(inner: *bf16 @16, w: *u8 @16, scales: *u8 @16, offsets: *i32 @4, rows: *i32 @4, y: *bf16 @16, N: i32 @16, I: i32 @16, groups: i32) as Decode16Any | Decode32Any | Decode64Any | PrefillAny | Decode16 | Decode32 | Decode64 | Prefill",
        variants: &[
            "Decode16Any",
            "Decode32Any",
            "Decode64Any",
            "PrefillAny",
            "Decode16",
            "Decode32",
            "Decode64",
            "Prefill",
        ],
    };

    /// Compiled in.
    pub const BLOCK_E: u32 = 256;

    /// Whether it was compiled for the loaded shape.
    #[must_use]
    pub fn is_loaded(&self, variant: MoeDownMxfp8Variant) -> bool {
        self.0.has(variant as usize)
    }

    /// Checks the arguments and puts one launch into the queue.
    pub fn launch(
        &self,
        queue: &Queue<'_>,
        grid: [u32; 3],
        variant: MoeDownMxfp8Variant,
        arguments: &MoeDownMxfp8Arguments,
    ) -> Result<(), LaunchError> {
        let mut list = ArgumentList::new("moe_down_mxfp8");
        list.pointer("inner", arguments.inner, 16)?;
        list.pointer("w", arguments.w, 16)?;
        list.pointer("scales", arguments.scales, 16)?;
        list.pointer("offsets", arguments.offsets, 4)?;
        list.pointer("rows", arguments.rows, 4)?;
        list.pointer("y", arguments.y, 16)?;
        list.i32("N", arguments.n, 16)?;
        list.i32("I", arguments.i, 16)?;
        list.i32("groups", arguments.groups, 1)?;
        self.0.launch(queue, grid, variant as usize, &mut list)
    }
}

/// Arguments of [`MoeUpStream`].
#[derive(Clone, Copy, Debug)]
pub struct MoeUpStreamArguments {
    /// `*bf16`, a multiple of 16.
    pub x: DevicePointer,
    /// `*u8`, a multiple of 16.
    pub w: DevicePointer,
    /// `*u8`, a multiple of 16.
    pub scales: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub offsets: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub rows: DevicePointer,
    /// `*bf16`, a multiple of 16.
    pub inner: DevicePointer,
    /// `i32`.
    pub t: i32,
    /// `i32`, a multiple of 128.
    pub k: i32,
    /// `i32`, a multiple of 16.
    pub i: i32,
    /// `i32`.
    pub groups: i32,
    /// `i32`.
    pub top_k: i32,
    /// `f32`.
    pub alpha: f32,
    /// `f32`.
    pub limit: f32,
}

/// `kernels/moe/stream.cu`, function `moe_up_stream`.
#[derive(Clone, Debug)]
pub struct MoeUpStream(KernelSet);

impl MoeUpStream {
    /// Arguments and variants as the pack must have them.
    pub const CONTRACT: Contract = Contract {
        kernel: "moe_up_stream",
        text: "moe_up_stream(x: *bf16 @16, w: *u8 @16, scales: *u8 @16, offsets: *i32 @4, rows: *i32 @4, inner: *bf16 @16, T: i32, K: i32 @128, I: i32 @16, groups: i32, top_k: i32, alpha: f32, limit: f32)",
        variants: &[],
    };

    /// Compiled in.
    pub const TILES: u32 = 2;

    /// Whether it was compiled for the loaded shape.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.0.has(0)
    }

    /// Checks the arguments and puts one launch into the queue.
    pub fn launch(
        &self,
        queue: &Queue<'_>,
        grid: [u32; 3],
        arguments: &MoeUpStreamArguments,
    ) -> Result<(), LaunchError> {
        let mut list = ArgumentList::new("moe_up_stream");
        list.pointer("x", arguments.x, 16)?;
        list.pointer("w", arguments.w, 16)?;
        list.pointer("scales", arguments.scales, 16)?;
        list.pointer("offsets", arguments.offsets, 4)?;
        list.pointer("rows", arguments.rows, 4)?;
        list.pointer("inner", arguments.inner, 16)?;
        list.i32("T", arguments.t, 1)?;
        list.i32("K", arguments.k, 128)?;
        list.i32("I", arguments.i, 16)?;
        list.i32("groups", arguments.groups, 1)?;
        list.i32("top_k", arguments.top_k, 1)?;
        list.f32(arguments.alpha)?;
        list.f32(arguments.limit)?;
        self.0.launch(queue, grid, 0, &mut list)
    }
}

/// Arguments of [`MoeDownStream`].
#[derive(Clone, Copy, Debug)]
pub struct MoeDownStreamArguments {
    /// `*bf16`, a multiple of 16.
    pub inner: DevicePointer,
    /// `*u8`, a multiple of 16.
    pub w: DevicePointer,
    /// `*u8`, a multiple of 16.
    pub scales: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub offsets: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub rows: DevicePointer,
    /// `*bf16`, a multiple of 16.
    pub y: DevicePointer,
    /// `i32`, a multiple of 16.
    pub n: i32,
    /// `i32`, a multiple of 128.
    pub i: i32,
    /// `i32`.
    pub groups: i32,
}

/// `kernels/moe/stream.cu`, function `moe_down_stream`.
#[derive(Clone, Debug)]
pub struct MoeDownStream(KernelSet);

impl MoeDownStream {
    /// Arguments and variants as the pack must have them.
    pub const CONTRACT: Contract = Contract {
        kernel: "moe_down_stream",
        text: "moe_down_stream(inner: *bf16 @16, w: *u8 @16, scales: *u8 @16, offsets: *i32 @4, rows: *i32 @4, y: *bf16 @16, N: i32 @16, I: i32 @128, groups: i32)",
        variants: &[],
    };

    /// Compiled in.
    pub const TILES: u32 = 2;

    /// Whether it was compiled for the loaded shape.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.0.has(0)
    }

    /// Checks the arguments and puts one launch into the queue.
    pub fn launch(
        &self,
        queue: &Queue<'_>,
        grid: [u32; 3],
        arguments: &MoeDownStreamArguments,
    ) -> Result<(), LaunchError> {
        let mut list = ArgumentList::new("moe_down_stream");
        list.pointer("inner", arguments.inner, 16)?;
        list.pointer("w", arguments.w, 16)?;
        list.pointer("scales", arguments.scales, 16)?;
        list.pointer("offsets", arguments.offsets, 4)?;
        list.pointer("rows", arguments.rows, 4)?;
        list.pointer("y", arguments.y, 16)?;
        list.i32("N", arguments.n, 16)?;
        list.i32("I", arguments.i, 128)?;
        list.i32("groups", arguments.groups, 1)?;
        self.0.launch(queue, grid, 0, &mut list)
    }
}

/// Arguments of [`GemmStream`].
#[derive(Clone, Copy, Debug)]
pub struct GemmStreamArguments {
    /// `*bf16`, a multiple of 16.
    pub x: DevicePointer,
    /// `*u8`, a multiple of 16.
    pub w: DevicePointer,
    /// `*u8`, a multiple of 16.
    pub scales: DevicePointer,
    /// `*bf16`, a multiple of 16.
    pub out: DevicePointer,
    /// `i32`.
    pub m: i32,
    /// `i32`, a multiple of 16.
    pub n: i32,
    /// `i32`, a multiple of 128.
    pub k: i32,
}

/// `kernels/moe/stream.cu`, function `gemm_stream`.
#[derive(Clone, Debug)]
pub struct GemmStream(KernelSet);

impl GemmStream {
    /// Arguments and variants as the pack must have them.
    pub const CONTRACT: Contract = Contract {
        kernel: "gemm_stream",
        text: "gemm_stream(x: *bf16 @16, w: *u8 @16, scales: *u8 @16, out: *bf16 @16, M: i32, N: i32 @16, K: i32 @128)",
        variants: &[],
    };

    /// Compiled in.
    pub const TILES: u32 = 2;

    /// Whether it was compiled for the loaded shape.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.0.has(0)
    }

    /// Checks the arguments and puts one launch into the queue.
    pub fn launch(
        &self,
        queue: &Queue<'_>,
        grid: [u32; 3],
        arguments: &GemmStreamArguments,
    ) -> Result<(), LaunchError> {
        let mut list = ArgumentList::new("gemm_stream");
        list.pointer("x", arguments.x, 16)?;
        list.pointer("w", arguments.w, 16)?;
        list.pointer("scales", arguments.scales, 16)?;
        list.pointer("out", arguments.out, 16)?;
        list.i32("M", arguments.m, 1)?;
        list.i32("N", arguments.n, 16)?;
        list.i32("K", arguments.k, 128)?;
        self.0.launch(queue, grid, 0, &mut list)
    }
}

/// Arguments of [`MoeCombine`].
#[derive(Clone, Copy, Debug)]
pub struct MoeCombineArguments {
    /// `*bf16`, a multiple of 16.
    pub y: DevicePointer,
    /// `*i32`, a multiple of 16.
    pub ids: DevicePointer,
    /// `*f32`, a multiple of 16.
    pub weights: DevicePointer,
    /// `*bf16`, a multiple of 16.
    pub pending: DevicePointer,
    /// `i32`.
    pub t: i32,
    /// `i32`, a multiple of 16.
    pub n: i32,
    /// `f32`.
    pub scaling: f32,
}

/// `kernels/moe/moe.py`, function `moe_combine`.
#[derive(Clone, Debug)]
pub struct MoeCombine(KernelSet);

impl MoeCombine {
    /// Arguments and variants as the pack must have them.
    pub const CONTRACT: Contract = Contract {
        kernel: "moe_combine",
        text: "moe_combine(y: *bf16 @16, ids: *i32 @16, weights: *f32 @16, pending: *bf16 @16, T: i32, N: i32 @16, scaling: f32)",
        variants: &[],
    };

    /// Compiled in.
    pub const SHARED: u32 = 1;
    /// Compiled in.
    pub const BLOCK: u32 = 1024;

    /// Whether it was compiled for the loaded shape.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.0.has(0)
    }

    /// Checks the arguments and puts one launch into the queue.
    pub fn launch(
        &self,
        queue: &Queue<'_>,
        grid: [u32; 3],
        arguments: &MoeCombineArguments,
    ) -> Result<(), LaunchError> {
        let mut list = ArgumentList::new("moe_combine");
        list.pointer("y", arguments.y, 16)?;
        list.pointer("ids", arguments.ids, 16)?;
        list.pointer("weights", arguments.weights, 16)?;
        list.pointer("pending", arguments.pending, 16)?;
        list.i32("T", arguments.t, 1)?;
        list.i32("N", arguments.n, 16)?;
        list.f32(arguments.scaling)?;
        self.0.launch(queue, grid, 0, &mut list)
    }
}

/// Arguments of [`RopeAngles`].
#[derive(Clone, Copy, Debug)]
pub struct RopeAnglesArguments {
    /// `*i32`, a multiple of 4.
    pub positions: DevicePointer,
    /// `*f32`, a multiple of 4.
    pub frequencies: DevicePointer,
    /// `*f32`, a multiple of 16.
    pub angles: DevicePointer,
    /// `i32`.
    pub tokens: i32,
}

/// `kernels/rope_store/rope_store.py`, function `rope_angles`.
#[derive(Clone, Debug)]
pub struct RopeAngles(KernelSet);

impl RopeAngles {
    /// Arguments and variants as the pack must have them.
    pub const CONTRACT: Contract = Contract {
        kernel: "rope_angles",
        text: "rope_angles(positions: *i32 @4, frequencies: *f32 @4, angles: *f32 @16, tokens: i32)",
        variants: &[],
    };

    /// Compiled in.
    pub const BLOCK_T: u32 = 4;

    /// Whether it was compiled for the loaded shape.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.0.has(0)
    }

    /// Checks the arguments and puts one launch into the queue.
    pub fn launch(
        &self,
        queue: &Queue<'_>,
        grid: [u32; 3],
        arguments: &RopeAnglesArguments,
    ) -> Result<(), LaunchError> {
        let mut list = ArgumentList::new("rope_angles");
        list.pointer("positions", arguments.positions, 4)?;
        list.pointer("frequencies", arguments.frequencies, 4)?;
        list.pointer("angles", arguments.angles, 16)?;
        list.i32("tokens", arguments.tokens, 1)?;
        self.0.launch(queue, grid, 0, &mut list)
    }
}

/// Arguments of [`NormRopeStore`].
#[derive(Clone, Copy, Debug)]
pub struct NormRopeStoreArguments {
    /// `*bf16`, a multiple of 16.
    pub qkv: DevicePointer,
    /// `*f32`, a multiple of 16.
    pub angles: DevicePointer,
    /// `*i64`, a multiple of 8.
    pub slots: DevicePointer,
    /// `*bf16`, a multiple of 16.
    pub query_norm: DevicePointer,
    /// `*bf16`, a multiple of 16.
    pub key_norm: DevicePointer,
    /// `*bf16`, a multiple of 16, or null.
    pub index_query_norm: DevicePointer,
    /// `*bf16`, a multiple of 16, or null.
    pub index_key_norm: DevicePointer,
    /// `*bf16`, a multiple of 16.
    pub queries: DevicePointer,
    /// `*bf16`, a multiple of 16, or null.
    pub index_queries: DevicePointer,
    /// `*bf16`, a multiple of 16.
    pub k_pages: DevicePointer,
    /// `*bf16`, a multiple of 16.
    pub v_pages: DevicePointer,
    /// `*bf16`, a multiple of 16, or null.
    pub index_k_pages: DevicePointer,
    /// `i32`.
    pub tokens: i32,
    /// `i32`.
    pub query_heads: i32,
    /// `i32`.
    pub kv_heads: i32,
    /// `i32`.
    pub index_heads: i32,
    /// `f32`.
    pub eps: f32,
}

/// What [`NormRopeStore`] was compiled as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NormRopeStoreVariant {
    Few,
    Many,
}

impl NormRopeStoreVariant {
    /// In the manifest's order.
    pub const ALL: [Self; 2] = [Self::Few, Self::Many];

    #[must_use]
    pub const fn block_t(self) -> u32 {
        match self {
            Self::Few => 1,
            Self::Many => 16,
        }
    }

    #[must_use]
    pub const fn num_warps(self) -> u32 {
        match self {
            Self::Few => 1,
            Self::Many => 4,
        }
    }
}

/// `kernels/rope_store/rope_store.py`, function `norm_rope_store`.
#[derive(Clone, Debug)]
pub struct NormRopeStore(KernelSet);

impl NormRopeStore {
    /// Arguments and variants as the pack must have them.
    pub const CONTRACT: Contract = Contract {
        kernel: "norm_rope_store",
        text: "norm_rope_store(qkv: *bf16 @16, angles: *f32 @16, slots: *i64 @8, query_norm: *bf16 @16, key_norm: *bf16 @16, index_query_norm: *bf16 @16 null, index_key_norm: *bf16 @16 null, queries: *bf16 @16, index_queries: *bf16 @16 null, k_pages: *bf16 @16, v_pages: *bf16 @16, index_k_pages: *bf16 @16 null, tokens: i32, query_heads: i32, kv_heads: i32, index_heads: i32, eps: f32) as Few | Many",
        variants: &["Few", "Many"],
    };

    /// Whether it was compiled for the loaded shape.
    #[must_use]
    pub fn is_loaded(&self, variant: NormRopeStoreVariant) -> bool {
        self.0.has(variant as usize)
    }

    /// Checks the arguments and puts one launch into the queue.
    pub fn launch(
        &self,
        queue: &Queue<'_>,
        grid: [u32; 3],
        variant: NormRopeStoreVariant,
        arguments: &NormRopeStoreArguments,
    ) -> Result<(), LaunchError> {
        let mut list = ArgumentList::new("norm_rope_store");
        list.pointer("qkv", arguments.qkv, 16)?;
        list.pointer("angles", arguments.angles, 16)?;
        list.pointer("slots", arguments.slots, 8)?;
        list.pointer("query_norm", arguments.query_norm, 16)?;
        list.pointer("key_norm", arguments.key_norm, 16)?;
        list.nullable_pointer("index_query_norm", arguments.index_query_norm, 16)?;
        list.nullable_pointer("index_key_norm", arguments.index_key_norm, 16)?;
        list.pointer("queries", arguments.queries, 16)?;
        list.nullable_pointer("index_queries", arguments.index_queries, 16)?;
        list.pointer("k_pages", arguments.k_pages, 16)?;
        list.pointer("v_pages", arguments.v_pages, 16)?;
        list.nullable_pointer("index_k_pages", arguments.index_k_pages, 16)?;
        list.i32("tokens", arguments.tokens, 1)?;
        list.i32("query_heads", arguments.query_heads, 1)?;
        list.i32("kv_heads", arguments.kv_heads, 1)?;
        list.i32("index_heads", arguments.index_heads, 1)?;
        list.f32(arguments.eps)?;
        self.0.launch(queue, grid, variant as usize, &mut list)
    }
}

/// Arguments of [`IndexScoreDecode`].
#[derive(Clone, Copy, Debug)]
pub struct IndexScoreDecodeArguments {
    /// `*bf16`, a multiple of 16.
    pub index_queries: DevicePointer,
    /// `*bf16`, a multiple of 16.
    pub index_k_pages: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub page_table: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub token_row: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub positions: DevicePointer,
    /// `*f32`, a multiple of 16.
    pub scores: DevicePointer,
    /// `i32`.
    pub table_stride: i32,
    /// `i32`.
    pub score_stride: i32,
    /// `i32`.
    pub score_all: i32,
}

/// `kernels/index/index.py`, function `index_score_decode`.
#[derive(Clone, Debug)]
pub struct IndexScoreDecode(KernelSet);

impl IndexScoreDecode {
    /// Arguments and variants as the pack must have them.
    pub const CONTRACT: Contract = Contract {
        kernel: "index_score_decode",
        text: "index_score_decode(index_queries: *bf16 @16, index_k_pages: *bf16 @16, page_table: *i32 @4, token_row: *i32 @4, positions: *i32 @4, scores: *f32 @16, table_stride: i32, score_stride: i32, score_all: i32)",
        variants: &[],
    };

    /// Compiled in.
    pub const STAGES: u32 = 6;

    /// Whether it was compiled for the loaded shape.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.0.has(0)
    }

    /// Checks the arguments and puts one launch into the queue.
    pub fn launch(
        &self,
        queue: &Queue<'_>,
        grid: [u32; 3],
        arguments: &IndexScoreDecodeArguments,
    ) -> Result<(), LaunchError> {
        let mut list = ArgumentList::new("index_score_decode");
        list.pointer("index_queries", arguments.index_queries, 16)?;
        list.pointer("index_k_pages", arguments.index_k_pages, 16)?;
        list.pointer("page_table", arguments.page_table, 4)?;
        list.pointer("token_row", arguments.token_row, 4)?;
        list.pointer("positions", arguments.positions, 4)?;
        list.pointer("scores", arguments.scores, 16)?;
        list.i32("table_stride", arguments.table_stride, 1)?;
        list.i32("score_stride", arguments.score_stride, 1)?;
        list.i32("score_all", arguments.score_all, 1)?;
        self.0.launch(queue, grid, 0, &mut list)
    }
}

/// Arguments of [`IndexScorePrefill`].
#[derive(Clone, Copy, Debug)]
pub struct IndexScorePrefillArguments {
    /// `*bf16`, a multiple of 16.
    pub index_queries: DevicePointer,
    /// `tensor<bf16>[PAGE, DIM]`.
    pub index_k_pages: Matrix,
    /// `*i32`, a multiple of 4.
    pub page_table: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub seq_row: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub seq_first_token: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub seq_len: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub seq_first_position: DevicePointer,
    /// `*f32`, a multiple of 16.
    pub scores: DevicePointer,
    /// `i32`.
    pub table_stride: i32,
    /// `i32`, a multiple of 16.
    pub score_stride: i32,
    /// `i32`.
    pub score_all: i32,
}

/// `kernels/index/index.py`, function `index_score_prefill`.
#[derive(Clone, Debug)]
pub struct IndexScorePrefill(KernelSet);

impl IndexScorePrefill {
    /// Arguments and variants as the pack must have them.
    pub const CONTRACT: Contract = Contract {
        kernel: "index_score_prefill",
        text: "index_score_prefill(index_queries: *bf16 @16, index_k_pages: tensor<bf16>[PAGE, DIM], page_table: *i32 @4, seq_row: *i32 @4, seq_first_token: *i32 @4, seq_len: *i32 @4, seq_first_position: *i32 @4, scores: *f32 @16, table_stride: i32, score_stride: i32 @16, score_all: i32)",
        variants: &[],
    };

    /// Compiled in.
    pub const BLOCK_M: u32 = 128;
    /// Compiled in.
    pub const BLOCKS: u32 = 8;
    /// Compiled in.
    pub const STAGES: u32 = 3;
    /// Compiled in.
    pub const TMA: bool = true;

    /// Whether it was compiled for the loaded shape.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.0.has(0)
    }

    /// Checks the arguments and puts one launch into the queue.
    pub fn launch(
        &self,
        queue: &Queue<'_>,
        grid: [u32; 3],
        arguments: &IndexScorePrefillArguments,
    ) -> Result<(), LaunchError> {
        let mut list = ArgumentList::new("index_score_prefill");
        list.pointer("index_queries", arguments.index_queries, 16)?;
        list.matrix("index_k_pages", arguments.index_k_pages, MapElement::Bf16)?;
        list.pointer("page_table", arguments.page_table, 4)?;
        list.pointer("seq_row", arguments.seq_row, 4)?;
        list.pointer("seq_first_token", arguments.seq_first_token, 4)?;
        list.pointer("seq_len", arguments.seq_len, 4)?;
        list.pointer("seq_first_position", arguments.seq_first_position, 4)?;
        list.pointer("scores", arguments.scores, 16)?;
        list.i32("table_stride", arguments.table_stride, 1)?;
        list.i32("score_stride", arguments.score_stride, 16)?;
        list.i32("score_all", arguments.score_all, 1)?;
        self.0.launch(queue, grid, 0, &mut list)
    }
}

/// Arguments of [`SelectBlocks`].
#[derive(Clone, Copy, Debug)]
pub struct SelectBlocksArguments {
    /// `*f32`, a multiple of 16.
    pub scores: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub positions: DevicePointer,
    /// `*i32`, a multiple of 16.
    pub selected: DevicePointer,
    /// `i32`.
    pub tokens: i32,
    /// `i64`.
    pub row_stride: i64,
    /// `i64`.
    pub block_stride: i64,
    /// `i32`.
    pub init_blocks: i32,
    /// `i32`.
    pub local_blocks: i32,
}

/// What [`SelectBlocks`] was compiled as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SelectBlocksVariant {
    Few,
    Many,
}

impl SelectBlocksVariant {
    /// In the manifest's order.
    pub const ALL: [Self; 2] = [Self::Few, Self::Many];

    #[must_use]
    pub const fn rows(self) -> u32 {
        match self {
            Self::Few => 1,
            Self::Many => 4,
        }
    }

    #[must_use]
    pub const fn widest(self) -> u32 {
        match self {
            Self::Few => 8192,
            Self::Many => 1024,
        }
    }

    #[must_use]
    pub const fn num_warps(self) -> u32 {
        match self {
            Self::Few => 8,
            Self::Many => 4,
        }
    }
}

/// `kernels/index/index.py`, function `select_blocks`.
#[derive(Clone, Debug)]
pub struct SelectBlocks(KernelSet);

impl SelectBlocks {
    /// Arguments and variants as the pack must have them.
    pub const CONTRACT: Contract = Contract {
        kernel: "select_blocks",
        text: "select_blocks(scores: *f32 @16, positions: *i32 @4, selected: *i32 @16, tokens: i32, row_stride: i64, block_stride: i64, init_blocks: i32, local_blocks: i32) as Few | Many",
        variants: &["Few", "Many"],
    };

    /// Whether it was compiled for the loaded shape.
    #[must_use]
    pub fn is_loaded(&self, variant: SelectBlocksVariant) -> bool {
        self.0.has(variant as usize)
    }

    /// Checks the arguments and puts one launch into the queue.
    pub fn launch(
        &self,
        queue: &Queue<'_>,
        grid: [u32; 3],
        variant: SelectBlocksVariant,
        arguments: &SelectBlocksArguments,
    ) -> Result<(), LaunchError> {
        let mut list = ArgumentList::new("select_blocks");
        list.pointer("scores", arguments.scores, 16)?;
        list.pointer("positions", arguments.positions, 4)?;
        list.pointer("selected", arguments.selected, 16)?;
        list.i32("tokens", arguments.tokens, 1)?;
        list.i64("row_stride", arguments.row_stride, 1)?;
        list.i64("block_stride", arguments.block_stride, 1)?;
        list.i32("init_blocks", arguments.init_blocks, 1)?;
        list.i32("local_blocks", arguments.local_blocks, 1)?;
        self.0.launch(queue, grid, variant as usize, &mut list)
    }
}

/// Arguments of [`SparseAttendDecode`].
#[derive(Clone, Copy, Debug)]
pub struct SparseAttendDecodeArguments {
    /// `*bf16`, a multiple of 16.
    pub queries: DevicePointer,
    /// `*bf16`, a multiple of 16.
    pub k_pages: DevicePointer,
    /// `*bf16`, a multiple of 16.
    pub v_pages: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub page_table: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub token_row: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub positions: DevicePointer,
    /// `*i32`, a multiple of 16.
    pub selected: DevicePointer,
    /// `*f32`, a multiple of 16.
    pub partial: DevicePointer,
    /// `*f32`, a multiple of 16.
    pub partial_lse: DevicePointer,
    /// `i32`.
    pub table_stride: i32,
}

/// `kernels/sparse_attention/sparse_attention.py`, function `sparse_attend_decode`.
#[derive(Clone, Debug)]
pub struct SparseAttendDecode(KernelSet);

impl SparseAttendDecode {
    /// Arguments and variants as the pack must have them.
    pub const CONTRACT: Contract = Contract {
        kernel: "sparse_attend_decode",
        text: "sparse_attend_decode(queries: *bf16 @16, k_pages: *bf16 @16, v_pages: *bf16 @16, page_table: *i32 @4, token_row: *i32 @4, positions: *i32 @4, selected: *i32 @16, partial: *f32 @16, partial_lse: *f32 @16, table_stride: i32)",
        variants: &[],
    };

    /// Compiled in.
    pub const SPLITS: u32 = 8;
    /// Compiled in.
    pub const STAGES: u32 = 3;

    /// Whether it was compiled for the loaded shape.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.0.has(0)
    }

    /// Checks the arguments and puts one launch into the queue.
    pub fn launch(
        &self,
        queue: &Queue<'_>,
        grid: [u32; 3],
        arguments: &SparseAttendDecodeArguments,
    ) -> Result<(), LaunchError> {
        let mut list = ArgumentList::new("sparse_attend_decode");
        list.pointer("queries", arguments.queries, 16)?;
        list.pointer("k_pages", arguments.k_pages, 16)?;
        list.pointer("v_pages", arguments.v_pages, 16)?;
        list.pointer("page_table", arguments.page_table, 4)?;
        list.pointer("token_row", arguments.token_row, 4)?;
        list.pointer("positions", arguments.positions, 4)?;
        list.pointer("selected", arguments.selected, 16)?;
        list.pointer("partial", arguments.partial, 16)?;
        list.pointer("partial_lse", arguments.partial_lse, 16)?;
        list.i32("table_stride", arguments.table_stride, 1)?;
        self.0.launch(queue, grid, 0, &mut list)
    }
}

/// Arguments of [`SparseMergeDecode`].
#[derive(Clone, Copy, Debug)]
pub struct SparseMergeDecodeArguments {
    /// `*f32`, a multiple of 16.
    pub partial: DevicePointer,
    /// `*f32`, a multiple of 16.
    pub partial_lse: DevicePointer,
    /// `*bf16`, a multiple of 16.
    pub out: DevicePointer,
    /// `i32`.
    pub rows: i32,
    /// `i32`.
    pub heads: i32,
}

/// `kernels/sparse_attention/sparse_attention.py`, function `merge_partials`.
#[derive(Clone, Debug)]
pub struct SparseMergeDecode(KernelSet);

impl SparseMergeDecode {
    /// Arguments and variants as the pack must have them.
    pub const CONTRACT: Contract = Contract {
        kernel: "sparse_merge_decode",
        text: "sparse_merge_decode(partial: *f32 @16, partial_lse: *f32 @16, out: *bf16 @16, rows: i32, heads: i32)",
        variants: &[],
    };

    /// Compiled in.
    pub const SPLITS: u32 = 8;
    /// Compiled in.
    pub const BLOCK_R: u32 = 4;

    /// Whether it was compiled for the loaded shape.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.0.has(0)
    }

    /// Checks the arguments and puts one launch into the queue.
    pub fn launch(
        &self,
        queue: &Queue<'_>,
        grid: [u32; 3],
        arguments: &SparseMergeDecodeArguments,
    ) -> Result<(), LaunchError> {
        let mut list = ArgumentList::new("sparse_merge_decode");
        list.pointer("partial", arguments.partial, 16)?;
        list.pointer("partial_lse", arguments.partial_lse, 16)?;
        list.pointer("out", arguments.out, 16)?;
        list.i32("rows", arguments.rows, 1)?;
        list.i32("heads", arguments.heads, 1)?;
        self.0.launch(queue, grid, 0, &mut list)
    }
}

/// Arguments of [`SparseCount`].
#[derive(Clone, Copy, Debug)]
pub struct SparseCountArguments {
    /// `*i32`, a multiple of 16.
    pub selected: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub seq_first_token: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub seq_len: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub seq_first_item: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub counts: DevicePointer,
    /// `*i32`, a multiple of 16.
    pub ranks: DevicePointer,
    /// `*f32`, a multiple of 16.
    pub partial_lse: DevicePointer,
    /// `i32`.
    pub kv_heads: i32,
    /// `i32`.
    pub batch: i32,
    /// `i32`.
    pub spread: i32,
}

/// `kernels/sparse_attention/sparse_attention.py`, function `sparse_count`.
#[derive(Clone, Debug)]
pub struct SparseCount(KernelSet);

impl SparseCount {
    /// Arguments and variants as the pack must have them.
    pub const CONTRACT: Contract = Contract {
        kernel: "sparse_count",
        text: "sparse_count(selected: *i32 @16, seq_first_token: *i32 @4, seq_len: *i32 @4, seq_first_item: *i32 @4, counts: *i32 @4, ranks: *i32 @16, partial_lse: *f32 @16, kv_heads: i32, batch: i32, spread: i32)",
        variants: &[],
    };

    /// Compiled in.
    pub const BLOCK_T: u32 = 32;

    /// Whether it was compiled for the loaded shape.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.0.has(0)
    }

    /// Checks the arguments and puts one launch into the queue.
    pub fn launch(
        &self,
        queue: &Queue<'_>,
        grid: [u32; 3],
        arguments: &SparseCountArguments,
    ) -> Result<(), LaunchError> {
        let mut list = ArgumentList::new("sparse_count");
        list.pointer("selected", arguments.selected, 16)?;
        list.pointer("seq_first_token", arguments.seq_first_token, 4)?;
        list.pointer("seq_len", arguments.seq_len, 4)?;
        list.pointer("seq_first_item", arguments.seq_first_item, 4)?;
        list.pointer("counts", arguments.counts, 4)?;
        list.pointer("ranks", arguments.ranks, 16)?;
        list.pointer("partial_lse", arguments.partial_lse, 16)?;
        list.i32("kv_heads", arguments.kv_heads, 1)?;
        list.i32("batch", arguments.batch, 1)?;
        list.i32("spread", arguments.spread, 1)?;
        self.0.launch(queue, grid, 0, &mut list)
    }
}

/// Arguments of [`SparseOffsets`].
#[derive(Clone, Copy, Debug)]
pub struct SparseOffsetsArguments {
    /// `*i32`, a multiple of 16.
    pub counts: DevicePointer,
    /// `*i32`, a multiple of 16.
    pub offsets: DevicePointer,
    /// `i32`.
    pub items: i32,
    /// `i32`.
    pub spread: i32,
}

/// `kernels/sparse_attention/sparse_attention.py`, function `sparse_offsets`.
#[derive(Clone, Debug)]
pub struct SparseOffsets(KernelSet);

impl SparseOffsets {
    /// Arguments and variants as the pack must have them.
    pub const CONTRACT: Contract = Contract {
        kernel: "sparse_offsets",
        text: "sparse_offsets(counts: *i32 @16, offsets: *i32 @16, items: i32, spread: i32)",
        variants: &[],
    };

    /// Compiled in.
    pub const BLOCK: u32 = 4096;

    /// Whether it was compiled for the loaded shape.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.0.has(0)
    }

    /// Checks the arguments and puts one launch into the queue.
    pub fn launch(
        &self,
        queue: &Queue<'_>,
        grid: [u32; 3],
        arguments: &SparseOffsetsArguments,
    ) -> Result<(), LaunchError> {
        let mut list = ArgumentList::new("sparse_offsets");
        list.pointer("counts", arguments.counts, 16)?;
        list.pointer("offsets", arguments.offsets, 16)?;
        list.i32("items", arguments.items, 1)?;
        list.i32("spread", arguments.spread, 1)?;
        self.0.launch(queue, grid, 0, &mut list)
    }
}

/// Arguments of [`SparseFill`].
#[derive(Clone, Copy, Debug)]
pub struct SparseFillArguments {
    /// `*i32`, a multiple of 16.
    pub selected: DevicePointer,
    /// `*i32`, a multiple of 16.
    pub ranks: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub offsets: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub seq_first_token: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub seq_len: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub seq_first_item: DevicePointer,
    /// `*i32`, a multiple of 16.
    pub entries: DevicePointer,
    /// `i32`.
    pub kv_heads: i32,
    /// `i32`.
    pub batch: i32,
}

/// `kernels/sparse_attention/sparse_attention.py`, function `sparse_fill`.
#[derive(Clone, Debug)]
pub struct SparseFill(KernelSet);

impl SparseFill {
    /// Arguments and variants as the pack must have them.
    pub const CONTRACT: Contract = Contract {
        kernel: "sparse_fill",
        text: "sparse_fill(selected: *i32 @16, ranks: *i32 @16, offsets: *i32 @4, seq_first_token: *i32 @4, seq_len: *i32 @4, seq_first_item: *i32 @4, entries: *i32 @16, kv_heads: i32, batch: i32)",
        variants: &[],
    };

    /// Compiled in.
    pub const BLOCK_T: u32 = 32;

    /// Whether it was compiled for the loaded shape.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.0.has(0)
    }

    /// Checks the arguments and puts one launch into the queue.
    pub fn launch(
        &self,
        queue: &Queue<'_>,
        grid: [u32; 3],
        arguments: &SparseFillArguments,
    ) -> Result<(), LaunchError> {
        let mut list = ArgumentList::new("sparse_fill");
        list.pointer("selected", arguments.selected, 16)?;
        list.pointer("ranks", arguments.ranks, 16)?;
        list.pointer("offsets", arguments.offsets, 4)?;
        list.pointer("seq_first_token", arguments.seq_first_token, 4)?;
        list.pointer("seq_len", arguments.seq_len, 4)?;
        list.pointer("seq_first_item", arguments.seq_first_item, 4)?;
        list.pointer("entries", arguments.entries, 16)?;
        list.i32("kv_heads", arguments.kv_heads, 1)?;
        list.i32("batch", arguments.batch, 1)?;
        self.0.launch(queue, grid, 0, &mut list)
    }
}

/// Arguments of [`SparseAttendPrefill`].
#[derive(Clone, Copy, Debug)]
pub struct SparseAttendPrefillArguments {
    /// `*bf16`, a multiple of 16.
    pub queries: DevicePointer,
    /// `*bf16`, a multiple of 16.
    pub k_pages: DevicePointer,
    /// `*bf16`, a multiple of 16.
    pub v_pages: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub page_table: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub seq_row: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub seq_first_token: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub seq_len: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub seq_first_position: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub seq_first_item: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub offsets: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub entries: DevicePointer,
    /// `*bf16`, a multiple of 16.
    pub partial: DevicePointer,
    /// `*f32`, a multiple of 16.
    pub partial_lse: DevicePointer,
    /// `i32`.
    pub table_stride: i32,
    /// `i32`.
    pub kv_heads: i32,
    /// `i32`.
    pub batch: i32,
}

/// `kernels/sparse_attention/sparse_attention.py`, function `sparse_attend_prefill`.
#[derive(Clone, Debug)]
pub struct SparseAttendPrefill(KernelSet);

impl SparseAttendPrefill {
    /// Arguments and variants as the pack must have them.
    pub const CONTRACT: Contract = Contract {
        kernel: "sparse_attend_prefill",
        text: "sparse_attend_prefill(queries: *bf16 @16, k_pages: *bf16 @16, v_pages: *bf16 @16, page_table: *i32 @4, seq_row: *i32 @4, seq_first_token: *i32 @4, seq_len: *i32 @4, seq_first_position: *i32 @4, seq_first_item: *i32 @4, offsets: *i32 @4, entries: *i32 @4, partial: *bf16 @16, partial_lse: *f32 @16, table_stride: i32, kv_heads: i32, batch: i32)",
        variants: &[],
    };

    /// Compiled in.
    pub const ROWS: u32 = 64;
    /// Compiled in.
    pub const STAGES: u32 = 3;

    /// Whether it was compiled for the loaded shape.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.0.has(0)
    }

    /// Checks the arguments and puts one launch into the queue.
    pub fn launch(
        &self,
        queue: &Queue<'_>,
        grid: [u32; 3],
        arguments: &SparseAttendPrefillArguments,
    ) -> Result<(), LaunchError> {
        let mut list = ArgumentList::new("sparse_attend_prefill");
        list.pointer("queries", arguments.queries, 16)?;
        list.pointer("k_pages", arguments.k_pages, 16)?;
        list.pointer("v_pages", arguments.v_pages, 16)?;
        list.pointer("page_table", arguments.page_table, 4)?;
        list.pointer("seq_row", arguments.seq_row, 4)?;
        list.pointer("seq_first_token", arguments.seq_first_token, 4)?;
        list.pointer("seq_len", arguments.seq_len, 4)?;
        list.pointer("seq_first_position", arguments.seq_first_position, 4)?;
        list.pointer("seq_first_item", arguments.seq_first_item, 4)?;
        list.pointer("offsets", arguments.offsets, 4)?;
        list.pointer("entries", arguments.entries, 4)?;
        list.pointer("partial", arguments.partial, 16)?;
        list.pointer("partial_lse", arguments.partial_lse, 16)?;
        list.i32("table_stride", arguments.table_stride, 1)?;
        list.i32("kv_heads", arguments.kv_heads, 1)?;
        list.i32("batch", arguments.batch, 1)?;
        self.0.launch(queue, grid, 0, &mut list)
    }
}

/// Arguments of [`SparseMergePrefill`].
#[derive(Clone, Copy, Debug)]
pub struct SparseMergePrefillArguments {
    /// `*bf16`, a multiple of 16.
    pub partial: DevicePointer,
    /// `*f32`, a multiple of 16.
    pub partial_lse: DevicePointer,
    /// `*bf16`, a multiple of 16.
    pub out: DevicePointer,
    /// `i32`.
    pub rows: i32,
    /// `i32`.
    pub heads: i32,
}

/// `kernels/sparse_attention/sparse_attention.py`, function `merge_partials`.
#[derive(Clone, Debug)]
pub struct SparseMergePrefill(KernelSet);

impl SparseMergePrefill {
    /// Arguments and variants as the pack must have them.
    pub const CONTRACT: Contract = Contract {
        kernel: "sparse_merge_prefill",
        text: "sparse_merge_prefill(partial: *bf16 @16, partial_lse: *f32 @16, out: *bf16 @16, rows: i32, heads: i32)",
        variants: &[],
    };

    /// Compiled in.
    pub const BLOCK_R: u32 = 4;

    /// Whether it was compiled for the loaded shape.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.0.has(0)
    }

    /// Checks the arguments and puts one launch into the queue.
    pub fn launch(
        &self,
        queue: &Queue<'_>,
        grid: [u32; 3],
        arguments: &SparseMergePrefillArguments,
    ) -> Result<(), LaunchError> {
        let mut list = ArgumentList::new("sparse_merge_prefill");
        list.pointer("partial", arguments.partial, 16)?;
        list.pointer("partial_lse", arguments.partial_lse, 16)?;
        list.pointer("out", arguments.out, 16)?;
        list.i32("rows", arguments.rows, 1)?;
        list.i32("heads", arguments.heads, 1)?;
        self.0.launch(queue, grid, 0, &mut list)
    }
}

/// Arguments of [`DenseAttendPrefill`].
#[derive(Clone, Copy, Debug)]
pub struct DenseAttendPrefillArguments {
    /// `*bf16`, a multiple of 16.
    pub queries: DevicePointer,
    /// `tensor<bf16>[BLOCK_N, HEAD_DIM]`.
    pub k_pages: Matrix,
    /// `tensor<bf16>[BLOCK_N, HEAD_DIM]`.
    pub v_pages: Matrix,
    /// `*i32`, a multiple of 4.
    pub page_table: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub seq_row: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub seq_first_token: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub seq_len: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub seq_first_position: DevicePointer,
    /// `*bf16`, a multiple of 16.
    pub out: DevicePointer,
    /// `i32`.
    pub table_stride: i32,
}

/// `kernels/dense_attention/dense_attention.py`, function `dense_attend_prefill`.
#[derive(Clone, Debug)]
pub struct DenseAttendPrefill(KernelSet);

impl DenseAttendPrefill {
    /// Arguments and variants as the pack must have them.
    pub const CONTRACT: Contract = Contract {
        kernel: "dense_attend_prefill",
        text: "dense_attend_prefill(queries: *bf16 @16, k_pages: tensor<bf16>[BLOCK_N, HEAD_DIM], v_pages: tensor<bf16>[BLOCK_N, HEAD_DIM], page_table: *i32 @4, seq_row: *i32 @4, seq_first_token: *i32 @4, seq_len: *i32 @4, seq_first_position: *i32 @4, out: *bf16 @16, table_stride: i32)",
        variants: &[],
    };

    /// Compiled in.
    pub const BLOCK_M: u32 = 128;
    /// Compiled in.
    pub const STAGES: u32 = 2;
    /// Compiled in.
    pub const TMA: bool = true;

    /// Whether it was compiled for the loaded shape.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.0.has(0)
    }

    /// Checks the arguments and puts one launch into the queue.
    pub fn launch(
        &self,
        queue: &Queue<'_>,
        grid: [u32; 3],
        arguments: &DenseAttendPrefillArguments,
    ) -> Result<(), LaunchError> {
        let mut list = ArgumentList::new("dense_attend_prefill");
        list.pointer("queries", arguments.queries, 16)?;
        list.matrix("k_pages", arguments.k_pages, MapElement::Bf16)?;
        list.matrix("v_pages", arguments.v_pages, MapElement::Bf16)?;
        list.pointer("page_table", arguments.page_table, 4)?;
        list.pointer("seq_row", arguments.seq_row, 4)?;
        list.pointer("seq_first_token", arguments.seq_first_token, 4)?;
        list.pointer("seq_len", arguments.seq_len, 4)?;
        list.pointer("seq_first_position", arguments.seq_first_position, 4)?;
        list.pointer("out", arguments.out, 16)?;
        list.i32("table_stride", arguments.table_stride, 1)?;
        self.0.launch(queue, grid, 0, &mut list)
    }
}

/// Arguments of [`DenseAttendDecode`].
#[derive(Clone, Copy, Debug)]
pub struct DenseAttendDecodeArguments {
    /// `*bf16`, a multiple of 16.
    pub queries: DevicePointer,
    /// `*bf16`, a multiple of 16.
    pub k_pages: DevicePointer,
    /// `*bf16`, a multiple of 16.
    pub v_pages: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub page_table: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub token_row: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub positions: DevicePointer,
    /// `*f32`, a multiple of 16.
    pub partial: DevicePointer,
    /// `*f32`, a multiple of 16.
    pub partial_lse: DevicePointer,
    /// `i32`.
    pub table_stride: i32,
    /// `i32`.
    pub max_runs: i32,
}

/// `kernels/dense_attention/dense_attention.py`, function `dense_attend_decode`.
#[derive(Clone, Debug)]
pub struct DenseAttendDecode(KernelSet);

impl DenseAttendDecode {
    /// Arguments and variants as the pack must have them.
    pub const CONTRACT: Contract = Contract {
        kernel: "dense_attend_decode",
        text: "dense_attend_decode(queries: *bf16 @16, k_pages: *bf16 @16, v_pages: *bf16 @16, page_table: *i32 @4, token_row: *i32 @4, positions: *i32 @4, partial: *f32 @16, partial_lse: *f32 @16, table_stride: i32, max_runs: i32)",
        variants: &[],
    };

    /// Compiled in.
    pub const MIN_BLOCKS: u32 = 4;
    /// Compiled in.
    pub const STAGES: u32 = 3;

    /// Whether it was compiled for the loaded shape.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.0.has(0)
    }

    /// Checks the arguments and puts one launch into the queue.
    pub fn launch(
        &self,
        queue: &Queue<'_>,
        grid: [u32; 3],
        arguments: &DenseAttendDecodeArguments,
    ) -> Result<(), LaunchError> {
        let mut list = ArgumentList::new("dense_attend_decode");
        list.pointer("queries", arguments.queries, 16)?;
        list.pointer("k_pages", arguments.k_pages, 16)?;
        list.pointer("v_pages", arguments.v_pages, 16)?;
        list.pointer("page_table", arguments.page_table, 4)?;
        list.pointer("token_row", arguments.token_row, 4)?;
        list.pointer("positions", arguments.positions, 4)?;
        list.pointer("partial", arguments.partial, 16)?;
        list.pointer("partial_lse", arguments.partial_lse, 16)?;
        list.i32("table_stride", arguments.table_stride, 1)?;
        list.i32("max_runs", arguments.max_runs, 1)?;
        self.0.launch(queue, grid, 0, &mut list)
    }
}

/// Arguments of [`DenseMerge`].
#[derive(Clone, Copy, Debug)]
pub struct DenseMergeArguments {
    /// `*f32`, a multiple of 16.
    pub partial: DevicePointer,
    /// `*f32`, a multiple of 16.
    pub partial_lse: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub positions: DevicePointer,
    /// `*bf16`, a multiple of 16.
    pub out: DevicePointer,
    /// `i32`.
    pub max_runs: i32,
}

/// `kernels/dense_attention/dense_attention.py`, function `dense_merge`.
#[derive(Clone, Debug)]
pub struct DenseMerge(KernelSet);

impl DenseMerge {
    /// Arguments and variants as the pack must have them.
    pub const CONTRACT: Contract = Contract {
        kernel: "dense_merge",
        text: "dense_merge(partial: *f32 @16, partial_lse: *f32 @16, positions: *i32 @4, out: *bf16 @16, max_runs: i32)",
        variants: &[],
    };

    /// Compiled in.
    pub const MIN_BLOCKS: u32 = 4;
    /// Compiled in.
    pub const RUNS: u32 = 16;

    /// Whether it was compiled for the loaded shape.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.0.has(0)
    }

    /// Checks the arguments and puts one launch into the queue.
    pub fn launch(
        &self,
        queue: &Queue<'_>,
        grid: [u32; 3],
        arguments: &DenseMergeArguments,
    ) -> Result<(), LaunchError> {
        let mut list = ArgumentList::new("dense_merge");
        list.pointer("partial", arguments.partial, 16)?;
        list.pointer("partial_lse", arguments.partial_lse, 16)?;
        list.pointer("positions", arguments.positions, 4)?;
        list.pointer("out", arguments.out, 16)?;
        list.i32("max_runs", arguments.max_runs, 1)?;
        self.0.launch(queue, grid, 0, &mut list)
    }
}

/// Arguments of [`SampleScan`].
#[derive(Clone, Copy, Debug)]
pub struct SampleScanArguments {
    /// `*f32`, a multiple of 4.
    pub logits: DevicePointer,
    /// `*f32`, a multiple of 4, or null.
    pub adjusted: DevicePointer,
    /// `*u32`, a multiple of 16.
    pub positions: DevicePointer,
    /// `*u32`, a multiple of 16.
    pub rows: DevicePointer,
    /// `*u32`, a multiple of 4, or null.
    pub counts: DevicePointer,
    /// `*u32`, a multiple of 8, or null.
    pub biases: DevicePointer,
    /// `*u32`, a multiple of 4, or null.
    pub masks: DevicePointer,
    /// `*i32`, a multiple of 4, or null.
    pub drafts: DevicePointer,
    /// `*u64`, a multiple of 8.
    pub parts: DevicePointer,
    /// `i32`.
    pub vocab: i32,
}

/// `kernels/sampling/sampling.cu`, function `sample_scan`.
#[derive(Clone, Debug)]
pub struct SampleScan(KernelSet);

impl SampleScan {
    /// Arguments and variants as the pack must have them.
    pub const CONTRACT: Contract = Contract {
        kernel: "sample_scan",
        text: "sample_scan(logits: *f32 @4, adjusted: *f32 @4 null, positions: *u32 @16, rows: *u32 @16, counts: *u32 @4 null, biases: *u32 @8 null, masks: *u32 @4 null, drafts: *i32 @4 null, parts: *u64 @8, vocab: i32)",
        variants: &[],
    };

    /// Compiled in.
    pub const THREADS: u32 = 1024;
    /// Compiled in.
    pub const PART: u32 = 8192;

    /// Whether it was compiled for the loaded shape.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.0.has(0)
    }

    /// Checks the arguments and puts one launch into the queue.
    pub fn launch(
        &self,
        queue: &Queue<'_>,
        grid: [u32; 3],
        arguments: &SampleScanArguments,
    ) -> Result<(), LaunchError> {
        let mut list = ArgumentList::new("sample_scan");
        list.pointer("logits", arguments.logits, 4)?;
        list.nullable_pointer("adjusted", arguments.adjusted, 4)?;
        list.pointer("positions", arguments.positions, 16)?;
        list.pointer("rows", arguments.rows, 16)?;
        list.nullable_pointer("counts", arguments.counts, 4)?;
        list.nullable_pointer("biases", arguments.biases, 8)?;
        list.nullable_pointer("masks", arguments.masks, 4)?;
        list.nullable_pointer("drafts", arguments.drafts, 4)?;
        list.pointer("parts", arguments.parts, 8)?;
        list.i32("vocab", arguments.vocab, 1)?;
        self.0.launch(queue, grid, 0, &mut list)
    }
}

/// Arguments of [`SampleChoose`].
#[derive(Clone, Copy, Debug)]
pub struct SampleChooseArguments {
    /// `*f32`, a multiple of 4.
    pub logits: DevicePointer,
    /// `*f32`, a multiple of 4, or null.
    pub adjusted: DevicePointer,
    /// `*u32`, a multiple of 16.
    pub positions: DevicePointer,
    /// `*u32`, a multiple of 16.
    pub rows: DevicePointer,
    /// `*u32`, a multiple of 4, or null.
    pub counts: DevicePointer,
    /// `*u64`, a multiple of 8.
    pub parts: DevicePointer,
    /// `*u32`, a multiple of 4.
    pub tokens: DevicePointer,
    /// `*u32`, a multiple of 4.
    pub faults: DevicePointer,
    /// `*i32`, a multiple of 4.
    pub last_tokens: DevicePointer,
    /// `i32`.
    pub vocab: i32,
    /// `i32`.
    pub num_parts: i32,
}

/// `kernels/sampling/sampling.cu`, function `sample_choose`.
#[derive(Clone, Debug)]
pub struct SampleChoose(KernelSet);

impl SampleChoose {
    /// Arguments and variants as the pack must have them.
    pub const CONTRACT: Contract = Contract {
        kernel: "sample_choose",
        text: "sample_choose(logits: *f32 @4, adjusted: *f32 @4 null, positions: *u32 @16, rows: *u32 @16, counts: *u32 @4 null, parts: *u64 @8, tokens: *u32 @4, faults: *u32 @4, last_tokens: *i32 @4, vocab: i32, num_parts: i32)",
        variants: &[],
    };

    /// Compiled in.
    pub const THREADS: u32 = 1024;
    /// Compiled in.
    pub const PART: u32 = 8192;

    /// Whether it was compiled for the loaded shape.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.0.has(0)
    }

    /// Checks the arguments and puts one launch into the queue.
    pub fn launch(
        &self,
        queue: &Queue<'_>,
        grid: [u32; 3],
        arguments: &SampleChooseArguments,
    ) -> Result<(), LaunchError> {
        let mut list = ArgumentList::new("sample_choose");
        list.pointer("logits", arguments.logits, 4)?;
        list.nullable_pointer("adjusted", arguments.adjusted, 4)?;
        list.pointer("positions", arguments.positions, 16)?;
        list.pointer("rows", arguments.rows, 16)?;
        list.nullable_pointer("counts", arguments.counts, 4)?;
        list.pointer("parts", arguments.parts, 8)?;
        list.pointer("tokens", arguments.tokens, 4)?;
        list.pointer("faults", arguments.faults, 4)?;
        list.pointer("last_tokens", arguments.last_tokens, 4)?;
        list.i32("vocab", arguments.vocab, 1)?;
        list.i32("num_parts", arguments.num_parts, 1)?;
        self.0.launch(queue, grid, 0, &mut list)
    }
}

/// Arguments of [`SampleLogprobs`].
#[derive(Clone, Copy, Debug)]
pub struct SampleLogprobsArguments {
    /// `*f32`, a multiple of 4.
    pub logits: DevicePointer,
    /// `*u32`, a multiple of 16.
    pub positions: DevicePointer,
    /// `*u32`, a multiple of 16.
    pub rows: DevicePointer,
    /// `*u64`, a multiple of 8.
    pub parts: DevicePointer,
    /// `*u32`, a multiple of 4.
    pub tokens: DevicePointer,
    /// `*f32`, a multiple of 4.
    pub logprobs: DevicePointer,
    /// `*u32`, a multiple of 4.
    pub ranks: DevicePointer,
    /// `*u32`, a multiple of 4, or null.
    pub top_ids: DevicePointer,
    /// `*f32`, a multiple of 4, or null.
    pub top_logprobs: DevicePointer,
    /// `i32`.
    pub vocab: i32,
    /// `i32`.
    pub num_parts: i32,
    /// `i32`.
    pub top_capacity: i32,
}

/// `kernels/sampling/sampling.cu`, function `sample_logprobs`.
#[derive(Clone, Debug)]
pub struct SampleLogprobs(KernelSet);

impl SampleLogprobs {
    /// Arguments and variants as the pack must have them.
    pub const CONTRACT: Contract = Contract {
        kernel: "sample_logprobs",
        text: "sample_logprobs(logits: *f32 @4, positions: *u32 @16, rows: *u32 @16, parts: *u64 @8, tokens: *u32 @4, logprobs: *f32 @4, ranks: *u32 @4, top_ids: *u32 @4 null, top_logprobs: *f32 @4 null, vocab: i32, num_parts: i32, top_capacity: i32)",
        variants: &[],
    };

    /// Compiled in.
    pub const THREADS: u32 = 1024;
    /// Compiled in.
    pub const PART: u32 = 8192;

    /// Whether it was compiled for the loaded shape.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.0.has(0)
    }

    /// Checks the arguments and puts one launch into the queue.
    pub fn launch(
        &self,
        queue: &Queue<'_>,
        grid: [u32; 3],
        arguments: &SampleLogprobsArguments,
    ) -> Result<(), LaunchError> {
        let mut list = ArgumentList::new("sample_logprobs");
        list.pointer("logits", arguments.logits, 4)?;
        list.pointer("positions", arguments.positions, 16)?;
        list.pointer("rows", arguments.rows, 16)?;
        list.pointer("parts", arguments.parts, 8)?;
        list.pointer("tokens", arguments.tokens, 4)?;
        list.pointer("logprobs", arguments.logprobs, 4)?;
        list.pointer("ranks", arguments.ranks, 4)?;
        list.nullable_pointer("top_ids", arguments.top_ids, 4)?;
        list.nullable_pointer("top_logprobs", arguments.top_logprobs, 4)?;
        list.i32("vocab", arguments.vocab, 1)?;
        list.i32("num_parts", arguments.num_parts, 1)?;
        list.i32("top_capacity", arguments.top_capacity, 1)?;
        self.0.launch(queue, grid, 0, &mut list)
    }
}

/// Arguments of [`CountHistory`].
#[derive(Clone, Copy, Debug)]
pub struct CountHistoryArguments {
    /// `*u32`, a multiple of 4.
    pub counts: DevicePointer,
    /// `*u32`, a multiple of 4.
    pub history: DevicePointer,
    /// `i32`.
    pub length: i32,
    /// `i32`.
    pub prompt_length: i32,
}

/// `kernels/sampling/sampling.cu`, function `count_history`.
#[derive(Clone, Debug)]
pub struct CountHistory(KernelSet);

impl CountHistory {
    /// Arguments and variants as the pack must have them.
    pub const CONTRACT: Contract = Contract {
        kernel: "count_history",
        text: "count_history(counts: *u32 @4, history: *u32 @4, length: i32, prompt_length: i32)",
        variants: &[],
    };

    /// Compiled in.
    pub const THREADS: u32 = 1024;
    /// Compiled in.
    pub const PART: u32 = 8192;

    /// Whether it was compiled for the loaded shape.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.0.has(0)
    }

    /// Checks the arguments and puts one launch into the queue.
    pub fn launch(
        &self,
        queue: &Queue<'_>,
        grid: [u32; 3],
        arguments: &CountHistoryArguments,
    ) -> Result<(), LaunchError> {
        let mut list = ArgumentList::new("count_history");
        list.pointer("counts", arguments.counts, 4)?;
        list.pointer("history", arguments.history, 4)?;
        list.i32("length", arguments.length, 1)?;
        list.i32("prompt_length", arguments.prompt_length, 1)?;
        self.0.launch(queue, grid, 0, &mut list)
    }
}
