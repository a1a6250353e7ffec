/* A permutation of 0 .. W-1 without a table. A Feistel network permutes pairs (left, right) of h-bit numbers, whatever its round
 * function F is:
 *
 *     (left, right) -> (right, left ^ F(right))         undone by         (a, b) -> (b ^ F(a), a)
 *
 * F is Philox under the epoch's key. With the smallest h for which 4^h >= W that is a permutation of 0 .. 4^h - 1, a superset of
 * what is wanted; walking it from x < W until it comes back below W gives one of 0 .. W-1 (it comes back: x lies on a cycle, and
 * so do different x with different results). As 4^h < 4 W, fewer than four steps are needed on average. */
#include "data/order.h"

#include <inttypes.h>

enum { ROUNDS = 8 }; /* four make a good permutation of a large set; small ones want a few more */

bool window_order_init(WindowOrder *o, int64_t n, int64_t block_size, uint64_t seed, const DocumentWindows *documents, Error *e)
{
    if (block_size < 1)
        return error_usage(e, "block_size is %" PRId64 "; at least 1 is needed", block_size);
    if (n < 2 || (block_size > n - 1 && !documents))
        return error_set(e,
                         "%" PRId64 " tokens are too few: block_size %" PRId64 " needs at least %" PRIu64
                         " (block_size + 1: a window and its last target); take more text or a smaller block_size",
                         n, block_size, (uint64_t)block_size + 1);
    *o = (WindowOrder){block_size, documents ? documents->windows : divide_up(n - 1, block_size), n - 1, seed, documents};
    return true;
}

int64_t random_below(RandomKey k, uint64_t index, int64_t bound)
{
    Philox p = random_block(k, index);
    return (int64_t)(((uint64_t)p.word[0] << 32 | p.word[1]) % (uint64_t)bound);
}

/* One step of the network on x < 4^half. */
static uint64_t feistel(RandomKey key, int half, uint64_t x)
{
    uint32_t mask = (uint32_t)((1ull << half) - 1), left = (uint32_t)(x >> half), right = (uint32_t)x & mask;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t mixed = philox4x32_10(right, round, key.high[0], key.high[1], key.key[0], key.key[1]).word[0];
        uint32_t next = left ^ (mixed & mask);
        left = right;
        right = next;
    }
    return (uint64_t)left << half | right;
}

static int64_t permute(RandomKey key, int64_t count, int64_t index)
{
    int half = 1;
    while (half < 31 && 1ll << 2 * half < count)
        half++;
    uint64_t x = (uint64_t)index;
    do
        x = feistel(key, half, x);
    while (x >= (uint64_t)count);
    return (int64_t)x;
}

Window window_order_window(const WindowOrder *o, int64_t g)
{
    uint64_t epoch = (uint64_t)(g / o->windows);
    RandomKey offset_key = random_key(o->seed, RANDOM_EPOCH_OFFSET, 0, epoch, 0);
    RandomKey order_key = random_key(o->seed, RANDOM_EPOCH_ORDER, 0, epoch, 0);
    int64_t first = 1 + random_below(offset_key, 0, o->block_size);
    int64_t index = permute(order_key, o->windows, g % o->windows);
    if (o->documents)
        return document_window(o->documents, index);
    int64_t start = index == 0 ? 0 : first + (index - 1) * o->block_size;
    int64_t count = index == 0 ? first : o->block_size, left = o->targets - start;
    return (Window){start, count < left ? count : left};
}
