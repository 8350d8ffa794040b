"""Embedding in the interpreter: chained tokens, media rows, a rank's part of the table."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from interpret import Tensor, bf16, launch  # noqa: E402

import numpy as np  # noqa: E402
from embed.embed import embed  # noqa: E402
from gemm.reference import random_bf16  # noqa: E402


def run(ids, rows, last, table, first_id, media_index=None, media=None):
    out = Tensor.poisoned((len(ids), table.shape[1]), bf16)
    def ints(values):
        return None if values is None else Tensor(np.array(values, np.int32))
    launch(
        embed, (len(ids),), ints(ids), ints(rows), ints(last), ints(media_index), None if media is None else Tensor(media),
        Tensor(table), out, first_id, len(table), HIDDEN=table.shape[1],
    )
    return out.f32()


def test_rows_chained_tokens_and_media():
    random = np.random.default_rng(14)
    table, media = random_bf16(random, (10, 64)), random_bf16(random, (3, 64))
    out = run([3, -1, 9, 0], [0, 2, 1, 0], [7, 8, 5], table, 0)
    assert (out == table[[3, 5, 9, 0]].astype(np.float32)).all()
    out = run([3, 4, 9, 0], [0, 0, 0, 0], [7, 8, 5], table, 0, [-1, 2, -1, 0], media)
    wanted = np.stack([table[3], media[2], table[9], media[0]]).astype(np.float32)
    assert (out == wanted).all()


def test_other_ranks_rows_are_zero():
    random = np.random.default_rng(15)
    table, media = random_bf16(random, (4, 64)), random_bf16(random, (1, 64))
    out = run([3, 4, 7, 8], [0] * 4, [0], table, 4, [-1, -1, 0, -1], media)
    assert not out[[0, 2, 3]].any() and (out[1] == table[0].astype(np.float32)).all()


if __name__ == "__main__":
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print(f"{name}: passed in the interpreter")
