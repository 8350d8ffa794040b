"""One output tile of `x[M, K] w[N, K]^T`, the inner loop of every matrix product here.

Weights are bf16, or MXFP8 dequantised in registers: value = e4m3(code) * 2^(scale - 127), a scale per row and 32 columns.
Both steps are exact in bf16 for scales up to 134 (weights below 2^8 * 448); a larger one gives infinity, never a wrong
number. Loads of x are masked by row and column, loads of weights by column only: rows beyond the matrix must be clamped by
the caller, who also drops their results.

FORMAT 0: bf16. 1: MXFP8, any K that divides by 32. 2: MXFP8 with K a multiple of 128 and BLOCK_K 128 (scales by words of four).
SWAP 1 makes weights the left operand ([BLOCK_N, BLOCK_M] accumulators): few tokens then fill the narrow side.
"""

import os

import triton
import triton.language as tl

# The interpreter runs no machine instructions.
MACHINE = tl.constexpr(os.environ.get("TRITON_INTERPRET") != "1")

# Four e4m3 codes and four bf16 factors -> four bf16. Exponent and mantissa of a code, moved into bf16's places, are
# its value times 2^-120, subnormals too; the factor makes up for it.
DEQUANTISE = tl.constexpr("""{
.reg .b32 low, high, low_rest, high_rest;
prmt.b32 low, $2, 0, 0x1404;
prmt.b32 high, $2, 0, 0x3424;
shr.u32 low_rest, low, 4;
shr.u32 high_rest, high, 4;
and.b32 low_rest, low_rest, 0x07f007f0;
and.b32 high_rest, high_rest, 0x07f007f0;
lop3.b32 low, low, 0x80008000, low_rest, 0xea;
lop3.b32 high, high, 0x80008000, high_rest, 0xea;
mul.bf16x2 $0, low, $3;
mul.bf16x2 $1, high, $4;
}""")


@triton.jit
def scale_factor(scales):
    """bf16 2^(scale - 127 + 120) of UE8M0 bytes held in u32; infinity above 134."""
    return (tl.minimum(scales + 120, 255) << 7).to(tl.uint16).to(tl.bfloat16, bitcast=True)


@triton.jit
def dequantise(codes, factors):
    """bf16 from e4m3 codes (u8) and factors of `scale_factor`, of one shape."""
    if MACHINE:
        return tl.inline_asm_elementwise(
            DEQUANTISE, "=r,=r,r,r,r", [codes, factors], dtype=tl.bfloat16, is_pure=True, pack=4
        )
    wide = codes.to(tl.uint32)
    bits = ((wide & 0x80) << 24) | ((wide & 0x7F) << 20)
    return (bits.to(tl.float32, bitcast=True) * factors.to(tl.float32)).to(tl.bfloat16)


@triton.jit
def load_weights(
    w, scales, rows, k, limit, K, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, FORMAT: tl.constexpr
):
    """bf16 [BLOCK_N, BLOCK_K] from columns k .. k + BLOCK_K; zeros from `limit` on. `rows` i64 [BLOCK_N], all inside."""
    columns = k + tl.arange(0, BLOCK_K)
    inside = (columns < limit)[None, :]
    places = w + rows[:, None] * K + columns[None, :]
    if FORMAT == 0:
        return tl.load(places, mask=inside, other=0.0)
    GROUPS: tl.constexpr = BLOCK_K // 32
    groups = tl.arange(0, GROUPS)
    codes = tl.load(places, mask=inside, other=0)
    if FORMAT == 2:
        tl.static_assert(BLOCK_K == 128)
        words = tl.load(scales.to(tl.pointer_type(tl.uint32)) + rows * (K // 128) + k // 128)
        bytes = (words[:, None] >> (8 * groups)[None, :]) & 0xFF
    else:
        there = (k // 32 + groups < limit // 32)[None, :]
        bytes = tl.load(scales + rows[:, None] * (K // 32) + (k // 32 + groups)[None, :], mask=there, other=0).to(tl.uint32)
    factors = scale_factor(bytes)
    wide = tl.broadcast_to(factors[:, :, None], (BLOCK_N, GROUPS, 32)).reshape(BLOCK_N, BLOCK_K)
    return dequantise(codes, wide)


@triton.jit
def tile_product(
    x,
    x_rows,
    x_valid,
    w,
    scales,
    w_rows,
    k_begin,
    k_end,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    FORMAT: tl.constexpr,
    SWAP: tl.constexpr,
):
    """float32 [BLOCK_M, BLOCK_N], or [BLOCK_N, BLOCK_M] when SWAP, over columns k_begin .. k_end.

    `x_rows`, `w_rows`: i64 row numbers; `k_begin` divides by BLOCK_K.
    """
    if SWAP:
        acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    else:
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(k_begin, k_end, BLOCK_K):
        weights = load_weights(w, scales, w_rows, k, k_end, K, BLOCK_N, BLOCK_K, FORMAT)
        columns = k + tl.arange(0, BLOCK_K)
        if SWAP:
            places = x + x_rows[None, :] * K + columns[:, None]
            values = tl.load(places, mask=x_valid[None, :] & (columns < k_end)[:, None], other=0.0)
            acc = tl.dot(weights, values, acc)
        else:
            places = x + x_rows[:, None] * K + columns[None, :]
            values = tl.load(places, mask=x_valid[:, None] & (columns < k_end)[None, :], other=0.0)
            acc = tl.dot(values, weights.T, acc)
    return acc


@triton.jit
def split_range(K, split, splits, BLOCK_K: tl.constexpr):
    """Columns of one of `splits` parts of K: whole blocks, the same whatever the number of rows."""
    blocks = tl.cdiv(tl.cdiv(K, BLOCK_K), splits)
    begin = split * blocks * BLOCK_K
    return begin, tl.minimum(begin + blocks * BLOCK_K, K)


@triton.jit
def sum_parts(acc, partials, places, stride, valid, counter, split, splits, SHAPE_0: tl.constexpr, SHAPE_1: tl.constexpr):
    """Leaves this part in `partials`; whoever comes last adds all parts in their order.

    `partials` f32, part p at `p * stride + places`. Returns (is last, sum). The counter is back at zero afterwards. The
    order of the sum is fixed, whoever comes last.
    """
    tl.store(partials + split * stride + places, acc, mask=valid)
    tl.debug_barrier()
    last = tl.atomic_add(counter, 1, sem="acq_rel") == splits - 1
    total = tl.zeros((SHAPE_0, SHAPE_1), dtype=tl.float32)
    if last:
        tl.debug_barrier()
        # Unrolled, so that several parts are under way at once.
        for part in tl.range(0, splits, loop_unroll_factor=4):
            total += tl.load(partials + part * stride + places, mask=valid, other=0.0, cache_modifier=".cg")
        tl.store(counter, 0)
    return last, total
