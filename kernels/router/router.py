"""Router: float32 logits, biased choice of TOP_K experts, and the order in which grouped products take the rows.

    logits = x w^T                     x bf16, w float32, sums float32
    scores = sigmoid(logits)
    chosen = TOP_K largest of scores + bias, ties to the lower expert; ascending
    weight = score / sum of the chosen scores

x is exact in bf16 and a float32 weight is exactly the sum of three bf16 numbers, so three bf16 products give float32 products
on the matrix units. Decode is bound by reading w (3 MB), prefill by the three products.
"""

import triton
import triton.language as tl
from dependent import wait_for_inputs
from gemm.tile import split_range


@triton.jit
def router_logits(
    x,
    w,
    partials,
    T,
    E,
    K,
    BLOCK_T: tl.constexpr,
    BLOCK_E: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Part `split` of the logits over its columns of K. Grid (ceil(T / BLOCK_T), splits).

    x bf16 [T, K]; w f32 [E, K], E <= BLOCK_E; `partials` f32 [splits, T, E].
    """
    wait_for_inputs()
    tokens = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T)
    experts = tl.arange(0, BLOCK_E)
    begin, end = split_range(K, tl.program_id(1), tl.num_programs(1), BLOCK_K)
    w_rows = tl.minimum(experts, E - 1)
    first = tl.zeros((BLOCK_E, BLOCK_T), dtype=tl.float32)
    rest = tl.zeros((BLOCK_E, BLOCK_T), dtype=tl.float32)
    for k in range(begin, end, BLOCK_K):
        columns = k + tl.arange(0, BLOCK_K)
        inside = columns < end
        weights = tl.load(w + w_rows[:, None] * K + columns[None, :], mask=inside[None, :], other=0.0)
        places = x + tokens.to(tl.int64)[None, :] * K + columns[:, None]
        values = tl.load(places, mask=(tokens < T)[None, :] & inside[:, None], other=0.0)
        high = weights.to(tl.bfloat16)
        weights -= high.to(tl.float32)
        middle = weights.to(tl.bfloat16)
        low = (weights - middle.to(tl.float32)).to(tl.bfloat16)
        # Small products among themselves first, so that the large sum does not swallow them.
        rest = tl.dot(low, values, rest)
        rest = tl.dot(middle, values, rest)
        first = tl.dot(high, values, first)
    places = (tl.program_id(1).to(tl.int64) * T + tokens[None, :]) * E + experts[:, None]
    tl.store(partials + places, first + rest, mask=(tokens < T)[None, :] & (experts < E)[:, None])


@triton.jit
def router_choose(
    partials,
    bias,
    live,
    scores,
    ids,
    weights,
    offsets,
    rows,
    T,
    E,
    splits,
    BLOCK_E: tl.constexpr,
    TOP_K: tl.constexpr,
):
    """Grid (T,). `partials` f32 [splits, T, E]; `bias` f32 [E]; `live` i32 [1] on the device: rows from there on are
    padding and get ids -1 and weights 0. Writes `scores` f32 [T, E] (null: not wanted), `ids` i32 [T, TOP_K] ascending
    and `weights` f32 [T, TOP_K] (sum 1, unscaled). NaN logits choose as if they were lowest and give NaN weights.
    A single token's `offsets` and `rows` are written at once and group_rows is not needed; null: there are more tokens.
    """
    wait_for_inputs()
    token = tl.program_id(0)
    experts = tl.arange(0, BLOCK_E)
    valid = experts < E
    logits = tl.zeros((BLOCK_E,), dtype=tl.float32)
    # Sixteen at a time, because one load after the other would wait for memory each time.
    for first in range(0, splits, 16):
        parts = first + tl.arange(0, 16)
        places = (parts * T + token).to(tl.int64)[:, None] * E + experts[None, :]
        logits += tl.sum(tl.load(partials + places, mask=(parts < splits)[:, None] & valid[None, :], other=0.0), 0)
    score = 1.0 / (1.0 + tl.exp(-logits))
    biased = score + tl.load(bias + experts, mask=valid, other=0.0)
    biased = tl.where(biased == biased, biased, float("-inf"))
    chosen = experts < 0
    for _ in tl.static_range(TOP_K):
        free = valid & ~chosen
        best = tl.max(tl.where(free, biased, float("-inf")), 0)
        choice = tl.min(tl.where(free & (biased == best), experts, BLOCK_E), 0)
        chosen = chosen | (experts == choice)
    weight = score / tl.sum(tl.where(chosen, score, 0.0), 0)
    alive = token < tl.load(live)
    places = token * TOP_K + tl.cumsum(chosen.to(tl.int32), 0) - 1
    tl.store(ids + places, tl.where(alive, experts, -1), mask=chosen)
    tl.store(weights + places, tl.where(alive, weight, 0.0), mask=chosen)
    if scores is not None:
        if scores.to(tl.int64) != 0:
            tl.store(scores + token.to(tl.int64) * E + experts, score, mask=valid)
    if offsets is not None:
        if offsets.to(tl.int64) != 0:
            _group_one(chosen & alive, offsets, rows, experts, valid, E, TOP_K)


@triton.jit
def _group_one(chosen, offsets, rows, experts, valid, E, TOP_K: tl.constexpr):
    """What group_rows makes of one token: its choices are in order already. `chosen` of nothing: a padded row."""
    mine = chosen.to(tl.int32)
    tl.store(offsets + experts, tl.cumsum(mine, 0) - mine, mask=valid)
    count = tl.sum(mine, 0)
    tl.store(offsets + E, count)
    tl.store(offsets + E + 1, count + (count > 0).to(tl.int32))
    lane = tl.arange(0, 2 * TOP_K)
    tl.store(rows + lane, lane, mask=lane <= TOP_K)


@triton.jit
def group_rows(ids, offsets, rows, T, E, TOP_K: tl.constexpr, BLOCK: tl.constexpr):
    """Sorts (token, choice) pairs by expert, tokens ascending within an expert; the shared expert's rows follow.

    `ids` i32 [T, TOP_K]. A *row* number names what a grouped product reads and writes: row `t * TOP_K + j` is choice j of
    token t, row `T * TOP_K + t` is token t for the shared expert. `rows` i32 [T * (TOP_K + 1)]: row numbers by expert;
    `offsets` i32 [E + 2]: expert e has `rows[offsets[e] .. offsets[e + 1]]`, e = E is the shared one. Pairs with a
    negative id (padding) are left out. Grid (E + 1,): every program counts for itself, no program waits for another.
    """
    wait_for_inputs()
    expert = tl.program_id(0)
    lanes = tl.arange(0, BLOCK)
    pairs = T * TOP_K
    before = tl.zeros((BLOCK,), dtype=tl.int32)
    for start in range(0, pairs, BLOCK):
        id = tl.load(ids + start + lanes, mask=start + lanes < pairs, other=-1)
        before += ((id >= 0) & (id < expert)).to(tl.int32)
    next = tl.sum(before, 0)
    tl.store(offsets + expert, next)
    if expert < E:
        for start in range(0, pairs, BLOCK):
            id = tl.load(ids + start + lanes, mask=start + lanes < pairs, other=-1)
            mine = (id == expert).to(tl.int32)
            tl.store(rows + next + tl.cumsum(mine, 0) - 1, start + lanes, mask=mine != 0)
            next += tl.sum(mine, 0)
    else:
        for start in range(0, T, BLOCK):
            tokens = start + lanes
            id = tl.load(ids + tokens * TOP_K, mask=tokens < T, other=-1)
            mine = (id >= 0).to(tl.int32)
            tl.store(rows + next + tl.cumsum(mine, 0) - 1, pairs + tokens, mask=mine != 0)
            next += tl.sum(mine, 0)
        tl.store(offsets + E + 1, next)
