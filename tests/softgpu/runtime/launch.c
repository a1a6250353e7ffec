/* Kernels: what a launch may ask for, the launch as an operation of a stream, attributes, occupancy. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/softgpu/runtime/runtime.h"

#define SHARED_DEFAULT  49152 /* bytes of shared memory that a block has without asking, static and dynamic together */
#define SHARED_RESERVED 1024  /* bytes that the system takes of an SM's for each block */

typedef struct Call {
    Kernel *kernel;
    uint32_t grid[3], block[3], dynamic;
    unsigned char params[];
} Call;

/* ---- Running --------------------------------------------------------------------------------------------------------- */

/* The machine tells which sectors of a range the kernel touched: one call for each run of them. */
static void touched(void *op, uint64_t address, uint64_t bytes, const uint8_t *sectors, uint64_t n, bool written)
{
    for (uint64_t i = 0, end; i < n; i = end) {
        for (end = i; end < n && sectors[end]; end++)
            ;
        uint64_t last = end * 32 < bytes ? end * 32 : bytes;
        if (end > i)
            race_touch(op, (const void *)(address + i * 32), last - i * 32, written);
        else
            end++;
    }
}

static cudaError_t error_of(VmFault fault)
{
    switch (fault) {
    case VM_OUT_OF_BOUNDS:
        return cudaErrorIllegalAddress;
    case VM_MISALIGNED:
        return cudaErrorMisalignedAddress;
    case VM_ENDLESS:
        return cudaErrorLaunchTimeout;
    case VM_NO_MEMORY:
        return cudaErrorMemoryAllocation;
    default:
        return cudaErrorLaunchFailure;
    }
}

/* A pointer to ordinary host memory among the parameters is a likely cause. */
static void blame_parameters(const Call *call)
{
    for (int i = 0; i < call->kernel->info->n_params; i++) {
        VmParam param = call->kernel->info->params[i];
        void *value;
        char text[256];
        if (param.bytes != sizeof value)
            continue;
        memcpy(&value, call->params + param.offset, sizeof value);
        if (memory_is_device(value) || memory_find(value))
            continue;
        memory_describe(value, text, sizeof text);
        if (strncmp(text, "HOST", 4) == 0)
            say("parameter %d is %p: %s", i, value, text);
    }
}

static void call_run(void *arg)
{
    const Call *c = arg;
    VmError error = {0};
    double begin = clock_ms();
    bool good = vm_launch(c->kernel->code, c->grid, c->block, c->dynamic, c->params, &error);
    c->kernel->launches++;
    c->kernel->ms += clock_ms() - begin;
    if (good) {
        profile_launch(c->kernel);
        if (settings.race)
            vm_touched(machine(), touched, (void *)op_running());
        return;
    }
    device_fault(error_of(error.fault), "kernel %s <<<(%u, %u, %u), (%u, %u, %u), %u>>>: %s", c->kernel->title, c->grid[0],
                 c->grid[1], c->grid[2], c->block[0], c->block[1], c->block[2], c->dynamic, error.text);
    if (error.fault == VM_OUT_OF_BOUNDS)
        blame_parameters(c);
}

/* ---- Launching ------------------------------------------------------------------------------------------------------- */

/* Dynamic shared memory that the kernel may ask for. */
static int64_t dynamic_limit(const Kernel *k)
{
    int64_t room = SHARED_DEFAULT - (int64_t)k->info->shared_bytes;
    return k->dynamic_max > room ? k->dynamic_max : room;
}

static cudaError_t shape_check(const Kernel *k, dim3 grid, dim3 block, size_t dynamic)
{
    uint64_t threads = (uint64_t)block.x * block.y * block.z;
    const uint32_t *required = k->info->required_threads;
    if (!grid.x || !grid.y || !grid.z || !threads || threads > 1024 || block.x > 1024 || block.y > 1024 || block.z > 64 ||
        grid.x > 0x7fffffff || grid.y > 65535 || grid.z > 65535)
        return cudaErrorInvalidConfiguration;
    if (threads > k->info->max_threads)
        return cudaErrorInvalidValue;
    if (required[0] && (block.x != required[0] || block.y != required[1] || block.z != required[2]))
        return cudaErrorInvalidValue;
    return (int64_t)dynamic > dynamic_limit(k) ? cudaErrorInvalidValue : cudaSuccess;
}

