// Filters and the draw over one row of logits, by one block. Included by sampling.cu, which says how weights are summed.
//
// A filter looks for the smallest candidate that stays. Candidates are ordered by an integer key, so it is found digit by digit:
// first by distance from the highest logit (linear, which spreads logits over the bins), then by the key's bits, with
// what is wanted (a number of candidates or a sum of weights) counted off from the top. Ties at the end go by id.
#pragma once

#include "block.cuh"
#include "records.cuh"

namespace {

constexpr int NUM_BINS = 2048;

struct ChooseSpace {
    uint64_t reduce[THREADS];
    // Two halves of 64-bit sums, because shared memory adds 32 bits at once.
    uint32_t low[NUM_BINS];
    uint32_t high[NUM_BINS];
    uint64_t found;
    uint64_t rest;
    uint32_t bin;
};

struct Row {
    const float* logits;
    int vocab;
    float highest;
    float temperature;

    __device__ float weight(int id) const { return weight_of(logits[id], highest, temperature); }
};

// Candidates that stay: key at least `key`, weight above 0 and at least `min_weight`.
struct Cut {
    uint64_t key;
    float min_weight;

    __device__ bool keeps(float logit, uint32_t id, float weight) const {
        return weight > 0.0f && weight >= min_weight && candidate_key(logit, id) >= key;
    }
};

struct Summary {
    uint32_t faults;
    float highest;
    uint64_t best;
    double sum;  // of exp(logit - highest)
};

// Every thread reads the few parts in their order.
__device__ Summary summarise(const Part* parts, int num_parts) {
    Summary all{0, -INFINITY, 0, 0.0};
    for (int part = 0; part < num_parts; part++) {
        all.faults |= parts[part].faults;
        all.highest = fmaxf(all.highest, parts[part].highest);
        all.best = Larger::apply(all.best, parts[part].best);
    }
    for (int part = 0; part < num_parts; part++) {
        if (parts[part].highest > -INFINITY) {
            all.sum += parts[part].sum * exp(double(parts[part].highest) - double(all.highest));
        }
    }
    return all;
}

__device__ void add_to_bin(ChooseSpace& space, uint32_t bin, uint64_t amount) {
    uint32_t low = uint32_t(amount);
    uint32_t high = uint32_t(amount >> 32);
    uint32_t before = atomicAdd(&space.low[bin], low);
    high += before + low < before;
    if (high) atomicAdd(&space.high[bin], high);
}

// Where, from the highest bin number down, the running sum reaches `wanted`: sets `space.bin` and `space.rest`, what is still
// wanted inside that bin. If it is never reached, the lowest bin that holds anything, with all of it.
__device__ void find_bin(ChooseSpace& space, uint64_t wanted) {
    constexpr int EACH = (NUM_BINS + THREADS - 1) / THREADS;
    const int top = NUM_BINS - 1 - int(threadIdx.x) * EACH;
    uint64_t mine = 0;
    for (int step = 0; step < EACH; step++) {
        int bin = top - step;
        if (bin >= 0) mine += (uint64_t(space.high[bin]) << 32) | space.low[bin];
    }
    uint64_t total;
    uint64_t before = block_scan<THREADS>(mine, space.reduce, total);
    if (wanted > total) wanted = total;
    if (before < wanted && before + mine >= wanted) {
        for (int step = 0; step < EACH; step++) {
            uint64_t held = (uint64_t(space.high[top - step]) << 32) | space.low[top - step];
            if (before + held >= wanted) {
                space.bin = uint32_t(top - step);
                space.rest = wanted - before;
                break;
            }
            before += held;
        }
    }
    __syncthreads();
}

// Higher for higher logits; every step rounds monotonically.
__device__ uint32_t distance_bin(const Row& row, float logit) {
    constexpr float BINS_PER_E_FOLD = 64.0f;
    float distance = __fmul_rn(__fdiv_rn(row.highest - logit, row.temperature), BINS_PER_E_FOLD);
    return uint32_t(NUM_BINS - 1) - uint32_t(fminf(distance, float(NUM_BINS - 1)));
}

// The smallest key that stays when candidates of `cut` are taken from the top until they hold `wanted`: a number of
// candidates (BY_WEIGHT false) or units of weight. `wanted` > 0, and there is a candidate.
template <bool BY_WEIGHT>
__device__ uint64_t find_last(const Row& row, const Cut& cut, uint64_t wanted, ChooseSpace& space) {
    uint32_t distance = 0, prefix = 0;
    for (int pass = 0; pass < 4; pass++) {
        const int shift = pass == 1 ? 21 : pass == 2 ? 10 : 0;
        const int above = pass <= 1 ? 32 : pass == 2 ? 21 : 10;
        for (int bin = threadIdx.x; bin < NUM_BINS; bin += THREADS) space.low[bin] = space.high[bin] = 0;
        __syncthreads();
        for (int id = threadIdx.x; id < row.vocab; id += THREADS) {
            float logit = row.logits[id];
            float weight = weight_of(logit, row.highest, row.temperature);
            if (!cut.keeps(logit, uint32_t(id), weight)) continue;
            uint32_t key = order_key(logit), bin = distance_bin(row, logit);
            if (pass > 0) {
                if (bin != distance || uint64_t(key) >> above != uint64_t(prefix) >> above) continue;
                bin = (key >> shift) & (pass == 3 ? 1023u : 2047u);
            }
            add_to_bin(space, bin, BY_WEIGHT ? to_units(weight) : 1);
        }
        __syncthreads();
        find_bin(space, wanted);
        wanted = space.rest;
        if (pass == 0) distance = space.bin;
        else prefix |= space.bin << shift;
        __syncthreads();
    }
    // `wanted` is left of candidates with this very logit: so many of the lowest ids.
    const uint64_t each = BY_WEIGHT ? to_units(weight_of(key_logit(prefix), row.highest, row.temperature)) : 1;
    uint64_t number = each ? (wanted + each - 1) / each : ~uint64_t(0);
    uint64_t before = 0;
    if (threadIdx.x == 0) space.found = uint64_t(prefix) << 32;
    for (int first = 0; first < row.vocab && before < number; first += THREADS) {
        int id = first + int(threadIdx.x);
        bool equal = false;
        if (id < row.vocab) {
            float logit = row.logits[id];
            equal = order_key(logit) == prefix && cut.keeps(logit, uint32_t(id), weight_of(logit, row.highest, row.temperature));
        }
        uint64_t here;
        uint64_t mine = before + block_scan<THREADS>(uint64_t(equal), space.reduce, here);
        if (equal && mine + 1 == number) space.found = candidate_key(key_logit(prefix), uint32_t(id));
        before += here;
    }
    __syncthreads();
    uint64_t found = space.found;
    __syncthreads();
    return found;
}

__device__ uint64_t kept_units(const Row& row, const Cut& cut, int first, int end, ChooseSpace& space) {
    uint64_t sum = 0;
    for (int id = first + int(threadIdx.x); id < end; id += THREADS) {
        float weight = row.weight(id);
        if (cut.keeps(row.logits[id], uint32_t(id), weight)) sum += to_units(weight);
    }
    return block_reduce<Add, THREADS>(sum, space.reduce);
}

// The first kept candidate by id at which the running sum exceeds `u x total`.
__device__ uint32_t invert(const Row& row, const Cut& cut, double u, ChooseSpace& space) {
    constexpr int SEGMENTS = 16;
    const int length = (row.vocab + SEGMENTS - 1) / SEGMENTS;
    uint64_t sums[SEGMENTS];
    uint64_t total = 0;
#pragma unroll
    for (int segment = 0; segment < SEGMENTS; segment++) {
        int first = min(segment * length, row.vocab);
        sums[segment] = kept_units(row, cut, first, min(first + length, row.vocab), space);
        total += sums[segment];
    }
    const double wanted = u * double(total);
    uint64_t before = 0;
    int first = 0;
    bool reached = false;
#pragma unroll
    for (int segment = 0; segment < SEGMENTS; segment++) {
        reached = reached || double(before + sums[segment]) > wanted;
        if (!reached) {
            before += sums[segment];
            first = (segment + 1) * length;
        }
    }
    if (threadIdx.x == 0) space.found = ~uint64_t(0);
    __syncthreads();
    for (; first < row.vocab; first += THREADS) {
        int id = first + int(threadIdx.x);
        uint64_t units = 0;
        if (id < row.vocab) {
            float weight = row.weight(id);
            if (cut.keeps(row.logits[id], uint32_t(id), weight)) units = to_units(weight);
        }
        uint64_t here;
        uint64_t mine = before + block_scan<THREADS>(units, space.reduce, here);
        if (units && !(double(mine) > wanted) && double(mine + units) > wanted) space.found = uint64_t(id);
        __syncthreads();
        if (double(before + here) > wanted) break;
        before += here;
    }
    __syncthreads();
    return uint32_t(space.found);
}

__device__ uint32_t draw(const Row& row, const RowSettings& settings, uint32_t output_index, ChooseSpace& space) {
    Cut cut{0, 0.0f};
    if (settings.top_k > 0 && settings.top_k < uint32_t(row.vocab)) {
        cut.key = find_last<false>(row, cut, settings.top_k, space);
    }
    cut.min_weight = settings.min_p;
    if (settings.top_p < 1.0f) {
        uint64_t total = kept_units(row, cut, 0, row.vocab, space);
        double wanted = ceil(double(settings.top_p) * double(total));
        cut.key = Larger::apply(cut.key, find_last<true>(row, cut, Larger::apply(uint64_t(1), uint64_t(wanted)), space));
    }
    double u = (double(philox_word(output_index, settings.seed_low, settings.seed_high)) + 0.5) / 4294967296.0;
    return invert(row, cut, u, space);
}

}  // namespace
