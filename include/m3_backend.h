/* m3_backend.h: what a hardware backend of the M3 server implements.
 *
 * A backend is a shared library, libm3_backend_NAME.so, that exports one symbol, m3_backend_query. It answers a
 * table of functions. One instance made by `open` is one rank on one device. The server decides what runs (which
 * tokens, in which pages); the backend decides how (layouts, kernels, graphs, streams, collectives).
 *
 * Order of calls, each of which may refuse before serving:
 *     query, probe, [comm_id], open, load * n, ready, reserve, warm        then        submit, wait, done, ... close
 *
 * Rules, all of them checked by the server where they can be:
 *   1. Every function answers M3_OK, M3_UNSUPPORTED (cannot be done; nothing has changed; says why) or M3_FATAL (the
 *      instance is dead: only `close` is called afterwards). The last argument, `err`, takes the sentence; it may be
 *      null. A sentence is lower case and names the value and the limit.
 *   2. Every struct that crosses by pointer opens with `size`, its sizeof on the side that made it. Read no field
 *      that lies at or beyond `size`; write none either. Whoever gets a struct leaves its `size` alone.
 *   3. Elements of arrays have no `size`: walk them by `stride`, which may be larger than your sizeof.
 *   4. Within a major, fields and table entries are only appended. `major` must be equal, `minor` may differ.
 *   5. Reserved fields are zero. Integers have fixed width; there is no implicit padding.
 *   6. Nothing that one side allocated is freed by the other. A pointer is valid during the call, unless said longer.
 *   7. Calls on one instance are never concurrent, but they may come from different threads. `probe`, `comm_id` and
 *      `open` may come from any thread. No exception, panic or longjmp may leave a function.
 *   8. A library is loaded with RTLD_NOW | RTLD_LOCAL and never unloaded.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef M3_BACKEND_H
#define M3_BACKEND_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define M3_MAJOR 1u
#define M3_MINOR 0u

#define M3_OK 0
#define M3_UNSUPPORTED 1
#define M3_FATAL 2

/* "No value" in the uint32_t fields that say so. */
#define M3_NONE UINT32_MAX

/* Weight formats: a bit each in m3_probe.weight_formats, one value in m3_tensor.format. */
#define M3_FORMAT_F32 1u
#define M3_FORMAT_BF16 2u
#define M3_FORMAT_MXFP8 4u     /* e4m3fn values, one UE8M0 scale byte for 32 values along the last dimension */
#define M3_FORMAT_BLOCK_FP8 8u /* e4m3fn values, one float scale for each 128 x 128 tile */
#define M3_FORMAT_NVFP4 16u    /* e2m1 pairs, an e4m3 scale for 16 values, one float scale */

/* Compute and KV dtypes: bits in m3_probe, one value in m3_open_args. */
#define M3_DTYPE_F32 1u
#define M3_DTYPE_BF16 2u
#define M3_DTYPE_FP8_E4M3 4u

/* m3_probe.quant_mode: how quantised linears are computed. */
#define M3_QUANT_WEIGHT_ONLY 0u
#define M3_QUANT_W8A8 1u
#define M3_QUANT_BLOCK_FP8 2u

/* m3_probe.flags */
#define M3_PROBE_KEEP_MAPPED 1u  /* tensor pointers must stay valid until `close`, not only until `ready` */
#define M3_PROBE_BY_NAME_ONLY 2u /* never taken by `--backend auto` (test backends) */
#define M3_PROBE_ENCODES 4u      /* `encode` works for a model whose config and checkpoint have a vision tower */

/* m3_open_args.flags */
#define M3_OPEN_SOLO 1u         /* one rank of a larger world, collectives skipped; output is meaningless */
#define M3_OPEN_TAPS 2u         /* keep the named points of the last step for `tap` */

/* m3_seq.flags */
#define M3_SEQ_CHAINED 1u /* the single input token is the one this row sampled last */

/* m3_output_args.faults: bits */
#define M3_FAULT_NAN 1u        /* this row's logits held NaN; its results are meaningless, other rows' are not */
#define M3_FAULT_EMPTY_MASK 2u /* every token was masked away */

/* m3_host.log levels */
#define M3_LOG_ERROR 1u
#define M3_LOG_WARN 2u
#define M3_LOG_INFO 3u
#define M3_LOG_DEBUG 4u

/* ---- building blocks: these two never grow ---- */

/* An array: `count` elements, `stride` bytes apart. `data` may be null when `count` is 0. */
typedef struct m3_span {
    const void *data;
    uint64_t count;
    uint64_t stride;
} m3_span;

/* Room for text or bytes that the callee writes: never more than `capacity`. `len` is set to the full length, so a
 * `len` above `capacity` says that it did not fit. A sentence is cut; bytes are then not written at all. */
