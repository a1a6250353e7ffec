/* Operands: registers, constants, symbols, addresses, vectors. */
#include "tests/softgpu/vm/ptx_parse.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

int type_bytes(const char *name)
{
    static const struct {
        const char *name;
        int bytes;
    } types[] = {{"pred", 0}, {"b8", 1},     {"u8", 1},   {"s8", 1},  {"b16", 2}, {"u16", 2}, {"s16", 2},
                 {"f16", 2},  {"bf16", 2},   {"b32", 4},  {"u32", 4}, {"s32", 4}, {"f32", 4}, {"f16x2", 4},
                 {"b64", 8},  {"bf16x2", 4}, {"tf32", 4}, {"u64", 8}, {"s64", 8}, {"f64", 8}};
    name += *name == '.';
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, name) == 0)
            return types[i].bytes;
    return -1;
}

/* ---- Registers and symbols ---------------------------------------------------------------------------------------- */

int register_new(Parser *p, RegisterKind kind, int size, uint64_t value)
{
    VmKernel *k = p->kernel;
    k->registers = arena_grow(p->arena, k->registers, k->n_registers, sizeof *k->registers);
    k->registers[k->n_registers] = (Register){.kind = kind, .size = (uint8_t)size, .value = value, .slot = -1};
    if (k->n_registers == UINT16_MAX)
        parse_error(p, "more than %d registers", UINT16_MAX);
    else
        k->n_registers++;
    return k->n_registers - 1;
}

static int register_shared(Parser *p, RegisterKind kind, int size, uint64_t value)
{
    const VmKernel *k = p->kernel;
    for (int r = 0; r < k->n_registers; r++)
        if (k->registers[r].kind == kind && k->registers[r].size == size && k->registers[r].value == value)
            return r;
    return register_new(p, kind, size, value);
}

int register_constant(Parser *p, int size, uint64_t value)
{
    return register_shared(p, REGISTER_CONSTANT, size, size == 4 ? (uint32_t)value : value);
}

/* The number of a declared register, the innermost declaration of that name first; -1: none. */
static int register_find(const Parser *p, const char *name)
{
    size_t n = strlen(name), digits = n;
    while (digits > 0 && isdigit((unsigned char)name[digits - 1]))
        digits--;
    long index = digits < n ? strtol(name + digits, NULL, 10) : -1;
    for (int i = p->n_declared - 1; i >= 0; i--) {
        const Declared *d = &p->declared[i];
        if (d->count < 0 && strcmp(d->name, name) == 0)
            return d->first;
        if (index >= 0 && index < d->count && strlen(d->name) == digits && strncmp(d->name, name, digits) == 0)
            return d->first + (int)index;
    }
    return -1;
}

/* The register of %tid.x and its like; -1: it is none of them. */
static int special_find(Parser *p, const char *name)
{
    static const char *const names[SPECIALS] = {[TID_X] = "%tid.x",
                                                [TID_Y] = "%tid.y",
                                                [TID_Z] = "%tid.z",
                                                [NTID_X] = "%ntid.x",
                                                [NTID_Y] = "%ntid.y",
                                                [NTID_Z] = "%ntid.z",
                                                [CTAID_X] = "%ctaid.x",
                                                [CTAID_Y] = "%ctaid.y",
                                                [CTAID_Z] = "%ctaid.z",
                                                [NCTAID_X] = "%nctaid.x",
                                                [NCTAID_Y] = "%nctaid.y",
                                                [NCTAID_Z] = "%nctaid.z",
                                                [LANEID] = "%laneid",
                                                [WARPID] = "%warpid",
                                                [LANEMASK_EQ] = "%lanemask_eq",
                                                [LANEMASK_LT] = "%lanemask_lt",
                                                [LANEMASK_LE] = "%lanemask_le",
                                                [LANEMASK_GT] = "%lanemask_gt",
                                                [LANEMASK_GE] = "%lanemask_ge"};
    for (int s = 0; s < SPECIALS; s++)
        if (strcmp(names[s], name) == 0) {
            int *r = &p->kernel->special[s];
            return *r >= 0 ? *r : (*r = register_new(p, REGISTER_SPECIAL, 4, (uint64_t)s));
        }
    return -1;
}

Place symbol_place(Parser *p, const char *name)
{
    VmKernel *k = p->kernel;
    for (int i = 0; i < k->n_shared; i++)
        if (strcmp(k->shared[i].name, name) == 0)
            return (Place){SPACE_SHARED, k->shared[i].offset, false};
    for (int i = 0; i < k->info.n_params; i++)
        if (strcmp(k->param_names[i], name) == 0)
            return (Place){SPACE_PARAM, k->info.params[i].offset, false};
    for (int i = p->module->n_symbols - 1; i >= 0; i--) {
        const Symbol *s = &p->module->symbols[i];
        if (strcmp(s->name, name) != 0)
            continue;
        k->uses_dynamic |= s->dynamic;
        bool fixed = s->space == SPACE_SHARED && !s->dynamic;
        return (Place){s->space, fixed ? shared_place(p, s) : s->address, s->dynamic};
    }
    parse_error(p, "unknown symbol '%s'", name);
    return (Place){SPACE_GLOBAL, 0, false};
}

