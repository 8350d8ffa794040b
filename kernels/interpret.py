"""Runs Triton kernels on a CPU, without torch: the interpreter on numpy memory.

For kernel tests (`kernels/<op>/test_<op>.py`). It is no speed model and no proof for a GPU: it shows the algorithm,
the masks and the addresses. Import this module before anything imports triton, because the switch is an
environment variable that `triton.jit` reads.

    from interpret import Tensor, bf16, launch
    out = Tensor.poisoned((4, 128), bf16)
    launch(kernel, (4,), Tensor(x), out, 4, BLOCK=128)      # constexprs by name
    out.array                                               # numpy, dtype ml_dtypes.bfloat16

`launch` checks what a GPU would not tell: every tensor lies between guard bands, and a store outside of it fails
the launch; a pointer argument that promises 16-byte alignment gets 256-byte alignment.
"""

import os

os.environ["TRITON_INTERPRET"] = "1"

import ml_dtypes  # noqa: E402
import numpy as np  # noqa: E402
import triton  # noqa: E402,F401
import triton.language as tl  # noqa: E402
from triton._C.libtriton import ir as _ir  # noqa: E402
from triton.runtime import interpreter  # noqa: E402
from triton.tools.tensor_descriptor import TensorDescriptor  # noqa: E402

bf16 = np.dtype(ml_dtypes.bfloat16)
e4m3 = np.dtype(ml_dtypes.float8_e4m3fn)

# Bytes before and after every tensor that no kernel may change.
GUARD_BYTES = 4096
GUARD_VALUE = 0xA5
ALIGNMENT = 256


class _Storage:
    """What the interpreter takes for a torch storage: it never leaves the CPU, so copies are no-ops."""

    def __init__(self, address):
        self.address = address

    def data_ptr(self):
        return self.address

    def cpu(self):
        return self

    def copy_(self, other):
        assert other is self


class _DtypeName(str):
    """What the interpreter reads of a torch dtype."""

    itemsize: int


