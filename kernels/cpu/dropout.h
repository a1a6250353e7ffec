/* Dropout: element i of a stream is kept when its 32 random bits reach the threshold, and is then multiplied by 1/(1-p).
 *
 * The mask is never stored: the backward pass makes the same bits again. */
#ifndef TALLY_KERNELS_CPU_DROPOUT_H
#define TALLY_KERNELS_CPU_DROPOUT_H

#include "kernels/cpu/philox_lanes.h"

#include <string.h>

typedef struct DropoutMask {
    bool active; /* p > 0 */
    RandomKey key;
    uint32_t threshold;
    float scale; /* 1 / (1 - p) */
} DropoutMask;

/* The mask of one place in the model at the present step and micro-batch. */
static inline DropoutMask dropout_mask(const Ctx *c, Dropout d)
{
    const StepState *s = c->state;
    if (!(d.p > 0))
        return (DropoutMask){0};
    return (DropoutMask){true, random_key(s->seed, d.purpose, (uint32_t)d.layer, (uint64_t)s->step, (uint32_t)s->micro),
                         dropout_threshold(d), 1.0f / (1.0f - d.p)};
}

/* The random words of elements 4 * block .. 4 * (block + VECTOR) - 1. */
static inline void dropout_words(uint32_t word[4 * VECTOR], RandomKey key, uint64_t block)
{
    VecWide lane, w[2][4];
    for (int i = 0; i < WIDE; i++)
        lane[i] = (uint64_t)i;
    philox_lanes(w, (VecWide[2]){lane + block, lane + (block + WIDE)}, key);
    for (int h = 0; h < 2; h++) {
        VecWide words_01 = (w[h][0] & 0xFFFFFFFFu) | w[h][1] << 32, words_23 = (w[h][2] & 0xFFFFFFFFu) | w[h][3] << 32;
        uint64_t out[2 * WIDE];
        for (int i = 0; i < WIDE; i++) {
            out[2 * i] = words_01[i];
            out[2 * i + 1] = words_23[i];
        }
        memcpy(word + 4 * WIDE * h, out, sizeof out);
    }
}

/* y[i] = dropped(x[i]) for i < n, where x[0] is element `index` of the stream. y may be x. */
static inline void dropout_apply(float *y, const float *x, int64_t n, const DropoutMask *mask, int64_t index)
{
    uint32_t word[4 * VECTOR], threshold = mask->threshold;
    float scale = mask->scale;
    int64_t skip = index & 3; /* words of the first block that belong to elements before x[0] */
    for (uint64_t block = (uint64_t)index >> 2; n > 0; block += VECTOR) {
        int64_t count = min_of(4 * VECTOR - skip, n);
        dropout_words(word, mask->key, block);
#pragma omp simd
        for (int64_t i = 0; i < count; i++)
            y[i] = word[skip + i] >= threshold ? x[i] * scale : 0.0f;
        x += count;
        y += count;
        n -= count;
        skip = 0;
    }
}

#endif
