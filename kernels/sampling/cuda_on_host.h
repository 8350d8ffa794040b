// Just enough of CUDA to run sampling.cu on a CPU, for its test: threads of a block are fibers that take turns at barriers.
//
// Proves the algorithm, the indexing and the absence of a barrier that only some threads reach. It does not prove anything
// about races: a fiber runs undisturbed from one barrier to the next.
#pragma once

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <algorithm>
#include <vector>

using std::max;
using std::min;

#define __global__
#define __device__
#define __shared__ static
#define __launch_bounds__(...)

struct Three {
    unsigned x, y, z;
};

inline Three threadIdx, blockIdx, gridDim;

inline float __uint_as_float(uint32_t bits) { float value; memcpy(&value, &bits, 4); return value; }
inline uint32_t __float_as_uint(float value) { uint32_t bits; memcpy(&bits, &value, 4); return bits; }
inline float __fdiv_rn(float left, float right) { return left / right; }
inline float __fmul_rn(float left, float right) { return left * right; }
inline float __fsub_rn(float left, float right) { return left - right; }

inline uint32_t atomicAdd(uint32_t* place, uint32_t value) { uint32_t before = *place; *place += value; return before; }
inline uint32_t atomicOr(uint32_t* place, uint32_t value) { uint32_t before = *place; *place |= value; return before; }

struct Fiber {
    ucontext_t context;
    std::vector<char> stack = std::vector<char>(64 << 10);
    bool done = false;
};

inline ucontext_t scheduler;
inline std::vector<Fiber>* fibers;
inline int current;
inline void (*body)();

inline void __syncthreads() { swapcontext(&(*fibers)[current].context, &scheduler); }

inline void run_fiber() {
    body();
    (*fibers)[current].done = true;
    swapcontext(&(*fibers)[current].context, &scheduler);
}

// Runs `work` for every thread of one block. Between two barriers the threads go in an order that differs from block to block.
inline void run_block(int threads, void (*work)()) {
    static std::vector<Fiber> pool;
    if (int(pool.size()) != threads) pool = std::vector<Fiber>(threads);
    fibers = &pool;
    body = work;
    for (Fiber& fiber : pool) {
        fiber.done = false;
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack.data();
        fiber.context.uc_stack.ss_size = fiber.stack.size();
        fiber.context.uc_link = nullptr;
        makecontext(&fiber.context, run_fiber, 0);
    }
    for (int left = threads; left > 0;) {
        int ended = 0;
        for (int turn = 0; turn < threads; turn++) {
            current = blockIdx.x % 2 ? threads - 1 - turn : turn;
            if (pool[current].done) continue;
            threadIdx = {unsigned(current), 0, 0};
            swapcontext(&scheduler, &pool[current].context);
            ended += pool[current].done;
        }
        if (ended != 0 && ended != left) {
            fprintf(stderr, "%d of %d threads ended while others wait at a barrier\n", ended, left);
            abort();
        }
        left -= ended;
    }
}
