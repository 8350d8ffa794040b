"""`out[M, N] = x[M, K] w[N, K]^T`: projections, head, and any other plain matrix product.

x bf16 row-major; w bf16 or MXFP8 (see tile.py); out bf16 or float32; sums in float32. Decode takes narrow token tiles with
the weights on the wide side and splits K so that every multiprocessor streams weights: bound by reading w. Prefill takes
wide tiles without a split: bound by the matrix units.
"""

import triton
import triton.language as tl
from dependent import wait_for_inputs
from gemm.tile import split_range, sum_parts, tile_product


@triton.jit
def _store(out, values, places, valid, OUT_F32: tl.constexpr):
    if OUT_F32:
        tl.store(out + places, values, mask=valid)
    else:
        tl.store(out + places, values.to(tl.bfloat16), mask=valid)


@triton.jit
def gemm(
    x,
    w,
    scales,
    out,
    partials,
    counters,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    FORMAT: tl.constexpr,
    SWAP: tl.constexpr,
    SPLIT: tl.constexpr,
    OUT_F32: tl.constexpr,
):
    """Grid (ceil(M / BLOCK_M) * ceil(N / BLOCK_N), splits); splits is 1 unless SPLIT.

    `scales` u8 [N, K / 32], null for bf16. With SPLIT: `partials` f32 [splits, M, N], `counters` i32 [grid 0], zero before
    the first launch and after every launch; neither is touched with one split. Choose splits by N and K alone: a row's result then does
    not depend on M.
    """
    wait_for_inputs()
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    tile = tl.program_id(0)
    # Runs of GROUP_M row tiles share weight tiles in L2.
    group = tile // (GROUP_M * tiles_n)
    rows_here = tl.minimum(tiles_m - group * GROUP_M, GROUP_M)
    tile_m = group * GROUP_M + (tile % (GROUP_M * tiles_n)) % rows_here
    tile_n = (tile % (GROUP_M * tiles_n)) // rows_here

    m = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    w_rows = tl.minimum(n, N - 1).to(tl.int64)
    begin, end = 0, K
    if SPLIT:
        begin, end = split_range(K, tl.program_id(1), tl.num_programs(1), BLOCK_K)
    acc = tile_product(
        x, m.to(tl.int64), m < M, w, scales, w_rows, begin, end, K, BLOCK_M, BLOCK_N, BLOCK_K, FORMAT, SWAP
    )
    if SWAP:
        places = m.to(tl.int64)[None, :] * N + n[:, None]
        valid = (m < M)[None, :] & (n < N)[:, None]
    else:
        places = m.to(tl.int64)[:, None] * N + n[None, :]
        valid = (m < M)[:, None] & (n < N)[None, :]
    if SPLIT:
        if tl.num_programs(1) > 1:
            last, total = sum_parts(
                acc, partials, places, M.to(tl.int64) * N, valid, counters + tile, tl.program_id(1), tl.num_programs(1),
                BLOCK_N if SWAP else BLOCK_M, BLOCK_M if SWAP else BLOCK_N,
            )
            if last:
                _store(out, total, places, valid, OUT_F32)
        else:
            _store(out, acc, places, valid, OUT_F32)
    else:
        _store(out, acc, places, valid, OUT_F32)
