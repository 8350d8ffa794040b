"""Grouped products of the mixture of experts, and the dense MLP as the case of one expert.

    inner[i]  = swiglu(x[token(rows[i])] w13[e]^T)      gate rows 0 .. I of w13, up rows I .. 2I; i in expert e's range
    y[rows[i]] = inner[i] w2[e]^T
    pending[t] = scaling * sum_j weights[t, j] * y[t * TOP_K + j] + y[T * TOP_K + t]

`rows` and `offsets` as router.group_rows makes them; the shared expert is expert E of the stacked weights, its rows come
last. Weights `[E + 1, 2I, K]` and `[E + 1, K, I]`, bf16 or MXFP8 with scales `[.., / 32]` (gemm/tile.py). Every tile of
BLOCK_M rows belongs to one expert; programs beyond the last tile end at once, so the grid depends on the bucket alone. Sums
float32; x, inner, y, pending bf16. Decode is bound by reading the chosen experts, prefill by the matrix units.
"""

import triton
import triton.language as tl
from dependent import wait_for_inputs
from gemm.tile import split_range, sum_parts, tile_product
from swiglu.swiglu import clamped_swiglu


@triton.jit
def _find_tile(offsets, tile, groups, BLOCK_M: tl.constexpr, BLOCK_E: tl.constexpr):
    """(expert, first row place, end of the expert's places) of row tile `tile`; expert = groups when there is no such tile."""
    experts = tl.arange(0, BLOCK_E)
    valid = experts < groups
    starts = tl.load(offsets + experts, mask=valid, other=0)
    ends = tl.load(offsets + experts + 1, mask=valid, other=0)
    tiles = (ends - starts + BLOCK_M - 1) // BLOCK_M
    done = tl.cumsum(tiles, 0)
    passed = valid & (done <= tile)
    expert = tl.sum(passed.to(tl.int32), 0)
    local = tile - tl.sum(tl.where(passed, tiles, 0), 0)
    mine = experts == expert
    start = tl.sum(tl.where(mine, starts, 0), 0)
    end = tl.sum(tl.where(mine, ends, 0), 0)
    return expert, start + local * BLOCK_M, end


