//! Tiles cover what they must, and workspaces suffice for every number of tokens.

use super::*;

const M3_TP8: MoeShape = MoeShape { tokens: 0, routed: 4, experts: 128, width: 384, hidden: 6144 };

#[test]
fn splits_depend_on_the_matrix_alone() {
    let grids = [1, 16, 17, 64].map(|m| Gemm::new(m, 1408, 6144).grid[1]);
    assert_eq!(grids, [6; 4], "22 tiles of 64 columns, 132 blocks wanted");
    let grids = [65, 128, 200, 256].map(|m| Gemm::new(m, 1408, 6144).grid[1]);
    assert_eq!(grids, [1; 4], "88 tiles with 256 rows");
    assert_eq!(Gemm::new(65, 1408, 6144).tile, Tile::Decode64);
    assert_eq!(Gemm::new(257, 1408, 6144).tile, Tile::Prefill);
    assert_eq!(Gemm::new(65, 25_008, 6144).tile, Tile::Prefill, "wide tiles suffice");
    assert_eq!(Gemm::new(1, 25_008, 6144).grid, [391, 1, 1]);
    assert_eq!(Gemm::new(1, 64, 64).grid, [1, 1, 1], "less than two steps of K cannot be shared");
}

#[test]
fn parts_of_a_plain_product_fit_for_every_number_of_rows() {
    for (n, k) in [(1408, 6144), (6144, 1024), (512, 64), (200_064, 6144)] {
        let (partials, counters) = Gemm::needs(n, k);
        for m in 1..=256 {
            let launch = Gemm::new(m, n, k);
            if !launch.tile.is_split() {
                continue;
            }
            assert!(launch.grid[1] as usize * m * n <= partials && launch.grid[0] as usize <= counters);
        }
    }
}

/// The worst draw: one row for as many experts as there are, the rest wherever it hurts.
fn worst_tiles(shape: &MoeShape, rows: usize) -> usize {
    let routed = shape.tokens * shape.routed;
    let groups = routed.min(shape.experts);
    // Every group one row over a whole number of tiles.
    let spread = (0..groups).fold((0, routed), |(tiles, left), group| {
        let rest = groups - group - 1;
        let take = if rest == 0 { left } else { (left.saturating_sub(rest)).min(1) };
        (tiles + take.div_ceil(rows), left - take)
    });
    spread.0 + shape.tokens.div_ceil(rows)
}

#[test]
fn every_tile_that_can_occur_is_launched() {
    for tokens in [1, 2, 7, 31, 32, 33, 64, 100, 257, 1024, 8192] {
        let shape = MoeShape { tokens, ..M3_TP8 };
        let launch = Moe::new(shape);
        let tiles = launch.down[0] as usize / 6144usize.div_ceil(Gemm::columns(launch.tile));
        assert!(tiles >= worst_tiles(&shape, launch.tile.rows()), "{tokens} tokens");
        assert!(tiles <= tokens * 5, "{tokens} tokens: {tiles} tiles for {} rows", tokens * 5);
    }
}

#[test]
fn a_dense_mlp_is_one_expert() {
    let shape = MoeShape { tokens: 100, routed: 0, experts: 0, width: 1536, hidden: 6144 };
    let launch = Moe::new(shape);
    assert_eq!((launch.tile, launch.down[0]), (Tile::Decode64, 2 * 96));
    let launch = Moe::new(MoeShape { tokens: 3, ..shape });
    assert_eq!((launch.tile, launch.down[0], launch.up[0]), (Tile::Decode16, 96, 48));
}
