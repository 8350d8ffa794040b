"""The stream of synthetic weights in Python, word by word, for the tests."""

import ml_dtypes
import numpy as np

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
