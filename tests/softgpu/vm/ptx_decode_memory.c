/* Loads, stores, atomics, ldmatrix, cp.async and fences. Each fills in what the ops of ops_memory.c read: space, width of an
 * element, count of elements, width of the registers, and which operand is the address. */
#include "tests/softgpu/vm/ptx_parse.h"

#include <string.h>

static int vector_count(const Decoder *d)
{
    return has(d, "v4") ? 4 : has(d, "v2") ? 2 : has(d, "v8") ? 8 : 1;
}

/* Bytes of the register or the vector's registers; constants take what the type needs. */
static int data_register_size(const Decoder *d, const Operand *o, int width)
{
    const Operand *first = o->kind == OPERAND_VECTOR ? &o->parts[0] : o;
    if (first->kind == OPERAND_REGISTER)
        return d->p->kernel->registers[first->reg].size;
    return width < 4 ? 4 : width;
}

/* The element and the vector of ld and st. False when the type is unknown or the vector longer than 16 bytes. */
static bool element_read(Decoder *d, const Operand *data)
{
    int width = type_bytes(type_name(d)), count = vector_count(d);
    if (width <= 0 || width * count > 16) {
        unknown(d);
        return false;
    }
    d->i->width = (uint8_t)width;
    d->i->count = (uint8_t)count;
    d->i->reg_width = (uint8_t)data_register_size(d, data, width);
    if (d->i->reg_width < width)
        unknown(d);
    return d->p->error == NULL;
}

static VmClass class_of(Space space, VmClass global, VmClass shared)
{
    return space == SPACE_SHARED ? shared : space == SPACE_LOCAL ? VM_LOCAL : global;
}

/* ld.param: the offset is nearly always constant; then imm is all of it. */
static void decode_ld_param(Decoder *d)
{
    const Register *base = &d->p->kernel->registers[d->i->operand[d->i->base]];
    bool fixed = base->kind == REGISTER_CONSTANT;
    if (fixed) {
        d->i->imm += (int64_t)base->value;
        int64_t end = d->i->imm + d->i->width * d->i->count;
        if (d->i->imm < 0 || end > d->p->kernel->info.param_bytes)
            parse_error(d->p, "beyond the parameters: %s", d->t->text);
    }
    set_op(d, fixed ? "ld.param" : "ld.param.indexed", VM_MOVE);
}

/* ld.param and st.param of a call's .param variable: a move between registers. False: it is another load or store. */
static bool decode_param_move(Decoder *d, const Operand *address, const Operand *data, bool load)
{
    const Register *r = d->p->kernel->registers;
    if (address->kind != OPERAND_ADDRESS || address->reg < 0 || !r[address->reg].is_param)
        return false;
    const Operand variable = {.kind = OPERAND_REGISTER, .reg = address->reg};
    int size = r[address->reg].size;
    if (address->number != 0 || vector_count(d) != 1)
        unknown(d);
    add_out(d, load ? data : &variable, size);
    add_in(d, load ? &variable : data, size);
    set_op(d, size == 8 ? "mov.b64" : "mov.b32", VM_MOVE);
    return true;
}

/* ld.global.v4.f32 {...}, [a]; variant 1: the value is sign-extended */
static void decode_ld(Decoder *d)
{
    if (decode_param_move(d, &d->operands[1], &d->operands[0], true))
        return;
    if (!element_read(d, &d->operands[0]))
        return;
    d->i->space = (uint8_t)space_of(d);
    d->i->variant = type_name(d)[0] == 's';
    add_vector_out(d, &d->operands[0], d->i->count, d->i->reg_width);
    add_address(d, &d->operands[1]);
    if (d->i->space == SPACE_PARAM)
        decode_ld_param(d);
    else
        set_op(d, "ld", class_of(d->i->space, VM_LOAD_GLOBAL, VM_LOAD_SHARED));
}

static void decode_st(Decoder *d)
{
    if (decode_param_move(d, &d->operands[0], &d->operands[1], false))
        return;
    if (!element_read(d, &d->operands[1]))
        return;
    d->i->space = (uint8_t)space_of(d);
    add_address(d, &d->operands[0]);
    add_vector_in(d, &d->operands[1], d->i->count, d->i->reg_width);
    if (d->i->space == SPACE_PARAM)
        unknown(d);
    else
        set_op(d, "st", class_of(d->i->space, VM_STORE_GLOBAL, VM_STORE_SHARED));
}

