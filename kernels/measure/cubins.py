"""Launches prepared cubins on torch tensors, and times them. For measurements; the product launches from Rust.

Needs a CUDA driver and torch (any version: its allocator, streams and graphs, nothing of its Triton).
"""

import ctypes
import json
import statistics
from pathlib import Path

import torch

_driver = ctypes.CDLL("libcuda.so.1")
_SHARED_LIMIT = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_SCALARS = {"i32": ctypes.c_int32, "i64": ctypes.c_int64, "u32": ctypes.c_uint32, "u64": ctypes.c_uint64, "f32": ctypes.c_float}


def _check(code, what):
    if code:
        text = ctypes.c_char_p()
        _driver.cuGetErrorString(code, ctypes.byref(text))
        raise RuntimeError(f"{what}: {text.value}")


class _Map(ctypes.Structure):
    _fields_ = [("words", ctypes.c_uint64 * 16)]


def _tensor_map(tensor, shape):
    """A 2-D row-major bf16 tensor as the copy engine reads it; returns the map at an address divisible by 64."""
    storage = (ctypes.c_uint8 * 192)()
    address = (ctypes.addressof(storage) + 63) // 64 * 64
    rows, columns = tensor.shape
    width = tensor.element_size()
    _check(
        _driver.cuTensorMapEncodeTiled(
            ctypes.c_void_p(address), 9, 2, ctypes.c_void_p(tensor.data_ptr()), (ctypes.c_uint64 * 2)(columns, rows),
            (ctypes.c_uint64 * 1)(columns * width), (ctypes.c_uint32 * 2)(*reversed(shape["box"])),
            (ctypes.c_uint32 * 2)(1, 1), 0, shape["swizzle"], 2, 0,
        ),
        "tensor map",
    )  # fmt: skip
    assert tensor.dtype == torch.bfloat16 and tensor.is_contiguous()
    return storage, _Map.from_address(address)


class Kernel:
    """One loaded cubin. `kernel(grid, *arguments)` enqueues on torch's current stream."""

    def __init__(self, path, facts):
        torch.cuda.current_stream()
        torch.zeros(1, device="cuda")
        self.facts = facts
        module = ctypes.c_void_p()
        self._bytes = path.read_bytes()
        _check(_driver.cuModuleLoadData(ctypes.byref(module), self._bytes), f"load {path.name}")
        self._function = ctypes.c_void_p()
        symbol = facts["symbol"].encode()
        _check(_driver.cuModuleGetFunction(ctypes.byref(self._function), module, symbol), f"find {facts['symbol']}")
        if facts["shared"] > 48 * 1024:
            _check(_driver.cuFuncSetAttribute(self._function, _SHARED_LIMIT, facts["shared"]), "shared memory")

    def __call__(self, grid, *arguments):
        types = self.facts["arguments"]
        assert len(types) == len(arguments), (len(types), len(arguments))
        values, keep, maps = [], [], iter(self.facts["maps"])
        for kind, argument in zip(types, arguments):
            if kind.startswith("tensor<"):
                storage, encoded = _tensor_map(argument, next(maps))
                keep.append(storage)
                rows, columns = argument.shape
                values += [encoded, ctypes.c_int32(rows), ctypes.c_int32(columns), ctypes.c_int64(columns), ctypes.c_int64(1)]
            elif kind.startswith("*"):
                values.append(ctypes.c_void_p(0 if argument is None else argument.data_ptr()))
            else:
                values.append(_SCALARS[kind](argument))
        values += [ctypes.c_void_p(0)] * self.facts["trailing_pointers"]
        pointers = (ctypes.c_void_p * len(values))(*[ctypes.addressof(value) for value in values])
        grid = tuple(grid) + (1,) * (3 - len(grid))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        _check(
            _driver.cuLaunchKernel(
                self._function, *grid, self.facts["threads"], 1, 1, self.facts["shared"], stream, pointers, None
            ),
            f"launch {self.facts['symbol']} {grid}",
        )


def load(folder):
    """{label: Kernel} of everything that `prepare.py` left in `folder`."""
    folder = Path(folder)
    index = json.loads((folder / "index.json").read_text())
    kernels = {}
    for label, facts in index.items():
        try:
            kernels[label] = Kernel(folder / f"{label}.cubin", facts)
        except RuntimeError as failure:
            print(f"{label} does not load: {failure}", flush=True)
    return kernels


def time_us(work, inner=1, repeats=15):
    """Median microseconds of `work` in a replayed graph, divided by `inner` (launch groups inside `work`)."""
    work()
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        work()
    for _ in range(3):
        graph.replay()
    times = []
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1000.0 / inner)
    return statistics.median(times)
