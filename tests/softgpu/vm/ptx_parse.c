/* PTX: a module's declarations at load, and a kernel's body at its first use. */
#include "tests/softgpu/vm/ptx_parse.h"

#include <stdlib.h>
#include <string.h>

/* ---- A kernel ----------------------------------------------------------------------------------------------------- */

/* .maxntid 256, 1, 1: the product, and the three in size if it is not NULL */
static uint32_t threads_read(Parser *p, uint32_t *size)
{
    uint32_t product = 1;
    for (int d = 0; d < 3; d++) {
        long n = d == 0 || token_accept(p, ",") ? integer_next(p) : 1;
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
    *k = (VmKernel){.module = m, .skipped = -1, .info = {.name = token_next(p), .max_threads = 1024}};
    if (token_accept(p, "(") && !token_accept(p, ")")) {
        do
            param_read(p);
        while (token_accept(p, ","));
        token_expect(p, ")");
    }
    while (!token_is(p, "{") && p->error == NULL) {
        const char *word = token_next(p);
        if (strcmp(word, ".maxntid") == 0)
            k->info.max_threads = threads_read(p, NULL);
        else if (strcmp(word, ".reqntid") == 0)
            k->info.max_threads = threads_read(p, k->info.required_threads);
        else if (strcmp(word, ".minnctapersm") == 0 || strcmp(word, ".maxnreg") == 0)
            integer_next(p);
        else
            parse_error(p, "unknown directive '%s' of a kernel", word);
    }
    k->first_token = p->at;
    braces_skip(p);
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

void instruction_add(Parser *p, const char *label)
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

const char *label_name(Parser *p, const char *name)
{
    char text[256];
    if (p->call == 0)
        return name;
    int n = snprintf(text, sizeof text, "%d:%s", p->call, name);
    return arena_text(p->arena, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
}

void label_add(Parser *p, const char *name)
{
    p->labels = arena_grow(p->arena, p->labels, p->n_labels, sizeof *p->labels);
    p->labels[p->n_labels++] = (Label){name, p->kernel->n_code};
}

/* @!%p1 add.s32 %r1, %r2, 5; */
static void instruction_read(Parser *p)
{
    int first = p->at;
    p->line = p->module->tokens[first].line;
    instruction_add(p, NULL);
    VmKernel *k = p->kernel;
    Decoder d = {.p = p, .i = &k->code[k->n_code - 1], .t = &k->text[k->n_code - 1]};
    if (token_accept(p, "@")) {
        d.i->guard_negated = token_accept(p, "!");
        Operand guard;
        operand_read(p, &guard);
        if (guard.kind != OPERAND_REGISTER || k->registers[guard.reg].size != 0)
            parse_error(p, "a guard is a predicate");
        else
            d.i->guard = (uint16_t)guard.reg;
    }
    d.opcode = token_next(p);
    while (!token_is(p, ";") && p->error == NULL) {
        if (d.n == MAX_SOURCE_OPERANDS) {
            parse_error(p, "more than %d operands", MAX_SOURCE_OPERANDS);
            break;
        }
        operand_read(p, &d.operands[d.n++]);
        if (!token_accept(p, ",") && !token_is(p, ";"))
            parse_error(p, "unexpected '%s'", token_peek(p));
    }
    token_expect(p, ";");
    if (p->error != NULL)
        return;
    d.t->text = statement_text(p, first);
    p->line = d.t->line;
    ptx_decode(&d);
}

/* .loc 1 57 5, function_name $L__info_string3, inlined_at 2 80 9: the source line of what follows */
static void loc_read(Parser *p)
{
    p->loc = (InsnText){.file = (int)integer_next(p), .source_line = (int)integer_next(p)};
    while (p->module->tokens[p->at].line == p->line && token_peek(p)[0] != 0)
        if (strcmp(token_next(p), "inlined_at") == 0) {
            p->loc.caller = (int)integer_next(p);
            p->loc.call_line = (int)integer_next(p);
        }
}

void scope_close(Parser *p)
{
    p->depth--;
    while (p->n_declared > 0 && p->declared[p->n_declared - 1].depth > p->depth)
        p->n_declared--;
}

void statement_read(Parser *p)
{
    const Token *t = &p->module->tokens[p->at];
    if (token_accept(p, "{")) {
        p->depth++;
    } else if (token_accept(p, "}")) {
        scope_close(p);
    } else if (token_accept(p, ";")) {
        return;
    } else if (token_accept(p, ".loc")) {
        loc_read(p);
    } else if (token_accept(p, ".pragma")) {
        while (!token_accept(p, ";") && p->error == NULL)
            token_next(p);
    } else if (token_accept(p, ".reg")) {
        registers_read(p);
    } else if (token_accept(p, ".shared")) {
        variable_read(p, SPACE_SHARED);
    } else if (token_accept(p, ".local")) {
        variable_read(p, SPACE_LOCAL);
    } else if (token_accept(p, ".param")) {
        call_param_read(p);
    } else if (token_accept(p, "call.uni") || token_accept(p, "call")) {
        call_read(p);
    } else if (t[0].text[0] == '.') {
        token_next(p);
        parse_error(p, "unknown directive '%s'", t[0].text);
    } else if (t[0].text[0] != 0 && strcmp(t[1].text, ":") == 0) {
        label_add(p, label_name(p, token_next(p)));
        token_next(p);
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
    for (int i = 0; i < k->n_code && p->error == NULL; i++) {
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
    long number = integer_next(p);
    const char *name = token_next(p);
    size_t n = strlen(name);
    if (number < 0 || number > 65535 || n < 2 || name[0] != '"')
        parse_error(p, "a bad .file");
    while (m->n_files <= number && p->error == NULL) {
        m->files = arena_grow(p->arena, m->files, m->n_files, sizeof *m->files);
        m->files[m->n_files++] = NULL;
    }
    if (p->error == NULL)
        m->files[number] = arena_text(p->arena, name + 1, n - 2);
    line_skip(p);
}

static void directive_read(Parser *p)
{
    const char *word = token_next(p);
    if (strcmp(word, ".version") == 0 || strcmp(word, ".target") == 0 || strcmp(word, ".address_size") == 0) {
        line_skip(p);
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
        token_next(p);
        braces_skip(p);
    } else if (strcmp(word, ".func") == 0) {
        function_read(p);
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
    if (!token_is(&p, ".version"))
        parse_error(&p, "PTX begins with .version, this with '%.20s'", token_peek(&p));
    while (token_peek(&p)[0] != 0 && p.error == NULL)
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
