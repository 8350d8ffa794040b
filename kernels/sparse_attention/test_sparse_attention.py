"""Attention over chosen blocks in Triton's interpreter, against float64 and the golden answers."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np  # noqa: E402

from interpret import Tensor, bf16, f32, launch, round_bf16  # noqa: E402
from paged_reference import Sequences, assert_close, attend, cases, choose, golden_unit, run_tests  # noqa: E402

from sparse_attention import (  # noqa: E402, I001 (after interpret)
    merge_partials, sparse_attend_decode, sparse_attend_prefill, sparse_count, sparse_fill, sparse_offsets,
)  # fmt: skip


def decode(pool, rows, positions, queries, selected, splits):
    tokens, heads, dim = queries.shape
    group = heads // pool.kv_heads
    partial = Tensor.poisoned((tokens, splits, heads, dim), np.float32)
    lse = Tensor.poisoned((tokens, splits, heads), np.float32)
    launch(
        sparse_attend_decode, (tokens, pool.kv_heads, splits), Tensor(queries.astype(bf16)), Tensor(pool.k_pages),
        Tensor(pool.v_pages), Tensor(pool.table), Tensor(rows), Tensor(positions), Tensor(selected), partial, lse,
        pool.table.shape[1], GROUP=group, HEAD_DIM=dim, PAGE=pool.page, TOPK=selected.shape[2], SPLITS=splits, STAGES=2,
    )  # fmt: skip
    return merged(partial, lse, queries.shape, splits, 4)


def merged(partial, lse, shape, splits, block_r):
    tokens, heads, dim = shape
    out = Tensor.poisoned(shape, bf16)
    launch(
        merge_partials, (-(-tokens * heads // block_r),), partial, lse, out, tokens * heads, heads, HEAD_DIM=dim,
        SPLITS=splits, BLOCK_R=block_r,
    )  # fmt: skip
    return out.array


def prefill(pool, chunks, queries, selected, parts, rows, spread=3):
    """`chunks` = (sequence, first position, length), tokens one after the other; two layers, to see counts reset."""
    tokens, heads, dim = queries.shape
    kv_heads, topk = selected.shape[1:]
    group = heads // kv_heads
    seq_row, first, length = (np.array(values, dtype=np.int32) for values in zip(*chunks))
    blocks = (first + length - 1) // pool.page + 1
    first_item = np.concatenate([[0], np.cumsum(blocks)]).astype(np.int32)
    seq = [Tensor(seq_row), Tensor((np.cumsum(length) - length).astype(np.int32)), Tensor(length), Tensor(first)]
    items = int(first_item[-1]) * kv_heads
    first_item = Tensor(first_item)
    counts = Tensor(np.zeros(items * spread, dtype=np.int32))
    for _layer in range(2):
        offsets = Tensor.poisoned((items + 1,), np.int32)
        ranks, entries = Tensor.poisoned(selected.shape, np.int32), Tensor.poisoned(selected.shape, np.int32)
        partial = Tensor.poisoned((tokens, topk, heads, dim), bf16)
        lse = Tensor.poisoned((tokens, topk, heads), np.float32)
        chosen = Tensor(selected)
        grid = (-(-int(length.max()) // 4), kv_heads, len(chunks))
        launch(
            sparse_count, grid, chosen, seq[1], seq[2], first_item, counts, ranks, lse, kv_heads, len(chunks), spread,
            GROUP=group, TOPK=topk, BLOCK_T=4,
        )  # fmt: skip
        launch(sparse_offsets, (1,), counts, offsets, items, spread, BLOCK=16)
        assert (counts.array == 0).all() and offsets.array[-1] == (selected >= 0).sum()
        launch(
            sparse_fill, grid, chosen, ranks, offsets, seq[1], seq[2], first_item, entries, kv_heads, len(chunks),
            TOPK=topk, BLOCK_T=4,
        )  # fmt: skip
        launch(
            sparse_attend_prefill, (int(blocks.max()), kv_heads * parts, len(chunks)), Tensor(queries.astype(bf16)),
            Tensor(pool.k_pages), Tensor(pool.v_pages), Tensor(pool.table), *seq, first_item, offsets, entries, partial,
            lse, pool.table.shape[1], kv_heads, len(chunks), GROUP=group, HEAD_DIM=dim, PAGE=pool.page, TOPK=topk,
            ROWS=rows, STAGES=2,
        )  # fmt: skip
    return merged(partial, lse, queries.shape, topk, 8)


def random_selection(random, positions, kv_heads, page, topk):
    return np.stack([
        [choose(random.standard_normal(position // page + 1), topk) for _ in range(kv_heads)] for position in positions
    ])


def expected_of(pool, rows, positions, queries, selected):
    out = np.empty(queries.shape)
    group = queries.shape[1] // pool.kv_heads
    for token, (row, position) in enumerate(zip(rows, positions)):
        for head in range(pool.kv_heads):
            ids = selected[token, head][selected[token, head] >= 0]
            keys = (ids[:, None] * pool.page + np.arange(pool.page)).ravel()
            at = slice(head * group, (head + 1) * group)
            k, v = pool.k[row][:, head : head + 1], pool.v[row][:, head : head + 1]
            out[token, at] = attend(queries[token, at], k, v, keys[keys <= position])
    return out


def rows_case(group, kv_heads, dim, page, topk, seed):
    lengths = [1, page - 1, page, page + 1, 9 * page + 7, 17 * page]
    pool = Sequences(lengths, kv_heads, dim, page, seed)
    rows = np.array([0, 1, 2, 3, 4, 5, 5, 4], dtype=np.int32)
    positions = np.array([length - 1 for length in lengths] + [16 * page, 2 * page + 1], dtype=np.int32)
    random = np.random.default_rng(seed + 1)
    queries = round_bf16(random.standard_normal((len(rows), kv_heads * group, dim)))
    return pool, rows, positions, queries, random_selection(random, positions, kv_heads, page, topk)


SHAPES = [(8, 1, 128, 128, 16), (16, 2, 32, 128, 16), (2, 2, 128, 128, 4), (4, 2, 32, 16, 4), (1, 3, 32, 16, 16)]


@cases(*SHAPES)
def test_decode(group, kv_heads, dim, page, topk):
    pool, rows, positions, queries, selected = rows_case(group, kv_heads, dim, page, topk, seed=group)
    expected = expected_of(pool, rows, positions, queries, selected)
    for splits in (1, 8, 16):
        assert_close(decode(pool, rows, positions, queries, selected, splits), expected)


def test_rows_of_decode_do_not_see_each_other():
    pool, rows, positions, queries, selected = rows_case(8, 1, 32, 16, 4, seed=3)
    together = decode(pool, rows, positions, queries, selected, 4)
    for token in range(len(rows)):
        one = slice(token, token + 1)
        alone = decode(pool, rows[one], positions[one], queries[one], selected[one], 4)
        assert (alone == together[one]).all()


def test_a_padded_row_changes_nothing():
    pool, rows, positions, queries, selected = rows_case(8, 1, 32, 16, 4, seed=4)
    before = decode(pool, rows, positions, queries, selected, 4)
    rows = np.append(rows, len(pool.lengths)).astype(np.int32)  # the dummy row of the page table
    positions = np.append(positions, 0).astype(np.int32)
    queries = np.concatenate([queries, np.full_like(queries[:1], np.nan)])
    selected = np.concatenate([selected, [[[0, -1, -1, -1]]]]).astype(np.int32)
    after = decode(pool, rows, positions, queries, selected, 4)
    assert (after[:-1] == before).all()


@cases(*[(*shape, parts) for shape, parts in zip(SHAPES, (1, 3, 2, 1, 2))])
def test_prefill(group, kv_heads, dim, page, topk, parts):
    pool = Sequences([3, page + 3, 6 * page + 2, 18 * page + 1], kv_heads, dim, page, seed=group + 20)
    chunks = [(0, 0, 3), (1, page - 2, 5), (2, 5 * page - 2, 6), (3, 18 * page - 3, 4)]
    rows = np.concatenate([[sequence] * length for sequence, _, length in chunks]).astype(np.int32)
    positions = np.concatenate([np.arange(first, first + length) for _, first, length in chunks]).astype(np.int32)
    random = np.random.default_rng(group + 21)
    queries = round_bf16(random.standard_normal((len(rows), kv_heads * group, dim)))
    selected = random_selection(random, positions, kv_heads, page, topk)
    tile = max(16, group * 4)
    actual = prefill(pool, chunks, queries, selected, parts, tile)
    assert_close(actual, expected_of(pool, rows, positions, queries, selected))
    assert (actual == prefill(pool, chunks, queries, selected, parts + 1, tile, 1)).all()
    decoded = decode(pool, rows, positions, queries, selected, 4)
    assert_close(actual, decoded.astype(np.float64))


def test_chunks_give_what_the_whole_gives():
    pool = Sequences([70], 1, 32, 16, seed=40)
    positions = np.arange(70, dtype=np.int32)
    random = np.random.default_rng(41)
    queries = round_bf16(random.standard_normal((70, 4, 32)))
    selected = random_selection(random, positions, 1, 16, 4)
    whole = prefill(pool, [(0, 0, 70)], queries, selected, 2, 16)
    for cut in (16, 41):
        first = prefill(pool, [(0, 0, cut)], queries[:cut], selected[:cut], 2, 16)
        second = prefill(pool, [(0, cut, 70 - cut)], queries[cut:], selected[cut:], 2, 16)
        assert (np.concatenate([first, second]) == whole).all()


@cases(("long128/msa_unit_b16_k4",), ("long128/msa_unit_b128_k4",), ("real128/msa_unit_b128_k16",))
def test_golden_outputs(name):
    golden = golden_unit(name)
    if golden is None:
        return
    arrays, facts = golden
    pool = Sequences.of_golden(arrays, facts["block_size"])
    positions = arrays["positions"]
    selected = arrays["blocks"].transpose(1, 0, 2).astype(np.int32)
    rows = np.zeros(len(positions), dtype=np.int32)
    queries = f32(arrays["q"])
    assert_close(decode(pool, rows, positions, queries, selected, 8), arrays["out"].astype(np.float64))
    picked = slice(len(positions) - 1, len(positions))
    actual = prefill(pool, [(0, int(positions[-1]), 1)], queries[picked], selected[picked], 1, queries.shape[1])
    assert_close(actual, arrays["out"][picked].astype(np.float64))


if __name__ == "__main__":
    run_tests(globals())
