/* The lanes of a warp, and how they part and meet.
 *
 * Lanes that stand at the same instruction form a group; one group is active, the others wait in w->groups. The group furthest
 * behind (lowest in the text) always runs, so that after an if or a loop the lanes that are through wait for the rest, and merge
 * with them where they meet. w->stop is the nearest place where another group stands: until pc gets there the loop below need not
 * look. Where an instruction needs certain lanes (a barrier, a shuffle), a group that lacks some of them is blocked until they
 * come.
 *
 * Lowest-first can starve: lanes that spin for a lock which a lane further down holds. When a slice of the warp's time is over,
 * the other groups get a turn (w->rotating). */
#include <string.h>

#include "tests/softgpu/vm/machine.h"

enum { EVERYWHERE = INT32_MAX, TURN = 5000 };

void op_nothing(Warp *w, const Insn *i)
{
    (void)w;
    (void)i;
}

static Group group_take(Warp *w, int g)
{
    Group taken = w->groups[g];
    w->n_groups--;
    memmove(&w->groups[g], &w->groups[g + 1], (size_t)(w->n_groups - g) * sizeof taken);
    return taken;
}

static void group_leave(Warp *w, bool blocked)
{
    w->groups[w->n_groups++] = (Group){w->pc, w->active, blocked, w->live};
    w->active = 0;
}

static void groups_merge(Warp *w)
{
    for (int g = w->n_groups - 1; g >= 0 && w->active != 0; g--)
        if (w->groups[g].pc == w->pc)
            w->active |= group_take(w, g).lanes;
}

/* The group that is furthest behind and not blocked; -1: none. */
static int group_lowest(Warp *w)
{
    int lowest = -1;
    for (int g = 0; g < w->n_groups; g++) {
        Group *q = &w->groups[g];
        if (q->blocked_live != w->live)
            q->blocked = false;
        if (!q->blocked && (lowest < 0 || q->pc < w->groups[lowest].pc))
            lowest = g;
    }
    return lowest;
}

/* Makes the group active that should run. No lane is active afterwards only if all are blocked. */
static void groups_choose(Warp *w)
{
    groups_merge(w);
    if (w->rotating > 0 && w->active != 0) {
        w->rotating--;
        return;
    }
    int g = group_lowest(w);
    if (g >= 0 && (w->active == 0 || w->groups[g].pc < w->pc)) {
        Group q = group_take(w, g);
        if (w->active != 0)
            group_leave(w, false);
        w->pc = q.pc;
        w->active = q.lanes;
        groups_merge(w);
    }
    w->stop = EVERYWHERE;
    for (g = 0; g < w->n_groups; g++)
        w->stop = w->groups[g].pc < w->stop ? w->groups[g].pc : w->stop;
}

/* The end of a slice: another group that is not blocked goes next, whatever its place. */
static void groups_rotate(Warp *w)
{
    for (int g = 0; g < w->n_groups; g++)
        if (!w->groups[g].blocked) {
            Group q = group_take(w, g);
            group_leave(w, false);
            w->pc = q.pc;
            w->active = q.lanes;
            w->stop = 0;
            w->rotating = TURN;
            return;
        }
}

/* ---- Branch and exit ----------------------------------------------------------------------------------------------- */

static void branch(Warp *w, const Insn *i, uint32_t taken)
{
    if (taken == w->active) {
        w->pc = i->target;
        if (w->n_groups > 0 && w->pc != w->stop)
            groups_choose(w);
    } else if (taken == 0) {
        w->pc++;
    } else {
        w->block->counters[w->pc].divergent++;
        w->groups[w->n_groups++] = (Group){i->target, taken, false, 0};
        w->active &= ~taken;
        w->pc++;
        groups_choose(w);
    }
}

/* False: no lane of the warp is left. */
static bool leave(Warp *w, uint32_t lanes)
{
    w->live &= ~lanes;
    w->active &= ~lanes;
    w->pc++;
    if (w->active == 0 && w->live != 0)
        groups_choose(w);
    return w->live != 0;
}

/* ---- Instructions that need several lanes -------------------------------------------------------------------------- */

