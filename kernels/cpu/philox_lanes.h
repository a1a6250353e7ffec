/* Philox for many counters at once. A round needs all 64 bits of two products of 32-bit words, so every counter word lives in
 * the low half of a 64-bit lane, and what the high half holds does not matter: the multiplication does not read it. The words
 * are those of base/philox.h. */
#ifndef TALLY_KERNELS_CPU_PHILOX_LANES_H
#define TALLY_KERNELS_CPU_PHILOX_LANES_H

#include "kernels/cpu/cpu.h"
#if defined(__SSE2__)
#include <immintrin.h>
#endif

enum { WIDE = VECTOR / 2 };
typedef uint64_t VecWide __attribute__((vector_size(VECTOR * 4)));

/* low half of a * low half of b. Compilers make a slower full 64-bit product of the portable line. */
static inline __attribute__((always_inline)) VecWide wide_product(VecWide a, VecWide b)
{
#if defined(__AVX512F__)
    return (VecWide)_mm512_mul_epu32((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return (VecWide)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
    return (VecWide)_mm_mul_epu32((__m128i)a, (__m128i)b);
#else
    return (a & 0xFFFFFFFF) * (b & 0xFFFFFFFF);
#endif
}

/* A key, ready for the ten rounds. */
typedef struct PhiloxKeys {
    VecWide round[10][2], high[2];
} PhiloxKeys;

static inline PhiloxKeys philox_keys(RandomKey key)
{
    PhiloxKeys k;
    for (uint32_t r = 0; r < 10; r++) {
        k.round[r][0] = (VecWide){0} + (key.key[0] + r * 0x9E3779B9u);
        k.round[r][1] = (VecWide){0} + (key.key[1] + r * 0xBB67AE85u);
    }
    k.high[0] = (VecWide){0} + key.high[0];
    k.high[1] = (VecWide){0} + key.high[1];
    return k;
}

/* The four random words of each of WIDE counters (low, high), in the low halves of word[0..3]. */
static inline __attribute__((always_inline)) void philox_lanes(VecWide word[4], VecWide low, VecWide high, const PhiloxKeys *k)
{
    VecWide c0 = low, c1 = high, c2 = k->high[0], c3 = k->high[1], m0 = (VecWide){0} + 0xD2511F53u,
            m1 = (VecWide){0} + 0xCD9E8D57u;
#pragma GCC unroll 10
    for (int r = 0; r < 10; r++) {
        VecWide p0 = wide_product(c0, m0), p1 = wide_product(c2, m1);
        c0 = (p1 >> 32) ^ c1 ^ k->round[r][0];
        c2 = (p0 >> 32) ^ c3 ^ k->round[r][1];
        c1 = p1;
        c3 = p0;
    }
    word[0] = c0, word[1] = c1, word[2] = c2, word[3] = c3;
}

#endif
