// The grouped products of moe.py for few rows an expert and MXFP8 weights: codes go from memory straight into the operands of
// mma.sync, are dequantised there, and never pass shared memory. Bound by reading the chosen experts.
//
//   moe_up_stream    grid (I / (8 * TILES) * max_tiles)        inner[i] = swiglu(x[token(rows[i])] w13[e]^T)
//   moe_down_stream  grid (ceil(N / (128 * TILES)) * max_tiles)  y[rows[i]] = inner[i] w2[e]^T
//   gemm_stream    grid (ceil(N / (16 * TILES)) * ceil(M / ROWS))  out[m] = x[m] w^T, as gemm/gemm.py
//
// Arguments as in moe.py; K and I are multiples of 128, `groups` at most 256, ROWS rows of one expert a tile, 8 warps.
//
// The inner dimension may be taken in any order as long as both operands take the same: each thread reads 16 codes in a row
// of a weight (a quarter of 64 columns) and the same 16 columns of a token, and hands four of them to each product. A scale
// covers 32 columns, so it is one number for a thread's 16 codes.
//
// Macros: TILES (weight tiles of 16 rows a warp).

#include <cstdint>

#ifndef CUDA_ON_HOST
#include "machine.cuh"
#endif

#ifndef TILES
#define TILES 2
#endif

namespace {

constexpr int WARPS = 8;
constexpr int ROWS = 16;              // Rows of a tile of one expert.
constexpr int TOKEN_TILES = ROWS / 8; // mma.sync takes eight.
constexpr int STEP = 128;             // Columns a step: whole lines of codes, one word of scales.

struct Place {
    int expert, first, end;
};

// The expert and the rows of tile `tile`; expert -1 when there is no such tile. For all threads of the block.
__device__ Place find_tile(const int* offsets, int tile, int groups) {
    __shared__ int sums[WARPS];
    __shared__ Place found;
    int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    int start = 0, end = 0;
    if (thread < groups) {
        start = offsets[thread];
        end = offsets[thread + 1];
    }
    int tiles = (end - start + ROWS - 1) / ROWS, done = tiles;
    for (int reach = 1; reach < 32; reach *= 2) {
        int left = __shfl_up_sync(~0u, done, reach);
        if (lane >= reach) done += left;
    }
    if (lane == 31) sums[warp] = done;
    if (thread == 0) found.expert = -1;
    __syncthreads();
    for (int before = 0; before < warp; before++) done += sums[before];
    if (tile < done && tile >= done - tiles) found = {thread, start + (tile - (done - tiles)) * ROWS, end};
    __syncthreads();
    return found;
}

// bf16x2 of 2^(scale - 127 + 120) twice; infinity for a scale above 134, never a wrong number.
__device__ inline uint32_t factor_of(uint32_t scale) {
    uint32_t bits = min(scale + 120, 255u) << 7;
    return bits | bits << 16;
}

// Four e4m3 codes to four bf16: exponent and mantissa moved into bf16's places are the value times 2^-120.
__device__ inline void dequantise(uint32_t codes, uint32_t factor, uint32_t& low, uint32_t& high) {
    uint32_t first = __byte_perm(codes, 0, 0x1404), second = __byte_perm(codes, 0, 0x3424);
    first = (first & 0x80008000u) | (first >> 4 & 0x07f007f0u);
    second = (second & 0x80008000u) | (second >> 4 & 0x07f007f0u);
    low = multiply_pairs(first, factor);
    high = multiply_pairs(second, factor);
}

__device__ inline uint32_t word(const uint4& value, int index) {
    return index == 0 ? value.x : index == 1 ? value.y : index == 2 ? value.z : value.w;
}

// What a thread reads of a warp's weight tiles: codes from its own 16 columns on and words of scales of the first row; the second
// row of a tile lies `half` codes behind, the next tile `tile`. Offsets instead of pointers spare registers.
struct Weights {
    const uint8_t* codes;
    const uint8_t* scales;
    int half, tile;

    __device__ Weights(const uint8_t* w, const uint8_t* all_scales, int64_t row, int K, int half_rows, int tile_rows)
        : codes(w + row * K + threadIdx.x % 4 * 16), scales(all_scales + row * (K / 32)), half(half_rows * K), tile(tile_rows * K) {}

    __device__ uint4 load(int m, int row, int column) const { return load_codes(codes + m * tile + row * half + column); }

