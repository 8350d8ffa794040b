"""Index scores and the choice of blocks in Triton's interpreter, against float64 and the golden picks."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np  # noqa: E402

from interpret import Tensor, bf16, f32, launch, round_bf16  # noqa: E402
from paged_reference import Sequences, block_scores, cases, choose, golden_unit, run_tests  # noqa: E402

from index import index_score_decode, index_score_prefill, select_blocks  # noqa: E402, I001 (after interpret)

TOLERANCE = 2e-3


def decode_scores(pool, rows, positions, queries, topk, score_all, splits):
    tokens, heads, dim = queries.shape
    stride = max(positions) // pool.page + 1
    scores = Tensor.poisoned((tokens, heads, stride), np.float32)
    launch(
        index_score_decode, (tokens, splits), Tensor(queries.astype(bf16)), Tensor(pool.index_k_pages),
        Tensor(pool.table), Tensor(rows), Tensor(positions), scores, pool.table.shape[1], stride, score_all,
        HEADS=heads, DIM=dim, PAGE=pool.page, TOPK=topk, STAGES=2,
    )  # fmt: skip
    return scores.array


def prefill_scores(pool, chunks, queries, topk, score_all, block_m, blocks):
    """`chunks` = (sequence, first position, length), tokens one after the other."""
    tokens, heads, dim = queries.shape
    seq_row, first, length = (np.array(values, dtype=np.int32) for values in zip(*chunks))
    seq_first_token = (np.cumsum(length) - length).astype(np.int32)
    most = int(max((first + length - 1) // pool.page + 1))
    stride = -(-tokens * heads // 16) * 16
    scores = Tensor.poisoned((most, stride), np.float32)
    launch(
        index_score_prefill, (-(-int(length.max()) * heads // block_m), -(-most // blocks), len(chunks)),
        Tensor(queries.astype(bf16)), Tensor(pool.index_k_pages), Tensor(pool.table), Tensor(seq_row),
        Tensor(seq_first_token), Tensor(length), Tensor(first), scores, pool.table.shape[1], stride, score_all,
        HEADS=heads, DIM=dim, PAGE=pool.page, TOPK=topk, BLOCK_M=block_m, BLOCKS=blocks, STAGES=2, TMA=False,
    )  # fmt: skip
    return scores.array[:, : tokens * heads].reshape(most, tokens, heads).transpose(1, 2, 0)


def selected(scores, positions, page, topk, rows, block_major=False, init_blocks=0, local_blocks=1, widest=2048):
    """`scores` [T, heads, blocks]; block_major lays them out as the prefill kernel does."""
    tokens, heads, blocks = scores.shape
    memory = scores.transpose(2, 0, 1) if block_major else scores
    strides = (1, tokens * heads) if block_major else (blocks, 1)
    out = Tensor.poisoned((tokens, heads, topk), np.int32)
    launch(
        select_blocks, (-(-tokens * heads // rows),), Tensor(memory.astype(np.float32)), Tensor(positions), out, tokens,
        *strides, init_blocks, local_blocks, HEADS=heads, PAGE=page, TOPK=topk, ROWS=rows, WIDEST=widest,
    )  # fmt: skip
    return out.array


def check_scores(actual, pool, rows, positions, queries, topk, score_all):
    for token, (row, position) in enumerate(zip(rows, positions)):
        expected = block_scores(queries[token], pool.index_k[row], position, pool.page)
        count = expected.shape[1]
        if count > topk or score_all:
            scale = np.abs(expected[expected > -1e29]).max()
            assert np.abs(actual[token, :, :count] - expected).max() < TOLERANCE * scale, (token, position)
        assert np.isnan(actual[token, :, count:]).all(), "a block behind the token was written"


@cases((1, 128, 1), (4, 128, 3), (2, 32, 2))
def test_decode_scores(heads, dim, splits):
    pool = Sequences([1, 128, 129, 700], 1, dim, 128, seed=heads)
    rows = np.array([0, 1, 2, 3, 3, 2], dtype=np.int32)
    positions = np.array([0, 127, 128, 699, 511, 127], dtype=np.int32)
    queries = round_bf16(np.random.default_rng(3).standard_normal((6, heads, dim)))
    for topk, score_all in ((4, 0), (4, 1), (16, 1)):
        actual = decode_scores(pool, rows, positions, queries, topk, score_all, splits)
        check_scores(actual, pool, rows, positions, queries, topk, score_all)


@cases((1, 128, 128, 32), (4, 128, 64, 16), (2, 32, 16, 32))
def test_prefill_scores(heads, dim, page, block_m):
    pool = Sequences([5, 3 * page + 1, 7 * page + 3], 1, dim, page, seed=heads + 10)
    chunks = [(0, 0, 5), (1, 2 * page - 2, page + 3), (2, 6 * page - 3, page + 6)]
    rows = np.concatenate([[sequence] * length for sequence, _, length in chunks])
    positions = np.concatenate([np.arange(first, first + length) for _, first, length in chunks])
    queries = round_bf16(np.random.default_rng(4).standard_normal((len(rows), heads, dim)))
    for topk, score_all in ((4, 1), (4, 0)):
        actual = prefill_scores(pool, chunks, queries, topk, score_all, block_m, blocks=3)
        if score_all:
            check_scores(actual, pool, rows, positions, queries, topk, True)
        else:
            ids = selected(actual, positions.astype(np.int32), page, topk, 4)
            full = prefill_scores(pool, chunks, queries, topk, 1, block_m, blocks=3)
            assert (ids == selected(full, positions.astype(np.int32), page, topk, 4)).all()


def test_a_split_or_a_tile_does_not_change_a_score():
    pool = Sequences([900], 1, 128, 128, seed=5)
    positions = np.arange(880, 900, dtype=np.int32)
    rows = np.zeros(20, dtype=np.int32)
    queries = round_bf16(np.random.default_rng(6).standard_normal((20, 1, 128)))
    one = decode_scores(pool, rows, positions, queries, 4, 0, 1)
    np.testing.assert_array_equal(one, decode_scores(pool, rows, positions, queries, 4, 0, 7))
    tiles = [prefill_scores(pool, [(0, 880, 20)], queries, 4, 0, 16, blocks) for blocks in (2, 32)]
    np.testing.assert_array_equal(tiles[0], tiles[1])


def test_a_padded_row_reads_no_page_before_the_pool():
    pool = Sequences([300], 1, 128, 128, seed=7)
    rows = np.array([1, 0], dtype=np.int32)  # row 1 is the dummy row, all -1
    positions = np.array([0, 299], dtype=np.int32)
    queries = round_bf16(np.random.default_rng(8).standard_normal((2, 1, 128)))
    scores = decode_scores(pool, rows, positions, queries, 1, 1, 2)
    check_scores(scores[1:], pool, rows[1:], positions[1:], queries[1:], 1, 1)
    assert (selected(scores, positions, 128, 4, 1)[0, 0] == [0, -1, -1, -1]).all()


def test_a_nan_key_makes_its_block_lose():
    pool = Sequences([640], 1, 128, 128, seed=9)
    pool.index_k[0][130] = np.nan
    pool.write()
    queries = round_bf16(np.random.default_rng(10).standard_normal((1, 2, 128)))
    positions = np.array([639], dtype=np.int32)
    for scores in (
        decode_scores(pool, np.zeros(1, dtype=np.int32), positions, queries, 4, 0, 2),
        prefill_scores(pool, [(0, 639, 1)], queries, 4, 0, 16, 32),
    ):
        assert (scores[0, :, 1] == np.float32(-1e30)).all() and np.isfinite(scores).all()
        assert (selected(scores, positions, 128, 4, 2)[0] == [0, 2, 3, 4]).all()


@cases((1, 128), (127, 128), (128, 128), (129, 128), (2047, 128), (2048, 128), (2049, 128), (2175, 128), (70, 16), (1023, 16))
def test_choice_at_edges(position, page):
    random = np.random.default_rng(position)
    positions = np.array([position, 0, position, max(position - 1, 0), position], dtype=np.int32)
    blocks = position // page + 1
    scores = random.standard_normal((5, 3, blocks)).astype(np.float32)
    for token, at in enumerate(positions):
        scores[token, :, at // page + 1 :] = np.nan
    expected = np.stack([[choose(s[: p // page + 1], 16) for s in row] for row, p in zip(scores, positions)])
    for rows, block_major in ((1, False), (8, True), (4, False)):
        assert (selected(scores, positions, page, 16, rows, block_major) == expected).all()


@cases((2, 0, 1), (3, 1, 1), (4, 0, 2), (4, 2, 2), (4, 8, 1), (16, 1, 3))
def test_forced_blocks_and_ties(topk, init_blocks, local_blocks):
    random = np.random.default_rng(topk)
    scores = random.integers(-2, 3, (12, 1, 40)).astype(np.float32)
    scores[scores == 0] *= random.choice([-1.0, 1.0], (scores == 0).sum())
    scores[3] = -1e30
    scores[4] = 0.0
    scores[5, 0, 7:9] = np.inf
    positions = np.full(12, 39 * 16, dtype=np.int32)
    topk = 1 << (topk - 1).bit_length()
    expected = np.stack([[choose(row[0], topk, init_blocks, local_blocks)] for row in scores])
    for rows in (1, 8):
        actual = selected(scores, positions, 16, topk, rows, False, init_blocks, local_blocks)
        assert (actual == expected).all()


def test_choice_from_more_than_1024_blocks():
    random = np.random.default_rng(12)
    positions = np.array([1500 * 16 + 3, 4, 1025 * 16], dtype=np.int32)
    scores = random.integers(0, 400, (3, 2, 1501)).astype(np.float32)
    expected = np.stack([[choose(s[: p // 16 + 1], 16) for s in row] for row, p in zip(scores, positions)])
    assert (selected(scores, positions, 16, 16, 8) == expected).all()
    assert (selected(scores, positions, 16, 16, 1, True) == expected).all()


@cases(("long128/msa_unit_b16_k4",), ("long128/msa_unit_b128_k4",), ("real128/msa_unit_b128_k16",))
def test_golden_blocks_exactly(name):
    golden = golden_unit(name)
    if golden is None:
        return
    arrays, facts = golden
    page, topk = facts["block_size"], facts["topk"]
    pool = Sequences.of_golden(arrays, page)
    positions = arrays["positions"]
    queries = f32(arrays["index_q"])
    expected = arrays["blocks"].transpose(1, 0, 2)
    scores = decode_scores(pool, np.zeros(len(positions), dtype=np.int32), positions, queries, topk, 0, 3)
    assert (selected(scores, positions, page, topk, 1) == expected).all()
    for token in range(0, len(positions), 5):
        one = slice(token, token + 1)
        scores = prefill_scores(pool, [(0, int(positions[token]), 1)], queries[one], topk, 0, 16, 32)
        assert (selected(scores, positions[one], page, topk, 8, True) == expected[one]).all()


if __name__ == "__main__":
    run_tests(globals())