/* The lanes that instruction i needs, of those that live. False: its mask is wrong. */
static bool needed_lanes(Warp *w, const Insn *i, uint32_t lanes, uint32_t *needed)
{
    *needed = w->live;
    if (i->flow == FLOW_WARP && w->live != UINT32_MAX)
        return fault(w, i, first_lane(lanes), VM_BAD_SYNC, 0, "needs all 32 lanes of the warp, of which %08x live", w->live);
    if (i->flow != FLOW_SYNC)
        return true;
    const uint32_t *mask = REG(uint32_t, i->mask_operand);
    uint32_t first = mask[first_lane(lanes)];
    for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
        int l = first_lane(rest);
        if (mask[l] != first)
            return fault(w, i, l, VM_BAD_SYNC, 0, "member masks differ between lanes: %08x and %08x", mask[l], first);
        if (!(mask[l] >> l & 1))
            return fault(w, i, l, VM_BAD_SYNC, 0, "lane %d executes a .sync instruction but is not in its mask %08x", l, mask[l]);
    }
    if (first & ~w->live)
        return fault(w, i, first_lane(lanes), VM_BAD_SYNC, 0, "member mask %08x names lanes that have exited (live: %08x)", first,
                     w->live);
    *needed = first;
    return true;
}

/* The active lanes wait here for others. False: those can never come. */
static bool block_lanes(Warp *w, const Insn *i)
{
    int lane = first_lane(w->active);
    group_leave(w, true);
    groups_choose(w);
    if (w->active != 0)
        return true;
    char places[512];
    size_t n = 0;
    for (int g = 0; g < w->n_groups && n < sizeof places; g++)
        n += (size_t)snprintf(places + n, sizeof places - n, "%s lanes %08x at PTX line %d", g ? "," : "", w->groups[g].lanes,
                              w->block->kernel->text[w->groups[g].pc].line);
    return fault(w, i, lane, VM_BAD_SYNC, 0, "%s: the lanes of the warp cannot meet:%s",
                 i->flow == FLOW_BARRIER ? "divergent barrier" : "divergent warp instruction", places);
}

/* Runs an instruction of several lanes if all are here, or blocks those that are. RUN_SLICE: go on. */
static RunEnd run_together(Warp *w, const Insn *i, uint32_t lanes)
{
    uint32_t needed;
    if (lanes == 0) {
        w->pc++;
        return RUN_SLICE;
    }
    if (!needed_lanes(w, i, lanes, &needed))
        return RUN_FAULT;
    if (needed & ~lanes) {
        if (lanes != w->active) {
            fault(w, i, first_lane(lanes), VM_BAD_SYNC, 0, "guarded by a predicate that differs between lanes");
            return RUN_FAULT;
        }
        return block_lanes(w, i) ? RUN_SLICE : RUN_FAULT;
    }
    Counter *c = &w->block->counters[w->pc];
    c->runs++;
    c->lanes += (uint64_t)__builtin_popcount(lanes);
    w->mask = lanes;
    w->pc++;
    i->run(w, i);
    if (i->flow != FLOW_BARRIER)
        return RUN_SLICE;
    if (w->live != w->born) {
        fault(w, i, first_lane(lanes), VM_BAD_SYNC, 0, "a barrier in a warp some of whose threads have exited (live: %08x)",
              w->live);
        return RUN_FAULT;
    }
    w->barrier = i;
    return RUN_BARRIER;
}

RunEnd warp_run(Warp *w, uint64_t budget)
{
    const Insn *code = w->block->kernel->code;
    Counter *counters = w->block->counters;
    const int *stopped = &w->block->launch->stopped;
    for (; budget > 0; budget--, w->steps++) {
        if (w->pc >= w->stop)
            groups_choose(w);
        const Insn *i = &code[w->pc];
        uint32_t guard = *(const uint32_t *)(w->registers + (size_t)i->guard * SLOT_BYTES);
        uint32_t lanes = w->active & (i->guard_negated ? ~guard : guard);
        if (i->flow > FLOW_EXIT) {
            RunEnd end = run_together(w, i, lanes);
            if (end != RUN_SLICE)
                return end;
        } else {
            counters[w->pc].runs++;
            counters[w->pc].lanes += (uint64_t)__builtin_popcount(lanes);
            if (i->flow == FLOW_BRANCH) {
                branch(w, i, lanes);
            } else if (i->flow == FLOW_EXIT) {
                if (!leave(w, lanes))
                    return RUN_DONE;
            } else {
                w->mask = lanes;
                if (lanes != 0)
                    i->run(w, i);
                w->pc++;
            }
        }
        if (__atomic_load_n(stopped, __ATOMIC_RELAXED))
            return RUN_FAULT;
    }
    groups_rotate(w);
    return RUN_SLICE;
}
