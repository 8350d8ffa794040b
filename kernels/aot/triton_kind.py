"""Compiles one Triton instance for a target, without a GPU and without torch.

The launch order that it fixes: the row's arguments in order (a tensor argument becomes its 128-byte map, rows and
columns as i32, row and column stride as i64), then two scratch pointers that Triton always adds. A kernel that really
needs scratch is refused, because nothing at run time would provide it.
"""

import importlib.util
import os
import re
import sys

from .manifest import ROOT, TENSOR

ARCHITECTURES = {"sm90": 90}
TRAILING_POINTERS = 2
_modules = {}


class CompileError(Exception):
    """The sentence says what is wrong with the row or the source."""


def prepare(ptxas, cache):
    """Sets what Triton reads from the environment; call before anything imports it."""
    settings = {
        "TRITON_DISABLE_LINE_INFO": "1",  # Cubins a third of the size.
        "TRITON_DEFAULT_FP_FUSION": "1",
        "TRITON_PTXAS_BLACKWELL_PATH": str(ptxas),  # The name misleads: it assembles for sm_90 as well.
        "TRITON_CACHE_DIR": str(cache),
        "TRITON_ALWAYS_COMPILE": "1",
    }
    for name in [name for name in os.environ if name.startswith("TRITON_")]:
        del os.environ[name]
    os.environ.update(settings)


def _function(row):
    """The `@triton.jit` function of a row."""
    if row.source not in _modules:
        for folder in (str(ROOT), str(row.source.parent)):
            if folder not in sys.path:
                sys.path.append(folder)
        name = "kernel_source_" + re.sub(r"\W", "_", str(row.source.relative_to(ROOT)))
        spec = importlib.util.spec_from_file_location(name, row.source)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        _modules[row.source] = module
    function = getattr(_modules[row.source], row.function, None)
    if function is None or not hasattr(function, "arg_names"):
        raise CompileError(f"{row.source.name} has no @triton.jit function {row.function}")
    return function


def triton_type(argument, constexprs):
    """The type as Triton's signatures write it."""
    tensor = TENSOR.match(argument.type)
    if tensor:
        box = [constexprs.get(name, name) for name in tensor.groups()[1:]]
        return f"tensordesc<{tensor[1]}[{box[0]},{box[1]}]>"
    return re.sub(r"\b([fi])(?=\d)|\*f(?=\d)", lambda found: found[0].replace("f", "fp"), argument.type)


def _signature(function, row, constexprs):
    given = [argument.name for argument in row.args]
    wanted = [name for name in function.arg_names if name not in constexprs]
    if given != wanted:
        raise CompileError(f"the row's arguments are ({', '.join(given)}); {row.function} takes ({', '.join(wanted)})")
    foreign = [name for name in constexprs if name not in function.arg_names]
    if foreign:
        raise CompileError(f"{row.function} has no parameter {foreign[0]}")
    types = {argument.name: triton_type(argument, constexprs) for argument in row.args}
    signature = {name: types.get(name, "constexpr") for name in function.arg_names}
    divisible = {argument.name for argument in row.args if argument.multiple >= 16}
    attributes = {
        (index,): [["tt.divisibility", 16]] for index, name in enumerate(function.arg_names) if name in divisible
    }
    return signature, attributes


def compile_instance(instance, target):
    """Cubin bytes and the facts that a launcher and the checks need."""
    from triton import compile as triton_compile
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    function = _function(instance.row)
    signature, attributes = _signature(function, instance.row, instance.constexprs)
    source = ASTSource(function, signature, constexprs=dict(instance.constexprs), attrs=attributes)
    options = {key: value for key, value in instance.options.items() if value is not None}
    made = triton_compile(source, target=GPUTarget("cuda", ARCHITECTURES[target], 32), options=options)
    metadata = made.metadata
    if metadata.global_scratch_size or metadata.profile_scratch_size:
        raise CompileError("needs scratch memory on the device (a descriptor made in the kernel?); pass a tensor argument")
    threads = re.search(r"\.reqntid\s+(\d+)", made.asm["ptx"])
    facts = {
        "symbol": metadata.name,
        "threads": int(threads[1]) if threads else 32 * metadata.num_warps,
        "shared": metadata.shared,
        "trailing_pointers": TRAILING_POINTERS,
        "dependent": bool(instance.options["launch_pdl"]),
        "maps": _maps(metadata),
    }
    return made.asm["cubin"], facts


def _maps(metadata):
    """Box and swizzle of each tensor argument: what the hardware copies, which is not always the tile."""
    described = [item for item in (metadata.tensordesc_meta or []) if item]
    return [
        {"box": [int(edge) for edge in item["block_size"]], "swizzle": int(item["swizzle"])} for item in described
    ]
