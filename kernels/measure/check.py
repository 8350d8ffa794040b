"""Runs the shipped kernels at a TP8 rank's full shapes on a GPU against torch and numpy.

    python3 kernels/measure/check.py FOLDER [norms fills sampling mixture]

FOLDER has sm90.json as compile.py made it, and the cubins in cubins/.
"""

import sys
import traceback
from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).resolve().parent
sys.path[:0] = [str(ROOT), str(ROOT.parent)]

import data  # noqa: E402
from driver import graph_time, relative_error, shipped  # noqa: E402
from sampling import reference  # noqa: E402

D = data.DEVICE


def randn(*shape):
    return torch.randn(*shape, device=D).bfloat16()


def empty(*shape, dtype=torch.bfloat16):
    out = torch.empty(shape, dtype=dtype, device=D)
    return out.fill_(float("nan")) if dtype.is_floating_point else out.fill_(-77)


def expect(what, error, limit):
    print(f"{'ok   ' if error <= limit else 'WRONG'} {what}: relative error {error:.2e} (limit {limit:.0e})")
    return error <= limit


def norms(kernels):
    rows = 300
    residual, pending, weight, out = randn(rows, 6144), randn(rows, 6144), randn(6144) * 0.2, empty(rows, 6144)
    summed = (residual.float() + pending.float()).bfloat16()
    wanted = summed.float() * torch.rsqrt(summed.float().pow(2).mean(-1, keepdim=True) + 1e-6) * (1 + weight.float())
    chosen = torch.tensor([5, 299, 0], dtype=torch.int32, device=D)
    gathered = empty(3, 6144)
    kernels["gather_norm", 0]((3,), residual, pending, weight, chosen, gathered, 1e-6)
    kernels["add_norm", "pending"]((rows,), residual, pending, weight, out, 1e-6)
    torch.cuda.synchronize()
    yield "add_norm", relative_error(out, wanted), 4e-3
    yield "its residual", relative_error(residual, summed), 0
    yield "gather_norm", relative_error(gathered, wanted[chosen.long()]), 4e-3


