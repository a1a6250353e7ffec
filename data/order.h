/* Which tokens the training windows are, and in which order they come: arithmetic only, no memory, the same everywhere.
 *
 * n tokens hold n - 1 targets (each token but the first follows one). A window is up to T inputs and, shifted by one, their
 * targets. An epoch has W = ceil((n - 1) / T) windows, and no target is in two of them:
 *
 *     | first |   T   |   T   |  ...  |   T   | last |            first is drawn uniformly from 1 .. T
 *
 * The first holds `first` targets, the last what is left, at most T: so an epoch leaves out fewer than T targets, at the end,
 * and none where first = T. Since the cuts fall elsewhere in every epoch, a target is met with contexts of all lengths.
 *
 * The order within an epoch is a permutation of 0 .. W-1 computed element by element (a Feistel network: see order.c), keyed with
 * seed and epoch. Windows are numbered g = 0, 1, 2, ... over all epochs: g is window permutation(g mod W) of epoch floor(g / W).
 * Nothing depends on batch size or ranks: who asks for g gets the same window.
 *
 * With whole documents (data/documents.h) the windows are those of an epoch instead, the same in each; only their order differs.
 */
#ifndef TALLY_DATA_ORDER_H
#define TALLY_DATA_ORDER_H

#include "base/error.h"
#include "base/philox.h"
#include "data/documents.h"
#include "data/window.h"

#include <stdint.h>

typedef struct WindowOrder {
    int64_t block_size; /* T                            */
    int64_t windows;    /* W, per epoch, at least 1     */
    int64_t targets;    /* n - 1                        */
    uint64_t seed;
    const DocumentWindows *documents; /* NULL: windows are cut anywhere */
} WindowOrder;

/* a / b, rounded up: how many windows of b there are in a targets, say. a >= 0, b >= 1. */
static inline int64_t divide_up(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

/* A number in 0 .. bound-1, bound >= 1: 64 random bits, element `index` of the stream of key k, modulo bound. (How far that is
 * from uniform, bound / 2^64, could not be noticed.) */
int64_t random_below(RandomKey k, uint64_t index, int64_t bound);

/* The order of n tokens in windows of T = block_size >= 1, or in those of `documents`, when not NULL. false after an error that
 * says how many tokens are needed, when n < T + 1. */
bool window_order_init(WindowOrder *o, int64_t n, int64_t block_size, uint64_t seed, const DocumentWindows *documents, Error *e);

/* Window g >= 0; all its tokens exist. */
Window window_order_window(const WindowOrder *o, int64_t g);

#endif
