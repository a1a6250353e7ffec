/* Faults: what happened, and where: kernel, block, thread, line of the PTX, line of the source. */
#include <stdarg.h>
#include <string.h>

#include "tests/softgpu/vm/machine.h"

bool vm_error_set(VmError *e, VmFault kind, const char *format, ...)
{
    if (e->fault != VM_NO_FAULT)
        return false;
    *e = (VmError){.fault = kind};
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(e->text, sizeof e->text, format, arguments);
    va_end(arguments);
    return false;
}

static const char *file_name(const VmModule *m, int file)
{
    return file > 0 && file < m->n_files && m->files[file] != NULL ? m->files[file] : NULL;
}

void source_text(const VmKernel *k, int n, char *text, size_t size)
{
    const InsnText *t = &k->text[n];
    const char *file = file_name(k->module, t->file), *caller = file_name(k->module, t->caller);
    text[0] = 0;
    if (file != NULL && caller != NULL)
        snprintf(text, size, " at %s:%d in %s:%d", caller, t->call_line, file, t->source_line);
    else if (file != NULL)
        snprintf(text, size, " at %s:%d", file, t->source_line);
}

/* "; kernel axpy, block (0,0,0), thread (5,0,0), PTX line 40: st.global...; at axpy.cu:7" */
static void where(const Warp *w, const Insn *i, int lane, char *text, size_t size)
{
    const Block *b = w->block;
    const VmKernel *k = b->kernel;
    const uint32_t *dim = b->launch->block;
    const InsnText *t = &k->text[i - k->code];
    uint32_t thread = (uint32_t)(w->id * LANES + lane);
    char source[512];
    source_text(k, (int)(i - k->code), source, sizeof source);
    snprintf(text, size, "; kernel %s, block (%u,%u,%u), thread (%u,%u,%u), PTX line %d: %s%s", k->info.name, b->index[0],
             b->index[1], b->index[2], thread % dim[0], thread / dim[0] % dim[1], thread / dim[0] / dim[1], t->line, t->text,
             source);
}

bool fault(Warp *w, const Insn *i, int lane, VmFault kind, uint64_t address, const char *format, ...)
{
    char what[1024], place[2048];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    where(w, i, lane, place, sizeof place);
    Launch *launch = w->block->launch;
    pthread_mutex_lock(&launch->lock);
    if (launch->error->fault == VM_NO_FAULT) {
        vm_error_set(launch->error, kind, "%s%s", what, place);
        launch->error->address = address;
    }
    pthread_mutex_unlock(&launch->lock);
    __atomic_store_n(&launch->stopped, 1, __ATOMIC_RELAXED);
    return false;
}
