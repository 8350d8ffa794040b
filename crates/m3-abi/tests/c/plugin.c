/* A backend in C that serves the script 7, 8, 9 by output index, or misbehaves in the one way named by FAULT.
 * The handshake tests compile it once for each way. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "m3_backend.h"

#ifndef FAULT
#define FAULT "none"
#endif
#ifndef NAME
#define NAME "c"
#endif

static int is(const char *fault) { return strcmp(FAULT, fault) == 0; }

static int32_t say(m3_text *err, int32_t status, const char *sentence) {
    if (err != NULL) {
        uint64_t len = strlen(sentence);
        err->len = len;
        memcpy(err->data, sentence, len < err->capacity ? len : err->capacity);
    }
    return status;
}

static void put(m3_text *text, const char *value) { (void)say(text, M3_OK, value); }

/* Element `index` of a span, as far as both sides know it. */
static void at(const m3_span *span, uint64_t index, void *out, size_t bytes) {
    size_t known = span->stride < bytes ? (size_t)span->stride : bytes;
    memset(out, 0, bytes);
    memcpy(out, (const uint8_t *)span->data + index * span->stride, known);
}

typedef struct answer {
    uint32_t slot;
    uint32_t token;
} answer;

typedef struct step_answers {
    answer answers[64];
    uint64_t count;
} step_answers;

typedef struct instance {
    uint64_t tickets;
    uint64_t steps;
    uint64_t num_tensors;
    step_answers in_flight[2]; /* at most two steps are submitted and not yet waited for: ticket % 2 */
    uint8_t pages[256];
    uint64_t media;
} instance;

static int32_t probe(const m3_probe_args *args, m3_probe *out, m3_text *err) {
    (void)args;
    if (is("text length")) return err->len = UINT64_MAX, M3_UNSUPPORTED;
    if (is("text with terminator")) return say(err, M3_UNSUPPORTED, "no device"), err->len += 1, M3_UNSUPPORTED;
    if (is("text in lines")) return say(err, M3_UNSUPPORTED, "no\tdevice:\n\x1b[31mred\n");
    if (is("probe refuses")) return say(err, M3_UNSUPPORTED, "no device: the script has no hardware");
    out->score = is("score 0") ? 0 : 50;
    out->num_devices = 1;
    out->weight_formats = M3_FORMAT_F32 | M3_FORMAT_BF16;
    out->dtypes = M3_DTYPE_F32;
    out->kv_dtypes = M3_DTYPE_F32;
    out->memory_total_bytes = 1u << 20;
    put(&out->device, "a script in C");
    put(&out->arch, "c");
    put(&out->paths, "sample: script\nembed: none\n");
    if (is("probe lengths")) out->device.len = out->arch.len = out->paths.len = UINT64_MAX;
    return M3_OK;
}

static int32_t comm_id(m3_text *bytes, m3_text *err) {
    (void)bytes;
    return say(err, M3_UNSUPPORTED, "one rank only");
}

static int32_t open_instance(const m3_open_args *args, void **out, m3_text *err) {
    if (args->tp != 1) return say(err, M3_UNSUPPORTED, "tp is not 1");
    *out = is("null instance") ? NULL : calloc(1, sizeof(instance));
    return M3_OK;
}

static int32_t load(void *self, const m3_tensor *tensor, m3_text *err) {
    instance *me = self;
    if (tensor->num_dims == 0 || tensor->name.count == 0) return say(err, M3_UNSUPPORTED, "no name or no dimension");
    me->num_tensors += 1;
    return M3_OK;
}

static int32_t ready(void *self, m3_ready *out, m3_text *err) {
    instance *me = self;
    if (me->num_tensors == 0) return say(err, M3_UNSUPPORTED, "no tensor was loaded");
    out->page_bytes = is("zero page") ? 0 : 4;
    out->max_pages = is("too many pages") ? UINT64_MAX : 64;
    if (is("page of 2^60")) out->page_bytes = UINT64_C(1) << 60, out->max_pages = 8;
    if (is("ready overrun")) memset(out, 1, sizeof *out + 16);
    if (is("ready overrun")) out->size = (uint32_t)sizeof *out;
    if (is("ready size")) out->size = 4096;
    return M3_OK;
}

static int32_t reserve(void *self, const m3_reserve_args *args, m3_text *err) {
    (void)self;
    return args->num_pages <= 64 ? M3_OK : say(err, M3_UNSUPPORTED, "at most 64 pages");
}

