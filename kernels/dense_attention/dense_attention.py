"""Causal attention over a whole paged context.

    out[t, a] = softmax over j <= position_t of q[t, a] . k[j] / sqrt(D)   times v[j],   KV head a / GROUP

q, out [T, heads, D] bf16; pages [pages, kv_heads, PAGE, D] bf16, position j of a sequence in page_table[row, j / PAGE].
Softmax in float32 with base-2 exponents, P rounded to bf16 before P.V. Keys and values that nobody wrote yet are
never multiplied.

    dense_attend_prefill   chunks on cached prefixes: a tile of BLOCK_M rows (tokens x GROUP heads of one KV head)
                           walks over the context. Bound: tensor cores, 4 * D FLOP per (row, key).
    dense_attend_decode    rows of any sequences: the context is split into runs of blocks, each program takes runs
    dense_merge            and joins them. Bound: memory, 4 * D bytes per (cached token, KV head).

A run has max(MIN_BLOCKS, next power of two of blocks / max_runs) blocks: it depends on the context's length only, so a
row's result does not depend on the batch.
"""

import triton
import triton.language as tl
from dependent import wait_for_inputs

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def _tile(pages, first, offset, dim, HEAD_DIM: tl.constexpr, TMA: tl.constexpr):
    """Rows first + offset of the pages seen as one matrix [pages * kv_heads * PAGE, HEAD_DIM]."""
    if TMA:
        return pages.load([first, 0])
    else:
        return tl.load(pages + (tl.cast(first, tl.int64) + offset)[:, None] * HEAD_DIM + dim[None, :])


