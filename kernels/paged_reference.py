"""Paged sequences of random keys for kernel tests, and attention over them in plain float64 numpy.

Pages are handed out shuffled; slots that no token owns hold NaN, as memory does that nobody wrote. Inputs are exact
in bfloat16, so a kernel differs from these answers only by its own rounding. No kernel is started here.
"""

import json
import os
from pathlib import Path

import numpy as np

from interpret import bf16, f32, round_bf16

# Relative to the answers' root mean square: one rounding of P and one of the result.
TOLERANCE = 8e-3


ROOT = Path(__file__).resolve().parent.parent
GOLDEN_TYPES = {"BF16": bf16, "F32": np.dtype(np.float32), "I32": np.dtype(np.int32), "I16": np.dtype(np.int16)}


def golden_unit(name):
    """(arrays, description) of a sparse-attention golden like `long128/msa_unit_b16_k4`, or None with a loud line."""
    shared = Path(os.environ.get("M3_SHARED", ROOT.parent / "shared"))
    for golden in (ROOT / "tests" / "data" / "golden" / "golden", shared / "data" / "golden" / "golden"):
        path = golden / f"{name}.safetensors"
        if path.is_file():
            return _safetensors(path), json.loads(path.with_suffix(".json").read_text())
    print(f"SKIPPED: no {name}.safetensors in the tree or under {shared}; set M3_SHARED to run this case")
    return None


def _safetensors(path):
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    arrays = {}
    for name, entry in json.loads(content[8:start]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            flat = np.frombuffer(content[start + begin : start + end], dtype=GOLDEN_TYPES[entry["dtype"]])
            arrays[name] = flat.reshape(entry["shape"])
    return arrays


class Sequences:
    """`lengths[b]` tokens each, a page table with one dummy row at the end, all lanes poisoned and then written."""

    def __init__(self, lengths, kv_heads, dim, page, seed, spare_pages=3):
        random = np.random.default_rng(seed)
        blocks = [-(-length // page) for length in lengths]
        num_pages = sum(blocks) + spare_pages
        self.lengths, self.kv_heads, self.dim, self.page = lengths, kv_heads, dim, page
        order = random.permutation(num_pages).astype(np.int32)
        self.table = np.full((len(lengths) + 1, max(blocks) + 2), -1, dtype=np.int32)
        self.k = [round_bf16(random.standard_normal((length, kv_heads, dim))) for length in lengths]
        self.v = [round_bf16(random.standard_normal((length, kv_heads, dim))) for length in lengths]
        self.index_k = [round_bf16(random.standard_normal((length, dim))) for length in lengths]
        self.k_pages = np.full((num_pages, kv_heads, page, dim), np.nan, dtype=bf16)
        self.v_pages = self.k_pages.copy()
        self.index_k_pages = np.full((num_pages, page, dim), np.nan, dtype=bf16)
        used = 0
        for row, count in enumerate(blocks):
            self.table[row, :count] = order[used : used + count]
            used += count
        self.write()

    @classmethod
    def of_golden(cls, arrays, page):
        """One sequence with a golden's keys and values."""
        length, kv_heads, dim = arrays["k"].shape
        pool = cls([length], kv_heads, dim, page, seed=99)
        pool.k, pool.v, pool.index_k = [f32(arrays["k"])], [f32(arrays["v"])], [f32(arrays["index_k"])[:, 0]]
        pool.write()
        return pool

    def write(self):
        """Puts all lanes into the pages (again, after a test changed them)."""
        for sequence, length in enumerate(self.lengths):
            position = np.arange(length)
            page, offset = self.table[sequence, position // self.page], position % self.page
            self.k_pages[page, :, offset] = self.k[sequence].astype(bf16)
            self.v_pages[page, :, offset] = self.v[sequence].astype(bf16)
            self.index_k_pages[page, offset] = self.index_k[sequence].astype(bf16)


def block_scores(query, index_k, position, page):
    """[heads, blocks] for one token; -1e30 where a block has a NaN."""
    dots = query.astype(np.float64) @ index_k[: position + 1].astype(np.float64).T
    blocks = range(position // page + 1)
    scores = np.stack([dots[:, block * page : (block + 1) * page].max(1) for block in blocks], 1)
    return np.where(np.isnan(scores), -1e30, scores)


def choose(scores, topk, init_blocks=0, local_blocks=1):
    """Ids ascending and padded with -1, of one row of scores: forced blocks first, then by score, ties to the lower id."""
    count = len(scores)
    forced = [block < init_blocks or block + local_blocks >= count for block in range(count)]
    order = sorted(range(count), key=lambda block: (not forced[block], 0 if forced[block] else -scores[block], block))
    ids = sorted(order[:topk])
    return np.array(ids + [-1] * (topk - len(ids)), dtype=np.int32)


def attend(query, k, v, positions):
    """[heads, D] of one token: `query` [heads, D], keys of `positions` of k, v [S, kv_heads, D]."""
    heads, dim = query.shape
    group = heads // k.shape[1]
    out = np.empty((heads, dim))
    for head in range(heads):
        logits = k[positions, head // group].astype(np.float64) @ query[head].astype(np.float64) / np.sqrt(dim)
        weights = np.exp(logits - logits.max())
        out[head] = weights @ v[positions, head // group] / weights.sum()
    return out


def assert_close(actual, expected, tolerance=TOLERANCE):
    actual = f32(actual).astype(np.float64)
    assert np.isfinite(actual).all(), "not finite, or never written"
    error = np.sqrt(np.mean((actual - expected) ** 2) / np.mean(expected**2))
    assert error < tolerance, f"relative error {error:.2e} is above {tolerance:.0e}"
    worst = np.abs(actual - expected).max() / np.abs(expected).max()
    assert worst < 5 * tolerance, f"worst error {worst:.2e} of the largest value"


def run_tests(names):
    """Runs the `test_*` functions of a module without pytest."""
    for name, test in list(names.items()):
        if name.startswith("test_"):
            for case in getattr(test, "cases", [()]):
                test(*case)
            print(f"{name}: ok")


def cases(*values):
    """Marks a test's arguments for pytest and for `run_tests`."""

    def mark(test):
        test.cases = values
        try:
            import pytest
        except ImportError:
            return test
        names = test.__code__.co_varnames[: test.__code__.co_argcount]
        marked = pytest.mark.parametrize(",".join(names), [v if len(names) > 1 else v[0] for v in values])(test)
        marked.cases = values
        return marked

    return mark
