/* Copies and fills. Pointers are checked against the kind of copy at the call, and again when it runs, since memory may have
 * been freed by then. As with the real runtime, what waits for what depends on where the host's side lies:
 *
 *   from pageable memory   the bytes are taken during the call: the source may change afterwards
 *   to pageable memory     the call waits for the copy
 *   pinned memory          is read and written when the copy runs, so the program has to wait
 *   device to device       nobody waits, cudaMemcpy included */
#include <stdlib.h>
#include <string.h>

#include "tests/softgpu/runtime/runtime.h"

typedef struct Copy {
    void *to;
    const void *from;
    size_t bytes;
    const char *function;
    unsigned char staged[]; /* a pageable source */
} Copy;

/* True when bytes of this process can be read and written at p without asking: memory that this library does not know. */
static bool is_pageable(const void *p)
{
    return !memory_is_device(p) && !memory_find(p);
}

static void out_of_bounds(const char *function, const void *p, size_t bytes)
{
    char text[256];
    memory_describe(p, text, sizeof text);
    device_fault(cudaErrorIllegalAddress, "%s: %zu bytes at %p: %s", function, bytes, p, text);
}

static void copy_run(void *arg)
{
    const Copy *c = arg;
    const void *from = c->from ? memory_host(c->from) : c->staged;
    if (c->from && !is_pageable(c->from) && !memory_holds(c->from, c->bytes)) {
        out_of_bounds(c->function, c->from, c->bytes);
        return;
    }
    if (!is_pageable(c->to) && !memory_holds(c->to, c->bytes)) {
        out_of_bounds(c->function, c->to, c->bytes);
        return;
    }
    memmove(memory_host(c->to), from, c->bytes);
    vm_memory_written(machine(), (uint64_t)c->to, c->bytes);
    race_touch(op_running(), c->from, c->bytes, false);
    race_touch(op_running(), c->to, c->bytes, true);
}

/* One side of a copy, at the call: on the card when it should be, and within an allocation. */
static cudaError_t side_check(const void *p, size_t bytes, bool card, const char *function)
{
    bool wrong_place = card ? is_pageable(p) : memory_is_device(p), outside = !is_pageable(p) && !memory_holds(p, bytes);
    if (!wrong_place && !outside)
        return cudaSuccess;
    char text[256];
    memory_describe(p, text, sizeof text);
    say("%s: %zu bytes at %p, which should be %s memory: %s", function, bytes, p, card ? "device" : "host", text);
    return cudaErrorInvalidValue;
}

static cudaError_t copy_check(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, const char *function)
{
    if ((unsigned)kind > cudaMemcpyDefault)
        return cudaErrorInvalidMemcpyDirection;
    if (!to || !from)
        return cudaErrorInvalidValue;
    bool to_card =
        kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice || (kind == cudaMemcpyDefault && memory_is_device(to));
    bool from_card = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice ||
                     (kind == cudaMemcpyDefault && memory_is_device(from));
    cudaError_t e = side_check(to, bytes, to_card, function);
    return e ? e : side_check(from, bytes, from_card, function);
}

/* waits: the call is cudaMemcpy rather than cudaMemcpyAsync. */
static cudaError_t copy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, Stream *s, bool waits,
                        const char *function)
{
    if (!bytes)
        return cudaSuccess;
    cudaError_t e = copy_check(to, from, bytes, kind, function);
    if (e)
        return e;
    bool staged = is_pageable(from) && !s->capture;
    Copy *c = get(1, sizeof *c + (staged ? bytes : 0));
    *c = (Copy){to, staged ? NULL : from, bytes, function};
    if (staged)
        memcpy(c->staged, from, bytes);
    bool both_on_card = memory_is_device(to) && memory_is_device(from), captured = s->capture;
    e = stream_submit(s, work_new(WORK_COPY, copy_run, free, c, "%s of %zu bytes", function, bytes));
    if (!e && !captured && ((waits && !both_on_card) || is_pageable(to))) {
        queue_run_until(&s->tail);
        e = fault_get();
    }
    return e;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    cudaError_t e = enter();
    if (!e)
        e = copy(to, from, bytes, kind, &stream_legacy, true, "cudaMemcpy");
    return leave(e);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    Stream *s;
    cudaError_t e = enter();
    if (!e)
        e = stream_find(stream, &s);
    if (!e)
        e = copy(to, from, bytes, kind, s, false, "cudaMemcpyAsync");
    return leave(e);
}

