/* Races and uninitialised reads in shared memory.
 *
 * For each two bytes: who wrote last, and up to two of those who have read since. Two accesses of different threads, one of them
 * a write, must be ordered: by a barrier of the block between different warps (what the second warp knows of the first one's
 * clock has passed the stamp), or within a warp by anything that makes its lanes wait for each other (the epoch has moved on).
 * Lanes of a warp run in lockstep here and the result would come out right; on a card it need not.
 *
 * Two readers are enough: a write is in order with all readers if it is in order with one of each kind, another warp's and its
 * own warp's, unless two other warps read and only one of them is ordered; then the order of warps or another block finds it. */
#include "tests/softgpu/vm/checks.h"

#include <string.h>

static bool ordered(const Warp *w, const SharedStamp *s, int thread)
{
    if (s->thread < 0 || s->thread == thread)
        return true;
    int v = s->thread / LANES;
    if (v == w->id)
        return s->clock != w->clock[v] || s->epoch != w->epoch;
    return w->clock[v] >= s->clock;
}

static SharedStamp stamp(const Warp *w, int thread)
{
    return (SharedStamp){(int16_t)thread, w->clock[w->id], w->epoch};
}

static bool race(Warp *w, const Insn *i, int lane, uint64_t offset, const char *what, const SharedStamp *other,
                 const SharedCell *c)
{
    return fault(w, i, lane, VM_RACE, offset,
                 "race: %s of shared byte %llu, which thread %d has accessed with no barrier since (last "
                 "written at PTX line %d)",
                 what, (unsigned long long)offset, other->thread, c->write_line);
}

/* Which of the two remembered readers gives way to a new one of this warp: a free one, the same thread's, or one of the own warp,
 * so that another warp's stays. */
static SharedStamp *reader_slot(const Warp *w, SharedCell *c, int thread)
{
    for (int r = 0; r < 2; r++)
        if (c->read[r].thread < 0 || c->read[r].thread == thread)
            return &c->read[r];
    bool first_is_ours = c->read[0].thread / LANES == w->id, second_is_ours = c->read[1].thread / LANES == w->id;
    return &c->read[first_is_ours && !second_is_ours ? 0 : 1];
}

static bool cell_write(Warp *w, const Insn *i, int lane, uint64_t offset, SharedCell *c, bool pending)
{
    int thread = w->id * LANES + lane;
    for (int r = 0; r < 2; r++)
        if (!ordered(w, &c->read[r], thread))
            return race(w, i, lane, offset, "write", &c->read[r], c);
    const SharedStamp none = {.thread = -1};
    *c = (SharedCell){.write = stamp(w, thread),
                      .read = {none, none},
                      .written = true,
                      .pending = pending,
                      .write_line = w->block->kernel->text[i - w->block->kernel->code].line};
    return true;
}

static bool cell_use(Warp *w, const Insn *i, int lane, uint64_t offset, SharedCell *c, SharedUse use)
{
    int thread = w->id * LANES + lane;
    bool writes = use == SHARED_WRITE || use == SHARED_COPY_ISSUED;
    if (use == SHARED_COPY_DONE) {
        c->pending = false;
        c->write = stamp(w, thread);
        return true;
    }
    if (c->pending)
        return fault(w, i, lane, VM_RACE, offset,
                     "race: shared byte %llu is the target of a cp.async that has not been waited for "
                     "(PTX line %d)",
                     (unsigned long long)offset, c->write_line);
    if (!writes && !c->written)
        return fault(w, i, lane, VM_UNINITIALISED, offset, "%s of uninitialised shared memory, byte %llu",
                     use == SHARED_READ ? "read" : "atomic", (unsigned long long)offset);
    if (use == SHARED_ATOMIC) /* atomics are ordered among themselves; against plain accesses they are not tracked */
        return true;
    if (!ordered(w, &c->write, thread))
        return race(w, i, lane, offset, writes ? "write" : "read", &c->write, c);
    if (writes)
        return cell_write(w, i, lane, offset, c, use == SHARED_COPY_ISSUED);
    *reader_slot(w, c, thread) = stamp(w, thread);
    return true;
}

bool shared_race(Warp *w, const Insn *i, const uint64_t *offset, int bytes, SharedUse use)
{
    EACH_ON (l)
        for (uint64_t n = offset[l] / SHADOW_BYTES; n <= (offset[l] + (uint64_t)bytes - 1) / SHADOW_BYTES; n++)
            if (!cell_use(w, i, l, n * SHADOW_BYTES, &w->block->cells[n], use))
                return false;
    return true;
}

void checks_begin(Block *b)
{
    b->fences = 0;
    if (b->cells == NULL)
        return;
    if (b->acquired != NULL)
        memset(b->acquired, 0, b->launch->n_blocks / 8 + 1);
    const SharedStamp none = {.thread = -1};
    for (uint32_t n = 0; n <= b->shared_bytes / SHADOW_BYTES; n++)
        b->cells[n] = (SharedCell){.write = none, .read = {none, none}};
}
