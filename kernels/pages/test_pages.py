"""Page-table updates, page copies and poison in the interpreter."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from interpret import Tensor, launch  # noqa: E402

import ml_dtypes  # noqa: E402
import numpy as np  # noqa: E402
from pages.pages import copy_pages, poison_pages, scatter_i32  # noqa: E402


def test_scatter():
    target = Tensor(np.arange(100, dtype=np.int32))
    index = np.array([5, -1, 99, 0, 50], np.int64)
    launch(scatter_i32, (2,), target, Tensor(index), Tensor(np.array([1, 2, 3, 4, 9], np.int32)), 4, BLOCK=4)
    wanted = np.arange(100)
    wanted[[5, 99, 0]] = (1, 3, 4)
    assert (target.array == wanted).all()


def test_copies_and_poison():
    random = np.random.default_rng(16)
    pool = random.integers(0, 1 << 32, (6, 80), dtype=np.uint32)
    device = Tensor(pool)
    launch(
        copy_pages, (3, 3), device, Tensor(np.array([0, -1, 5], np.int32)), Tensor(np.array([2, 3, 1], np.int32)), 80, BLOCK=32,
    )
    pool[2], pool[1] = pool[0], pool[5]
    assert (device.array == pool).all()
    launch(poison_pages, (1, 3), device, Tensor(np.array([4], np.int32)), 80, BLOCK=32)
    assert np.isnan(device.array[4].view(ml_dtypes.bfloat16).astype(np.float32)).all()
    assert (device.array[[0, 1, 2, 3, 5]] == pool[[0, 1, 2, 3, 5]]).all()


if __name__ == "__main__":
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print(f"{name}: passed in the interpreter")