/* rows of `width` bytes, pitch bytes apart. */
static cudaError_t copy_rows(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t rows,
                             enum cudaMemcpyKind kind, Stream *s, bool waits)
{
    cudaError_t e = width > to_pitch || width > from_pitch ? cudaErrorInvalidPitchValue : cudaSuccess;
    for (size_t i = 0; !e && i < rows; i++)
        e = copy((char *)to + i * to_pitch, (const char *)from + i * from_pitch, width, kind, s, waits, "cudaMemcpy2D");
    return e;
}

cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t rows,
                         enum cudaMemcpyKind kind)
{
    cudaError_t e = enter();
    if (!e)
        e = copy_rows(to, to_pitch, from, from_pitch, width, rows, kind, &stream_legacy, true);
    return leave(e);
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t rows,
                              enum cudaMemcpyKind kind, cudaStream_t stream)
{
    Stream *s;
    cudaError_t e = enter();
    if (!e)
        e = stream_find(stream, &s);
    if (!e)
        e = copy_rows(to, to_pitch, from, from_pitch, width, rows, kind, s, false);
    return leave(e);
}

/* The address of bytes [offset, offset + bytes) of a variable. */
static cudaError_t variable_part(const void *symbol, size_t offset, size_t bytes, void **p)
{
    uint64_t address, size;
    cudaError_t e = variable_find(symbol, &address, &size);
    if (!e && (offset > size || bytes > size - offset))
        e = cudaErrorInvalidValue;
    if (!e)
        *p = (char *)address + offset;
    return e;
}

cudaError_t cudaMemcpyToSymbolAsync(const void *symbol, const void *from, size_t bytes, size_t offset, enum cudaMemcpyKind kind,
                                    cudaStream_t stream)
{
    Stream *s;
    void *to;
    cudaError_t e = enter();
    if (!e)
        e = stream_find(stream, &s);
    if (!e)
        e = variable_part(symbol, offset, bytes, &to);
    if (!e)
        e = copy(to, from, bytes, kind, s, false, "cudaMemcpyToSymbolAsync");
    return leave(e);
}

cudaError_t cudaMemcpyFromSymbolAsync(void *to, const void *symbol, size_t bytes, size_t offset, enum cudaMemcpyKind kind,
                                      cudaStream_t stream)
{
    Stream *s;
    void *from;
    cudaError_t e = enter();
    if (!e)
        e = stream_find(stream, &s);
    if (!e)
        e = variable_part(symbol, offset, bytes, &from);
    if (!e)
        e = copy(to, from, bytes, kind, s, false, "cudaMemcpyFromSymbolAsync");
    return leave(e);
}

cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *from, size_t bytes, size_t offset, enum cudaMemcpyKind kind)
{
    void *to;
    cudaError_t e = enter();
    if (!e)
        e = variable_part(symbol, offset, bytes, &to);
    if (!e)
        e = copy(to, from, bytes, kind, &stream_legacy, true, "cudaMemcpyToSymbol");
    return leave(e);
}

cudaError_t cudaMemcpyFromSymbol(void *to, const void *symbol, size_t bytes, size_t offset, enum cudaMemcpyKind kind)
{
    void *from;
    cudaError_t e = enter();
    if (!e)
        e = variable_part(symbol, offset, bytes, &from);
    if (!e)
        e = copy(to, from, bytes, kind, &stream_legacy, true, "cudaMemcpyFromSymbol");
    return leave(e);
}

/* ---- Fills ----------------------------------------------------------------------------------------------------------- */

typedef struct Fill {
    void *to;
    int value;
    size_t bytes;
} Fill;

static void fill_run(void *arg)
{
    const Fill *f = arg;
    if (!memory_holds(f->to, f->bytes)) {
        out_of_bounds("cudaMemset", f->to, f->bytes);
        return;
    }
    memset(memory_host(f->to), f->value, f->bytes);
    vm_memory_written(machine(), (uint64_t)f->to, f->bytes);
    race_touch(op_running(), f->to, f->bytes, true);
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    Stream *s;
    cudaError_t e = enter();
    if (!e)
        e = stream_find(stream, &s);
    if (!e && bytes)
        e = to ? side_check(to, bytes, true, "cudaMemset") : cudaErrorInvalidValue;
    if (!e && bytes) {
        Fill *f = get(1, sizeof *f);
        *f = (Fill){to, value, bytes};
        e = stream_submit(s, work_new(WORK_FILL, fill_run, free, f, "cudaMemset of %zu bytes", bytes));
    }
    return leave(e);
}

cudaError_t cudaMemset(void *to, int value, size_t bytes)
{
    return cudaMemsetAsync(to, value, bytes, cudaStreamLegacy);
}
