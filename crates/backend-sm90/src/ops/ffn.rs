//! Dense MLPs and the mixture of experts, both as grouped products.
//!
//! The shared expert is the last of the stack and sees every token. A dense MLP is a stack of one expert, chosen by
//! every token, whose output needs no weights.

use m3_abi::{Error, Result};
use m3_gpu::launch::DevicePointer;
use m3_model::formats::Format;
use m3_model::taps::TapPoint;

use super::linear::has_whole_words;
use super::stream::streams;
use super::tiles::{Moe, MoeShape, Tile};
use super::{Rank, blocks, launched};
use crate::dims::Dims;
use crate::kernels::{
    GroupRowsArguments, MoeCombine, MoeCombineArguments, MoeDownBf16Arguments, MoeDownBf16Variant,
    MoeDownMxfp8Arguments, MoeDownMxfp8Variant, MoeUpBf16Arguments, MoeUpBf16Variant, MoeUpMxfp8Arguments,
    MoeUpMxfp8Variant, RouterChooseArguments, RouterLogits, RouterLogitsArguments, RouterLogitsVariant,
};
use crate::weights::Matrix;
use crate::weights::place::{Ffn, Mlp};

/// Parts of K of the router's product: its few blocks are slow to read the weights with few tokens.
const FEW_TOKENS_SPLITS: usize = 48;
const MANY_TOKENS_SPLITS: usize = 4;
/// Tokens up to which the router takes narrow tiles.
const FEW_TOKENS: usize = 64;

/// Splits of the router's sum over the hidden size.
fn router_splits(tokens: usize, dims: &Dims) -> usize {
    let most = if tokens <= FEW_TOKENS { FEW_TOKENS_SPLITS } else { MANY_TOKENS_SPLITS };
    dims.hidden.div_ceil(RouterLogits::BLOCK_K as usize).clamp(1, most)
}

/// Rows of parts of the router's logits that any step of up to `tokens` tokens needs.
pub(super) fn router_part_rows(tokens: usize, dims: &Dims) -> usize {
    let few = tokens.min(FEW_TOKENS);
    (few * router_splits(few, dims)).max(tokens * router_splits(tokens, dims))
}

/// A grouped product: which rows, how many groups, where they stand.
#[derive(Clone, Copy)]
pub(super) struct Grouped {
    pub(super) launch: Moe,
    pub(super) shape: MoeShape,
    pub(super) offsets: DevicePointer,
    pub(super) rows: DevicePointer,
    pub(super) out: DevicePointer,
    is_dense: bool,
}

impl Grouped {
    /// Blocks of `each` columns for every tile of rows that can occur; the variant says how wide it is, which differs
    /// between formats.
    pub(super) fn blocks(&self, columns: usize, each: u32) -> u32 {
        blocks(columns, each) * self.shape.most_tiles(self.launch.tile.rows()) as u32
    }
}

impl Rank {
    pub(super) fn run_dense(&mut self, ffn: &Ffn<Matrix>) -> Result<()> {
        let Ffn::Dense(mlp) = ffn else { unreachable!("the layer plan says dense") };
        let shape = MoeShape::dense(self.run.counts.tokens, &self.dims);
        let buffers = &self.work.buffers;
        let grouped = Grouped {
            launch: Moe::new(shape),
            shape,
            offsets: self.run.arrays.live_range,
            rows: buffers.iota.pointer,
            out: buffers.pending.pointer,
            is_dense: true,
        };
        self.products(mlp, &grouped)?;
        self.has_pending = true;
        Ok(())
    }

