"""The pinned tools inside the environment that runs this, their versions, and what they say about a cubin."""

import collections
import importlib.metadata
import re
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

from .manifest import ROOT

# What the assembler books in every block that uses shared memory, beside the kernel's own.
RESERVED_SHARED = 1024
OPCODE = re.compile(r"^\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*)", re.MULTILINE)
USAGE = re.compile(r"(\w+):(\d+)")


class ToolError(Exception):
    """A tool is missing or failed; the sentence holds its own words."""


def _site(package):
    """Folder of an installed package of this interpreter, without importing it."""
    for entry in map(Path, sys.path):
        if (entry / package).is_dir():
            return entry / package
    raise ToolError(f"python package {package} is not installed; run cargo xtask build, or pip install -r kernels/requirements.txt")


def cuda():
    """Folder with `bin/nvcc`, `bin/ptxas` and the headers."""
    return _site("nvidia") / "cu13"


def ptxas():
    return cuda() / "bin" / "ptxas"


def nvcc():
    return cuda() / "bin" / "nvcc"


def _triton_tool(name):
    return _site("triton") / "backends" / "nvidia" / "bin" / name


@lru_cache(maxsize=None)
def pinned():
    """Version of every compiler package in `requirements.txt`: part of each cache key, printed by `m3 backends`."""
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    versions = dict(line.split(" ")[0].split("==") for line in lines if "==" in line and not line.startswith((" ", "#")))
    return {name: version for name, version in versions.items() if name == "triton" or name.startswith("nvidia-")}


@lru_cache(maxsize=None)
def versions():
    """The pinned versions, after a look at what is really installed."""
    for package, version in pinned().items():
        try:
            installed = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            raise ToolError(f"python package {package} is not installed; run cargo xtask build") from None
        if installed != version:
            raise ToolError(f"python package {package} is {installed}; kernels/requirements.txt pins {version}")
    return pinned()


def run(arguments):
    """Standard output of a tool; its own words in the error when it fails."""
    ended = subprocess.run([str(argument) for argument in arguments], capture_output=True, text=True, check=False)
    if ended.returncode:
        raise ToolError(f"{Path(str(arguments[0])).name} failed: {(ended.stderr or ended.stdout).strip()}")
    return ended.stdout


def inspect(cubin, symbol):
    """Registers, stack, local and static shared bytes, and how often each machine instruction occurs."""
    usage = run([_triton_tool("cuobjdump"), "--dump-resource-usage", cubin])
    function = re.search(rf"Function {re.escape(symbol)}:\s*\n?\s*(.*)", usage)
    if not function:
        raise ToolError(f"cuobjdump finds no function {symbol}")
    found = dict(USAGE.findall(function[1]))
    listing = run([_triton_tool("nvdisasm"), "-c", cubin])
    return {
        "registers": int(found.get("REG", 0)),
        "stack": int(found.get("STACK", 0)),
        "local": int(found.get("LOCAL", 0)),
        "static_shared": max(0, int(found.get("SHARED", 0)) - RESERVED_SHARED),
        "opcodes": dict(sorted(collections.Counter(OPCODE.findall(listing)).items())),
    }
