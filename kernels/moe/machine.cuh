// The machine instructions of stream.cu; host_entry.cpp has them for a CPU.
#pragma once

#include <cstdint>

// Read once: not kept near the multiprocessor.
__device__ inline uint4 load_codes(const uint8_t* codes) {
    uint4 value;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                 : "l"(codes));
    return value;
}

// Two bf16 products.
__device__ inline uint32_t multiply_pairs(uint32_t left, uint32_t right) {
    uint32_t product;
    asm("mul.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(left), "r"(right));
    return product;
}

// sum += a b for one 16 x 8 x 16 product of a warp, operands as mma.sync lays them out.
__device__ inline void multiply(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Rounded to nearest even.
__device__ inline uint16_t bf16(float value) {
    uint16_t bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
