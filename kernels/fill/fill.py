"""Synthetic weights, filled on the device: the same values on every backend for the same seed. Bound: memory.

Word `i` (32 bits) of chunk `c` (4,096 words) is `mix(seed + (c + 1) * STEP + (i + 1) * STEP)`, 64-bit, where

    mix(s) = t ^ (t >> 29),  t = (s ^ (s >> 30)) * MULTIPLIER

A float32 takes the low 16 bits, a bf16 pair the low and the next 16, each uniform in -sqrt(3) .. sqrt(3) times `deviation`
(which the host chooses by tensor); four e4m3 codes take the low 32 as signs and magnitude codes 0x20 .. 0x3f.
"""

import triton
import triton.language as tl

STEP = tl.constexpr(0x9E3779B97F4A7C15)
MULTIPLIER = tl.constexpr(0xBF58476D1CE4E5B9)
CHUNK_WORDS = tl.constexpr(4096)


@triton.jit
def _uniform(bits, deviation):
    """float32 from 16 bits."""
    return ((bits & 0xFFFF).to(tl.float32) / 32768.0 - 1.0) * 1.732 * deviation


@triton.jit
def _rounded(value):
    """Bits of bf16, nearest even, in the low half of a u32."""
    bits = value.to(tl.uint32, bitcast=True)
    return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16


@triton.jit
def fill_synthetic(out, words, seed, deviation, KIND: tl.constexpr, BLOCK: tl.constexpr):
    """`out` as u32 [words] (i64; the last word of an odd tensor is whole, so memory is padded to 4 bytes).

    KIND 0 = float32, 1 = bf16, 2 = e4m3 codes. `seed` i64 bits of the tensor's seed. Grid (ceil(words / BLOCK),).
    """
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    steps = (index // CHUNK_WORDS + index % CHUNK_WORDS + 2).to(tl.uint64)
    state = seed.to(tl.uint64) + steps * STEP
    mixed = (state ^ (state >> 30)) * MULTIPLIER
    mixed = mixed ^ (mixed >> 29)
    low = (mixed & 0xFFFFFFFF).to(tl.uint32)
    if KIND == 0:
        word = _uniform(low, deviation).to(tl.uint32, bitcast=True)
    elif KIND == 1:
        word = _rounded(_uniform(low, deviation)) | (_rounded(_uniform(low >> 16, deviation)) << 16)
    else:
        word = (low & 0x9F9F9F9F) | 0x20202020
    tl.store(out + index, word, mask=index < words)
