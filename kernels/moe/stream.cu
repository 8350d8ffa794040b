// Grouped products for few rows an expert: weights stream from memory into registers, no shared memory and no barrier on the way.
//
//     moe_stream_up     inner[i] = swiglu(x[token(rows[i])] w13[e]^T)
//     moe_stream_down   y[rows[i]] = inner[i] w2[e]^T
//
// Operands as in moe.py: `rows` and `offsets` from group_rows, weights stacked by expert, bf16 or MXFP8 (FORMAT 0 or 2, scales by
// words of four). Weights are the left operand of m16n8k16 products, tokens the right one; 8 * NT tokens a tile.
//
// A lane reads 16 neighbouring weights of a row at once and uses them as its part of four products: which column of K is which
// k inside a product does not matter as long as weights and tokens agree, so nothing is shuffled or repacked. MXFP8 codes
// become bf16 in those registers (exact; see gemm/tile.py for the limits). Sums float32 in a fixed order. Bound: memory.
//
// Macros: FORMAT, NT (1 or 2), TOP_K, BLOCKS (a multiprocessor's blocks that registers are kept for).

#include <stdint.h>

#include "instructions.cuh"

namespace {

constexpr int WARPS = 8;
constexpr int TOKENS = 8 * NT;
// Columns of K in one step of a warp: the weights of a step are 32 registers a lane in either format.
constexpr int STEP = FORMAT == 0 ? 64 : 128;
constexpr int CHUNKS = STEP / 64;
// uint4 a lane holds of one row in one step.
constexpr int HELD = 2;
constexpr int GROUP_RUNS = 5;  // Up to 160 groups.

struct Tile {
    int expert;  // -1: there is no such tile
    int place;   // of its first row in `rows`
    int end;
};

// The same in every warp. Programs beyond the last tile get -1.
__device__ Tile find_tile(const int32_t* offsets, int groups, int tile) {
    const int lane = threadIdx.x % 32;
    int starts[GROUP_RUNS], ends[GROUP_RUNS];
#pragma unroll
    for (int run = 0; run < GROUP_RUNS; run++) {
        int group = run * 32 + lane;
        starts[run] = group < groups ? offsets[group] : 0;
        ends[run] = group < groups ? offsets[group + 1] : 0;
    }
    Tile found{-1, 0, 0};
    int before = 0;
#pragma unroll
    for (int run = 0; run < GROUP_RUNS; run++) {
        int own = (ends[run] - starts[run] + TOKENS - 1) / TOKENS, sum = own;
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            int other = __shfl_up_sync(~0u, sum, step);
            if (lane >= step) sum += other;
        }
        const unsigned reached = __ballot_sync(~0u, before + sum > tile);
        if (reached && found.expert < 0) {
            int source = __ffs(reached) - 1;
            int first = __shfl_sync(~0u, before + sum - own, source);
            int start = __shfl_sync(~0u, starts[run], source);
            found = Tile{run * 32 + source, start + (tile - first) * TOKENS, __shfl_sync(~0u, ends[run], source)};
        }
        before += __shfl_sync(~0u, sum, 31);
    }
    return found;
}

// Four codes -> bf16 pairs (0, 1) and (2, 3), times the factor in both halves of `factor`.
__device__ inline void dequantise(uint32_t codes, uint32_t factor, uint32_t& low, uint32_t& high) {
    uint32_t first = spread_low(codes), second = spread_high(codes);
    low = multiply((first & 0x80008000u) | ((first >> 4) & 0x07F007F0u), factor);
    high = multiply((second & 0x80008000u) | ((second >> 4) & 0x07F007F0u), factor);
}

__device__ inline uint32_t factor_of(uint32_t scale) { return (min(scale + 120u, 255u) << 7) * 0x10001u; }

// Four rows of weights (two of each of two tiles of 16 rows) at one step.
struct Weights {
    uint4 values[4][HELD];
    uint32_t scales[4];
};

// Where a lane's four rows stand: offsets within an expert's matrix fit 32 bits and save registers.
struct Rows {
    const uint8_t* values;  // at this lane's columns of step 0
    const uint8_t* scales;
    uint32_t offsets[4];    // elements
};

