"""Which blocks a token attends to: index scores, then the best blocks.

    score[t, h, b] = max over key positions j of block b, j <= position_t, of  index_q[t, h] . index_k[j]     float32
    selected[t, h] = the TOPK blocks of highest priority, ids ascending, -1 behind them
    priority: the first `init_blocks` and the last `local_blocks` of the token's position / PAGE + 1 blocks, then score,
    ties to the lower id; a block with a NaN dot product scores -1e30

One index key per position, shared by all index heads; a page is a block. Tokens with at most TOPK blocks take them all
and need no scores: the score kernels skip them unless `score_all` (for tests that look at the scores).

    index_score_decode    rows of any sequences; scores [T, HEADS, blocks], grid (T, splits)
    index_score_prefill   chunks; a tile of BLOCK_M rows (tokens x heads) against BLOCKS key blocks; scores [blocks, T, HEADS]
    select_blocks         either score layout by strides; grid (ceil(T * HEADS / ROWS),)

Scores of blocks behind a token's last are not written. A block's score does not depend on the split.
Bound: decode memory, 2 * DIM bytes per cached token; prefill 2 * DIM FLOP per (row, key) on the tensor cores.
select_blocks bisects between a row's least and greatest score until TOPK blocks reach the bound; the row stays in
registers, a step counts it once.
"""

import triton
import triton.language as tl
from dependent import wait_for_inputs

NAN_SCORE = tl.constexpr(-1e30)


