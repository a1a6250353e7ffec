/* Operations, and the order in which they run.
 *
 * A call that puts work on a stream makes an operation and returns. What it must follow (the stream's last one, an event) is a
 * list of operations; among those that wait for nothing any may be next, as on a real card. Which, the seed decides:
 *
 *   POLICY_SUBMITTED  the oldest (seed 0)
 *   POLICY_ANY        one at random
 *   POLICY_PRIORITY   of the stream with the most luck; luck changes now and then, and an unlucky stream starves
 *   POLICY_NEEDED     one at random, but only of those that the synchronisation needs: all others stay undone
 *
 * Operations run one after another, in the thread that synchronises, when the host has to see a result; with settings.eager
 * some run at the submission of others. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/softgpu/runtime/runtime.h"

static Op **window; /* operation id is window[id - first]; NULL: done */
static uint64_t first = 1;
static int window_count, window_room, pending;
static Op **ready;
static int ready_count, ready_room;
static uint32_t chain_length[CHAINS];
static int chains = 2, next_stream = 2;
static Clock host; /* what the host knows to be done */
static const Op *running;

Stream stream_thread = {.id = 1, .chain = 1, .blocking = true};
Stream stream_legacy = {.id = 0, .chain = 0, .blocking = true, .next = &stream_thread};

double clock_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* ---- Work ------------------------------------------------------------------------------------------------------------ */

Work *work_new(WorkKind kind, void (*run)(void *), void (*destroy)(void *), void *arg, const char *format, ...)
{
    Work *w = get(1, sizeof *w);
    *w = (Work){.kind = kind, .run = run, .destroy = destroy, .arg = arg, .users = 1};
    va_list list;
    va_start(list, format);
    vsnprintf(w->name, sizeof w->name, format, list);
    va_end(list);
    return w;
}

Work *work_keep(Work *w)
{
    w->users++;
    return w;
}

void work_drop(Work *w)
{
    if (!w || --w->users)
        return;
    if (w->destroy)
        w->destroy(w->arg);
    free(w);
}

/* ---- Operations ------------------------------------------------------------------------------------------------------ */

int chain_new(void)
{
    return chains++ % CHAINS;
}

void clock_join(Clock *a, const Clock *b)
{
    for (int i = 0; i < CHAINS; i++)
        if (b->seen[i] > a->seen[i])
            a->seen[i] = b->seen[i];
}

static Op *find(uint64_t id)
{
    return id >= first && id < first + (uint64_t)window_count ? window[id - first] : NULL;
}

/* Makes room at the end of the window; the part in front, where all is done, is given up from time to time. */
static void window_add(Op *op)
{
    if (window_count == window_room) {
        int done = 0;
        while (done < window_count && !window[done])
            done++;
        if (done > window_count / 2) {
            window_count -= done;
            first += (uint64_t)done;
            memmove(window, window + done, (size_t)window_count * sizeof *window);
        }
    }
    window = array_grow(window, window_count, &window_room, sizeof *window);
    window[window_count++] = op;
}

Op *op_new(Stream *stream, int chain, Work *work)
{
    Op *op = get(1, sizeof *op);
    *op = (Op){.work = work, .stream = stream, .chain = chain, .place = ++chain_length[chain], .clock = host};
    window_add(op);
    op->id = first + (uint64_t)window_count - 1;
    op->clock.seen[chain] = op->place;
    pending++;
    return op;
}

void op_follow(Op *op, const Point *point)
{
    clock_join(&op->clock, &point->clock);
    Op *earlier = find(point->op);
    if (!earlier)
        return;
    op->before = array_grow(op->before, op->before_count, &op->before_room, sizeof *op->before);
    op->before[op->before_count++] = earlier->id;
    earlier->after = array_grow(earlier->after, earlier->after_count, &earlier->after_room, sizeof(Op *));
    earlier->after[earlier->after_count++] = op;
    op->waits++;
}

static void ready_add(Op *op)
{
    ready = array_grow(ready, ready_count, &ready_room, sizeof *ready);
    ready[ready_count++] = op;
}

Point op_submit(Op *op)
{
    if (!op->waits)
        ready_add(op);
    return (Point){op->id, op->clock};
}

/* The legacy stream waits for all blocking streams, and they for it. */
void op_follow_stream(Op *op)
{
    Stream *s = op->stream;
    op_follow(op, &s->tail);
    for (const Stream *other = stream_legacy.next; s == &stream_legacy && other; other = other->next)
        if (other->blocking)
            op_follow(op, &other->tail);
    if (s->blocking && s != &stream_legacy)
        op_follow(op, &stream_legacy.tail);
}