    pub(super) fn run_moe(&mut self, layer: usize, ffn: &Ffn<Matrix>) -> Result<()> {
        let Ffn::Moe { router, bias, experts } = ffn else { unreachable!("the layer plan says MoE") };
        // One token's choices are in order already: its choice writes what grouping would.
        let single = self.run.counts.tokens == 1;
        self.route(router, bias, single)?;
        if !single {
            self.group()?;
        }
        let shape = MoeShape::experts(self.run.counts.tokens, &self.dims);
        let buffers = self.work.buffers;
        let grouped = Grouped {
            launch: Moe::new(shape),
            shape,
            offsets: buffers.group_offsets.pointer,
            rows: buffers.group_rows.pointer,
            out: buffers.expert_out.pointer,
            is_dense: false,
        };
        self.products(experts, &grouped)?;
        self.combine()?;
        self.has_pending = true;
        self.tap_routing(layer)
    }

    fn route(&self, router: &Matrix, bias: &Matrix, single: bool) -> Result<()> {
        let (tokens, buffers, dims) = (self.run.counts.tokens, &self.work.buffers, &self.dims);
        let splits = router_splits(tokens, dims);
        let variant =
            if tokens <= FEW_TOKENS { RouterLogitsVariant::Decode } else { RouterLogitsVariant::Prefill };
        let arguments = RouterLogitsArguments {
            x: buffers.normed.pointer,
            w: router.values,
            partials: buffers.router_partials.pointer,
            t: tokens as i32,
            e: dims.num_experts as i32,
            k: dims.hidden as i32,
        };
        let grid = [blocks(tokens, variant.block_t()), splits as u32, 1];
        launched(self.kernels.router_logits.launch(&self.queue(), grid, variant, &arguments))?;
        let scores = if self.taps.is_on() { buffers.router_scores.pointer } else { DevicePointer::NULL };
        let if_single = |pointer| if single { pointer } else { DevicePointer::NULL };
        let arguments = RouterChooseArguments {
            partials: buffers.router_partials.pointer,
            bias: bias.values,
            live: self.run.arrays.live,
            scores,
            ids: buffers.routed.pointer,
            weights: buffers.routed_weights.pointer,
            offsets: if_single(buffers.group_offsets.pointer),
            rows: if_single(buffers.group_rows.pointer),
            t: tokens as i32,
            e: dims.num_experts as i32,
            splits: splits as i32,
        };
        launched(self.kernels.router_choose.launch(&self.queue(), [tokens as u32, 1, 1], &arguments))
    }

    fn group(&self) -> Result<()> {
        let (buffers, experts) = (&self.work.buffers, self.dims.num_experts);
        let arguments = GroupRowsArguments {
            ids: buffers.routed.pointer,
            offsets: buffers.group_offsets.pointer,
            rows: buffers.group_rows.pointer,
            t: self.run.counts.tokens as i32,
            e: experts as i32,
        };
        launched(self.kernels.group_rows.launch(&self.queue(), [experts as u32 + 1, 1, 1], &arguments))
    }

    fn combine(&self) -> Result<()> {
        let (tokens, buffers, hidden) = (self.run.counts.tokens, &self.work.buffers, self.dims.hidden);
        let arguments = MoeCombineArguments {
            y: buffers.expert_out.pointer,
            ids: buffers.routed.pointer,
            weights: buffers.routed_weights.pointer,
            pending: buffers.pending.pointer,
            t: tokens as i32,
            n: hidden as i32,
            scaling: self.config.routed_scaling_factor,
        };
        let grid = [tokens as u32, blocks(hidden, MoeCombine::BLOCK), 1];
        launched(self.kernels.moe_combine.launch(&self.queue(), grid, &arguments))
    }

    /// Both products of `normed`, the activation between them fused into the first.
    fn products(&self, mlp: &Mlp<Matrix>, grouped: &Grouped) -> Result<()> {
        self.up(&mlp.gate_up, grouped)?;
        self.down(&mlp.down, grouped)
    }

