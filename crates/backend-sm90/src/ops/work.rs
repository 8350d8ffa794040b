//! Workspaces of a rank: every buffer between two kernels, sized once for the largest step.
//!
//! Sizes follow from the limits of `open` and from which kernel variant takes how many tokens ([`super::tiles`]). Contents
//! do not outlive a step, but for the page table, each row's last token, and penalty counts.

use m3_abi::{OpenRequest, Result};
use m3_gpu::arena::{Arena, ArenaPlan, PieceId};
use m3_gpu::device::Device;
use m3_gpu::launch::DevicePointer;
use m3_gpu::memory::Region;
use m3_gpu::stream::Stream;

use super::tiles::{self, Moe};
use crate::dims::Dims;
use crate::step::arrays::{Counts, StepLayout};
use crate::step::pack::SHORT;
use crate::step::sampling::Bias;

/// Logits rows made and sampled together, at most.
const MOST_LOGITS_ROWS: usize = 256;
/// Blocks that share one decode row's context: runs of all KV heads together.
const RUNS: usize = 128;
/// Biases of one step, per row on average.
const BIASES_PER_ROW: usize = 2048;
/// Masks of one step, per row on average.
const MASKS_PER_ROW: usize = 4;
/// Entries of the page table (or of penalty counts) changed in one launch.
pub(crate) const SCATTERED: usize = 16 * 1024;

/// Values by which a copy may be longer than its arrays.
const ROUNDING: usize = 4;

/// What the sizes follow from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Most tokens of a step, padding included.
    pub(crate) tokens: usize,
    /// Most tokens that decode kernels take.
    pub(crate) short_tokens: usize,
    pub(crate) rows: usize,
    /// Entries of a row of the page table.
    pub(crate) max_pages: usize,
    pub(crate) logits_rows: usize,
    pub(crate) max_logprobs: usize,
    pub(crate) mask_words: usize,
    /// Runs of a decode row's context.
    pub(crate) max_runs: usize,
}

impl Sizes {
    pub(crate) fn new(request: &OpenRequest, dims: &Dims) -> Sizes {
        let rows = request.max_rows as usize;
        let tokens = (request.max_step_tokens as usize).max(rows);
        Sizes {
            tokens,
            short_tokens: tokens.min(rows * SHORT),
            rows,
            max_pages: request.max_context.div_ceil(request.page_tokens) as usize,
            logits_rows: tokens.min(MOST_LOGITS_ROWS.max(rows)),
            max_logprobs: request.max_logprobs as usize,
            mask_words: dims.vocab.div_ceil(32),
            max_runs: (RUNS / dims.kv_heads).max(1),
        }
    }

    pub(crate) fn max_biases(&self) -> usize {
        self.rows * BIASES_PER_ROW
    }

    pub(crate) fn max_masks(&self) -> usize {
        self.tokens.min(self.rows * MASKS_PER_ROW)
    }

    /// The largest layout of step arrays.
    pub(crate) fn largest_step(&self) -> StepLayout {
        let chunks = self.rows;
        StepLayout::new(Counts { tokens: self.tokens, chunks, logits: self.tokens, rows: self.rows })
    }
}

