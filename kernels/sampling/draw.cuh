// Filters and the draw over one row of logits, by one block. Included by sampling.cu, which says how weights are summed.
//
// A filter looks for the smallest candidate that stays. Candidates are ordered by an integer key, so it is found by narrowing:
// the bin by distance from the highest logit first (linear, which spreads logits over the bins), then inside the bin, with
// what is wanted (a number of candidates or a sum of weights) counted off from the top. Ties at the end go by id.
#pragma once

#include "block.cuh"
#include "records.cuh"

namespace {

constexpr int NUM_BINS = 2048;
// Candidates of one bin that are sorted in shared memory; a fuller bin is cut by its key's bits instead.
#ifndef LIST_LENGTH
#define LIST_LENGTH 2048
#endif
constexpr int LIST = LIST_LENGTH;
constexpr float BINS_PER_E_FOLD = 64.0f;
constexpr float LOG2_E = 1.44269504f;

struct ChooseSpace {
    uint64_t reduce[THREADS + 32];
    // Two halves of 64-bit sums, because shared memory adds 32 bits at once.
    uint32_t low[NUM_BINS];
    uint32_t high[NUM_BINS];
    uint64_t list[LIST];
    uint64_t found;
    uint64_t rest;
    uint32_t bin;
    uint32_t length;
};

struct Row {
    const float* logits;
    int vocab;
    float highest;
    float per_logit;  // log2(e) / temperature

    __device__ float weight_at(float logit) const { return exp2f((logit - highest) * per_logit); }

    // How far below the highest, in bins; grows as logits fall, each step rounds monotonically.
    __device__ float distance(float logit) const {
        return fminf((highest - logit) * (per_logit * (BINS_PER_E_FOLD / LOG2_E)), float(NUM_BINS - 1));
    }

    __device__ uint32_t bin(float logit) const { return uint32_t(NUM_BINS - 1) - uint32_t(distance(logit)); }

    // Calls work(id, logit) for this thread's share of first .. end; several loads are under way at once.
    template <typename Work>
    __device__ void each(int first, int end, Work work) const {
        constexpr int AT_ONCE = 8;
        for (int start = first + int(threadIdx.x); start < end; start += AT_ONCE * THREADS) {
            float held[AT_ONCE];
#pragma unroll
            for (int step = 0; step < AT_ONCE; step++) {
                int id = start + step * THREADS;
                held[step] = id < end ? logits[id] : -INFINITY;
            }
#pragma unroll
            for (int step = 0; step < AT_ONCE; step++) {
                if (start + step * THREADS < end) work(uint32_t(start + step * THREADS), held[step]);
            }
        }
    }
};

// A weight up to 1 in units of 2^-40, cut off below: exact for all that matters, and integers.
__device__ inline uint64_t to_units(float weight) {
    const uint32_t bits = __float_as_uint(weight);
    const int shift = int(bits >> 23) - 110;
    const uint64_t digits = (bits & 0x7FFFFFu) | 0x800000u;
    return shift >= 0 ? digits << shift : shift > -24 ? digits >> -shift : 0;
}

// Candidates that stay: key at least `key`, weight above 0 and at least `min_weight`.
struct Cut {
    uint64_t key;
    float min_weight;