    __device__ uint32_t scale(int m, int row, int step) const {
        return __ldg(reinterpret_cast<const uint32_t*>(scales + (m * tile + row * half) / 32) + step);
    }
};

// sums[m][n] += weights[m] x tokens[n]^T for n < FILLED, over the steps first, first + every, ..; tokens point at the thread's own
// columns, null for none.
template <int FILLED>
__device__ inline void accumulate_filled(float (&sums)[TILES][TOKEN_TILES][4], const Weights& weights,
                                         const uint16_t* const (&tokens)[TOKEN_TILES], int first, int every, int K) {
    int quarter = threadIdx.x % 4;
    for (int step = first; step < K / STEP; step += every) {
        uint4 codes[TILES][2][2];
        uint32_t scales[TILES][2];
        #pragma unroll
        for (int m = 0; m < TILES; m++) {
            #pragma unroll
            for (int half = 0; half < 2; half++) {
                codes[m][half][0] = weights.load(m, half, step * STEP);
                codes[m][half][1] = weights.load(m, half, step * STEP + 64);
                scales[m][half] = weights.scale(m, half, step);
            }
        }
        #pragma unroll
        for (int part = 0; part < 2; part++) {
            uint4 values[FILLED][2];
            #pragma unroll
            for (int n = 0; n < FILLED; n++) {
                values[n][0] = values[n][1] = make_uint4(0, 0, 0, 0);
                if (tokens[n]) {
                    auto* from = reinterpret_cast<const uint4*>(tokens[n] + step * STEP + part * 64);
                    values[n][0] = __ldg(from);
                    values[n][1] = __ldg(from + 1);
                }
            }
            int group = 16 * part + 8 * (quarter / 2);
            #pragma unroll
            for (int m = 0; m < TILES; m++) {
                uint32_t factors[2] = {factor_of(scales[m][0] >> group & 0xff), factor_of(scales[m][1] >> group & 0xff)};
                #pragma unroll
                for (int four = 0; four < 4; four++) {
                    uint32_t a[4];
                    dequantise(word(codes[m][0][part], four), factors[0], a[0], a[2]);
                    dequantise(word(codes[m][1][part], four), factors[1], a[1], a[3]);
                    #pragma unroll
                    for (int n = 0; n < FILLED; n++) {
                        const uint4& b = values[n][four / 2];
                        multiply(sums[m][n], a, word(b, four % 2 * 2), word(b, four % 2 * 2 + 1));
                    }
                }
            }
        }
    }
}

// As many token tiles as `count` rows fill: most experts have few.
__device__ inline void accumulate(float (&sums)[TILES][TOKEN_TILES][4], const Weights& weights,
                                  const uint16_t* const (&tokens)[TOKEN_TILES], int count, int first, int every, int K) {
    if (count <= 8) {
        accumulate_filled<1>(sums, weights, tokens, first, every, K);
    } else {
        accumulate_filled<TOKEN_TILES>(sums, weights, tokens, first, every, K);
    }
}

__device__ inline uint32_t bf16_pair(float low, float high) {
    return uint32_t(bf16(low)) | uint32_t(bf16(high)) << 16;
}

// The sums of all warps of a block, in the order of the warps; see `keep` for what a slot is.
struct Parts {
    float of[WARPS][TILES * TOKEN_TILES * 4][32];

    __device__ void keep(const float (&sums)[TILES][TOKEN_TILES][4]) {
        int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        #pragma unroll
        for (int m = 0; m < TILES; m++)
            #pragma unroll
            for (int n = 0; n < TOKEN_TILES; n++)
                #pragma unroll
                for (int at = 0; at < 4; at++) of[warp][(m * TOKEN_TILES + n) * 4 + at][lane] = sums[m][n][at];
        __syncthreads();
    }

    // Row `row` (0-15) of weight tile m with token `token` of the block's rows.
    __device__ float sum(int m, int row, int token) const {
        int slot = (m * TOKEN_TILES + token / 8) * 4 + row / 8 * 2 + token % 2, lane = row % 8 * 4 + token % 8 / 2;
        float total = 0.0f;
        for (int warp = 0; warp < WARPS; warp++) total += of[warp][slot][lane];
        return total;
    }
};

// As swiglu/swiglu.py; comparisons with NaN are false, so NaN stays.
__device__ inline float clamped_swiglu(float gate, float up, float alpha, float limit) {
    gate = gate > limit ? limit : gate;
    up = up > limit ? limit : up < -limit ? -limit : up;
    return (up + 1.0f) * gate / (1.0f + __expf(-alpha * gate));
}

} // namespace

