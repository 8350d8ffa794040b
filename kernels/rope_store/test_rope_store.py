"""Rotation, per-head norm and page writes in Triton's interpreter, against float64."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np  # noqa: E402

from interpret import Tensor, bf16, f32, launch, round_bf16  # noqa: E402
from paged_reference import cases, run_tests  # noqa: E402
from rope_store import norm_rope_store, rope_angles  # noqa: E402

THETA = 5e6
EPS = 1e-6


def frequencies(rotary):
    return (THETA ** (-2.0 * np.arange(rotary // 2) / rotary)).astype(np.float32)


def angles_of(positions, rotary):
    angle = (positions.astype(np.float32)[:, None] * frequencies(rotary)[None]).astype(np.float64)
    return np.concatenate([np.cos(angle), np.sin(angle)], 1)


def normed_and_rotated(heads, weight, angles, rotary):
    heads = heads.astype(np.float64)
    heads = heads / np.sqrt((heads**2).mean(-1, keepdims=True) + EPS) * (1.0 + weight.astype(np.float64))
    half = rotary // 2
    cos, sin = angles[:, None, :half], angles[:, None, half:]
    left, right = heads[..., :half], heads[..., half:rotary]
    return np.concatenate([left * cos - right * sin, right * cos + left * sin, heads[..., rotary:]], -1)


@cases((64,), (16,))
def test_angles_up_to_the_last_position(rotary):
    positions = np.array([0, 1, 127, 128, 2047, 65_535, 1_000_003, 1_048_575, 5], dtype=np.int32)
    out = Tensor.poisoned((len(positions), rotary), np.float32)
    launch(
        rope_angles, (3,), Tensor(positions), Tensor(frequencies(rotary)), out, len(positions), ROTARY=rotary, BLOCK_T=4
    )
    assert np.abs(out.array - angles_of(positions, rotary)).max() < 1e-7


def check_store(heads, dim, rotary, page, tokens, block_t):
    query_heads, kv_heads, index_heads = heads
    random = np.random.default_rng(tokens * 7 + dim)
    width = query_heads + 2 * kv_heads + (index_heads + 1 if index_heads else 0)
    qkv = round_bf16(random.standard_normal((tokens, width, dim)) * 3)
    norms = [round_bf16(random.standard_normal(dim) * 0.3) for _ in range(4)]
    positions = random.integers(0, 1 << 20, tokens).astype(np.int32)
    slots = random.permutation(tokens * 3)[:tokens].astype(np.int64)
    if tokens > 1:
        slots[tokens // 2] = -1
    angles = angles_of(positions, rotary)
    num_pages = -(-tokens * 3 // page)
    queries = Tensor.poisoned((tokens, query_heads, dim), bf16)
    index_queries = Tensor.poisoned((tokens, max(index_heads, 1), dim), bf16)
    pages = [Tensor.poisoned((num_pages, count, page, dim), bf16) for count in (kv_heads, kv_heads, 1)]
    launch(
        norm_rope_store, (-(-tokens // block_t), width), Tensor(qkv.astype(bf16)), Tensor(angles.astype(np.float32)),
        Tensor(slots), *[Tensor(norm.astype(bf16)) for norm in norms], queries, index_queries, *pages, tokens,
        query_heads, kv_heads, index_heads, EPS, HEAD_DIM=dim, ROTARY=rotary, PAGE=page, BLOCK_T=block_t,
    )  # fmt: skip

    def close(actual, expected):
        assert np.abs(f32(actual) - expected).max() < 2**-8 * np.abs(expected).max()

    parts = np.split(qkv, np.cumsum([query_heads, kv_heads, kv_heads, index_heads]), axis=1)
    close(queries.array, normed_and_rotated(parts[0], norms[0], angles, rotary))
    stored = slots >= 0
    lanes = [normed_and_rotated(parts[1], norms[1], angles, rotary), parts[2]]
    if index_heads:
        close(index_queries.array, normed_and_rotated(parts[3], norms[2], angles, rotary))
        lanes.append(normed_and_rotated(parts[4], norms[3], angles, rotary))
    for lane, expected in zip(pages, lanes):
        at = lane.array[slots[stored] // page, :, slots[stored] % page]
        close(at, expected[stored])
        assert np.isfinite(f32(lane.array)).sum() == f32(at).size, "a slot that nobody owns was written"
    if not index_heads:
        assert np.isnan(f32(pages[2].array)).all() and np.isnan(f32(index_queries.array)).all()


@cases((1, 1), (3, 1), (17, 16), (16, 16), (33, 16))
def test_a_sparse_layer_of_a_rank(tokens, block_t):
    check_store((8, 1, 1), 128, 64, 128, tokens, block_t)


@cases(((64, 4, 4), 128, 64, 128), ((8, 4, 0), 128, 64, 128), ((8, 2, 2), 32, 16, 16), ((8, 2, 0), 32, 16, 128))
def test_other_head_counts_and_dense_layers(heads, dim, rotary, page):
    check_store(heads, dim, rotary, page, 5, 4)


def test_dims_after_the_rotary_width_are_only_normed():
    angle = angles_of(np.array([1_048_575]), 64)
    heads = round_bf16(np.random.default_rng(1).standard_normal((1, 1, 128)))
    still = normed_and_rotated(heads, np.zeros(128), angles_of(np.array([0]), 64), 64)
    moved = normed_and_rotated(heads, np.zeros(128), angle, 64)
    assert (still[..., 64:] == moved[..., 64:]).all() and (still[..., :64] != moved[..., :64]).any()


if __name__ == "__main__":
    run_tests(globals())
