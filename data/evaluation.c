#include "data/evaluation.h"

#include "data/order.h"

#include <inttypes.h>

bool evaluation_check(const EvaluationData *d, Error *e)
{
    if (d->batch_size < 1 || d->block_size < 1 || d->iters < 0)
        return error_usage(e,
                           "evaluation: batch_size %" PRId64 " and block_size %" PRId64 " must be at least 1, eval_iters %" PRId64
                           " at least 0",
                           d->batch_size, d->block_size, d->iters);
    if (d->stream->count < 2)
        return error_set(e, "%s: has %" PRId64 " token; an evaluation needs at least 2, so that one follows another",
                         token_stream_name(d->stream), d->stream->count);
    return true;
}

int64_t evaluation_batches(const EvaluationData *d)
{
    int64_t windows = d->documents ? d->documents->windows : divide_up(d->stream->count - 1, d->block_size);
    return d->iters > 0 ? d->iters : divide_up(windows, d->batch_size);
}

/* Row `row` of all rows of the evaluation. */
static Window row_window(const EvaluationData *d, RandomKey key, int64_t row)
{
    if (d->documents) {
        int64_t i = d->iters > 0 ? random_below(key, (uint64_t)row, d->documents->windows) : row;
        return i < d->documents->windows ? document_window(d->documents, i) : (Window){0, 0};
    }
    int64_t start = 0, starts = d->stream->count - d->block_size; /* a full window can start at 0 .. starts-1 */
    if (d->iters > 0)
        start = starts > 1 ? random_below(key, (uint64_t)row, starts) : 0;
    else if (__builtin_mul_overflow(row, d->block_size, &start))
        start = d->stream->count;
    int64_t left = d->stream->count - 1 - start; /* targets: T, fewer at the end, 0 beyond it */
    return (Window){start, left < 0 ? 0 : left < d->block_size ? left : d->block_size};
}

bool evaluation_batch(const EvaluationData *d, uint64_t number, int64_t index, int32_t *tokens, int32_t *targets,
                      int64_t *counted, Error *e)
{
    RandomKey key = random_key(d->seed, RANDOM_EVALUATION, 0, number, 0);
    *counted = 0;
    for (int64_t b = 0; b < d->batch_size; b++) {
        Window w = row_window(d, key, index * d->batch_size + b);
        if (!window_read(d->stream, w, d->block_size, d->vocab_size, tokens + b * d->block_size, targets + b * d->block_size,
                         counted, e))
            return false;
    }
    return true;
}
