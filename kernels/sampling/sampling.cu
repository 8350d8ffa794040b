// From rows of logits to tokens, as crates/m3-model/src/sampling.rs specifies. Three launches, one after the other:
//
//   sample_scan      grid (parts, positions)  biases, penalties, mask; faults, best candidate and sums of each part
//   sample_choose    grid (positions)         the token: best candidate, or filters and the draw
//   sample_logprobs  grid (positions)         log-probability, rank and alternatives, where wanted
//
// Weights of candidates are summed as integers (units of 2^-40 of the highest weight), so that sums are exact in any order and
// atomics cannot make two runs differ. Logits float32 [positions, vocab]. Bound: memory for the scan; the others read the row
// from L2 a few times with one block a row.
//
// Macros: THREADS (a power of two), PART (values a block of sample_scan takes).

#include "block.cuh"
#include "records.cuh"

#ifndef THREADS
#define THREADS 1024
#endif
#ifndef PART
#define PART 8192
#endif

namespace {

// Word 0 of the Philox4x32-10 block with counter (index, 0, 0, 0).
__device__ inline uint32_t philox_word(uint32_t index, uint32_t key0, uint32_t key1) {
    uint32_t c0 = index, c1 = 0, c2 = 0, c3 = 0;
    for (int round = 0; round < 10; round++) {
        uint64_t left = uint64_t(0xD2511F53u) * c0, right = uint64_t(0xCD9E8D57u) * c2;
        uint32_t n0 = uint32_t(right >> 32) ^ c1 ^ key0, n2 = uint32_t(left >> 32) ^ c3 ^ key1;
        c1 = uint32_t(right);
        c3 = uint32_t(left);
        c0 = n0;
        c2 = n2;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return c0;
}

// Adds the biases that fall into this part, in their order, by one thread: few, and equal ids must not race.
__device__ void add_biases(float* values, int first, int count, const Bias* biases, uint32_t num_biases) {
    if (threadIdx.x == 0) {
        for (uint32_t index = 0; index < num_biases; index++) {
            int place = int(biases[index].token) - first;
            if (place >= 0 && place < count) values[place] += biases[index].value;
        }
    }
    __syncthreads();
}

__device__ float penalised(float logit, uint32_t count, uint32_t num_drafted, const RowSettings& row) {
    uint32_t num_output = (count & ~IN_PROMPT) + num_drafted;
    if (num_output == 0 && !(count & IN_PROMPT)) return logit;
    // Rounded step by step like the specification: no fused multiply-add.
    logit = logit > 0.0f ? __fdiv_rn(logit, row.repetition) : __fmul_rn(logit, row.repetition);
    if (num_output > 0) {
        logit = __fsub_rn(logit, __fmul_rn(row.frequency, float(num_output)));
        logit = __fsub_rn(logit, row.presence);
    }
    return logit;
}

__device__ bool is_bad(float logit) { return isnan(logit) || logit == INFINITY; }

}  // namespace

#include "draw.cuh"

// Grid (parts, positions), THREADS threads; parts = ceil(vocab / PART). Writes `parts[position * grid.x + part]`, and the row's
// part of `adjusted` where is_adjusted says that other logits than the model's are sampled from.
extern "C" __global__ void __launch_bounds__(THREADS) sample_scan(
    const float* logits, float* adjusted, const Position* positions, const RowSettings* rows, const uint32_t* counts,
    const Bias* biases, const uint32_t* masks, const int32_t* drafts, Part* parts, int32_t vocab) {
    __shared__ float values[PART];
    __shared__ uint64_t space[THREADS + 32];
    const Position position = positions[blockIdx.y];
    if (position.row == NONE) return;
    const RowSettings row = rows[position.row];
    const int first = int(blockIdx.x) * PART;
    const int count = min(PART, vocab - first);
    const size_t start = size_t(blockIdx.y) * vocab + first;

    uint32_t faults = 0;
    float highest = -INFINITY;
    for (int place = threadIdx.x; place < count; place += THREADS) {
        float logit = logits[start + place];
        values[place] = logit;
        if (is_bad(logit)) faults = 1;
        highest = fmaxf(highest, logit);
    }
    __syncthreads();
    highest = block_reduce<Larger, THREADS>(highest, reinterpret_cast<float*>(space));
    double sum = 0.0;
    if (position.target != NONE || row.num_logprobs != NONE) {
        // Nothing but minus infinity in this part adds nothing.
        for (int place = threadIdx.x; place < count && highest > -INFINITY; place += THREADS) {
            sum += exp(double(values[place] - highest));
        }
        sum = block_reduce<Add, THREADS>(sum, reinterpret_cast<double*>(space));
    }

    const bool changed = is_adjusted(row, position);
    const bool penalties = changed && has_penalties(row);
    if (changed && row.num_biases > 0) add_biases(values, first, count, biases + row.bias, row.num_biases);
    uint64_t best = 0;
    for (int place = threadIdx.x; place < count; place += THREADS) {
        uint32_t token = uint32_t(first + place);
        float logit = values[place];
        if (penalties) {
            uint32_t drafted = 0;
            for (uint32_t draft = 0; draft < position.num_drafts; draft++) {
                drafted += uint32_t(drafts[position.draft + draft]) == token;
            }
            logit = penalised(logit, counts[size_t(row.counts) * vocab + token], drafted, row);
        }
        if (changed) {
            if (is_bad(logit)) faults |= 2;
            if (position.mask != NONE && !(masks[position.mask + token / 32] >> (token % 32) & 1)) logit = -INFINITY;
            adjusted[start + place] = logit;
        }
        if (logit > -INFINITY) best = Larger::apply(best, candidate_key(logit, token));
    }
    best = block_reduce<Larger, THREADS>(best, space);
    faults = block_reduce<Or, THREADS>(faults, reinterpret_cast<uint32_t*>(space));
    if (threadIdx.x == 0) parts[size_t(blockIdx.y) * gridDim.x + blockIdx.x] = Part{faults, highest, best, sum};
}

// The token of every position, or its fault. Grid (positions), THREADS threads; `num_parts` = grid.x of sample_scan.
//
// Writes `tokens` and `faults` [slots] (a faulted slot keeps NONE), `last_tokens` [rows] (0 after a fault) for positions with
// LAST_OF_ROW, and counts the token for the row's penalties. At most one position of a row with penalties may be sampled
// in one launch.
extern "C" __global__ void __launch_bounds__(THREADS) sample_choose(
    const float* logits, const float* adjusted, const Position* positions, const RowSettings* rows, uint32_t* counts,
    const Part* parts, uint32_t* tokens, uint32_t* faults, int32_t* last_tokens, int32_t vocab, int32_t num_parts) {
    __shared__ ChooseSpace space;
    const Position position = positions[blockIdx.x];
    if (position.row == NONE) return;
    const RowSettings row = rows[position.row];
    const Summary summary = summarise(parts + size_t(blockIdx.x) * num_parts, num_parts);

    uint32_t token = NONE, fault = 0;
    if ((summary.faults & 1) || !(summary.highest > -INFINITY)) {
        fault = FAULT_NAN;
    } else if (position.target != NONE) {
        token = position.target;
    } else if (summary.faults & 2) {
        fault = FAULT_NAN;
    } else if (summary.best == 0) {
        fault = FAULT_EMPTY_MASK;
    } else if (is_greedy(row)) {
        token = candidate_id(summary.best);
    } else {
        const float* source = (is_adjusted(row, position) ? adjusted : logits) + size_t(blockIdx.x) * vocab;
        const Row values{source, vocab, key_logit(uint32_t(summary.best >> 32)), LOG2_E / row.temperature};
        token = draw(values, row, position.output_index, space);
    }
    if (threadIdx.x != 0) return;
    tokens[position.slot] = token;
    faults[position.slot] = fault;
    if (position.target != NONE) return;
    if (position.flags & LAST_OF_ROW) last_tokens[position.row] = fault ? 0 : int32_t(token);
    if (!fault && has_penalties(row)) counts[size_t(row.counts) * vocab + token] += 1;
}

// Log-probability, rank and alternatives of positions that are scored or whose row asked for them; other slots are left alone.
// Grid (positions), THREADS threads. `top_ids` and `top_logprobs` [slots, top_capacity], most likely first, NONE where unused.
extern "C" __global__ void __launch_bounds__(THREADS) sample_logprobs(
    const float* logits, const Position* positions, const RowSettings* rows, const Part* parts, const uint32_t* tokens,
    float* logprobs, uint32_t* ranks, uint32_t* top_ids, float* top_logprobs, int32_t vocab, int32_t num_parts,
    int32_t top_capacity) {
    __shared__ ChooseSpace space;
    const Position position = positions[blockIdx.x];
    if (position.row == NONE) return;
    const RowSettings row = rows[position.row];
    const uint32_t token = tokens[position.slot];
    if (token == NONE || (position.target == NONE && row.num_logprobs == NONE)) return;
    const Summary summary = summarise(parts + size_t(blockIdx.x) * num_parts, num_parts);
    const float log_sum = float(double(summary.highest) + log(summary.sum));
    const float* source = logits + size_t(blockIdx.x) * vocab;

    const uint64_t own = candidate_key(source[token], token);
    uint32_t ahead = 0;
    for (int id = threadIdx.x; id < vocab; id += THREADS) ahead += candidate_key(source[id], uint32_t(id)) > own;
    ahead = block_reduce<Add, THREADS>(ahead, reinterpret_cast<uint32_t*>(space.reduce));
    if (threadIdx.x == 0) {
        logprobs[position.slot] = source[token] - log_sum;
        ranks[position.slot] = ahead;
    }
    const int wanted = row.num_logprobs == NONE ? 0 : min(min(int(row.num_logprobs), int(top_capacity)), int(vocab));
    const size_t out = size_t(position.slot) * top_capacity;
    // One after the other: alternatives are few. The next one is the best below the last.
    uint64_t last = ~uint64_t(0);
    for (int entry = 0; entry < wanted; entry++) {
        uint64_t best = 0;
        for (int id = threadIdx.x; id < vocab; id += THREADS) {
            uint64_t key = candidate_key(source[id], uint32_t(id));
            if (key < last && key > best) best = key;
        }
        last = block_reduce<Larger, THREADS>(best, space.reduce);
        if (threadIdx.x == 0) {
            uint32_t id = candidate_id(last);
            top_ids[out + entry] = id;
            top_logprobs[out + entry] = source[id] - log_sum;
        }
    }
    for (int entry = wanted + int(threadIdx.x); entry < top_capacity; entry += THREADS) {
        top_ids[out + entry] = NONE;
        top_logprobs[out + entry] = 0.0f;
    }
}

// Counts a row's history for its penalties into an array of zeros. Grid (ceil(length / THREADS)); ids from `prompt_length` on
// are output.
extern "C" __global__ void __launch_bounds__(THREADS) count_history(
    uint32_t* counts, const uint32_t* history, int32_t length, int32_t prompt_length) {
    int place = int(blockIdx.x) * THREADS + int(threadIdx.x);
    if (place >= length) return;
    if (place < prompt_length) {
        atomicOr(&counts[history[place]], IN_PROMPT);
    } else {
        atomicAdd(&counts[history[place]], 1u);
    }
}
