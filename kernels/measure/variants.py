"""Tile shapes to try on a GPU: compiles them ahead of time into a folder that `device.py` times.

    target/kernels/venv/bin/python kernels/measure/variants.py OUT [FAMILY ...]

A developer's tool. What wins goes into manifest.toml by hand, what was tried into docs/performance.md.
"""

import json
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from aot import tools, triton_kind  # noqa: E402

BF16, U8, F32, I32 = "*bf16", "*u8", "*fp32", "*i32"
PARTS = {"partials": F32, "counters": I32}


def signatures(form):
    w = BF16 if form == 0 else U8
    moe = {"offsets": I32, "rows": I32}
    return {
        "gemm": {"x": BF16, "w": w, "scales": U8, "out": BF16, **PARTS, "M": "i32", "N": "i32", "K": "i32"},
        "moe_up": {
            "x": BF16, "w": w, "scales": U8, **moe, "inner": BF16, **PARTS, "T": "i32", "K": "i32", "I": "i32",
            "groups": "i32", "alpha": "fp32", "limit": "fp32",
        },
        "moe_down": {"inner": BF16, "w": w, "scales": U8, **moe, "y": BF16, "N": "i32", "I": "i32", "groups": "i32"},
        "router_logits": {"x": BF16, "w": F32, "partials": F32, "T": "i32", "E": "i32", "K": "i32"},
    }


def tile(block_m, wide, block_k, warps, stages, form, swap, **rest):
    return dict(BLOCK_M=block_m, wide=wide, BLOCK_K=block_k, num_warps=warps, num_stages=stages, FORMAT=form, SWAP=swap, **rest)


def tried():
    """(family, settings) in the order of interest."""
    for form in (0, 2):
        decode = [(16, 64, 128, 4, 4), (16, 64, 128, 4, 6), (16, 128, 128, 4, 3), (16, 128, 128, 8, 4), (32, 64, 128, 4, 4),
                  (64, 64, 128, 4, 3), (64, 128, 128, 8, 3)]
        if form == 0:
            decode += [(16, 64, 256, 4, 3), (16, 64, 64, 4, 8)]
        for shape in decode:
            yield "moe_up", tile(*shape, form, 1, SPLIT=1)
            yield "moe_down", tile(*shape[:4], 3, form, 1)
            yield "gemm", tile(*shape, form, 1, SPLIT=1)
    for shape in ((128, 128, 64, 8, 4), (128, 256, 64, 8, 3), (128, 256, 64, 8, 4), (64, 256, 64, 8, 4), (128, 128, 64, 4, 4)):
        for family in ("moe_up", "moe_down", "gemm"):
            yield family, tile(*shape, 0, 0, SPLIT=0)
    for shape, swap in (((128, 128, 128, 8, 3), 1), ((256, 128, 128, 8, 2), 1), ((128, 128, 128, 8, 3), 0),
                        ((128, 256, 128, 8, 2), 0), ((64, 128, 128, 4, 3), 1)):
        for family in ("moe_up", "moe_down", "gemm"):
            yield family, tile(*shape, 2, swap, SPLIT=0)
    for shape in ((16, 4, 4), (16, 4, 6), (64, 8, 3)):
        yield "router_logits", dict(BLOCK_T=shape[0], BLOCK_E=128, BLOCK_K=64, num_warps=shape[1], num_stages=shape[2])


def settings_of(family, settings):
    """(constexprs, options): `wide` is BLOCK_N, or twice BLOCK_I where gate and up share a tile."""
    constexprs = {key: value for key, value in settings.items() if key not in ("wide", "num_warps", "num_stages")}
    options = {"num_warps": settings["num_warps"], "num_stages": settings["num_stages"]}
    if family == "moe_up":
        constexprs |= {"BLOCK_I": settings["wide"] // 2, "BLOCK_E": 256, "TOP_K": 4}
    elif family == "moe_down":
        constexprs |= {"BLOCK_N": settings["wide"], "BLOCK_E": 256}
        constexprs.pop("SPLIT", None)
    elif family == "gemm":
        constexprs |= {"BLOCK_N": settings["wide"], "GROUP_M": 8, "OUT_F32": 0}
    return constexprs, options


def compile_one(job):
    out, number, family, settings = job
    triton_kind.prepare(tools.ptxas(), out / f"cache{os.getpid()}")
    from triton import compile as triton_compile
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    if family == "gemm":
        from gemm.gemm import gemm as function
    elif family == "router_logits":
        from router.router import router_logits as function
    else:
        import moe.moe

        function = getattr(moe.moe, family)
    constexprs, options = settings_of(family, settings)
    types = signatures(settings.get("FORMAT", 0))[family]
    signature = {name: types.get(name, "constexpr") for name in function.arg_names}
    aligned = {name for name in types if types[name][0] == "*" or name in ("N", "K", "I")}
    attributes = {(index,): [["tt.divisibility", 16]] for index, name in enumerate(function.arg_names) if name in aligned}
    try:
        made = triton_compile(
            ASTSource(function, signature, constexprs=constexprs, attrs=attributes), target=GPUTarget("cuda", 90, 32),
            options=options,
        )
    except Exception as error:  # Some shapes do not fit; say so and go on.
        return {"family": family, **settings, "error": str(error)[:200]}
    file = f"{number:03d}_{family}.cubin"
    (out / file).write_bytes(made.asm["cubin"])
    return {"family": family, **settings, "file": file, "symbol": made.metadata.name, "shared": made.metadata.shared}


def main():
    out = Path(sys.argv[1]).resolve()
    out.mkdir(parents=True, exist_ok=True)
    jobs = [(out, number, *job) for number, job in enumerate(tried()) if not sys.argv[2:] or job[0] in sys.argv[2:]]
    with ProcessPoolExecutor(2) as pool:
        made = list(pool.map(compile_one, jobs))
    (out / "index.json").write_text(json.dumps(made, indent=0))
    print(f"{sum('file' in item for item in made)} of {len(made)} compiled")


if __name__ == "__main__":
    main()
