// Reductions over a block, through shared memory alone. All threads call them; all get the result.
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

// A tree over a power of two of threads: the order of additions is fixed. `space`: WIDTH values.
template <typename Operation, int WIDTH, typename T>
__device__ T block_reduce(T value, T* space) {
    int thread = int(threadIdx.x);
    space[thread] = value;
    __syncthreads();
    for (int half = WIDTH / 2; half > 0; half /= 2) {
        if (thread < half) space[thread] = Operation::apply(space[thread], space[thread + half]);
        __syncthreads();
    }
    T result = space[0];
    __syncthreads();
    return result;
}

// Sum over the threads before this one. `space`: WIDTH values; `total` = sum over all.
template <int WIDTH, typename T>
__device__ T block_scan(T value, T* space, T& total) {
    int thread = int(threadIdx.x);
    space[thread] = value;
    __syncthreads();
    for (int step = 1; step < WIDTH; step *= 2) {
        T before = thread >= step ? space[thread - step] : T(0);
        __syncthreads();
        space[thread] += before;
        __syncthreads();
    }
    total = space[WIDTH - 1];
    T result = space[thread] - value;
    __syncthreads();
    return result;
}
