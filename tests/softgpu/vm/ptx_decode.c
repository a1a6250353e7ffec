/* From an instruction's text to the function that executes it.
 *
 * Most instructions are found whole in the tables of ops_*.c: their opcode, without the parts that change nothing here, is the
 * op's name, and the table says how many bytes each register has. The others have a function here, chosen by their mnemonic. */
#include "tests/softgpu/vm/ptx_parse.h"

#include <string.h>

/* ---- What the opcode says ------------------------------------------------------------------------------------------ */

static int part_find(const Decoder *d, const char *part)
{
    for (int k = 1; k < d->n_parts; k++)
        if (strcmp(d->part[k], part) == 0)
            return k;
    return 0;
}

bool has(const Decoder *d, const char *part)
{
    return part_find(d, part) > 0;
}

const char *type_name(const Decoder *d)
{
    return d->part[d->n_parts - 1];
}

static void part_remove(Decoder *d, const char *part)
{
    int k = part_find(d, part);
    if (k == 0)
        return;
    d->n_parts--;
    memmove(d->part[k], d->part[k + 1], (size_t)(d->n_parts - k) * PART_SIZE);
}

static void part_replace(Decoder *d, const char *part, const char *by)
{
    int k = part_find(d, part);
    if (k > 0)
        strcpy(d->part[k], by);
}

static void opcode_split(Decoder *d)
{
    const char *s = d->opcode;
    while (*s != 0 && d->n_parts < MAX_PARTS) {
        size_t n = strcspn(s, ".");
        if (n >= PART_SIZE)
            parse_error(d->p, "instruction not known: %s", d->opcode);
        snprintf(d->part[d->n_parts++], PART_SIZE, "%.*s", (int)n, s);
        s += n + (s[n] == '.');
    }
    if (*s != 0 || d->n_parts == 0)
        parse_error(d->p, "instruction not known: %s", d->opcode);
}

Space space_of(const Decoder *d)
{
    static const struct {
        const char *name;
        Space space;
    } spaces[] = {{"global", SPACE_GLOBAL},      {"const", SPACE_GLOBAL}, {"shared", SPACE_SHARED},
                  {"shared::cta", SPACE_SHARED}, {"local", SPACE_LOCAL},  {"param", SPACE_PARAM}};
    for (size_t k = 0; k < sizeof spaces / sizeof *spaces; k++)
        if (has(d, spaces[k].name))
            return spaces[k].space;
    return SPACE_GENERIC;
}

void unknown(Decoder *d)
{
    parse_error(d->p, "instruction not known: %s", d->t->text);
}

/* ---- Operands ------------------------------------------------------------------------------------------------------ */

void add_register(Decoder *d, int reg)
{
    if (d->i->n_operands == MAX_OPERANDS)
        parse_error(d->p, "too many operands: %s", d->t->text);
    else
        d->i->operand[d->i->n_operands++] = (uint16_t)reg;
}

void add_constant(Decoder *d, int size, uint64_t value)
{
    add_register(d, register_constant(d->p, size, value));
}

static void check_size(Decoder *d, int reg, int size)
{
    int found = d->p->kernel->registers[reg].size;
    if (found != size)
        parse_error(d->p, "a register of %d bytes where one of %d is needed: %s", found, size, d->t->text);
}

void add_out(Decoder *d, const Operand *o, int size)
{
    int reg = 0;
    if (o->kind == OPERAND_SINK)
        reg = register_new(d->p, REGISTER_VARIABLE, size, 0);
    else if (o->kind == OPERAND_REGISTER && d->p->kernel->registers[o->reg].kind == REGISTER_VARIABLE)
        reg = o->reg;
    else
        parse_error(d->p, "not a register that can be written: %s", d->t->text);
    check_size(d, reg, size);
    add_register(d, reg);
    d->i->n_out++;
}

/* The bits of a constant as a register of `size` bytes holds them: a double becomes a float where one is needed. */
static uint64_t constant_bits(const Operand *o, int size)
{
    uint64_t bits = (uint64_t)o->number;
    if (o->kind == OPERAND_DOUBLE && size == 4) {
        double wide;
        memcpy(&wide, &bits, sizeof wide);
        float narrow = (float)wide;
        bits = 0;
        memcpy(&bits, &narrow, sizeof narrow);
    }
    return bits;
}

/* The register that holds a symbol's address. */
static int symbol_register(Decoder *d, const Operand *o, int size)
{
    Place place = symbol_place(d->p, o->symbol);
    uint64_t value = place.value + (uint64_t)o->number;
    if (place.dynamic)
        return register_new(d->p, REGISTER_DYNAMIC, size, value);
    return register_constant(d->p, size, value);
}

