/* What if: the same run in other precisions, recompute levels and micro-batches, as a table of bytes and FLOPs. */
#ifndef TALLY_MODEL_WHAT_IF_H
#define TALLY_MODEL_WHAT_IF_H

#include "model/fit.h"

#include <jansson.h>

enum { WHAT_IF_PRECISIONS = 4, WHAT_IF_BATCHES = 6 };

typedef struct WhatIf {
    int n_precisions, n_batches;
    /* The precisions fp32, bf16, fp16, and the run's own where it is none of these; the micro-batches 1, and a quarter to four
     * times the run's, ascending. Level `block` keeps the input of every K-th block as the run has it. */
    Setting setting[WHAT_IF_PRECISIONS][RECOMPUTE_COUNT][WHAT_IF_BATCHES];
} WhatIf;

/* Plans every cell for a planned training run. The step has as many sequences as the run's, or the micro-batch's if that is more.
 */
void what_if_make(WhatIf *w, const Model *m, int64_t accumulation, const Room *room);

/* Rows of precision and level, a column for each micro-batch: MiB, and a tick where that fits; FLOPs relative to `none`. */
void what_if_print(FILE *out, const WhatIf *w, const Room *room);

/* [{"precision", "recompute", "recompute_every", "batch_size", "bytes", "flops_per_token", "flops_relative", "fits"}, ...]; bytes
 * is null where there can be no such run. A new reference, NULL when out of memory. */
json_t *what_if_json(const WhatIf *w, const Model *m, const Room *room);

#endif
