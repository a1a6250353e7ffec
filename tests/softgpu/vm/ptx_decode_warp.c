/* Instructions of a whole warp or block: shfl, vote, match, redux, barriers, mma. */
#include "tests/softgpu/vm/ptx_parse.h"

#include <string.h>

/* Which of the names the opcode has; -1: none. */
static int which(const Decoder *d, const char *const *names, int n)
{
    for (int k = 0; k < n; k++)
        if (has(d, names[k]))
            return k;
    return -1;
}

/* The last operand is the member mask: the lanes it names meet here. */
static void add_member_mask(Decoder *d, const Operand *o)
{
    d->i->flow = FLOW_SYNC;
    d->i->mask_operand = d->i->n_operands;
    add_in(d, o, 4);
}

/* shfl.sync.bfly.b32 d|p, a, b, c, mask; variant: up, down, bfly, idx */
static void decode_shfl(Decoder *d)
{
    static const char *const names[] = {"up", "down", "bfly", "idx"};
    int mode = which(d, names, 4);
    const Operand *o = d->operands;
    if (mode < 0 || d->n != 5) {
        unknown(d);
        return;
    }
    d->i->variant = (uint8_t)mode;
    Operand second = {.kind = o[0].second >= 0 ? OPERAND_REGISTER : OPERAND_SINK, .reg = o[0].second};
    add_out(d, &o[0], 4);
    add_out(d, &second, 0);
    for (int k = 1; k <= 3; k++)
        add_in(d, &o[k], 4);
    add_member_mask(d, &o[4]);
    set_op(d, "shfl", VM_WARP);
}

/* vote.sync.ballot.b32 d, p, mask; variant: all, any, uni; ballot has an op of its own. negate: of p */
static void decode_vote(Decoder *d)
{
    static const char *const names[] = {"all", "any", "uni", "ballot"};
    int mode = which(d, names, 4);
    if (mode < 0 || d->n != 3) {
        unknown(d);
        return;
    }
    d->i->variant = (uint8_t)mode;
    d->i->negate = d->operands[1].negated;
    add_out(d, &d->operands[0], mode == 3 ? 4 : 0);
    add_in(d, &d->operands[1], 0);
    add_member_mask(d, &d->operands[2]);
    set_op(d, mode == 3 ? "vote.ballot" : "vote", VM_WARP);
}

static void decode_match(Decoder *d)
{
    if (!has(d, "any") || type_bytes(type_name(d)) != 4 || d->n != 3) {
        unknown(d);
        return;
    }
    add_out(d, &d->operands[0], 4);
    add_in(d, &d->operands[1], 4);
    add_member_mask(d, &d->operands[2]);
    set_op(d, "match.any", VM_WARP);
}

/* redux.sync.add.s32 d, a, mask; variant: add, and, or, xor, min, max; negate: signed */
static void decode_redux(Decoder *d)
{
    static const char *const names[] = {"add", "and", "or", "xor", "min", "max"};
    int mode = which(d, names, 6);
    if (mode < 0 || type_bytes(type_name(d)) != 4 || type_name(d)[0] == 'f' || d->n != 3) {
        unknown(d);
        return;
    }
    d->i->variant = (uint8_t)mode;
    d->i->negate = type_name(d)[0] == 's';
    add_out(d, &d->operands[0], 4);
    add_in(d, &d->operands[1], 4);
    add_member_mask(d, &d->operands[2]);
    set_op(d, "redux", VM_WARP);
}

static void decode_activemask(Decoder *d)
{
    add_out(d, &d->operands[0], 4);
    set_op(d, "activemask", VM_WARP);
}

/* elect.sync d|p, mask */
static void decode_elect(Decoder *d)
{
    const Operand *o = d->operands;
    Operand second = {.kind = o[0].second >= 0 ? OPERAND_REGISTER : OPERAND_SINK, .reg = o[0].second};
    add_out(d, &o[0], 4);
    add_out(d, &second, 0);
    add_member_mask(d, &o[1]);
    set_op(d, "elect", VM_WARP);
}