void add_in(Decoder *d, const Operand *o, int size)
{
    switch (o->kind) {
    case OPERAND_REGISTER:
        check_size(d, o->reg, size);
        add_register(d, o->reg);
        break;
    case OPERAND_INTEGER:
    case OPERAND_FLOAT:
    case OPERAND_DOUBLE:
        add_constant(d, size, size == 0 ? (o->number ? UINT32_MAX : 0) : constant_bits(o, size));
        break;
    case OPERAND_SYMBOL:
        add_register(d, symbol_register(d, o, size));
        break;
    default:
        parse_error(d->p, "an operand that does not fit: %s", d->t->text);
    }
}

static const Operand *vector_part(Decoder *d, const Operand *o, int n, int k)
{
    if (o->kind != OPERAND_VECTOR && n == 1)
        return o;
    if (o->kind != OPERAND_VECTOR || o->n != n) {
        parse_error(d->p, "a vector of %d is needed: %s", n, d->t->text);
        return o;
    }
    return &o->parts[k];
}

void add_vector_out(Decoder *d, const Operand *o, int n, int size)
{
    for (int k = 0; k < n && d->p->error == NULL; k++)
        add_out(d, vector_part(d, o, n, k), size);
}

void add_vector_in(Decoder *d, const Operand *o, int n, int size)
{
    for (int k = 0; k < n && d->p->error == NULL; k++)
        add_in(d, vector_part(d, o, n, k), size);
}

void add_address(Decoder *d, const Operand *o)
{
    Insn *i = d->i;
    if (o->kind != OPERAND_ADDRESS) {
        parse_error(d->p, "an [address] is needed: %s", d->t->text);
        return;
    }
    i->base = i->n_operands;
    i->imm = o->number;
    if (o->reg >= 0) {
        i->base_width = d->p->kernel->registers[o->reg].size;
        if (i->base_width == 0)
            parse_error(d->p, "an address in a predicate: %s", d->t->text);
        add_register(d, o->reg);
        return;
    }
    i->base_width = 8;
    Operand symbol = *o;
    symbol.number = 0;
    if (o->symbol == NULL) {
        add_constant(d, 8, 0);
    } else {
        Place place = symbol_place(d->p, o->symbol);
        if (i->space == SPACE_GENERIC)
            i->space = (uint8_t)place.space;
        if (i->space != place.space)
            parse_error(d->p, "%s lies in another memory: %s", o->symbol, d->t->text);
        add_register(d, symbol_register(d, &symbol, 8));
    }
}

void set_op(Decoder *d, const char *name, VmClass class)
{
    const OpDef *op = op_find(name);
    if (op == NULL) {
        unknown(d);
        return;
    }
    d->i->run = op->run;
    d->t->class = class;
}

/* ---- Control ------------------------------------------------------------------------------------------------------- */

static void decode_branch(Decoder *d)
{
    d->i->flow = FLOW_BRANCH;
    d->i->run = op_nothing;
    d->t->class = VM_CONTROL;
    if (d->n != 1 || d->operands[0].kind != OPERAND_SYMBOL)
        unknown(d);
    else
        d->p->targets[d->p->kernel->n_code - 1] = label_name(d->p, d->operands[0].symbol);
}

static void decode_exit(Decoder *d)
{
    const char *end = strcmp(d->part[0], "ret") == 0 ? call_end(d->p) : NULL;
    d->i->flow = end != NULL ? FLOW_BRANCH : FLOW_EXIT;
    d->p->targets[d->p->kernel->n_code - 1] = end;
    d->i->run = op_nothing;
    d->t->class = VM_CONTROL;
}

static void decode_trap(Decoder *d)
{
    set_op(d, "trap", VM_CONTROL);
}

/* Hints to the hardware, without an effect on what is computed. */
static void decode_hint(Decoder *d)
{
    set_op(d, "nothing", VM_CONTROL);
}

/* ---- Moves and predicates ------------------------------------------------------------------------------------------ */

/* Registers of 1 and 2 bytes lie in those of 4. */
static int register_size(int bytes)
{
    return bytes > 0 && bytes < 4 ? 4 : bytes;
}

