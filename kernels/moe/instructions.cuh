// The machine instructions of stream.cu. Its test has a host version of this file's functions instead.
#pragma once

#ifdef HOST_TEST
#include "host_instructions.h"
#else

#include <cuda_bf16.h>

namespace {

__device__ inline uint4 load_once(const void* place) {
    uint4 value;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w) : "l"(place));
    return value;
}

__device__ inline uint32_t multiply(uint32_t left, uint32_t right) {
    uint32_t product;
    asm("mul.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(left), "r"(right));
    return product;
}

// Bytes 0 and 1 (2 and 3) of a word into the upper halves of two 16-bit places.
__device__ inline uint32_t spread_low(uint32_t codes) { return __byte_perm(codes, 0, 0x1404); }
__device__ inline uint32_t spread_high(uint32_t codes) { return __byte_perm(codes, 0, 0x3424); }

// sum[16 rows, 8 columns] += a[16, 16] b[16, 8], in the registers' places that m16n8k16 fixes.
__device__ inline void product(float (&sum)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ inline void wait_for_inputs() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

}  // namespace

#endif
