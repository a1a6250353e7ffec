/* PTX: a module's declarations at load, and a kernel's body at its first use. */
#include "tests/softgpu/vm/ptx_parse.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- Tokens and errors -------------------------------------------------------------------------------------------- */

void parse_error(Parser *p, const char *format, ...)
{
    if (p->error != NULL)
        return;
    char text[512];
    int n = snprintf(text, sizeof text, "%s, PTX line %d: ", p->module->name, p->line);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + n, sizeof text - (size_t)n, format, arguments);
    va_end(arguments);
    p->error = arena_text(p->arena, text, strlen(text));
    p->at = p->module->n_tokens - 1;
}

static const char *peek(const Parser *p)
{
    return p->module->tokens[p->at].text;
}

static bool is(const Parser *p, const char *text)
{
    return strcmp(peek(p), text) == 0;
}

static const char *next(Parser *p)
{
    const Token *t = &p->module->tokens[p->at];
    p->line = t->line;
    if (t->text[0] == 0)
        parse_error(p, "the text ends too early");
    else
        p->at++;
    return t->text;
}

static bool accept(Parser *p, const char *text)
{
    bool found = is(p, text);
    if (found)
        next(p);
    return found;
}

static void expect(Parser *p, const char *text)
{
    const char *found = next(p);
    if (strcmp(found, text) != 0)
        parse_error(p, "expected '%s', found '%s'", text, found);
}

static void skip_line(Parser *p)
{
    while (p->module->tokens[p->at].line == p->line && peek(p)[0] != 0)
        next(p);
}

/* Moves behind the brace that closes the one at hand. */
static void skip_braces(Parser *p)
{
    int depth = 0;
    do {
        depth += is(p, "{") - is(p, "}");
        next(p);
    } while (depth > 0 && p->error == NULL);
}

static long next_integer(Parser *p)
{
    const char *text = next(p);
    char *end;
    long v = strtol(text, &end, 0);
    if (end == text)
        parse_error(p, "expected a number, found '%s'", text);
    return v;
}

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

static void symbol_add(Parser *p, Symbol s)
{
    VmModule *m = p->module;
    m->symbols = arena_grow(p->arena, m->symbols, m->n_symbols, sizeof *m->symbols);
    m->symbols[m->n_symbols++] = s;
}

/* Gives a shared variable its place in the kernel's shared memory: at a multiple of SHARED_GAP, with a gap behind. */
static uint32_t shared_place(Parser *p, const Symbol *s)
{
    VmKernel *k = p->kernel;
    uint32_t align = s->align > SHARED_GAP ? s->align : SHARED_GAP, begin = (k->shared_end + align - 1) & ~(align - 1);
    if (s->bytes > MAX_SHARED || begin + s->bytes > 4 * MAX_SHARED) {
        parse_error(p, "%s: %llu bytes of shared memory are more than any card has", s->name, (unsigned long long)s->bytes);
        return 0;
    }
    k->shared = arena_grow(p->arena, k->shared, k->n_shared, sizeof *k->shared);
    k->shared[k->n_shared++] = (SharedVariable){s->name, begin, (uint32_t)s->bytes};
    k->shared_end = begin + (uint32_t)s->bytes + SHARED_GAP;
    k->info.shared_bytes = ((k->info.shared_bytes + s->align - 1) & ~(s->align - 1)) + (uint32_t)s->bytes;
    return begin;
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
static bool number_read(const char *text, Operand *o)
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

static void number_negate(Operand *o)
{
    if (o->kind == OPERAND_INTEGER)
        o->number = (int64_t)(0 - (uint64_t)o->number);
    else
        o->number ^= o->kind == OPERAND_FLOAT ? 1ll << 31 : (int64_t)(1ull << 63);
}

static void operand_read(Parser *p, Operand *o);

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
    } while (accept(p, ","));
    expect(p, "}");
}

