// Entry points of stream.cu on a CPU, called by test_stream.py.

#define CUDA_ON_HOST
#include "../sampling/cuda_on_host.h"

inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }

inline uint32_t __byte_perm(uint32_t low, uint32_t high, uint32_t selector) {
    const uint64_t bytes = uint64_t(high) << 32 | low;
    uint32_t result = 0;
    for (int at = 0; at < 4; at++) result |= uint32_t(bytes >> (selector >> 4 * at & 7) * 8 & 0xff) << 8 * at;
    return result;
}

inline uint4 load_codes(const uint8_t* codes) {
    if (uintptr_t(codes) % 16 != 0) abort();
    uint4 value;
    memcpy(&value, codes, 16);
    return value;
}

inline float wide(uint32_t pair, int half) { return __uint_as_float(half ? pair & 0xffff0000u : pair << 16); }

inline uint16_t bf16(float value) {
    const uint32_t bits = __float_as_uint(value);
    if (value != value) return 0x7fff;
    return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline uint32_t multiply_pairs(uint32_t left, uint32_t right) {
    return uint32_t(bf16(wide(left, 0) * wide(right, 0))) | uint32_t(bf16(wide(left, 1) * wide(right, 1))) << 16;
}

inline void multiply(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    const uint32_t given[6] = {a[0], a[1], a[2], a[3], b0, b1};
    const int lane = current % 32;
    exchange(given, 6, [&](auto take) {
        for (int at = 0; at < 4; at++) {
            const int row = lane / 4 + at / 2 * 8, column = lane % 4 * 2 + at % 2;
            for (int k = 0; k < 16; k++) {
                const uint32_t left = take(row % 8 * 4 + k % 8 / 2)[row / 8 + k / 8 * 2];
                const uint32_t right = take(column * 4 + k % 8 / 2)[4 + k / 8];
                sum[at] += wide(left, k % 2) * wide(right, k % 2);
            }
        }
        return 0;
    });
}

#include "stream.cu"

struct Arguments {
    uint16_t* x;
    uint8_t *w, *scales;
    int32_t *offsets, *rows;
    uint16_t* out;
    int32_t T, N, K, groups, top_k, blocks;
};

static Arguments a;

static void grid(void (*work)()) {
    gridDim = {unsigned(a.blocks), 1, 1};
    for (int block = 0; block < a.blocks; block++) {
        blockIdx = {unsigned(block), 0, 0};
        run_block(WARPS * 32, work);
    }
}

extern "C" void run_up(const Arguments* arguments) {
    a = *arguments;
    grid([] { moe_up_stream(a.x, a.w, a.scales, a.offsets, a.rows, a.out, a.T, a.K, a.N, a.groups, a.top_k, 1.702f, 7.0f); });
}

extern "C" void run_down(const Arguments* arguments) {
    a = *arguments;
    grid([] { moe_down_stream(a.x, a.w, a.scales, a.offsets, a.rows, a.out, a.N, a.K, a.groups); });
}

extern "C" void run_gemm(const Arguments* arguments) {
    a = *arguments;
    grid([] { gemm_stream(a.x, a.w, a.scales, a.out, a.T, a.N, a.K); });
}