def fills(kernels):
    from fill.reference import wanted_words

    words = 3 * 4096 + 100
    for kind, name in enumerate(("f32", "bf16", "e4m3")):
        out = torch.zeros(words, dtype=torch.int32, device=D)
        kernels["fill_synthetic", name]((-(-words // 1024),), out, words, 42, 0.0125)
        wanted = wanted_words(42, words, kind, 0.0125).view(np.int32)
        yield f"fill {name}", float((out.cpu().numpy() != wanted).sum()), 0


def route(kernels, x, w, bias, tokens, live):
    splits = 24 if tokens <= 256 else 4
    partials = empty(splits, tokens, 128, dtype=torch.float32)
    variant, block = ("decode", 16) if tokens <= 256 else ("prefill", 64)
    kernels["router_logits", variant]((-(-tokens // block), splits), x, w, partials, tokens, 128, 6144)
    scores, ids = empty(tokens, 128, dtype=torch.float32), empty(tokens, 4, dtype=torch.int32)
    weights = empty(tokens, 4, dtype=torch.float32)
    kernels["router_choose", 0]((tokens,), partials, bias, live, scores, ids, weights, tokens, 128, splits)
    offsets, rows = empty(130, dtype=torch.int32), empty(tokens * 5, dtype=torch.int32)
    kernels["group_rows", 0]((129,), ids, offsets, rows, tokens, 128)
    return partials, scores, ids, weights, offsets, rows


def mixture(kernels):
    for form, name in ((0, "bf16"), (2, "mxfp8")):
        up, down = data.weights(768, 6144, form, 129), data.weights(6144, 384, form, 129)
        for tokens in (1, 8, 64, 256, 2048):
            yield from mixture_of(kernels, name, up, down, tokens)
        del up, down
        torch.cuda.empty_cache()


def mixture_of(kernels, name, up, down, tokens):
    x, w, bias = randn(tokens, 6144), torch.randn(128, 6144, device=D) * 0.02, torch.randn(128, device=D) * 0.1
    live = torch.tensor([tokens], dtype=torch.int32, device=D)
    partials, scores, ids, weights, offsets, rows = route(kernels, x, w, bias, tokens, live)
    torch.cuda.synchronize()
    logits = x.double() @ w.double().T
    yield f"router logits {tokens}", relative_error(partials.sum(0), logits), 3e-6
    wanted_ids = (logits.sigmoid() + bias.double()).topk(4).indices.sort(1).values
    yield f"router ids {tokens}", float((ids != wanted_ids).any(1).float().mean()), 2e-3
    chosen = scores.gather(1, ids.long())
    yield f"router weights {tokens}", relative_error(weights, chosen / chosen.sum(1, keepdim=True)), 1e-6
    wanted_offsets, wanted_rows = data.grouped(ids)
    yield f"grouping {tokens}", float((offsets != wanted_offsets).sum() + (rows != wanted_rows).sum()), 0
    variant, block = next(item for item in (("decode16", 16), ("decode32", 32), ("decode64", 64), ("prefill", 128))
                          if tokens <= {16: 64, 32: 128, 64: 512, 128: 1 << 20}[item[1]])
    tiles, splits = data.tiles_of(tokens, block), 2 if block < 128 else 1
    tiles_i = 12 if block < 128 else 6
    inner, y, pending = empty(tokens * 5, 384), empty(tokens * 5, 6144), empty(tokens, 6144)
    parts = empty(splits, tiles * block, 768, dtype=torch.float32) if splits > 1 else None
    counters = torch.zeros(tiles * tiles_i, dtype=torch.int32, device=D)
    kernels[f"moe_up_{name}", variant]((tiles_i * tiles, splits), x, up[0], up[1], offsets, rows, inner, parts, counters, tokens, 6144,
                                       384, 129, 1.702, 7.0)
    kernels[f"moe_down_{name}", variant](((96 if block < 128 else 48) * tiles,), inner, down[0], down[1], offsets, rows, y, 6144, 384, 129)
    kernels["moe_combine", 0]((tokens, 6), y, ids, weights, pending, tokens, 6144, 2.0)
    torch.cuda.synchronize()
    wanted = data.wanted_y(data.wanted_inner(x, offsets, rows, up[2]).bfloat16(), offsets, rows, down[2])
    combined = 2.0 * (wanted[: 4 * tokens].view(tokens, 4, 6144) * weights[:, :, None]).sum(1) + wanted[4 * tokens :]
    yield f"moe {name} {tokens} tokens {variant}", relative_error(pending, combined), 1e-2


def sampling(kernels):
    random = np.random.default_rng(11)
    for vocab in (1000, 25008, 200064):
        positions, rows = 48, 48
        case = reference.random_case(random, vocab, positions, rows)
        if vocab > 1000:
            case[0][:] *= 2
        outputs, _ = run_sampler(kernels, case, vocab)
        near = reference.check_outputs(case, outputs, case[3], 4)
        print(f"     sampling, vocabulary {vocab}: {near} of {positions} positions near a limit chose the other side")
        yield f"sampling {vocab}", near / positions, 0.1
    for what, settings in (("greedy", (0.0, 1.0)), ("top_p 0.95", (1.0, 0.95)), ("temperature only", (1.0, 1.0))):
        for positions in (1, 64):
            case = reference.random_case(random, 200064, max(positions, 8), max(positions, 8))
            table, places = case[2], case[1]
            table["temperature"], table["top_p"], table["min_p"], table["top_k"] = settings[0], settings[1], 0, 0
            table["counts"], table["num_biases"], table["num_logprobs"] = reference.NONE, 0, reference.NONE
            places["target"] = places["mask"] = reference.NONE
            places["row"] = np.arange(len(places))
            clean = np.nan_to_num(case[0], nan=0, posinf=0, neginf=0)
            _, launch = run_sampler(kernels, (clean, places, *case[2:]), 200064, positions)
            print(f"     sampling 200064, {what}, {positions} rows: {graph_time([launch] * 4):.1f} us")


def run_sampler(kernels, case, vocab, positions=None):
    def device(array):
        return torch.from_numpy(np.ascontiguousarray(array).view(np.uint8).reshape(-1).copy()).to(D)

    logits, places, rows, counts, biases, masks, drafts = map(device, case)
    count = positions or len(case[1])
    num_parts = -(-vocab // 8192)
    slots, capacity = len(case[1]), 4
    adjusted, parts = empty(count, vocab, dtype=torch.float32), torch.zeros(count * num_parts * 24, dtype=torch.uint8, device=D)
    tokens, faults, ranks = (torch.full((slots,), -1, dtype=torch.int32, device=D) for _ in range(3))
    last = torch.zeros(len(case[2]), dtype=torch.int32, device=D)
    logprobs, top_ids = empty(slots, dtype=torch.float32), torch.zeros(slots, capacity, dtype=torch.int32, device=D)
    top_logprobs = empty(slots, capacity, dtype=torch.float32)

    def launch():
        kernels["sample_scan", 0]((num_parts, count), logits, adjusted, places, rows, counts, biases, masks, drafts, parts, vocab)
        kernels["sample_choose", 0]((count,), logits, adjusted, places, rows, counts, parts, tokens, faults, last, vocab, num_parts)
        kernels["sample_logprobs", 0]((count,), logits, places, rows, parts, tokens, logprobs, ranks, top_ids, top_logprobs, vocab,
                                      num_parts, capacity)

    launch()
    torch.cuda.synchronize()
    unsigned = {"tokens": tokens, "faults": faults, "ranks": ranks, "top_ids": top_ids}
    outputs = {name: value.cpu().numpy().view(np.uint32) for name, value in unsigned.items()}
    outputs |= {"logprobs": logprobs.cpu().numpy(), "top_logprobs": top_logprobs.cpu().numpy(), "last_tokens": last.cpu().numpy()}
    outputs["counts"] = counts.cpu().numpy().view(np.uint32).reshape(case[3].shape)
    return outputs, launch


def main():
    torch.zeros(1, device=D)
    torch.manual_seed(3)
    kernels = shipped(sys.argv[1])
    wrong = 0
    checks = [check for check in (norms, fills, sampling, mixture) if not sys.argv[2:] or check.__name__ in sys.argv[2:]]
    for check in checks:
        try:
            for what, error, limit in check(kernels):
                wrong += not expect(what, error, limit)
        except Exception:
            wrong += 1
            traceback.print_exc()
    print(f"{wrong} wrong")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
