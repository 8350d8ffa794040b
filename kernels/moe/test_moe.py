"""The whole mixture of experts in the interpreter against numpy: grouping, products, combine; and the dense MLP."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from interpret import Tensor, bf16, launch, round_bf16  # noqa: E402

import numpy as np  # noqa: E402
from gemm.reference import assert_close, random_bf16, random_mxfp8, swiglu  # noqa: E402
from moe.moe import moe_combine, moe_down, moe_up  # noqa: E402
from router.router import group_rows  # noqa: E402

TOP_K = 4
SCALING = 2.0


def random_weights(random, groups, rows, columns, form):
    """(w, scales, values [groups, rows, columns])."""
    if form == 0:
        weights = random_bf16(random, (groups, rows, columns), columns**-0.5)
        return Tensor(weights), None, weights.astype(np.float32)
    codes, scales, values = random_mxfp8(random, groups * rows, columns)
    return Tensor(codes), Tensor(scales), values.reshape(groups, rows, columns)


def wanted_moe(x, ids, weights, up, down, I):
    T, N = len(x), down.shape[1]
    out = np.zeros((T, N), np.float32)
    for token in range(T):
        if ids[token, 0] < 0:
            continue
        def expert(index):
            inner = up[index] @ x[token]
            return round_bf16(down[index] @ round_bf16(swiglu(inner[:I], inner[I:])))
        routed = sum(weights[token, choice] * expert(ids[token, choice]) for choice in range(TOP_K))
        out[token] = SCALING * routed + expert(len(up) - 1)
    return out


def run_moe(random, T, E, K, I, form, swap, splits, block_m, ids=None, live=None):
    live = T if live is None else live
    if ids is None:
        ids = np.stack([np.sort(random.permutation(E)[:TOP_K]) for _ in range(T)]).astype(np.int32)
        ids[live:] = -1
    weights = random.random((T, TOP_K), dtype=np.float32)
    weights /= weights.sum(1, keepdims=True)
    weights[live:] = 0
    x = random_bf16(random, (T, K))
    up_w, up_s, up = random_weights(random, E + 1, 2 * I, K, form)
    down_w, down_s, down = random_weights(random, E + 1, K, I, form)
    offsets = Tensor.poisoned((E + 2,), np.int32)
    rows = Tensor.poisoned((T * (TOP_K + 1),), np.int32)
    launch(group_rows, (E + 1,), Tensor(ids), offsets, rows, T, E, TOP_K=TOP_K, BLOCK=32)
    places = T * (TOP_K + 1)
    max_tiles = min(places, E + 1 + places // block_m)
    inner = Tensor.poisoned((places, I), bf16)
    tiles_i = -(-I // 32)
    partials = Tensor.poisoned((splits, max_tiles * block_m, 2 * I), np.float32) if splits > 1 else None
    counters = Tensor(np.zeros(tiles_i * max_tiles, np.int32)) if splits > 1 else None
    block_k = 128 if form == 2 else 64
    launch(
        moe_up, (tiles_i * max_tiles, splits), Tensor(x), up_w, up_s, offsets, rows, inner, partials, counters, T, K, I, E + 1,
        1.702, 7.0, BLOCK_M=block_m, BLOCK_I=32, BLOCK_K=block_k, BLOCK_E=32, TOP_K=TOP_K, FORMAT=form, SWAP=swap,
        SPLIT=1,
    )
    assert counters is None or not counters.array.any()
    y = Tensor.poisoned((places, K), bf16)
    launch(
        moe_down, (-(-K // 64) * max_tiles,), inner, down_w, down_s, offsets, rows, y, K, I, E + 1, BLOCK_M=block_m, BLOCK_N=64,
        BLOCK_K=block_k, BLOCK_E=32, FORMAT=form, SWAP=swap,
    )
    pending = Tensor.poisoned((T, K), bf16)
    launch(
        moe_combine, (T, -(-K // 128)), y, Tensor(ids), Tensor(weights), pending, T, K, SCALING, TOP_K=TOP_K, SHARED=1, BLOCK=128,
    )
    wanted = wanted_moe(x.astype(np.float32), ids, weights, up, down, I)
    assert_close(pending.f32(), wanted, 8e-3, f"moe T={T} E={E} K={K} I={I} format={form} swap={swap} splits={splits}")
    assert not pending.f32()[live:].any()


def test_random_routes():
    random = np.random.default_rng(6)
    for T, E, K, I, form, swap, splits, block_m in (
        (1, 8, 64, 32, 0, 1, 1, 16),
        (3, 8, 128, 64, 0, 1, 2, 16),
        (20, 5, 64, 32, 0, 0, 1, 16),
        (2, 12, 128, 64, 1, 1, 1, 16),
        (7, 8, 96, 32, 1, 1, 2, 16),
        (18, 5, 256, 128, 2, 1, 2, 32),
        (9, 8, 256, 128, 2, 0, 1, 16),
    ):
        run_moe(random, T, E, K, I, form, swap, splits, block_m)


def test_all_tokens_on_the_same_experts():
    random = np.random.default_rng(7)
    ids = np.tile(np.array([[0, 2, 3, 7]], np.int32), (37, 1))
    run_moe(random, 37, 8, 64, 32, 0, 1, 1, 16, ids=ids)


def test_padding_reads_no_expert():
    random = np.random.default_rng(8)
    run_moe(random, 6, 8, 64, 32, 0, 1, 1, 16, live=2)
    run_moe(random, 3, 8, 64, 32, 0, 1, 1, 16, live=0)


def test_dense_mlp_is_one_expert():
    random = np.random.default_rng(9)
    T, K, I = 21, 128, 80
    x = random_bf16(random, (T, K))
    w, _, values = random_weights(random, 1, 2 * I, K, 0)
    inner = Tensor.poisoned((T, I), bf16)
    launch(
        moe_up, (3 * 2, 1), Tensor(x), w, None, Tensor(np.array([0, T], np.int32)), Tensor(np.arange(T, dtype=np.int32)), inner,
        None, None, T, K, I, 1, 1.702, 7.0, BLOCK_M=16, BLOCK_I=32, BLOCK_K=64, BLOCK_E=32, TOP_K=1, FORMAT=0, SWAP=1, SPLIT=0,
    )
    wanted = x.astype(np.float32) @ values[0].T
    assert_close(inner.f32(), swiglu(wanted[:, :I], wanted[:, I:]), 3e-3, "dense mlp")


if __name__ == "__main__":
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print(f"{name}: passed in the interpreter")
