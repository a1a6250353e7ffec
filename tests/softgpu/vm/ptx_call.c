/* Device functions. nvcc inlines nearly all; what it leaves (pow of doubles) is put in place here at each call: the body is read
 * once more in a scope of its own, in which parameters and results are registers. Then nothing else need know of calls.
 *
 *     call.uni (retval0), f, (param0, param1);        mov f_param_0, param0;  mov f_param_1, param1;
 *                                              ->     ...body, with ret as a branch to END...
 *                                                     END: mov retval0, func_retval0; */
#include "tests/softgpu/vm/ptx_parse.h"

#include <string.h>

enum { MAX_CALL_DEPTH = 8 };

/* ".param .b64 name", also with .align: only what fits a register. Returns its bytes. */
static int one_param_read(Parser *p, const char **name)
{
    int size = -1;
    while (*token_peek(p) == '.' && p->error == NULL) {
        const char *word = token_next(p);
        if (strcmp(word, ".align") == 0)
            integer_next(p);
        else if (strcmp(word, ".param") != 0)
            size = type_bytes(word);
    }
    *name = token_next(p);
    if (size <= 0 || token_is(p, "["))
        parse_error(p, "a function's parameter %s that does not fit a register", *name);
    return size < 4 ? 4 : size;
}

/* "(.param .b64 a, .param .b32 b)", or nothing */
static void params_read(Parser *p, Function *f)
{
    if (!token_accept(p, "(") || token_accept(p, ")"))
        return;
    do {
        if (f->n_params == MAX_FUNCTION_PARAMS) {
            parse_error(p, "a function with more than %d parameters", MAX_FUNCTION_PARAMS);
            return;
        }
        f->sizes[f->n_params] = one_param_read(p, &f->names[f->n_params]);
        f->n_params++;
    } while (token_accept(p, ","));
    token_expect(p, ")");
}

void function_read(Parser *p)
{
    VmModule *m = p->module;
    Function f = {.body = -1};
    params_read(p, &f);
    f.n_results = f.n_params;
    f.name = token_next(p);
    params_read(p, &f);
    while (!token_is(p, "{") && !token_is(p, ";") && p->error == NULL)
        token_next(p); /* .noreturn and the like */
    if (token_accept(p, ";"))
        return; /* declared only */
    f.body = p->at;
    braces_skip(p);
    m->functions = arena_grow(p->arena, m->functions, m->n_functions, sizeof f);
    m->functions[m->n_functions++] = f;
}

void call_param_read(Parser *p)
{
    const char *name;
    int size = one_param_read(p, &name);
    if (p->error == NULL) {
        int r = register_declare(p, name, size);
        p->kernel->registers[r].is_param = true;
    }
    token_expect(p, ";");
}

const char *call_end(Parser *p)
{
    return p->call > 0 ? label_name(p, "end of the call") : NULL;
}

static const Function *function_find(Parser *p, const char *name)
{
    for (int n = 0; n < p->module->n_functions; n++)
        if (strcmp(p->module->functions[n].name, name) == 0)
            return &p->module->functions[n];
    parse_error(p, "no function %s to call", name);
    return NULL;
}

static void move_add(Parser *p, int to, int from)
{
    const Register *r = p->kernel->registers;
    if (r[to].size != r[from].size) {
        parse_error(p, "an argument of %d bytes where %d are needed", r[from].size, r[to].size);
        return;
    }
    instruction_add(p, NULL);
    VmKernel *k = p->kernel;
    Insn *i = &k->code[k->n_code - 1];
    i->run = op_find(r[to].size == 8 ? "mov.b64" : "mov.b32")->run;
    i->operand[0] = (uint16_t)to;
    i->operand[1] = (uint16_t)from;
    i->n_out = 1;
    i->n_operands = 2;
    k->text[k->n_code - 1].text = "call: an argument or a result";
    k->text[k->n_code - 1].class = VM_MOVE;
}

/* "(a, b)", or a lone name: .param variables of the caller. Returns how many. */
static int arguments_read(Parser *p, int *registers, int max)
{
    int n = 0;
    if (!token_accept(p, "("))
        return 0;
    while (!token_accept(p, ")") && p->error == NULL) {
        Operand o;
        operand_read(p, &o);
        if (n == max || o.kind != OPERAND_REGISTER || !p->kernel->registers[o.reg].is_param)
            parse_error(p, "an argument that is no .param variable, or too many");
        else
            registers[n++] = o.reg;
        token_accept(p, ",");
    }
    return n;
}

/* Reads the body as the statements of call p->call. */
static void body_read(Parser *p, const Function *f)
{
    int back = p->at, outer = p->call, depth = p->depth;
    p->call = ++p->n_calls;
    p->call_depth++;
    p->at = f->body;
    do
        statement_read(p);
    while (p->depth > depth && p->error == NULL);
    label_add(p, call_end(p));
    p->call_depth--;
    p->call = outer;
    if (p->error == NULL)
        p->at = back;
}

void call_read(Parser *p)
{
    int arguments[MAX_FUNCTION_PARAMS], formals[MAX_FUNCTION_PARAMS];
    int n = arguments_read(p, arguments, MAX_FUNCTION_PARAMS);
    token_accept(p, ",");
    const Function *f = function_find(p, token_next(p));
    int n_results = n;
    token_accept(p, ",");
    n += arguments_read(p, arguments + n, MAX_FUNCTION_PARAMS - n);
    token_expect(p, ";");
    if (f != NULL && (n != f->n_params || n_results != f->n_results))
        parse_error(p, "%s takes other arguments", f->name);
    if (p->call_depth == MAX_CALL_DEPTH)
        parse_error(p, "calls more than %d deep: recursion is not known", MAX_CALL_DEPTH);
    if (p->error != NULL)
        return;
    p->depth++;
    for (int k = 0; k < n; k++) {
        formals[k] = register_declare(p, f->names[k], f->sizes[k]);
        p->kernel->registers[formals[k]].is_param = true;
        if (k >= n_results)
            move_add(p, formals[k], arguments[k]);
    }
    body_read(p, f);
    for (int k = 0; k < n_results && p->error == NULL; k++)
        move_add(p, arguments[k], formals[k]);
    scope_close(p);
}
