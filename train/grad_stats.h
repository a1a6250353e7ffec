/* --grad-stats: what becomes of gradients in the type that holds them: the share that is 0, that is subnormal (and has lost
 * digits), and that is not finite. In FP16 the first grow when the loss scale is too small, the last when it is too large. */
#ifndef TALLY_TRAIN_GRAD_STATS_H
#define TALLY_TRAIN_GRAD_STATS_H

#include "model/model.h"

#include <jansson.h>

typedef struct GradCounts {
    int64_t elements, zero, subnormal, saturated;
} GradCounts;

typedef struct GradStats {
    Model *model;
    GradCounts *dx; /* [L]: of the gradient of each block's input, over the micro-batches of a step */
    float *buffer;
    json_t *list; /* the latest statistics, or NULL */
} GradStats;

/* False after recording an error (no memory). grad_stats_close must follow in any case. */
bool grad_stats_open(GradStats *s, Model *m, Error *e);
void grad_stats_close(GradStats *s);

/* Before a step: from now on the model's backward passes are counted. */
void grad_stats_begin(GradStats *s);

/* After it: ends the counting, counts the gradients of the weights, which have to be there still, and makes s->list:
 *   [{"layer": 0, "dx": {"zero": share, "subnormal": share, "saturated": share}, "weights": {...}}, ...]
 * of the blocks, and at the end with layer -1, without dx, all other weights. */
void grad_stats_end(GradStats *s);

#endif
