/* Declarations: variables in each memory, registers, parameters. */
#include "tests/softgpu/vm/ptx_parse.h"

#include <string.h>

static void symbol_add(Parser *p, Symbol s)
{
    VmModule *m = p->module;
    m->symbols = arena_grow(p->arena, m->symbols, m->n_symbols, sizeof *m->symbols);
    m->symbols[m->n_symbols++] = s;
}

/* Gives a shared variable its place in the kernel's shared memory: at a multiple of SHARED_GAP, with a gap behind. */
uint32_t shared_place(Parser *p, const Symbol *s)
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

/* = 5, = {1, 2, 3}: writes elements of `width` bytes to the variable's memory */
static void initialiser_read(Parser *p, uint8_t *to, uint64_t bytes, int width)
{
    bool braces = token_accept(p, "{");
    for (uint64_t at = 0; p->error == NULL; at += (uint64_t)width) {
        Operand o = {0};
        bool minus = token_accept(p, "-");
        const char *text = token_next(p);
        if (!number_read(text, &o))
            parse_error(p, "'%s' is no initialiser that the machine knows", text);
        else if (at + (uint64_t)width > bytes)
            parse_error(p, "more initialisers than elements");
        else {
            if (minus)
                number_negate(&o);
            memcpy(to + at, &o.number, (size_t)width);
        }
        if (!token_accept(p, ","))
            break;
    }
    if (braces)
        token_expect(p, "}");
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
    if (token_accept(p, "="))
        initialiser_read(p, host, s->bytes, width);
    vm_memory_written(vm, s->address, s->bytes);
}

/* .align 16 .b8 name[64] = {...};  behind .global, .const, .shared or .local */
void variable_read(Parser *p, Space space)
{
    Symbol s = {.space = space};
    int width = 1;
    while (*token_peek(p) == '.' && p->error == NULL) {
        const char *word = token_next(p);
        if (strcmp(word, ".align") == 0)
            s.align = (uint32_t)integer_next(p);
        else if ((width = type_bytes(word)) <= 0)
            parse_error(p, "'%s' is no type that the machine knows", word);
    }
    s.name = token_next(p);
    s.bytes = (uint64_t)width;
    while (token_accept(p, "[")) {
        s.dynamic = token_is(p, "]");
        long n = s.dynamic ? 0 : integer_next(p);
        if (n < 0 || __builtin_mul_overflow(s.bytes, (uint64_t)n, &s.bytes))
            parse_error(p, "%s has no size", s.name);
        token_expect(p, "]");
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
            if (s.bytes > MAX_LOCAL - s.address)
                parse_error(p, "%s: more than %d bytes of local memory", s.name, MAX_LOCAL);
            else
                k->info.local_bytes = (uint32_t)(s.address + s.bytes);
        }
        symbol_add(p, s);
    }
    token_expect(p, ";");
}

static void declare(Parser *p, Declared d)
{
    p->declared = arena_grow(p->arena, p->declared, p->n_declared, sizeof *p->declared);
    p->declared[p->n_declared++] = d;
}

int register_declare(Parser *p, const char *name, int size)
{
    int r = register_new(p, REGISTER_VARIABLE, size, 0);
    declare(p, (Declared){name, -1, r, p->depth});
    return r;
}

/* .b32 %r<12>, %x;  behind .reg */
void registers_read(Parser *p)
{
    const char *type = token_next(p);
    int size = type_bytes(type);
    if (size < 0)
        parse_error(p, "registers of type '%s' are not known", type);
    size = size == 1 || size == 2 ? 4 : size;
    do {
        const char *name = token_next(p);
        if (!token_accept(p, "<")) {
            register_declare(p, name, size);
            continue;
        }
        int first = p->kernel->n_registers, count = (int)integer_next(p);
        for (int i = 0; i < count && p->error == NULL; i++)
            register_new(p, REGISTER_VARIABLE, size, 0);
        declare(p, (Declared){name, count, first, p->depth});
        token_expect(p, ">");
    } while (token_accept(p, ","));
    token_expect(p, ";");
}

/* .param .u64 .ptr .align 1 name, .param .align 8 .b8 name[40]: each at the next multiple of its alignment */
void param_read(Parser *p)
{
    VmKernel *k = p->kernel;
    VmKernelInfo *info = &k->info;
    uint32_t align = 0;
    int width = 1;
    token_expect(p, ".param");
    while (*token_peek(p) == '.' && p->error == NULL) {
        const char *word = token_next(p);
        if (strcmp(word, ".align") == 0) {
            align = (uint32_t)integer_next(p);
        } else if (strcmp(word, ".ptr") == 0) { /* says where the pointer points to, which is not our business */
            while (!token_accept(p, ".align") && p->error == NULL)
                token_next(p);
            token_next(p);
        } else if ((width = type_bytes(word)) <= 0) {
            parse_error(p, "parameters of type '%s' are not known", word);
        }
    }
    const char *name = token_next(p);
    long count = 1;
    if (token_accept(p, "[")) {
        count = integer_next(p);
        token_expect(p, "]");
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
