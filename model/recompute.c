#include "model/recompute.h"
#include "model/model.h"

#include <string.h>

static const char *const names[RECOMPUTE_COUNT] = {"none", "norm", "attention", "block"};

const char *recompute_name(Recompute level)
{
    return names[level];
}

bool recompute_parse(const char *text, Recompute *level)
{
    for (int i = 0; i < RECOMPUTE_COUNT; i++) {
        if (strcmp(text, names[i]) == 0) {
            *level = (Recompute)i;
            return true;
        }
    }
    return false;
}

#define ROW(tensor, level)                                                                                                       \
    {                                                                                                                            \
        offsetof(BlockActs, tensor), #tensor, level                                                                              \
    }

/* The branches are dropped even at `none`: the sum that they go into is kept, and no gradient needs them. */
static const ActRow table[] = {
    ROW(x_in, RECOMPUTE_COUNT),       ROW(stat_1, RECOMPUTE_BLOCK),  ROW(ln_1, RECOMPUTE_NORM),
    ROW(qkv, RECOMPUTE_ATTENTION),    ROW(att, RECOMPUTE_ATTENTION), ROW(lse, RECOMPUTE_ATTENTION),
    ROW(x_mid, RECOMPUTE_BLOCK),      ROW(stat_2, RECOMPUTE_BLOCK),  ROW(ln_2, RECOMPUTE_NORM),
    ROW(fc, RECOMPUTE_BLOCK),         ROW(act, RECOMPUTE_NORM),      ROW(att_branch, RECOMPUTE_BLOCK),
    ROW(mlp_branch, RECOMPUTE_BLOCK),
};

const ActRow *recompute_table(int *n)
{
    *n = sizeof table / sizeof *table;
    return table;
}

bool recompute_drops(const ActRow *row, Recompute level, long every, long layer)
{
    if (row->offset == offsetof(BlockActs, x_in))
        return level == RECOMPUTE_BLOCK && layer % every != 0;
    return level >= row->dropped_at;
}