@triton.jit
def nan_or_maximum(left, right):
    return tl.maximum(left, right, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def index_score_decode(
    index_queries,  # bf16 [T, HEADS, DIM]
    index_k_pages,  # bf16 [pages, PAGE, DIM]
    page_table,  # i32 [rows, table_stride]
    token_row,  # i32 [T]
    positions,  # i32 [T]
    scores,  # out f32 [T, HEADS, score_stride]
    table_stride,
    score_stride,
    score_all,  # 0: rows with at most TOPK blocks are skipped
    HEADS: tl.constexpr,
    DIM: tl.constexpr,
    PAGE: tl.constexpr,
    TOPK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Grid (T, splits): split s scores blocks s, s + splits, ..."""
    wait_for_inputs()
    COLUMNS: tl.constexpr = 16 if HEADS <= 16 else HEADS
    token = tl.program_id(0)
    position = tl.load(positions + token)
    num_blocks = position // PAGE + 1
    if (num_blocks > TOPK) | (score_all != 0):
        table = page_table + tl.load(token_row + token).to(tl.int64) * table_stride
        head = tl.arange(0, COLUMNS)
        dim = tl.arange(0, DIM)
        key = tl.arange(0, PAGE)
        query = tl.load(
            index_queries + (token.to(tl.int64) * HEADS + head[None, :]) * DIM + dim[:, None],
            mask=head[None, :] < HEADS,
            other=0.0,
        )
        row = scores + (token.to(tl.int64) * HEADS + head) * score_stride
        for block in tl.range(tl.program_id(1), num_blocks, tl.num_programs(1), num_stages=STAGES):
            page = tl.maximum(tl.load(table + block), 0).to(tl.int64)
            keys = tl.load(index_k_pages + (page * PAGE + key[:, None]) * DIM + dim[None, :])
            dots = tl.dot(keys, query)
            dots = tl.where((block * PAGE + key <= position)[:, None], dots, float("-inf"))
            score = tl.reduce(dots, 0, nan_or_maximum)
            score = tl.where(score != score, NAN_SCORE, score)
            tl.store(row + block, score, mask=head < HEADS)


@triton.jit
def _keys(pages, first, offset, dim, DIM: tl.constexpr, TMA: tl.constexpr):
    """Rows first + offset of the pages seen as one matrix [pages * PAGE, DIM]."""
    if TMA:
        return pages.load([first, 0])
    else:
        return tl.load(pages + (tl.cast(first, tl.int64) + offset)[:, None] * DIM + dim[None, :])


@triton.jit
def index_score_prefill(
    index_queries,  # bf16 [T, HEADS, DIM]
    index_k_pages,  # TMA: matrix [pages * PAGE, DIM], else pointer
    page_table,  # i32 [rows, table_stride]
    seq_row,  # i32 [B]: row of the page table
    seq_first_token,  # i32 [B]
    seq_len,  # i32 [B]: tokens of this chunk
    seq_first_position,  # i32 [B]
    scores,  # out f32 [blocks, score_stride], entry token * HEADS + head of a block's row
    table_stride,
    score_stride,  # at least T * HEADS
    score_all,
    HEADS: tl.constexpr,
    DIM: tl.constexpr,
    PAGE: tl.constexpr,
    TOPK: tl.constexpr,
    BLOCK_M: tl.constexpr,  # rows: tokens x heads
    BLOCKS: tl.constexpr,  # key blocks of a program
    STAGES: tl.constexpr,
    TMA: tl.constexpr,
):
    """Grid (ceil(longest chunk * HEADS / BLOCK_M), ceil(most blocks / BLOCKS), B)."""
    wait_for_inputs()
    sequence = tl.program_id(2)
    length = tl.load(seq_len + sequence)
    first_row = tl.program_id(0) * BLOCK_M
    first_position = tl.load(seq_first_position + sequence)
    last_token = tl.minimum((first_row + BLOCK_M - 1) // HEADS, length - 1)
    num_blocks = (first_position + last_token) // PAGE + 1
    begin = tl.program_id(1) * BLOCKS
    end = tl.minimum(begin + BLOCKS, num_blocks)
    wanted = (num_blocks > TOPK) | (score_all != 0)
    if wanted & (first_row < length * HEADS) & (begin < end):
        table = page_table + tl.load(seq_row + sequence).to(tl.int64) * table_stride
        row = first_row + tl.arange(0, BLOCK_M)
        live = row < length * HEADS
        dim = tl.arange(0, DIM)
        key = tl.arange(0, PAGE)
        first_entry = tl.load(seq_first_token + sequence).to(tl.int64) * HEADS
        query = tl.load(
            index_queries + (first_entry + row[:, None]) * DIM + dim[None, :], mask=live[:, None], other=0.0
        )
        position = first_position + row // HEADS
        column = scores + first_entry + row
        stride = tl.cast(score_stride, tl.int64)
        # Blocks that every row of the tile sees whole need no mask.
        whole = tl.minimum(tl.maximum((first_position + first_row // HEADS + 1) // PAGE, begin), end)
        for block in tl.range(begin, whole, num_stages=STAGES):
            page = tl.maximum(tl.load(table + block), 0)
            keys = _keys(index_k_pages, page * PAGE, key, dim, DIM, TMA)
            score = tl.reduce(tl.dot(query, tl.trans(keys)), 1, nan_or_maximum)
            score = tl.where(score != score, NAN_SCORE, score)
            tl.store(column + block * stride, score, mask=live)
        for block in tl.range(whole, end, num_stages=1):
            page = tl.maximum(tl.load(table + block), 0)
            keys = _keys(index_k_pages, page * PAGE, key, dim, DIM, TMA)
            visible = block * PAGE + key[None, :] <= position[:, None]
            score = tl.reduce(tl.where(visible, tl.dot(query, tl.trans(keys)), float("-inf")), 1, nan_or_maximum)
            score = tl.where(score != score, NAN_SCORE, score)
            tl.store(column + block * stride, score, mask=live & (position >= block * PAGE))


@triton.jit
def _choose(
    row_scores,  # pointers [ROWS]
    num_blocks,  # [ROWS]
    out,  # pointers [ROWS]
    live,  # [ROWS]
    block_stride,
    init_blocks,
    local_blocks,
    TOPK: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Rows of at most WIDTH blocks, the whole row in registers."""
    LOWEST: tl.constexpr = -(2**31)
    STEPS: tl.constexpr = 4
    block = tl.arange(0, WIDTH)[None, :]
    count = num_blocks[:, None]
    present = (block < count) & live[:, None]
    score = tl.load(
        row_scores[:, None] + block.to(tl.int64) * block_stride, mask=present & (count > TOPK), other=0.0
    )
    # Integers in the order of the scores; `+ 0.0` makes -0 equal to 0.
    bits = (score + 0.0).to(tl.int32, bitcast=True)
    priority = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    forced = present & ((block < init_blocks) | (block + local_blocks >= count))
    # Forced blocks are taken beforehand; more of them than there is room for leave the higher ids out.
    if init_blocks + local_blocks > TOPK:
        forced = forced & (tl.cumsum(forced.to(tl.int32), 1) <= TOPK)
        free = present & (block >= init_blocks) & (block + local_blocks < count)
    else:
        free = present & (forced == 0)
    room = TOPK - tl.sum(forced.to(tl.int32), 1, keep_dims=True)
    priority = tl.where(free, priority, LOWEST)
    # Bisection: at least `room` blocks reach `low`, fewer reach `high`; done when exactly `room` do, or none lies between.
    low = tl.min(tl.where(free, priority, 0x7FFFFFFF), 1, keep_dims=True).to(tl.int64)
    high = tl.max(priority, 1, keep_dims=True).to(tl.int64) + 1
    open_rows = (room > 0) & (tl.sum(free.to(tl.int32), 1, keep_dims=True) > room)
    while tl.max(tl.max(open_rows.to(tl.int32), 1), 0) > 0:
        for _ in tl.static_range(STEPS):
            middle = (low + high) >> 1
            reached = tl.sum((priority >= middle.to(tl.int32)).to(tl.int32), 1, keep_dims=True)
            enough = reached >= room
            low = tl.where(open_rows & enough, middle, low)
            high = tl.where(open_rows & (enough == 0), middle, high)
            open_rows = open_rows & (reached != room) & (high - low > 1)
    bound = low.to(tl.int32)
    above = free & (priority > bound) & (room > 0)
    equal = free & (priority == bound) & (room > 0)
    spare = room - tl.sum(above.to(tl.int32), 1, keep_dims=True)
    taken = forced | above | (equal & (tl.cumsum(equal.to(tl.int32), 1) <= spare))
    place = tl.cumsum(taken.to(tl.int32), 1) - 1
    tl.store(out[:, None] + place, block + tl.zeros((ROWS, WIDTH), tl.int32), mask=taken)
    slot = tl.arange(0, TOPK)[None, :]
    tl.store(
        out[:, None] + slot, tl.full((ROWS, TOPK), -1, tl.int32), mask=(slot >= count) & live[:, None]
    )


@triton.jit
def _choose_rows(
    scores, positions, selected, tokens, row_stride, block_stride, init_blocks, local_blocks, first,
    HEADS: tl.constexpr,
    PAGE: tl.constexpr,
    TOPK: tl.constexpr,
    ROWS: tl.constexpr,
    MOST: tl.constexpr,  # rows at a time, as many as the registers hold
    WIDTH: tl.constexpr,
):  # fmt: skip
    PART: tl.constexpr = MOST if MOST < ROWS else ROWS
    for part in range(ROWS // PART):
        row = first + part * PART + tl.arange(0, PART)
        live = row < tokens * HEADS
        num_blocks = tl.load(positions + row // HEADS, mask=live, other=0) // PAGE + 1
        wide = row.to(tl.int64)
        _choose(
            scores + wide * row_stride, num_blocks, selected + wide * TOPK, live, block_stride, init_blocks,
            local_blocks, TOPK, PART, WIDTH,
        )  # fmt: skip


@triton.jit
def select_blocks(
    scores,  # f32
    positions,  # i32 [T]
    selected,  # out i32 [T, HEADS, TOPK]
    tokens,
    row_stride,  # from a (token, head) row of `scores` to the next, in elements
    block_stride,  # from a block of a row to the next
    init_blocks,
    local_blocks,
    HEADS: tl.constexpr,
    PAGE: tl.constexpr,
    TOPK: tl.constexpr,
    ROWS: tl.constexpr,
    WIDEST: tl.constexpr,  # no row has more blocks; above 1024 the kernel needs twice the registers
):
    """Grid (ceil(T * HEADS / ROWS),)."""
    wait_for_inputs()
    first = tl.program_id(0) * ROWS
    row = first + tl.arange(0, ROWS)
    live = row < tokens * HEADS
    num_blocks = tl.load(positions + row // HEADS, mask=live, other=0) // PAGE + 1
    most = tl.max(num_blocks, 0)
    if most <= TOPK:
        slot = tl.arange(0, TOPK)[None, :]
        ids = tl.where(slot < num_blocks[:, None], slot, -1)
        tl.store(selected + row.to(tl.int64)[:, None] * TOPK + slot, ids, mask=live[:, None])
    elif most <= 128:
        _choose_rows(
            scores, positions, selected, tokens, row_stride, block_stride, init_blocks, local_blocks, first,
            HEADS, PAGE, TOPK, ROWS, ROWS, 128,
        )  # fmt: skip
    elif most <= 256:
        _choose_rows(
            scores, positions, selected, tokens, row_stride, block_stride, init_blocks, local_blocks, first,
            HEADS, PAGE, TOPK, ROWS, ROWS, 256,
        )  # fmt: skip
    elif most <= 512:
        _choose_rows(
            scores, positions, selected, tokens, row_stride, block_stride, init_blocks, local_blocks, first,
            HEADS, PAGE, TOPK, ROWS, 4, 512,
        )  # fmt: skip
    elif most <= 1024:
        _choose_rows(
            scores, positions, selected, tokens, row_stride, block_stride, init_blocks, local_blocks, first,
            HEADS, PAGE, TOPK, ROWS, 4, 1024,
        )  # fmt: skip
    elif WIDEST > 1024:
        _choose_rows(
            scores, positions, selected, tokens, row_stride, block_stride, init_blocks, local_blocks, first,
            HEADS, PAGE, TOPK, ROWS, 1, WIDEST,
        )  # fmt: skip
