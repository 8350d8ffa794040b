"""gemm in the interpreter against numpy: both orientations, formats, splits, ragged edges."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from interpret import Tensor, bf16, launch  # noqa: E402  (first: it switches the interpreter on)

import numpy as np  # noqa: E402
from gemm.gemm import gemm  # noqa: E402
from gemm.reference import assert_close, random_bf16, random_mxfp8  # noqa: E402

CASES = [
    # M, N, K, FORMAT, SWAP, splits, BLOCK_M, BLOCK_N, BLOCK_K
    (1, 64, 32, 0, 1, 1, 16, 64, 128),
    (1, 96, 512, 0, 1, 3, 16, 64, 128),
    (17, 80, 384, 0, 1, 2, 16, 64, 128),
    (33, 144, 160, 0, 0, 1, 32, 64, 64),
    (130, 272, 64, 0, 0, 1, 64, 128, 64),
    (5, 64, 32, 1, 1, 1, 16, 64, 128),
    (3, 96, 96, 1, 1, 2, 16, 64, 64),
    (16, 80, 512, 2, 1, 4, 16, 64, 128),
    (40, 144, 256, 2, 0, 1, 32, 64, 128),
    (64, 64, 640, 2, 1, 5, 64, 64, 128),
]


def run(case, out_f32, random):
    M, N, K, form, swap, splits, block_m, block_n, block_k = case
    x = random_bf16(random, (M, K))
    if form == 0:
        weights = random_bf16(random, (N, K), 0.1)
        w, scales, values = Tensor(weights), None, weights.astype(np.float32)
    else:
        codes, scale_bytes, values = random_mxfp8(random, N, K)
        w, scales = Tensor(codes), Tensor(scale_bytes)
    out = Tensor.poisoned((M, N), np.float32 if out_f32 else bf16)
    tiles = -(-M // block_m) * -(-N // block_n)
    partials = Tensor.poisoned((splits, M, N), np.float32) if splits > 1 else None
    counters = Tensor(np.zeros(tiles, np.int32)) if splits > 1 else None
    for _ in range(2):  # Counters must be back at zero.
        launch(
            gemm, (tiles, splits), Tensor(x), w, scales, out, partials, counters, M, N, K, BLOCK_M=block_m,
            BLOCK_N=block_n, BLOCK_K=block_k, GROUP_M=2, FORMAT=form, SWAP=swap, SPLIT=1, OUT_F32=out_f32,
        )
    if counters is not None:
        assert not counters.array.any()
    return out.f32(), x.astype(np.float32) @ values.T


def test_products():
    random = np.random.default_rng(1)
    for case in CASES:
        for out_f32 in (0, 1):
            result, wanted = run(case, out_f32, random)
            assert_close(result, wanted, 1e-6 if out_f32 else 3e-3, f"gemm {case} f32={out_f32}")


def test_rows_do_not_depend_on_their_number():
    random = np.random.default_rng(2)
    N, K = 64, 384
    x = random_bf16(random, (20, K))
    w = Tensor(random_bf16(random, (N, K), 0.1))
    results = []
    for M in (1, 20):
        out = Tensor.poisoned((M, N), np.float32)
        counters = Tensor(np.zeros(2, np.int32))
        launch(
            gemm, (-(-M // 16), 3), Tensor(x[:M]), w, None, out, Tensor.poisoned((3, M, N), np.float32), counters, M, N, K,
            BLOCK_M=16, BLOCK_N=64, BLOCK_K=128, GROUP_M=8, FORMAT=0, SWAP=1, SPLIT=1, OUT_F32=1,
        )
        results.append(out.array[0].copy())
    assert np.allclose(results[0], results[1], rtol=1e-6, atol=1e-6)


def test_scales_at_their_limits():
    """2^7 is the largest exact scale; above it results are infinite, not wrong."""
    codes = np.full((64, 32), 0x38, np.uint8)
    codes[:, 1:] = 0
    scales = np.full((64, 1), 127, np.uint8)
    scales[:4, 0] = (134, 0, 120, 135)
    x = np.zeros((1, 32), np.float32)
    x[0, 0] = 1
    out = Tensor.poisoned((1, 64), np.float32)
    launch(
        gemm, (1, 1), Tensor(x.astype(bf16)), Tensor(codes), Tensor(scales), out, None, None, 1, 64, 32, BLOCK_M=16,
        BLOCK_N=64, BLOCK_K=32, GROUP_M=8, FORMAT=1, SWAP=1, SPLIT=0, OUT_F32=1,
    )
    assert out.array[0, 0] == 128 and out.array[0, 2] == 0.0078125 and out.array[0, 4] == 1
    assert not np.isfinite(out.array[0, 3])


if __name__ == "__main__":
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print(f"{name}: passed in the interpreter")
