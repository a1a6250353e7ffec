/* A block of threads: whose turn it is, and the barriers between warps.
 *
 * Warps run one after another, each until it waits at a barrier, ends, or its slice is over. In order VM_RANDOM slices are short
 * and of random length, so that what depends on the order of warps comes out differently from seed to seed.
 *
 * Barriers also carry the knowledge by which check mode finds races: w->known[v] is up to which time of warp v all happened
 * before what warp w does now. A barrier collects what those know that arrive, and gives it to those that leave. */
#include <string.h>

#include "tests/softgpu/vm/machine.h"
#include "tests/softgpu/vm/checks.h"

uint64_t block_random(Block *b)
{
    uint64_t x = b->random;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return b->random = x;
}

/* ---- Beginning ----------------------------------------------------------------------------------------------------- */

static uint32_t special_value(const Block *b, Special s, uint32_t thread)
{
    const uint32_t *dim = b->launch->block, *grid = b->launch->grid;
    uint32_t lane = thread % LANES, below = (1u << lane) - 1;
    switch (s) {
    case TID_X:
        return thread % dim[0];
    case TID_Y:
        return thread / dim[0] % dim[1];
    case TID_Z:
        return thread / dim[0] / dim[1];
    case LANEID:
        return lane;
    case WARPID:
        return thread / LANES;
    case LANEMASK_EQ:
        return 1u << lane;
    case LANEMASK_LT:
        return below;
    case LANEMASK_LE:
        return below | 1u << lane;
    case LANEMASK_GT:
        return ~(below | 1u << lane);
    case LANEMASK_GE:
        return ~below;
    default:
        return s <= NTID_Z ? dim[s - NTID_X] : s <= CTAID_Z ? b->index[s - CTAID_X] : grid[s - NCTAID_X];
    }
}

static void warp_begin(Block *b, int id)
{
    Warp *w = &b->warps[id];
    const VmKernel *k = b->kernel;
    int lanes = b->n_threads - id * LANES;
    w->live = w->active = w->born = lanes >= LANES ? UINT32_MAX : (1u << lanes) - 1;
    w->pc = w->n_groups = w->rotating = w->n_copies = 0;
    w->stop = INT32_MAX;
    w->barrier = NULL;
    w->steps = 0;
    w->time = 1;
    memset(w->copy_group, 0, sizeof w->copy_group);
    memset(w->known, 0, sizeof w->known);
    if (w->local != NULL)
        memset(w->local, 0xff, (size_t)k->info.local_bytes * LANES);
    for (int s = 0; s < SPECIALS; s++) {
        if (k->special[s] < 0)
            continue;
        uint32_t *r = (uint32_t *)(w->registers + (size_t)k->registers[k->special[s]].slot * SLOT_BYTES);
        EACH (l)
            r[l] = special_value(b, (Special)s, (uint32_t)(id * LANES + l));
    }
}

static void block_begin(Block *b)
{
    const uint32_t *grid = b->launch->grid;
    b->number = b->index[0] + grid[0] * (b->index[1] + grid[1] * b->index[2]);
    b->random = (b->launch->vm->options.seed + 1) * 0x9e3779b97f4a7c15ull ^ (b->number + 12345ull) * 0xbf58476d1ce4e5b9ull;
    if (b->random == 0)
        b->random = 1;
    memset(b->shared, 0xff, b->shared_bytes); /* NaN */
    memset(b->barriers, 0, sizeof b->barriers);
    checks_begin(b);
    for (int v = 0; v < b->n_warps; v++)
        warp_begin(b, v);
}

/* ---- Barriers ------------------------------------------------------------------------------------------------------ */

/* A register of a barrier instruction that is the same in all lanes. */
static uint32_t barrier_operand(Warp *w, int k)
{
    const Insn *i = w->barrier;
    return REG(uint32_t, k)[first_lane(w->live)];
}

