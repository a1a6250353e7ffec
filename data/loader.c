#include "data/loader.h"

#include "data/order.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* One optimizer step, as the thread prepares it. */
typedef struct Buffer {
    int32_t *tokens, *targets; /* [accumulate, B, T] each                     */
    int64_t micro_batches, counted;
    int64_t position; /* after this step; unchanged after an error   */
    Error error;
    bool full; /* ready for, or in use by, loader_next's caller; else the thread's. Under the lock */
} Buffer;

struct Loader {
    const TokenStream *stream;
    LoaderConfig config;
    WindowOrder order;
    int64_t step_windows; /* accumulate * world * B                            */
    int64_t end;          /* windows in all epochs; INT64_MAX: no end          */
    int64_t position;     /* windows in the steps handed out                   */
    Buffer buffer[3];     /* step i is in buffer i % buffers                   */
    uint64_t buffers;     /* of which there are: 2 + kept                      */
    uint64_t taken;       /* steps handed out since the thread was started     */
    pthread_t thread;     /* when running                                      */
    bool running;
    bool stop; /* asks the thread to return. Under the lock */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* some `full`, or `stop` */
};

/* ---- The thread ---- */

/* Fills a buffer with the step that begins at `position`: its windows in order, rank by rank within a micro-batch, of which this
 * rank reads its own. */
static bool buffer_fill(const Loader *l, Buffer *b, int64_t position)
{
    const LoaderConfig *c = &l->config;
    int64_t left = l->end - position, windows = left < l->step_windows ? left : l->step_windows;
    b->micro_batches = divide_up(windows, c->world * c->batch_size);
    b->position = position + windows;
    b->counted = 0;
    for (int64_t i = 0; i < l->step_windows; i++) {
        Window w = i < windows ? window_order_window(&l->order, position + i) : (Window){0, 0};
        int64_t micro = i / (c->world * c->batch_size), row = micro * c->batch_size + i % c->batch_size;
        bool mine = i / c->batch_size % c->world == c->rank;
        if (!(mine ? window_read(l->stream, w, c->block_size, c->vocab_size, b->tokens + row * c->block_size,
                                 b->targets + row * c->block_size, &b->counted, &b->error)
                   : window_count(l->stream, w, c->vocab_size, &b->counted, &b->error)))
            return false;
    }
    usleep((useconds_t)(1e6 * c->delay));
    return true;
}

static void *loader_thread(void *argument)
{
    Loader *l = argument;
    int64_t position = l->position;
    for (uint64_t step = 0;; step++) {
        Buffer *b = &l->buffer[step % l->buffers];
        pthread_mutex_lock(&l->lock);
        while (b->full && !l->stop)
            pthread_cond_wait(&l->changed, &l->lock);
        bool stop = l->stop;
        pthread_mutex_unlock(&l->lock);
        if (stop)
            return NULL;
        b->error = (Error){0};
        if (!buffer_fill(l, b, position)) {
            b->micro_batches = b->counted = 0;
            b->position = position;
        }
        position = b->position;
        pthread_mutex_lock(&l->lock);
        b->full = true;
        pthread_cond_broadcast(&l->changed);
        pthread_mutex_unlock(&l->lock);
    }
}

/* Starts the thread with all signals blocked, so that the main thread is the one that handles them. */
static bool loader_start(Loader *l, Error *e)
{
    sigset_t all, before;
    l->stop = l->buffer[0].full = l->buffer[1].full = l->buffer[2].full = false;
    l->taken = 0;
    sigfillset(&all);
    sigdelset(&all, SIGBUS); /* file_maps_guard */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int cause = pthread_create(&l->thread, NULL, loader_thread, l);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    l->running = cause == 0;
    return l->running || error_set(e, "cannot start the thread that reads ahead: %s", strerror(cause));
}

static void loader_stop(Loader *l)
{
    if (!l->running)
        return;
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->thread, NULL);
    l->running = false;
}

/* ---- For the caller ---- */