static cudaError_t launch(const void *host, dim3 grid, dim3 block, void **args, size_t dynamic, cudaStream_t stream)
{
    Stream *s;
    Kernel *k;
    cudaError_t e = stream_find(stream, &s);
    if (!e)
        e = kernel_find(host, &k);
    if (!e)
        e = shape_check(k, grid, block, dynamic);
    for (int i = 0; !e && i < k->info->n_params; i++)
        if (!args || !args[i])
            e = cudaErrorInvalidValue;
    if (e)
        return e;
    Call *c = get(1, sizeof *c + k->info->param_bytes);
    *c = (Call){k, {grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, (uint32_t)dynamic};
    for (int i = 0; i < k->info->n_params; i++)
        memcpy(c->params + k->info->params[i].offset, args[i], k->info->params[i].bytes);
    return stream_submit(s, work_new(WORK_KERNEL, call_run, free, c, "%s", k->title));
}

cudaError_t cudaLaunchKernel(const void *host, dim3 grid, dim3 block, void **args, size_t dynamic, cudaStream_t stream)
{
    cudaError_t e = enter();
    if (!e)
        e = launch(host, grid, block, args, dynamic, stream);
    return leave(e);
}

/* What cudaLaunchKernelEx calls. */
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *host, void **args)
{
    cudaError_t e = enter();
    if (!e && !config)
        e = cudaErrorInvalidValue;
    for (unsigned i = 0; !e && i < config->numAttrs; i++)
        if (config->attrs[i].id != cudaLaunchAttributeIgnore) {
            say("launch attribute %d is not implemented in the software GPU", (int)config->attrs[i].id);
            e = cudaErrorNotSupported;
        }
    if (!e)
        e = launch(host, config->gridDim, config->blockDim, args, config->dynamicSmemBytes, config->stream);
    return leave(e);
}

/* ---- What f<<<grid, block, dynamic, stream>>>(...) becomes: generated code declares these functions itself ------------ */

typedef struct Configuration {
    dim3 grid, block;
    size_t dynamic;
    cudaStream_t stream;
} Configuration;

static __thread Configuration pushed[16]; /* a stack: an argument of a launch can contain another */
static __thread int pushed_count;

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t dynamic, cudaStream_t stream);
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *dynamic, void *stream);
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t dynamic, cudaStream_t stream);

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t dynamic, cudaStream_t stream)
{
    if (pushed_count == 16)
        return cudaErrorInvalidConfiguration;
    pushed[pushed_count++] = (Configuration){grid, block, dynamic, stream};
    return cudaSuccess;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *dynamic, void *stream)
{
    enter_anyway();
    if (!pushed_count)
        return leave(cudaErrorMissingConfiguration);
    Configuration c = pushed[--pushed_count];
    *grid = c.grid;
    *block = c.block;
    *dynamic = c.dynamic;
    *(cudaStream_t *)stream = c.stream;
    return leave(cudaSuccess);
}

/* Called once for each kernel, in static initialisers too: the stub's address serves as the handle, so nothing is loaded. */
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host)
{
    *kernel = (cudaKernel_t)host;
    return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t dynamic, cudaStream_t stream)
{
    return cudaLaunchKernel(kernel, grid, block, args, dynamic, stream);
}

/* ---- Attributes ------------------------------------------------------------------------------------------------------ */

cudaError_t cudaFuncSetAttribute(const void *host, enum cudaFuncAttribute attribute, int value)
{
    Kernel *k;
    cudaError_t e = enter();
    if (!e)
        e = kernel_find(host, &k);
    if (!e && attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) {
        if (value < 0 || value > settings.card.shared_per_block - (int)k->info->shared_bytes)
            e = cudaErrorInvalidValue;
        else
            k->dynamic_max = value;
    } else if (!e && attribute == cudaFuncAttributePreferredSharedMemoryCarveout) {
        e = value < -1 || value > 100 ? cudaErrorInvalidValue : cudaSuccess;
    } else if (!e) {
        e = cudaErrorInvalidValue;
    }
    return leave(e);
}

/* Registers are those that the machine counts, not ptxas's: see -Xptxas -v. */
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *host)
{
    Kernel *k;
    cudaError_t e = enter();
    if (!e)
        e = kernel_find(host, &k);
    if (!e)
        *attributes = (struct cudaFuncAttributes){.sharedSizeBytes = k->info->shared_bytes,
                                                  .localSizeBytes = k->info->local_bytes,
                                                  .maxThreadsPerBlock = (int)k->info->max_threads,
                                                  .numRegs = (int)k->info->registers,
                                                  .ptxVersion = settings.card.capability,
                                                  .binaryVersion = settings.card.capability,
                                                  .maxDynamicSharedSizeBytes = (int)dynamic_limit(k),
                                                  .preferredShmemCarveout = -1};
    return leave(e);
}

/* By threads and by shared memory; registers are ptxas's business. */
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *host, int block_size, size_t dynamic,
                                                                   unsigned flags)
{
    Kernel *k;
    (void)flags;
    cudaError_t e = enter();
    if (!e)
        e = kernel_find(host, &k);
    if (!e && block_size <= 0)
        e = cudaErrorInvalidValue;
    if (!e) {
        int warps = card_warps() / ((block_size + 31) / 32);
        int64_t shared = (int64_t)(k->info->shared_bytes + dynamic),
                fit = settings.card.shared_per_sm / (shared + SHARED_RESERVED);
        *blocks = warps < 32 ? warps : 32;
        if (shared && fit < *blocks)
            *blocks = (int)fit;
        if (block_size > (int)k->info->max_threads)
            *blocks = 0;
    }
    return leave(e);
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *host, int block_size, size_t dynamic)
{
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, host, block_size, dynamic, cudaOccupancyDefault);
}