typedef struct m3_text {
    uint8_t *data;
    uint64_t capacity;
    uint64_t len;
} m3_text;

/* ---- query and probe ---- */

typedef struct m3_host {
    uint32_t size;
    uint32_t major;
    uint32_t minor;
    uint32_t reserved;
    /* May be null. Callable from any thread until the process ends. */
    void (*log)(uint32_t level, const uint8_t *text, uint64_t len);
} m3_host;

/* What the server intends to serve, so that shapes can be refused by name. */
typedef struct m3_probe_args {
    uint32_t size;
    uint32_t tp;
    uint32_t ep;
    uint32_t reserved;
    m3_span config; /* bytes of config.json; count 0 when only devices are asked for */
} m3_probe_args;

typedef struct m3_probe {
    uint32_t size;
    uint32_t score; /* 0 = unusable; `auto` takes the highest. The CPU answers 10, GPUs 100 and more. */
    uint32_t num_devices;
    uint32_t weight_formats;
    uint32_t dtypes;
    uint32_t kv_dtypes;
    uint32_t quant_mode;
    uint32_t flags;
    uint64_t memory_total_bytes; /* of one device */
    uint64_t memory_free_bytes;
    m3_text device; /* caller's room; e.g. "NVIDIA H200" */
    m3_text arch;   /* caller's room; e.g. "sm_90a" */
    m3_text paths;  /* caller's room; a line per op: "name: path it will take" */
} m3_probe;

/* ---- open, load, ready, reserve, warm ---- */

typedef struct m3_open_args {
    uint32_t size;
    uint32_t flags;
    uint32_t rank;
    uint32_t tp; /* world size: ranks that share the model */
    uint32_t ep; /* divisor of tp; 1 = experts are cut by width, tp = whole experts per rank */
    uint32_t dp; /* reserved, 0: refuse more */
    uint32_t node; /* reserved, 0: refuse more */
    uint32_t device;
    uint32_t dtype;    /* one M3_DTYPE_*: activations and residual stream */
    uint32_t kv_dtype; /* one M3_DTYPE_*: K, V and index-K */
    uint32_t max_rows;        /* table rows: most sequences known to the device at once */
    uint32_t max_step_tokens; /* most tokens in one step */
    uint32_t max_context;     /* longest context, in tokens */
    uint32_t page_tokens;     /* tokens of a page = of a sparse block */
    uint32_t max_logprobs;    /* most alternatives per position */
    uint32_t num_threads;     /* of a CPU rank; 0 = the backend decides */
    uint64_t page_memory_bytes;     /* most bytes for pages; 0 = the backend decides from free memory */
    uint64_t collective_timeout_ms; /* an older collective is aborted and its rank named; 0 = 300 s */
    m3_span config;  /* bytes of config.json */
    m3_span comm_id; /* what comm_id of rank 0 wrote; count 0 when tp is 1 */
} m3_open_args;

/* One tensor, already cut for this rank. Memory behind the pointers stays until `ready` has returned, or until `close`
 * with M3_PROBE_KEEP_MAPPED. `data` is null for a synthetic tensor: fill it on the device from `seed`. */
typedef struct m3_tensor {
    uint32_t size;
    uint32_t format; /* one M3_FORMAT_* */
    uint32_t num_dims;
    uint32_t group_offset; /* MXFP8: values of the first scale group that lie before the first column */
    uint64_t shape[5];
    uint64_t strides[5]; /* in elements */
    m3_span name; /* UTF-8, e.g. language_model.model.layers.3.self_attn.q_proj.weight */
    const uint8_t *data;
    const uint8_t *scale;  /* null when the format has no scales */
    uint64_t scale_stride; /* scale entries from one row of scales to the next */
    uint64_t seed;
} m3_tensor;

typedef struct m3_ready {
    uint32_t size;
    uint32_t reserved;
    uint64_t page_bytes; /* K, V and index-K of all layers for one page on this rank; never 0 */
    uint64_t max_pages;  /* that fit the memory limit */
    uint64_t weight_bytes;
    uint64_t workspace_bytes;
} m3_ready;

typedef struct m3_reserve_args {
    uint32_t size;
    uint32_t reserved;
    uint64_t num_pages; /* ids are 0 .. num_pages - 1 */
} m3_reserve_args;

/* Element: a shape that will be sent. */
typedef struct m3_warm_shape {
    uint32_t num_tokens;
    uint32_t num_seqs;
    uint32_t context_len;
    uint32_t reserved;
} m3_warm_shape;

/* ---- submit ---- */

