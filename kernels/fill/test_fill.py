"""Synthetic weights in the interpreter against the stream that the CPU backend draws from, word by word."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from interpret import Tensor, launch  # noqa: E402

import ml_dtypes  # noqa: E402
import numpy as np  # noqa: E402
from fill.fill import fill_synthetic  # noqa: E402

MASK = (1 << 64) - 1
STEP = 0x9E3779B97F4A7C15


def wanted_words(seed, count, kind, deviation):
    words = []
    for index in range(count):
        if index % 4096 == 0:
            state = (seed + (index // 4096 + 1) * STEP) & MASK
        state = (state + STEP) & MASK
        mixed = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        bits = mixed ^ (mixed >> 29)
        def uniform(value):
            base = np.float32(np.float32(value & 0xFFFF) / np.float32(32768.0)) - np.float32(1.0)
            return np.float32(np.float32(base * np.float32(1.732)) * np.float32(deviation))
        if kind == 0:
            words.append(int(uniform(bits).view(np.uint32)))
        elif kind == 1:
            pair = np.array([uniform(bits), uniform(bits >> 16)]).astype(ml_dtypes.bfloat16).view(np.uint16)
            words.append(int(pair[0]) | int(pair[1]) << 16)
        else:
            words.append((bits & 0xFFFFFFFF & 0x9F9F9F9F) | 0x20202020)
    return np.array(words, np.uint32)


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