/* +8, +-8, -8: any number of them, added to o->number */
static void offset_read(Parser *p, Operand *o)
{
    while (is(p, "+") || is(p, "-")) {
        bool minus = *next(p) == '-';
        if (accept(p, "-"))
            minus = !minus;
        Operand offset = {0};
        const char *text = next(p);
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
    expect(p, "]");
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
    if (accept(p, "|")) {
        const char *second = next(p);
        o->second = register_find(p, second);
        if (o->second < 0 && strcmp(second, "_") != 0)
            parse_error(p, "unknown register '%s'", second);
    }
    return true;
}

static void operand_read(Parser *p, Operand *o)
{
    *o = (Operand){.reg = -1, .second = -1};
    o->negated = accept(p, "!");
    bool minus = accept(p, "-");
    const char *text = next(p);
    if (strcmp(text, "{") == 0) {
        vector_read(p, o);
    } else if (strcmp(text, "[") == 0) {
        address_read(p, o);
    } else if (strcmp(text, "_") == 0) {
        o->kind = OPERAND_SINK;
        if (accept(p, "|"))
            o->second = register_find(p, next(p));
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

/* ---- Declarations ------------------------------------------------------------------------------------------------- */

/* = 5, = {1, 2, 3}: writes elements of `width` bytes to the variable's memory */
static void initialiser_read(Parser *p, uint8_t *to, uint64_t bytes, int width)
{
    bool braces = accept(p, "{");
    for (uint64_t at = 0; p->error == NULL; at += (uint64_t)width) {
        Operand o = {0};
        bool minus = accept(p, "-");
        const char *text = next(p);
        if (!number_read(text, &o))
            parse_error(p, "'%s' is no initialiser that the machine knows", text);
        else if (at + (uint64_t)width > bytes)
            parse_error(p, "more initialisers than elements");
        else {
            if (minus)
                number_negate(&o);
            memcpy(to + at, &o.number, (size_t)width);
        }
        if (!accept(p, ","))
            break;
    }
    if (braces)
        expect(p, "}");
}

/* A variable in device memory: asked of the one who owns it, zeroed or initialised. */
static void global_place(Parser *p, Symbol *s, int width)
{
    Vm *vm = p->module->vm;
    s->address = vm->hooks.place(vm->hooks.context, s->bytes, s->align, s->name);
    const Allocation *a = allocation_find(vm, s->address);
    if (s->address == 0 || a == NULL || s->bytes > a->end - s->address) {
        parse_error(p, "no device memory for %s, %llu bytes", s->name, (unsigned long long)s->bytes);
        return;
    }
    uint8_t *host = a->host + (s->address - a->begin);
    memset(host, 0, s->bytes);
    if (accept(p, "="))
        initialiser_read(p, host, s->bytes, width);
    vm_memory_written(vm, s->address, s->bytes);
}

/* .align 16 .b8 name[64] = {...};  behind .global, .const, .shared or .local */
static void variable_read(Parser *p, Space space)
{
    Symbol s = {.space = space};
    int width = 1;
    while (*peek(p) == '.' && p->error == NULL) {
        const char *word = next(p);
        if (strcmp(word, ".align") == 0)
            s.align = (uint32_t)next_integer(p);
        else if ((width = type_bytes(word)) <= 0)
            parse_error(p, "'%s' is no type that the machine knows", word);
    }
    s.name = next(p);
    s.bytes = (uint64_t)width;
    while (accept(p, "[")) {
        s.dynamic = is(p, "]");
        long n = s.dynamic ? 0 : next_integer(p);
        if (n < 0 || __builtin_mul_overflow(s.bytes, (uint64_t)n, &s.bytes))
            parse_error(p, "%s has no size", s.name);
        expect(p, "]");
    }
    if (s.align == 0)
        s.align = (uint32_t)width;
    if ((s.align & (s.align - 1)) != 0)
        parse_error(p, "%s: an alignment of %u", s.name, s.align);
    VmKernel *k = p->kernel;
    if (p->error != NULL)
        return;
    if (space == SPACE_SHARED && k != NULL && !s.dynamic) {
        shared_place(p, &s);
    } else {
        if (space == SPACE_GLOBAL)
            global_place(p, &s, width);
        if (space == SPACE_LOCAL && k != NULL) {
            s.address = (k->info.local_bytes + s.align - 1) & ~(s.align - 1);
            k->info.local_bytes = (uint32_t)(s.address + s.bytes);
        }
        symbol_add(p, s);
    }
    expect(p, ";");
}

/* .b32 %r<12>, %x;  behind .reg */
static void registers_read(Parser *p)
{
    const char *type = next(p);
    int size = type_bytes(type);
    if (size < 0)
        parse_error(p, "registers of type '%s' are not known", type);
    size = size == 1 || size == 2 ? 4 : size;
    do {
        Declared d = {.name = next(p), .count = -1, .first = p->kernel->n_registers, .depth = p->depth};
        if (accept(p, "<")) {
            d.count = (int)next_integer(p);
            expect(p, ">");
        }
        for (int i = 0; i < (d.count < 0 ? 1 : d.count) && p->error == NULL; i++)
            register_new(p, REGISTER_VARIABLE, size, 0);
        p->declared = arena_grow(p->arena, p->declared, p->n_declared, sizeof *p->declared);
        p->declared[p->n_declared++] = d;
    } while (accept(p, ","));
    expect(p, ";");
}

/* ---- A kernel ----------------------------------------------------------------------------------------------------- */

/* .param .u64 .ptr .align 1 name, .param .align 8 .b8 name[40]: each at the next multiple of its alignment */
static void param_read(Parser *p)
{
    VmKernel *k = p->kernel;
    VmKernelInfo *info = &k->info;
    uint32_t align = 0;
    int width = 1;
    expect(p, ".param");
    while (*peek(p) == '.' && p->error == NULL) {
        const char *word = next(p);
        if (strcmp(word, ".align") == 0) {
            align = (uint32_t)next_integer(p);
        } else if (strcmp(word, ".ptr") == 0) { /* says where the pointer points to, which is not our business */
            while (!accept(p, ".align") && p->error == NULL)
                next(p);
            next(p);
        } else if ((width = type_bytes(word)) <= 0) {
            parse_error(p, "parameters of type '%s' are not known", word);
        }
    }
    const char *name = next(p);
    long count = 1;
    if (accept(p, "[")) {
        count = next_integer(p);
        expect(p, "]");
    }
    enum { MAX_PARAM = 32764 };
    if (align == 0)
        align = (uint32_t)width;
    if (count < 0 || count * width > MAX_PARAM - (long)info->param_bytes || (align & (align - 1)) != 0)
        parse_error(p, "parameter %s is too large or badly aligned", name);
    if (p->error != NULL)
        return;
    VmParam param = {(info->param_bytes + align - 1) & ~(align - 1), (uint32_t)(width * count)};
    k->param_names = arena_grow(p->arena, k->param_names, info->n_params, sizeof *k->param_names);
    k->param_names[info->n_params] = name;
    VmParam *params = arena_grow(p->arena, (void *)info->params, info->n_params, sizeof *params);
    params[info->n_params++] = param;
    info->params = params;
    info->param_bytes = param.offset + param.bytes;
}

/* .maxntid 256, 1, 1: the product, and the three in size if it is not NULL */
static uint32_t threads_read(Parser *p, uint32_t *size)
{
    uint32_t product = 1;
    for (int d = 0; d < 3; d++) {
        long n = d == 0 || accept(p, ",") ? next_integer(p) : 1;
        if (n < 1 || n > 1024)
            parse_error(p, "a block of %ld threads", n);
        product *= (uint32_t)n;
        if (size != NULL)
            size[d] = (uint32_t)n;
    }
    return product;
}

/* name(params) .maxntid 256 { body }  behind .entry. The body is only found, not read: most kernels of a module never run. */
static void entry_read(Parser *p)
{
    VmModule *m = p->module;
    m->kernels = arena_grow(p->arena, m->kernels, m->n_kernels, sizeof *m->kernels);
    VmKernel *k = p->kernel = &m->kernels[m->n_kernels++];
    *k = (VmKernel){.module = m, .skipped = -1, .info = {.name = next(p), .max_threads = 1024}};
    if (accept(p, "(") && !accept(p, ")")) {
        do
            param_read(p);
        while (accept(p, ","));
        expect(p, ")");
    }
    while (!is(p, "{") && p->error == NULL) {
        const char *word = next(p);
        if (strcmp(word, ".maxntid") == 0)
            k->info.max_threads = threads_read(p, NULL);
        else if (strcmp(word, ".reqntid") == 0)
            k->info.max_threads = threads_read(p, k->info.required_threads);
        else if (strcmp(word, ".minnctapersm") == 0 || strcmp(word, ".maxnreg") == 0)
            next_integer(p);
        else
            parse_error(p, "unknown directive '%s' of a kernel", word);
    }
    k->first_token = p->at;
    skip_braces(p);
    k->end_token = p->at;
    p->kernel = NULL;
}

/* What was read from token `first` on, as one line. */
static const char *statement_text(const Parser *p, int first)
{
    char text[256];
    size_t n = 0;
    const Token *t = p->module->tokens;
    for (int i = first; i < p->at && n < sizeof text - 1; i++) {
        bool space = t[i].text[0] == ',' || i == first || (t[first].text[0] == '@' && i <= first + 2 && t[i].text[0] != '!');
        space &= t[i].text[0] != '@';
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", t[i].text, space ? " " : "");
    }
    return arena_text(p->arena, text, n < sizeof text ? n : sizeof text - 1);
}

static void instruction_add(Parser *p, const char *label)
{
    VmKernel *k = p->kernel;
    k->code = arena_grow(p->arena, k->code, k->n_code, sizeof *k->code);
    k->text = arena_grow(p->arena, k->text, k->n_code, sizeof *k->text);
    p->targets = arena_grow(p->arena, p->targets, k->n_code, sizeof *p->targets);
    k->code[k->n_code] = (Insn){.guard = REGISTER_TRUE};
    k->text[k->n_code] = p->loc;
    k->text[k->n_code].line = p->line;
    p->targets[k->n_code++] = label;
}

/* @!%p1 add.s32 %r1, %r2, 5; */
static void instruction_read(Parser *p)
{
    int first = p->at;
    p->line = p->module->tokens[first].line;
    instruction_add(p, NULL);
    VmKernel *k = p->kernel;
    Decoder d = {.p = p, .i = &k->code[k->n_code - 1], .t = &k->text[k->n_code - 1]};
    if (accept(p, "@")) {
        d.i->guard_negated = accept(p, "!");
        Operand guard;
        operand_read(p, &guard);
        if (guard.kind != OPERAND_REGISTER || k->registers[guard.reg].size != 0)
            parse_error(p, "a guard is a predicate");
        else
            d.i->guard = (uint16_t)guard.reg;
    }
    d.opcode = next(p);
    while (!is(p, ";") && p->error == NULL) {
        if (d.n == MAX_SOURCE_OPERANDS) {
            parse_error(p, "more than %d operands", MAX_SOURCE_OPERANDS);
            break;
        }
        operand_read(p, &d.operands[d.n++]);
        if (!accept(p, ",") && !is(p, ";"))
            parse_error(p, "unexpected '%s'", peek(p));
    }
    expect(p, ";");
    if (p->error != NULL)
        return;
    d.t->text = statement_text(p, first);
    p->line = d.t->line;
    ptx_decode(&d);
}

/* .loc 1 57 5, function_name $L__info_string3, inlined_at 2 80 9: the source line of what follows */
static void loc_read(Parser *p)
{
    p->loc = (InsnText){.file = (int)next_integer(p), .source_line = (int)next_integer(p)};
    while (p->module->tokens[p->at].line == p->line && peek(p)[0] != 0)
        if (strcmp(next(p), "inlined_at") == 0) {
            p->loc.caller = (int)next_integer(p);
            p->loc.call_line = (int)next_integer(p);
        }
}

static void scope_close(Parser *p)
{
    p->depth--;
    while (p->n_declared > 0 && p->declared[p->n_declared - 1].depth > p->depth)
        p->n_declared--;
}

static void statement_read(Parser *p)
{
    const Token *t = &p->module->tokens[p->at];
    if (accept(p, "{")) {
        p->depth++;
    } else if (accept(p, "}")) {
        scope_close(p);
    } else if (accept(p, ";")) {
        return;
    } else if (accept(p, ".loc")) {
        loc_read(p);
    } else if (accept(p, ".pragma")) {
        while (!accept(p, ";") && p->error == NULL)
            next(p);
    } else if (accept(p, ".reg")) {
        registers_read(p);
    } else if (accept(p, ".shared")) {
        variable_read(p, SPACE_SHARED);
    } else if (accept(p, ".local")) {
        variable_read(p, SPACE_LOCAL);
    } else if (t[0].text[0] == '.') {
        next(p);
        parse_error(p, "unknown directive '%s'", t[0].text);
    } else if (t[0].text[0] != 0 && strcmp(t[1].text, ":") == 0) {
        p->labels = arena_grow(p->arena, p->labels, p->n_labels, sizeof *p->labels);
        p->labels[p->n_labels++] = (Label){next(p), p->kernel->n_code};
        next(p);
    } else {
        instruction_read(p);
    }
}

static void targets_resolve(Parser *p)
{
    VmKernel *k = p->kernel;
    for (int i = 0; i < k->n_code && p->error == NULL; i++) {
        if (p->targets[i] == NULL)
            continue;
        int found = -1;
        for (int l = 0; l < p->n_labels; l++)
            if (strcmp(p->labels[l].name, p->targets[i]) == 0)
                found = p->labels[l].at;
        p->line = k->text[i].line;
        if (found < 0)
            parse_error(p, "no label '%s'", p->targets[i]);
        k->code[i].target = found;
    }
}

/* An exit at the end of the text: control cannot run beyond it, whatever the last instruction is. */
static void exit_add(Parser *p)
{
    instruction_add(p, NULL);
    VmKernel *k = p->kernel;
    k->code[k->n_code - 1].flow = FLOW_EXIT;
    k->code[k->n_code - 1].run = op_nothing;
    k->text[k->n_code - 1].text = "}";
    k->text[k->n_code - 1].class = VM_CONTROL;
}

static void syncs_find(Parser *p)
{
    VmKernel *k = p->kernel;
    static const char *const names[] = {"bar.", "barrier.", "membar.", "fence.", "cp.async.wait"};
    for (int i = 0; i < k->n_code; i++) {
        const char *text = k->text[i].text;
        if (*text == '@')
            text += strcspn(text, " ") + 1;
        for (size_t n = 0; n < sizeof names / sizeof *names; n++)
            if (strncmp(text, names[n], strlen(names[n])) == 0) {
                k->syncs = arena_grow(p->arena, k->syncs, k->n_syncs, sizeof *k->syncs);
                k->syncs[k->n_syncs++] = i;
            }
    }
}

void kernel_parse(VmKernel *k)
{
    if (k->parsed)
        return;
    k->parsed = true;
    Parser p = {.module = k->module, .kernel = k, .arena = &k->module->arena, .at = k->first_token};
    memset(k->special, -1, sizeof k->special);
    register_new(&p, REGISTER_CONSTANT, 0, UINT32_MAX); /* REGISTER_TRUE */
    do
        statement_read(&p);
    while (p.depth > 0 && p.error == NULL);
    exit_add(&p);
    targets_resolve(&p);
    syncs_find(&p);
    if (p.error == NULL && !kernel_place_registers(k))
        parse_error(&p, "%s needs more registers than the machine has", k->info.name);
    k->counters = arena_get(p.arena, (size_t)k->n_code * sizeof *k->counters);
    k->info.error = p.error;
}

/* ---- A module ----------------------------------------------------------------------------------------------------- */

/* .file 1 "layernorm.cu" */
static void file_read(Parser *p)
{
    VmModule *m = p->module;
    long number = next_integer(p);
    const char *name = next(p);
    size_t n = strlen(name);
    if (number < 0 || number > 65535 || n < 2 || name[0] != '"')
        parse_error(p, "a bad .file");
    while (m->n_files <= number && p->error == NULL) {
        m->files = arena_grow(p->arena, m->files, m->n_files, sizeof *m->files);
        m->files[m->n_files++] = NULL;
    }
    if (p->error == NULL)
        m->files[number] = arena_text(p->arena, name + 1, n - 2);
    skip_line(p);
}

/* A device function: our kernels inline all of theirs, so a body that is left is never called. */
static void function_skip(Parser *p)
{
    while (!is(p, "{") && !is(p, ";") && p->error == NULL)
        next(p);
    if (!accept(p, ";"))
        skip_braces(p);
}

static void directive_read(Parser *p)
{
    const char *word = next(p);
    if (strcmp(word, ".version") == 0 || strcmp(word, ".target") == 0 || strcmp(word, ".address_size") == 0) {
        skip_line(p);
    } else if (strcmp(word, ".file") == 0) {
        file_read(p);
    } else if (strcmp(word, ".visible") == 0 || strcmp(word, ".weak") == 0 || strcmp(word, ".extern") == 0 ||
               strcmp(word, ".common") == 0) {
        return; /* linkage: of no concern to a module that is alone */
    } else if (strcmp(word, ".shared") == 0) {
        variable_read(p, SPACE_SHARED);
    } else if (strcmp(word, ".global") == 0 || strcmp(word, ".const") == 0) {
        variable_read(p, SPACE_GLOBAL);
    } else if (strcmp(word, ".section") == 0) {
        next(p);
        skip_braces(p);
    } else if (strcmp(word, ".func") == 0) {
        function_skip(p);
    } else if (strcmp(word, ".entry") == 0) {
        entry_read(p);
    } else {
        parse_error(p, "unknown directive '%s'", word);
    }
}

VmModule *vm_module_load(Vm *vm, const char *ptx, const char *name, VmError *error)
{
    VmModule *m = host_get(1, sizeof *m);
    m->vm = vm;
    m->name = arena_text(&m->arena, name, strlen(name));
    ptx_lex(m, ptx);
    Parser p = {.module = m, .arena = &m->arena};
    if (!is(&p, ".version"))
        parse_error(&p, "PTX begins with .version, this with '%.20s'", peek(&p));
    while (peek(&p)[0] != 0 && p.error == NULL)
        directive_read(&p);
    if (p.error != NULL) {
        vm_error_set(error, VM_BAD_PTX, "%s", p.error);
        arena_free(&m->arena);
        free(m);
        return NULL;
    }
    m->next = vm->modules;
    vm->modules = m;
    return m;
}
