"""Times every compiled tile shape on a GPU, after checking its results: what `variants.py` compiled, into JSON.

    python3 kernels/measure/sweep.py FOLDER OUT.json [SECONDS]

Memory is rotated (fresh routes, several copies of small weights), so that decode reads weights from HBM.
"""

import json
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))

import data  # noqa: E402
from driver import Kernel, graph_time, relative_error  # noqa: E402

DECODE, PREFILL = (1, 8, 64, 256), 8192
DRAWS = 6
TOLERANCE = 6e-3
# N, K of a TP8 rank's plain products.
PRODUCTS = {"qkv": (1536, 6144), "o": (6144, 1024), "dense_down": (6144, 1536), "head": (25008, 6144)}
PARTS = ["*f32", "*i32"]
TYPES = {
    "gemm": ["*", "*", "*", "*", *PARTS, "i32", "i32", "i32"],
    "moe_up": ["*"] * 6 + PARTS + ["i32"] * 4 + ["f32"] * 2,
    "moe_down": ["*"] * 6 + ["i32"] * 3,
    "router_logits": ["*"] * 3 + ["i32"] * 3,
}


def buffer(*shape, dtype=torch.bfloat16):
    """Poisoned, so that what nobody writes shows."""
    out = torch.empty(shape, dtype=dtype, device=data.DEVICE)
    return out.fill_(float("nan")) if dtype.is_floating_point else out.zero_()


class Moe:
    """Weights of one format, and draws of routes per number of tokens."""

    def __init__(self, form):
        self.up = data.weights(2 * data.INNER, data.HIDDEN, form, data.GROUPS)
        self.down = data.weights(data.HIDDEN, data.INNER, form, data.GROUPS)
        self.draws = {}

    def draw(self, tokens, count):
        if tokens not in self.draws:
            made = []
            for _ in range(count):
                ids = data.random_ids(tokens)
                offsets, rows = data.grouped(ids)
                x = torch.randn(tokens, data.HIDDEN, device=data.DEVICE).bfloat16()
                if made:
                    inner = torch.randn(len(rows), data.INNER, device=data.DEVICE).bfloat16()
                else:
                    inner = data.wanted_inner(x, offsets, rows, self.up[2]).bfloat16()
                y = data.wanted_y(inner, offsets, rows, self.down[2]) if not made else None
                made.append((ids, offsets, rows, x, inner, y))
            self.draws[tokens] = made
        return self.draws[tokens]


