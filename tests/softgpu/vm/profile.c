/* What a launch did, counted: the questions that a profiler on a card answers, without one.
 *
 * Global memory moves in sectors of 32 bytes: a request costs as many as its lanes touch, however few bytes they want of each.
 * Shared memory has 32 banks of 4 bytes: lanes that want different words of one bank take turns. A request of 8 (16) bytes a lane
 * goes in two (four) phases of half (a quarter) of the lanes. */
#include "tests/softgpu/vm/profile.h"

#include <string.h>

typedef unsigned long long ull; /* for printf */

enum { BANKS = 32, BANK_BYTES = 4 };

/* ---- While it runs ------------------------------------------------------------------------------------------------- */

static VmTraffic *traffic(Warp *w, const Insn *i)
{
    return &w->block->counters[i - w->block->kernel->code].traffic;
}

/* Adds x to the n ascending numbers unless it is there. Returns how many there are. */
static int set_add(uint64_t *set, int n, uint64_t x)
{
    int at = n;
    while (at > 0 && set[at - 1] > x)
        at--;
    if (at > 0 && set[at - 1] == x)
        return n;
    memmove(&set[at + 1], &set[at], (size_t)(n - at) * sizeof *set);
    set[at] = x;
    return n + 1;
}

/* Several threads may touch the same allocation at once. */
static void sector_touch(Warp *w, uint64_t address, bool writes)
{
    Block *b = w->block;
    const Allocation *a = b->last;
    if (a == NULL || address < a->begin || address >= a->end)
        a = allocation_find(b->launch->vm, address);
    Touched *t = writes ? a->write : a->read;
    uint64_t s = (address - a->begin) / SECTOR_BYTES, first = __atomic_load_n(&t->first, __ATOMIC_RELAXED);
    uint64_t last = __atomic_load_n(&t->last, __ATOMIC_RELAXED);
    __atomic_store_n(&t->sectors[s], 1, __ATOMIC_RELAXED);
    while (s < first && !__atomic_compare_exchange_n(&t->first, &first, s, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
    while (s > last && !__atomic_compare_exchange_n(&t->last, &last, s, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

void count_global(Warp *w, const Insn *i, const uint64_t *address, int bytes, bool writes)
{
    uint64_t sectors[LANES + 1];
    int n = 0;
    EACH_ON (l) {
        n = set_add(sectors, n, address[l] / SECTOR_BYTES);
        sector_touch(w, address[l], writes);
    }
    uint64_t total = (uint64_t)__builtin_popcount(w->mask) * (uint64_t)bytes;
    VmTraffic *t = traffic(w, i);
    t->requests++;
    t->bytes += total;
    t->sectors += (uint64_t)n;
    t->ideal_sectors += (total + SECTOR_BYTES - 1) / SECTOR_BYTES;
}

/* The most different words that lanes first..last-1 want of one bank: how many turns they take. */
static int bank_depth(const Warp *w, const uint64_t *offset, int first, int last, int words)
{
    uint64_t wanted[BANKS][LANES + 1];
    int n[BANKS] = {0}, most = 0;
    for (int l = first; l < last; l++)
        for (int q = 0; q < words && (w->mask >> l & 1); q++) {
            uint64_t word = offset[l] / BANK_BYTES + (uint64_t)q;
            int bank = (int)(word % BANKS);
            if (n[bank] == 0 || wanted[bank][n[bank] - 1] != word)
                n[bank] = set_add(wanted[bank], n[bank], word);
            most = n[bank] > most ? n[bank] : most;
        }
    return most;
}

void count_banks(Warp *w, const Insn *i, const uint64_t *offset, int bytes)
{
    int words = bytes <= BANK_BYTES ? 1 : bytes / BANK_BYTES, lanes = LANES / words;
    VmTraffic *t = traffic(w, i);
    for (int l = 0; l < LANES; l += lanes) {
        int depth = bank_depth(w, offset, l, l + lanes, words);
        t->phases += depth > 0;
        t->conflicts += depth > 0 ? (uint64_t)depth - 1 : 0;
    }
}

void count_shared(Warp *w, const Insn *i, const uint64_t *offset, int bytes)
{
    VmTraffic *t = traffic(w, i);
    count_banks(w, i, offset, bytes);
    t->requests++;
    t->bytes += (uint64_t)__builtin_popcount(w->mask) * (uint64_t)bytes;
}

/* ---- Before and after ---------------------------------------------------------------------------------------------- */

static void touched_forget(Touched *t)
{
    if (t != NULL && t->first <= t->last)
        memset(t->sectors + t->first, 0, t->last - t->first + 1);
    if (t != NULL)
        *t = (Touched){.first = UINT64_MAX};
}

void profile_begin(Launch *launch)
{
    VmKernel *k = launch->kernel;
    const Vm *vm = launch->vm;
    memset(k->counters, 0, (size_t)k->n_code * sizeof *k->counters);
    for (const Allocation *a = vm->allocations; a < vm->allocations + vm->n_allocations; a++) {
        touched_forget(a->read);
        touched_forget(a->write);
    }
}

static void traffic_add(VmTraffic *to, const VmTraffic *t)
{
    to->requests += t->requests;
    to->bytes += t->bytes;
    to->sectors += t->sectors;
    to->ideal_sectors += t->ideal_sectors;
    to->phases += t->phases;
    to->conflicts += t->conflicts;
}

static VmTraffic *traffic_of_class(VmProfile *p, VmClass class)
{
    switch (class) {
    case VM_LOAD_GLOBAL:
    case VM_ATOMIC:
        return &p->load;
    case VM_STORE_GLOBAL:
        return &p->store;
    case VM_LOAD_SHARED:
        return &p->shared_load;
    case VM_STORE_SHARED:
        return &p->shared_store;
    case VM_COPY_ASYNC:
        return &p->copy;
    default:
        return NULL;
    }
}

static uint64_t touched_count(const Touched *t)
{
    uint64_t n = 0;
    for (uint64_t s = t != NULL ? t->first : 1, last = t != NULL ? t->last : 0; s <= last; s++)
        n += t->sectors[s];
    return n;
}

void profile_end(Launch *launch)
{
    VmKernel *k = launch->kernel;
    VmProfile *p = &k->profile;
    const Vm *vm = launch->vm;
    *p = (VmProfile){.barriers = launch->barriers};
    for (const Allocation *a = vm->allocations; a < vm->allocations + vm->n_allocations; a++) {
        p->sectors_read += touched_count(a->read);
        p->sectors_written += touched_count(a->write);
    }
    for (int n = 0; n < k->n_code; n++) {
        const Counter *c = &k->counters[n];
        const InsnText *t = &k->text[n];
        p->instructions[t->class] += c->runs;
        p->lanes += c->lanes;
        if (k->code[n].flow == FLOW_BRANCH) {
            p->branches += c->runs;
            p->divergent += c->divergent;
        }
        if (t->class == VM_TENSOR)
            p->tensor_flops += c->runs * (uint64_t)t->flops;
        else
            p->flops += c->lanes * (uint64_t)t->flops;
        VmTraffic *sum = traffic_of_class(p, t->class);
        if (sum != NULL)
            traffic_add(sum, &c->traffic);
    }
}

const VmProfile *vm_profile(VmKernel *kernel)
{
    return &kernel->profile;
}

/* ---- For people ---------------------------------------------------------------------------------------------------- */

static void print_classes(FILE *out, const VmProfile *p)
{
    static const char *const names[VM_CLASSES] = {[VM_FP32] = "fp32 add/mul/fma",
                                                  [VM_FP32_OTHER] = "fp32 other",
                                                  [VM_FP64] = "fp64",
                                                  [VM_TENSOR] = "tensor",
                                                  [VM_SPECIAL] = "special function",
                                                  [VM_INTEGER] = "integer",
                                                  [VM_CONVERT] = "convert",
                                                  [VM_MOVE] = "move",
                                                  [VM_CONTROL] = "control",
                                                  [VM_WARP] = "shuffle/vote",
                                                  [VM_LOAD_GLOBAL] = "load global",
                                                  [VM_STORE_GLOBAL] = "store global",
                                                  [VM_LOAD_SHARED] = "load shared",
                                                  [VM_STORE_SHARED] = "store shared",
                                                  [VM_LOCAL] = "local",
                                                  [VM_ATOMIC] = "atomic",
                                                  [VM_COPY_ASYNC] = "cp.async"};
    uint64_t total = 0;
    for (int c = 0; c < VM_CLASSES; c++)
        total += p->instructions[c];
    fprintf(out, "  %llu warp instructions, %.2f lanes active in the mean:", (ull)total,
            total ? (double)p->lanes / (double)total : 0);
    for (int c = 0; c < VM_CLASSES; c++)
        if (p->instructions[c] > 0)
            fprintf(out, " %s %llu,", names[c], (ull)p->instructions[c]);
    fprintf(out, " %llu of %llu branches divergent, %llu barriers\n", (ull)p->divergent, (ull)p->branches, (ull)p->barriers);
}

static void print_traffic(FILE *out, const char *name, const VmTraffic *t)
{
    if (t->requests == 0)
        return;
    double requests = (double)t->requests;
    fprintf(out, "  %-13s %llu requests, %llu bytes", name, (ull)t->requests, (ull)t->bytes);
    if (t->sectors > 0)
        fprintf(out, ", %.2f sectors a request (ideal %.2f)", (double)t->sectors / requests, (double)t->ideal_sectors / requests);
    if (t->phases > 0)
        fprintf(out, ", %llu phases, %llu bank conflicts", (ull)t->phases, (ull)t->conflicts);
    fprintf(out, "\n");
}

/* A line for an instruction whose lanes touch more than twice the sectors they need, or get into each other's way. */
static void print_culprit(FILE *out, const VmKernel *k, int n)
{
    const VmTraffic *c = &k->counters[n].traffic;
    const InsnText *t = &k->text[n];
    bool scattered = c->sectors > 2 * c->ideal_sectors && c->sectors > c->requests;
    if (!scattered && c->conflicts == 0)
        return;
    fprintf(out, "  * PTX line %d: %s", t->line, t->text);
    if (scattered)
        fprintf(out, " %.2f sectors a request (ideal %.2f)", (double)c->sectors / (double)c->requests,
                (double)c->ideal_sectors / (double)c->requests);
    if (c->conflicts > 0)
        fprintf(out, " %.2f-way bank conflict", 1 + (double)c->conflicts / (double)c->phases);
    char source[512];
    source_text(k, n, source, sizeof source);
    fprintf(out, "%s\n", source);
}

void vm_profile_print(FILE *out, VmKernel *kernel)
{
    const VmProfile *p = &kernel->profile;
    fprintf(out, "%s: %u registers live at most\n", kernel->info.name, kernel->info.registers);
    print_classes(out, p);
    double bytes = (double)SECTOR_BYTES * (double)(p->sectors_read + p->sectors_written);
    fprintf(out, "  %llu FLOPs and %llu in tensor cores", (ull)p->flops, (ull)p->tensor_flops);
    if (bytes > 0)
        fprintf(out, "; touched: read %llu bytes, written %llu bytes; %.2f FLOPs a byte", (ull)(p->sectors_read * SECTOR_BYTES),
                (ull)(p->sectors_written * SECTOR_BYTES), (double)(p->flops + p->tensor_flops) / bytes);
    fprintf(out, "\n");
    print_traffic(out, "global load", &p->load);
    print_traffic(out, "global store", &p->store);
    print_traffic(out, "cp.async", &p->copy);
    print_traffic(out, "shared load", &p->shared_load);
    print_traffic(out, "shared store", &p->shared_store);
    for (int n = 0; n < kernel->n_code; n++)
        print_culprit(out, kernel, n);
}
