/* Races through global memory, and reads of global memory that nobody has written. Within a block it is as in shared memory
 * (race.h): barriers order; a lock does not, and what it guards counts as a race.
 *
 * In check mode blocks run one after another, so what a block sees of another does not depend on luck. It may read or overwrite
 * what another wrote only if that one executed a fence after its write, and then an atomic on a word on which this one has
 * executed an atomic since: the pattern by which the last block of a grid collects the others' sums. Atomics themselves never
 * race. */
#include "tests/softgpu/vm/race.h"

#include <stdlib.h>
#include <string.h>

#include "tests/softgpu/vm/checks.h"

enum { MAX_WORDS = 4096 }; /* on which blocks meet; beyond that their order is unknown */

static bool has_acquired(const Block *b, uint32_t other)
{
    return b->acquired != NULL && (b->acquired[other / 8] >> other % 8 & 1);
}

static bool race(Warp *w, const Insn *i, int lane, uint64_t address, const char *what, const char *other)
{
    const Allocation *a = allocation_find(w->block->launch->vm, address);
    return fault(w, i, lane, VM_RACE, address,
                 "race between blocks: %s of byte %llu of %s, %s in the same launch with no fence and "
                 "atomic between",
                 what, (unsigned long long)(address - a->begin), a->name, other);
}

/* May this block see what the cell's writer wrote? */
static bool write_visible(const Block *b, const GlobalCell *c)
{
    uint32_t other = c->writer - 1;
    return c->writer == 0 || other == b->number || (has_acquired(b, other) && b->launch->release_fences[other] > c->fences);
}

/* May this block overwrite what others have read? */
static bool readers_done(const Block *b, const GlobalCell *c)
{
    return c->reader == 0 || c->reader == b->number + 1 || (c->reader != UINT32_MAX && has_acquired(b, c->reader - 1));
}

/* Within a block: is what this lane does ordered after what other threads of the block did? */
static bool threads_ordered(Warp *w, const Insn *i, int lane, uint64_t address, const GlobalCell *c, bool writes)
{
    uint32_t me = w->block->number + 1;
    Stamp now = stamp_now(w, lane), other = 0;
    if (c->writer == me && !ordered(w, c->write, now))
        other = c->write;
    for (int r = 0; r < 2 && writes && c->reader == me; r++)
        if (!ordered(w, c->read[r], now))
            other = c->read[r];
    if (other == 0)
        return true;
    const Allocation *a = allocation_find(w->block->launch->vm, address);
    return fault(w, i, lane, VM_RACE, address,
                 "race: %s of global byte %llu of %s, which thread %d of the block has accessed with no barrier since",
                 writes ? "write" : "read", (unsigned long long)(address - a->begin), a->name, stamp_thread(other));
}

/* A read or write of the cell at the address. */
static inline bool cell_use(Warp *w, const Insn *i, int lane, uint64_t address, GlobalCell *c, bool writes)
{
    Block *b = w->block;
    uint32_t launch = b->launch->vm->launches, me = b->number + 1;
    char other[32];
    if (c->launch != launch)
        *c = (GlobalCell){.launch = launch};
    if (!threads_ordered(w, i, lane, address, c, writes))
        return false;
    if (!write_visible(b, c)) {
        snprintf(other, sizeof other, "written by block %u", c->writer - 1);
        return race(w, i, lane, address, writes ? "write" : "read", other);
    }
    if (!writes) {
        reader_add(w, c->read, stamp_now(w, lane));
        c->reader = c->reader == 0 || c->reader == me ? me : UINT32_MAX;
        return true;
    }
    if (!readers_done(b, c))
        return race(w, i, lane, address, "write", "read by another block");
    *c = (GlobalCell){.launch = launch, .writer = me, .fences = b->fences, .write = stamp_now(w, lane)};
    return true;
}

/* Marks what is written; false when something is read that nobody wrote. */
static bool written_check(Warp *w, const Insn *i, int lane, const Allocation *a, uint64_t address, uint64_t bytes, Access access)
{
    uint8_t *written = a->written + (address - a->begin);
    if (access == ACCESS_WRITE) {
        memset(written, 1, bytes);
        return true;
    }
    const uint8_t *hole = memchr(written, 0, bytes);
    if (hole == NULL)
        return true;
    return fault(w, i, lane, VM_UNINITIALISED, address, "%s of uninitialised global memory, byte %llu of %s (%llu bytes)",
                 access == ACCESS_READ ? "read" : "atomic", (unsigned long long)(hole - a->written), a->name,
                 (unsigned long long)(a->end - a->begin));
}

