/* Bounds and alignment, where not all lanes lie in the same allocation or variable, and the message when one is wrong. */
#include "tests/softgpu/vm/checks.h"

typedef unsigned long long ull; /* for printf */

static const char *access_name(Access access)
{
    return access == ACCESS_READ ? "read" : access == ACCESS_WRITE ? "write" : "atomic";
}

/* ---- Global memory ------------------------------------------------------------------------------------------------- */

static const Allocation *allocation_nearest(const Vm *vm, uint64_t address)
{
    const Allocation *nearest = NULL;
    uint64_t best = UINT64_MAX;
    for (const Allocation *a = vm->allocations; a < vm->allocations + vm->n_allocations; a++) {
        uint64_t distance = address < a->begin ? a->begin - address : address >= a->end ? address - a->end : 0;
        if (distance < best) {
            best = distance;
            nearest = a;
        }
    }
    return nearest;
}

/* "8 bytes past the end of x (256 bytes)", as the owner of the memory or our own table knows it */
static void address_describe(const Vm *vm, uint64_t address, char *text, size_t size)
{
    text[0] = 0;
    if (vm->hooks.describe != NULL) {
        vm->hooks.describe(vm->hooks.context, address, text, size);
        return;
    }
    const Allocation *a = allocation_nearest(vm, address);
    if (a == NULL)
        snprintf(text, size, "there is no device memory");
    else if (address < a->begin)
        snprintf(text, size, "%llu bytes before %s (%llu bytes)", (ull)(a->begin - address), a->name, (ull)(a->end - a->begin));
    else if (address >= a->end)
        snprintf(text, size, "%llu bytes past the end of %s (%llu bytes)", (ull)(address - a->end), a->name,
                 (ull)(a->end - a->begin));
    else
        snprintf(text, size, "%llu bytes before the end of %s (%llu bytes)", (ull)(a->end - address), a->name,
                 (ull)(a->end - a->begin));
}

bool global_bounds(Warp *w, const Insn *i, const uint64_t *address, int bytes, Access access)
{
    const Vm *vm = w->block->launch->vm;
    EACH_ON (l) {
        const Allocation *a = allocation_find(vm, address[l]);
        char text[256];
        if (a == NULL || (uint64_t)bytes > a->end - address[l]) {
            address_describe(vm, address[l], text, sizeof text);
            return fault(w, i, l, VM_OUT_OF_BOUNDS, address[l], "global %s out of bounds: %d bytes at %#llx: %s",
                         access_name(access), bytes, (ull)address[l], text);
        }
        if (address[l] % (uint64_t)bytes != 0)
            return fault(w, i, l, VM_MISALIGNED, address[l], "misaligned global %s: %d bytes at %#llx, byte %llu of %s",
                         access_name(access), bytes, (ull)address[l], (ull)(address[l] - a->begin), a->name);
    }
    return true;
}

/* ---- Shared and local memory --------------------------------------------------------------------------------------- */

/* The variable that holds the offset or ends closest before it. */
static const SharedVariable *variable_nearest(const Block *b, uint64_t offset)
{
    const SharedVariable *nearest = offset >= b->dynamic.offset ? &b->dynamic : NULL;
    for (const SharedVariable *v = b->kernel->shared; v < b->kernel->shared + b->kernel->n_shared && nearest == NULL; v++)
        if (offset < v->offset + v->bytes + SHARED_GAP)
            nearest = v;
    return nearest ? nearest : &b->dynamic;
}

bool shared_bounds(Warp *w, const Insn *i, const uint64_t *offset, int bytes)
{
    Block *b = w->block;
    EACH_ON (l) {
        const SharedVariable *v = variable_nearest(b, offset[l]);
        long long in = (long long)(offset[l] - v->offset);
        if (in < 0 || in + bytes > v->bytes)
            return fault(w, i, l, VM_OUT_OF_BOUNDS, offset[l],
                         "shared access out of bounds: %d bytes at byte %lld of %s, which has %u", bytes, in, v->name, v->bytes);
        if (offset[l] % (uint64_t)bytes != 0)
            return fault(w, i, l, VM_MISALIGNED, offset[l], "misaligned shared access: %d bytes at byte %lld of %s", bytes, in,
                         v->name);
        b->last_shared = v;
    }
    return true;
}

bool local_bounds(Warp *w, const Insn *i, const uint64_t *offset, int bytes)
{
    uint32_t frame = w->block->kernel->info.local_bytes;
    EACH_ON (l) {
        if ((uint64_t)bytes > frame || offset[l] > frame - (uint64_t)bytes)
            return fault(w, i, l, VM_OUT_OF_BOUNDS, offset[l], "local access out of bounds: %d bytes at byte %llu of %u", bytes,
                         (ull)offset[l], frame);
        if (offset[l] % (uint64_t)bytes != 0)
            return fault(w, i, l, VM_MISALIGNED, offset[l], "misaligned local access: %d bytes at byte %llu", bytes,
                         (ull)offset[l]);
    }
    return true;
}
