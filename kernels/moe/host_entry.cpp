// Entry points of stream.cu on a CPU, called by test_stream.py. Macros: FORMAT, NT.

#define HOST_TEST
#define TOP_K 4
#define BLOCKS 1
#include "../sampling/cuda_on_host.h"
#include "stream.cu"

struct Arguments {
    uint16_t *x, *w_up, *w_down, *inner, *y;
    uint8_t *scales_up, *scales_down;
    int32_t *offsets, *rows;
    int32_t T, K, I, groups, max_tiles;
};

static Arguments a;

static void grid(unsigned x, void (*work)()) {
    gridDim = {x, 1, 1};
    for (unsigned block = 0; block < x; block++) {
        blockIdx = {block, 0, 0};
        run_block(256, work);
    }
}

extern "C" void run_stream(const Arguments* arguments) {
    a = *arguments;
    grid(a.I / 16 * a.max_tiles, [] {
        moe_stream_up(a.x, reinterpret_cast<uint8_t*>(a.w_up), a.scales_up, a.offsets, a.rows, a.inner, a.T, a.K, a.I, a.groups, 1.702f, 7.0f);
    });
    grid(a.K / 256 * a.max_tiles, [] {
        moe_stream_down(a.inner, reinterpret_cast<uint8_t*>(a.w_down), a.scales_down, a.offsets, a.rows, a.y, a.K, a.I, a.groups);
    });
}