/* `bytes` from the address on, of which lanes lane, lane + 1... access `each` bytes. */
static bool range_use(Warp *w, const Insn *i, int lane, const Allocation *a, uint64_t address, uint64_t bytes, int each,
                      Access access)
{
    if (!written_check(w, i, lane, a, address, bytes, access))
        return false;
    uint64_t offset = address - a->begin, first = offset / SHADOW_BYTES, last = (offset + bytes - 1) / SHADOW_BYTES;
    for (uint64_t n = first; n <= last && access != ACCESS_ATOMIC; n++) {
        int l = lane + (n == first ? 0 : (int)((n * SHADOW_BYTES - offset) / (uint64_t)each));
        if (!cell_use(w, i, l, a->begin + n * SHADOW_BYTES, &a->cells[n], access == ACCESS_WRITE))
            return false;
    }
    return true;
}

/* Lanes side by side are checked as one range; of lanes that read the same place one stands for all. */
bool global_race(Warp *w, const Insn *i, const uint64_t *address, int bytes, Access access)
{
    for (int l = 0; l < LANES;) {
        int first = l++;
        if (!(w->mask >> first & 1))
            continue;
        const Allocation *a = allocation_find(w->block->launch->vm, address[first]);
        uint64_t n = (uint64_t)bytes;
        while (l < LANES && (w->mask >> l & 1) && address[l] == address[first] + n && address[l] < a->end) {
            n += (uint64_t)bytes;
            l++;
        }
        while (l == first + 1 && l < LANES && access == ACCESS_READ && (w->mask >> l & 1) && address[l] == address[first])
            first = l++;
        if (!range_use(w, i, first, a, address[first], n, bytes, access))
            return false;
    }
    return true;
}

/* ---- Fences and atomics -------------------------------------------------------------------------------------------- */

void global_fence(Block *b)
{
    b->fences++;
}

/* Blocks that have released to the word; NULL: no block may need it, or there are too many words. */
static uint8_t *word_blocks(Block *b, uint64_t address)
{
    Launch *launch = b->launch;
    for (int n = 0; n < launch->n_words; n++)
        if (launch->words[n].address == address)
            return launch->words[n].blocks;
    if (b->fences == 0 || launch->n_words == MAX_WORDS)
        return NULL;
    launch->words = host_resize(launch->words, (size_t)launch->n_words + 1, sizeof *launch->words);
    launch->words[launch->n_words] = (ReleaseWord){address, host_get(launch->n_blocks / 8 + 1, 1)};
    return launch->words[launch->n_words++].blocks;
}

/* An atomic takes what earlier ones on the word have released, and passes it on with what the block wrote before its last fence.
 */
static void word_meet(Block *b, uint64_t address)
{
    size_t bytes = b->launch->n_blocks / 8 + 1;
    uint8_t *blocks = word_blocks(b, address);
    if (blocks == NULL)
        return;
    if (b->acquired == NULL)
        b->acquired = host_get(bytes, 1);
    for (size_t n = 0; n < bytes; n++)
        b->acquired[n] |= blocks[n];
    if (b->fences == 0)
        return;
    b->launch->release_fences[b->number] = b->fences;
    blocks[b->number / 8] |= (uint8_t)(1u << b->number % 8);
    for (size_t n = 0; n < bytes; n++)
        blocks[n] |= b->acquired[n];
}

void global_release(Warp *w, const uint64_t *address)
{
    EACH_ON (l)
        if (address[l] >> WINDOW_SHIFT == 0)
            word_meet(w->block, address[l]);
}

void checks_launch(Launch *launch)
{
    launch->vm->launches++;
    if (launch->vm->options.check)
        launch->release_fences = host_get(launch->n_blocks, sizeof *launch->release_fences);
}

void checks_end(Launch *launch)
{
    for (int n = 0; n < launch->n_words; n++)
        free(launch->words[n].blocks);
    free(launch->words);
    free(launch->release_fences);
}