cudaError_t stream_submit(Stream *stream, Work *work)
{
    if (stream->capture)
        return capture_add(stream, work);
    cudaError_t e = stream == &stream_legacy ? capture_forbids_legacy() : cudaSuccess;
    if (e) {
        work_drop(work);
        return e;
    }
    Op *op = op_new(stream, stream->chain, work);
    op_follow_stream(op);
    stream->tail = op_submit(op);
    queue_eager();
    return fault_get();
}

bool point_passed(const Point *point)
{
    return !find(point->op);
}

/* ---- Running --------------------------------------------------------------------------------------------------------- */

const Op *op_running(void)
{
    return running;
}

/* Does what the operation is for, unless one before it has failed, and sets free what waited for it. */
static void run(Op *op)
{
    if (settings.trace)
        say("stream %d runs operation %lu: %s", op->stream->id, op->id, op->work->name);
    running = op;
    host_function_runs(op->work->kind == WORK_HOST);
    if (op->work->run && !fault_get())
        op->work->run(op->work->arg);
    host_function_runs(false);
    running = NULL;
    window[op->id - first] = NULL;
    pending--;
    for (int i = 0; i < op->after_count; i++)
        if (!--op->after[i]->waits)
            ready_add(op->after[i]);
    work_drop(op->work);
    free(op->before);
    free(op->after);
    free(op);
}

/* True when a should run rather than b, the best of the n before it. */
static bool better(const Op *a, const Op *b, int n)
{
    switch (settings.policy) {
    case POLICY_SUBMITTED:
        return a->id < b->id;
    case POLICY_PRIORITY:
        if (a->stream->luck != b->stream->luck)
            return a->stream->luck > b->stream->luck;
        break;
    case POLICY_NEEDED:
        if (a->wanted != b->wanted)
            return a->wanted;
        break;
    case POLICY_ANY:
        break;
    }
    return random_next() % (uint64_t)(n + 1) == 0;
}

/* Runs one of the ready operations. */
static void step(void)
{
    if (settings.policy == POLICY_PRIORITY && random_next() % 8 == 0)
        for (Stream *s = &stream_legacy; s; s = s->next)
            s->luck = random_next();
    int best = 0;
    for (int i = 1; i < ready_count; i++)
        if (better(ready[i], ready[best], i))
            best = i;
    Op *op = ready[best];
    ready[best] = ready[--ready_count];
    run(op);
}

/* Marks the operation and all that it waits for, directly or not: they have lower numbers. */
static void want(Op *op)
{
    op->wanted = true;
    for (uint64_t id = op->id; id >= first; id--) {
        const Op *o = find(id);
        for (int i = 0; o && o->wanted && i < o->before_count; i++) {
            Op *earlier = find(o->before[i]);
            if (earlier)
                earlier->wanted = true;
        }
    }
}

void queue_run_until(const Point *point)
{
    if (running)
        return;
    if (settings.policy == POLICY_NEEDED && find(point->op))
        want(find(point->op));
    while (find(point->op))
        step();
    clock_join(&host, &point->clock);
}

void queue_run_all(void)
{
    while (pending && !running)
        step();
    memcpy(host.seen, chain_length, sizeof host.seen);
}

void queue_progress(void)
{
    if (!running && ready_count)
        step();
}

void queue_eager(void)
{
    if (!settings.eager || running)
        return;
    for (int n = settings.eager == 2 ? 1 + (int)(random_next() % 3) : (int)(random_next() % 2); n > 0; n--)
        queue_progress();
}

/* ---- The streams there are ------------------------------------------------------------------------------------------- */

Stream *stream_new(bool blocking, int priority)
{
    Stream *s = get(1, sizeof *s);
    *s = (Stream){.id = next_stream++, .chain = chain_new(), .blocking = blocking, .priority = priority, .luck = random_next()};
    s->next = stream_thread.next;
    stream_thread.next = s;
    return s;
}

cudaError_t stream_find(cudaStream_t handle, Stream **stream)
{
    *stream = !handle || handle == cudaStreamLegacy ? &stream_legacy : handle == cudaStreamPerThread ? &stream_thread : NULL;
    for (Stream *s = stream_thread.next; s && !*stream; s = s->next)
        if (s == (Stream *)handle && !s->destroyed)
            *stream = s;
    return *stream ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

void queue_reset(void)
{
    for (Stream *s = stream_thread.next, *next; s; s = next) {
        next = s->next;
        free(s->front);
        free(s);
    }
    stream_thread.next = NULL;
}