/* ---- Operands ----------------------------------------------------------------------------------------------------- */

/* 12, 0x1F, 12U, 0f3F800000, 0d3FF0000000000000, 1.5. False: text is no number. */
bool number_read(const char *text, Operand *o)
{
    if (!isdigit((unsigned char)text[0]))
        return false;
    char *end;
    size_t n = strlen(text);
    char kind = text[0] == '0' ? (char)tolower((unsigned char)text[1]) : 0;
    if ((kind == 'f' && n == 10) || (kind == 'd' && n == 18)) {
        o->kind = kind == 'f' ? OPERAND_FLOAT : OPERAND_DOUBLE;
        o->number = (int64_t)strtoull(text + 2, &end, 16);
    } else if (strchr(text, '.') != NULL) {
        double value = strtod(text, &end);
        o->kind = OPERAND_DOUBLE;
        memcpy(&o->number, &value, sizeof value);
    } else {
        o->kind = OPERAND_INTEGER;
        o->number = (int64_t)strtoull(text, &end, 0);
        end += *end == 'U';
    }
    return *end == 0;
}

void number_negate(Operand *o)
{
    if (o->kind == OPERAND_INTEGER)
        o->number = (int64_t)(0 - (uint64_t)o->number);
    else
        o->number ^= o->kind == OPERAND_FLOAT ? 1ll << 31 : (int64_t)(1ull << 63);
}

/* {a, b, c, d}: behind the brace */
static void vector_read(Parser *p, Operand *o)
{
    enum { MAX_VECTOR = 8 };
    o->kind = OPERAND_VECTOR;
    o->parts = arena_get(p->arena, MAX_VECTOR * sizeof *o->parts);
    do {
        if (o->n == MAX_VECTOR) {
            parse_error(p, "a vector of more than %d", MAX_VECTOR);
            return;
        }
        operand_read(p, &o->parts[o->n++]);
    } while (token_accept(p, ","));
    token_expect(p, "}");
}

/* +8, +-8, -8: any number of them, added to o->number */
static void offset_read(Parser *p, Operand *o)
{
    while (token_is(p, "+") || token_is(p, "-")) {
        bool minus = *token_next(p) == '-';
        if (token_accept(p, "-"))
            minus = !minus;
        Operand offset = {0};
        const char *text = token_next(p);
        if (!number_read(text, &offset) || offset.kind != OPERAND_INTEGER)
            parse_error(p, "'%s' is no offset", text);
        o->number += minus ? -offset.number : offset.number;
    }
}

/* [%rd1+8], [symbol], [16]: behind the bracket */
static void address_read(Parser *p, Operand *o)
{
    operand_read(p, o);
    if (o->kind != OPERAND_REGISTER && o->kind != OPERAND_SYMBOL && o->kind != OPERAND_INTEGER)
        parse_error(p, "an address is a register, a symbol or a number");
    o->kind = OPERAND_ADDRESS;
    offset_read(p, o);
    token_expect(p, "]");
}

/* A register, perhaps p|q. False: the name is none. */
static bool register_read(Parser *p, const char *name, Operand *o)
{
    o->reg = special_find(p, name);
    if (o->reg < 0)
        o->reg = register_find(p, name);
    if (o->reg < 0)
        return false;
    o->kind = OPERAND_REGISTER;
    if (token_accept(p, "|")) {
        const char *second = token_next(p);
        o->second = register_find(p, second);
        if (o->second < 0 && strcmp(second, "_") != 0)
            parse_error(p, "unknown register '%s'", second);
    }
    return true;
}

void operand_read(Parser *p, Operand *o)
{
    *o = (Operand){.reg = -1, .second = -1};
    o->negated = token_accept(p, "!");
    bool minus = token_accept(p, "-");
    const char *text = token_next(p);
    if (strcmp(text, "{") == 0) {
        vector_read(p, o);
    } else if (strcmp(text, "[") == 0) {
        address_read(p, o);
    } else if (strcmp(text, "_") == 0) {
        o->kind = OPERAND_SINK;
        if (token_accept(p, "|"))
            o->second = register_find(p, token_next(p));
    } else if (strcmp(text, "WARP_SZ") == 0) {
        *o = (Operand){.kind = OPERAND_INTEGER, .number = LANES};
    } else if (strcmp(text, "%clock") == 0 || strcmp(text, "%clock64") == 0 || strcmp(text, "%globaltimer") == 0) {
        o->kind = OPERAND_CLOCK;
    } else if (number_read(text, o)) {
        if (minus)
            number_negate(o);
    } else if (!register_read(p, text, o)) {
        if (*text == '%')
            parse_error(p, "unknown register '%s'", text);
        o->kind = OPERAND_SYMBOL;
        o->symbol = text;
        offset_read(p, o);
    }
}
