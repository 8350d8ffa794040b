"""Attention of each token over the blocks chosen for it.

    keys(t, g) = positions j <= position_t in the blocks selected[t, g, :]
    out[t, a]  = softmax over keys(t, a / GROUP) of q[t, a] . k[j] / sqrt(D)   times v[j]

q, out [T, heads, D] bf16, head a reads KV head a / GROUP; selected i32 [T, kv_heads, TOPK] ascending, -1 behind;
pages [pages, kv_heads, PAGE, D] bf16. Softmax in float32 with base-2 exponents, P rounded to bf16 before P.V. Keys and
values behind a token's position are never multiplied: memory that nobody wrote may hold NaN.

Few tokens (decode, verify, short turns): `sparse_attend_decode` gathers, program = token x KV head x TOPK / SPLITS of
its blocks; `merge_partials` joins the splits. Bound: memory, TOPK * PAGE * D * 4 bytes per token and KV head.

Many tokens: the blocks come to the queries only once. `sparse_count`, `sparse_offsets`, `sparse_fill` turn the
selection around into a list of (token, slot) per block; `sparse_attend_prefill` holds one block's K and V in shared
memory and runs all its queries past them in tiles of ROWS / GROUP tokens; each (token, slot) result goes to
`partial`, and `merge_partials` joins a token's TOPK results. 4 * GROUP * PAGE * D FLOP per (token, KV head, slot) on
the tensor cores, plus the partials, 4 bytes x heads x D per (token, slot), which a segment of a few thousand tokens
keeps within reach of the L2 cache. A result does not depend on the order of the lists: rows are independent.

Work items of the prefill: (KV head, sequence, block), numbered kv_head * items + seq_first_item[b] + block, with
items = seq_first_item[B] = the blocks of all chunks' contexts.
"""

