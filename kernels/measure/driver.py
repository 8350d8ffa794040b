"""Loads cubins and launches them on torch's stream: for measuring on a machine with a GPU and torch, never for a server."""

import ctypes
import json
from pathlib import Path

import torch

cuda = ctypes.CDLL("libcuda.so.1")
MAX_DYNAMIC_SHARED = 8
PROGRAMMATIC_SERIALIZATION = 6


class Attribute(ctypes.Structure):
    """CUlaunchAttribute: an id and a union of 64 bytes."""

    _fields_ = [("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_int), ("rest", ctypes.c_int * 15)]


class Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = [
        ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", ctypes.c_uint), ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(Attribute)), ("count", ctypes.c_uint),
    ]


C_TYPES = {"i32": ctypes.c_int32, "i64": ctypes.c_int64, "f32": ctypes.c_float, "fp32": ctypes.c_float}


def check(status, what):
    if status:
        raise RuntimeError(f"{what} failed with {status}")


class Kernel:
    """A function of a cubin. Called as kernel(grid, *args): tensors, None, ints and floats in the function's order."""

    def __init__(self, cubin, symbol, threads, shared, types, trailing):
        self.types, self.threads, self.shared, self.trailing = types, threads, shared, trailing
        self.dependent = False  # May start before the launch ahead of it has ended.
        module, self.function = ctypes.c_void_p(), ctypes.c_void_p()
        check(cuda.cuModuleLoadData(ctypes.byref(module), cubin), f"loading {symbol}")
        check(cuda.cuModuleGetFunction(ctypes.byref(self.function), module, symbol.encode()), f"finding {symbol}")
        if shared > 48 * 1024:
            check(cuda.cuFuncSetAttribute(self.function, MAX_DYNAMIC_SHARED, shared), f"shared memory of {symbol}")

    def __call__(self, grid, *args):
        assert len(args) == len(self.types), f"{len(args)} arguments for {len(self.types)}"
        values = []
        for kind, value in zip(self.types, args):
            if kind[0] == "*":
                values.append(ctypes.c_uint64(0 if value is None else value.data_ptr()))
            else:
                values.append(C_TYPES[kind](value))
        values += [ctypes.c_uint64(0)] * self.trailing
        pointers = (ctypes.c_void_p * len(values))(*[ctypes.cast(ctypes.byref(value), ctypes.c_void_p) for value in values])
        grid = tuple(map(int, (*grid, 1, 1)[:3]))
        attribute = Attribute(PROGRAMMATIC_SERIALIZATION, 0, 1)
        config = Config(
            grid, (self.threads, 1, 1), self.shared, torch.cuda.current_stream().cuda_stream, ctypes.pointer(attribute),
            int(self.dependent),
        )
        status = cuda.cuLaunchKernelEx(ctypes.byref(config), self.function, pointers, None)
        check(status, f"launching on grid {grid}")


def shipped(folder, shape="M3 TP8"):
    """{(kernel, variant name or number): Kernel} of the index that compile.py wrote, for one shape."""
    index = json.loads((Path(folder) / "sm90.json").read_text())
    rows = {row["name"]: row for row in index["rows"]}
    found = {}
    for item in index["instances"]:
        cubin = Path(folder) / "cubins" / Path(item["cubin"]).name
        if shape not in item["shapes"] or not cubin.is_file():
            continue
        row = rows[item["kernel"]]
        name = row["variants"][item["variant"]].get("name", item["variant"])
        types = [argument["type"] for argument in row["arguments"]]
        found[item["kernel"], name] = Kernel(
            cubin.read_bytes(), item["symbol"], item["threads"], item["shared"], types, item["trailing_pointers"]
        )
    return found


def graph_time(launches, repeats=10):
    """Microseconds of one of `launches` (callables), all captured in one graph: median over replays."""
    launches[0]()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for launch in launches:
            launch()
    graph.replay()
    times = []
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1000 / len(launches))
    return sorted(times)[len(times) // 2]


def relative_error(result, wanted):
    result, wanted = result.double(), wanted.double()
    if not torch.isfinite(result).all():
        return float("inf")
    return float((result - wanted).norm() / wanted.norm().clamp_min(1e-30))
