// Just enough of CUDA to run our .cu files on a CPU, for their tests: threads of a block are fibers that take turns at barriers.
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
inline int __ffs(unsigned bits) { return __builtin_ffs(int(bits)); }
inline float __expf(float value) { return expf(value); }
template <typename T>
inline T __ldg(const T* place) { return *place; }

struct uint4 {
    uint32_t x, y, z, w;
};

inline float __fdiv_rn(float left, float right) { return left / right; }
inline float __fmul_rn(float left, float right) { return left * right; }
inline float __fsub_rn(float left, float right) { return left - right; }

inline uint32_t atomicAdd(uint32_t* place, uint32_t value) { uint32_t before = *place; *place += value; return before; }
inline uint32_t atomicOr(uint32_t* place, uint32_t value) { uint32_t before = *place; *place |= value; return before; }

enum class Wait { none, block, warp };

struct Fiber {
    ucontext_t context;
    std::vector<char> stack = std::vector<char>(64 << 10);
    bool done = false;
    Wait wait = Wait::none;
    // What this thread gives to its warp.
    uint32_t given[16];
};

inline ucontext_t scheduler;
inline std::vector<Fiber>* fibers;
inline int current;
inline void (*body)();

inline void wait_for(Wait wait) {
    (*fibers)[current].wait = wait;
    swapcontext(&(*fibers)[current].context, &scheduler);
}

inline void __syncthreads() { wait_for(Wait::block); }

// Hands `count` words to the warp and takes them from all of its lanes: `take(lane)` gives a lane's words.
template <typename Use>
inline auto exchange(const uint32_t* words, int count, Use use) {
    memcpy((*fibers)[current].given, words, count * sizeof(uint32_t));
    wait_for(Wait::warp);
    const int first = current / 32 * 32;
    auto result = use([first](int lane) { return (*fibers)[first + lane].given; });
    wait_for(Wait::warp);
    return result;
}

inline int __shfl_sync(unsigned, int value, int source) {
    uint32_t word = uint32_t(value);
    return exchange(&word, 1, [&](auto take) { return int(take(source)[0]); });
}

inline int __shfl_up_sync(unsigned, int value, int step) {
    uint32_t word = uint32_t(value);
    const int lane = current % 32;
    return exchange(&word, 1, [&](auto take) { return int(take(lane >= step ? lane - step : lane)[0]); });
}

inline unsigned __ballot_sync(unsigned, bool value) {
    uint32_t word = value;
    return exchange(&word, 1, [&](auto take) {
        unsigned bits = 0;
        for (int lane = 0; lane < 32; lane++) bits |= take(lane)[0] << lane;
        return bits;
    });
}

inline void run_fiber() {
    body();
    (*fibers)[current].done = true;
    swapcontext(&(*fibers)[current].context, &scheduler);
}

// Lets threads go on whose whole warp, or whole block, has arrived. Ended threads count as arrived.
inline int release(std::vector<Fiber>& pool, int width, Wait wait) {
    int released = 0;
    for (size_t first = 0; first < pool.size(); first += width) {
        auto begin = pool.begin() + first, end = begin + width;
        bool all = std::all_of(begin, end, [wait](const Fiber& fiber) { return fiber.done || fiber.wait == wait; });
        if (!all) continue;
        for (auto fiber = begin; fiber != end; fiber++) {
            released += !fiber->done;
            fiber->wait = Wait::none;
        }
    }
    return released;
}

// Runs `work` for every thread of one block. Between two barriers the threads go in an order that differs from block to block.
inline void run_block(int threads, void (*work)()) {
    static std::vector<Fiber> pool;
    if (int(pool.size()) != threads) pool = std::vector<Fiber>(threads);
    fibers = &pool;
    body = work;
    for (Fiber& fiber : pool) {
        fiber.done = false;
        fiber.wait = Wait::none;
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack.data();
        fiber.context.uc_stack.ss_size = fiber.stack.size();
        fiber.context.uc_link = nullptr;
        makecontext(&fiber.context, run_fiber, 0);
    }
    for (;;) {
        for (int turn = 0; turn < threads; turn++) {
            current = blockIdx.x % 2 ? threads - 1 - turn : turn;
            if (pool[current].done || pool[current].wait != Wait::none) continue;
            threadIdx = {unsigned(current), 0, 0};
            swapcontext(&scheduler, &pool[current].context);
        }
        if (std::all_of(pool.begin(), pool.end(), [](const Fiber& fiber) { return fiber.done; })) return;
        if (release(pool, 32, Wait::warp) + release(pool, threads, Wait::block) == 0) {
            fprintf(stderr, "some threads wait at a barrier that the others never reach\n");
            abort();
        }
    }
}