bool loader_next(Loader *l, StepBatch *batch, Error *e)
{
    if (!l->running && !loader_start(l, e))
        return false;
    Buffer *b = &l->buffer[l->taken % l->buffers], *oldest = &l->buffer[(l->taken + 1) % l->buffers];
    pthread_mutex_lock(&l->lock);
    if (l->taken >= l->buffers - 1) {
        oldest->full = false;
        pthread_cond_broadcast(&l->changed);
    }
    while (!b->full)
        pthread_cond_wait(&l->changed, &l->lock);
    pthread_mutex_unlock(&l->lock);
    l->taken++;
    l->position = b->position;
    *batch = (StepBatch){b->tokens, b->targets, b->micro_batches, b->counted};
    return !b->error.set || error_set(e, "%s", b->error.text);
}

bool loader_seek(Loader *l, int64_t position, Error *e)
{
    if (position < 0 || position > l->end)
        return error_set(
            e, "the position in the data, %" PRId64 " windows, is outside 0 .. %" PRId64 " (%" PRId64 " epochs of %" PRId64 ")",
            position, l->end, l->config.epochs, l->order.windows);
    loader_stop(l);
    l->position = position;
    return true;
}

static bool config_check(const LoaderConfig *c, Error *e)
{
    long rows, windows, elements;
    if (c->batch_size < 1 || c->block_size < 1 || c->accumulate < 1)
        return error_usage(e,
                           "batch_size %" PRId64 ", block_size %" PRId64 " and gradient_accumulation_steps %" PRId64
                           " must each be at least 1",
                           c->batch_size, c->block_size, c->accumulate);
    if (c->world < 1 || c->rank < 0 || c->rank >= c->world || c->epochs < 0 || c->vocab_size < 1)
        return error_usage(e, "rank %" PRId64 " of %" PRId64 ", %" PRId64 " epochs or a vocabulary of %" PRId64 " makes no sense",
                           c->rank, c->world, c->epochs, c->vocab_size);
    if (!product_fits(c->accumulate, c->batch_size, &rows) || !product_fits(rows, c->world, &windows) ||
        !product_fits(windows, c->block_size, &elements) || elements > INT64_MAX / 16)
        return error_usage(e, "a step of %" PRId64 " x %" PRId64 " rows of %" PRId64 " tokens is too large to count",
                           c->accumulate, c->batch_size, c->block_size);
    return true;
}

static bool buffer_get(Buffer *b, const LoaderConfig *c, Error *e)
{
    size_t elements = (size_t)(c->accumulate * c->batch_size * c->block_size);
    size_t bytes = elements * sizeof *b->tokens;
    b->tokens = c->memory_take(bytes, "the tokens of a step", e);
    b->targets = b->tokens ? c->memory_take(bytes, "the targets of a step", e) : NULL;
    return b->tokens && b->targets;
}

Loader *loader_create(const TokenStream *stream, const LoaderConfig *config, Error *e)
{
    if (!config_check(config, e))
        return NULL;
    Loader *l = memory_get(e, 1, sizeof *l, "the loader");
    if (!l)
        return NULL;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->changed, NULL);
    l->stream = stream;
    l->config = *config;
    l->buffers = 2 + (uint64_t)config->kept;
    l->step_windows = config->accumulate * config->world * config->batch_size;
    bool good = window_order_init(&l->order, stream->count, config->block_size, config->seed, config->documents, e) ||
                error_prefix(e, "%s", token_stream_name(stream));
    l->end = INT64_MAX;
    if (good && config->epochs > 0 && __builtin_mul_overflow(config->epochs, l->order.windows, &l->end))
        good = error_usage(e, "%" PRId64 " epochs are too many to count", config->epochs);
    for (uint64_t i = 0; good && i < l->buffers; i++)
        good = buffer_get(&l->buffer[i], &l->config, e);
    if (good)
        return l;
    loader_destroy(l);
    return NULL;
}

void loader_destroy(Loader *l)
{
    if (!l)
        return;
    loader_stop(l);
    for (uint64_t i = 0; i < l->buffers; i++) {
        l->config.memory_give(l->buffer[i].tokens);
        l->config.memory_give(l->buffer[i].targets);
    }
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

int64_t loader_position(const Loader *l)
{
    return l->position;
}

int64_t loader_epoch_windows(const Loader *l)
{
    return l->order.windows;
}

int64_t loader_steps_left(const Loader *l)
{
    return l->end == INT64_MAX ? INT64_MAX : divide_up(l->end - l->position, l->step_windows);
}