static int32_t warm(void *self, const m3_span *shapes, m3_text *err) {
    (void)self, (void)shapes, (void)err;
    return M3_OK;
}

static int32_t submit(void *self, const m3_step_args *step, uint64_t *ticket, m3_text *err) {
    static const uint32_t script[] = {7, 8, 9};
    instance *me = self;
    step_answers *mine;
    uint64_t index;
    (void)err;
    if (is("status 7")) return 7;
    if (is("silent death")) return M3_FATAL;
    me->steps += 1;
    me->tickets += is("ticket skips") && me->steps == 2 ? 2 : 1;
    mine = &me->in_flight[me->tickets % 2];
    mine->count = 0;
    for (index = 0; index < step->seqs.count && index < 64; index++) {
        m3_seq seq;
        at(&step->seqs, index, &seq, sizeof seq);
        if (seq.num_logits == 0) continue;
        mine->answers[mine->count].slot = seq.output_offset;
        mine->answers[mine->count].token = script[seq.output_index % 3];
        mine->count += 1;
    }
    *ticket = is("ticket stays") ? 1 : me->tickets;
    return M3_OK;
}

static int32_t wait_ticket(void *self, uint64_t ticket, m3_output_args *out, m3_text *err) {
    instance *me = self;
    const step_answers *mine = &me->in_flight[ticket % 2];
    uint64_t index;
    for (index = 0; index < mine->count; index++) {
        uint32_t slot = mine->answers[index].slot;
        if (slot >= out->capacity) return say(err, M3_UNSUPPORTED, "too few slots");
        out->tokens[slot] = mine->answers[index].token;
        out->faults[slot] = 0;
    }
    out->device_time_us = 12;
    if (is("output count")) out->capacity += 1;
    return M3_OK;
}

static int32_t done(void *self, uint64_t *ticket, m3_text *err) {
    instance *me = self;
    (void)err;
    *ticket = is("done lies") ? me->tickets + 5 : me->tickets;
    return M3_OK;
}

static int32_t close_instance(void *self, m3_text *err) {
    (void)err;
    free(self);
    return M3_OK;
}

static int32_t copy_pages(void *self, const m3_span *copies, m3_text *err) {
    instance *me = self;
    uint64_t index;
    for (index = 0; index < copies->count; index++) {
        m3_page_copy copy;
        at(copies, index, &copy, sizeof copy);
        if (copy.from >= 64 || copy.to >= 64) return say(err, M3_FATAL, "no such page");
        memcpy(me->pages + copy.to * 4u, me->pages + copy.from * 4u, 4);
    }
    return M3_OK;
}

static int32_t read_pages(void *self, const m3_span *pages, m3_text *bytes, m3_text *err) {
    instance *me = self;
    uint64_t index;
    (void)err;
    bytes->len = is("page bytes") ? 1u << 30 : pages->count * 4;
    if (bytes->len > bytes->capacity) return M3_OK;
    for (index = 0; index < pages->count; index++) {
        uint32_t page;
        at(pages, index, &page, sizeof page);
        memcpy(bytes->data + index * 4, me->pages + page * 4u, 4);
    }
    return M3_OK;
}

static int32_t write_pages(void *self, const m3_span *pages, const m3_span *bytes, m3_text *err) {
    instance *me = self;
    uint64_t index;
    if (bytes->count != pages->count * 4) return say(err, M3_UNSUPPORTED, "a page has 4 bytes");
    for (index = 0; index < pages->count; index++) {
        uint32_t page;
        at(pages, index, &page, sizeof page);
        memcpy(me->pages + page * 4u, (const uint8_t *)bytes->data + index * 4, 4);
    }
    return M3_OK;
}

static int32_t regions(void *self, m3_region_args *out, m3_text *err) {
    uint64_t index;
    (void)self, (void)err;
    out->count = is("region count") ? 1u << 30 : 100;
    for (index = 0; index < out->count && index < out->capacity; index++) {
        m3_region region = {0};
        region.base = 4096 * index;
        region.layout_hash = 42;
        memcpy((uint8_t *)out->data + index * out->stride, &region,
               out->stride < sizeof region ? (size_t)out->stride : sizeof region);
    }
    return M3_OK;
}

