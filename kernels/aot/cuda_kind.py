"""Compiles one CUDA C++ instance with the pinned nvcc. Constexprs become macros; the function is `extern "C"`."""

import tempfile
from pathlib import Path

from . import tools
from .manifest import ROOT, TENSOR

ARCHITECTURES = {"sm90": "sm_90a"}


def compile_instance(instance, target):
    """Cubin bytes and the facts that a launcher and the checks need."""
    row = instance.row
    if any(TENSOR.match(argument.type) for argument in row.args):
        raise tools.ToolError("tensor arguments are for triton rows")
    macros = [f"-D{name}={_macro(value)}" for name, value in instance.constexprs.items()]
    limit = [f"-maxrregcount={instance.options['maxnreg']}"] if instance.options["maxnreg"] else []
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "kernel.cubin"
        tools.run([
            tools.nvcc(), "-cubin", f"-arch={ARCHITECTURES[target]}", "-O3", "-std=c++17", "--expt-relaxed-constexpr",
            "-DNDEBUG", "-I", ROOT, "-I", row.source.parent, *macros, *limit, "-o", out, row.source,
        ])
        cubin = out.read_bytes()
    facts = {
        "symbol": row.function, "threads": row.threads, "shared": row.shared, "trailing_pointers": 0,
        "dependent": bool(instance.options["launch_pdl"]), "maps": [],
    }
    return cubin, facts


def _macro(value):
    return int(value) if isinstance(value, bool) else value
