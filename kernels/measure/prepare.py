"""Compiles kernel variants for a measurement on a machine that has a GPU but neither this Triton nor a network.

    python kernels/measure/prepare.py kernels/measure/attention_variants.py OUT

The variants file defines VARIANTS = {label: (row, shape, {constexpr or option: value})}; what a row says holds unless
overridden. OUT gets one cubin per label and `index.json`, which `cubins.py` reads. Nothing is checked or packed here.
"""

import json
import runpy
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from aot import manifest, tools, triton_kind  # noqa: E402

TARGET = "sm90"


def instance_of(rows, shapes, row, shape, overrides):
    """The row's first variant for that shape, with `overrides` on top."""
    row = rows[row]
    values = {**row.constexprs, **{k: v for k, v in row.variants[0].items() if k != "name"}, **overrides}
    options = {**row.options, **{k: v for k, v in values.items() if k in manifest.OPTIONS}}
    dims = shapes[shape][1]
    constexprs = {
        key: dims[value[1:]] if isinstance(value, str) and value.startswith("$") else value
        for key, value in values.items()
        if key not in manifest.OPTIONS
    }
    return manifest.Instance(row, 0, constexprs, options, [shape])


def build(job):
    label, instance, out = job
    try:
        cubin, facts = triton_kind.compile_instance(instance, TARGET)
        path = out / f"{label}.cubin"
        path.write_bytes(cubin)
        facts.update(tools.inspect(path, facts["symbol"]))
        opcodes = facts.pop("opcodes", {})
        facts["matrix"] = {name: opcodes[name] for name in ("HGMMA", "HMMA", "UTMALDG", "LDGSTS") if name in opcodes}
    except Exception as failure:
        return label, None, f"{type(failure).__name__}: {failure}"
    facts["arguments"] = [argument.type for argument in instance.row.args]
    facts["settings"] = {**instance.constexprs, **{k: v for k, v in instance.options.items() if v}}
    return label, facts, None


def main():
    variants = runpy.run_path(sys.argv[1])["VARIANTS"]
    out = Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    rows, shapes = manifest.load()
    rows = {row.name: row for row in rows}
    jobs = [(label, instance_of(rows, shapes, *variant), out) for label, variant in variants.items()]
    index = {}
    with tempfile.TemporaryDirectory() as scratch:
        triton_kind.prepare(tools.ptxas(), scratch)
        with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
            for label, facts, failure in pool.map(build, jobs):
                print(label, failure or {k: facts.get(k) for k in ("registers", "stack", "shared", "matrix")}, flush=True)
                if not failure:
                    index[label] = facts
    (out / "index.json").write_text(json.dumps(index))


if __name__ == "__main__":
    main()
