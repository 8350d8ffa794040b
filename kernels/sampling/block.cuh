// Reductions over a block, through shared memory alone. All threads call them; all get the result.
//
// Two levels of runs of 32 values, added one after the other: three barriers, and the order of additions is fixed.
#pragma once

#include <stdint.h>

struct Add {
    template <typename T>
    __device__ static T apply(T left, T right) { return left + right; }
};

struct Larger {
    template <typename T>
    __device__ static T apply(T left, T right) { return left > right ? left : right; }
};

struct Or {
    template <typename T>
    __device__ static T apply(T left, T right) { return left | right; }
};

// `space`: WIDTH + 32 values; WIDTH a multiple of 32, at most 1,024.
template <typename Operation, int WIDTH, typename T>
__device__ T block_reduce(T value, T* space) {
    constexpr int RUNS = WIDTH / 32;
    const int thread = int(threadIdx.x);
    space[thread] = value;
    __syncthreads();
    if (thread < RUNS) {
        // Run `thread` takes every RUNS-th value, so that neighbours read neighbouring banks.
        T sum = space[thread];
        for (int step = 1; step < 32; step++) sum = Operation::apply(sum, space[step * RUNS + thread]);
        space[WIDTH + thread] = sum;
    }
    __syncthreads();
    T result = space[WIDTH];
    for (int run = 1; run < RUNS; run++) result = Operation::apply(result, space[WIDTH + run]);
    __syncthreads();
    return result;
}

// Sum over the threads before this one; `total` = sum over all. `space`: WIDTH + 32 values.
template <int WIDTH, typename T>
__device__ T block_scan(T value, T* space, T& total) {
    constexpr int RUNS = WIDTH / 32;
    const int thread = int(threadIdx.x);
    space[thread] = value;
    __syncthreads();
    if (thread < RUNS) {
        T sum = T(0);
        for (int step = 0; step < 32; step++) {
            // Each run starts in another bank.
            int place = thread * 32 + step;
            T own = space[place];
            space[place] = sum;
            sum += own;
        }
        space[WIDTH + thread] = sum;
    }
    __syncthreads();
    T before = T(0);
    total = T(0);
    for (int run = 0; run < RUNS; run++) {
        T held = space[WIDTH + run];
        if (run < thread / 32) before += held;
        total += held;
    }
    before += space[thread];
    __syncthreads();
    return before;
}
