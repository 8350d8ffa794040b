"""Embedding rows, with media rows and the device's own last samples in their places. Bound: memory.

    id     = ids[t] >= 0 ? ids[t] : last_tokens[token_rows[t]]           (a chained token: what its row sampled last)
    out[t] = media_index[t] >= 0 ? media[media_index[t]] : table[id - first_id]

`table` bf16 [num_ids, HIDDEN] holds the ids `first_id ..` of this rank; other ids give zeros, which the sum over
ranks fills. Media rows are added by the rank with `first_id` 0 alone.
"""

import triton
import triton.language as tl
from dependent import wait_for_inputs


@triton.jit
def embed(
    ids,
    token_rows,
    last_tokens,
    media_index,
    media,
    table,
    out,
    first_id,
    num_ids,
    HIDDEN: tl.constexpr,
):
    """Grid (tokens,). `ids`, `token_rows`, `last_tokens`, `media_index` i32; `media_index` and `media` may be null together.

    `media_index[t]` is the row of `media` bf16 [*, HIDDEN] that replaces token t, or -1.
    """
    wait_for_inputs()
    BLOCK: tl.constexpr = triton.next_power_of_2(HIDDEN)
    token = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    valid = columns < HIDDEN
    id = tl.load(ids + token)
    if id < 0:
        id = tl.load(last_tokens + tl.load(token_rows + token))
    local = id - first_id
    here = (local >= 0) & (local < num_ids)
    values = tl.load(table + local.to(tl.int64) * HIDDEN + columns, mask=valid & here, other=0.0)
    if media_index is not None:
        if media_index.to(tl.int64) != 0:
            index = tl.load(media_index + token)
            if index >= 0:
                mine = valid & (first_id == 0)
                values = tl.load(media + index.to(tl.int64) * HIDDEN + columns, mask=mine, other=0.0)
    tl.store(out + token.to(tl.int64) * HIDDEN + columns, values, mask=valid)