__device__ inline Rows rows_of(const uint8_t* w, const uint8_t* scales, int64_t matrix, const int (&numbers)[4], int K) {
    const int quarter = threadIdx.x % 4;
    Rows rows;
    rows.values = w + matrix * (FORMAT == 0 ? 2 : 1) + quarter * (FORMAT == 0 ? 32 : 16);
    rows.scales = FORMAT == 0 ? nullptr : scales + matrix / 32;
#pragma unroll
    for (int row = 0; row < 4; row++) rows.offsets[row] = uint32_t(numbers[row]) * uint32_t(K);
    return rows;
}

__device__ inline void load(Weights& held, const Rows& rows, int step) {
#pragma unroll
    for (int row = 0; row < 4; row++) {
        const uint32_t offset = rows.offsets[row] + uint32_t(step) * STEP;
        const uint8_t* place = rows.values + uint64_t(offset) * (FORMAT == 0 ? 2 : 1);
#pragma unroll
        for (int part = 0; part < HELD; part++) held.values[row][part] = load_once(place + part * (FORMAT == 0 ? 16 : 64));
        if (FORMAT != 0) held.scales[row] = __ldg(reinterpret_cast<const uint32_t*>(rows.scales + offset / 32));
    }
}

__device__ inline uint32_t word(const uint4& value, int index) {
    return index == 0 ? value.x : index == 1 ? value.y : index == 2 ? value.z : value.w;
}

// The lane's 16 columns from `column` on of its token in each run of eight; zeros for a token that is not there.
__device__ inline void load_tokens(uint4 (&x)[NT][2], const __nv_bfloat16* const (&tokens)[NT], int column) {
#pragma unroll
    for (int run = 0; run < NT; run++) {
        x[run][0] = x[run][1] = uint4{0, 0, 0, 0};
        if (tokens[run]) {
            const uint4* place = reinterpret_cast<const uint4*>(tokens[run] + column);
            x[run][0] = place[0];
            x[run][1] = place[1];
        }
    }
}

using Sums = float[2][NT][4];

// The products of one step: both tiles with all tokens.
__device__ inline void multiply_step(Sums& sums, const Weights& held, const __nv_bfloat16* const (&tokens)[NT],
                                     int step) {
    const int half = threadIdx.x % 4 / 2;
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; chunk++) {
        uint4 x[NT][2];
        load_tokens(x, tokens, step * STEP + chunk * 64);
        uint32_t factors[4];
#pragma unroll
        for (int row = 0; row < 4; row++) {
            factors[row] = FORMAT == 0 ? 0 : factor_of(held.scales[row] >> (8 * (2 * chunk + half)) & 0xFFu);
        }
#pragma unroll
        for (int part = 0; part < 4; part++) {
            uint32_t low[4], high[4];
#pragma unroll
            for (int row = 0; row < 4; row++) {
                if (FORMAT == 0) {
                    low[row] = word(held.values[row][part / 2], part % 2 * 2);
                    high[row] = word(held.values[row][part / 2], part % 2 * 2 + 1);
                } else {
                    dequantise(word(held.values[row][chunk], part), factors[row], low[row], high[row]);
                }
            }
#pragma unroll
            for (int run = 0; run < NT; run++) {
                uint32_t b0 = word(x[run][part / 2], part % 2 * 2), b1 = word(x[run][part / 2], part % 2 * 2 + 1);
                product(sums[0][run], low[0], low[1], high[0], high[1], b0, b1);
                product(sums[1][run], low[2], low[3], high[2], high[3], b0, b1);
            }
        }
    }
}

// Sums over the steps first, first + stride, ... below `end`; the next step's weights are under way while one is multiplied.
__device__ inline void stream(Sums& sums, const Rows& rows, const __nv_bfloat16* const (&tokens)[NT], int first, int end, int stride) {
    Weights now, next;
    if (first < end) load(now, rows, first);
    for (int step = first; step < end; step += stride) {
        if (step + stride < end) load(next, rows, step + stride);
        multiply_step(sums, now, tokens, step);
        now = next;
    }
}

__device__ inline float swiglu(float gate, float up, float alpha, float limit) {
    gate = gate > limit ? limit : gate;
    up = up > limit ? limit : up < -limit ? -limit : up;
    return (up + 1.0f) * gate / (1.0f + __expf(-alpha * gate));
}

}  // namespace