/* Element: settings of a table row, sent when a sequence gets the row. */
typedef struct m3_row_bind {
    uint32_t row;
    uint32_t num_logprobs; /* alternatives per position, with the token's own; M3_NONE = no log-probabilities */
    uint64_t seed;         /* randomness is Philox(seed, output index) */
    float temperature;     /* 0 = greedy, lowest id on ties */
    float top_p;
    float min_p;
    uint32_t top_k;           /* 0 = off */
    float repetition_penalty; /* 1 = off */
    float presence_penalty;
    float frequency_penalty;
    uint32_t history_offset; /* what penalties look at: history[history_offset ..], */
    uint32_t prompt_len;     /* prompt_len ids of the prompt, */
    uint32_t output_len;     /* then output_len generated ones */
    uint32_t bias_offset;    /* into m3_step_args.biases */
    uint32_t num_biases;
} m3_row_bind;

/* Element: added to the logit of `token` before anything else. */
typedef struct m3_token_bias {
    uint32_t token;
    float bias;
} m3_token_bias;

/* Element: page_ids[offset ..][.. count] become entries first .. of the row's page table. `first` is the number of
 * entries the row has. */
typedef struct m3_page_append {
    uint32_t row;
    uint32_t first;
    uint32_t offset;
    uint32_t count;
} m3_page_append;

/* Element: a sequence's part of a step, num_tokens tokens at positions first_position .. ; a row has one part at most.
 * A part may start before the end of the last one (a rejected draft), never after it. */
typedef struct m3_seq {
    uint32_t row;
    uint32_t flags;
    uint32_t first_position;
    uint32_t num_tokens;
    uint32_t token_offset; /* into tokens; unused when chained */
    uint32_t num_logits;   /* the last num_logits positions need logits; one output slot each, from output_offset */
    uint32_t output_offset;
    uint32_t target_offset; /* into targets, one per logits position: an id is scored, M3_NONE is sampled;
                               the field itself M3_NONE = sample all */
    uint32_t mask_offset;   /* into masks, in words: ceil(vocab / 32) words per sampled position, bit t % 32 of word
                               t / 32 allows token t; M3_NONE = everything is allowed */
    uint32_t output_index;  /* output index (Philox counter) of the first sampled position */
} m3_seq;

/* Element: rows first_row .. of an encoded medium replace the embeddings at first_position .. of a row. */
typedef struct m3_media_span {
    uint64_t handle;
    uint32_t row;
    uint32_t first_position;
    uint32_t len;
    uint32_t first_row;
} m3_media_span;

/* One pass of the model. Applied in this order: releases, binds, pages, then the sequences. */
typedef struct m3_step_args {
    uint32_t size;
    uint32_t reserved;
    uint64_t id;
    m3_span releases; /* uint32_t: rows whose sequence has ended or was preempted */
    m3_span binds;    /* m3_row_bind */
    m3_span pages;    /* m3_page_append */
    m3_span page_ids; /* uint32_t */
    m3_span seqs;     /* m3_seq */
    m3_span tokens;   /* uint32_t */
    m3_span targets;  /* uint32_t */
    m3_span masks;    /* uint32_t words; stay until the ticket is done */
    m3_span history;  /* uint32_t */
    m3_span biases;   /* m3_token_bias */
    m3_span media;    /* m3_media_span */
} m3_step_args;

/* ---- wait ---- */

/* Results in the caller's memory, one slot per logits position. The caller fills every array with "unset" values
 * first; a rank other than 0 leaves them alone, and may be given none: capacity 0, pointers that lead nowhere. */
typedef struct m3_output_args {
    uint32_t size;
    uint32_t capacity;     /* slots; leave as it is */
    uint32_t top_capacity; /* alternatives per slot; leave as it is */
    uint32_t reserved;
    uint32_t *tokens;
    float *logprobs;  /* natural log of the model's own distribution, before temperature, filters and penalties */
    uint32_t *faults; /* M3_FAULT_* bits */
    uint32_t *ranks;  /* 0 = most likely; M3_NONE when not asked for */
    uint32_t *top_ids;   /* capacity * top_capacity, most likely first; unused entries are M3_NONE */
    float *top_logprobs; /* capacity * top_capacity */
    uint64_t device_time_us; /* of the step; 0 when unknown */
} m3_output_args;

/* ---- optional entries ---- */

typedef struct m3_encode_args {
    uint32_t size;
    uint32_t reserved;
    m3_span patches; /* float values (count counts values): rows of row_len, normalised, in merge order */
    uint64_t row_len;
    m3_span grids; /* uint32_t[3]: t, h, w in patches, a triple per medium */
} m3_encode_args;

typedef struct m3_encode_result {
    uint32_t size;
    uint32_t num_rows; /* rows an embedding can use */
    uint64_t handle;
    uint64_t ticket;
    uint64_t bytes; /* device bytes held until media_free */
} m3_encode_result;

/* A named point of the last step that was waited for, as float (ids too: exact below 2^24). */
typedef struct m3_tap_args {
    uint32_t size;
    uint32_t num_dims; /* out */
    m3_span name;      /* e.g. layer_out.3 */
    float *data;       /* caller's room, row-major */
    uint64_t capacity; /* in values; when too small, set the shape and write nothing */
    uint64_t shape[5]; /* out */
} m3_tap_args;