macro_rules! buffers {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Regions of the workspace arena.
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct Buffers {
            $($(#[$doc])* pub(crate) $name: Region,)*
        }

        #[derive(Clone, Copy, Debug)]
        struct Pieces {
            $($name: PieceId,)*
        }

        impl Pieces {
            fn regions(&self, arena: &Arena) -> Buffers {
                Buffers { $($name: arena.region(self.$name),)* }
            }
        }
    };
}

buffers! {
    /// One step's arrays.
    step,
    /// i32 `[rows + 1, max_pages]`; the last row is that of padding.
    page_table,
    /// i32 `[rows + 1]`
    last_tokens,
    /// u32 `[rows, vocab]`
    counts,
    /// Indexes (i64) and values (i32) of a scatter.
    scatter,
    biases,
    masks,
    /// bf16 `[T, hidden]`, as are the next two.
    residual,
    pending,
    normed,
    /// bf16 `[T, projected]`
    projected,
    /// bf16 `[T, heads, head_dim]`
    queries,
    index_queries,
    attended,
    /// f32 `[rotary / 2]`
    frequencies,
    /// f32 `[T, rotary]`
    angles,
    /// f32 `[short tokens, index heads, max_pages]`
    short_scores,
    /// f32 `[max_pages, T * index heads]`
    chunk_scores,
    /// i32 `[T, kv heads, topk]`
    selected,
    /// f32 `[short tokens, splits, heads, head_dim]`, of whole contexts `[short tokens, heads, runs, head_dim]`
    short_partial,
    short_lse,
    /// bf16 `[T, topk, heads, head_dim]`
    chunk_partial,
    chunk_lse,
    /// i32 `[kv heads * items]` and one more; zero between launches
    item_counts,
    item_offsets,
    /// i32 `[T, kv heads, topk]`
    item_ranks,
    item_entries,
    /// f32 `[splits, T, experts]`
    router_partials,
    /// f32 `[T, experts]`
    router_scores,
    /// i32, f32 `[T, experts per token]`
    routed,
    routed_weights,
    /// i32 `[experts + 2]`
    group_offsets,
    /// i32 `[T * (experts per token + 1)]`
    group_rows,
    /// i32 `[T]`: 0, 1, 2, ..
    iota,
    /// bf16 `[T * (experts per token + 1), width]`
    inner,
    /// bf16 `[T * (experts per token + 1), hidden]`
    expert_out,
    /// f32, parts of split sums
    partials,
    /// i32, zero between launches
    counters,
    /// bf16 `[T, hidden]`: normed rows of the logits positions
    hidden,
    /// f32 `[logits rows, vocab part]`, as is the next one
    logits,
    adjusted,
    /// One record per part of a row of logits.
    sample_parts,
    sample_out,
}

/// The workspaces and the memory that they lie in.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) sizes: Sizes,
    pub(crate) buffers: Buffers,
    arena: Arena,
}

/// A plan that was not carved yet.
pub(crate) struct WorkPlan {
    sizes: Sizes,
    pieces: Pieces,
    arena: ArenaPlan,
}

impl WorkPlan {
    pub(crate) fn new(sizes: Sizes, dims: &Dims, needs: Needs) -> WorkPlan {
        let mut arena = ArenaPlan::new();
        let pieces = plan(&mut arena, &sizes, dims, needs);
        WorkPlan { sizes, pieces, arena }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.arena.bytes()
    }

    pub(crate) fn carve(self, device: &Device) -> Result<Work> {
        let arena = self.arena.carve(device, "workspace")?;
        Ok(Work { buffers: self.pieces.regions(&arena), sizes: self.sizes, arena })
    }
}

/// Sizes that the kernels' variants decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Needs {
    /// f32 values of split sums.
    pub(crate) partials: usize,
    pub(crate) counters: usize,
    /// Splits of `sparse_attend_decode`.
    pub(crate) sparse_splits: usize,
    pub(crate) sample_part_bytes: usize,
    pub(crate) sample_out_bytes: usize,
    /// Rows of parts of the router's logits.
    pub(crate) router_part_rows: usize,
}