    __device__ bool keeps(float logit, uint32_t id, float weight) const {
        return order_key(logit) >= uint32_t(key >> 32) && weight > 0.0f && weight >= min_weight && candidate_key(logit, id) >= key;
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

// The sum over all bins.
__device__ uint64_t all_bins(ChooseSpace& space) {
    uint64_t mine = 0;
    for (int bin = threadIdx.x; bin < NUM_BINS; bin += THREADS) mine += (uint64_t(space.high[bin]) << 32) | space.low[bin];
    return block_reduce<Add, THREADS>(mine, space.reduce);
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

// Sorts `list`, whose first `length` entries are keys, highest first.
__device__ void sort_list(ChooseSpace& space, int length) {
    int width = 2;
    while (width < length) width *= 2;
    for (int place = length + int(threadIdx.x); place < width; place += THREADS) space.list[place] = 0;
    __syncthreads();
    for (int run = 2; run <= width; run *= 2) {
        for (int step = run / 2; step > 0; step /= 2) {
            for (int pair = threadIdx.x; pair < width / 2; pair += THREADS) {
                int left = pair / step * step * 2 + pair % step;
                bool falling = (left & run) == 0;
                uint64_t first = space.list[left], second = space.list[left + step];
                if (falling == (first < second)) {
                    space.list[left] = second;
                    space.list[left + step] = first;
                }
            }
            __syncthreads();
        }
    }
}

template <bool BY_WEIGHT>
__device__ uint64_t amount_of(float weight) { return BY_WEIGHT ? to_units(weight) : 1; }

// The key in the sorted list at which the running amount reaches `wanted`; the last one if it never does.
template <bool BY_WEIGHT>
__device__ uint64_t cut_list(const Row& row, ChooseSpace& space, int length, uint64_t wanted) {
    constexpr int EACH = LIST / THREADS > 0 ? LIST / THREADS : 1;
    uint64_t mine = 0;
    const int first = int(threadIdx.x) * EACH;
    for (int step = 0; step < EACH; step++) {
        if (first + step < length) mine += amount_of<BY_WEIGHT>(row.weight_at(key_logit(uint32_t(space.list[first + step] >> 32))));
    }
    if (threadIdx.x == 0) space.found = space.list[length - 1];
    uint64_t total;
    uint64_t before = block_scan<THREADS>(mine, space.reduce, total);
    if (before < wanted && before + mine >= wanted) {
        for (int step = 0; first + step < length; step++) {
            uint64_t key = space.list[first + step];
            before += amount_of<BY_WEIGHT>(row.weight_at(key_logit(uint32_t(key >> 32))));
            if (before >= wanted) {
                space.found = key;
                break;
            }
        }
    }
    __syncthreads();
    return space.found;
}

__device__ void clear_bins(ChooseSpace& space) {
    for (int bin = threadIdx.x; bin < NUM_BINS; bin += THREADS) space.low[bin] = space.high[bin] = 0;
    __syncthreads();
}

// For a bin with too many candidates to sort: digit by digit of the key, then equal logits by id.
template <bool BY_WEIGHT>
__device__ uint64_t cut_by_digits(const Row& row, const Cut& cut, uint32_t bin, uint64_t wanted, ChooseSpace& space) {
    uint32_t prefix = 0;
    for (int pass = 0; pass < 3; pass++) {
        const int shift = pass == 0 ? 21 : pass == 1 ? 10 : 0;
        const int above = pass == 0 ? 32 : pass == 1 ? 21 : 10;
        clear_bins(space);
        row.each(0, row.vocab, [&](uint32_t id, float logit) {
            uint32_t key = order_key(logit);
            float weight = row.weight_at(logit);
            if (row.bin(logit) != bin || uint64_t(key) >> above != uint64_t(prefix) >> above || !cut.keeps(logit, id, weight)) return;
            add_to_bin(space, (key >> shift) & (pass == 2 ? 1023u : 2047u), amount_of<BY_WEIGHT>(weight));
        });
        __syncthreads();
        find_bin(space, wanted);
        wanted = space.rest;
        prefix |= space.bin << shift;
        __syncthreads();
    }
    // `wanted` is left of candidates with this very logit: so many of the lowest ids.
    const uint64_t each = amount_of<BY_WEIGHT>(row.weight_at(key_logit(prefix)));
    const uint64_t number = each ? (wanted + each - 1) / each : ~uint64_t(0);
    uint64_t before = 0;
    if (threadIdx.x == 0) space.found = uint64_t(prefix) << 32;
    for (int first = 0; first < row.vocab && before < number; first += THREADS) {
        int id = first + int(threadIdx.x);
        float logit = id < row.vocab ? row.logits[id] : -INFINITY;
        bool equal = id < row.vocab && order_key(logit) == prefix && cut.keeps(logit, uint32_t(id), row.weight_at(logit));
        uint64_t here;
        uint64_t mine = before + block_scan<THREADS>(uint64_t(equal), space.reduce, here);
        if (equal && mine + 1 == number) space.found = candidate_key(logit, uint32_t(id));
        before += here;
    }
    __syncthreads();
    uint64_t found = space.found;
    __syncthreads();
    return found;
}

// The smallest key that stays when candidates of `cut` are taken from the top until they hold `wanted`: a number of
// candidates, or (BY_WEIGHT) the part `share` of all their weight. There is a candidate.
template <bool BY_WEIGHT>
__device__ uint64_t find_last(const Row& row, const Cut& cut, uint64_t number, double share, ChooseSpace& space) {
    clear_bins(space);
    row.each(0, row.vocab, [&](uint32_t id, float logit) {
        float weight = row.weight_at(logit);
        if (cut.keeps(logit, id, weight)) add_to_bin(space, row.bin(logit), amount_of<BY_WEIGHT>(weight));
    });
    __syncthreads();
    uint64_t wanted = number;
    if (BY_WEIGHT) {
        double part = ceil(share * double(all_bins(space)));
        wanted = Larger::apply(uint64_t(1), uint64_t(part));
    }
    find_bin(space, wanted);
    const uint32_t bin = space.bin;
    wanted = space.rest;
    if (threadIdx.x == 0) space.length = 0;
    __syncthreads();
    // Equal to `row.bin(logit) == bin`, without an integer.
    const float nearest = float(NUM_BINS - 1 - bin);
    row.each(0, row.vocab, [&](uint32_t id, float logit) {
        float distance = row.distance(logit);
        if (distance >= nearest && distance < nearest + 1.0f && cut.keeps(logit, id, row.weight_at(logit))) {
            uint32_t place = atomicAdd(&space.length, 1u);
            if (place < LIST) space.list[place] = candidate_key(logit, id);
        }
    });
    __syncthreads();
    const int length = int(space.length);
    if (length > LIST) return cut_by_digits<BY_WEIGHT>(row, cut, bin, wanted, space);
    sort_list(space, length);
    uint64_t found = cut_list<BY_WEIGHT>(row, space, length, wanted);
    __syncthreads();
    return found;
}

__device__ uint64_t kept_units(const Row& row, const Cut& cut, int first, int end, ChooseSpace& space) {
    uint64_t sum = 0;
    const uint32_t lowest = uint32_t(cut.key >> 32);
    row.each(first, end, [&](uint32_t id, float logit) {
        if (order_key(logit) < lowest) return;
        float weight = row.weight_at(logit);
        if (cut.keeps(logit, id, weight)) sum += to_units(weight);
    });
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
            float logit = row.logits[id], weight = row.weight_at(logit);
            if (cut.keeps(logit, uint32_t(id), weight)) units = to_units(weight);
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
        cut.key = find_last<false>(row, cut, settings.top_k, 0.0, space);
    }
    cut.min_weight = settings.min_p;
    if (settings.top_p < 1.0f) {
        uint64_t key = find_last<true>(row, cut, 0, double(settings.top_p), space);
        cut.key = Larger::apply(cut.key, key);
    }
    double u = (double(philox_word(output_index, settings.seed_low, settings.seed_high)) + 0.5) / 4294967296.0;
    return invert(row, cut, u, space);
}

}  // namespace
