//! Which kernel variant takes how many rows, and how sums over K are split. Pure arithmetic, tabulated in one place.
//!
//! Splits depend on the matrix alone, so that a row's result does not depend on the batch.

use crate::dims::Dims;

/// Blocks that should be in flight: one for each of an H200's multiprocessors. More parts than that were slower (rank of
/// TP8, one H200, 2026-11-30, kernels/measure/sweep.py).
const WANTED_BLOCKS: usize = 132;
const MOST_SPLITS: usize = 16;
/// Rows up to which a plain product may be split.
const MOST_SPLIT_ROWS: usize = 256;
/// Columns of K that a step of a product takes.
const BLOCK_K: usize = 128;

/// How many rows at once, by name of the kernels' variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Tile {
    Decode16,
    Decode32,
    Decode64,
    Prefill,
}

impl Tile {
    /// Rows of a tile.
    pub(crate) fn rows(self) -> usize {
        match self {
            Tile::Decode16 => 16,
            Tile::Decode32 => 32,
            Tile::Decode64 => 64,
            Tile::Prefill => 128,
        }
    }

    /// Sums are split over K.
    pub(crate) fn is_split(self) -> bool {
        self != Tile::Prefill
    }
}

/// Launch of a plain product `[m, k] x [n, k]^T`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gemm {
    pub(crate) tile: Tile,
    pub(crate) grid: [u32; 3],
}

impl Gemm {
    /// Columns of the output per tile.
    fn columns(tile: Tile) -> usize {
        if tile == Tile::Prefill { 128 } else { 64 }
    }

    pub(crate) fn new(m: usize, n: usize, k: usize) -> Gemm {
        let wide = m.div_ceil(Tile::Prefill.rows()) * n.div_ceil(Self::columns(Tile::Prefill));
        let tile = match m {
            ..=16 => Tile::Decode16,
            17..=32 => Tile::Decode32,
            33..=64 => Tile::Decode64,
            // A few rows more than a tile: wide tiles would leave multiprocessors idle.
            65..=MOST_SPLIT_ROWS if wide < WANTED_BLOCKS => Tile::Decode64,
            _ => Tile::Prefill,
        };
        let tiles = m.div_ceil(tile.rows()) * n.div_ceil(Self::columns(tile));
        let splits = if tile.is_split() { Self::splits(m, n, k) } else { 1 };
        Gemm { tile, grid: [tiles as u32, splits as u32, 1] }
    }

    /// Two regimes of rows, so that a row's sum does not depend on how many there are within one.
    fn splits(m: usize, n: usize, k: usize) -> usize {
        let most_rows = if m <= Tile::Decode64.rows() { 1 } else { MOST_SPLIT_ROWS / Tile::Decode64.rows() };
        split(most_rows * n.div_ceil(Self::columns(Tile::Decode64)), k)
    }

    /// Most f32 values of parts and counters of any split launch.
    pub(crate) fn needs(n: usize, k: usize) -> (usize, usize) {
        let needs = [Tile::Decode64.rows(), MOST_SPLIT_ROWS].map(|m| {
            let tiles = m / Tile::Decode64.rows() * n.div_ceil(Self::columns(Tile::Decode64));
            (Self::splits(m, n, k) * m * n, tiles)
        });
        (needs[0].0.max(needs[1].0), needs[1].1)
    }
}

/// Enough parts of K that all multiprocessors read weights, at least two steps each.
fn split(tiles: usize, k: usize) -> usize {
    let most = (k.div_ceil(BLOCK_K) / 2).clamp(1, MOST_SPLITS);
    (WANTED_BLOCKS / tiles).clamp(1, most)
}

/// Launches of grouped products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moe {
    pub(crate) tile: Tile,
    pub(crate) up: [u32; 3],
    pub(crate) down: [u32; 3],
}

/// Sizes of a grouped product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MoeShape {
    pub(crate) tokens: usize,
    /// Rows that each token has among the routed experts, 0 for a dense MLP.
    pub(crate) routed: usize,
    /// Routed experts, 0 for a dense MLP.
    pub(crate) experts: usize,
    pub(crate) width: usize,
    pub(crate) hidden: usize,
}

impl MoeShape {
    pub(crate) fn experts(tokens: usize, dims: &Dims) -> MoeShape {
        MoeShape {
            tokens,
            routed: dims.experts_per_token,
            experts: dims.num_experts,
            width: dims.expert_width,
            hidden: dims.hidden,
        }
    }

    pub(crate) fn dense(tokens: usize, dims: &Dims) -> MoeShape {
        MoeShape { tokens, routed: 0, experts: 0, width: dims.dense_width, hidden: dims.hidden }
    }

    /// Tiles of `rows` rows that can occur: every expert, the shared one too, may leave one partly filled.
    pub(crate) fn most_tiles(&self, rows: usize) -> usize {
        let routed = self.tokens * self.routed;
        let groups = routed.min(self.experts) + 1;
        (routed + self.tokens + groups * (rows - 1)) / rows
    }

    fn tile(&self) -> Tile {
        if self.experts == 0 {
            return Gemm::new(self.tokens, self.width, self.hidden).tile;
        }
        // Rows of an expert on average, with an even spread.
        match self.tokens * self.routed / self.experts {
            ..=8 => Tile::Decode16,
            9..=16 => Tile::Decode32,
            17..=32 => Tile::Decode64,
            _ => Tile::Prefill,
        }
    }

    fn splits(&self) -> usize {
        // As with one token: the fewest tiles.
        let tiles = (self.routed + 1) * self.width.div_ceil(inner_columns(Tile::Decode16));
        split(tiles, self.hidden)
    }
}

/// Inner columns of a tile of the first product.
fn inner_columns(tile: Tile) -> usize {
    if tile == Tile::Prefill { 64 } else { 32 }
}

impl Moe {
    pub(crate) fn new(shape: MoeShape) -> Moe {
        let tile = shape.tile();
        let tiles = shape.most_tiles(tile.rows());
        let splits = if tile.is_split() { shape.splits() } else { 1 };
        let up = shape.width.div_ceil(inner_columns(tile)) * tiles;
        let down = shape.hidden.div_ceil(Gemm::columns(tile)) * tiles;
        Moe { tile, up: [up as u32, splits as u32, 1], down: [down as u32, 1, 1] }
    }

    /// Rows of the grouped products of `tokens` tokens.
    pub(crate) fn rows(tokens: usize, dims: &Dims) -> usize {
        tokens * (dims.experts_per_token + 1)
    }

    /// Most f32 values of parts and counters, for experts and for a dense MLP.
    pub(crate) fn needs(tokens: usize, dims: &Dims) -> [(usize, usize); 2] {
        [MoeShape::experts(tokens, dims), MoeShape::dense(tokens, dims)].map(most_needs)
    }
}

fn most_needs(shape: MoeShape) -> (usize, usize) {
    (1..=shape.tokens).fold((0, 0), |most, tokens| {
        let shape = MoeShape { tokens, ..shape };
        let launch = Moe::new(shape);
        if !launch.tile.is_split() {
            return most;
        }
        let rows = shape.most_tiles(launch.tile.rows()) * launch.tile.rows();
        let partials = launch.up[1] as usize * rows * 2 * shape.width;
        (most.0.max(partials), most.1.max(launch.up[0] as usize))
    })
}

#[cfg(test)]
mod tests;
