/* Races and uninitialised reads in shared memory. For each two bytes it is remembered who wrote last and who has read since; two
 * accesses of different threads, one of them a write, must be ordered (race.h). */
#include "tests/softgpu/vm/race.h"

#include <string.h>

#include "tests/softgpu/vm/checks.h"

static bool race(Warp *w, const Insn *i, int lane, uint64_t offset, const char *what, Stamp other, const SharedCell *c)
{
    return fault(w, i, lane, VM_RACE, offset,
                 "race: %s of shared byte %llu, which thread %d has accessed with no barrier since (last written at PTX line %d)",
                 what, (unsigned long long)offset, stamp_thread(other), c->write_line);
}

/* Nobody may touch the target of a cp.async under way, or read what is not written. */
static bool unusable(Warp *w, const Insn *i, int lane, uint64_t offset, const SharedCell *c)
{
    if (c->pending)
        return fault(w, i, lane, VM_RACE, offset,
                     "race: shared byte %llu is the target of a cp.async that has not been waited for (PTX line %d)",
                     (unsigned long long)offset, c->write_line);
    return fault(w, i, lane, VM_UNINITIALISED, offset, "read of uninitialised shared memory, byte %llu",
                 (unsigned long long)offset);
}

static inline bool cell_read(Warp *w, const Insn *i, int lane, uint64_t offset, SharedCell *c, Stamp now)
{
    if (c->pending || !c->written)
        return unusable(w, i, lane, offset, c);
    if (!ordered(w, c->write, now))
        return race(w, i, lane, offset, "read", c->write, c);
    reader_add(w, c->read, now);
    return true;
}

static inline bool cell_write(Warp *w, const Insn *i, int lane, uint64_t offset, SharedCell *c, Stamp now, SharedUse use)
{
    if (c->pending)
        return unusable(w, i, lane, offset, c);
    for (int r = 0; r < 3; r++) {
        Stamp other = r < 2 ? c->read[r] : c->write;
        if (!ordered(w, other, now))
            return race(w, i, lane, offset, "write", other, c);
    }
    *c = (SharedCell){.write = now,
                      .written = 1,
                      .pending = use == SHARED_COPY_ISSUED,
                      .write_line = (uint32_t)w->block->kernel->text[i - w->block->kernel->code].line & 0x3fffffffu};
    return true;
}

/* Atomics are ordered among themselves; against plain accesses they are not tracked. */
static inline bool cell_atomic(Warp *w, const Insn *i, int lane, uint64_t offset, const SharedCell *c)
{
    return (!c->pending && c->written) || unusable(w, i, lane, offset, c);
}

static inline bool cell_use(Warp *w, const Insn *i, int lane, uint64_t offset, SharedCell *c, Stamp now, SharedUse use)
{
    switch (use) {
    case SHARED_READ:
        return cell_read(w, i, lane, offset, c, now);
    case SHARED_ATOMIC:
        return cell_atomic(w, i, lane, offset, c);
    case SHARED_COPY_DONE:
        c->pending = 0;
        c->write = now;
        return true;
    default:
        return cell_write(w, i, lane, offset, c, now, use);
    }
}

bool shared_race(Warp *w, const Insn *i, const uint64_t *offset, int bytes, SharedUse use)
{
    SharedCell *cells = w->block->cells;
    EACH_ON (l) {
        uint64_t first = offset[l] / SHADOW_BYTES, last = (offset[l] + (uint64_t)bytes - 1) / SHADOW_BYTES;
        Stamp now = stamp_now(w, l);
        for (uint64_t n = first; n <= last; n++)
            if (!cell_use(w, i, l, n * SHADOW_BYTES, &cells[n], now, use))
                return false;
    }
    return true;
}

void checks_begin(Block *b)
{
    b->fences = 0;
    if (b->acquired != NULL)
        memset(b->acquired, 0, b->launch->n_blocks / 8 + 1);
    if (b->cells != NULL)
        memset(b->cells, 0, (b->shared_bytes / SHADOW_BYTES + 1) * sizeof *b->cells);
}
