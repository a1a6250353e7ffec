/* Recomputation (activation checkpointing; Chen et al., arXiv 1604.06174): which activations of a block the forward keeps for the
 * backward, and which the backward makes again. One table says it; the plan and the backward pass read it, nothing else knows. */
#ifndef TALLY_MODEL_RECOMPUTE_H
#define TALLY_MODEL_RECOMPUTE_H

#include "base/error.h"

#include <stddef.h>

/* Kept per row and layer, in elements: 16C, 10C, 6C, C. */
typedef enum Recompute { RECOMPUTE_NONE, RECOMPUTE_NORM, RECOMPUTE_ATTENTION, RECOMPUTE_BLOCK, RECOMPUTE_COUNT } Recompute;

/* "none", "norm", "attention", "block". */
const char *recompute_name(Recompute level);
bool recompute_parse(const char *text, Recompute *level);

/* A tensor of BlockActs (by its offset there): its name, and the lowest level at which it is not kept. */
typedef struct ActRow {
    size_t offset;
    const char *name;
    Recompute dropped_at; /* RECOMPUTE_COUNT: never, but see recompute_drops */
} ActRow;

/* The table, *n rows. */
const ActRow *recompute_table(int *n);

/* Does layer l lose this tensor between forward and backward? At level `block` only every `every`-th block's input is kept. */
bool recompute_drops(const ActRow *row, Recompute level, long every, long layer);

#endif
