/* Memory, as a program sees it: allocations on the card and pinned ones, and what is said of a pointer. Freeing waits for the
 * device, as the real functions do. */
#include "tests/softgpu/runtime/runtime.h"

static cudaError_t take(void **out, size_t bytes, MemoryKind kind, const char *name)
{
    if (!out)
        return cudaErrorInvalidValue;
    *out = NULL;
    if (!bytes)
        return cudaSuccess;
    if (kind == MEMORY_DEVICE && bytes > memory_free())
        return cudaErrorMemoryAllocation;
    *out = (void *)memory_new(bytes, kind, name);
    return *out ? cudaSuccess : cudaErrorMemoryAllocation;
}

static cudaError_t give_back(void *p, MemoryKind kind, const char *function)
{
    if (!p)
        return cudaSuccess;
    Allocation *a = memory_find(p);
    if (!a || a->address != (uint64_t)p || !a->live || a->kind != kind) {
        char text[256];
        memory_describe(p, text, sizeof text);
        say("%s(%p): %s", function, p, text);
        return cudaErrorInvalidValue;
    }
    queue_run_all();
    if (!fault_get())
        memory_end(a);
    return fault_get();
}

cudaError_t cudaMalloc(void **p, size_t bytes)
{
    cudaError_t e = enter();
    if (!e)
        e = capture_forbids(NULL);
    if (!e)
        e = take(p, bytes, MEMORY_DEVICE, "cudaMalloc");
    return leave(e);
}

cudaError_t cudaFree(void *p)
{
    cudaError_t e = enter();
    if (!e)
        e = capture_forbids(NULL);
    if (!e)
        e = give_back(p, MEMORY_DEVICE, "cudaFree");
    return leave(e);
}

/* Kernels can use pinned memory by its own address, whatever the flags. */
cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned flags)
{
    cudaError_t e = enter();
    if (!e)
        e = flags > 7 ? cudaErrorInvalidValue : capture_forbids(NULL);
    if (!e)
        e = take(p, bytes, MEMORY_PINNED, "pinned");
    return leave(e);
}

cudaError_t cudaMallocHost(void **p, size_t bytes)
{
    return cudaHostAlloc(p, bytes, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void *p)
{
    cudaError_t e = enter();
    if (!e)
        e = capture_forbids(NULL);
    if (!e)
        e = give_back(p, MEMORY_PINNED, "cudaFreeHost");
    return leave(e);
}

cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned flags)
{
    (void)flags;
    cudaError_t e = enter();
    if (!e && (!p || !bytes))
        e = cudaErrorInvalidValue;
    if (!e && (memory_find(p) || memory_find((char *)p + bytes - 1)))
        e = cudaErrorHostMemoryAlreadyRegistered;
    if (!e)
        memory_register(p, bytes);
    return leave(e);
}

cudaError_t cudaHostUnregister(void *p)
{
    cudaError_t e = enter();
    const Allocation *a = memory_find(p);
    if (!e && (!a || a->kind != MEMORY_REGISTERED))
        e = cudaErrorHostMemoryNotRegistered;
    if (!e)
        e = give_back(p, MEMORY_REGISTERED, "cudaHostUnregister");
    return leave(e);
}

static bool is_pinned(const Allocation *a)
{
    return a && a->live && (a->kind == MEMORY_PINNED || a->kind == MEMORY_REGISTERED);
}

cudaError_t cudaHostGetDevicePointer(void **device, void *p, unsigned flags)
{
    (void)flags;
    cudaError_t e = enter();
    if (!e && !is_pinned(memory_find(p)))
        e = cudaErrorInvalidValue;
    if (!e)
        *device = p;
    return leave(e);
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *out, const void *p)
{
    cudaError_t e = enter();
    const Allocation *a = memory_find(p);
    bool live = a && a->live;
    if (!e && !live)
        *out = (struct cudaPointerAttributes){.type = cudaMemoryTypeUnregistered, .device = -2, .hostPointer = (void *)p};
    else if (!e && is_pinned(a))
        *out = (struct cudaPointerAttributes){.type = cudaMemoryTypeHost, .devicePointer = (void *)p, .hostPointer = (void *)p};
    else if (!e)
        *out = (struct cudaPointerAttributes){.type = cudaMemoryTypeDevice, .devicePointer = (void *)p};
    return leave(e);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    cudaError_t e = enter();
    if (!e) {
        *free_bytes = memory_free();
        *total = settings.card.memory;
    }
    return leave(e);
}
