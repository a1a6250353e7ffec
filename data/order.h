/* Which tokens the training windows are, and in which order they come: arithmetic only, no memory, the same everywhere.
 *
 * n tokens hold n - 1 targets (each token but the first follows one). A window is T inputs and, shifted by one, their T targets,
 * hence T + 1 tokens; windows of an epoch lie at stride T, so that no target is in two. There are W = floor((n - 1) / T) of them,
 * and they leave r = (n - 1) mod T targets over. Each epoch therefore starts at an offset drawn uniformly from 0 .. r: at most r
 * <= T - 1 targets go unused in an epoch, and every target is used in some.
 *
 * The order within an epoch is a permutation of 0 .. W-1 computed element by element (a Feistel network: see order.c), keyed with
 * seed and epoch. Windows are numbered g = 0, 1, 2, ... over all epochs: g is window permutation(g mod W) of epoch floor(g / W).
 * Nothing depends on batch size or ranks: who asks for g gets the same window. */
#ifndef TALLY_DATA_ORDER_H
#define TALLY_DATA_ORDER_H

#include "base/error.h"
#include "base/philox.h"

#include <stdint.h>

typedef struct WindowOrder {
    int64_t block_size; /* T                                  */
    int64_t windows;    /* W, per epoch, at least 1           */
    int64_t left_over;  /* r, targets unused in each epoch    */
    uint64_t seed;
} WindowOrder;

/* A number in 0 .. bound-1, bound >= 1: 64 random bits, element `index` of the stream of key k, modulo bound. (How far that is
 * from uniform, bound / 2^64, could not be noticed.) */
int64_t random_below(RandomKey k, uint64_t index, int64_t bound);

/* The order of n tokens in windows of T = block_size >= 1. false after an error that says how many tokens are needed, when n < T
 * + 1. */
bool window_order_init(WindowOrder *o, int64_t n, int64_t block_size, uint64_t seed, Error *e);

/* Number of the first token of window g >= 0; its last, the target of the last input, is T further on and always exists. */
int64_t window_order_start(const WindowOrder *o, int64_t g);

#endif
