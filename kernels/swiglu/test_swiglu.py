"""The clamped SwiGLU in the interpreter: check values, random rows, NaN."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from interpret import Tensor, bf16, launch  # noqa: E402

import numpy as np  # noqa: E402
from gemm.reference import assert_close, random_bf16, swiglu as wanted_swiglu  # noqa: E402
from swiglu.swiglu import swiglu  # noqa: E402


def run(gate_up):
    rows, inner = gate_up.shape[0], gate_up.shape[1] // 2
    out = Tensor.poisoned((rows, inner), bf16)
    launch(swiglu, (rows, -(-inner // 64)), Tensor(gate_up.astype(bf16)), out, inner, 1.702, 7.0, BLOCK=64)
    return out.f32()


def test_check_values():
    out = run(np.array([[0, 10, -3, 1, 5, 10, -9, 0]], np.float32))
    assert np.allclose(out[0, :3], [0, 55.999625, 0.108428], rtol=4e-3)


def test_random_rows():
    random = np.random.default_rng(13)
    for rows, inner in ((1, 32), (4, 80), (2, 384)):
        gate_up = random_bf16(random, (rows, 2 * inner), 5.0)
        values = gate_up.astype(np.float32)
        assert_close(run(gate_up), wanted_swiglu(values[:, :inner], values[:, inner:]), 3e-3, f"swiglu {rows, inner}")


def test_nan_goes_through():
    out = run(np.array([[np.nan, 1, 1, np.nan]], np.float32))
    assert np.isnan(out).all()


if __name__ == "__main__":
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print(f"{name}: passed in the interpreter")
