"""Checks and times the attention kernels on a GPU: a rank of TP8 of M3, 8 query heads on 1 KV head.

    python kernels/measure/attention.py FOLDER OUT.json [section ...]

FOLDER holds what `prepare.py` made of `attention_variants.py`. Every timed variant is first compared with torch in
float32 on sampled tokens; a variant that is wrong is reported and not timed. Pages are shuffled, slots behind a
context hold NaN, and several layers' pages are visited in turn so that caches hold no more than they would.
"""

import json
import sys
import time
import traceback
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))

from cubins import load, time_us  # noqa: E402

HEADS, DIM, PAGE, TOPK = 8, 128, 128, 16
DEV = "cuda"
RESULTS = []


def record(section, case, variant, us, **facts):
    RESULTS.append({"section": section, "case": case, "variant": variant, "us": round(us, 2), **facts})
    extra = " ".join(f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={value}" for key, value in facts.items())
    print(f"{section:16} {case:14} {variant:28} {us:9.1f} us  {extra}", flush=True)


class Pool:
    """Pages of `layers` layers for sequences of the given lengths."""

    def __init__(self, lengths, layers=1, index=True, kv=True, seed=0):
        torch.manual_seed(seed)
        self.lengths = lengths
        blocks = [-(-length // PAGE) for length in lengths]
        self.pages = sum(blocks) + 8
        self.stride = (max(blocks) + 15) // 16 * 16
        order = torch.randperm(self.pages, device=DEV).to(torch.int32)
        self.table = torch.full((len(lengths) + 1, self.stride), -1, dtype=torch.int32, device=DEV)
        used = 0
        for row, count in enumerate(blocks):
            self.table[row, :count] = order[used : used + count]
            used += count

        def lane():
            made = torch.randn(self.pages, PAGE, DIM, device=DEV, dtype=torch.bfloat16)
            for row, length in enumerate(lengths):
                if length % PAGE:
                    made[self.table[row, length // PAGE].long(), length % PAGE :] = float("nan")
            return made

        self.k = [lane() for _ in range(layers)] if kv else []
        self.v = [lane() for _ in range(layers)] if kv else []
        self.index_k = [lane() for _ in range(layers)] if index else []

    def rows_of(self, lane, row, count):
        blocks = -(-count // PAGE)
        return lane[self.table[row, :blocks].long()].reshape(-1, DIM)[:count].float()


def time_small_us(work, inner=20):
    """Of a launch too short to be timed alone: a graph's start and its events cost about 8 us."""
    return time_us(lambda: [work() for _ in range(inner)], inner)


def error(actual, expected):
    actual, expected = actual.double(), expected.double()
    value = ((actual - expected).norm() / expected.norm()).item()
    return value if value == value else float("inf")


def i32(values):
    return torch.tensor(values, dtype=torch.int32, device=DEV)


def attend(query, k, v, mask=None):
    logits = query.float() @ k.T / DIM**0.5
    if mask is not None:
        logits = logits.masked_fill(~mask, float("-inf"))
    return torch.softmax(logits, -1) @ v


def bf16(*shape):
    return torch.randn(*shape, device=DEV, dtype=torch.bfloat16)


def f32_nan(*shape, dtype=torch.float32):
    return torch.full(shape, float("nan"), device=DEV, dtype=dtype)


DECODE = [("B1 2k", 1, 2048), ("B8 2k", 8, 2048), ("B64 2k", 64, 2048), ("B256 2k", 256, 2048), ("B64 32k", 64, 32768), ("B8 128k", 8, 131072), ("B1 128k", 1, 131072), ("B1 1M", 1, 1048576)]


def decode_case(batch, context, index, kv):
    per_layer = batch * context * DIM * 2 * (index + 2 * kv)
    layers = max(1, min(4, int(6e9 // per_layer)))
    pool = Pool([context - 5 * (row % 7) for row in range(batch)], layers, index, kv)
    return pool, i32(range(batch)), i32([length - 1 for length in pool.lengths])


def index_decode(kernels):
    for case, batch, context in DECODE:
        pool, rows, positions = decode_case(batch, context, True, False)
        layers = len(pool.index_k)
        stride = pool.stride
        queries = bf16(batch, 1, DIM)
        read = sum(pool.lengths) * DIM * 2
        scores = f32_nan(batch, 1, stride)
        for label in [name for name in kernels if name.startswith("score_decode")]:
            for per_row in (16, 64, 256) if label in ("score_decode_s6w4",) else (64,):
                splits = min(per_row, max(1, stride // 2))
                scores.fill_(float("nan"))
                args = [(queries, k, pool.table, rows, positions, scores, stride, stride, 1) for k in pool.index_k]
                kernels[label]((batch, splits), *args[0])
                torch.cuda.synchronize()
                row = batch - 1
                keys = pool.rows_of(pool.index_k[0], row, pool.lengths[row])
                dots = (queries[row].float() @ keys.T)[0]
                blocks = -(-pool.lengths[row] // PAGE)
                expected = torch.nn.functional.pad(dots, (0, blocks * PAGE - len(dots)), value=-1e38).view(blocks, PAGE).amax(1)
                worst = error(scores[row, 0, :blocks], expected)
                if worst > 1e-3:
                    record("score_decode", case, label, -1.0, error=worst)
                    continue
                us = time_us(lambda: [kernels[label]((batch, splits), *one) for _ in range(4) for one in args], 4 * layers)
                record("score_decode", case, label, us, splits=splits, tbs=read / us / 1e6, error=worst)
        scores = torch.randn(batch, 1, stride, device=DEV)
        for label in ("select_few", "select_many"):
            if label == "select_many" and context > 131072:
                continue
            selected = torch.full((batch, 1, TOPK), -7, dtype=torch.int32, device=DEV)
            rows_of = kernels[label].facts["settings"]["ROWS"]
            grid = (-(-batch // rows_of),)
            kernels[label](grid, scores, positions, selected, batch, stride, 1, 0, 1)
            torch.cuda.synchronize()
            bad = sum(choice_differs(scores[row, 0], pool.lengths[row] - 1, selected[row, 0]) for row in range(min(batch, 16)))
            us = time_small_us(lambda: kernels[label](grid, scores, positions, selected, batch, stride, 1, 0, 1))
            record("select_decode", case, label, us, wrong=bad)
        del pool


def choice_differs(scores, position, selected):
    blocks = position // PAGE + 1
    if blocks <= TOPK:
        expected = list(range(blocks)) + [-1] * (TOPK - blocks)
    else:
        row = scores[:blocks].clone()
        row[-1] = float("inf")
        expected = sorted(torch.sort(row, descending=True, stable=True).indices[:TOPK].tolist())
    return int(expected != selected.tolist())


def random_selection(positions, correlated=False):
    """i32 [T, 1, 16], ascending, the newest block always in. Correlated: 16 neighbours share a set of 24 blocks."""
    blocks = (positions // PAGE + 1).long()
    most = int(blocks.max())
    ids = torch.arange(most, device=DEV)
    out = []
    for first in range(0, len(blocks), 1024):
        count = blocks[first : first + 1024, None]
        if correlated:
            groups = torch.rand(-(-len(count) // 16), most, device=DEV).repeat_interleave(16, 0)[: len(count)]
            seen = count.view(-1)[:: 16].repeat_interleave(16)[: len(count), None]
            groups = groups.masked_fill(ids[None] >= seen, 2.0)
            bound = groups.kthvalue(min(24, most), dim=1, keepdim=True).values
            noise = torch.rand(len(count), most, device=DEV).masked_fill((groups > bound) | (groups > 1), 2.0)
        else:
            noise = torch.rand(len(count), most, device=DEV)
        noise = noise.masked_fill(ids[None] >= count, 3.0)
        noise.scatter_(1, count - 1, -1.0)
        chosen = noise.topk(min(TOPK, most), dim=1, largest=False)
        picked = torch.where(chosen.values < 1.5, chosen.indices, 1 << 20)
        if most < TOPK:
            picked = torch.nn.functional.pad(picked, (0, TOPK - most), value=1 << 20)
        picked = picked.sort(1).values
        out.append(torch.where(picked < 1 << 20, picked, -1))
    return torch.cat(out).to(torch.int32).view(-1, 1, TOPK).contiguous()


def union_factor(selected):
    ratios = []
    for first in range(0, len(selected) - 15, max(16, len(selected) // 64 // 16 * 16)):
        tile = selected[first : first + 16]
        ratios.append(len(set(tile[tile >= 0].tolist())) / (tile >= 0).sum().item() * 16)
    return sum(ratios) / len(ratios)


def sparse_expected(pool, layer, row, position, query, ids):
    ids = ids[ids >= 0].long()
    pages = pool.table[row][ids].long()
    keys = (ids[:, None] * PAGE + torch.arange(PAGE, device=DEV)).view(-1)
    seen = keys <= position
    k = pool.k[layer][pages].reshape(-1, DIM)[seen].float()
    v = pool.v[layer][pages].reshape(-1, DIM)[seen].float()
    return attend(query, k, v)


def sparse_decode(kernels):
    for case, batch, context in DECODE[:6]:
        pool, rows, positions = decode_case(batch, min(context, 32768), False, True)
        queries = bf16(batch, HEADS, DIM)
        selected = random_selection(positions)
        layers = len(pool.k)
        keys = sum(min(TOPK * PAGE, length) for length in pool.lengths)
        row = batch - 1
        expected = sparse_expected(pool, 0, row, pool.lengths[row] - 1, queries[row], selected[row, 0])
        for label in [name for name in kernels if name.startswith("sparse_decode")]:
            splits = kernels[label].facts["settings"]["SPLITS"]
            partial, lse = f32_nan(batch, splits, HEADS, DIM), f32_nan(batch, splits, HEADS)
            out = f32_nan(batch, HEADS, DIM, dtype=torch.bfloat16)

            def work(layer):
                kernels[label](
                    (batch, 1, splits), queries, pool.k[layer], pool.v[layer], pool.table, rows, positions, selected,
                    partial, lse, pool.stride,
                )  # fmt: skip
                kernels[f"sparse_merge_{splits}"]((-(-batch * HEADS // 4),), partial, lse, out, batch * HEADS, HEADS)

            for layer in [*range(layers)] * 5 + [0]:
                work(layer)
            torch.cuda.synchronize()
            worst = error(out[row], expected)
            if not torch.isfinite(out).all():
                worst = float("inf")
            if worst > 1e-2:
                record("sparse_decode", case, label, -1.0, error=worst)
                continue
            us = time_us(lambda: [work(layer) for _ in range(5) for layer in range(layers)], 5 * layers)
            record("sparse_decode", case, label, us, tbs=keys * DIM * 4 / us / 1e6, error=worst)


PREFILL = [("8k", 8192, 0), ("32k", 32768, 0), ("8k on 120k", 8192, 122880)]


def chunk_arrays(new, cached):
    return i32([0]), i32([0]), i32([new]), i32([cached])


def index_prefill(kernels):
    for case, new, cached in PREFILL:
        pool = Pool([cached + new], 1, True, False)
        blocks = (cached + new) // PAGE
        queries = bf16(new, 1, DIM)
        scores = f32_nan(blocks, new)
        positions = torch.arange(cached, cached + new, device=DEV, dtype=torch.int32)
        flops = 2 * DIM * sum(range(max(cached, TOPK * PAGE) + 1, cached + new + 1))
        seq = chunk_arrays(new, cached)
        token = new - 3
        dots = queries[token].float() @ pool.rows_of(pool.index_k[0], 0, cached + token + 1).T
        expected = torch.nn.functional.pad(dots[0], (0, -len(dots[0]) % PAGE), value=-1e38).view(-1, PAGE).amax(1)
        for label in [name for name in kernels if name.startswith("score_prefill")]:
            settings = kernels[label].facts["settings"]
            grid = (-(-new // settings["BLOCK_M"]), -(-blocks // settings["BLOCKS"]), 1)
            args = (queries, pool.index_k[0].view(-1, DIM), pool.table, *seq, scores, pool.stride, new, 0)
            scores.fill_(float("nan"))
            kernels[label](grid, *args)
            torch.cuda.synchronize()
            worst = error(scores[: len(expected), token], expected)
            if worst > 1e-3:
                record("score_prefill", case, label, -1.0, error=worst)
                continue
            us = time_small_us(lambda: kernels[label](grid, *args), 4)
            record("score_prefill", case, label, us, tflops=flops / us / 1e6, error=worst)
        for label in ("select_many",):
            selected = torch.full((new, 1, TOPK), -7, dtype=torch.int32, device=DEV)
            grid = (-(-new // kernels[label].facts["settings"]["ROWS"]),)
            args = (scores, positions, selected, new, 1, new, 0, 1)
            kernels[label](grid, *args)
            torch.cuda.synchronize()
            bad = sum(choice_differs(scores[:, t], cached + t, selected[t, 0]) for t in range(0, new, new // 64 + 1))
            us = time_small_us(lambda: kernels[label](grid, *args), 4)
            record("select_prefill", case, label, us, wrong=bad)


def sparse_prefill(kernels):
    for case, new, cached in PREFILL:
        pool = Pool([cached + new], 1, False, True)
        blocks = (cached + new) // PAGE
        queries = bf16(new, HEADS, DIM)
        positions = torch.arange(cached, cached + new, device=DEV, dtype=torch.int32)
        for kind in ("random", "correlated"):
            selected = random_selection(positions, kind == "correlated")
            pairs = (selected >= 0).sum().item()
            flops = pairs * HEADS * PAGE * DIM * 4
            union = union_factor(selected)
            out = f32_nan(new, HEADS, DIM, dtype=torch.bfloat16)
            counts = torch.zeros(blocks * 32, dtype=torch.int32, device=DEV)
            offsets = torch.zeros(blocks + 4, dtype=torch.int32, device=DEV)
            ranks, entries = torch.zeros_like(selected), torch.zeros_like(selected)
            partial = f32_nan(new, TOPK, HEADS, DIM, dtype=torch.bfloat16)
            lse = f32_nan(new, TOPK, HEADS)

            def lists(first, length, queries_at, spread=32):
                seq = (i32([0]), i32([0]), i32([length]), i32([cached + first]))
                items = (cached + first + length - 1) // PAGE + 1
                first_item = i32([0, items])
                chosen = selected[first : first + length]

                def run():
                    grid = (-(-length // 32), 1, 1)
                    kernels["sparse_count"](grid, chosen, seq[1], seq[2], first_item, counts, ranks, lse, 1, 1, spread)
                    kernels["sparse_offsets"]((1,), counts, offsets, items, spread)
                    kernels["sparse_fill"](grid, chosen, ranks, offsets, seq[1], seq[2], first_item, entries, 1, 1)

                def attend_all(label, parts):
                    kernels[label](
                        (items, parts, 1), queries_at, pool.k[0], pool.v[0], pool.table, *seq, first_item, offsets,
                        entries, partial, lse, pool.stride, 1, 1,
                    )  # fmt: skip

                return run, attend_all

            for spread in (1, 8, 32):
                run, attend_all = lists(0, new, queries, spread)
                run()
                us = time_small_us(run, 10)
                record("sparse_lists", f"{case} {kind[:4]}", "count+offsets+fill", us, spread=spread)

            def merge(label="sparse_merge_prefill", length=new, into=out):
                block = kernels[label].facts["settings"]["BLOCK_R"]
                kernels[label]((-(-length * HEADS // block),), partial, lse, into, length * HEADS, HEADS)

            tokens = [new // 3, new - 2]
            for label in [name for name in kernels if name.startswith("sparse_prefill")]:
                per_block = pairs / blocks * HEADS / kernels[label].facts["settings"]["ROWS"]
                for parts in sorted({max(1, int(per_block / tiles)) for tiles in (2, 4, 8)}):
                    partial.fill_(float("nan"))
                    out.fill_(float("nan"))
                    run()
                    attend_all(label, parts)
                    merge()
                    torch.cuda.synchronize()
                    worst = max(
                        error(out[t], sparse_expected(pool, 0, 0, cached + t, queries[t], selected[t, 0])) for t in tokens
                    )
                    if worst > 1e-2 or not torch.isfinite(out).all():
                        record("sparse_prefill", f"{case} {kind[:4]}", label, -1.0, error=worst)
                        continue
                    us = time_small_us(lambda: attend_all(label, parts), 3)
                    record("sparse_prefill", f"{case} {kind[:4]}", label, us, parts=parts, tflops=flops / us / 1e6, union=union, error=worst)
            # The same work with all results in 2 MB: what the way to memory costs.
            entries.remainder_(64 * TOPK)
            label = "sparse_prefill_r64w4s3"
            parts = max(1, int(pairs / blocks * HEADS / 64 / 4))
            record("sparse_prefill", f"{case} {kind[:4]}", "r64w4s3 in cache", time_small_us(lambda: attend_all(label, parts), 3))
            us = time_small_us(merge, 3)
            record("sparse_merge", f"{case} {kind[:4]}", "sparse_merge_prefill", us, tbs=(pairs + new) * HEADS * DIM * 2 / us / 1e6)
            # All of it, at once and in segments, which need less memory.
            for length in sorted({2048, new}):
                steps = [(first, *lists(first, length, queries[first:])) for first in range(0, new, length)]
                label = "sparse_prefill_r64w4s3"
                parts = max(1, int(length * TOPK / blocks * HEADS / 64 / 4))

                def whole():
                    for first, build, go in steps:
                        build()
                        go(label, parts)
                        merge("sparse_merge_prefill", length, out[first:])

                whole()
                torch.cuda.synchronize()
                worst = max(
                    error(out[t], sparse_expected(pool, 0, 0, cached + t, queries[t], selected[t, 0])) for t in tokens
                )
                record("sparse_whole", f"{case} {kind[:4]}", label, time_small_us(whole, 3), segment=length, error=worst)


def dense_prefill(kernels):
    for case, new, cached in PREFILL:
        pool = Pool([cached + new], 1, False, True)
        queries = bf16(new, HEADS, DIM)
        out = f32_nan(new, HEADS, DIM, dtype=torch.bfloat16)
        flops = 4 * DIM * HEADS * sum(range(cached + 1, cached + new + 1))
        for label in [name for name in kernels if name.startswith("dense_prefill")]:
            if cached:
                continue
            grid = (-(-new * HEADS // kernels[label].facts["settings"]["BLOCK_M"]), 1, 1)
            args = (queries, pool.k[0].view(-1, DIM), pool.v[0].view(-1, DIM), pool.table, *chunk_arrays(new, cached), out, pool.stride)
            out.fill_(float("nan"))
            kernels[label](grid, *args)
            torch.cuda.synchronize()
            worst = 0.0
            for t in (0, 129, new // 2 + 1, new - 1):
                k, v = (pool.rows_of(lane[0], 0, cached + t + 1) for lane in (pool.k, pool.v))
                worst = max(worst, error(out[t], attend(queries[t], k, v)))
            if worst > 1e-2 or not torch.isfinite(out).all():
                record("dense_prefill", case, label, -1.0, error=worst)
                continue
            us = time_us(lambda: kernels[label](grid, *args), repeats=7)
            record("dense_prefill", case, label, us, tflops=flops / us / 1e6, error=worst)


def dense_decode(kernels):
    for case, batch, context in DECODE:
        pool, rows, positions = decode_case(batch, context, False, True)
        queries = bf16(batch, HEADS, DIM)
        layers = len(pool.k)
        out = f32_nan(batch, HEADS, DIM, dtype=torch.bfloat16)
        row = batch - 1
        k, v = (pool.rows_of(lane[0], row, pool.lengths[row]) for lane in (pool.k, pool.v))
        expected = attend(queries[row], k, v)
        for label in [name for name in kernels if name.startswith("dense_decode")]:
            for runs, programs in ((128, 128), (256, 256), (256, 528 // batch + 1)):
                partial, lse = f32_nan(batch, HEADS, runs, DIM), f32_nan(batch, HEADS, runs)

                def work(layer):
                    kernels[label](
                        (batch, 1, programs), queries, pool.k[layer], pool.v[layer], pool.table, rows, positions,
                        partial, lse, pool.stride, runs,
                    )  # fmt: skip
                    kernels["dense_merge"]((batch, HEADS), partial, lse, positions, out, runs)

                work(0)
                torch.cuda.synchronize()
                worst = error(out[row], expected)
                if worst > 1e-2:
                    record("dense_decode", case, label, -1.0, error=worst)
                    continue
                us = time_us(lambda: [work(layer) for _ in range(3) for layer in range(layers)], 3 * layers)
                record("dense_decode", case, label, us, runs=runs, programs=programs, tbs=sum(pool.lengths) * DIM * 4 / us / 1e6, error=worst)
        del pool, k, v


def store(kernels):
    frequencies = (5e6 ** (-2.0 * torch.arange(32, dtype=torch.float64) / 64)).float().to(DEV)
    norms = [bf16(DIM) * 0.1 for _ in range(4)]
    for tokens in (1, 8, 64, 256, 8192):
        positions = torch.randint(0, 1 << 20, (tokens,), device=DEV, dtype=torch.int32)
        angles = f32_nan(tokens, 64)
        go = lambda: kernels["rope_angles"]((-(-tokens // 4),), positions, frequencies, angles, tokens)  # noqa: E731
        go()
        angle = (positions.float()[:, None] * frequencies).double()
        worst = (angles.double() - torch.cat([angle.cos(), angle.sin()], 1)).abs().max().item()
        record("rope_angles", f"T{tokens}", "rope_angles", time_small_us(go), worst=worst)
        width = HEADS + 4
        qkv = bf16(tokens, width, DIM)
        pages = tokens // PAGE + 2
        slots = torch.randperm(pages * PAGE, device=DEV)[:tokens].contiguous()
        for label in [name for name in kernels if name.startswith("store")]:
            queries, index_queries = f32_nan(tokens, HEADS, DIM, dtype=torch.bfloat16), f32_nan(tokens, 1, DIM, dtype=torch.bfloat16)
            lanes = [f32_nan(pages, PAGE, DIM, dtype=torch.bfloat16) for _ in range(3)]
            grid = (-(-tokens // kernels[label].facts["settings"]["BLOCK_T"]), width)
            args = (qkv, angles, slots, *norms, queries, index_queries, *lanes, tokens, HEADS, 1, 1, 1e-6)
            kernels[label](grid, *args)

            def expected(x, w):
                x = x.double()
                x = x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * (1 + w.double())
                cos, sin = angle.cos()[:, None], angle.sin()[:, None]
                left, right = x[..., :32], x[..., 32:64]
                return torch.cat([left * cos - right * sin, right * cos + left * sin, x[..., 64:]], -1)

            worst = max(
                error(queries, expected(qkv[:, :8], norms[0])), error(index_queries, expected(qkv[:, 10:11], norms[2])),
                error(lanes[0].view(-1, DIM)[slots], expected(qkv[:, 8:9], norms[1])[:, 0]),
                error(lanes[1].view(-1, DIM)[slots], qkv[:, 9]),
                error(lanes[2].view(-1, DIM)[slots], expected(qkv[:, 11:12], norms[3])[:, 0]),
            )  # fmt: skip
            us = time_small_us(lambda: kernels[label](grid, *args))
            record("store", f"T{tokens}", label, us, tbs=qkv.numel() * 4 / us / 1e6, error=worst)


SECTIONS = {
    "store": store, "index_decode": index_decode, "sparse_decode": sparse_decode, "dense_decode": dense_decode,
    "index_prefill": index_prefill, "sparse_prefill": sparse_prefill, "dense_prefill": dense_prefill,
}  # fmt: skip


def main():
    kernels = load(sys.argv[1])
    failed = 0
    print(torch.cuda.get_device_name(), torch.__version__, flush=True)
    for name in sys.argv[3:] or SECTIONS:
        begun = time.monotonic()
        try:
            SECTIONS[name](kernels)
        except Exception:
            failed += 1
            traceback.print_exc()
        torch.cuda.empty_cache()
        print(f"--- {name}: {time.monotonic() - begun:.1f} s", flush=True)
        facts = {label: {k: v for k, v in kernel.facts.items() if k != "arguments"} for label, kernel in kernels.items()}
        Path(sys.argv[2]).write_text(json.dumps({"device": torch.cuda.get_device_name(), "results": RESULTS, "kernels": facts}))
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
