/* --grad-stats: what becomes of gradients in the type that holds them: the share that is 0, that is subnormal (and has lost
 * digits), and that is not finite. In FP16 the first two grow when the loss scale is too small, the last when it is too large. */
#ifndef TALLY_TRAIN_GRAD_STATS_H
#define TALLY_TRAIN_GRAD_STATS_H

#include "model/model.h"

#include <jansson.h>
#include <stdio.h>

typedef struct GradCounts {
    int64_t elements, zero, subnormal, saturated;
} GradCounts;

/* Of what a layer's gradients are counted. */
typedef enum GradKind {
    GRAD_DX,      /* the gradient of the block's input: of the residual stream                             */
    GRAD_ACT,     /* the last gradient of an activation inside the block: of its first norm's output       */
    GRAD_WEIGHTS, /* the weights' gradients, summed over the micro-batches                                 */
    GRAD_KINDS
} GradKind;

typedef struct GradStats {
    Model *model;
    GradCounts (*layer)[GRAD_KINDS]; /* [L + 1]: of the blocks over the micro-batches of a step; at the end all other weights */
    float *buffer;
} GradStats;

/* False after recording an error (no memory). grad_stats_close must follow in any case. */
bool grad_stats_open(GradStats *s, Model *m, Error *e);
void grad_stats_close(GradStats *s);

/* Before a step: from now on the model's backward passes are counted. After it: ends that, and counts the gradients of the
 * weights, which have to be there still. */
void grad_stats_begin(GradStats *s);
void grad_stats_end(GradStats *s);

/* What was counted, a new reference:
 *   [{"layer": 0, "dx": {"zero": share, "subnormal": share, "saturated": share}, "act": {...}, "weights": {...}}, ...]
 * of the blocks, and at the end with layer -1, of "weights" alone, those outside the blocks. */
json_t *grad_stats_json(const GradStats *s);

/* The same as a table for people. */
void grad_stats_print(FILE *out, const GradStats *s);

#endif
