// What the host tells the samplers, and small device functions that all of them use. No kernel here.
#pragma once

#include <stdint.h>

// One logits position: 8 words. The entry of a padded position has row NONE and is skipped.
struct Position {
    uint32_t row;           // into `rows`
    uint32_t target;        // id to score; NONE = sample
    uint32_t mask;          // first word of its allowed-token bits in `masks`; NONE = all allowed
    uint32_t output_index;  // Philox counter
    uint32_t draft;         // first of its drafted ids in `drafts`, taken as already generated
    uint32_t num_drafts;
    uint32_t slot;          // in the output arrays
    uint32_t flags;         // LAST_OF_ROW
};

// The row's `last_tokens` entry becomes this position's token.
constexpr uint32_t LAST_OF_ROW = 1;
constexpr uint32_t NONE = 0xFFFFFFFFu;
constexpr uint32_t FAULT_NAN = 1;
constexpr uint32_t FAULT_EMPTY_MASK = 2;

// Sampling settings of a row: 16 words.
struct RowSettings {
    uint32_t seed_low;
    uint32_t seed_high;
    float temperature;
    float top_p;  // 1 = off
    float min_p;  // 0 = off
    uint32_t top_k;  // 0 = off
    float repetition;  // 1 = off
    float presence;
    float frequency;
    uint32_t num_logprobs;  // NONE = none
    uint32_t bias;  // first of its biases
    uint32_t num_biases;
    uint32_t counts;  // its array in `counts`; NONE = no penalties
    uint32_t reserved[3];
};

// `token` gains `value`. A token may occur more than once; the biases are added in their order.
struct Bias {
    uint32_t token;
    float value;
};

// What one block of sample_scan found in its part of a row.
struct Part {
    uint32_t faults;      // 1: NaN or +inf in the logits; 2: after biases and penalties
    float highest;        // of the logits as they are
    uint64_t best;        // largest candidate key after the mask, 0 = none
    double sum;           // of exp(logit - highest)
};

// In a `counts` word: the token is in the prompt; the other bits count it in the output.
constexpr uint32_t IN_PROMPT = 0x80000000u;
constexpr float GREEDY_TEMPERATURE = 1e-5f;

// Order of candidates as an integer: higher logit first, ties to the lower id. -0 counts as 0. Never 0 for a finite logit.
__device__ inline uint32_t order_key(float logit) {
    uint32_t bits = __float_as_uint(logit + 0.0f);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ inline float key_logit(uint32_t key) {
    return __uint_as_float(key & 0x80000000u ? key & 0x7FFFFFFFu : ~key);
}

__device__ inline uint64_t candidate_key(float logit, uint32_t id) {
    return (uint64_t(order_key(logit)) << 32) | uint32_t(~id);
}

__device__ inline uint32_t candidate_id(uint64_t key) { return ~uint32_t(key); }

__device__ inline bool is_greedy(const RowSettings& row) {
    return row.temperature < GREEDY_TEMPERATURE || row.top_k == 1 || row.top_p == 0.0f;
}

__device__ inline bool has_penalties(const RowSettings& row) {
    return row.counts != NONE && (row.repetition != 1.0f || row.presence != 0.0f || row.frequency != 0.0f);
}

// Whether sample_scan leaves other logits for this position in `adjusted` than the model gave.
__device__ inline bool is_adjusted(const RowSettings& row, const Position& position) {
    return position.target == NONE && (row.num_biases > 0 || position.mask != NONE || has_penalties(row));
}
