"""numpy answers for the kernel tests: MXFP8 weights with scales that differ in every block, products, SwiGLU."""

import ml_dtypes
import numpy as np

GROUP = 32


def random_bf16(random, shape, deviation=1.0):
    """float32 values that bf16 holds exactly."""
    values = random.standard_normal(shape, dtype=np.float32) * np.float32(deviation)
    return values.astype(ml_dtypes.bfloat16)


def random_mxfp8(random, rows, columns):
    """(codes u8 [rows, columns], scales u8 [rows, columns / 32], values float32): every code but NaN, scales of real weights."""
    codes = random.integers(0, 256, (rows, columns), dtype=np.uint8)
    codes[(codes & 0x7F) == 0x7F] = 0x01
    scales = random.integers(112, 124, (rows, columns // GROUP), dtype=np.uint8)
    return codes, scales, dequantised(codes, scales)


def dequantised(codes, scales):
    values = codes.view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    factors = np.exp2(scales.astype(np.float32) - 127)
    return values * np.repeat(factors, GROUP, axis=-1)


def swiglu(gate, up, alpha=1.702, limit=7.0):
    gate = np.minimum(gate, limit)
    up = np.clip(up, -limit, limit)
    return (up + 1) * gate / (1 + np.exp(-alpha * gate))


def assert_close(result, wanted, tolerance, what):
    """Norm of the difference over the norm of what is wanted, and no NaN."""
    result = np.asarray(result, dtype=np.float64)
    wanted = np.asarray(wanted, dtype=np.float64)
    assert result.shape == wanted.shape, f"{what}: shape {result.shape}, not {wanted.shape}"
    assert np.isfinite(result).all(), f"{what}: {np.count_nonzero(~np.isfinite(result))} values are not finite"
    error = np.linalg.norm(result - wanted) / max(np.linalg.norm(wanted), 1e-30)
    assert error <= tolerance, f"{what}: relative error {error:.2e} is above {tolerance:.0e}"