import triton
import triton.language as tl
from dependent import wait_for_inputs

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def sparse_attend_decode(
    queries,  # bf16 [T, kv_heads * GROUP, HEAD_DIM]
    k_pages,
    v_pages,
    page_table,  # i32 [rows, table_stride]
    token_row,  # i32 [T]
    positions,  # i32 [T]
    selected,  # i32 [T, kv_heads, TOPK]
    partial,  # out f32 [T, SPLITS, kv_heads * GROUP, HEAD_DIM], normalised
    partial_lse,  # out f32 [T, SPLITS, kv_heads * GROUP], log2 of the sum; -inf: no key, and no partial written
    table_stride,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PAGE: tl.constexpr,
    TOPK: tl.constexpr,
    SPLITS: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Grid (T, kv_heads, SPLITS): split s attends to its ceil(TOPK / SPLITS) slots."""
    wait_for_inputs()
    ROWS: tl.constexpr = 16 if GROUP < 16 else GROUP
    BLOCKS: tl.constexpr = (TOPK + SPLITS - 1) // SPLITS
    SCALE: tl.constexpr = LOG2_E / HEAD_DIM**0.5
    token = tl.program_id(0)
    kv_head = tl.program_id(1)
    split = tl.program_id(2)
    kv_heads = tl.num_programs(1)
    position = tl.load(positions + token)
    table = page_table + tl.load(token_row + token).to(tl.int64) * table_stride
    row = tl.arange(0, ROWS)
    dim = tl.arange(0, HEAD_DIM)
    key = tl.arange(0, PAGE)
    first_head = token.to(tl.int64) * kv_heads * GROUP + kv_head * GROUP
    query = tl.load(
        queries + (first_head + row[:, None]) * HEAD_DIM + dim[None, :], mask=row[:, None] < GROUP, other=0.0
    )
    chosen = selected + (token.to(tl.int64) * kv_heads + kv_head) * TOPK + split * BLOCKS
    highest = tl.full((ROWS,), -1e30, tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    sum_values = tl.zeros((ROWS, HEAD_DIM), tl.float32)
    slot = tl.arange(0, BLOCKS)
    ids = tl.load(chosen + slot, mask=split * BLOCKS + slot < TOPK, other=-1)
    count = tl.sum((ids >= 0).to(tl.int32), 0)
    for index in tl.range(0, count, num_stages=STAGES):
        block = tl.load(chosen + index)
        page = tl.maximum(tl.load(table + block), 0).to(tl.int64)
        tile = (page * kv_heads + kv_head) * PAGE
        visible = block * PAGE + key <= position
        keys = tl.load(k_pages + (tile + key[None, :]) * HEAD_DIM + dim[:, None], mask=visible[None, :], other=0.0)
        logits = tl.dot(query, keys) * SCALE
        logits = tl.where(visible[None, :], logits, float("-inf"))
        raised = tl.maximum(highest, tl.max(logits, 1))
        weights = tl.exp2(logits - raised[:, None])
        decay = tl.exp2(highest - raised)
        total = total * decay + tl.sum(weights, 1)
        values = tl.load(v_pages + (tile + key[:, None]) * HEAD_DIM + dim[None, :], mask=visible[:, None], other=0.0)
        sum_values = tl.dot(weights.to(tl.bfloat16), values, sum_values * decay[:, None])
        highest = raised
    place = (token.to(tl.int64) * SPLITS + split) * kv_heads * GROUP + kv_head * GROUP + row
    lse = tl.where(count > 0, highest + tl.log2(total), float("-inf"))
    tl.store(partial_lse + place, lse, mask=row < GROUP)
    if count > 0:
        tl.store(
            partial + place[:, None] * HEAD_DIM + dim[None, :],
            sum_values / total[:, None],
            mask=row[:, None] < GROUP,
        )


@triton.jit
def merge_partials(
    partial,  # f32 or bf16 [T, SPLITS, heads, HEAD_DIM], normalised
    partial_lse,  # f32 [T, SPLITS, heads], log2; -inf: nothing there
    out,  # out bf16 [T, heads, HEAD_DIM]
    rows,  # T * heads
    heads,
    HEAD_DIM: tl.constexpr,
    SPLITS: tl.constexpr,
    BLOCK_R: tl.constexpr,
):
    """Grid (ceil(rows / BLOCK_R),). Rows without any key (there are none) would become 0."""
    wait_for_inputs()
    row = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    live = row < rows
    first = (row // heads).to(tl.int64) * SPLITS * heads + row % heads
    split = tl.arange(0, SPLITS)
    dim = tl.arange(0, HEAD_DIM)
    lse = tl.load(
        partial_lse + first[:, None] + split[None, :] * heads, mask=live[:, None], other=float("-inf")
    )
    highest = tl.maximum(tl.max(lse, 1), -1e30)
    total = tl.sum(tl.exp2(lse - highest[:, None]), 1)
    result = tl.zeros((BLOCK_R, HEAD_DIM), tl.float32)
    for index in tl.static_range(SPLITS):
        place = first + index * heads
        one = tl.load(partial_lse + place, mask=live, other=float("-inf"))
        value = tl.load(
            partial + place[:, None] * HEAD_DIM + dim[None, :],
            mask=(live & (one > float("-inf")))[:, None],
            other=0.0,
        )
        result += tl.exp2(one - highest)[:, None] * value.to(tl.float32)
    result = result / tl.where(total > 0.0, total, 1.0)[:, None]
    tl.store(out + row.to(tl.int64)[:, None] * HEAD_DIM + dim[None, :], result.to(tl.bfloat16), mask=live[:, None])


@triton.jit
def sparse_count(
    selected,  # i32 [T, kv_heads, TOPK]
    seq_first_token,  # i32 [B]
    seq_len,  # i32 [B]
    seq_first_item,  # i32 [B + 1]
    counts,  # in/out i32 [kv_heads * items, spread]; zero before, the lists' lengths (in column 0) after
    ranks,  # out i32 [T, kv_heads, TOPK]: place within the block's list
    partial_lse,  # out f32 [T, TOPK, kv_heads * GROUP]: -inf where there is no block
    kv_heads,
    batch,
    spread,  # entries from a list's counter to the next one's: neighbours in the L2 cache get in each other's way
    GROUP: tl.constexpr,
    TOPK: tl.constexpr,
    BLOCK_T: tl.constexpr,
):
    """Grid (ceil(longest chunk / BLOCK_T), kv_heads, B)."""
    wait_for_inputs()
    sequence = tl.program_id(2)
    kv_head = tl.program_id(1)
    token = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T)
    live = token < tl.load(seq_len + sequence)
    token = (tl.load(seq_first_token + sequence) + token).to(tl.int64)
    slot = tl.arange(0, TOPK)
    place = (token[:, None] * kv_heads + kv_head) * TOPK + slot[None, :]
    block = tl.load(selected + place, mask=live[:, None], other=-1)
    item = kv_head * tl.load(seq_first_item + batch) + tl.load(seq_first_item + sequence) + block
    rank = tl.atomic_add(counts + item * spread, 1, mask=block >= 0, sem="relaxed")
    tl.store(ranks + place, rank, mask=block >= 0)
    empty = live[:, None] & (block < 0)
    nothing = tl.full((BLOCK_T, TOPK), float("-inf"), tl.float32)
    for head in tl.static_range(GROUP):
        row = (token[:, None] * TOPK + slot[None, :]) * kv_heads * GROUP + kv_head * GROUP + head
        tl.store(partial_lse + row, nothing, mask=empty)


@triton.jit
def sparse_offsets(
    counts,  # in/out i32 [items, spread]: lengths in column 0; zero after
    offsets,  # out i32 [items + 1]
    items,  # of all KV heads
    spread,
    BLOCK: tl.constexpr,
):
    """Grid (1,): running sum of the lengths, and zeroes for the next layer."""
    wait_for_inputs()
    sum_before = tl.zeros((), tl.int32)
    index = tl.arange(0, BLOCK)
    for first in range(0, items, BLOCK):
        item = first + index
        count = tl.load(counts + item * spread, mask=item < items, other=0)
        tl.store(offsets + item, sum_before + tl.cumsum(count, 0) - count, mask=item < items)
        tl.store(counts + item * spread, tl.zeros((BLOCK,), tl.int32), mask=item < items)
        sum_before += tl.sum(count, 0)
    tl.store(offsets + items, sum_before)


@triton.jit
def sparse_fill(
    selected,  # i32 [T, kv_heads, TOPK]
    ranks,  # i32 [T, kv_heads, TOPK]
    offsets,  # i32 [kv_heads * items + 1]
    seq_first_token,  # i32 [B]
    seq_len,  # i32 [B]
    seq_first_item,  # i32 [B + 1]
    entries,  # out i32 [T * kv_heads * TOPK]: token * TOPK + slot, grouped by item
    kv_heads,
    batch,
    TOPK: tl.constexpr,
    BLOCK_T: tl.constexpr,
):
    """Grid (ceil(longest chunk / BLOCK_T), kv_heads, B)."""
    wait_for_inputs()
    sequence = tl.program_id(2)
    kv_head = tl.program_id(1)
    token = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T)
    live = token < tl.load(seq_len + sequence)
    token = tl.load(seq_first_token + sequence) + token
    slot = tl.arange(0, TOPK)
    place = (token[:, None].to(tl.int64) * kv_heads + kv_head) * TOPK + slot[None, :]
    block = tl.load(selected + place, mask=live[:, None], other=-1)
    item = kv_head * tl.load(seq_first_item + batch) + tl.load(seq_first_item + sequence) + block
    rank = tl.load(ranks + place, mask=block >= 0, other=0)
    first = tl.load(offsets + item, mask=block >= 0, other=0)
    tl.store(entries + first + rank, token[:, None] * TOPK + slot[None, :], mask=block >= 0)


@triton.jit
def _attend_tile(
    queries, entries, partial, partial_lse,
    keys,  # [HEAD_DIM, PAGE]
    values,  # [PAGE, HEAD_DIM]
    first,  # entry of the tile
    end,  # of the list
    first_seen,  # keys of the block that token 0 sees, less one; token t sees t more
    kv_head,
    heads,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PAGE: tl.constexpr,
    TOPK: tl.constexpr,
    ROWS: tl.constexpr,
    MASKED: tl.constexpr,
):  # fmt: skip
    """ROWS / GROUP tokens of a list against one block."""
    SCALE: tl.constexpr = LOG2_E / HEAD_DIM**0.5
    row = tl.arange(0, ROWS)
    dim = tl.arange(0, HEAD_DIM)
    live = first + row // GROUP < end
    entry = tl.load(entries + first + row // GROUP, mask=live, other=0)
    token = entry // TOPK
    head = token.to(tl.int64) * heads + kv_head * GROUP + row % GROUP
    query = tl.load(queries + head[:, None] * HEAD_DIM + dim[None, :], mask=live[:, None], other=0.0)
    logits = tl.dot(query, keys)
    if MASKED:
        visible = tl.arange(0, PAGE)[None, :] <= (first_seen + token)[:, None]
        logits = tl.where(visible, logits, float("-inf"))
    highest = tl.max(logits, 1) * SCALE
    weights = tl.exp2(logits * SCALE - highest[:, None])
    total = tl.sum(weights, 1)
    result = tl.dot(weights.to(tl.bfloat16), values) * (1.0 / total)[:, None]
    # A token's heads lie together: one stretch of memory for each entry of the list.
    place = entry.to(tl.int64) * heads + kv_head * GROUP + row % GROUP
    tl.store(partial_lse + place, highest + tl.log2(total), mask=live)
    tl.store(partial + place[:, None] * HEAD_DIM + dim[None, :], result.to(tl.bfloat16), mask=live[:, None])


@triton.jit
def sparse_attend_prefill(
    queries,  # bf16 [T, kv_heads * GROUP, HEAD_DIM]
    k_pages,
    v_pages,
    page_table,  # i32 [rows, table_stride]
    seq_row,  # i32 [B]
    seq_first_token,  # i32 [B]
    seq_len,  # i32 [B]
    seq_first_position,  # i32 [B]
    seq_first_item,  # i32 [B + 1]
    offsets,  # i32 [kv_heads * items + 1]
    entries,  # i32 [T * kv_heads * TOPK]
    partial,  # out bf16 [T, TOPK, kv_heads * GROUP, HEAD_DIM], normalised
    partial_lse,  # out f32 [T, TOPK, kv_heads * GROUP]; of slots with a block
    table_stride,
    kv_heads,
    batch,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PAGE: tl.constexpr,
    TOPK: tl.constexpr,
    ROWS: tl.constexpr,  # of a tile: tokens x GROUP
    STAGES: tl.constexpr,
):
    """Grid (most blocks of a context, kv_heads * parts, B): part p of P takes tiles p, p + P, ... of its block's list."""
    wait_for_inputs()
    TOKENS: tl.constexpr = ROWS // GROUP
    block = tl.program_id(0)
    kv_head = tl.program_id(1) % kv_heads
    part = tl.program_id(1) // kv_heads
    parts = tl.num_programs(1) // kv_heads
    sequence = tl.program_id(2)
    first_item = tl.load(seq_first_item + sequence)
    blocks = tl.load(seq_first_item + sequence + 1) - first_item
    if block < blocks:
        item = kv_head * tl.load(seq_first_item + batch) + first_item + block
        begin = tl.load(offsets + item) + part * TOKENS
        end = tl.load(offsets + item + 1)
        if begin < end:
            dim = tl.arange(0, HEAD_DIM)
            key = tl.arange(0, PAGE)
            first_position = tl.load(seq_first_position + sequence)
            first_token = tl.load(seq_first_token + sequence)
            context = first_position + tl.load(seq_len + sequence)
            table = page_table + tl.load(seq_row + sequence).to(tl.int64) * table_stride
            page = tl.maximum(tl.load(table + block), 0).to(tl.int64)
            tile = (page * kv_heads + kv_head) * PAGE
            written = block * PAGE + key < context
            keys = tl.load(
                k_pages + (tile + key[None, :]) * HEAD_DIM + dim[:, None], mask=written[None, :], other=0.0
            )
            values = tl.load(
                v_pages + (tile + key[:, None]) * HEAD_DIM + dim[None, :], mask=written[:, None], other=0.0
            )
            heads = kv_heads * GROUP
            # A tile in which some token stands inside this block is masked; only the newest blocks have such tiles.
            newest = (block + 1) * PAGE > first_position
            stride = parts * TOKENS
            first_seen = first_position - first_token - block * PAGE
            if newest:
                for first in tl.range(begin, end, stride, num_stages=STAGES):
                    _attend_tile(
                        queries, entries, partial, partial_lse, keys, values, first, end, first_seen, kv_head, heads,
                        GROUP, HEAD_DIM, PAGE, TOPK, ROWS, True,
                    )
            else:
                for first in tl.range(begin, end, stride, num_stages=STAGES):
                    _attend_tile(
                        queries, entries, partial, partial_lse, keys, values, first, end, first_seen, kv_head, heads,
                        GROUP, HEAD_DIM, PAGE, TOPK, ROWS, False,
                    )