@triton.jit
def moe_up(
    x,
    w,
    scales,
    offsets,
    rows,
    inner,
    partials,
    counters,
    T,
    K,
    I,
    groups,
    alpha,
    limit,
    BLOCK_M: tl.constexpr,
    BLOCK_I: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_E: tl.constexpr,
    TOP_K: tl.constexpr,
    FORMAT: tl.constexpr,
    SWAP: tl.constexpr,
    SPLIT: tl.constexpr,
):
    """Grid (ceil(I / BLOCK_I) * max_tiles, splits); max_tiles >= tiles that can occur.

    x bf16 [T, K]; `inner` bf16 [places, I], in the order of `rows`. `groups` = experts with the shared one, <= BLOCK_E.
    With more splits: `partials` f32 [splits, max_tiles * BLOCK_M, 2I] and `counters` i32 [grid 0] as in gemm.
    A dense MLP: groups 1, TOP_K 1, offsets [0, T], rows 0 .. T.
    """
    wait_for_inputs()
    tiles_i = tl.cdiv(I, BLOCK_I)
    tile = tl.program_id(0) // tiles_i
    first_i = tl.program_id(0) % tiles_i * BLOCK_I
    expert, place, end = _find_tile(offsets, tile, groups, BLOCK_M, BLOCK_E)
    if expert >= groups:
        return
    places = place + tl.arange(0, BLOCK_M)
    there = places < end
    row = tl.load(rows + places, mask=there, other=0)
    token = tl.where(row < T * TOP_K, row // TOP_K, row - T * TOP_K).to(tl.int64)
    # Gate columns and up columns side by side in one tile.
    BLOCK_N: tl.constexpr = 2 * BLOCK_I
    lane = tl.arange(0, BLOCK_N)
    column = first_i + lane % BLOCK_I
    w_rows = expert.to(tl.int64) * 2 * I + tl.minimum(column, I - 1) + lane // BLOCK_I * I
    k_begin, k_end = 0, K
    if SPLIT:
        k_begin, k_end = split_range(K, tl.program_id(1), tl.num_programs(1), BLOCK_K)
    acc = tile_product(
        x, token, there, w, scales, w_rows, k_begin, k_end, K, BLOCK_M, BLOCK_N, BLOCK_K, FORMAT, SWAP
    )
    if SPLIT:
        if tl.num_programs(1) > 1:
            scratch = (tile * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64) * 2 * I
            stride = tl.num_programs(0).to(tl.int64) // tiles_i * BLOCK_M * 2 * I
            part_column = column + lane // BLOCK_I * I
            if SWAP:
                spots = scratch[None, :] + part_column[:, None]
                wanted = there[None, :] & (column < I)[:, None]
            else:
                spots = scratch[:, None] + part_column[None, :]
                wanted = there[:, None] & (column < I)[None, :]
            last, total = sum_parts(
                acc, partials, spots, stride, wanted, counters + tl.program_id(0), tl.program_id(1), tl.num_programs(1),
                BLOCK_N if SWAP else BLOCK_M, BLOCK_M if SWAP else BLOCK_N,
            )
            if not last:
                return
            acc = total
    if SWAP:
        acc = acc.trans()
    gate, up = acc.reshape(BLOCK_M, 2, BLOCK_I).permute(0, 2, 1).split()
    values = clamped_swiglu(gate, up, alpha, limit).to(tl.bfloat16)
    columns = first_i + tl.arange(0, BLOCK_I)
    spots = places.to(tl.int64)[:, None] * I + columns[None, :]
    tl.store(inner + spots, values, mask=there[:, None] & (columns < I)[None, :])


@triton.jit
def moe_down(
    inner,
    w,
    scales,
    offsets,
    rows,
    y,
    N,
    I,
    groups,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_E: tl.constexpr,
    FORMAT: tl.constexpr,
    SWAP: tl.constexpr,
):
    """Grid (ceil(N / BLOCK_N) * max_tiles,). `inner` bf16 [places, I]; `y` bf16 [row numbers, N]; N = hidden."""
    wait_for_inputs()
    tiles_n = tl.cdiv(N, BLOCK_N)
    tile = tl.program_id(0) // tiles_n
    expert, place, end = _find_tile(offsets, tile, groups, BLOCK_M, BLOCK_E)
    if expert >= groups:
        return
    places = place + tl.arange(0, BLOCK_M)
    there = places < end
    n = tl.program_id(0) % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    w_rows = expert.to(tl.int64) * N + tl.minimum(n, N - 1)
    acc = tile_product(
        inner, places.to(tl.int64), there, w, scales, w_rows, 0, I, I, BLOCK_M, BLOCK_N, BLOCK_K, FORMAT, SWAP
    )
    row = tl.load(rows + places, mask=there, other=0).to(tl.int64)
    if SWAP:
        spots = row[None, :] * N + n[:, None]
        valid = there[None, :] & (n < N)[:, None]
    else:
        spots = row[:, None] * N + n[None, :]
        valid = there[:, None] & (n < N)[None, :]
    tl.store(y + spots, acc.to(tl.bfloat16), mask=valid)


@triton.jit
def moe_combine(
    y, ids, weights, pending, T, N, scaling, TOP_K: tl.constexpr, SHARED: tl.constexpr, BLOCK: tl.constexpr
):
    """Weighted sum of a token's expert rows in ascending order of experts, plus the shared row, in float32.

    Grid (T, ceil(N / BLOCK)). `ids` i32 and `weights` f32 [T, TOP_K]; a token with negative ids (padding) gets zeros. No
    atomics: the result does not depend on timing.
    """
    wait_for_inputs()
    token = tl.program_id(0)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    alive = tl.load(ids + token * TOP_K) >= 0
    valid = (columns < N) & alive
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for choice in tl.static_range(TOP_K):
        row = (token * TOP_K + choice).to(tl.int64)
        weight = tl.load(weights + row)
        total += weight * tl.load(y + row * N + columns, mask=valid, other=0.0).to(tl.float32)
    total = tl.where(alive, total * scaling, 0.0)
    if SHARED:
        row = (T * TOP_K + token).to(tl.int64)
        total += tl.load(y + row * N + columns, mask=valid, other=0.0).to(tl.float32)
    tl.store(pending + token.to(tl.int64) * N + columns, total.to(tl.bfloat16), mask=columns < N)
