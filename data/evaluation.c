#include "data/evaluation.h"

#include "data/order.h"
#include "data/window.h"

#include <inttypes.h>

/* Targets in a window of the whole split that starts at token `start`: T, fewer at the end, 0 beyond it. */
static int64_t targets_from(const EvaluationData *d, int64_t start)
{
    int64_t left = d->stream->count - 1 - start;
    return left < 0 ? 0 : left < d->block_size ? left : d->block_size;
}

static int64_t divide_up(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

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

/* First token of row `row` of all rows of the evaluation, and in *count its targets. */
static int64_t row_start(const EvaluationData *d, RandomKey key, int64_t row, int64_t *count)
{
    if (d->documents) {
        int64_t window = d->iters > 0 ? random_below(key, (uint64_t)row, d->documents->windows) : row;
        bool exists = window < d->documents->windows;
        *count = exists ? d->documents->cut[window + 1] - d->documents->cut[window] : 0;
        return exists ? d->documents->cut[window] : 0;
    }
    int64_t start = 0, starts = d->stream->count - d->block_size; /* a full window can start at 0 .. starts-1 */
    if (d->iters > 0)
        start = starts > 1 ? random_below(key, (uint64_t)row, starts) : 0;
    else if (__builtin_mul_overflow(row, d->block_size, &start))
        start = d->stream->count;
    *count = targets_from(d, start);
    return start;
}

bool evaluation_batch(const EvaluationData *d, uint64_t number, int64_t index, int32_t *tokens, int32_t *targets,
                      int64_t *counted, Error *e)
{
    RandomKey key = random_key(d->seed, RANDOM_EVALUATION, 0, number, 0);
    *counted = 0;
    for (int64_t b = 0; b < d->batch_size; b++) {
        int64_t count, start = row_start(d, key, index * d->batch_size + b, &count);
        if (!window_read(d->stream, start, count, d->block_size, d->vocab_size, tokens + b * d->block_size,
                         targets + b * d->block_size, counted, e))
            return false;
    }
    return true;
}
