/* The loader hands out the training data, one optimizer step at a time.
 *
 * Windows of T + 1 tokens (fewer at the ends of an epoch) are numbered g = 0, 1, 2, ... over all epochs (data/order.h). An
 * optimizer step takes the next accumulate * world * B of them; inside the step, micro-batch m of rank k is the rows (m * world +
 * k) * B .. + B - 1. So the windows of a step, and therefore its gradient, depend neither on the number of ranks nor on how they
 * are cut into micro-batches, as long as the product stays; and where training stands is one number, the windows consumed.
 *
 * A thread of the loader's own fills one of two buffers (or three, see `kept`) while the step runs on the other. The caller sees
 * nothing of that: position and results are those of a loader without a thread. */
#ifndef TALLY_DATA_LOADER_H
#define TALLY_DATA_LOADER_H

#include "base/error.h"
#include "data/documents.h"

#include <stdint.h>

typedef struct LoaderConfig {
    int64_t vocab_size;               /* V: every id must be below                                              */
    int64_t batch_size;               /* B: rows of a micro-batch                                               */
    int64_t block_size;               /* T: inputs of a row                                                     */
    int64_t accumulate;               /* micro-batches that each rank adds up for one optimizer step            */
    int64_t rank, world;              /* this rank, 0 .. world-1, and the number of ranks                       */
    int64_t epochs;                   /* the data ends after that many; 0: never                                */
    uint64_t seed;                    /* decides the order                                                      */
    const DocumentWindows *documents; /* windows of whole documents, of the stream and T; NULL: anywhere. To outlive the loader */
    double delay;                     /* seconds by which each step's reading is longer: a slow disk, for tests                 */
    int64_t kept;                     /* 1: a batch stays good for one loader_next more                         */

    /* Zeroed memory for the batches, NULL after recording an error, and its end: the device's, which may copy from it while the
     * host does something else. */
    void *(*memory_take)(size_t bytes, const char *what, Error *e);
    void (*memory_give)(void *p);
} LoaderConfig;

/* What one rank trains on in one optimizer step. Belongs to the loader and is good until the next loader_next (with `kept`: the
 * one after), loader_seek or loader_destroy. */
typedef struct StepBatch {
    const int32_t *tokens;  /* [accumulate, B, T] */
    const int32_t *targets; /* [accumulate, B, T]; -1: doesn't count (beyond the end of a short window; rows that do not exist) */
    int64_t micro_batches;  /* how many of them some rank has rows in: the same number on all ranks. Fewer than accumulate only in
                               the last step of a limited number of epochs; 0: the data has ended */
    int64_t counted;        /* targets that count in the whole step: all micro-batches of all ranks */
} StepBatch;

typedef struct Loader Loader;

/* A loader at position 0 of a stream, which must outlive it. NULL after an error: impossible settings, fewer than T + 1 tokens
 * (it says how many are needed), no memory. Reads nothing yet. */
Loader *loader_create(const TokenStream *stream, const LoaderConfig *config, Error *e);

/* Stops the thread and frees everything. NULL is fine. */
void loader_destroy(Loader *l);

/* The next optimizer step. false after an error, which names file and offset of an id that is outside the vocabulary; the
 * position has then not moved, and the next call fails alike. For one thread at a time. */
bool loader_next(Loader *l, StepBatch *batch, Error *e);

/* Windows consumed by the steps handed out so far, over all ranks. Saved in a checkpoint, it continues there exactly, given the
 * same seed, T and tokens; batch_size, accumulate and world may differ. */
int64_t loader_position(const Loader *l);

/* Continues from `position`: the next step begins with window number `position`. false after an error: negative, or beyond the
 * last epoch. */
bool loader_seek(Loader *l, int64_t position, Error *e);

/* Windows of one epoch, W. */
int64_t loader_epoch_windows(const Loader *l);

/* Optimizer steps that loader_next will still hand out; INT64_MAX without a limit on epochs. */
int64_t loader_steps_left(const Loader *l);

#endif