/* atom.global.add.f32 d, [a], b (, c); red has no d. variant: which operation; negate: release and acquire around it */
static void decode_atom(Decoder *d)
{
    static const char *const names[] = {"add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"};
    const char *type = type_name(d);
    int width = type_bytes(type), op = -1, at = strcmp(d->part[0], "atom") == 0;
    for (int k = 0; k < 10; k++)
        if (has(d, names[k]))
            op = k;
    bool is_float = strcmp(type, "f32") == 0 || strcmp(type, "f64") == 0;
    if (op < 0 || width < 4 || strstr(type, "x2") != NULL || (is_float && op != 0)) {
        unknown(d);
        return;
    }
    d->i->space = (uint8_t)space_of(d);
    d->i->width = (uint8_t)width;
    d->i->variant = (uint8_t)op;
    d->i->negate = has(d, "acq_rel") || has(d, "release");
    const Operand sink = {.kind = OPERAND_SINK};
    add_out(d, at ? &d->operands[0] : &sink, width);
    add_address(d, &d->operands[at]);
    add_in(d, &d->operands[at + 1], width);
    if (strcmp(names[op], "cas") == 0)
        add_in(d, &d->operands[at + 2], width);
    else
        add_constant(d, width, 0);
    set_op(d, is_float ? "atom.float" : type[0] == 's' ? "atom.signed" : "atom.unsigned", VM_ATOMIC);
}

/* ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {...}, [a]; variant 1: transposed */
static void decode_ldmatrix(Decoder *d)
{
    if (!has(d, "m8n8") || !has(d, "b16")) {
        unknown(d);
        return;
    }
    Insn *i = d->i;
    i->flow = FLOW_WARP;
    i->space = (uint8_t)space_of(d);
    i->count = has(d, "x4") ? 4 : has(d, "x2") ? 2 : 1;
    i->width = 16;
    i->variant = has(d, "trans");
    add_vector_out(d, &d->operands[0], i->count, 4);
    add_address(d, &d->operands[1]);
    set_op(d, "ldmatrix", VM_LOAD_SHARED);
}

/* cp.async.cg.shared.global [to], [from], 16 (, source bytes): operands to, from, source bytes; imm is to's constant part, and
 * from's is a fourth operand */
static void decode_copy(Decoder *d)
{
    Insn *i = d->i;
    const Operand *bytes = &d->operands[2];
    if (d->n < 3 || bytes->kind != OPERAND_INTEGER || (bytes->number != 4 && bytes->number != 8 && bytes->number != 16)) {
        unknown(d);
        return;
    }
    i->width = (uint8_t)bytes->number;
    i->space = SPACE_SHARED;
    add_address(d, &d->operands[0]);
    int64_t to = i->imm;
    uint8_t to_width = i->base_width;
    i->space = SPACE_GLOBAL;
    add_address(d, &d->operands[1]);
    if (i->base_width != 8)
        unknown(d);
    if (d->n > 3)
        add_in(d, &d->operands[3], 4);
    else
        add_constant(d, 4, i->width);
    add_constant(d, 8, (uint64_t)i->imm);
    i->base = 0;
    i->base_width = to_width;
    i->imm = to;
    set_op(d, "cp.async", VM_COPY_ASYNC);
}

/* cp.async.wait_group N: imm; variant 1: wait_all */
static void decode_cp(Decoder *d)
{
    if (!has(d, "async") || has(d, "bulk") || has(d, "mbarrier")) {
        unknown(d);
    } else if (has(d, "commit_group")) {
        set_op(d, "cp.async.commit", VM_COPY_ASYNC);
    } else if (has(d, "wait_all") || has(d, "wait_group")) {
        d->i->variant = has(d, "wait_all");
        d->i->imm = d->n ? d->operands[0].number : 0;
        if (has(d, "wait_group") && (d->n != 1 || d->operands[0].kind != OPERAND_INTEGER))
            unknown(d);
        set_op(d, "cp.async.wait", VM_COPY_ASYNC);
    } else {
        decode_copy(d);
    }
}

/* membar.gl, fence.acq_rel.gpu; variant 1: beyond the block */
static void decode_fence(Decoder *d)
{
    d->i->variant = !has(d, "cta");
    set_op(d, "fence", VM_CONTROL);
}

bool decode_memory(Decoder *d)
{
    static const struct {
        const char *mnemonic;
        void (*decode)(Decoder *d);
    } table[] = {{"ld", decode_ld},     {"ldu", decode_ld},       {"st", decode_st},
                 {"atom", decode_atom}, {"red", decode_atom},     {"ldmatrix", decode_ldmatrix},
                 {"cp", decode_cp},     {"membar", decode_fence}, {"fence", decode_fence}};
    for (size_t k = 0; k < sizeof table / sizeof *table; k++)
        if (strcmp(d->part[0], table[k].mnemonic) == 0) {
            table[k].decode(d);
            return true;
        }
    return false;
}
