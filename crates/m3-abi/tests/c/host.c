/* A host in C: loads a backend, serves one sequence of two tokens and two sampled ones, and prints them.
 * `newer` sends longer structs and wider strides, as a host of a later minor would. Other modes break one rule each
 * and print the sentence that comes back. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "m3_backend.h"

static uint8_t room[512];
static m3_text err = {room, sizeof room, 0};

static void expect(int32_t status, const char *entry) {
    if (status == M3_OK) return;
    printf("%s %d: %.*s\n", entry, (int)status, (int)(err.len < sizeof room ? err.len : sizeof room), (char *)room);
    exit(0);
}

static m3_span span(const void *data, uint64_t count, uint64_t stride) {
    m3_span made;
    made.data = data;
    made.count = count;
    made.stride = stride;
    return made;
}

/* What a later minor might append. */
typedef struct newer_open { m3_open_args args; uint64_t later[4]; } newer_open;
typedef struct newer_tensor { m3_tensor tensor; uint64_t later[2]; } newer_tensor;
typedef struct newer_step { m3_step_args args; m3_span later; } newer_step;
typedef struct newer_seq { m3_seq seq; uint32_t later[6]; } newer_seq;
typedef struct newer_bind { m3_row_bind bind; uint64_t later; } newer_bind;
typedef struct newer_append { m3_page_append append; uint32_t later; } newer_append;
typedef struct newer_output { m3_output_args args; uint64_t later[3]; } newer_output;
typedef struct newer_ready { m3_ready ready; uint64_t later[3]; } newer_ready;

static const char *mode;
static int is(const char *name) { return strcmp(mode, name) == 0; }
static uint32_t size(size_t now, size_t later) { return (uint32_t)(is("newer") ? later : now); }

static void *open_one(const m3_table *table) {
    newer_open open;
    newer_tensor tensor;
    newer_ready ready;
    m3_reserve_args reserve;
    m3_span shapes = span(NULL, 0, 0);
    void *instance = NULL;
    static const char config[] = "{\"vocab_size\": 10}";
    static const char name[] = "language_model.model.embed_tokens.weight";
    memset(&open, 0xEE, sizeof open);
    memset(&open.args, 0, sizeof open.args);
    open.args.size = is("small open") ? 64 : size(sizeof open.args, sizeof open);
    open.args.tp = open.args.ep = 1;
    open.args.dtype = M3_DTYPE_F32;
    open.args.kv_dtype = M3_DTYPE_F32;
    open.args.max_rows = 4;
    open.args.max_step_tokens = 16;
    open.args.max_context = 64;
    open.args.page_tokens = 4;
    open.args.config = span(is("null config") ? NULL : config, sizeof config - 1, 1);
    expect(table->open(is("null open") ? NULL : &open.args, &instance, &err), "open");

    memset(&tensor, 0, sizeof tensor);
    tensor.tensor.size = size(sizeof tensor.tensor, sizeof tensor);
    tensor.tensor.format = M3_FORMAT_F32;
    tensor.tensor.num_dims = is("six dimensions") ? 6 : 2;
    tensor.tensor.shape[0] = 10;
    tensor.tensor.shape[1] = 1;
    tensor.tensor.strides[0] = tensor.tensor.strides[1] = 1;
    tensor.tensor.name = span(name, sizeof name - 1, 1);
    expect(table->load(is("null instance") ? NULL : instance, &tensor.tensor, &err), "load");

    memset(&ready, 0xEE, sizeof ready);
    ready.ready.size = is("small ready") ? 16 : size(sizeof ready.ready, sizeof ready);
    expect(table->ready(instance, &ready.ready, &err), "ready");
    if (ready.later[0] != 0xEEEEEEEEEEEEEEEEu || ready.ready.page_bytes == 0) exit(4);

    memset(&reserve, 0, sizeof reserve);
    reserve.size = (uint32_t)sizeof reserve;
    reserve.num_pages = 8;
    expect(table->reserve(instance, &reserve, &err), "reserve");
    expect(table->warm(instance, &shapes, &err), "warm");
    return instance;
}

