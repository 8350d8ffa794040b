"""Per-head norm, rotation, and the way of keys and values into the pages.

    rope_angles       angles[t] = cos(a), sin(a),  a_j = f32(position_t * frequency_j)          once a step
    norm_rope_store   y = x * rsqrt(mean(x^2) + eps) * (1 + w)  per head, float32
                      y[j], y[j + R/2] rotated by a_j for j < R/2, the rest of the head unchanged; one rounding to bf16

`qkv` is the fused projection [T, heads * D]: query heads | key heads | value heads | index query heads | index key.
Values are copied. On dense layers index_heads = 0 and the row ends behind the values. Pages: [pages, kv_heads, PAGE, D],
index keys [pages, 1, PAGE, D]; slot = page * PAGE + offset, negative = store nothing (query rows are still written).

Split: program = BLOCK_T tokens x one head; grid (ceil(T / BLOCK_T), all heads of the row).
Bound: memory, 2 bytes in and 2 bytes out per element of qkv.
"""

import triton
import triton.language as tl
from dependent import wait_for_inputs


@triton.jit
def rope_angles(
    positions,  # i32 [T]
    frequencies,  # f32 [ROTARY / 2], theta^(-2j / ROTARY) rounded once
    angles,  # out f32 [T, ROTARY]: cosines, then sines
    tokens,
    ROTARY: tl.constexpr,
    BLOCK_T: tl.constexpr,
):
    """Grid (ceil(T / BLOCK_T),). Positions reach 2^20: the angle is rounded to float32, its sine is a float64 one."""
    wait_for_inputs()
    HALF: tl.constexpr = ROTARY // 2
    token = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T)
    pair = tl.arange(0, HALF)
    live = token < tokens
    position = tl.load(positions + token, mask=live, other=0).to(tl.float32)
    angle = (position[:, None] * tl.load(frequencies + pair)[None, :]).to(tl.float64)
    place = angles + token[:, None].to(tl.int64) * ROTARY + pair[None, :]
    tl.store(place, tl.cos(angle).to(tl.float32), mask=live[:, None])
    tl.store(place + HALF, tl.sin(angle).to(tl.float32), mask=live[:, None])


@triton.jit
def norm_rope_store(
    qkv,  # bf16 [T, heads * HEAD_DIM]
    angles,  # f32 [T, ROTARY] of rope_angles
    slots,  # i64 [T]
    query_norm,  # bf16 [HEAD_DIM], stored around 0; likewise the next three
    key_norm,
    index_query_norm,
    index_key_norm,
    queries,  # out bf16 [T, query_heads, HEAD_DIM]
    index_queries,  # out bf16 [T, index_heads, HEAD_DIM]
    k_pages,  # out
    v_pages,  # out
    index_k_pages,  # out
    tokens,
    query_heads,
    kv_heads,
    index_heads,  # 0: a dense layer, the index pointers are not used
    eps,
    HEAD_DIM: tl.constexpr,
    ROTARY: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK_T: tl.constexpr,
):
    """Grid (ceil(T / BLOCK_T), query_heads + 2 * kv_heads + (index_heads + 1 if index_heads else 0))."""
    wait_for_inputs()
    HALF: tl.constexpr = ROTARY // 2
    REST: tl.constexpr = HEAD_DIM - ROTARY
    head = tl.program_id(1)
    token = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T)
    live = token < tokens
    token_64 = token.to(tl.int64)
    pair = tl.arange(0, HALF)
    rest = ROTARY + tl.arange(0, REST)

    first_key = query_heads
    first_value = query_heads + kv_heads
    first_index_query = query_heads + 2 * kv_heads
    index_key = first_index_query + index_heads

    row = qkv + (token_64 * tl.num_programs(1) + head) * HEAD_DIM
    mask = live[:, None]
    left = tl.load(row[:, None] + pair[None, :], mask=mask, other=0.0)
    right = tl.load(row[:, None] + HALF + pair[None, :], mask=mask, other=0.0)
    tail = tl.load(row[:, None] + rest[None, :], mask=mask, other=0.0)

    # Where the head goes: [T, heads, D] for queries, a page for the rest.
    slot = tl.load(slots + token, mask=live, other=-1)
    page = slot // PAGE
    offset = slot % PAGE
    stored = live & (slot >= 0)
    is_query = head < first_key
    is_index_query = (head >= first_index_query) & (head < index_key)
    to_pages = (is_query | is_index_query) == 0

    norm = query_norm
    out = queries + (token_64 * query_heads + head) * HEAD_DIM
    if head >= first_key:
        norm = key_norm
        out = k_pages + ((page * kv_heads + head - first_key) * PAGE + offset) * HEAD_DIM
    if head >= first_value:
        out = v_pages + ((page * kv_heads + head - first_value) * PAGE + offset) * HEAD_DIM
    if head >= first_index_query:
        norm = index_query_norm
        out = index_queries + (token_64 * index_heads + head - first_index_query) * HEAD_DIM
        if head == index_key:
            norm = index_key_norm
            out = index_k_pages + slot * HEAD_DIM
    mask = tl.where(to_pages, stored, live)[:, None]

    is_value = (head >= first_value) & (head < first_index_query)
    if is_value:
        tl.store(out[:, None] + pair[None, :], left, mask=mask)
        tl.store(out[:, None] + HALF + pair[None, :], right, mask=mask)
        tl.store(out[:, None] + rest[None, :], tail, mask=mask)
    else:
        x = left.to(tl.float32)
        y = right.to(tl.float32)
        z = tail.to(tl.float32)
        square = tl.sum(x * x, 1) + tl.sum(y * y, 1) + tl.sum(z * z, 1)
        scale = (1.0 / tl.sqrt_rn(square / HEAD_DIM + eps))[:, None]
        x = x * scale * (1.0 + tl.load(norm + pair).to(tl.float32))[None, :]
        y = y * scale * (1.0 + tl.load(norm + HALF + pair).to(tl.float32))[None, :]
        z = z * scale * (1.0 + tl.load(norm + rest).to(tl.float32))[None, :]
        place = angles + token_64[:, None] * ROTARY + pair[None, :]
        cos = tl.load(place, mask=live[:, None], other=0.0)
        sin = tl.load(place + HALF, mask=live[:, None], other=0.0)
        tl.store(out[:, None] + pair[None, :], (x * cos - y * sin).to(tl.bfloat16), mask=mask)
        tl.store(out[:, None] + HALF + pair[None, :], (y * cos + x * sin).to(tl.bfloat16), mask=mask)
        tl.store(out[:, None] + rest[None, :], z.to(tl.bfloat16), mask=mask)
