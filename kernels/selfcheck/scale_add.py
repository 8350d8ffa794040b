"""out[i] = bf16(factor * x[i] + y[i]) over `count` elements: proves that modules load, arguments arrive and grids cover.

x, y, out: bf16, contiguous. One program per BLOCK elements. Bound by memory: 6 bytes an element.
"""

import triton
import triton.language as tl


@triton.jit
def scale_add(x, y, out, count, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    product = factor * tl.load(x + at, inside, 0.0).to(tl.float32)
    total = product + tl.load(y + at, inside, 0.0).to(tl.float32)
    tl.store(out + at, total.to(tl.bfloat16), inside)
