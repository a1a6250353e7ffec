/* Register allocation. A kernel's text uses each virtual register once or twice; given a slot each, a warp's registers would be
 * hundreds of kilobytes. So registers share slots when they are never live together: live ranges by data flow over basic blocks,
 * then a linear scan over the text. A warp's registers then fit the processor's first cache, and the most that are live at once
 * is what ptxas starts from.
 *
 * Lanes never disturb each other: a slot is 32 columns, and a lane that follows another path writes its own column only. A
 * guarded write does not end a life, since the old value stays where the guard is false. */
#include <stdlib.h>
#include <string.h>

#include "tests/softgpu/vm/machine.h"

typedef struct BasicBlock {
    int begin, end;         /* of its instructions                           */
    int next[2];            /* the blocks that may follow, or -1             */
    uint64_t *use, *define; /* bit sets of registers: read before written; certainly written */
    uint64_t *in, *out;     /* live at the beginning; at the end             */
} BasicBlock;

typedef struct Flowgraph {
    const VmKernel *kernel;
    BasicBlock *blocks;
    int n_blocks;
    int words; /* of a bit set */
    uint64_t *bits;
} Flowgraph;

static void bit_set(uint64_t *set, int r)
{
    set[r / 64] |= 1ull << r % 64;
}

static bool bit(const uint64_t *set, int r)
{
    return set[r / 64] >> r % 64 & 1;
}

static bool guarded(const Insn *i)
{
    return i->guard != REGISTER_TRUE;
}

static void use(BasicBlock *b, int r)
{
    if (!bit(b->define, r))
        bit_set(b->use, r);
}

static void block_scan(BasicBlock *b, const Insn *code)
{
    for (const Insn *i = code + b->begin; i < code + b->end; i++) {
        use(b, i->guard);
        for (int k = i->n_out; k < i->n_operands; k++)
            use(b, i->operand[k]);
        for (int k = 0; k < i->n_out && !guarded(i); k++)
            bit_set(b->define, i->operand[k]);
    }
}

/* Basic blocks begin at the first instruction, at targets and behind branches and exits. block_of: of each instruction. */
static void blocks_find(Flowgraph *f, int *block_of)
{
    const VmKernel *k = f->kernel;
    int n = k->n_code;
    uint8_t *leader = host_get((size_t)n + 1, 1);
    leader[0] = 1;
    for (int i = 0; i < n; i++) {
        if (k->code[i].flow == FLOW_BRANCH)
            leader[k->code[i].target] = 1;
        if (k->code[i].flow == FLOW_BRANCH || k->code[i].flow == FLOW_EXIT)
            leader[i + 1] = 1;
    }
    for (int i = 0; i < n; i++)
        f->n_blocks += leader[i];
    f->blocks = host_get((size_t)f->n_blocks, sizeof *f->blocks);
    int b = -1;
    for (int i = 0; i < n; i++) {
        if (leader[i])
            f->blocks[++b].begin = i;
        f->blocks[b].end = i + 1;
        block_of[i] = b;
    }
    free(leader);
}

static void graph_build(Flowgraph *f)
{
    const VmKernel *k = f->kernel;
    int *block_of = host_get((size_t)k->n_code, sizeof *block_of);
    blocks_find(f, block_of);
    f->words = (k->n_registers + 63) / 64;
    f->bits = host_get((size_t)f->n_blocks * (size_t)f->words * 4, sizeof *f->bits);
    for (int b = 0; b < f->n_blocks; b++) {
        BasicBlock *block = &f->blocks[b];
        const Insn *last = &k->code[block->end - 1];
        bool falls_through = (last->flow != FLOW_BRANCH && last->flow != FLOW_EXIT) || guarded(last);
        block->next[0] = falls_through && b + 1 < f->n_blocks ? b + 1 : -1;
        block->next[1] = last->flow == FLOW_BRANCH ? block_of[last->target] : -1;
        uint64_t *bits = f->bits + (size_t)b * (size_t)f->words * 4;
        block->use = bits;
        block->define = bits + f->words;
        block->in = bits + 2 * f->words;
        block->out = bits + 3 * f->words;
        block_scan(block, k->code);
    }
    free(block_of);
}

/* in = use | (out & ~define), out = the union of what follows: repeated until nothing changes. */
static void graph_solve(Flowgraph *f)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (int b = f->n_blocks - 1; b >= 0; b--) {
            BasicBlock *block = &f->blocks[b];
            for (int q = 0; q < f->words; q++) {
                for (int n = 0; n < 2; n++)
                    if (block->next[n] >= 0)
                        block->out[q] |= f->blocks[block->next[n]].in[q];
                uint64_t in = block->use[q] | (block->out[q] & ~block->define[q]);
                changed |= in != block->in[q];
                block->in[q] = in;
            }
        }
    }
}

