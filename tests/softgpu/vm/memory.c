/* The table of live device memory, each range with the shadows that its checks and counters need, and the machine itself. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/softgpu/vm/machine.h"

/* ---- The machine --------------------------------------------------------------------------------------------------- */

/* The position of the variable's value in names; fallback without one. -1 after recording an error. */
static int choice_read(const char *variable, const char *const *names, int n, int fallback, VmError *error)
{
    const char *value = getenv(variable);
    if (value == NULL || *value == 0)
        return fallback;
    for (int k = 0; k < n; k++)
        if (strcmp(names[k], value) == 0)
            return k;
    vm_error_set(error, VM_BAD_LAUNCH, "%s is '%s'", variable, value);
    return -1;
}

/* A whole number from the environment; fallback without one. */
static uint64_t number_read(const char *variable, uint64_t fallback, VmError *error)
{
    const char *value = getenv(variable);
    if (value == NULL || *value == 0)
        return fallback;
    char *end;
    uint64_t v = strtoull(value, &end, 10);
    if (*end != 0)
        vm_error_set(error, VM_BAD_LAUNCH, "%s is '%s', which is no number", variable, value);
    return v;
}

bool vm_options_read(VmOptions *options, VmError *error)
{
    static const char *const orders[] = {"forward", "reverse", "random"}, *const copies[] = {"late", "early", "random"};
    static const char *const approximations[] = {"nearest", "up", "down", "both"};
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    *error = (VmError){0};
    *options = (VmOptions){.threads = (int)number_read("SOFTGPU_THREADS", cores > 0 ? (uint64_t)cores : 1, error),
                           .check = number_read("SOFTGPU_CHECK", 0, error) != 0,
                           .profile = number_read("SOFTGPU_COUNT", 0, error) != 0,
                           .order = (VmOrder)choice_read("SOFTGPU_ORDER", orders, 3, VM_FORWARD, error),
                           .seed = number_read("SOFTGPU_SEED", 0, error),
                           .copy = (VmCopy)choice_read("SOFTGPU_COPY", copies, 3, VM_COPY_LATE, error),
                           .approx = (VmApprox)choice_read("SOFTGPU_APPROX", approximations, 4, VM_NEAREST, error),
                           .max_steps = number_read("SOFTGPU_MAX_STEPS", 1000000000, error)};
    return error->fault == VM_NO_FAULT;
}

Vm *vm_new(const VmOptions *options, const VmHooks *hooks, VmError *error)
{
    Vm *vm = calloc(1, sizeof *vm);
    if (vm == NULL) {
        vm_error_set(error, VM_NO_MEMORY, "no memory for the machine");
        return NULL;
    }
    vm->options = *options;
    vm->hooks = *hooks;
    return vm;
}

void vm_module_free(VmModule *module)
{
    if (module == NULL)
        return;
    VmModule **at = &module->vm->modules;
    while (*at != module)
        at = &(*at)->next;
    *at = module->next;
    arena_free(&module->arena);
    free(module);
}

static void allocation_free(Allocation *a)
{
    free(a->name);
    free(a->written);
    free(a->cells);
    free(a->read);
    free(a->write);
}

void vm_free(Vm *vm)
{
    if (vm == NULL)
        return;
    while (vm->modules != NULL)
        vm_module_free(vm->modules);
    for (int a = 0; a < vm->n_allocations; a++)
        allocation_free(&vm->allocations[a]);
    free(vm->allocations);
    free(vm);
}

/* ---- Ranges -------------------------------------------------------------------------------------------------------- */

