"""Router kernels in the interpreter: logits, choice with ties and NaN, grouping with empty and full experts."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from interpret import Tensor, launch  # noqa: E402

import numpy as np  # noqa: E402
from gemm.reference import assert_close, random_bf16  # noqa: E402
from router.router import group_rows, router_choose, router_logits  # noqa: E402

TOP_K = 4


def choose(logits, bias, live=None, parts=1, offsets=None, rows=None):
    T, E = logits.shape
    live = T if live is None else live
    partials = np.zeros((parts, T, E), np.float32)
    partials[0] = logits
    scores = Tensor.poisoned((T, E), np.float32)
    ids = Tensor.poisoned((T, TOP_K), np.int32)
    weights = Tensor.poisoned((T, TOP_K), np.float32)
    launch(
        router_choose, (T,), Tensor(partials), Tensor(bias.astype(np.float32)), Tensor(np.array([live], np.int32)), scores, ids,
        weights, offsets, rows, T, E, parts, BLOCK_E=128, TOP_K=TOP_K,
    )
    return scores.array, ids.array, weights.array


def test_logits_are_float32_products():
    random = np.random.default_rng(3)
    for T, E, K, splits in ((1, 8, 64, 1), (17, 12, 128, 2), (5, 128, 320, 3), (16, 16, 256, 4)):
        x = random_bf16(random, (T, K))
        w = random.standard_normal((E, K), dtype=np.float32)
        partials = Tensor.poisoned((splits, T, E), np.float32)
        launch(
            router_logits, (-(-T // 16), splits), Tensor(x), Tensor(w), partials, T, E, K, BLOCK_T=16, BLOCK_E=128, BLOCK_K=64,
        )
        wanted = x.astype(np.float64) @ w.T.astype(np.float64)
        assert_close(partials.array.sum(0), wanted, 3e-7, f"router logits {T, E, K, splits}")


def test_choice():
    random = np.random.default_rng(4)
    for T, E in ((1, 8), (7, 12), (9, 128)):
        logits = random.standard_normal((T, E)).astype(np.float32)
        bias = random.standard_normal(E) * 0.3
        scores, ids, weights = choose(logits, bias, parts=3)
        wanted = 1 / (1 + np.exp(-logits.astype(np.float64)))
        assert_close(scores, wanted, 1e-6, "scores")
        biased = wanted + bias.astype(np.float32)
        for token in range(T):
            best = np.sort(np.argsort(-biased[token], kind="stable")[:TOP_K])
            assert (ids[token] == best).all()
            assert_close(weights[token], wanted[token][best] / wanted[token][best].sum(), 1e-6, "weights")


def test_ties_go_to_the_lower_expert():
    logits = np.zeros((2, 16), np.float32)
    logits[1, 10:] = 1
    _, ids, weights = choose(logits, np.zeros(16))
    assert ids.tolist() == [[0, 1, 2, 3], [10, 11, 12, 13]]
    assert np.allclose(weights, 0.25)


def test_nan_stays_in_range_and_shows():
    logits = np.full((1, 8), np.nan, np.float32)
    _, ids, weights = choose(logits, np.zeros(8))
    assert ids.tolist() == [[0, 1, 2, 3]] and np.isnan(weights).all()


def test_padding_chooses_nothing():
    _, ids, weights = choose(np.zeros((3, 8), np.float32), np.zeros(8), live=1)
    assert ids.tolist() == [[0, 1, 2, 3], [-1] * 4, [-1] * 4] and not weights[1:].any()


def test_one_token_groups_itself():
    random = np.random.default_rng(6)
    for E, live in ((8, 1), (12, 1), (128, 1), (128, 0)):
        offsets = Tensor.poisoned((E + 2,), np.int32)
        rows = Tensor.poisoned((TOP_K + 1,), np.int32)
        _, ids, _ = choose(random.standard_normal((1, E)).astype(np.float32), np.zeros(E), live, offsets=offsets, rows=rows)
        wanted_offsets, wanted_rows = group(ids, E)
        assert (offsets.array == wanted_offsets).all()
        count = wanted_offsets[-1]
        assert (rows.array[:count] == wanted_rows[:count]).all()


def group(ids, E, block=32):
    T = len(ids)
    offsets = Tensor.poisoned((E + 2,), np.int32)
    rows = Tensor.poisoned((T * (TOP_K + 1),), np.int32)
    launch(group_rows, (E + 1,), Tensor(ids), offsets, rows, T, E, TOP_K=TOP_K, BLOCK=block)
    return offsets.array, rows.array


def test_grouping():
    random = np.random.default_rng(5)
    cases = [(T, E, T) for T, E in ((1, 8), (3, 12), (40, 128), (64, 5))] + [(5, 8, 3)]
    for T, E, live in cases:
        ids = np.stack([np.sort(random.permutation(E)[:TOP_K]) for _ in range(T)]).astype(np.int32)
        ids[live:] = -1
        offsets, rows = group(ids, E)
        flat = ids.ravel()
        start = 0
        for expert in range(E):
            mine = np.flatnonzero(flat == expert)
            assert offsets[expert] == start
            assert (rows[start : start + len(mine)] == mine).all()
            start += len(mine)
        assert offsets[E] == start == live * TOP_K and offsets[E + 1] == start + live
        assert (rows[start : start + live] == T * TOP_K + np.arange(live)).all()


def test_grouping_of_all_tokens_on_one_set():
    ids = np.tile(np.array([[0, 2, 3, 7]], np.int32), (50, 1))
    offsets, rows = group(ids, 8)
    assert offsets.tolist() == [0, 50, 50, 100, 150, 150, 150, 150, 200, 250]
    assert (rows[50:100] == np.arange(50) * TOP_K + 1).all()


if __name__ == "__main__":
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print(f"{name}: passed in the interpreter")
