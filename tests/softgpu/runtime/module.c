/* What nvcc's host code registers before main: fat binaries, and in each the kernels and variables, named by addresses of the
 * host code. Nothing is read until a kernel or a variable is needed, as with the real runtime's lazy loading; so a missing
 * image is an error of the launch. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector_types.h>

#include "tests/softgpu/runtime/runtime.h"

#define WRAPPER_MAGIC 0x466243b1

typedef struct Module {
    const struct Wrapper {
        int magic, version;
        const void *fatbin;
        const void *more;
    } * wrapper;
    VmModule *code;  /* NULL: not loaded */
    cudaError_t bad; /* why it could not be */
} Module;

typedef struct Variable {
    Module *module;
    const void *host;
    const char *name;
} Variable;

static Kernel **kernels;
static int kernel_count, kernel_room;
static Variable *variables;
static int variable_count, variable_room;

/* In libstdc++: a new string, or NULL. */
char *__cxa_demangle(const char *name, char *buffer, size_t *size, int *status);

/* ---- Loading --------------------------------------------------------------------------------------------------------- */

/* Says why the fat binary has nothing to run. */
static cudaError_t no_image(const Module *m, const Image *image)
{
    int capability = settings.card.capability;
    if (image->packed)
        say("the PTX of a module could not be decompressed (is libzstd.so.1 there? or build with --no-compress)");
    else if (m->wrapper->version == 2)
        say("relocatable device code (-rdc=true) is linked by the driver: not possible here");
    else
        say("a module has no PTX for compute capability %d.%d or below, and %d images of machine code, which are of no use here "
            "(build with -gencode arch=compute_80,code=compute_80)",
            capability / 10, capability % 10, image->sass);
    return cudaErrorNoKernelImageForDevice;
}

static cudaError_t module_load(Module *m)
{
    if (m->code || m->bad)
        return m->bad;
    Image image = fatbin_read(m->wrapper->fatbin, settings.card.capability);
    if (!image.ptx)
        return m->bad = no_image(m, &image);
    VmError error = {0};
    m->code = vm_module_load(machine(), image.ptx, image.name, &error);
    if (!m->code) {
        say("%s: %s", image.name, error.text);
        m->bad = error.fault == VM_NO_MEMORY ? cudaErrorMemoryAllocation : cudaErrorInvalidPtx;
    }
    free(image.ptx);
    free(image.name);
    return m->bad;
}

cudaError_t kernel_find(const void *host, Kernel **kernel)
{
    int i = 0;
    while (i < kernel_count && kernels[i]->host != host && kernels[i] != host)
        i++;
    if (i == kernel_count)
        return cudaErrorInvalidDeviceFunction;
    Kernel *k = *kernel = kernels[i];
    if (k->code)
        return k->info->error ? cudaErrorInvalidPtx : cudaSuccess;
    cudaError_t e = module_load(k->module);
    if (e)
        return e;
    k->code = vm_kernel_find(k->module->code, k->name);
    if (!k->code)
        return cudaErrorInvalidDeviceFunction;
    k->info = vm_kernel_info(k->code);
    mutation_apply(k);
    if (k->info->error)
        say("kernel %s: %s", k->title, k->info->error);
    return k->info->error ? cudaErrorInvalidPtx : cudaSuccess;
}

cudaError_t variable_find(const void *host, uint64_t *address, uint64_t *bytes)
{
    int i = 0;
    while (i < variable_count && variables[i].host != host)
        i++;
    cudaError_t e = i == variable_count ? cudaErrorInvalidSymbol : module_load(variables[i].module);
    if (e)
        return e;
    return vm_symbol_find(variables[i].module->code, variables[i].name, address, bytes) ? cudaSuccess : cudaErrorInvalidSymbol;
}

void module_reset(void)
{
    for (int i = 0; i < kernel_count; i++) {
        kernels[i]->code = NULL;
        kernels[i]->dynamic_max = -1;
        kernels[i]->module->code = NULL;
        kernels[i]->module->bad = cudaSuccess;
    }
    for (int i = 0; i < variable_count; i++)
        variables[i].module->code = NULL;
}

/* ---- Registration: called by code that nvcc generates, which declares these functions itself -------------------------- */

void **__cudaRegisterFatBinary(void *wrapper);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaUnregisterFatBinary(void **handle);
char __cudaInitModule(void **handle);
void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int limit, uint3 *thread,
                            uint3 *block, dim3 *block_size, dim3 *grid_size, int *warp_size);
void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int external, size_t bytes, int constant,
                       int global);
void __cudaRegisterManagedVar(void **handle, void **host, char *device, const char *name, int external, size_t bytes,
                              int constant, int global);

void **__cudaRegisterFatBinary(void *wrapper)
{
    enter_anyway();
    Module *m = get(1, sizeof *m);
    m->wrapper = wrapper;
    if (m->wrapper->magic != WRAPPER_MAGIC)
        say("the wrapper of a fat binary has an unknown magic number, %#x", m->wrapper->magic);
    leave(cudaSuccess);
    return (void **)m;
}

void __cudaRegisterFatBinaryEnd(void **handle)
{
    (void)handle;
}

/* At exit: nothing needs to be freed. */
void __cudaUnregisterFatBinary(void **handle)
{
    (void)handle;
}

char __cudaInitModule(void **handle)
{
    (void)handle;
    return 1;
}

void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int limit, uint3 *thread,
                            uint3 *block, dim3 *block_size, dim3 *grid_size, int *warp_size)
{
    (void)device, (void)limit, (void)thread, (void)block, (void)block_size, (void)grid_size, (void)warp_size;
    enter_anyway();
    int status;
    char *title = __cxa_demangle(name, NULL, NULL, &status);
    Kernel *k = get(1, sizeof *k);
    *k = (Kernel){.module = (Module *)handle, .host = host, .name = name, .title = title ? title : name, .dynamic_max = -1};
    kernels = array_grow(kernels, kernel_count, &kernel_room, sizeof *kernels);
    kernels[kernel_count++] = k;
    leave(cudaSuccess);
}

void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int external, size_t bytes, int constant,
                       int global)
{
    (void)device, (void)external, (void)bytes, (void)constant, (void)global;
    enter_anyway();
    variables = array_grow(variables, variable_count, &variable_room, sizeof *variables);
    variables[variable_count++] = (Variable){(Module *)handle, host, name};
    leave(cudaSuccess);
}

void __cudaRegisterManagedVar(void **handle, void **host, char *device, const char *name, int external, size_t bytes,
                              int constant, int global)
{
    (void)handle, (void)host, (void)device, (void)external, (void)bytes, (void)constant, (void)global;
    say("the __managed__ variable %s is not possible in the software GPU", name);
}

/* ---- The interface --------------------------------------------------------------------------------------------------- */

cudaError_t cudaGetSymbolAddress(void **address, const void *symbol)
{
    uint64_t at = 0, bytes;
    cudaError_t e = enter();
    if (!e)
        e = variable_find(symbol, &at, &bytes);
    if (!e)
        *address = (void *)at;
    return leave(e);
}

cudaError_t cudaGetSymbolSize(size_t *size, const void *symbol)
{
    uint64_t at, bytes = 0;
    cudaError_t e = enter();
    if (!e)
        e = variable_find(symbol, &at, &bytes);
    if (!e)
        *size = bytes;
    return leave(e);
}
