//! The grouped products of few rows an expert with MXFP8 weights: `kernels/moe/stream.cu` instead of the tiles of `moe.py`.
//!
//! Which of both runs depends on the step's tile and the matrix alone.

use m3_abi::Result;
use m3_gpu::launch::DevicePointer;
use m3_model::formats::Format;

use super::ffn::Grouped;
use super::linear::has_whole_words;
use super::tiles::Tile;
use super::{Rank, blocks, launched};
use crate::kernels::{
    GemmStream, GemmStreamArguments, MoeDownStream, MoeDownStreamArguments, MoeUpStream, MoeUpStreamArguments,
};
use crate::weights::Matrix;

/// Groups that a block can look through.
const MOST_GROUPS: usize = 256;
/// Inner columns of a block of the first product, for each of its weight tiles.
const UP_COLUMNS: u32 = 8;
/// Output columns of a block of the second product, for each of a warp's weight tiles.
const DOWN_COLUMNS: u32 = 128;

/// Whether the products of `w` go through the streaming kernels.
pub(super) fn streams(w: &Matrix, grouped: &Grouped) -> bool {
    w.format == Format::Mxfp8
        && grouped.launch.tile == Tile::Decode16
        && has_whole_words(w.columns)
        && grouped.shape.experts < MOST_GROUPS
}

/// Rows of a block, and up to which a plain product streams: with 64 rows tiles were faster (one H200, 2026-11-30).
const ROWS: u32 = 16;
/// Output columns of a block of the plain product, for each of its weight tiles.
const GEMM_COLUMNS: u32 = 16;

/// Whether `[m, k] x w^T` goes through the streaming kernel.
pub(super) fn gemm_streams(w: &Matrix, m: usize) -> bool {
    w.format == Format::Mxfp8 && m <= ROWS as usize && has_whole_words(w.columns)
}

impl Rank {
    pub(super) fn gemm_stream(
        &self,
        x: DevicePointer,
        w: &Matrix,
        out: DevicePointer,
        m: usize,
    ) -> Result<()> {
        let (n, k) = (w.rows as i32, w.columns as i32);
        let (values, scales) = (w.values, w.scales);
        let arguments = GemmStreamArguments { x, w: values, scales, out, m: m as i32, n, k };
        let grid = [blocks(w.rows, GEMM_COLUMNS * GemmStream::TILES) * blocks(m, ROWS), 1, 1];
        launched(self.kernels.gemm_stream.launch(&self.queue(), grid, &arguments))
    }

    pub(super) fn up_stream(&self, x: DevicePointer, w: &Matrix, grouped: &Grouped) -> Result<()> {
        let shape = grouped.shape;
        let arguments = MoeUpStreamArguments {
            x,
            w: w.values,
            scales: w.scales,
            offsets: grouped.offsets,
            rows: grouped.rows,
            inner: self.work.buffers.inner.pointer,
            t: shape.tokens as i32,
            k: w.columns as i32,
            i: shape.width as i32,
            groups: shape.experts as i32 + 1,
            top_k: shape.routed.max(1) as i32,
            alpha: self.config.swiglu_alpha,
            limit: self.config.swiglu_limit,
        };
        let grid = [grouped.blocks(shape.width, UP_COLUMNS * MoeUpStream::TILES), 1, 1];
        launched(self.kernels.moe_up_stream.launch(&self.queue(), grid, &arguments))
    }

    pub(super) fn down_stream(&self, w: &Matrix, grouped: &Grouped) -> Result<()> {
        let shape = grouped.shape;
        let arguments = MoeDownStreamArguments {
            inner: self.work.buffers.inner.pointer,
            w: w.values,
            scales: w.scales,
            offsets: grouped.offsets,
            rows: grouped.rows,
            y: grouped.out,
            n: shape.hidden as i32,
            i: shape.width as i32,
            groups: shape.experts as i32 + 1,
        };
        let grid = [grouped.blocks(shape.hidden, DOWN_COLUMNS * MoeDownStream::TILES), 1, 1];
        launched(self.kernels.moe_down_stream.launch(&self.queue(), grid, &arguments))
    }
}