/* bar.sync 0; bar.sync 1, 64; bar.arrive; bar.red.popc.u32 d, 0, p; bar.warp.sync mask.
 * Of the block: operands (d), barrier, threads (0: all), (p). variant: Barrier kinds of block.c. negate: of p */
static void decode_bar(Decoder *d)
{
    if (has(d, "warp")) {
        add_member_mask(d, &d->operands[0]);
        set_op(d, "warp.sync", VM_CONTROL);
        return;
    }
    static const char *const names[] = {"popc", "and", "or"};
    bool reduces = has(d, "red");
    int reduction = which(d, names, 3);
    int kind = reduces ? BARRIER_POPC + reduction : has(d, "arrive") ? BARRIER_ARRIVE : BARRIER_SYNC;
    int at = reduces, inputs = d->n - at - reduces;
    const Operand zero = {.kind = OPERAND_INTEGER};
    if ((reduces && reduction < 0) || inputs < 1 || inputs > 2) {
        unknown(d);
        return;
    }
    d->i->flow = FLOW_BARRIER;
    d->i->variant = (uint8_t)kind;
    const Operand sink = {.kind = OPERAND_SINK};
    add_out(d, reduces ? &d->operands[0] : &sink, kind == BARRIER_AND || kind == BARRIER_OR ? 0 : 4);
    add_in(d, &d->operands[at], 4);
    add_in(d, inputs == 2 ? &d->operands[at + 1] : &zero, 4);
    if (reduces) {
        d->i->negate = d->operands[d->n - 1].negated;
        add_in(d, &d->operands[d->n - 1], 0);
    } else {
        add_register(d, REGISTER_TRUE);
    }
    set_op(d, "nothing", VM_CONTROL);
}

/* mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 d, a, b, c; see ops_tensor.c for the forms */
static void decode_mma(Decoder *d)
{
    static const struct {
        const char *shape, *type, *op;
        int a, b, flops; /* registers of A and B */
    } forms[] = {{"m16n8k16", "bf16", "mma.k16.bf16", 4, 2, 4096}, {"m16n8k16", "f16", "mma.k16.f16", 4, 2, 4096},
                 {"m16n8k8", "bf16", "mma.k8.bf16", 2, 1, 2048},   {"m16n8k8", "f16", "mma.k8.f16", 2, 1, 2048},
                 {"m16n8k8", "tf32", "mma.k8.tf32", 4, 2, 2048},   {"m16n8k4", "tf32", "mma.k4.tf32", 2, 1, 1024}};
    enum { N_FORMS = sizeof forms / sizeof *forms };
    int f = 0;
    while (f < N_FORMS && !(has(d, forms[f].shape) && has(d, forms[f].type)))
        f++;
    if (f == N_FORMS || !has(d, "row") || !has(d, "col") || strcmp(type_name(d), "f32") != 0 || d->n != 4 ||
        strcmp(d->part[d->n_parts - 4], "f32") != 0) {
        unknown(d);
        return;
    }
    d->i->flow = FLOW_WARP;
    d->t->flops = forms[f].flops;
    add_vector_out(d, &d->operands[0], 4, 4);
    add_vector_in(d, &d->operands[1], forms[f].a, 4);
    add_vector_in(d, &d->operands[2], forms[f].b, 4);
    add_vector_in(d, &d->operands[3], 4, 4);
    set_op(d, forms[f].op, VM_TENSOR);
}

bool decode_warp(Decoder *d)
{
    static const struct {
        const char *mnemonic;
        void (*decode)(Decoder *d);
    } table[] = {{"shfl", decode_shfl},  {"vote", decode_vote},   {"match", decode_match}, {"redux", decode_redux},
                 {"bar", decode_bar},    {"barrier", decode_bar}, {"mma", decode_mma},     {"activemask", decode_activemask},
                 {"elect", decode_elect}};
    for (size_t k = 0; k < sizeof table / sizeof *table; k++)
        if (strcmp(d->part[0], table[k].mnemonic) == 0) {
            table[k].decode(d);
            return true;
        }
    return false;
}
