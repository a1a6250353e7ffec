/* Philox4x32-10, the counter-based random generator (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as
 * 1, 2, 3", SC 2011). A random number is a pure function of (key, counter), so any element of any stream can be made by
 * any thread, on any device, in any order, and again when an activation is recomputed.
 *
 * The key of a stream comes from (seed, purpose, layer, step, global micro-batch); the counter is the 64-bit index of
 * the element: counter word = index / 4, output word = index % 4. This is the layout of cuRAND's device API with
 * seed = key, subsequence = the two high counter words, offset = index. */
#ifndef TALLY_BASE_PHILOX_H
#define TALLY_BASE_PHILOX_H

#include "base/host_device.h"

#include <stdint.h>

/* What a stream of random bits is for. Numbers are part of the results: never reorder, only append. */
typedef enum RandomPurpose {
    RANDOM_INIT = 1,           /* initial weights; layer = index of the tensor                       */
    RANDOM_EMBEDDING_DROPOUT,  /* on token + position                                                */
    RANDOM_ATTENTION_DROPOUT,  /* on attention probabilities; index ((b NH + h) T + i) T + j         */
    RANDOM_ATTENTION_RESIDUAL, /* on the attention branch before it is added                         */
    RANDOM_MLP_RESIDUAL,       /* on the MLP branch before it is added                               */
    RANDOM_EPOCH_ORDER,        /* order of the windows of an epoch; step = epoch                     */
    RANDOM_EPOCH_OFFSET,       /* where the first window of an epoch starts; step = epoch            */
    RANDOM_EVALUATION,         /* which windows an evaluation reads                                  */
    RANDOM_SAMPLE,             /* which token is drawn when sampling                                 */
    RANDOM_ROUNDING,           /* stochastic rounding                                                */
    RANDOM_STORY               /* the choices of a story; step = its number                          */
} RandomPurpose;

typedef struct Philox {
    uint32_t word[4];
} Philox;

typedef struct RandomKey {
    uint32_t key[2];  /* Philox key                     */
    uint32_t high[2]; /* counter words 2 and 3          */
} RandomKey;

/* The ten rounds: counter (4 words) under key (2 words) -> 4 random words. */
static inline HOST_DEVICE Philox philox4x32_10(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint32_t k0, uint32_t k1)
{
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return (Philox){{c0, c1, c2, c3}};
}

/* The key of one stream. Streams that differ in any argument are independent. */
static inline HOST_DEVICE RandomKey random_key(uint64_t seed, RandomPurpose purpose, uint32_t layer, uint64_t step,
                                               uint32_t micro)
{
    Philox p = philox4x32_10((uint32_t)step, (uint32_t)(step >> 32) ^ (micro << 8), layer, (uint32_t)purpose, (uint32_t)seed,
                             (uint32_t)(seed >> 32));
    return (RandomKey){{p.word[0], p.word[1]}, {p.word[2], p.word[3]}};
}

/* Four random words: those of elements 4*block .. 4*block+3. */
static inline HOST_DEVICE Philox random_block(RandomKey k, uint64_t block)
{
    return philox4x32_10((uint32_t)block, (uint32_t)(block >> 32), k.high[0], k.high[1], k.key[0], k.key[1]);
}

/* 32 random bits of element `index`. */
static inline HOST_DEVICE uint32_t random_bits(RandomKey k, uint64_t index)
{
    return random_block(k, index >> 2).word[index & 3];
}

/* A float in [0, 1) with 24 random bits; exact, hence the same on every device. */
static inline HOST_DEVICE float random_unit(uint32_t bits)
{
    return (float)(bits >> 8) * 0x1p-24f;
}

#endif