/* How many allocations begin at or before the address. */
static int allocations_before(const Vm *vm, uint64_t address)
{
    int low = 0, high = vm->n_allocations;
    while (low < high) {
        int middle = (low + high) / 2;
        if (vm->allocations[middle].begin <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const Allocation *allocation_find(const Vm *vm, uint64_t address)
{
    int n = allocations_before(vm, address);
    return n > 0 && address < vm->allocations[n - 1].end ? &vm->allocations[n - 1] : NULL;
}

static Touched *touched_get(size_t bytes)
{
    Touched *t = calloc(sizeof *t + bytes / SECTOR_BYTES + 1, 1);
    if (t != NULL)
        t->first = UINT64_MAX;
    return t;
}

/* calloc gives large shadows lazily: pages that no kernel touches cost nothing. */
static bool shadows_get(const Vm *vm, Allocation *a)
{
    size_t bytes = a->end - a->begin;
    if (vm->options.check) {
        a->written = calloc(bytes, 1);
        a->cells = calloc(bytes / SHADOW_BYTES + 1, sizeof *a->cells);
        if (a->written == NULL || a->cells == NULL)
            return false;
    }
    if (vm->options.profile) {
        a->read = touched_get(bytes);
        a->write = touched_get(bytes);
        if (a->read == NULL || a->write == NULL)
            return false;
    }
    return true;
}

bool vm_memory_add(Vm *vm, uint64_t address, uint64_t bytes, void *host, const char *name, VmError *error)
{
    int at = allocations_before(vm, address);
    if (bytes == 0 || address + bytes < address || (address + bytes) >> WINDOW_SHIFT != 0)
        return vm_error_set(error, VM_NO_MEMORY, "%s: %#llx is no device address for %llu bytes", name,
                            (unsigned long long)address, (unsigned long long)bytes);
    if ((at > 0 && vm->allocations[at - 1].end > address) ||
        (at < vm->n_allocations && vm->allocations[at].begin < address + bytes))
        return vm_error_set(error, VM_NO_MEMORY, "%s: memory at %#llx is live already", name, (unsigned long long)address);
    Allocation a = {.begin = address, .end = address + bytes, .host = host, .name = strdup(name)};
    if (a.name == NULL || !shadows_get(vm, &a)) {
        allocation_free(&a);
        return vm_error_set(error, VM_NO_MEMORY, "%s: no memory for the checks of %llu bytes", name, (unsigned long long)bytes);
    }
    if (vm->n_allocations == vm->max_allocations) {
        vm->max_allocations = vm->max_allocations ? 2 * vm->max_allocations : 64;
        vm->allocations = host_resize(vm->allocations, (size_t)vm->max_allocations, sizeof a);
    }
    memmove(&vm->allocations[at + 1], &vm->allocations[at], (size_t)(vm->n_allocations - at) * sizeof a);
    vm->allocations[at] = a;
    vm->n_allocations++;
    return true;
}

void vm_memory_remove(Vm *vm, uint64_t address)
{
    int at = allocations_before(vm, address) - 1;
    if (at < 0 || vm->allocations[at].begin != address)
        return;
    allocation_free(&vm->allocations[at]);
    vm->n_allocations--;
    memmove(&vm->allocations[at], &vm->allocations[at + 1], (size_t)(vm->n_allocations - at) * sizeof *vm->allocations);
}

void vm_memory_written(Vm *vm, uint64_t address, uint64_t bytes)
{
    const Allocation *a = allocation_find(vm, address);
    if (a != NULL && a->written != NULL && bytes <= a->end - address)
        memset(a->written + (address - a->begin), 1, bytes);
}

bool vm_memory_unwritten(const Vm *vm, uint64_t address, uint64_t bytes, uint64_t *first)
{
    const Allocation *a = allocation_find(vm, address);
    if (a == NULL || a->written == NULL || bytes > a->end - address)
        return false;
    const uint8_t *found = memchr(a->written + (address - a->begin), 0, bytes);
    if (found == NULL)
        return false;
    *first = a->begin + (uint64_t)(found - a->written);
    return true;
}

static void touched_visit(const Allocation *a, const Touched *t, VmVisit *visit, void *context, bool written)
{
    if (t == NULL || t->first > t->last)
        return;
    uint64_t begin = a->begin + t->first * SECTOR_BYTES, end = a->begin + (t->last + 1) * SECTOR_BYTES;
    visit(context, begin, (end < a->end ? end : a->end) - begin, t->sectors + t->first, t->last - t->first + 1, written);
}

void vm_touched(const Vm *vm, VmVisit *visit, void *context)
{
    for (const Allocation *a = vm->allocations; a < vm->allocations + vm->n_allocations; a++) {
        touched_visit(a, a->read, visit, context, false);
        touched_visit(a, a->write, visit, context, true);
    }
}

/* ---- What a module offers ------------------------------------------------------------------------------------------ */

VmKernel *vm_kernel_at(VmModule *module, int index)
{
    if (index < 0 || index >= module->n_kernels)
        return NULL;
    kernel_parse(&module->kernels[index]);
    return &module->kernels[index];
}

VmKernel *vm_kernel_find(VmModule *module, const char *name)
{
    for (int k = 0; k < module->n_kernels; k++)
        if (strcmp(module->kernels[k].info.name, name) == 0)
            return vm_kernel_at(module, k);
    return NULL;
}

const VmKernelInfo *vm_kernel_info(const VmKernel *kernel)
{
    return &kernel->info;
}

bool vm_symbol_find(const VmModule *module, const char *name, uint64_t *address, uint64_t *bytes)
{
    for (int s = 0; s < module->n_symbols; s++) {
        const Symbol *symbol = &module->symbols[s];
        if (symbol->space == SPACE_GLOBAL && strcmp(symbol->name, name) == 0) {
            *address = symbol->address;
            *bytes = symbol->bytes;
            return true;
        }
    }
    return false;
}