    fn up(&self, w: &Matrix, grouped: &Grouped) -> Result<()> {
        let Grouped { launch, shape, offsets, rows, is_dense, .. } = *grouped;
        let (x, inner) = (self.work.buffers.normed.pointer, self.work.buffers.inner.pointer);
        if streams(w, grouped) {
            return self.up_stream(x, w, grouped);
        }
        let (partials, counters) = self.parts_of(launch.tile);
        let (t, k, i) = (shape.tokens as i32, w.columns as i32, shape.width as i32);
        let groups = shape.experts as i32 + 1;
        let (alpha, limit) = (self.config.swiglu_alpha, self.config.swiglu_limit);
        let (w, scales, format) = (w.values, w.scales, w.format);
        match format {
            Format::Bf16 => {
                let arguments = MoeUpBf16Arguments {
                    x,
                    w,
                    scales,
                    offsets,
                    rows,
                    inner,
                    partials,
                    counters,
                    t,
                    k,
                    i,
                    groups,
                    alpha,
                    limit,
                };
                let variant = up_bf16(launch.tile, is_dense);
                let grid = [grouped.blocks(shape.width, variant.block_i()), launch.up[1], 1];
                launched(self.kernels.moe_up_bf16.launch(&self.queue(), grid, variant, &arguments))
            }
            Format::Mxfp8 => {
                let arguments = MoeUpMxfp8Arguments {
                    x,
                    w,
                    scales,
                    offsets,
                    rows,
                    inner,
                    partials,
                    counters,
                    t,
                    k,
                    i,
                    groups,
                    alpha,
                    limit,
                };
                let variant = up_mxfp8(launch.tile, is_dense, has_whole_words(k as usize));
                let grid = [grouped.blocks(shape.width, variant.block_i()), launch.up[1], 1];
                launched(self.kernels.moe_up_mxfp8.launch(&self.queue(), grid, variant, &arguments))
            }
            Format::F32 => Err(no_f32(k)),
        }
    }

    fn down(&self, w: &Matrix, grouped: &Grouped) -> Result<()> {
        if streams(w, grouped) {
            return self.down_stream(w, grouped);
        }
        let Grouped { launch, shape, offsets, rows, out: y, .. } = *grouped;
        let inner = self.work.buffers.inner.pointer;
        let (n, i, groups) = (shape.hidden as i32, shape.width as i32, shape.experts as i32 + 1);
        let (w, scales, format) = (w.values, w.scales, w.format);
        match format {
            Format::Bf16 => {
                let variant = match launch.tile {
                    Tile::Decode16 => MoeDownBf16Variant::Decode16,
                    Tile::Decode32 => MoeDownBf16Variant::Decode32,
                    Tile::Decode64 => MoeDownBf16Variant::Decode64,
                    Tile::Prefill => MoeDownBf16Variant::Prefill,
                };
                let arguments = MoeDownBf16Arguments { inner, w, scales, offsets, rows, y, n, i, groups };
                let grid = [grouped.blocks(shape.hidden, variant.block_n()), 1, 1];
                launched(self.kernels.moe_down_bf16.launch(&self.queue(), grid, variant, &arguments))
            }
            Format::Mxfp8 => {
                let variant = match (launch.tile, has_whole_words(shape.width)) {
                    (Tile::Decode16, false) => MoeDownMxfp8Variant::Decode16Any,
                    (Tile::Decode32, false) => MoeDownMxfp8Variant::Decode32Any,
                    (Tile::Decode64, false) => MoeDownMxfp8Variant::Decode64Any,
                    (Tile::Prefill, false) => MoeDownMxfp8Variant::PrefillAny,
                    (Tile::Decode16, true) => MoeDownMxfp8Variant::Decode16,
                    (Tile::Decode32, true) => MoeDownMxfp8Variant::Decode32,
                    (Tile::Decode64, true) => MoeDownMxfp8Variant::Decode64,
                    (Tile::Prefill, true) => MoeDownMxfp8Variant::Prefill,
                };
                let arguments = MoeDownMxfp8Arguments { inner, w, scales, offsets, rows, y, n, i, groups };
                let grid = [grouped.blocks(shape.hidden, variant.block_n()), 1, 1];
                launched(self.kernels.moe_down_mxfp8.launch(&self.queue(), grid, variant, &arguments))
            }
            Format::F32 => Err(no_f32(i)),
        }
    }