def time_moe(kernel, item, moe, tokens, splits):
    """(microseconds, error): error of the first draw."""
    block_m, wide = item["BLOCK_M"], item["wide"]
    up = item["family"].endswith("up")
    draws = moe.draw(tokens, DRAWS if tokens <= 256 else 1)
    tiles = data.tiles_of(tokens, block_m)
    places = tokens * (data.TOP_K + 1)
    launches, outs = [], []
    if up:
        tiles_i = -(-data.INNER // (wide // 2))
        partials = buffer(splits, tiles * block_m, 2 * data.INNER, dtype=torch.float32) if item.get("SPLIT") else None
        counters = buffer(tiles * tiles_i, dtype=torch.int32)
    for ids, offsets, rows, x, inner, _ in draws:
        if up:
            out = buffer(places, data.INNER)
            args = ((tiles_i * tiles, splits), x, moe.up[0], moe.up[1], offsets, rows, out, partials, counters,
                    tokens, data.HIDDEN, data.INNER, data.GROUPS, 1.702, 7.0)
        else:
            out = buffer(places, data.HIDDEN)
            args = ((-(-data.HIDDEN // wide) * tiles,), inner, moe.down[0], moe.down[1], offsets, rows, out, data.HIDDEN, data.INNER,
                    data.GROUPS)
        outs.append(out)
        launches.append(lambda args=args: kernel(*args))
    launches[0]()
    torch.cuda.synchronize()
    wanted = draws[0][4] if up else draws[0][5]
    error = relative_error(outs[0], wanted)
    return graph_time(launches), error


def time_product(kernel, item, tokens, product, splits, copies):
    N, K = PRODUCTS[product]
    x = torch.randn(tokens, K, device=data.DEVICE).bfloat16()
    out = buffer(tokens, N)
    tiles = -(-tokens // item["BLOCK_M"]) * -(-N // item["wide"])
    partials = buffer(splits, tokens, N, dtype=torch.float32) if item["SPLIT"] else None
    counters = buffer(tiles, dtype=torch.int32)
    launches = [
        lambda w=w: kernel((tiles, splits), x, w[0], w[1], out, partials, counters, tokens, N, K) for w in copies
    ]
    launches[0]()
    torch.cuda.synchronize()
    error = relative_error(out, x.float() @ copies[0][2](0).T)
    return graph_time(launches), error


def time_router(kernel, item, tokens, splits):
    x = torch.randn(tokens, data.HIDDEN, device=data.DEVICE).bfloat16()
    w = [torch.randn(data.EXPERTS, data.HIDDEN, device=data.DEVICE) for _ in range(24)]
    out = buffer(splits, tokens, data.EXPERTS, dtype=torch.float32)
    grid = (-(-tokens // item["BLOCK_T"]), splits)
    launches = [lambda w=w: kernel(grid, x, w, out, tokens, data.EXPERTS, data.HIDDEN) for w in w]
    launches[0]()
    torch.cuda.synchronize()
    error = relative_error(out.sum(0), x.double() @ w[0].double().T)
    return graph_time(launches), error


def jobs(item):
    """(what, tokens, splits) to time for one compiled shape."""
    family = item["family"]
    if family == "router_logits":
        for tokens, splits in ((1, 24), (1, 48), (64, 24), (PREFILL, 4), (PREFILL, 8)):
            if (tokens == PREFILL) == (item["BLOCK_T"] > 16):
                yield family, tokens, splits
        return
    decode = bool(item.get("SPLIT", item["BLOCK_M"] <= 64 and item["SWAP"]))
    rows = item["BLOCK_M"]
    for tokens in DECODE if decode else (PREFILL,):
        if decode and tokens < 64 and rows > 16:
            continue
        if family == "gemm":
            for product in PRODUCTS:
                for splits in ((1, 2, 4, 8) if product != "head" else (1,)) if decode else (1,):
                    if decode and splits > 2 and tokens == 256:
                        continue
                    yield product, tokens, splits
        else:
            for splits in (1, 2, 4) if family == "moe_up" and decode and tokens <= 64 else (1,):
                yield family, tokens, splits


def measure(kernel, item, what, tokens, splits, moe, copies):
    if item["family"] == "router_logits":
        time_us, error = time_router(kernel, item, tokens, splits)
    elif item["family"] == "gemm":
        if what not in copies:
            copies[what] = product_weights(what, item["FORMAT"])
        used = copies[what] if tokens <= 256 else copies[what][:1]
        time_us, error = time_product(kernel, item, tokens, what, splits, used)
    else:
        time_us, error = time_moe(kernel, item, moe, tokens, splits)
    return {**item, "what": what, "tokens": tokens, "splits": splits, "us": round(time_us, 2), "error": error}


def product_weights(what, form):
    """Copies that do not fit into L2 together."""
    N, K = PRODUCTS[what]
    count = max(2, 200_000_000 // (N * K * (2 if form == 0 else 1)))
    return [data.weights(N, K, form) for _ in range(min(count, 24))]


def best_of(results):
    """The fastest right one of every format, operation and number of tokens."""
    best = {}
    for item in results:
        key = (item.get("FORMAT", 0), item["what"], item["tokens"])
        if item["error"] <= TOLERANCE and (key not in best or item["us"] < best[key]["us"]):
            best[key] = item
    return [best[key] for key in sorted(best, key=str)]


def main():
    folder, out, limit = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]) if sys.argv[3:] else 200.0
    index = [item for item in json.loads((folder / "index.json").read_text()) if "file" in item]
    began = time.time()
    results = []
    torch.zeros(1, device=data.DEVICE)  # Makes the context current.
    torch.manual_seed(7)
    for form in (0, 2):
        mine = [item for item in index if item.get("FORMAT", 0) == form]
        moe = Moe(form) if any(item["family"].startswith("moe") for item in mine) else None
        copies, kernels = {}, {}
        for item in mine:
            kernel = Kernel(
                (folder / item["file"]).read_bytes(), item["symbol"], 32 * item["num_warps"], item["shared"],
                TYPES[item["family"]], item.get("trailing", 2),
            )
            for what, tokens, splits in jobs(item):
                if time.time() - began < limit * (0.55 if form == 0 else 1):
                    results.append(measure(kernel, item, what, tokens, splits, moe, copies))
                    kernels[item["file"]] = kernel
        for item in best_of(results):
            if item.get("FORMAT", 0) == form and item["file"] in kernels:
                kernels[item["file"]].dependent = True
                again = measure(kernels[item["file"]], item, item["what"], item["tokens"], item["splits"], moe, copies)
                item["us_dependent"] = again["us"]
        del moe, copies, kernels
        torch.cuda.empty_cache()
    out.write_text(json.dumps(results))
    report(results)
    print(f"{len(results)} measurements in {time.time() - began:.0f} s on {torch.cuda.get_device_name()}")


def report(results):
    bad = [item for item in results if not item["error"] <= TOLERANCE]
    for item in bad[:10]:
        print("WRONG", item)
    for item in best_of(results):
        shape = [item.get(name, item.get("BLOCK_T")) for name in ("BLOCK_M", "wide", "BLOCK_K", "num_warps", "num_stages", "SWAP", "blocks")]
        print(
            f"format {item.get('FORMAT', 0)} {item['what']:14} {item['tokens']:5} tokens: {item['us']:8.1f} us"
            f" ({item.get('us_dependent', 0):8.1f} dependent)  {item['family']} {shape} splits {item['splits']}"
        )


if __name__ == "__main__":
    main()