/* Element: one page buffer that a transfer engine may register. */
typedef struct m3_region {
    uint64_t base;
    uint64_t len_bytes;
    uint32_t memory_kind; /* 0 host, 1 CUDA, 2 HIP */
    uint32_t device;
    uint64_t page_stride_bytes;
    uint32_t first_layer;
    uint32_t num_layers;
    uint32_t lanes; /* bit 0 K, 1 V, 2 index-K */
    uint32_t dtype;
    uint64_t layout_hash; /* equal on two instances = direct transfer is possible */
} m3_region;

typedef struct m3_region_args {
    uint32_t size;
    uint32_t reserved;
    m3_region *data; /* caller's room: capacity elements, stride bytes apart */
    uint64_t capacity;
    uint64_t stride;
    uint64_t count; /* out: how many there are; only `capacity` were written */
} m3_region_args;

/* Element: a page copied on the device. */
typedef struct m3_page_copy {
    uint32_t from;
    uint32_t to;
} m3_page_copy;

/* ---- the table ---- */

/* Immutable once handed out; it and its strings live until the process ends. Entries up to `close` are mandatory, a
 * null entry after it means "cannot". A table may end (`size`) after `close` or after any later entry. */
typedef struct m3_table {
    uint32_t size;
    uint32_t major;
    uint32_t minor;
    uint32_t reserved;
    const char *name;    /* 1 to 64 bytes, as --backend takes it: NAME of libm3_backend_NAME.so */
    const char *version; /* at most 64 bytes */

    /* What can be done here; Unsupported says why nothing can. Cheap: called for every backend that is found. */
    int32_t (*probe)(const m3_probe_args *args, m3_probe *out, m3_text *err);
    /* Bytes that rank 0 makes and every rank of the world is given. */
    int32_t (*comm_id)(m3_text *bytes, m3_text *err);
    int32_t (*open)(const m3_open_args *args, void **instance, m3_text *err);
    int32_t (*load)(void *instance, const m3_tensor *tensor, m3_text *err);
    /* All tensors were given: repack, check that none is missing, say what is left for pages. */
    int32_t (*ready)(void *instance, m3_ready *out, m3_text *err);
    /* Allocate all pages and workspaces, once. */
    int32_t (*reserve)(void *instance, const m3_reserve_args *args, m3_text *err);
    /* Tune and capture (span of m3_warm_shape); afterwards nothing allocates. */
    int32_t (*warm)(void *instance, const m3_span *shapes, m3_text *err);
    /* Returns at enqueue. Tickets count 1, 2, 3, ... (`encode` takes from the same count) and are done in order. At most
     * two steps are submitted and not yet waited for. */
    int32_t (*submit)(void *instance, const m3_step_args *step, uint64_t *ticket, m3_text *err);
    /* Until the ticket is done; every earlier one is then done too. */
    int32_t (*wait)(void *instance, uint64_t ticket, m3_output_args *out, m3_text *err);
    /* Newest ticket that is done, 0 = none yet; does not block. */
    int32_t (*done)(void *instance, uint64_t *ticket, m3_text *err);
    /* The instance is gone afterwards, whatever the status. */
    int32_t (*close)(void *instance, m3_text *err);

    /* Span of m3_page_copy. */
    int32_t (*copy_pages)(void *instance, const m3_span *copies, m3_text *err);
    /* Span of uint32_t. Canonical order: layer, lane (K, V, index-K), KV head, token, dim; one page after the other. */
    int32_t (*read_pages)(void *instance, const m3_span *pages, m3_text *bytes, m3_text *err);
    int32_t (*write_pages)(void *instance, const m3_span *pages, const m3_span *bytes, m3_text *err);
    int32_t (*regions)(void *instance, m3_region_args *out, m3_text *err);
    /* Every rank gets the same calls in the same order. */
    int32_t (*encode)(void *instance, const m3_encode_args *args, m3_encode_result *out, m3_text *err);
    int32_t (*media_free)(void *instance, uint64_t handle, m3_text *err);
    int32_t (*tap)(void *instance, m3_tap_args *args, m3_text *err);
    /* 1 begins a profiler range, 0 ends it. */
    int32_t (*trace)(void *instance, uint32_t begin, m3_text *err);
} m3_table;

/* The only symbol of a backend. Null = refused, with a sentence in `err` (which may be null). */
#if defined(_WIN32)
__declspec(dllexport)
#elif defined(__GNUC__)
__attribute__((visibility("default")))
#endif
const m3_table *m3_backend_query(const m3_host *host, m3_text *err);

#ifdef __cplusplus
}
#endif

#endif /* M3_BACKEND_H */
