// Entry points of sampling.cu on a CPU, called by test_sampling.py.

#include "cuda_on_host.h"

#define THREADS 64
#define PART 256
#define LIST_LENGTH 64
#include "sampling.cu"

struct Arguments {
    float *logits, *adjusted;
    Position* positions;
    RowSettings* rows;
    uint32_t* counts;
    Bias* biases;
    uint32_t* masks;
    int32_t* drafts;
    Part* parts;
    uint32_t *tokens, *faults;
    int32_t* last_tokens;
    float* logprobs;
    uint32_t *ranks, *top_ids;
    float* top_logprobs;
    uint32_t* history;
    int32_t vocab, num_positions, top_capacity, length, prompt_length;
};

static Arguments a;
static int num_parts() { return (a.vocab + PART - 1) / PART; }

static void grid(unsigned x, unsigned y, void (*work)()) {
    gridDim = {x, y, 1};
    for (unsigned row = 0; row < y; row++) {
        for (unsigned column = 0; column < x; column++) {
            blockIdx = {column, row, 0};
            run_block(THREADS, work);
        }
    }
}

extern "C" int parts_of(int vocab) { return (vocab + PART - 1) / PART; }

extern "C" void run_sampler(const Arguments* arguments) {
    a = *arguments;
    grid(num_parts(), a.num_positions, [] {
        sample_scan(a.logits, a.adjusted, a.positions, a.rows, a.counts, a.biases, a.masks, a.drafts, a.parts, a.vocab);
    });
    grid(a.num_positions, 1, [] {
        sample_choose(a.logits, a.adjusted, a.positions, a.rows, a.counts, a.parts, a.tokens, a.faults, a.last_tokens, a.vocab,
                      num_parts());
    });
    grid(a.num_positions, 1, [] {
        sample_logprobs(a.logits, a.positions, a.rows, a.parts, a.tokens, a.logprobs, a.ranks, a.top_ids, a.top_logprobs, a.vocab,
                        num_parts(), a.top_capacity);
    });
}

extern "C" void run_history(const Arguments* arguments) {
    a = *arguments;
    grid((a.length + THREADS - 1) / THREADS, 1, [] { count_history(a.counts, a.history, a.length, a.prompt_length); });
}