static uint32_t barrier_number(Warp *w)
{
    return barrier_operand(w, 1) % MAX_BARRIERS;
}

static void known_join(uint32_t *to, const uint32_t *from)
{
    for (int v = 0; v < MAX_WARPS; v++)
        to[v] = from[v] > to[v] ? from[v] : to[v];
}

/* The warp has reached w->barrier. False: a wrong count, or warps that cannot come. (Hardware since Volta lets those be that have
 * exited; a kernel that relies on it is more likely wrong.) */
static bool barrier_arrive(Block *b, Warp *w)
{
    const Insn *i = w->barrier;
    Barrier *r = &b->barriers[barrier_number(w)];
    uint32_t threads = barrier_operand(w, 2);
    if (threads % LANES != 0 || (r->arrived > 0 && r->expected != threads))
        return fault(w, i, first_lane(w->live), VM_BAD_SYNC, 0, "barrier %u: %u threads, where others say %u or warps are meant",
                     barrier_number(w), threads, r->expected);
    for (int v = 0; v < b->n_warps && threads == 0; v++)
        if (b->warps[v].live == 0)
            return fault(w, i, first_lane(w->live), VM_BAD_SYNC, 0, "a barrier of the whole block, of which warp %d has exited",
                         v);
    r->arrived += LANES;
    r->expected = threads;
    w->known[w->id] = w->time++;
    known_join(r->known, w->known);
    if (i->variant >= BARRIER_POPC) {
        uint32_t p = *REG(uint32_t, 3);
        p = (i->negate ? ~p : p) & w->live;
        r->sum += i->variant == BARRIER_AND ? p != w->live : (uint32_t)__builtin_popcount(p);
    }
    if (i->variant == BARRIER_ARRIVE)
        w->barrier = NULL;
    return true;
}

/* Lets a warp go on, with the result of bar.red. */
static void barrier_leave(Warp *w, const Barrier *r)
{
    const Insn *i = w->barrier;
    w->mask = w->live;
    if (i->variant == BARRIER_POPC) {
        uint32_t *out = REG(uint32_t, 0);
        EACH_ON (l)
            out[l] = r->sum;
    } else if (i->variant > BARRIER_POPC) {
        bool holds = i->variant == BARRIER_AND ? r->sum == 0 : r->sum != 0;
        uint32_t *out = REG(uint32_t, 0);
        *out = (*out & ~w->mask) | (holds ? w->mask : 0);
    }
    known_join(w->known, r->known);
    w->barrier = NULL;
}

/* All warps must wait at the same instruction of a barrier for the whole block. */
static bool barrier_same_place(Block *b, uint32_t number)
{
    const Insn *first = NULL;
    for (Warp *w = b->warps; w < b->warps + b->n_warps; w++) {
        if (w->barrier == NULL || barrier_number(w) != number)
            continue;
        if (first != NULL && w->barrier != first)
            return fault(w, w->barrier, first_lane(w->live), VM_BAD_SYNC, 0, "divergent barrier: other warps wait at PTX line %d",
                         b->kernel->text[first - b->kernel->code].line);
        first = w->barrier;
    }
    return true;
}

/* Opens the barriers at which all have arrived. False after a fault. */
static bool barriers_open(Block *b)
{
    uint32_t threads = 0;
    for (int v = 0; v < b->n_warps; v++)
        threads += b->warps[v].live ? LANES : 0;
    for (uint32_t n = 0; n < MAX_BARRIERS; n++) {
        Barrier *r = &b->barriers[n];
        if (r->arrived == 0 || r->arrived < (r->expected ? r->expected : threads))
            continue;
        if (r->expected == 0 && !barrier_same_place(b, n))
            return false;
        b->barriers_done++;
        for (Warp *w = b->warps; w < b->warps + b->n_warps; w++)
            if (w->barrier != NULL && barrier_number(w) == n)
                barrier_leave(w, r);
        memset(r, 0, sizeof *r);
    }
    return true;
}

