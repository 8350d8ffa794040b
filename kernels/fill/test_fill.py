"""Synthetic weights in the interpreter against the stream that the CPU backend draws from, word by word."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from interpret import Tensor, launch  # noqa: E402

import numpy as np  # noqa: E402
from fill.fill import fill_synthetic  # noqa: E402
from fill.reference import MASK, wanted_words  # noqa: E402

def test_same_words_as_the_cpu():
    for seed in (0, 42, MASK - 5):
        for kind in (0, 1, 2):
            count = 4096 + 300
            out = Tensor.poisoned((count,), np.uint32)
            signed = seed - (1 << 64) if seed >> 63 else seed
            deviation = float(np.float32(96**-0.5))
            launch(fill_synthetic, (-(-count // 1024),), out, count, signed, deviation, KIND=kind, BLOCK=1024)
            assert (out.array == wanted_words(seed, count, kind, deviation)).all(), (seed, kind)


if __name__ == "__main__":
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print(f"{name}: passed in the interpreter")
