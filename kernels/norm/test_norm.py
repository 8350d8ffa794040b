"""Norms in the interpreter against numpy."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from interpret import Tensor, bf16, launch, round_bf16  # noqa: E402

import numpy as np  # noqa: E402
from gemm.reference import assert_close, random_bf16  # noqa: E402
from norm.norm import add_norm, gather_norm  # noqa: E402

EPS = 1e-6


def wanted_norm(values, weight):
    values = values.astype(np.float64)
    scale = 1 / np.sqrt((values**2).mean(-1, keepdims=True) + EPS)
    return values * scale * (1 + weight.astype(np.float64))


def inputs(random, rows, hidden):
    weight = random_bf16(random, (hidden,), 0.2)
    return random_bf16(random, (rows, hidden)), random_bf16(random, (rows, hidden)), weight


def test_add_norm():
    random = np.random.default_rng(10)
    for rows, hidden in ((1, 64), (3, 6144), (5, 256)):
        residual, pending, weight = inputs(random, rows, hidden)
        kept, out = Tensor(residual), Tensor.poisoned((rows, hidden), bf16)
        launch(add_norm, (rows,), kept, Tensor(pending), Tensor(weight), out, EPS, HIDDEN=hidden, HAS_PENDING=1)
        summed = round_bf16(residual.astype(np.float32) + pending.astype(np.float32))
        assert (kept.f32() == summed).all()
        assert_close(out.f32(), wanted_norm(summed, weight), 3e-3, f"add_norm {rows, hidden}")


def test_first_norm_leaves_the_residual():
    random = np.random.default_rng(11)
    residual, _, weight = inputs(random, 2, 128)
    kept, out = Tensor(residual), Tensor.poisoned((2, 128), bf16)
    launch(add_norm, (2,), kept, None, Tensor(weight), out, EPS, HIDDEN=128, HAS_PENDING=0)
    assert (kept.array == residual).all()
    assert_close(out.f32(), wanted_norm(residual, weight), 3e-3, "first norm")


def test_gather_norm():
    random = np.random.default_rng(12)
    residual, pending, weight = inputs(random, 6, 64)
    tokens = np.array([5, 0, -1, 3], np.int32)
    out = Tensor.poisoned((4, 64), bf16)
    launch(
        gather_norm, (4,), Tensor(residual), Tensor(pending), Tensor(weight), Tensor(tokens), out, EPS, HIDDEN=64,
    )
    summed = round_bf16(residual.astype(np.float32) + pending.astype(np.float32))
    wanted = wanted_norm(summed, weight)[tokens]
    wanted[2] = 0
    assert_close(out.f32(), wanted, 3e-3, "gather_norm")
    assert not out.f32()[2].any()


if __name__ == "__main__":
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print(f"{name}: passed in the interpreter")