/* ---- Running ------------------------------------------------------------------------------------------------------- */

/* The warp whose turn it is after `last` (-1: the first), and for how many instructions. NULL: none can run. */
static Warp *warp_choose(Block *b, int last, uint64_t *budget)
{
    enum { LONG_SLICE = 20000, SHORT_SLICE = 16, MEDIUM_SLICE = 400 };
    const VmOptions *o = &b->launch->vm->options;
    Warp *ready[MAX_WARPS];
    int n = 0;
    for (int k = 0; k < b->n_warps; k++) {
        int v = o->order == VM_REVERSE ? b->n_warps - 1 - k : k;
        if (b->warps[v].live && b->warps[v].barrier == NULL)
            ready[n++] = &b->warps[v];
    }
    *budget = LONG_SLICE;
    if (n == 0)
        return NULL;
    if (o->order == VM_RANDOM) {
        *budget = 1 + block_random(b) % (block_random(b) & 1 ? SHORT_SLICE : MEDIUM_SLICE);
        return ready[block_random(b) % (uint64_t)n];
    }
    for (int k = 0; k < n && last >= 0; k++) /* round robin among those that spin */
        if (o->order == VM_REVERSE ? ready[k]->id < last : ready[k]->id > last)
            return ready[k];
    return ready[0];
}

/* A warp has ended: nothing may be left under way, and nobody may wait for it. */
static bool warp_finish(Block *b, Warp *w)
{
    const VmKernel *k = b->kernel;
    if (w->n_copies > 0)
        return fault(w, w->copies[0].insn, w->copies[0].lane, VM_BAD_SYNC, 0,
                     "the warp exits with a cp.async that nobody waited for");
    for (uint32_t n = 0; n < MAX_BARRIERS; n++)
        if (b->barriers[n].arrived > 0 && b->barriers[n].expected == 0)
            return fault(w, &k->code[w->pc - 1], 0, VM_BAD_SYNC, 0, "a warp has exited while others wait at barrier %u", n);
    return barriers_open(b);
}

static bool deadlock(Block *b)
{
    for (Warp *w = b->warps; w < b->warps + b->n_warps; w++)
        if (w->live)
            fault(w, w->barrier, first_lane(w->live), VM_BAD_SYNC, 0, "deadlock: a barrier that will never be complete");
    return false;
}

/* An endless loop, or more synchronisations than stamps can tell apart? */
static bool warp_patience(const Block *b, Warp *w)
{
    uint64_t most = b->launch->vm->options.max_steps;
    const Insn *at = &b->kernel->code[w->pc];
    if (w->steps > most)
        return fault(w, at, first_lane(w->live), VM_ENDLESS, 0,
                     "a warp has run more than %llu instructions: is it an endless loop?", (unsigned long long)most);
    if (w->time >= MAX_TIME)
        return fault(w, at, first_lane(w->live), VM_ENDLESS, 0, "the lanes of a warp have waited for each other %d times",
                     MAX_TIME);
    return true;
}

/* Gives one warp its turn. False: the block is done, or at fault. */
static bool block_step(Block *b, int *last)
{
    uint64_t budget;
    Warp *w = warp_choose(b, *last, &budget);
    if (w == NULL) {
        for (int v = 0; v < b->n_warps; v++)
            if (b->warps[v].live)
                return deadlock(b);
        return false;
    }
    RunEnd end = warp_run(w, budget);
    *last = end == RUN_SLICE ? w->id : -1;
    switch (end) {
    case RUN_DONE:
        return warp_finish(b, w);
    case RUN_BARRIER:
        return warp_patience(b, w) && barrier_arrive(b, w) && barriers_open(b);
    case RUN_SLICE:
        return warp_patience(b, w);
    default:
        return false;
    }
}

void block_run(Block *b)
{
    int last = -1;
    block_begin(b);
    while (block_step(b, &last))
        ;
}