/* mov.b32 %r, {%h0, %h1} and mov.b32 {%h0, %h1}, %r: count parts of width bytes */
static void decode_pack(Decoder *d, int bytes)
{
    const Operand *out = &d->operands[0], *in = &d->operands[1];
    bool pack = in->kind == OPERAND_VECTOR;
    const Operand *parts = pack ? in : out;
    d->i->count = (uint8_t)parts->n;
    d->i->width = (uint8_t)(bytes / parts->n);
    d->i->reg_width = (uint8_t)register_size(bytes);
    if (parts->n < 2 || d->i->width > 4) {
        unknown(d);
        return;
    }
    if (pack) {
        add_out(d, out, d->i->reg_width);
        add_vector_in(d, in, parts->n, 4);
    } else {
        add_vector_out(d, out, parts->n, 4);
        add_in(d, in, d->i->reg_width);
    }
    bool halves = parts->n == 2 && d->i->width == 2, words = parts->n == 2 && d->i->width == 4;
    if (pack)
        set_op(d, halves ? "pack.16" : words ? "pack.32" : "pack", VM_MOVE);
    else
        set_op(d, halves ? "unpack.16" : words ? "unpack.32" : "unpack", VM_MOVE);
}

static void decode_mov(Decoder *d)
{
    int bytes = type_bytes(type_name(d)), size = register_size(bytes);
    const Operand *o = d->operands;
    if (bytes < 0 || d->n != 2) {
        unknown(d);
    } else if (o[0].kind == OPERAND_VECTOR || o[1].kind == OPERAND_VECTOR) {
        decode_pack(d, bytes);
    } else if (o[1].kind == OPERAND_CLOCK) {
        add_out(d, &o[0], size);
        set_op(d, size == 8 ? "clock.64" : "clock.32", VM_MOVE);
    } else {
        add_out(d, &o[0], size);
        add_in(d, &o[1], size);
        set_op(d, size == 0 ? "mov.pred" : size == 8 ? "mov.b64" : "mov.b32", VM_MOVE);
    }
}

/* setp.lt.and.f32 p|q, a, b, c: variant 0 none, 1 and, 2 or, 3 xor with the predicate c; negate: c is !c */
static void decode_setp(Decoder *d)
{
    static const char *const unsigned_names[][2] = {{"lo", "lt"}, {"ls", "le"}, {"hi", "gt"}, {"hs", "ge"}};
    const Operand *o = d->operands;
    const char *compare = d->part[1], *type = type_name(d);
    for (int k = 0; k < 4; k++)
        if (strcmp(compare, unsigned_names[k][0]) == 0)
            compare = unsigned_names[k][1];
    d->i->variant = has(d, "and") ? 1 : has(d, "or") ? 2 : has(d, "xor") ? 3 : 0;
    char name[3 * PART_SIZE];
    snprintf(name, sizeof name, "setp.%s.%s%s", compare, has(d, "ftz") ? "ftz." : "", type);
    const OpDef *op = op_find(name);
    if (op == NULL || d->n != (d->i->variant ? 4 : 3)) {
        unknown(d);
        return;
    }
    add_out(d, &o[0], 0);
    Operand second = {.kind = o[0].second >= 0 ? OPERAND_REGISTER : OPERAND_SINK, .reg = o[0].second};
    add_out(d, &second, 0);
    add_in(d, &o[1], op->in[0]);
    add_in(d, &o[2], op->in[1]);
    if (d->i->variant) {
        add_in(d, &o[3], 0);
        d->i->negate = o[3].negated;
    }
    set_op(d, name, (VmClass)op->class);
}

static void decode_selp(Decoder *d)
{
    int size = register_size(type_bytes(type_name(d)));
    add_out(d, &d->operands[0], size);
    add_in(d, &d->operands[1], size);
    add_in(d, &d->operands[2], size);
    add_in(d, &d->operands[3], 0);
    set_op(d, size == 8 ? "selp.64" : "selp.32", VM_INTEGER);
}

/* and.pred, or.pred, xor.pred, not.pred; bit k of negate: input k is negated */
static void decode_predicate(Decoder *d)
{
    char name[2 * PART_SIZE];
    snprintf(name, sizeof name, "%s.pred", d->part[0]);
    add_out(d, &d->operands[0], 0);
    for (int k = 1; k < d->n; k++) {
        add_in(d, &d->operands[k], 0);
        d->i->negate |= (uint8_t)(d->operands[k].negated << (k - 1));
    }
    if (d->n == 2)
        add_register(d, REGISTER_TRUE);
    set_op(d, name, VM_INTEGER);
}

/* cvta.shared.u64 d, a (to generic) and cvta.to.shared.u64: variant 1 takes the window off, 0 puts count on */
static void decode_cvta(Decoder *d)
{
    Space space = space_of(d);
    d->i->variant = has(d, "to");
    d->i->count = space == SPACE_SHARED ? WINDOW_SHARED : space == SPACE_LOCAL ? WINDOW_LOCAL : 0;
    add_out(d, &d->operands[0], 8);
    add_in(d, &d->operands[1], 8);
    set_op(d, "cvta", VM_MOVE);
}

