"""The clamped SwiGLU of M3, and its elementwise kernel.

    gate' = min(gate, limit);  up' = clamp(up, -limit, limit)
    out   = (up' + 1) * gate' * sigmoid(alpha * gate')

The fused matrix holds all gate rows first, then all up rows. In float32, one rounding. NaN goes through.
"""

import triton
import triton.language as tl
from dependent import wait_for_inputs


@triton.jit
def clamped_swiglu(gate, up, alpha, limit):
    """float32 tiles of one shape."""
    # Comparisons with NaN are false, so NaN stays; minimum() would drop it.
    gate = tl.where(gate > limit, limit, gate)
    up = tl.where(up > limit, limit, tl.where(up < -limit, -limit, up))
    return (up + 1.0) * gate / (1.0 + tl.exp(-alpha * gate))


@triton.jit
def swiglu(gate_up, out, inner, alpha, limit, BLOCK: tl.constexpr):
    """`gate_up` bf16 [rows, 2 * inner] -> `out` bf16 [rows, inner]. Grid (rows, ceil(inner / BLOCK)). Bound: memory."""
    wait_for_inputs()
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    valid = columns < inner
    gate = tl.load(gate_up + row * 2 * inner + columns, mask=valid, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * 2 * inner + inner + columns, mask=valid, other=0.0).to(tl.float32)
    tl.store(out + row * inner + columns, clamped_swiglu(gate, up, alpha, limit).to(tl.bfloat16), mask=valid)
