// out[i] = bf16(factor * x[i] + y[i]) over `count` elements, as scale_add.py computes it: proves that the CUDA C++ path
// loads, that a macro arrives as a constexpr, and that arguments without trailing pointers arrive.
//
// x, y, out: bf16, contiguous. One thread per element, 256 threads a block. Bound by memory: 6 bytes an element.

#include <cuda_bf16.h>

extern "C" __global__ void __launch_bounds__(THREADS) scale_add_cuda(
    const __nv_bfloat16* __restrict__ x, const __nv_bfloat16* __restrict__ y, __nv_bfloat16* __restrict__ out,
    int count, float factor) {
    const long long at = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x;
    if (at < count) {
        out[at] = __float2bfloat16_rn(factor * __bfloat162float(x[at]) + __bfloat162float(y[at]));
    }
}
