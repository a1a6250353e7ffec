/* Byte pair encoding of one word (Sennrich, Haddow, Birch 2016, on bytes as in GPT-2): it begins as its bytes, and of all pairs
 * of neighbours the one that comes first in the list of merges becomes one token, the leftmost when there are several, until no
 * pair is in the list. Encoding n bytes takes O(n log n) time and 32 n bytes of memory. */
#ifndef TALLY_DATA_BPE_H
#define TALLY_DATA_BPE_H

#include "base/error.h"

#include <stdint.h>

enum { BPE_WORD_MAX = 1 << 26 }; /* bytes of a word, at most */

/* Tokens left, right -> made. The place in the list is the rank. */
typedef struct BpeMerge {
    int32_t left, right, made;
} BpeMerge;

typedef struct Bpe {
    int32_t byte_id[256]; /* the token of each byte; filled by the caller                            */
    int32_t *made;        /* [merges], by rank                                                       */
    struct Pair *pairs;   /* [slots]: a hash table from a pair to its rank, at least half of it free */
    size_t slots;         /* a power of two                                                          */
} Bpe;

/* What one thread needs to encode with, kept between words. Starts as {0}. */
typedef struct BpeScratch {
    struct Part *parts; /* [room]                                   */
    uint64_t *heap;     /* [2 room], behind the parts in one block  */
    size_t room;        /* bytes of a word for which there is space */
} BpeScratch;

/* Takes in a list of n < 2^31 merges. false after an error: a pair that is there twice is named by its places, from 1. */
bool bpe_create(Bpe *b, const BpeMerge *merges, size_t n, Error *e);

/* Both are fine on {0}. */
void bpe_free(Bpe *b);
void bpe_scratch_free(BpeScratch *s);

/* Encodes word[0 .. n) to ids, which has room for n, and sets *count. false after an error: longer than BPE_WORD_MAX, or no
 * memory. */
bool bpe_encode(const Bpe *b, BpeScratch *s, const uint8_t *word, size_t n, int32_t *ids, int64_t *count, Error *e);

#endif
