"""The streaming products, compiled for the CPU, against numpy. Needs g++."""

import ctypes
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))

import ml_dtypes  # noqa: E402
import numpy as np  # noqa: E402
from gemm.reference import assert_close, random_bf16, random_mxfp8, swiglu  # noqa: E402

ROWS = 16
POINTERS = ["x", "w", "scales", "offsets", "rows", "out"]
NUMBERS = ["T", "N", "K", "groups", "top_k", "blocks"]
#: Weight tiles of a warp, as manifest.toml has them.
TILES = 2


class Arguments(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in POINTERS] + [(name, ctypes.c_int32) for name in NUMBERS]


def build():
    library = Path(tempfile.mkdtemp()) / "stream.so"
    command = ["g++", "-O2", "-std=c++17", "-Wno-unknown-pragmas", f"-DTILES={TILES}", "-shared", "-fPIC"]
    subprocess.run([*command, "-o", library, FOLDER / "host_entry.cpp"], check=True)
    return ctypes.CDLL(str(library))


LIBRARY = build()


def run(function, arrays, **numbers):
    missing = {name: np.zeros(1, np.int32) for name in POINTERS if name not in arrays}
    pointers = {name: array.ctypes.data for name, array in {**arrays, **missing}.items()}
    function(ctypes.byref(Arguments(**pointers, **{name: numbers.get(name, 0) for name in NUMBERS})))


def aligned(array):
    """A copy on a 16-byte boundary, as device memory is."""
    space = np.empty(array.nbytes + 16, np.uint8)
    start = -space.ctypes.data % 16
    copy = space[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def poisoned(shape):
    return np.full(shape, np.nan, ml_dtypes.bfloat16)


def routes(random, tokens, experts, top_k):
    """(offsets, rows) as router.group_rows makes them, the shared expert last; and which expert each place belongs to."""
    ids = [sorted(random.permutation(experts)[:top_k]) for _ in range(tokens)]
    rows, offsets = [], [0]
    for expert in range(experts):
        rows += [token * top_k + choice for token in range(tokens) for choice in range(top_k) if ids[token][choice] == expert]
        offsets.append(len(rows))
    rows += [tokens * top_k + token for token in range(tokens)]
    offsets.append(len(rows))
    return np.array(offsets, np.int32), np.array(rows, np.int32), np.repeat(np.arange(experts + 1), np.diff(offsets))


def moe(seed, tokens, experts, top_k, K, I):
    random = np.random.default_rng(seed)
    offsets, rows, of = routes(random, tokens, experts, top_k) if experts else (
        np.array([0, tokens], np.int32), np.arange(tokens, dtype=np.int32), np.zeros(tokens, int))
    groups, places = experts + 1, len(rows)
    token_of = np.where(rows < tokens * top_k, rows // max(top_k, 1), rows - tokens * top_k)
    most_tiles = (places + groups * (ROWS - 1)) // ROWS
    x = random_bf16(random, (tokens, K))
    codes, scales, values = random_mxfp8(random, groups * 2 * I, K)
    up = values.reshape(groups, 2 * I, K)
    inner = poisoned((places, I))
    run(LIBRARY.run_up, {"x": aligned(x), "w": aligned(codes), "scales": aligned(scales), "offsets": offsets, "rows": rows, "out": inner},
        T=tokens, N=I, K=K, groups=groups, top_k=max(top_k, 1), blocks=I // (8 * TILES) * most_tiles)
    both = np.einsum("prk,pk->pr", up[of], x.astype(np.float32)[token_of])
    name = f"tokens={tokens} experts={experts} K={K} I={I}"
    assert_close(inner.astype(np.float32), swiglu(both[:, :I], both[:, I:]), 4e-3, f"up {name}")

    codes, scales, values = random_mxfp8(random, groups * K, I)
    down = values.reshape(groups, K, I)
    x = random_bf16(random, (places, I))
    y = poisoned((places, K))
    run(LIBRARY.run_down, {"x": aligned(x), "w": aligned(codes), "scales": aligned(scales), "offsets": offsets, "rows": rows, "out": y},
        N=K, K=I, groups=groups, blocks=-(-K // (128 * TILES)) * most_tiles)
    wanted = np.empty((places, K), np.float32)
    wanted[rows] = np.einsum("pnk,pk->pn", down[of], x.astype(np.float32))
    assert_close(y.astype(np.float32), wanted, 4e-3, f"down {name}")


def test_experts_with_one_few_and_many_rows():
    moe(1, tokens=1, experts=8, top_k=4, K=128, I=128)
    moe(2, tokens=5, experts=8, top_k=4, K=256, I=128)
    # Tiles of more than eight rows, and more than one tile an expert.
    moe(3, tokens=40, experts=5, top_k=4, K=128, I=128)


def test_more_steps_than_warps_and_columns_that_fill_no_block():
    moe(4, tokens=2, experts=3, top_k=2, K=9 * 128 + 128, I=128)
    # 144 output columns: the second warp's second tile is beyond the last.
    random = np.random.default_rng(5)
    for tokens, N in ((3, 144), (16, 48)):
        gemm(random, tokens, N, 384)


def test_a_dense_mlp_is_one_group():
    moe(6, tokens=11, experts=0, top_k=0, K=256, I=384)


def gemm(random, tokens, N, K):
    x = random_bf16(random, (tokens, K))
    codes, scales, values = random_mxfp8(random, N, K)
    out = poisoned((tokens, N))
    run(LIBRARY.run_gemm, {"x": aligned(x), "w": aligned(codes), "scales": aligned(scales), "out": out}, T=tokens, N=N, K=K,
        blocks=-(-N // (16 * TILES)) * -(-tokens // ROWS))
    assert_close(out.astype(np.float32), x.astype(np.float32) @ values.T, 4e-3, f"gemm {tokens} x {N} x {K}")


def test_plain_products_with_more_rows_than_a_tile():
    random = np.random.default_rng(7)
    gemm(random, 1, 32, 128)
    gemm(random, 21, 64, 256)


def test_scales_beyond_bf16_give_infinity_never_a_wrong_number():
    random = np.random.default_rng(8)
    x = np.ones((1, 128), ml_dtypes.bfloat16)
    codes = np.full((16, 128), 0x38, np.uint8)
    scales = random.integers(112, 124, (16, 4), dtype=np.uint8)
    scales[3, 1] = 135
    out = poisoned((1, 16))
    run(LIBRARY.run_gemm, {"x": aligned(x), "w": aligned(codes), "scales": aligned(scales), "out": out}, T=1, N=16, K=128, blocks=1)
    wanted = (32 * np.exp2(scales.astype(np.float32) - 127)).sum(1)
    wanted[3] = np.inf
    np.testing.assert_allclose(out.astype(np.float32)[0], wanted, rtol=4e-3)


if __name__ == "__main__":
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print(f"{name}: passed on the CPU")
