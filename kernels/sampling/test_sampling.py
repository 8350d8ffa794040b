"""The device sampler, compiled for the CPU, against the specification in numpy. Needs g++."""

import ctypes
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))

import numpy as np  # noqa: E402
from sampling import reference  # noqa: E402

POINTERS = [
    "logits", "adjusted", "positions", "rows", "counts", "biases", "masks", "drafts", "parts", "tokens", "faults", "last_tokens",
    "logprobs", "ranks", "top_ids", "top_logprobs", "history",
]
NUMBERS = ["vocab", "num_positions", "top_capacity", "length", "prompt_length"]


class Arguments(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in POINTERS] + [(name, ctypes.c_int32) for name in NUMBERS]


def build():
    library = Path(tempfile.mkdtemp()) / "sampling.so"
    subprocess.run(
        ["g++", "-O1", "-std=c++17", "-ffp-contract=off", "-Wno-unknown-pragmas", "-shared", "-fPIC", "-o", library, FOLDER / "host_entry.cpp"],
        check=True,
    )
    return ctypes.CDLL(str(library))


LIBRARY = build()


def call(function, arrays, **numbers):
    arguments = Arguments(**{name: array.ctypes.data for name, array in arrays.items()}, **numbers)
    function(ctypes.byref(arguments))


def run(case, capacity=4):
    logits, places, rows, counts, biases, masks, drafts = case
    positions, vocab = logits.shape
    outputs = {
        "tokens": np.full(positions, 77, np.uint32), "faults": np.full(positions, 77, np.uint32),
        "last_tokens": np.full(len(rows), -1, np.int32), "logprobs": np.zeros(positions, np.float32),
        "ranks": np.zeros(positions, np.uint32), "top_ids": np.zeros((positions, capacity), np.uint32),
        "top_logprobs": np.zeros((positions, capacity), np.float32), "counts": counts.copy(),
    }
    arrays = {
        "logits": logits, "adjusted": np.full_like(logits, np.nan), "positions": places, "rows": rows, "biases": biases,
        "masks": masks, "drafts": drafts, "parts": np.zeros(positions * LIBRARY.parts_of(vocab) * 24, np.uint8), **outputs,
    }
    call(LIBRARY.run_sampler, arrays, vocab=vocab, num_positions=positions, top_capacity=capacity)
    return outputs


def test_every_feature():
    random = np.random.default_rng(20)
    for vocab in (40, 300, 1024, 2000):
        case = reference.random_case(random, vocab, 24, 24)
        outputs = run(case)
        near = reference.check_outputs(case, outputs, case[3], 4)
        assert near <= 2, f"{near} positions near a limit went the other way"


def plain_case(logits, **settings):
    positions, vocab = logits.shape
    rows, places = np.zeros(positions, reference.ROW), np.zeros(positions, reference.POSITION)
    rows["temperature"], rows["top_p"], rows["repetition"] = 1, 1, 1
    rows["counts"] = rows["num_logprobs"] = reference.NONE
    for name, value in settings.items():
        rows[name] = value
    places["row"] = places["slot"] = np.arange(positions)
    places["target"] = places["mask"] = reference.NONE
    places["flags"] = 1
    counts = np.zeros((1, vocab), np.uint32)
    return logits.astype(np.float32), places, rows, counts, np.zeros(1, reference.BIAS), np.zeros(1, np.uint32), np.zeros(1, np.int32)


def test_ties_cut_by_id():
    """Equal logits: the filters keep the lowest ids, exactly as many as asked for."""
    random = np.random.default_rng(21)
    for settings in ({"top_k": 3}, {"top_p": 0.25}, {"top_k": 7, "top_p": 0.5}):
        case = plain_case(np.zeros((64, 16)), **settings)
        case[2]["seed_low"] = random.integers(0, 1 << 32, 64)
        outputs = run(case)
        reference.check_outputs(case, outputs, case[3], 4)
        kept = 3 if settings.get("top_k") == 3 else 4
        assert set(outputs["tokens"].tolist()) == set(range(kept)), settings


def test_last_tokens_and_history():
    case = plain_case(np.array([[0, 5, 1], [np.nan, 0, 0], [9, 0, 0]]), temperature=0)
    case[1]["flags"][2] = 0
    outputs = run(case)
    assert outputs["tokens"].tolist() == [1, reference.NONE, 0]
    assert outputs["last_tokens"].tolist() == [1, 0, -1]
    counts, history = np.zeros(10, np.uint32), np.array([3, 4, 3, 7, 7, 3], np.uint32)
    call(LIBRARY.run_history, {"counts": counts, "history": history}, length=6, prompt_length=3)
    assert counts.tolist() == [0, 0, 0, reference.IN_PROMPT | 1, reference.IN_PROMPT, 0, 0, 2, 0, 0]


def test_distribution():
    """Over many seeds tokens come as often as their weights say."""
    random = np.random.default_rng(22)
    logits = np.tile(np.log(np.array([0.5, 0.25, 0.125, 0.125])), (2000, 1))
    case = plain_case(logits)
    case[2]["seed_low"] = random.integers(0, 1 << 32, 2000)
    frequency = np.bincount(run(case)["tokens"], minlength=4) / 2000
    assert np.abs(frequency - [0.5, 0.25, 0.125, 0.125]).max() < 0.04


if __name__ == "__main__":
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print(f"{name}: passed on the CPU")