static void decode_isspacep(Decoder *d)
{
    Space space = space_of(d);
    d->i->count = space == SPACE_SHARED ? WINDOW_SHARED : space == SPACE_LOCAL ? WINDOW_LOCAL : 0;
    add_out(d, &d->operands[0], 0);
    add_in(d, &d->operands[1], 8);
    set_op(d, "isspacep", VM_INTEGER);
}

/* ---- The rest: by the name of the table ---------------------------------------------------------------------------- */

/* Takes out of the opcode what makes no difference here, so that one op serves many spellings. */
static void opcode_simplify(Decoder *d)
{
    const char *m = d->part[0], *type = type_name(d);
    static const char *const rounded[] = {"add", "sub", "mul", "fma", "div", "rcp", "sqrt"};
    for (size_t k = 0; k < sizeof rounded / sizeof *rounded; k++)
        if (strcmp(m, rounded[k]) == 0)
            part_remove(d, "rn");
    if (strcmp(m, "mad") == 0 && has(d, "rn")) {
        strcpy(d->part[0], "fma");
        part_remove(d, "rn");
    }
    part_replace(d, "full", "approx"); /* div.full.f32: 2 ulp, too */
    if (strcmp(m, "shr") == 0 && type[0] == 'b')
        d->part[d->n_parts - 1][0] = 'u';
}

/* cvt.rn.bf16x2.f32 and its like: rounding to nearest is the only way to make fp16 and bf16 of fp32 but for .rz, and does nothing
 * where nothing is lost. A 64-bit register may be read as a narrower type: cvtw. */
static void cvt_simplify(Decoder *d)
{
    const char *to = d->n_parts > 2 ? d->part[d->n_parts - 2] : "", *from = type_name(d);
    int to_bytes = type_bytes(to), from_bytes = type_bytes(from);
    bool half = strchr(to, 'f') != NULL && (to_bytes == 2 || strstr(to, "x2") != NULL);
    if (half || (strcmp(to, "f64") == 0 && strcmp(from, "f32") == 0))
        part_remove(d, "rn");
    bool full = (strcmp(to, "f32") == 0 || strcmp(to, "f64") == 0) && (strcmp(from, "f32") == 0 || strcmp(from, "f64") == 0);
    if (!full && !has(d, "rmi") && !has(d, "rpi")) /* subnormal numbers give 0 anyway, or are normal in the wider type */
        part_remove(d, "ftz");
    const Operand *in = &d->operands[1];
    bool wide = d->n > 1 && in->kind == OPERAND_REGISTER && d->p->kernel->registers[in->reg].size == 8;
    if (wide && from_bytes > 0 && from_bytes < 8)
        strcpy(d->part[0], "cvtw");
}

static void decode_by_name(Decoder *d)
{
    if (strcmp(d->part[0], "cvt") == 0)
        cvt_simplify(d);
    else
        opcode_simplify(d);
    char name[MAX_PARTS * PART_SIZE];
    size_t n = 0;
    for (int k = 0; k < d->n_parts; k++)
        n += (size_t)snprintf(name + n, sizeof name - n, "%s%s", k ? "." : "", d->part[k]);
    const OpDef *op = op_find(name);
    if (op == NULL || d->n != op->n_in + 1) {
        unknown(d);
        return;
    }
    d->i->run = op->run;
    d->t->class = (VmClass)op->class;
    d->t->flops = op->flops;
    add_out(d, &d->operands[0], op->out);
    for (int k = 0; k < op->n_in; k++)
        add_in(d, &d->operands[k + 1], op->in[k]);
}

void ptx_decode(Decoder *d)
{
    static const struct {
        const char *mnemonic;
        void (*decode)(Decoder *d);
    } table[] = {{"bra", decode_branch},  {"ret", decode_exit},          {"exit", decode_exit},     {"trap", decode_trap},
                 {"brkpt", decode_trap},  {"mov", decode_mov},           {"setp", decode_setp},     {"selp", decode_selp},
                 {"cvta", decode_cvta},   {"isspacep", decode_isspacep}, {"prefetch", decode_hint}, {"nanosleep", decode_hint},
                 {"discard", decode_hint}};
    opcode_split(d);
    if (d->p->error != NULL || decode_memory(d) || decode_warp(d))
        return;
    if (strcmp(type_name(d), "pred") == 0 && strcmp(d->part[0], "mov") != 0) {
        decode_predicate(d);
        return;
    }
    for (size_t k = 0; k < sizeof table / sizeof *table; k++)
        if (strcmp(d->part[0], table[k].mnemonic) == 0) {
            table[k].decode(d);
            return;
        }
    decode_by_name(d);
}