    /// What the last layer that routed chose: [T, experts per token], -1 for padded rows.
    pub(crate) fn routed_experts(&self) -> Result<Vec<i32>> {
        self.integers_of(self.work.buffers.routed, self.run.counts.tokens * self.dims.experts_per_token)
    }

    fn tap_routing(&mut self, layer: usize) -> Result<()> {
        if !self.taps.is_on() {
            return Ok(());
        }
        let (tokens, buffers) = (self.run.counts.tokens, self.work.buffers);
        let (experts, chosen) = (self.dims.num_experts, self.dims.experts_per_token);
        let scores = self.f32_of(buffers.router_scores, tokens * experts)?;
        let ids = self.i32_of(buffers.routed, tokens * chosen)?;
        let weights = self.f32_of(buffers.routed_weights, tokens * chosen)?;
        self.taps.keep_tokens(TapPoint::RouterScore(layer), experts, &scores);
        self.taps.keep_tokens(TapPoint::Routed(layer), chosen, &ids);
        self.taps.keep_tokens(TapPoint::RoutedWeights(layer), chosen, &weights);
        Ok(())
    }
}

fn no_f32(columns: i32) -> Error {
    Error::Fatal(format!("no expert product with F32 weights of {columns} columns"))
}

fn up_bf16(tile: Tile, is_dense: bool) -> MoeUpBf16Variant {
    match (tile, is_dense) {
        (Tile::Decode16, false) => MoeUpBf16Variant::Decode16,
        (Tile::Decode32, false) => MoeUpBf16Variant::Decode32,
        (Tile::Decode64, false) => MoeUpBf16Variant::Decode64,
        (Tile::Prefill, false) => MoeUpBf16Variant::Prefill,
        (Tile::Decode16, true) => MoeUpBf16Variant::DenseDecode16,
        (Tile::Decode32, true) => MoeUpBf16Variant::DenseDecode32,
        (Tile::Decode64, true) => MoeUpBf16Variant::DenseDecode64,
        (Tile::Prefill, true) => MoeUpBf16Variant::DensePrefill,
    }
}

fn up_mxfp8(tile: Tile, is_dense: bool, whole_words: bool) -> MoeUpMxfp8Variant {
    match (tile, is_dense, whole_words) {
        (Tile::Decode16, false, false) => MoeUpMxfp8Variant::Decode16Any,
        (Tile::Decode32, false, false) => MoeUpMxfp8Variant::Decode32Any,
        (Tile::Decode64, false, false) => MoeUpMxfp8Variant::Decode64Any,
        (Tile::Prefill, false, false) => MoeUpMxfp8Variant::PrefillAny,
        (Tile::Decode16, true, false) => MoeUpMxfp8Variant::DenseDecode16Any,
        (Tile::Decode32, true, false) => MoeUpMxfp8Variant::DenseDecode32Any,
        (Tile::Decode64, true, false) => MoeUpMxfp8Variant::DenseDecode64Any,
        (Tile::Prefill, true, false) => MoeUpMxfp8Variant::DensePrefillAny,
        (Tile::Decode16, false, true) => MoeUpMxfp8Variant::Decode16,
        (Tile::Decode32, false, true) => MoeUpMxfp8Variant::Decode32,
        (Tile::Decode64, false, true) => MoeUpMxfp8Variant::Decode64,
        (Tile::Prefill, false, true) => MoeUpMxfp8Variant::Prefill,
        (Tile::Decode16, true, true) => MoeUpMxfp8Variant::DenseDecode16,
        (Tile::Decode32, true, true) => MoeUpMxfp8Variant::DenseDecode32,
        (Tile::Decode64, true, true) => MoeUpMxfp8Variant::DenseDecode64,
        (Tile::Prefill, true, true) => MoeUpMxfp8Variant::DensePrefill,
    }
}