static int32_t encode(void *self, const m3_encode_args *args, m3_encode_result *out, m3_text *err) {
    instance *me = self;
    (void)err;
    me->tickets += 1;
    me->media += 1;
    out->num_rows = is("encode rows") ? 1000 : (uint32_t)(args->patches.count / args->row_len / 4);
    out->handle = me->media;
    out->ticket = me->tickets;
    out->bytes = 64;
    return M3_OK;
}

static int32_t media_free(void *self, uint64_t handle, m3_text *err) {
    instance *me = self;
    return handle != 0 && handle <= me->media ? M3_OK : say(err, M3_FATAL, "no such medium");
}

static int32_t tap(void *self, m3_tap_args *args, m3_text *err) {
    uint64_t index;
    (void)self;
    if (args->name.count != 6 || memcmp(args->name.data, "logits", 6) != 0) return say(err, M3_UNSUPPORTED, "no such tap");
    args->num_dims = is("tap dims") ? 6 : 2;
    args->shape[0] = 2;
    args->shape[1] = is("tap values") ? UINT64_MAX : 3;
    for (index = 0; index < 6 && args->capacity >= 6; index++) args->data[index] = (float)index;
    return M3_OK;
}

static int32_t trace(void *self, uint32_t begin, m3_text *err) {
    (void)self;
    return begin <= 1 ? M3_OK : say(err, M3_FATAL, "neither begin nor end");
}

/* A later minor: one entry more than the host knows. */
typedef struct newer_table {
    m3_table table;
    int32_t (*later)(void *instance, m3_text *err);
} newer_table;

static newer_table the_table;

static void fill(m3_table *table) {
    table->size = (uint32_t)sizeof *table;
    table->major = M3_MAJOR;
    table->minor = M3_MINOR;
    table->name = is("no name") ? NULL : is("empty name") ? "" : NAME;
    table->version = "0.1";
    table->probe = probe;
    table->comm_id = comm_id;
    table->open = open_instance;
    table->load = load;
    table->ready = ready;
    table->reserve = reserve;
    table->warm = warm;
    table->submit = submit;
    table->wait = wait_ticket;
    table->done = done;
    table->close = close_instance;
    table->copy_pages = copy_pages;
    table->read_pages = read_pages;
    table->write_pages = write_pages;
    table->regions = regions;
    table->encode = encode;
    table->media_free = media_free;
    table->tap = tap;
    table->trace = trace;
}

static void misbehave(m3_table *table) {
    if (is("newer")) table->minor = M3_MINOR + 7, table->size = (uint32_t)sizeof(newer_table);
    if (is("older")) table->size = (uint32_t)offsetof(m3_table, copy_pages);
    if (is("wrong major")) table->major = M3_MAJOR + 1;
    if (is("wrong major and size")) table->major = M3_MAJOR + 1, table->size = 64;
    if (is("capital name")) table->name = "SM90";
    if (is("named auto")) table->name = "auto";
    if (is("name in lines")) table->name = "a\nb";
    if (is("version in lines")) table->version = "1\n\x1b[31m";
    if (is("small size")) table->size = 8;
    if (is("huge size")) table->size = 1u << 20;
    if (is("odd size")) table->size = (uint32_t)sizeof *table - 3;
    if (is("long for its minor")) table->size = (uint32_t)sizeof(newer_table);
    if (is("short for its minor")) table->minor = M3_MINOR + 1, table->size -= 8;
    if (is("no submit")) table->submit = NULL, table->done = NULL;
    if (is("no tap")) table->tap = NULL;
    if (is("long name")) table->name = "a-name-that-is-much-longer-than-the-sixty-four-bytes-that-a-name-may-have";
}

#ifdef SYMBOL
__attribute__((visibility("default"))) const m3_table *SYMBOL(const m3_host *host, m3_text *err);
const m3_table *SYMBOL(const m3_host *host, m3_text *err) {
#else
const m3_table *m3_backend_query(const m3_host *host, m3_text *err) {
#endif
    static const char hello[] = "hello from C";
    if (host->size < offsetof(m3_host, log) + sizeof host->log || host->major != M3_MAJOR) {
        (void)say(err, 0, "the script speaks major 1");
        return NULL;
    }
    if (is("refuses")) {
        (void)say(err, 0, "not on a tuesday");
        return NULL;
    }
    if (is("refuses silently")) return NULL;
    if (host->log != NULL) host->log(M3_LOG_INFO, (const uint8_t *)hello, sizeof hello - 1);
    fill(&the_table.table);
    misbehave(&the_table.table);
    return &the_table.table;
}