// Grid (I / 16 * max_tiles), 256 threads; I a multiple of 16, K of 128 (bf16: 64). The warps of a block share 16 gate and 16 up
// rows and part K among themselves.
extern "C" __global__ void __launch_bounds__(256, BLOCKS) moe_stream_up(
    const __nv_bfloat16* x, const uint8_t* w, const uint8_t* scales, const int32_t* offsets, const int32_t* rows,
    __nv_bfloat16* inner, int32_t T, int32_t K, int32_t I, int32_t groups, float alpha, float limit) {
    __shared__ float parts[WARPS][32][TOKENS + 1];
    wait_for_inputs();
    const int blocks = I / 16, block = blockIdx.x % blocks;
    const Tile tile = find_tile(offsets, groups, blockIdx.x / blocks);
    if (tile.expert < 0) return;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = lane / 4, quarter = lane % 4;

    const __nv_bfloat16* tokens[NT];
#pragma unroll
    for (int run = 0; run < NT; run++) {
        int place = tile.place + run * 8 + row;
        tokens[run] = nullptr;
        if (place < tile.end) {
            int number = rows[place];
            int token = number < T * TOP_K ? number / TOP_K : number - T * TOP_K;
            tokens[run] = x + int64_t(token) * K + quarter * 16;
        }
    }
    const int gate = block * 16 + row;
    const int numbers[4] = {gate, gate + 8, gate + I, gate + I + 8};
    Sums sums = {};
    stream(sums, rows_of(w, scales, int64_t(tile.expert) * 2 * I * K, numbers, K), tokens, warp, K / STEP, WARPS);

#pragma unroll
    for (int half = 0; half < 2; half++) {
#pragma unroll
        for (int run = 0; run < NT; run++) {
#pragma unroll
            for (int index = 0; index < 4; index++) {
                parts[warp][half * 16 + row + index / 2 * 8][run * 8 + quarter * 2 + index % 2] = sums[half][run][index];
            }
        }
    }
    __syncthreads();
    for (int item = threadIdx.x; item < 16 * TOKENS; item += 256) {
        const int column = item % 16, token = item / 16;
        if (tile.place + token >= tile.end) continue;
        float gate_sum = 0.0f, up_sum = 0.0f;
#pragma unroll
        for (int part = 0; part < WARPS; part++) {
            gate_sum += parts[part][column][token];
            up_sum += parts[part][16 + column][token];
        }
        inner[int64_t(tile.place + token) * I + block * 16 + column] = __float2bfloat16(swiglu(gate_sum, up_sum, alpha, limit));
    }
}

// Grid (N / 256 * max_tiles), 256 threads; N a multiple of 256, I of 128 (bf16: 64). A warp has 32 rows of weights and all of I.
extern "C" __global__ void __launch_bounds__(256, BLOCKS) moe_stream_down(
    const __nv_bfloat16* inner, const uint8_t* w, const uint8_t* scales, const int32_t* offsets, const int32_t* rows,
    __nv_bfloat16* y, int32_t N, int32_t I, int32_t groups) {
    wait_for_inputs();
    const int blocks = N / 256, block = blockIdx.x % blocks;
    const Tile tile = find_tile(offsets, groups, blockIdx.x / blocks);
    if (tile.expert < 0) return;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = lane / 4, quarter = lane % 4;

    const __nv_bfloat16* tokens[NT];
#pragma unroll
    for (int run = 0; run < NT; run++) {
        int place = tile.place + run * 8 + row;
        tokens[run] = place < tile.end ? inner + int64_t(place) * I + quarter * 16 : nullptr;
    }
    const int n = block * 256 + warp * 32 + row;
    const int numbers[4] = {n, n + 8, n + 16, n + 24};
    Sums sums = {};
    stream(sums, rows_of(w, scales, int64_t(tile.expert) * N * I, numbers, I), tokens, 0, I / STEP, 1);

#pragma unroll
    for (int run = 0; run < NT; run++) {
#pragma unroll
        for (int index = 0; index < 2; index++) {
            int place = tile.place + run * 8 + quarter * 2 + index;
            if (place >= tile.end) continue;
            __nv_bfloat16* out = y + int64_t(rows[place]) * N + n;
            out[0] = __float2bfloat16(sums[0][run][index]);
            out[8] = __float2bfloat16(sums[0][run][2 + index]);
            out[16] = __float2bfloat16(sums[1][run][index]);
            out[24] = __float2bfloat16(sums[1][run][2 + index]);
        }
    }
}
