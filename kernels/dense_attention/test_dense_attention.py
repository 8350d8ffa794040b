"""Dense paged attention in Triton's interpreter, against float64."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np  # noqa: E402

from interpret import Tensor, bf16, launch, matrix, round_bf16  # noqa: E402
from paged_reference import Sequences, assert_close, attend, cases, run_tests  # noqa: E402

from dense_attention import dense_attend_decode, dense_attend_prefill, dense_merge  # noqa: E402, I001 (after interpret)


def decode(pool, rows, positions, queries, max_runs, programs, min_blocks):
    tokens, heads, dim = queries.shape
    partial = Tensor.poisoned((tokens, heads, max_runs, dim), np.float32)
    lse = Tensor.poisoned((tokens, heads, max_runs), np.float32)
    out = Tensor.poisoned(queries.shape, bf16)
    positions = Tensor(positions)
    launch(
        dense_attend_decode, (tokens, pool.kv_heads, programs), Tensor(queries.astype(bf16)), Tensor(pool.k_pages),
        Tensor(pool.v_pages), Tensor(pool.table), Tensor(rows), positions, partial, lse, pool.table.shape[1], max_runs,
        GROUP=heads // pool.kv_heads, HEAD_DIM=dim, PAGE=pool.page, MIN_BLOCKS=min_blocks, STAGES=2,
    )  # fmt: skip
    launch(
        dense_merge, (tokens, heads), partial, lse, positions, out, max_runs, HEAD_DIM=dim, PAGE=pool.page,
        MIN_BLOCKS=min_blocks, RUNS=4,
    )  # fmt: skip
    return out.array


def prefill(pool, chunks, queries, block_m, block_n, tma=False):
    tokens, heads, dim = queries.shape
    group = heads // pool.kv_heads
    seq_row, first, length = (np.array(values, dtype=np.int32) for values in zip(*chunks))
    out = Tensor.poisoned(queries.shape, bf16)
    pages = [Tensor(lane.reshape(-1, dim)) for lane in (pool.k_pages, pool.v_pages)]
    pages = [matrix(lane, (block_n, dim)) for lane in pages] if tma else pages
    launch(
        dense_attend_prefill, (-(-int(length.max()) * group // block_m), pool.kv_heads, len(chunks)),
        Tensor(queries.astype(bf16)), *pages, Tensor(pool.table), Tensor(seq_row),
        Tensor((np.cumsum(length) - length).astype(np.int32)), Tensor(length), Tensor(first), out, pool.table.shape[1],
        GROUP=group, HEAD_DIM=dim, PAGE=pool.page, BLOCK_M=block_m, BLOCK_N=block_n, STAGES=2, TMA=tma,
    )  # fmt: skip
    return out.array


def expected_of(pool, rows, positions, queries):
    return np.stack([
        attend(query, pool.k[row], pool.v[row], np.arange(position + 1))
        for row, position, query in zip(rows, positions, queries)
    ])


@cases((8, 1, 128, 128), (16, 2, 32, 128), (1, 2, 32, 16), (2, 1, 128, 128), (4, 2, 32, 16))
def test_decode_at_edges(group, kv_heads, dim, page):
    lengths = [1, 127, 128, 129] + ([2049, 2175] if group == 8 else [9 * page + 1])
    pool = Sequences(lengths, kv_heads, dim, page, seed=group)
    rows = np.arange(len(lengths), dtype=np.int32)
    positions = np.array(lengths, dtype=np.int32) - 1
    queries = round_bf16(np.random.default_rng(group).standard_normal((len(rows), kv_heads * group, dim)))
    expected = expected_of(pool, rows, positions, queries)
    first = decode(pool, rows, positions, queries, 8, 3, 2)
    assert_close(first, expected)
    assert (first == decode(pool, rows, positions, queries, 8, 1, 2)).all(), "the grid changed a result"
    assert_close(decode(pool, rows, positions, queries, 2, 2, 1), expected)


def test_a_padded_row_changes_nothing():
    pool = Sequences([40, 70], 1, 32, 16, seed=5)
    rows, positions = np.array([0, 1, 2], dtype=np.int32), np.array([39, 60, 0], dtype=np.int32)
    queries = round_bf16(np.random.default_rng(6).standard_normal((3, 4, 32)))
    padded = decode(pool, rows, positions, queries, 4, 2, 1)
    assert (padded[:2] == decode(pool, rows[:2], positions[:2], queries[:2], 4, 2, 1)).all()


@cases((8, 1, 128, 128, 64), (16, 2, 32, 128, 64), (4, 2, 32, 16, 16), (2, 1, 128, 128, 128), (1, 2, 32, 16, 16))
def test_chunks_on_prefixes(group, kv_heads, dim, page, block_n):
    pool = Sequences([3, page + 3, 3 * page + 4, 2 * page], kv_heads, dim, page, seed=group + 10)
    chunks = [(0, 0, 3), (1, page - 2, 5), (2, 2 * page - 7, page // 4 + 5), (3, 0, page // 4)]
    rows = np.concatenate([[sequence] * length for sequence, _, length in chunks])
    positions = np.concatenate([np.arange(first, first + length) for _, first, length in chunks])
    queries = round_bf16(np.random.default_rng(group).standard_normal((len(rows), kv_heads * group, dim)))
    expected = expected_of(pool, rows, positions, queries)
    assert_close(prefill(pool, chunks, queries, 32, block_n), expected)
    assert_close(prefill(pool, chunks, queries, 128, page, tma=True), expected)


if __name__ == "__main__":
    run_tests(globals())
