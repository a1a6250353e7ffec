/* Dropout: element i of a stream is kept when its 32 random bits reach the threshold, and is then multiplied by 1/(1-p).
 *
 * The mask is never stored: the backward pass makes the same bits again. */
#ifndef TALLY_KERNELS_CPU_DROPOUT_H
#define TALLY_KERNELS_CPU_DROPOUT_H

#include "kernels/cpu/cpu.h"

#include <string.h>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

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

/* ---- Philox on vectors: random_block (base/philox.h) for VECTOR counters at once -------------------------------------
 *
 * A counter word takes a 64-bit lane, because a round multiplies 32 x 32 -> 64 bits and uses both halves. The upper half of
 * a word is left as it comes: the product looks at lower halves only. That product is the one instruction that compilers
 * do not find in plain C. */
typedef uint64_t VecU64 __attribute__((vector_size(4 * VECTOR)));
enum { LANES = VECTOR / 2 };

static inline VecU64 multiply_low_halves(VecU64 a, VecU64 b)
{
#if defined(__AVX512F__)
    return (VecU64)_mm512_mul_epu32((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return (VecU64)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
    return (VecU64)_mm_mul_epu32((__m128i)a, (__m128i)b);
#else
    return (a & 0xFFFFFFFFu) * (b & 0xFFFFFFFFu);
#endif
}

/* The random words of elements 4 * block .. 4 * (block + VECTOR) - 1. Two vectors of counters, so that one multiplies while
 * the other waits for its product. */
static inline void dropout_words(uint32_t word[4 * VECTOR], RandomKey key, uint64_t block)
{
    VecU64 zero = {0}, lane, c0[2], c1[2], c2[2], c3[2];
    VecU64 k0 = zero + key.key[0], k1 = zero + key.key[1], m0 = zero + 0xD2511F53u, m1 = zero + 0xCD9E8D57u;
    for (int i = 0; i < LANES; i++)
        lane[i] = (uint64_t)i;
    for (int h = 0; h < 2; h++) {
        c0[h] = lane + (block + (uint64_t)(h * LANES));
        c1[h] = c0[h] >> 32;
        c2[h] = zero + key.high[0];
        c3[h] = zero + key.high[1];
    }
#pragma GCC unroll 10
    for (int round = 0; round < 10; round++) {
        for (int h = 0; h < 2; h++) {
            VecU64 p0 = multiply_low_halves(c0[h], m0), p1 = multiply_low_halves(c2[h], m1);
            c0[h] = (p1 >> 32) ^ c1[h] ^ k0;
            c2[h] = (p0 >> 32) ^ c3[h] ^ k1;
            c1[h] = p1;
            c3[h] = p0;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (int h = 0; h < 2; h++) {
        VecU64 words_01 = (c0[h] & 0xFFFFFFFFu) | c1[h] << 32, words_23 = (c2[h] & 0xFFFFFFFFu) | c3[h] << 32;
        uint64_t out[2 * LANES];
        for (int i = 0; i < LANES; i++) {
            out[2 * i] = words_01[i];
            out[2 * i + 1] = words_23[i];
        }
        memcpy(word + 4 * LANES * h, out, sizeof out);
    }
}

/* y[i] = dropped(x[i]) for i < n, where x[0] is element `index` of the stream. y may be x. */
static inline void dropout_apply(float *y, const float *x, int64_t n, const DropoutMask *mask, int64_t index)
{
    uint32_t word[4 * VECTOR], threshold = mask->threshold;
    float scale = mask->scale;
    int64_t skip = index & 3; /* words of the first block that belong to elements before x[0] */
    for (uint64_t block = (uint64_t)index >> 2; n > 0; block += VECTOR) {
        int64_t count = 4 * VECTOR - skip < n ? 4 * VECTOR - skip : n;
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
