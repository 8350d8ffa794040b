// What instructions.cuh offers, on a CPU.
#pragma once

#include "../sampling/cuda_on_host.h"

using __nv_bfloat16 = uint16_t;

inline float bf16_value(uint32_t bits) { return __uint_as_float(bits << 16); }

inline uint16_t __float2bfloat16(float value) {
    uint32_t bits = __float_as_uint(value);
    return uint16_t((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

inline uint4 load_once(const void* place) {
    uint4 value;
    if (uintptr_t(place) % 16) abort();  // As the machine would.
    memcpy(&value, place, 16);
    return value;
}

inline uint32_t multiply(uint32_t left, uint32_t right) {
    uint32_t low = __float2bfloat16(bf16_value(left & 0xFFFF) * bf16_value(right & 0xFFFF));
    uint32_t high = __float2bfloat16(bf16_value(left >> 16) * bf16_value(right >> 16));
    return low | high << 16;
}

inline uint32_t spread_low(uint32_t codes) { return (codes & 0xFF) << 8 | (codes & 0xFF00) << 16; }
inline uint32_t spread_high(uint32_t codes) { return spread_low(codes >> 16); }
inline void wait_for_inputs() {}

// Lane 4 g + t holds rows g and g + 8, columns 2 t, 2 t + 1 and those plus 8 of a; the same k of column g of b; columns
// 2 t, 2 t + 1 of the sums.
inline void product(float (&sum)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
    const uint32_t words[6] = {a0, a1, a2, a3, b0, b1};
    const int row = current % 32 / 4, column = current % 4 * 2;
    exchange(words, 6, [&](auto take) {
        for (int index = 0; index < 4; index++) {
            for (int k = 0; k < 16; k++) {
                const int quarter = k % 8 / 2, shift = k % 2 * 16;
                uint32_t a = take(row * 4 + quarter)[k / 8 * 2 + index / 2] >> shift & 0xFFFF;
                uint32_t b = take((column + index % 2) * 4 + quarter)[4 + k / 8] >> shift & 0xFFFF;
                sum[index] += bf16_value(a) * bf16_value(b);
            }
        }
        return 0;
    });
}
