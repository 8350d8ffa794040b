"""Gemma RMS norm with the pending sum taken in: one program per row.

    residual = bf16(residual + pending)                                   (skipped without pending)
    out      = bf16(residual * rsqrt(mean(residual^2) + eps) * (1 + weight))

`residual`, `pending`, `out` bf16 [rows, HIDDEN]; `weight` bf16 [HIDDEN]. Sums in float32, one rounding at the end; the
norm is taken of the rounded residual, so that it depends on nothing but what is stored. Bound: memory, 8 bytes an
element with pending, 4 without.
"""

import triton
import triton.language as tl
from dependent import wait_for_inputs


@triton.jit
def _normalise(values, weight, columns, valid, eps, HIDDEN: tl.constexpr):
    """`values` float32 with zeros beyond HIDDEN; bf16."""
    scale = tl.rsqrt(tl.sum(values * values, 0) / HIDDEN + eps)
    factor = 1.0 + tl.load(weight + columns, mask=valid, other=0.0).to(tl.float32)
    return (values * scale * factor).to(tl.bfloat16)


@triton.jit
def add_norm(
    residual, pending, weight, out, eps, HIDDEN: tl.constexpr, HAS_PENDING: tl.constexpr
):
    """Grid (rows,). `pending` may be null when HAS_PENDING is 0; `residual` is updated in place otherwise."""
    wait_for_inputs()
    BLOCK: tl.constexpr = triton.next_power_of_2(HIDDEN)
    start = tl.program_id(0).to(tl.int64) * HIDDEN
    columns = tl.arange(0, BLOCK)
    valid = columns < HIDDEN
    values = tl.load(residual + start + columns, mask=valid, other=0.0).to(tl.float32)
    if HAS_PENDING:
        added = tl.load(pending + start + columns, mask=valid, other=0.0).to(tl.float32)
        rounded = (values + added).to(tl.bfloat16)
        tl.store(residual + start + columns, rounded, mask=valid)
        values = rounded.to(tl.float32)
    normed = _normalise(values, weight, columns, valid, eps, HIDDEN)
    tl.store(out + start + columns, normed, mask=valid)


@triton.jit
def gather_norm(residual, pending, weight, tokens, out, eps, HIDDEN: tl.constexpr):
    """Final norm of chosen tokens: `out[i]` from token `tokens[i]` (i32). Grid (chosen,).

    Leaves the residual as it is. A negative token (a padded entry) gives a row of zeros.
    """
    wait_for_inputs()
    BLOCK: tl.constexpr = triton.next_power_of_2(HIDDEN)
    program = tl.program_id(0)
    token = tl.load(tokens + program)
    columns = tl.arange(0, BLOCK)
    valid = columns < HIDDEN
    there = valid & (token >= 0)
    start = token.to(tl.int64) * HIDDEN
    values = tl.load(residual + start + columns, mask=there, other=0.0).to(tl.float32)
    added = tl.load(pending + start + columns, mask=there, other=0.0).to(tl.float32)
    values = (values + added).to(tl.bfloat16).to(tl.float32)
    normed = _normalise(values, weight, columns, valid, eps, HIDDEN)
    tl.store(out + program.to(tl.int64) * HIDDEN + columns, normed, mask=valid)