// A block makes 8 * TILES inner columns of a tile of rows; its warps share K. Rows 0-7 of a weight tile are gate rows, 8-15 the
// up rows of the same columns.
extern "C" __global__ __launch_bounds__(WARPS * 32, 2) void moe_up_stream(
    const uint16_t* x, const uint8_t* w, const uint8_t* scales, const int* offsets, const int* rows, uint16_t* inner, int T, int K,
    int I, int groups, int top_k, float alpha, float limit) {
    constexpr int COLUMNS = 8 * TILES;
    __shared__ Parts parts;
    int blocks = I / COLUMNS, first_column = blockIdx.x % blocks * COLUMNS;
    Place place = find_tile(offsets, blockIdx.x / blocks, groups);
    if (place.expert < 0) return;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, quarter = lane % 4;
    int count = min(place.end - place.first, ROWS);

    Weights weights(w, scales, int64_t(place.expert) * 2 * I + first_column + lane / 4, K, I, 8);
    const uint16_t* tokens[TOKEN_TILES];
    #pragma unroll
    for (int n = 0; n < TOKEN_TILES; n++) {
        int at = n * 8 + lane / 4;
        tokens[n] = nullptr;
        if (at < count) {
            int row = rows[place.first + at], routed = T * top_k;
            int token = row < routed ? row / top_k : row - routed;
            tokens[n] = x + int64_t(token) * K + quarter * 16;
        }
    }
    float sums[TILES][TOKEN_TILES][4] = {};
    accumulate(sums, weights, tokens, count, warp, WARPS, K);

    parts.keep(sums);
    for (int out = threadIdx.x; out < COLUMNS * count; out += WARPS * 32) {
        int column = out % COLUMNS, token = out / COLUMNS;
        float gate = parts.sum(column / 8, column % 8, token), up = parts.sum(column / 8, column % 8 + 8, token);
        int64_t spot = int64_t(place.first + token) * I + first_column + column;
        inner[spot] = bf16(clamped_swiglu(gate, up, alpha, limit));
    }
}

// A warp makes 16 * TILES output columns of a tile of rows over the whole of I. Rows r and r + 8 of a weight tile are neighbours in
// memory, so that a thread writes two columns at once.
extern "C" __global__ __launch_bounds__(WARPS * 32, 2) void moe_down_stream(
    const uint16_t* inner, const uint8_t* w, const uint8_t* scales, const int* offsets, const int* rows, uint16_t* y, int N, int I,
    int groups) {
    constexpr int COLUMNS = WARPS * TILES * 16;
    int blocks = (N + COLUMNS - 1) / COLUMNS;
    Place place = find_tile(offsets, blockIdx.x / blocks, groups);
    if (place.expert < 0) return;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, quarter = lane % 4;
    int first = blockIdx.x % blocks * COLUMNS + warp * TILES * 16;
    if (first >= N) return;
    int count = min(place.end - place.first, ROWS);

    // Beyond the last column a tile repeats the first, unused.
    static_assert(TILES <= 2);
    Weights weights(w, scales, int64_t(place.expert) * N + first + lane / 4 * 2, I, 1, first + 16 < N ? 16 : 0);
    const uint16_t* tokens[TOKEN_TILES];
    #pragma unroll
    for (int n = 0; n < TOKEN_TILES; n++) {
        int at = n * 8 + lane / 4;
        tokens[n] = at < count ? inner + int64_t(place.first + at) * I + quarter * 16 : nullptr;
    }
    float sums[TILES][TOKEN_TILES][4] = {};
    accumulate(sums, weights, tokens, count, 0, 1, I);

    #pragma unroll
    for (int n = 0; n < TOKEN_TILES; n++) {
        #pragma unroll
        for (int at = 0; at < 2; at++) {
            int token = n * 8 + quarter * 2 + at;
            if (token >= count) continue;
            int64_t row = rows[place.first + token];
            #pragma unroll
            for (int m = 0; m < TILES; m++) {
                int column = first + m * 16 + lane / 4 * 2;
                if (column >= N) continue;
                *reinterpret_cast<uint32_t*>(y + row * N + column) = bf16_pair(sums[m][n][at], sums[m][n][at + 2]);
            }
        }
    }
}

// A block makes 16 * TILES columns of 16 rows of out; its warps share K.
extern "C" __global__ __launch_bounds__(WARPS * 32, 2) void gemm_stream(
    const uint16_t* x, const uint8_t* w, const uint8_t* scales, uint16_t* out, int M, int N, int K) {
    constexpr int COLUMNS = 16 * TILES;
    __shared__ Parts parts;
    int blocks = (N + COLUMNS - 1) / COLUMNS, first_column = blockIdx.x % blocks * COLUMNS;
    int first_row = blockIdx.x / blocks * ROWS, count = min(M - first_row, ROWS);
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, quarter = lane % 4;

    // Beyond the last column a tile repeats the first, unused.
    static_assert(TILES <= 2);
    Weights weights(w, scales, first_column + lane / 4, K, 8, first_column + 16 < N ? 16 : 0);
    const uint16_t* tokens[TOKEN_TILES];
    #pragma unroll
    for (int n = 0; n < TOKEN_TILES; n++) {
        int at = n * 8 + lane / 4;
        tokens[n] = at < count ? x + int64_t(first_row + at) * K + quarter * 16 : nullptr;
    }
    float sums[TILES][TOKEN_TILES][4] = {};
    accumulate(sums, weights, tokens, count, warp, WARPS, K);

    parts.keep(sums);
    for (int at = threadIdx.x; at < COLUMNS * count; at += WARPS * 32) {
        int column = at % COLUMNS, token = at / COLUMNS;
        if (first_column + column >= N) continue;
        out[int64_t(first_row + token) * N + first_column + column] = bf16(parts.sum(column / 16, column % 16, token));
    }
}
