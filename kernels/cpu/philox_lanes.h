/* random_block (base/philox.h) for VECTOR counters at once.
 *
 * A round needs all 64 bits of two products of 32-bit words, so every counter word lives in the low half of a 64-bit lane, and
 * what the high half holds does not matter: the multiplication does not read it. Two vectors of counters, so that one multiplies
 * while the other waits for its product. */
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

/* The four random words of counter[h], in the low halves of word[h][0..3]. */
static inline __attribute__((always_inline)) void philox_lanes(VecWide word[2][4], const VecWide counter[2], RandomKey key)
{
    VecWide zero = {0}, c0[2], c1[2], c2[2], c3[2];
    VecWide k0 = zero + key.key[0], k1 = zero + key.key[1], m0 = zero + 0xD2511F53u, m1 = zero + 0xCD9E8D57u;
    for (int h = 0; h < 2; h++) {
        c0[h] = counter[h];
        c1[h] = counter[h] >> 32;
        c2[h] = zero + key.high[0];
        c3[h] = zero + key.high[1];
    }
#pragma GCC unroll 10
    for (int round = 0; round < 10; round++) {
        for (int h = 0; h < 2; h++) {
            VecWide p0 = wide_product(c0[h], m0), p1 = wide_product(c2[h], m1);
            c0[h] = (p1 >> 32) ^ c1[h] ^ k0;
            c2[h] = (p0 >> 32) ^ c3[h] ^ k1;
            c1[h] = p1;
            c3[h] = p0;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (int h = 0; h < 2; h++)
        word[h][0] = c0[h], word[h][1] = c1[h], word[h][2] = c2[h], word[h][3] = c3[h];
}

#endif
