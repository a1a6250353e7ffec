/* What the tests of the PTX machine share: a machine with one buffer of device memory, and kernels from PTX text. */
#ifndef SOFTGPU_VM_RIG_H
#define SOFTGPU_VM_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/softgpu/vm/vm.h"

/* Device addresses differ from the host's, so that none is used for the other. */
enum { RIG_BYTES = 1 << 16 };
#define RIG_ADDRESS 0x700000000000ull
#define RIG_MODULE  0x710000000000ull

typedef struct Rig {
    Vm *vm;
    VmError error;
    _Alignas(256) uint8_t data[RIG_BYTES];      /* device memory at RIG_ADDRESS */
    _Alignas(256) uint8_t variables[RIG_BYTES]; /* and what modules place       */
    uint64_t n_variables;                       /* bytes of them                */
} Rig;

static inline uint64_t rig_place(void *context, uint64_t bytes, uint64_t align, const char *name)
{
    Rig *r = context;
    (void)align;
    uint64_t at = (r->n_variables + 255) & ~255ull;
    if (bytes > RIG_BYTES - at || !vm_memory_add(r->vm, RIG_MODULE + at, bytes, r->variables + at, name, &r->error))
        return 0;
    r->n_variables = at + bytes;
    return RIG_MODULE + at;
}

static inline VmOptions rig_options(void)
{
    return (VmOptions){.threads = 1, .max_steps = 200000};
}

/* A machine whose memory is `bytes` long, written (zeros) as far as check mode is concerned. */
static inline Rig *rig_open(VmOptions options, uint64_t bytes)
{
    Rig *r = aligned_alloc(256, sizeof *r);
    memset(r, 0, sizeof *r);
    VmHooks hooks = {.context = r, .place = rig_place};
    r->vm = vm_new(&options, &hooks, &r->error);
    assert_non_null(r->vm);
    assert_true(vm_memory_add(r->vm, RIG_ADDRESS, bytes, r->data, "data", &r->error));
    vm_memory_written(r->vm, RIG_ADDRESS, bytes);
    return r;
}

static inline void rig_close(Rig *r)
{
    vm_free(r->vm);
    free(r);
}

/* The text must be well formed, and its kernels too. */
static inline VmModule *rig_load(Rig *r, const char *ptx)
{
    VmModule *m = vm_module_load(r->vm, ptx, "test", &r->error);
    if (m == NULL)
        fail_msg("%s", r->error.text);
    VmKernel *k;
    for (int n = 0; (k = vm_kernel_at(m, n)) != NULL; n++)
        if (vm_kernel_info(k)->error != NULL)
            fail_msg("%s: %s", vm_kernel_info(k)->name, vm_kernel_info(k)->error);
    return m;
}

static inline VmKernel *rig_kernel(VmModule *m, const char *name)
{
    VmKernel *k = vm_kernel_find(m, name);
    if (k == NULL)
        fail_msg("no kernel %s", name);
    return k;
}

/* A kernel has one parameter: the address of the buffer. */
static inline bool rig_launch(Rig *r, VmKernel *k, uint32_t blocks, uint32_t threads, uint32_t dynamic_shared)
{
    const uint32_t grid[3] = {blocks, 1, 1}, block[3] = {threads, 1, 1};
    uint64_t params[1] = {RIG_ADDRESS};
    return vm_launch(k, grid, block, dynamic_shared, params, &r->error);
}

static inline void rig_run(Rig *r, VmKernel *k, uint32_t blocks, uint32_t threads)
{
    if (!rig_launch(r, k, blocks, threads, 0))
        fail_msg("%s", r->error.text);
}

/* The PTX that nvcc made of cases/NAME.cu, ../cases from where this program is; NULL, after saying so, where there is none. */
static inline char *rig_case(const char *name)
{
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 64);
    assert_true(n > 0);
    path[n] = 0;
    snprintf(strrchr(path, '/'), 64, "/../cases/%s.ptx", name);
    FILE *f = fopen(path, "r");
    if (f == NULL) {
        printf("skipped: %s is not there (no nvcc?)\n", path);
        return NULL;
    }
    fseek(f, 0, SEEK_END);
    long size = ftell(f);
    rewind(f);
    char *text = calloc((size_t)size + 1, 1);
    assert_int_equal(fread(text, 1, (size_t)size, f), size);
    fclose(f);
    return text;
}

#endif
