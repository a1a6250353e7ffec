#include "data/bpe.h"

#include <stdlib.h>

static const uint32_t NO_RANK = UINT32_MAX;

typedef struct Pair {
    uint64_t tokens; /* left << 32 | right      */
    uint32_t rank;   /* NO_RANK: a free slot    */
} Pair;

/* ---- The list of merges ---- */

/* The slot of a pair, or the free one where it would be. */
static Pair *pair_slot(const Bpe *b, int32_t left, int32_t right)
{
    uint64_t tokens = (uint64_t)left << 32 | (uint32_t)right;
    size_t i = (tokens * 0x9E3779B97F4A7C15u) >> 32; /* Fibonacci hashing: the high bits depend on all */
    for (;; i++) {
        Pair *p = &b->pairs[i & (b->slots - 1)];
        if (p->rank == NO_RANK || p->tokens == tokens)
            return p;
    }
}

bool bpe_create(Bpe *b, const BpeMerge *merges, size_t n, Error *e)
{
    for (b->slots = 2; b->slots < 2 * n; b->slots *= 2)
        ;
    b->pairs = memory_get(e, b->slots, sizeof *b->pairs, "the table of merges");
    b->made = memory_get(e, n, sizeof *b->made, "the merges");
    if (!b->pairs || !b->made)
        return false;
    for (size_t i = 0; i < b->slots; i++)
        b->pairs[i].rank = NO_RANK;
    for (size_t i = 0; i < n; i++) {
        Pair *p = pair_slot(b, merges[i].left, merges[i].right);
        if (p->rank != NO_RANK)
            return error_set(e, "merges: number %zu is the same as number %u", i + 1, p->rank + 1);
        *p = (Pair){(uint64_t)merges[i].left << 32 | (uint32_t)merges[i].right, (uint32_t)i};
        b->made[i] = merges[i].made;
    }
    return true;
}

void bpe_free(Bpe *b)
{
    free(b->pairs);
    free(b->made);
}

/* ---- Encoding: the parts of a word are a list, and its pairs wait in a heap, by rank and then from left to right ---- */

/* The part that begins at byte i of the word is parts[i]. */
typedef struct Part {
    int32_t id;
    uint32_t rank; /* of the pair with the next part; NO_RANK: that is no merge, or this part is no more */
    uint32_t before, next;
} Part;

/* An entry is rank << 32 | position of the pair's left part. It is stale when that part has another rank by now. */
static void heap_push(uint64_t *heap, size_t *size, uint64_t entry)
{
    size_t i = (*size)++;
    for (; i > 0 && heap[(i - 1) / 2] > entry; i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = entry;
}

static uint64_t heap_pop(uint64_t *heap, size_t *size)
{
    uint64_t least = heap[0], last = heap[--*size];
    size_t i = 0, child;
    for (; (child = 2 * i + 1) < *size; i = child) {
        child += child + 1 < *size && heap[child + 1] < heap[child];
        if (heap[child] >= last)
            break;
        heap[i] = heap[child];
    }
    heap[i] = last;
    return least;
}

/* Looks up the pair of part i and the next one, which is there, and lets it wait for its turn. */
static void pair_offer(const Bpe *b, BpeScratch *s, size_t *size, uint32_t i)
{
    Part *p = &s->parts[i];
    p->rank = pair_slot(b, p->id, s->parts[p->next].id)->rank;
    if (p->rank != NO_RANK)
        heap_push(s->heap, size, (uint64_t)p->rank << 32 | i);
}

static bool scratch_reserve(BpeScratch *s, size_t n, Error *e)
{
    if (n > BPE_WORD_MAX)
        return error_set(e, "a word of %zu bytes, without a blank in it; the longest can have %d", n, BPE_WORD_MAX);
    if (n <= s->room)
        return true;
    bpe_scratch_free(s);
    size_t room = n < 2048 ? 2048 : n;
    s->parts = memory_get(e, room, sizeof *s->parts + 2 * sizeof *s->heap, "the merges of a long word");
    s->heap = s->parts ? (uint64_t *)(s->parts + room) : NULL;
    s->room = s->parts ? room : 0;
    return s->parts != NULL;
}

void bpe_scratch_free(BpeScratch *s)
{
    free(s->parts);
    *s = (BpeScratch){0};
}

bool bpe_encode(const Bpe *b, BpeScratch *s, const uint8_t *word, size_t n, int32_t *ids, int64_t *count, Error *e)
{
    if (!scratch_reserve(s, n, e))
        return false;
    Part *parts = s->parts;
    size_t size = 0; /* of the heap: at first less than n, and one more for each merge at most */
    for (uint32_t i = 0; i < n; i++)
        parts[i] = (Part){b->byte_id[word[i]], NO_RANK, i - 1, i + 1};
    for (uint32_t i = 0; i + 1 < n; i++)
        pair_offer(b, s, &size, i);
    while (size > 0) {
        uint64_t entry = heap_pop(s->heap, &size);
        uint32_t left = (uint32_t)entry, rank = entry >> 32, right = parts[left].next;
        if (parts[left].rank != rank)
            continue;
        parts[left].id = b->made[rank];
        parts[left].next = parts[right].next;
        parts[left].rank = parts[right].rank = NO_RANK;
        if (parts[left].next < n) {
            parts[parts[left].next].before = left;
            pair_offer(b, s, &size, left);
        }
        if (left > 0)
            pair_offer(b, s, &size, parts[left].before);
    }
    *count = 0;
    for (uint32_t i = 0; i < n; i = parts[i].next)
        ids[(*count)++] = parts[i].id;
    return true;
}