class Tensor:
    """A numpy array inside guard bands, with the handful of torch methods that the interpreter calls."""

    def __init__(self, array):
        array = np.ascontiguousarray(array)
        self._memory = np.full(array.nbytes + 2 * GUARD_BYTES + ALIGNMENT, GUARD_VALUE, dtype=np.uint8)
        address = self._memory.ctypes.data + GUARD_BYTES
        self._begin = GUARD_BYTES + -address % ALIGNMENT
        self._end = self._begin + array.nbytes
        self.array = self._memory[self._begin : self._end].view(array.dtype).reshape(array.shape)
        self.array[...] = array
        self.dtype = _DtypeName(array.dtype.name)
        self.dtype.itemsize = array.itemsize
        self._storage = _Storage(self._memory.ctypes.data + self._begin)

    @classmethod
    def poisoned(cls, shape, dtype):
        """Memory that nobody wrote: NaN, or a large negative integer."""
        dtype = np.dtype(dtype)
        if np.issubdtype(dtype, np.integer):
            return cls(np.full(shape, np.iinfo(dtype).min // 2 + 77, dtype=dtype))
        return cls(np.full(shape, np.nan, dtype=np.float32).astype(dtype))

    def f32(self):
        return self.array.astype(np.float32)

    def check_guards(self, name):
        for band in (self._memory[: self._begin], self._memory[self._end :]):
            if not (band == GUARD_VALUE).all():
                raise AssertionError(f"the kernel wrote outside of argument {name}")

    @property
    def shape(self):
        return self.array.shape

    def data_ptr(self):
        return self._storage.data_ptr()

    def untyped_storage(self):
        return self._storage

    def storage_offset(self):
        return 0

    def size(self):
        return self.array.shape

    def stride(self):
        return tuple(stride // self.array.itemsize for stride in self.array.strides)

    def element_size(self):
        return self.array.itemsize

    def new_empty(self, _size, device=None):
        alias = Tensor.__new__(Tensor)
        alias.__dict__.update(self.__dict__)
        return alias

    def set_(self, storage, _offset, _size, _stride):
        self._storage = storage


def launch(kernel, grid, *args, **constexprs):
    """Runs every program of `grid`, one after the other; num_warps and num_stages are ignored."""
    for option in ("num_warps", "num_stages"):
        constexprs.pop(option, None)
    # The interpreter knows Python's numbers only.
    args = [arg.item() if isinstance(arg, np.generic) else arg for arg in args]
    with np.errstate(all="ignore"):
        kernel[grid](*args, **constexprs)
    for name, arg in zip(kernel.arg_names, args):
        if isinstance(arg, Tensor):
            arg.check_guards(name)


def matrix(tensor, box):
    """A 2-D tensor as the copy engine reads it, `box` rows x columns at a time."""
    return TensorDescriptor.from_tensor(tensor, list(box))


def f32(values):
    """bfloat16 or float8 array as float32."""
    return np.asarray(values).astype(np.float32)


def round_bf16(values):
    """float32 values rounded to bfloat16 and back."""
    return np.asarray(values, dtype=np.float32).astype(bf16).astype(np.float32)


# Combine functions of tl.reduce that numpy can do at once; the interpreter would call them element by element.
_NUMPY_REDUCTIONS = {"nan_or_maximum": np.max}


# Formats that the interpreter keeps as integers of their width.
_FLOATS = {
    tl.bfloat16: bf16,
    tl.float8e4nv: e4m3,
    tl.float8e5: np.dtype(ml_dtypes.float8_e5m2),
    tl.float16: np.dtype(np.float16),
    tl.float32: np.dtype(np.float32),
}


def _patch_conversions():
    # The interpreter truncates where the hardware rounds to nearest even.
    convert = interpreter._convert_float

    def rounded(data, source, target, rounding_mode):
        source, target = source.scalar, target.scalar
        if source not in _FLOATS or target not in _FLOATS or rounding_mode == _ir.ROUNDING_MODE.RTZ:
            return convert(data, source, target, rounding_mode)
        values = np.ascontiguousarray(data).view(_FLOATS[source]).astype(np.float32)
        if target in (tl.float8e4nv, tl.float8e5):
            limit = float(ml_dtypes.finfo(_FLOATS[target]).max)
            values = np.clip(values, -limit, limit)
        bits = np.dtype(f"u{_FLOATS[target].itemsize}")
        return values.astype(_FLOATS[target]).view(bits)

    interpreter._convert_float = rounded


def _patch_interpreter():
    # The interpreter keeps bfloat16 as uint16 and its dot would multiply those integers.
    create_dot = interpreter.InterpreterBuilder.create_dot

    def widened(handle):
        if handle.dtype.scalar != tl.bfloat16:
            return handle
        values = np.ascontiguousarray(handle.data).view(bf16).astype(np.float32)
        return interpreter.TensorHandle(values, tl.float32)

    def dot(self, left, right, accumulator, precision, max_imprecise):
        return create_dot(self, widened(left), widened(right), accumulator, precision, max_imprecise)

    interpreter.InterpreterBuilder.create_dot = dot

    # A truth value spread over a block would become int32, which is no mask.
    create_splat = interpreter.InterpreterBuilder.create_splat

    def splat(self, type, value):
        block = create_splat(self, type, value)
        if value.data.dtype == bool:
            block.data = block.data.astype(bool)
        return block

    interpreter.InterpreterBuilder.create_splat = splat

    apply_reduction = interpreter.ReduceOps.apply_impl

    def reduction(self, input):
        operation = _NUMPY_REDUCTIONS.get(getattr(self.combine_fn, "__name__", None))
        if operation is None:
            return apply_reduction(self, input)
        data = operation(input[0].handle.data, axis=self.axis, keepdims=self.keep_dims)
        return self.to_tensor(data, input[0].dtype)

    interpreter.ReduceOps.apply_impl = reduction


_patch_conversions()
_patch_interpreter()
