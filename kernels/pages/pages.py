"""Upkeep of the page table, page copies and poison: small kernels in stream order with the steps. Bound: memory."""

import triton
import triton.language as tl
from dependent import wait_for_inputs


@triton.jit
def scatter_i32(target, index, value, count, BLOCK: tl.constexpr):
    """`target[index[i]] = value[i]` for i < count; indexes i64, distinct; a negative one is skipped.

    Page-table entries (index = row * max_pages + entry) and anything else that the host changes piece by piece.
    Grid (ceil(count / BLOCK),).
    """
    wait_for_inputs()
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    valid = offsets < count
    index = tl.load(index + offsets, mask=valid, other=-1)
    value = tl.load(value + offsets, mask=valid, other=0)
    tl.store(target + index, value, mask=valid & (index >= 0))


@triton.jit
def copy_pages(pool, sources, targets, page_words, BLOCK: tl.constexpr):
    """Pages `sources[i]` over pages `targets[i]` in one pool, `page_words` u32 (i64 count) a page; pages i32.

    No page may be both read and written in one launch. A negative entry is skipped. Grid (copies, ceil(page_words / BLOCK)).
    """
    source = tl.load(sources + tl.program_id(0)).to(tl.int64)
    target = tl.load(targets + tl.program_id(0)).to(tl.int64)
    offsets = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    valid = (offsets < page_words) & (source >= 0) & (target >= 0)
    words = tl.load(pool + source * page_words + offsets, mask=valid, other=0)
    tl.store(pool + target * page_words + offsets, words, mask=valid)


@triton.jit
def poison_pages(pool, pages, page_words, BLOCK: tl.constexpr):
    """Fills pages with bf16 NaN (0x7fc0 twice a word). Grid (pages, ceil(page_words / BLOCK))."""
    page = tl.load(pages + tl.program_id(0)).to(tl.int64)
    offsets = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    poison = tl.full((BLOCK,), 0x7FC07FC0, tl.uint32)
    tl.store(pool + page * page_words + offsets, poison, mask=(offsets < page_words) & (page >= 0))
