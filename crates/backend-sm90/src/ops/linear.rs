//! Plain matrix products: `out[m, n] = x[m, k] w[n, k]^T`, weights bf16 or MXFP8, out bf16 or f32.

use m3_abi::{Error, Result};
use m3_gpu::launch::DevicePointer;
use m3_model::formats::Format;

use super::stream::gemm_streams;
use super::tiles::{Gemm, Tile};
use super::{Rank, blocks, launched};
use crate::kernels::{
    GemmBf16Arguments, GemmBf16F32Arguments, GemmBf16F32Variant, GemmBf16Variant, GemmMxfp8Arguments,
    GemmMxfp8Variant,
};
use crate::weights::Matrix;

/// MXFP8 rows of whole words of four scales take a faster load.
pub(super) fn has_whole_words(columns: usize) -> bool {
    columns.is_multiple_of(128)
}

/// Blocks by the chosen variant's own tile, which differs between formats; `launch` says how often K is split.
fn grid_of(launch: &Gemm, (m, block_m): (i32, u32), (n, block_n): (i32, u32)) -> [u32; 3] {
    [blocks(m as usize, block_m) * blocks(n as usize, block_n), launch.grid[1], 1]
}

impl Rank {
    /// bf16 out.
    pub(super) fn gemm(&self, x: DevicePointer, w: &Matrix, out: DevicePointer, m: usize) -> Result<()> {
        if gemm_streams(w, m) {
            return self.gemm_stream(x, w, out, m);
        }
        let launch = Gemm::new(m, w.rows, w.columns);
        let (partials, counters) = self.parts_of(launch.tile);
        let (m, n, k) = (m as i32, w.rows as i32, w.columns as i32);
        match w.format {
            Format::Bf16 => {
                let variant = match launch.tile {
                    Tile::Decode16 => GemmBf16Variant::Decode16,
                    Tile::Decode32 => GemmBf16Variant::Decode32,
                    Tile::Decode64 => GemmBf16Variant::Decode64,
                    Tile::Prefill => GemmBf16Variant::Prefill,
                };
                let grid = grid_of(&launch, (m, variant.block_m()), (n, variant.block_n()));
                let scales = DevicePointer::NULL;
                let arguments =
                    GemmBf16Arguments { x, w: w.values, scales, out, partials, counters, m, n, k };
                launched(self.kernels.gemm_bf16.launch(&self.queue(), grid, variant, &arguments))
            }
            Format::Mxfp8 => {
                let variant = match (launch.tile, has_whole_words(w.columns)) {
                    (Tile::Decode16, false) => GemmMxfp8Variant::Decode16Any,
                    (Tile::Decode32, false) => GemmMxfp8Variant::Decode32Any,
                    (Tile::Decode64, false) => GemmMxfp8Variant::Decode64Any,
                    (Tile::Prefill, false) => GemmMxfp8Variant::PrefillAny,
                    (Tile::Decode16, true) => GemmMxfp8Variant::Decode16,
                    (Tile::Decode32, true) => GemmMxfp8Variant::Decode32,
                    (Tile::Decode64, true) => GemmMxfp8Variant::Decode64,
                    (Tile::Prefill, true) => GemmMxfp8Variant::Prefill,
                };
                let grid = grid_of(&launch, (m, variant.block_m()), (n, variant.block_n()));
                let (values, scales) = (w.values, w.scales);
                let arguments = GemmMxfp8Arguments { x, w: values, scales, out, partials, counters, m, n, k };
                launched(self.kernels.gemm_mxfp8.launch(&self.queue(), grid, variant, &arguments))
            }
            Format::F32 => Err(Error::Fatal(format!("no product with F32 weights of {n} x {k}"))),
        }
    }

    /// f32 out, bf16 weights: the head.
    pub(super) fn gemm_f32(&self, x: DevicePointer, w: &Matrix, out: DevicePointer, m: usize) -> Result<()> {
        if w.format != Format::Bf16 {
            return Err(Error::Fatal(format!("the head is {}, only BF16 is built", w.format)));
        }
        let launch = Gemm::new(m, w.rows, w.columns);
        let (partials, counters) = self.parts_of(launch.tile);
        let variant = match launch.tile {
            Tile::Decode16 => GemmBf16F32Variant::Decode16,
            Tile::Decode32 => GemmBf16F32Variant::Decode32,
            Tile::Decode64 => GemmBf16F32Variant::Decode64,
            Tile::Prefill => GemmBf16F32Variant::Prefill,
        };
        let (m, n, k) = (m as i32, w.rows as i32, w.columns as i32);
        let grid = grid_of(&launch, (m, variant.block_m()), (n, variant.block_n()));
        let scales = DevicePointer::NULL;
        let arguments = GemmBf16F32Arguments { x, w: w.values, scales, out, partials, counters, m, n, k };
        launched(self.kernels.gemm_bf16_f32.launch(&self.queue(), grid, variant, &arguments))
    }

    /// Where split sums meet; nothing when they are not split.
    pub(super) fn parts_of(&self, tile: Tile) -> (DevicePointer, DevicePointer) {
        let buffers = &self.work.buffers;
        if tile.is_split() {
            (buffers.partials.pointer, buffers.counters.pointer)
        } else {
            (DevicePointer::NULL, DevicePointer::NULL)
        }
    }
}