/* The life of a register as one range of times; instruction i reads at time 2i and writes at 2i + 1. */
typedef struct Life {
    int begin, end;           /* end < begin: never used */
    int next_begin, next_end; /* others that begin, end at the same time: lists by register number, -1 ends */
} Life;

static void extend(Life *l, int time)
{
    if (l->end < l->begin || time < l->begin)
        l->begin = time;
    if (time > l->end)
        l->end = time;
}

static void lives_find(const Flowgraph *f, Life *lives)
{
    const VmKernel *k = f->kernel;
    for (int r = 0; r < k->n_registers; r++)
        lives[r] = (Life){0, -1, -1, -1};
    for (const BasicBlock *b = f->blocks; b < f->blocks + f->n_blocks; b++) {
        for (int r = 0; r < k->n_registers; r++) {
            if (bit(b->in, r))
                extend(&lives[r], 2 * b->begin);
            if (bit(b->out, r))
                extend(&lives[r], 2 * b->end);
        }
        for (int n = b->begin; n < b->end; n++) {
            const Insn *i = &k->code[n];
            extend(&lives[i->guard], 2 * n);
            for (int o = 0; o < i->n_operands; o++)
                extend(&lives[i->operand[o]], 2 * n + (o < i->n_out));
        }
    }
}

static int slots_of(const Register *r)
{
    return r->size == 0 ? 1 : r->size / 2;
}

/* Free slots by size: an array used as a stack for each of 1, 2 and 4. */
typedef struct FreeSlots {
    int *slots[5];
    int n[5];
} FreeSlots;

/* Walks through time, gives a slot to what begins and takes it back from what has ended. Returns the slots in use; sets the most
 * 32-bit registers alive at once. */
static int slots_assign(VmKernel *k, Life *lives, int top)
{
    int times = 2 * k->n_code + 2, live = 0, most = 0;
    int *begins = host_get((size_t)times, sizeof *begins), *ends = host_get((size_t)times, sizeof *ends);
    memset(begins, -1, (size_t)times * sizeof *begins);
    memset(ends, -1, (size_t)times * sizeof *ends);
    for (int r = 0; r < k->n_registers; r++) {
        if (k->registers[r].kind != REGISTER_VARIABLE || lives[r].end < lives[r].begin)
            continue;
        lives[r].next_begin = begins[lives[r].begin];
        begins[lives[r].begin] = r;
        lives[r].next_end = ends[lives[r].end];
        ends[lives[r].end] = r;
    }
    FreeSlots unused = {0};
    for (int s = 1; s <= 4; s *= 2)
        unused.slots[s] = host_get((size_t)k->n_registers + 1, sizeof(int));
    for (int t = 0; t < times; t++) {
        for (int r = begins[t]; r >= 0; r = lives[r].next_begin) {
            int s = slots_of(&k->registers[r]);
            k->registers[r].slot = unused.n[s] > 0 ? unused.slots[s][--unused.n[s]] : top;
            if (k->registers[r].slot == top)
                top += s;
            live += s / 2;
        }
        most = live > most ? live : most;
        for (int r = ends[t]; r >= 0; r = lives[r].next_end) {
            int s = slots_of(&k->registers[r]);
            unused.slots[s][unused.n[s]++] = k->registers[r].slot;
            live -= s / 2;
        }
    }
    k->info.registers = (uint32_t)most;
    for (int s = 1; s <= 4; s *= 2)
        free(unused.slots[s]);
    free(begins);
    free(ends);
    return top;
}

/* Constants and special registers keep their slots for the whole kernel: they are filled once. */
static int slots_fixed(VmKernel *k)
{
    int top = 0;
    for (Register *r = k->registers; r < k->registers + k->n_registers; r++)
        if (r->kind != REGISTER_VARIABLE) {
            r->slot = top;
            top += slots_of(r);
        }
    return top;
}

bool kernel_place_registers(VmKernel *k)
{
    Flowgraph f = {.kernel = k};
    graph_build(&f);
    graph_solve(&f);
    Life *lives = host_get((size_t)k->n_registers, sizeof *lives);
    lives_find(&f, lives);
    int top = slots_assign(k, lives, slots_fixed(k));
    free(lives);
    free(f.blocks);
    free(f.bits);
    if (top > UINT16_MAX)
        return false;
    k->register_bytes = (uint32_t)top * SLOT_BYTES;
    for (Insn *i = k->code; i < k->code + k->n_code; i++) {
        i->guard = (uint16_t)k->registers[i->guard].slot;
        for (int o = 0; o < i->n_operands; o++)
            i->operand[o] = (uint16_t)k->registers[i->operand[o]].slot;
    }
    return true;
}