fn plan(arena: &mut ArenaPlan, sizes: &Sizes, dims: &Dims, needs: Needs) -> Pieces {
    let (tokens, short, rows) = (sizes.tokens, sizes.short_tokens, sizes.rows);
    let (heads, kv, index, topk) = (dims.heads, dims.kv_heads, dims.index_heads, dims.topk);
    let moe_rows = Moe::rows(tokens, dims);
    let runs = needs.sparse_splits.max(sizes.max_runs);
    let items = kv * rows * sizes.max_pages;
    let mut add = |name: &str, values: usize, bytes: usize| arena.add(name, (values.max(1) * bytes) as u64);
    Pieces {
        step: add("step arrays", sizes.largest_step().bytes() as usize, 1),
        page_table: add("page table", (rows + 1) * sizes.max_pages, 4),
        last_tokens: add("last tokens", rows + 1, 4),
        counts: add("penalty counts", rows * dims.vocab, 4),
        scatter: add("scattered entries", SCATTERED, 16),
        biases: add("biases", sizes.max_biases() + ROUNDING, size_of::<Bias>()),
        masks: add("masks", sizes.max_masks() * sizes.mask_words + ROUNDING, 4),
        residual: add("residual", tokens * dims.hidden, 2),
        pending: add("pending", tokens * dims.hidden, 2),
        normed: add("normed", tokens * dims.hidden, 2),
        projected: add("projected", tokens * dims.most_projected(), 2),
        queries: add("queries", tokens * heads * dims.head_dim, 2),
        index_queries: add("index queries", tokens * index * dims.index_dim, 2),
        attended: add("attended", tokens * heads * dims.head_dim, 2),
        frequencies: add("frequencies", dims.rotary_dim / 2, 4),
        angles: add("angles", tokens * dims.rotary_dim, 4),
        short_scores: add("block scores of short sequences", short * index * sizes.max_pages, 4),
        chunk_scores: add("block scores of chunks", sizes.max_pages * score_stride(tokens, dims), 4),
        selected: add("selected", tokens * kv * topk, 4),
        short_partial: add("attention parts of short sequences", short * heads * runs * dims.head_dim, 4),
        short_lse: add("attention sums of short sequences", short * heads * runs, 4),
        chunk_partial: add("attention parts of chunks", tokens * heads * topk * dims.head_dim, 2),
        chunk_lse: add("attention sums of chunks", tokens * heads * topk, 4),
        item_counts: add("block list lengths", items + 1, 4),
        item_offsets: add("block list starts", items + 1, 4),
        item_ranks: add("block list places", tokens * kv * topk, 4),
        item_entries: add("block lists", tokens * kv * topk, 4),
        router_partials: add("router parts", needs.router_part_rows * dims.num_experts, 4),
        router_scores: add("router scores", tokens * dims.num_experts, 4),
        routed: add("routed", tokens * dims.experts_per_token, 4),
        routed_weights: add("routed weights", tokens * dims.experts_per_token, 4),
        group_offsets: add("expert row starts", dims.num_experts + 2, 4),
        group_rows: add("expert rows", moe_rows, 4),
        iota: add("iota", tokens, 4),
        inner: add("inner", (moe_rows * dims.expert_width).max(tokens * dims.dense_width), 2),
        expert_out: add("expert output", moe_rows * dims.hidden, 2),
        partials: add("split sums", needs.partials, 4),
        counters: add("split counters", needs.counters, 4),
        hidden: add("hidden", tokens * dims.hidden, 2),
        logits: add("logits", sizes.logits_rows * dims.vocab_part.len(), 4),
        adjusted: add("adjusted logits", sizes.logits_rows * dims.vocab_part.len(), 4),
        sample_parts: add("sampling parts", needs.sample_part_bytes, 1),
        sample_out: add("sampled", needs.sample_out_bytes, 1),
    }
}

/// Entries from one block of `chunk_scores` to the next, for `tokens` tokens.
pub(crate) fn score_stride(tokens: usize, dims: &Dims) -> usize {
    (tokens * dims.index_heads).next_multiple_of(16)
}

impl Work {
    /// Sets what steps rely on: empty tables, zero counters, the rotation's frequencies.
    pub(crate) fn initialise(&self, stream: &Stream, frequencies: &[f32]) -> Result<()> {
        self.arena.poison(stream, 0xff)?;
        let zero = [
            self.buffers.page_table,
            self.buffers.last_tokens,
            self.buffers.counts,
            self.buffers.counters,
            self.buffers.item_counts,
        ];
        zero.into_iter().try_for_each(|region| stream.fill(region, 0))?;
        stream.upload_values(self.buffers.frequencies, frequencies)?;
        let iota: Vec<i32> = (0..self.sizes.tokens as i32).collect();
        stream.upload_values(self.buffers.iota, &iota)?;
        stream.synchronize()?;
        Ok(())
    }
}

/// Element `first` of a buffer of `width`-byte values.
pub(crate) fn at(buffer: Region, first: usize, width: usize) -> DevicePointer {
    buffer.pointer.offset((first * width) as u64)
}

/// Largest needs of split sums over every matrix of a rank.
pub(crate) fn split_needs(sizes: &Sizes, dims: &Dims) -> (usize, usize) {
    let products = [
        (dims.most_projected(), dims.hidden),
        (dims.hidden, dims.heads * dims.head_dim),
        (dims.vocab_part.len(), dims.hidden),
    ];
    let plain = products.map(|(n, k)| tiles::Gemm::needs(n, k));
    let moe = Moe::needs(sizes.tokens, dims);
    let all = plain.into_iter().chain(moe);
    all.fold((0, 0), |most, needs| (most.0.max(needs.0), most.1.max(needs.1)))
}
