"""stream.cu, compiled for the CPU, against numpy: both formats, one and two runs of tokens, ragged and empty experts."""

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

TOP_K = 4
POINTERS = ["x", "w_up", "w_down", "inner", "y", "scales_up", "scales_down", "offsets", "rows"]
NUMBERS = ["T", "K", "I", "groups", "max_tiles"]


class Arguments(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in POINTERS] + [(name, ctypes.c_int32) for name in NUMBERS]


def build(form, runs):
    library = Path(tempfile.mkdtemp()) / "stream.so"
    subprocess.run(
        ["g++", "-O1", "-std=c++17", "-ffp-contract=off", "-Wno-unknown-pragmas", "-shared", "-fPIC", f"-DFORMAT={form}", f"-DNT={runs}",
         "-o", library, FOLDER / "host_entry.cpp"],
        check=True,
    )
    return ctypes.CDLL(str(library))


def aligned(array):
    """A copy at an address that divides by 16, as device memory does."""
    memory = np.zeros(array.nbytes + 16, np.uint8)
    start = -memory.ctypes.data % 16
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def weights(random, groups, rows, columns, form):
    if form == 0:
        w = random_bf16(random, (groups, rows, columns), columns**-0.5)
        return aligned(w), np.zeros(4, np.uint8), w.astype(np.float32)
    codes, scales, values = random_mxfp8(random, groups * rows, columns)
    return aligned(codes), aligned(scales), values.reshape(groups, rows, columns)


def group(ids, E):
    flat = ids.ravel()
    T = len(ids)
    rows = np.concatenate([np.argsort(flat, kind="stable"), T * TOP_K + np.arange(T)]).astype(np.int32)
    counts = np.concatenate([np.bincount(flat, minlength=E), [T]])
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int32), rows


def check(library, form, runs, ids, E, K, I, random):
    T = len(ids)
    offsets, rows = group(ids, E)
    x = aligned(random_bf16(random, (T, K)))
    w_up, scales_up, up = weights(random, E + 1, 2 * I, K, form)
    w_down, scales_down, down = weights(random, E + 1, K, I, form)
    inner = aligned(np.full((len(rows), I), np.nan, ml_dtypes.bfloat16))
    y = aligned(np.full((len(rows), K), np.nan, ml_dtypes.bfloat16))
    arrays = dict(x=x, w_up=w_up, w_down=w_down, inner=inner, y=y, scales_up=scales_up, scales_down=scales_down, offsets=offsets, rows=rows)
    arguments = Arguments(
        **{name: array.ctypes.data for name, array in arrays.items()}, T=T, K=K, I=I, groups=E + 1,
        max_tiles=E + 2 + len(rows) // (8 * runs),
    )
    library.run_stream(ctypes.byref(arguments))
    token = np.where(rows < T * TOP_K, rows // TOP_K, rows - T * TOP_K)
    expert = np.repeat(np.arange(E + 1), np.diff(offsets))
    products = np.einsum("pnk,pk->pn", up[expert], x.astype(np.float32)[token])
    assert_close(inner.astype(np.float32), swiglu(products[:, :I], products[:, I:]), 3e-3, f"up, format {form}, {T} tokens")
    wanted = np.zeros((len(rows), K), np.float32)
    wanted[rows] = np.einsum("pnk,pk->pn", down[expert], inner.astype(np.float32))
    assert_close(y.astype(np.float32), wanted, 3e-3, f"down, format {form}, {T} tokens")


def test_streams():
    random = np.random.default_rng(30)
    for form in (0, 2):
        for runs in (1, 2):
            library = build(form, runs)
            for T, E in ((1, 8), (11, 5)):
                ids = np.stack([np.sort(random.permutation(E)[:TOP_K]) for _ in range(T)]).astype(np.int32)
                check(library, form, runs, ids, E, 256, 128, random)
            same = np.tile(np.array([[0, 2, 3, 7]], np.int32), (9, 1))
            check(library, form, runs, same, 40, 256, 128, random)


if __name__ == "__main__":
    test_streams()
    print("test_streams: passed on the CPU")
