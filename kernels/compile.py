"""Compiles the kernels of `manifest.toml` ahead of time and holds them against what their rows promise.

    python kernels/compile.py                        # every row, cached
    python kernels/compile.py --only add_norm        # one row (repeatable)
    python kernels/compile.py --only add_norm --show # and its registers, shared memory and instructions
    python kernels/compile.py --list                 # instances only, nothing is compiled

`cargo xtask build --backend sm90` runs this in the pinned environment and packs what it leaves behind. It needs
`kernels/requirements.txt`, no GPU and no torch. Which stubs, pack or plugin come of it is not decided here.
"""

import argparse
import concurrent.futures
import json
import multiprocessing
import os
import sys
import tempfile
import time
from pathlib import Path

from aot import checks, manifest, source, tools, triton_kind

DEFAULT_OUT = manifest.ROOT.parent / "target" / "kernels"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="sm90", choices=manifest.TARGETS)
    parser.add_argument("--manifest", type=Path, default=manifest.ROOT / "manifest.toml")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help="cache and index go here")
    parser.add_argument("--only", action="append", default=[], metavar="NAME")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--describe", action="store_true", help="rows and shapes as JSON; nothing is compiled")
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--json", action="store_true", help="one JSON object a line, for xtask")
    return parser.parse_args()


def toolchain(target):
    """Everything beside a row and its sources that decides the bytes."""
    pipeline = [source.digest(manifest.ROOT / "aot" / name) for name in ("triton_kind.py", "cuda_kind.py", "tools.py")]
    return {"target": target, "packages": tools.versions(), "pipeline": pipeline}


def build(job):
    """In a worker: compiles one instance into the cache. Returns the sentence of a failure, or None."""
    instance, target, path = job
    try:
        if instance.row.kind == "triton":
            cubin, facts = triton_kind.compile_instance(instance, target)
        else:
            from aot import cuda_kind

            cubin, facts = cuda_kind.compile_instance(instance, target)
        part = path.with_name(f"{path.name}.{os.getpid()}.part")
        part.write_bytes(cubin)
        facts.update(tools.inspect(part, facts["symbol"]))
        # The facts are written last: a cached instance is one that has them.
        part.rename(path.with_suffix(".cubin"))
        part.write_text(json.dumps(facts))
        part.rename(path.with_suffix(".json"))
        return None
    except Exception as failure:  # Whatever a compiler throws belongs to this kernel and must name it.
        return f"{type(failure).__name__}: {failure}"


class Report:
    """What happened, for a person or for xtask."""

    def __init__(self, as_json):
        self.as_json = as_json

    def say(self, event, **facts):
        if self.as_json:
            print(json.dumps({"event": event, **facts}), flush=True)
        elif event == "plan":
            print(f"{facts['total']} instances, {facts['cached']} cached")
        elif event == "done":
            print(f"  {facts['title']}  {facts['seconds']:.1f} s", flush=True)
        elif event == "error":
            print(f"error: {facts['title']}: {facts['sentence']}", file=sys.stderr, flush=True)


def compile_missing(missing, options, report):
    """Compiles in parallel; every failure is reported, not only the first."""
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        triton_kind.prepare(tools.ptxas(), scratch)
        context = multiprocessing.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(max(1, options.jobs), mp_context=context) as pool:
            begun = time.monotonic()
            waiting = {pool.submit(build, job): job[0] for job in missing}
            for future in concurrent.futures.as_completed(waiting):
                title, sentence = waiting[future].title(), future.result()
                if sentence:
                    failed += 1
                    report.say("error", title=title, sentence=sentence)
                else:
                    report.say("done", title=title, seconds=time.monotonic() - begun)
    return failed


def check(instances, paths, show, report):
    """Promises of every instance, cached or not; facts of those that keep them."""
    failed, records = 0, []
    for instance, path in zip(instances, paths):
        if not path.with_suffix(".json").is_file():
            continue
        facts = json.loads(path.with_suffix(".json").read_text())
        for breach in checks.breaches(instance.row, facts):
            failed += 1
            report.say("error", title=instance.title(), sentence=breach)
        if show:
            print(f"{instance.title()}\n  {json.dumps(facts)}")
        records.append({
            "kernel": instance.row.name, "variant": instance.variant, "constexprs": instance.constexprs,
            "options": instance.options, "shapes": instance.shapes, "cubin": str(path.with_suffix(".cubin")), **facts,
        })
    return failed, records


def describe(rows, shapes, target):
    """What xtask needs for stubs and pack."""
    described = [
        {
            "name": row.name, "kind": row.kind, "source": str(row.source.relative_to(manifest.ROOT)),
            "function": row.function, "arguments": [
                {"name": a.name, "type": a.type, "multiple": a.multiple, "nullable": a.nullable} for a in row.args
            ],
            "variants": row.variants, "constexprs": row.constexprs,
        }
        for row in rows if target in row.targets
    ]
    return {
        "target": target, "toolchain": tools.pinned(), "rows": described,
        "shapes": [{"name": name, "set": belongs, "dims": dims} for name, (belongs, dims) in shapes.items()],
    }


def run(options):
    report = Report(options.json)
    rows, shapes = manifest.load(options.manifest)
    unknown = [name for name in options.only if name not in {row.name for row in rows}]
    if unknown:
        raise manifest.ManifestError(f"no kernel is called {unknown[0]}")
    chosen = [row for row in rows if not options.only or row.name in options.only]
    instances = manifest.expand(chosen, shapes, options.target)
    if options.list:
        for instance in instances:
            print(f"{instance.title()}  for {', '.join(instance.shapes)}")
        return 0
    if options.describe:
        print(json.dumps(describe(rows, shapes, options.target)))
        return 0
    tool_facts = toolchain(options.target)
    cache = options.out / "cache" / options.target
    cache.mkdir(parents=True, exist_ok=True)
    paths = [cache / source.key(instance, options.target, tool_facts) for instance in instances]
    missing = [
        (instance, options.target, path)
        for instance, path in zip(instances, paths)
        if not path.with_suffix(".json").is_file()
    ]
    report.say("plan", total=len(instances), cached=len(instances) - len(missing))
    failed = compile_missing(missing, options, report) if missing else 0
    breached, records = check(instances, paths, options.show, report)
    if failed or breached:
        return 1
    if not options.only:
        index = {**describe(rows, shapes, options.target), "instances": records}
        (options.out / f"{options.target}.json").write_text(json.dumps(index, indent=1))
    return 0


def main():
    options = arguments()
    try:
        return run(options)
    except (manifest.ManifestError, tools.ToolError) as failure:
        Report(options.json).say("error", title="manifest", sentence=str(failure))
        return 1


if __name__ == "__main__":
    sys.exit(main())