static uint32_t step(const m3_table *table, void *instance, uint32_t index) {
    static const uint32_t tokens[] = {3, 4};
    static const uint32_t pages[] = {5};
    uint32_t out_token = M3_NONE, fault = 0, rank = M3_NONE;
    float logprob = 0;
    uint64_t ticket = 0;
    newer_step step;
    newer_seq seq;
    newer_bind bind;
    newer_append append;
    newer_output out;
    memset(&step, 0, sizeof step);
    memset(&seq, 0, sizeof seq);
    memset(&bind, 0, sizeof bind);
    memset(&append, 0, sizeof append);
    memset(&out, 0xEE, sizeof out);
    step.args.size = is("small step") ? 100 : size(sizeof step.args, sizeof step);
    step.args.id = index;
    if (index == 0) {
        bind.bind.num_logprobs = M3_NONE;
        bind.bind.top_p = bind.bind.repetition_penalty = 1;
        append.append.count = 1;
        step.args.binds = span(&bind, 1, size(sizeof bind.bind, sizeof bind));
        step.args.pages = span(&append, 1, size(sizeof append.append, sizeof append));
        step.args.page_ids = span(pages, 1, 4);
        step.args.tokens = span(tokens, 2, 4);
    }
    seq.seq.flags = index == 0 ? 0 : M3_SEQ_CHAINED;
    seq.seq.first_position = index == 0 ? 0 : index + 1;
    seq.seq.num_tokens = index == 0 ? 2 : 1;
    seq.seq.num_logits = 1;
    seq.seq.target_offset = seq.seq.mask_offset = M3_NONE;
    seq.seq.output_index = index;
    step.args.seqs = span(is("null seqs") ? NULL : &seq, 1, is("small stride") ? 8 : size(sizeof seq.seq, sizeof seq));
    if (is("endless seqs")) step.args.seqs.count = UINT64_MAX;
    expect(table->submit(instance, &step.args, is("null ticket") ? NULL : &ticket, &err), "submit");

    memset(&out.args, 0, sizeof out.args);
    out.args.size = size(sizeof out.args, sizeof out);
    out.args.capacity = 1;
    out.args.tokens = is("null tokens") ? NULL : &out_token;
    out.args.faults = &fault;
    out.args.ranks = &rank;
    out.args.logprobs = &logprob;
    expect(table->wait(instance, ticket, &out.args, &err), "wait");
    if (out.later[0] != 0xEEEEEEEEEEEEEEEEu) exit(5);
    if (ticket != index + 1 || fault != 0) exit(6);
    return out_token;
}

int main(int argc, char **argv) {
    m3_host host = {sizeof host, M3_MAJOR, M3_MINOR, 0, NULL};
    struct { m3_host host; uint64_t later; } newer_host;
    const m3_table *(*query)(const m3_host *, m3_text *);
    const m3_table *table;
    void *library, *instance, *symbol;
    if (argc != 3) return 2;
    mode = argv[2];
    library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return printf("%s\n", dlerror()), 3;
    symbol = dlsym(library, "m3_backend_query");
    if (symbol == NULL) return printf("%s\n", dlerror()), 3;
    memcpy(&query, &symbol, sizeof query);

    if (is("newer")) host.minor = 9, host.size = (uint32_t)sizeof newer_host;
    if (is("wrong major")) host.major = M3_MAJOR + 1;
    if (is("small host")) host.size = 16;
    newer_host.host = host;
    newer_host.later = 0xEEEEEEEEEEEEEEEEu;
    table = query(is("null host") ? NULL : &newer_host.host, &err);
    if (table == NULL) expect(M3_UNSUPPORTED, "query");
    if (is("no err")) {
        if (table->open(NULL, NULL, NULL) != M3_UNSUPPORTED) return 7;
        return printf("refused without a sentence\n"), 0;
    }
    instance = open_one(table);
    printf("%u", (unsigned)step(table, instance, 0));
    printf(" %u\n", (unsigned)step(table, instance, 1));
    expect(table->close(instance, &err), "close");
    return 0;
}
