/* The windows that an evaluation reads: K random batches, or the whole split in order.
 *
 *   random    K batches of B windows that start anywhere, drawn from (seed, number of the evaluation): another set each time
 *   whole     windows at stride T from token 0, all n - 1 targets exactly once: the last window is shorter when T does not divide
 *             that number
 *
 * Where windows hold whole documents (data/documents.h) the random ones are some of those, and the whole is all of them.
 *
 * A batch is a pure function of its index, so ranks share the work by taking the indices rank, rank + world, ...: the windows,
 * and the sum of losses over them, are the same for any number of ranks. Rows and targets that do not exist have targets -1 and
 * tokens 0. */
#ifndef TALLY_DATA_EVALUATION_H
#define TALLY_DATA_EVALUATION_H

#include "base/error.h"
#include "data/documents.h"

#include <stdint.h>

typedef struct EvaluationData {
    const TokenStream *stream;
    int64_t vocab_size; /* V: every id must be below                          */
    int64_t batch_size; /* B                                                  */
    int64_t block_size; /* T; a shorter split gives windows that are not full */
    int64_t iters;      /* K random batches; 0: the whole split               */
    uint64_t seed;
    const DocumentWindows *documents; /* of the stream and T; NULL: windows anywhere */
} EvaluationData;

/* Checks the sizes and that the split has a target at all (2 tokens). false after an error. To be called before the others. */
bool evaluation_check(const EvaluationData *d, Error *e);

/* Number of batches: K, or those of the whole split. */
int64_t evaluation_batches(const EvaluationData *d);

/* Batch `index`, 0 <= index < evaluation_batches, of evaluation `number` (0, 1, 2, ...; the whole split is the same for every
 * number), in the caller's tokens [B, T] and targets [B, T]. *counted = targets that are not -1. false after an error. */
bool evaluation_batch(const EvaluationData *d, uint64_t number, int64_t index, int32_t *tokens, int32_t *targets,
                      int64_t *counted, Error *e);

#endif