@triton.jit
def dense_attend_prefill(
    queries,  # bf16 [T, kv_heads * GROUP, HEAD_DIM]
    k_pages,  # TMA: matrices [pages * kv_heads * PAGE, HEAD_DIM], else pointers
    v_pages,
    page_table,  # i32 [rows, table_stride]
    seq_row,  # i32 [B]
    seq_first_token,  # i32 [B]
    seq_len,  # i32 [B]: tokens of this chunk
    seq_first_position,  # i32 [B]
    out,  # out bf16 [T, kv_heads * GROUP, HEAD_DIM]
    table_stride,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,  # keys at a time, divides PAGE
    STAGES: tl.constexpr,
    TMA: tl.constexpr,
):
    """Grid (ceil(longest chunk * GROUP / BLOCK_M), kv_heads, B). The longest tiles come first."""
    wait_for_inputs()
    SCALE: tl.constexpr = LOG2_E / HEAD_DIM**0.5
    PARTS: tl.constexpr = PAGE // BLOCK_N
    sequence = tl.program_id(2)
    kv_head = tl.program_id(1)
    kv_heads = tl.num_programs(1)
    length = tl.load(seq_len + sequence)
    first_row = (tl.num_programs(0) - 1 - tl.program_id(0)) * BLOCK_M
    if first_row < length * GROUP:
        first_position = tl.load(seq_first_position + sequence)
        table = page_table + tl.load(seq_row + sequence).to(tl.int64) * table_stride
        row = first_row + tl.arange(0, BLOCK_M)
        live = row < length * GROUP
        dim = tl.arange(0, HEAD_DIM)
        key = tl.arange(0, BLOCK_N)
        token = (tl.load(seq_first_token + sequence) + row // GROUP).to(tl.int64)
        head = token * kv_heads * GROUP + kv_head * GROUP + row % GROUP
        query = tl.load(queries + head[:, None] * HEAD_DIM + dim[None, :], mask=live[:, None], other=0.0)
        position = first_position + row // GROUP
        context = first_position + tl.minimum((first_row + BLOCK_M - 1) // GROUP, length - 1) + 1
        # Steps that every row of the tile sees whole need no mask.
        whole = (first_position + first_row // GROUP + 1) // BLOCK_N
        highest = tl.full((BLOCK_M,), -1e30, tl.float32)
        total = tl.zeros((BLOCK_M,), tl.float32)
        sum_values = tl.zeros((BLOCK_M, HEAD_DIM), tl.float32)
        for step in tl.range(0, whole, num_stages=STAGES):
            page = tl.maximum(tl.load(table + step // PARTS), 0)
            first = (page * kv_heads + kv_head) * PAGE + step % PARTS * BLOCK_N
            logits = tl.dot(query, tl.trans(_tile(k_pages, first, key, dim, HEAD_DIM, TMA)))
            raised = tl.maximum(highest, tl.max(logits, 1) * SCALE)
            weights = tl.exp2(logits * SCALE - raised[:, None])
            decay = tl.exp2(highest - raised)
            total = total * decay + tl.sum(weights, 1)
            values = _tile(v_pages, first, key, dim, HEAD_DIM, TMA)
            sum_values = tl.dot(weights.to(tl.bfloat16), values, sum_values * decay[:, None])
            highest = raised
        for step in tl.range(whole, tl.cdiv(context, BLOCK_N), num_stages=1):
            page = tl.maximum(tl.load(table + step // PARTS), 0)
            first = (page * kv_heads + kv_head) * PAGE + step % PARTS * BLOCK_N
            at = step * BLOCK_N + key
            logits = tl.dot(query, tl.trans(_tile(k_pages, first, key, dim, HEAD_DIM, TMA))) * SCALE
            logits = tl.where(at[None, :] <= position[:, None], logits, float("-inf"))
            raised = tl.maximum(highest, tl.max(logits, 1))
            weights = tl.exp2(logits - raised[:, None])
            decay = tl.exp2(highest - raised)
            total = total * decay + tl.sum(weights, 1)
            # Keys behind the context may be NaN, which the mask above removes; a weight of 0 would not.
            values = tl.where((at < context)[:, None], _tile(v_pages, first, key, dim, HEAD_DIM, TMA), 0.0)
            sum_values = tl.dot(weights.to(tl.bfloat16), values, sum_values * decay[:, None])
            highest = raised
        tl.store(
            out + head[:, None] * HEAD_DIM + dim[None, :],
            (sum_values / total[:, None]).to(tl.bfloat16),
            mask=live[:, None],
        )


@triton.jit
def _run_blocks(num_blocks, max_runs, MIN_BLOCKS: tl.constexpr):
    """Blocks of a run: a power of two, so that at most max_runs runs cover the context."""
    blocks = MIN_BLOCKS + num_blocks * 0
    while blocks * max_runs < num_blocks:
        blocks *= 2
    return blocks


@triton.jit
def dense_attend_decode(
    queries,  # bf16 [T, kv_heads * GROUP, HEAD_DIM]
    k_pages,
    v_pages,
    page_table,  # i32 [rows, table_stride]
    token_row,  # i32 [T]
    positions,  # i32 [T]
    partial,  # out f32 [T, kv_heads * GROUP, max_runs, HEAD_DIM], normalised
    partial_lse,  # out f32 [T, kv_heads * GROUP, max_runs], log2 of the sum
    table_stride,
    max_runs,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PAGE: tl.constexpr,
    MIN_BLOCKS: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Grid (T, kv_heads, programs): program p takes runs p, p + programs, ...; the grid does not change the result."""
    wait_for_inputs()
    ROWS: tl.constexpr = 16 if GROUP < 16 else GROUP
    SCALE: tl.constexpr = LOG2_E / HEAD_DIM**0.5
    token = tl.program_id(0)
    kv_head = tl.program_id(1)
    kv_heads = tl.num_programs(1)
    position = tl.load(positions + token)
    num_blocks = position // PAGE + 1
    run_blocks = _run_blocks(num_blocks, max_runs, MIN_BLOCKS)
    table = page_table + tl.load(token_row + token).to(tl.int64) * table_stride
    row = tl.arange(0, ROWS)
    dim = tl.arange(0, HEAD_DIM)
    key = tl.arange(0, PAGE)
    first_head = token.to(tl.int64) * kv_heads * GROUP + kv_head * GROUP
    query = tl.load(
        queries + (first_head + row[:, None]) * HEAD_DIM + dim[None, :], mask=row[:, None] < GROUP, other=0.0
    )
    for run in range(tl.program_id(2), tl.cdiv(num_blocks, run_blocks), tl.num_programs(2)):
        highest = tl.full((ROWS,), -1e30, tl.float32)
        total = tl.zeros((ROWS,), tl.float32)
        sum_values = tl.zeros((ROWS, HEAD_DIM), tl.float32)
        first = run * run_blocks
        for block in tl.range(first, tl.minimum(first + run_blocks, num_blocks), num_stages=STAGES):
            page = tl.maximum(tl.load(table + block), 0).to(tl.int64)
            tile = (page * kv_heads + kv_head) * PAGE
            visible = block * PAGE + key <= position
            keys = tl.load(
                k_pages + (tile + key[None, :]) * HEAD_DIM + dim[:, None], mask=visible[None, :], other=0.0
            )
            logits = tl.where(visible[None, :], tl.dot(query, keys) * SCALE, float("-inf"))
            raised = tl.maximum(highest, tl.max(logits, 1))
            weights = tl.exp2(logits - raised[:, None])
            decay = tl.exp2(highest - raised)
            total = total * decay + tl.sum(weights, 1)
            values = tl.load(
                v_pages + (tile + key[:, None]) * HEAD_DIM + dim[None, :], mask=visible[:, None], other=0.0
            )
            sum_values = tl.dot(weights.to(tl.bfloat16), values, sum_values * decay[:, None])
            highest = raised
        place = (first_head + row) * max_runs + run
        tl.store(partial_lse + place, highest + tl.log2(total), mask=row < GROUP)
        tl.store(
            partial + place[:, None] * HEAD_DIM + dim[None, :],
            sum_values / total[:, None],
            mask=row[:, None] < GROUP,
        )


@triton.jit
def dense_merge(
    partial,  # f32 [T, heads, max_runs, HEAD_DIM]
    partial_lse,  # f32 [T, heads, max_runs]
    positions,  # i32 [T]
    out,  # out bf16 [T, heads, HEAD_DIM]
    max_runs,
    HEAD_DIM: tl.constexpr,
    PAGE: tl.constexpr,
    MIN_BLOCKS: tl.constexpr,
    RUNS: tl.constexpr,
):
    """Grid (T, heads): RUNS runs at a time."""
    wait_for_inputs()
    token = tl.program_id(0)
    num_blocks = tl.load(positions + token) // PAGE + 1
    runs = tl.cdiv(num_blocks, _run_blocks(num_blocks, max_runs, MIN_BLOCKS))
    head = token.to(tl.int64) * tl.num_programs(1) + tl.program_id(1)
    dim = tl.arange(0, HEAD_DIM)
    index = tl.arange(0, RUNS)
    highest = tl.full((), -1e30, tl.float32)
    total = tl.zeros((), tl.float32)
    result = tl.zeros((HEAD_DIM,), tl.float32)
    for first in range(0, runs, RUNS):
        live = first + index < runs
        place = head * max_runs + first + index
        lse = tl.load(partial_lse + place, mask=live, other=float("-inf"))
        value = tl.load(
            partial + place[:, None] * HEAD_DIM + dim[None, :], mask=live[:, None], other=0.0
        )
        raised = tl.maximum(highest, tl.max(lse, 0))
        weight = tl.exp2(lse - raised)
        decay = tl.exp2(highest - raised)
        total = total * decay + tl.sum(weight, 0)
        result = result * decay + tl.sum(weight[:, None] * value, 0)
        highest = raised
    tl.store(out + head * HEAD_DIM + dim, (result / total).to(tl.bfloat16))
