/* A GPU as a device: found, or refused with the reason; its memory; its op table. */
#include "kernels/cuda/cuda.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

bool cuda_check(Ctx *c, OpId op, int status, const char *what)
{
    return status == cudaSuccess || error_set(c->error, "%s (layer %d): CUDA: %s: %s", op_name(op), c->layer, what,
                                              cudaGetErrorString((cudaError_t)status));
}

/* ---- Memory -------------------------------------------------------------------------------------------------------- */

static void *cuda_memory_take(size_t bytes, const char *what, Error *e)
{
    void *p = NULL;
    size_t free_bytes = 0, total = 0;
    cudaError_t status = cudaMalloc(&p, bytes ? bytes : 1);
    if (!status)
        status = cudaMemset(p, 0, bytes);
    if (!status) /* the streams that will use it do not wait for the memset */
        status = cudaStreamSynchronize(NULL);
    if (!status)
        return p;
    cudaFree(p);
    cudaGetLastError(); /* or the next launch would report it again */
    if (status == cudaErrorMemoryAllocation && !cudaMemGetInfo(&free_bytes, &total))
        error_set(e, "out of GPU memory: %zu bytes for %s; %zu of its %zu bytes are free", bytes, what, free_bytes, total);
    else
        error_set(e, "CUDA: %zu bytes for %s: %s", bytes, what, cudaGetErrorString(status));
    return NULL;
}

static void cuda_memory_give(void *p, size_t bytes)
{
    (void)bytes;
    cudaFree(p);
}

static size_t cuda_memory_free(void)
{
    size_t free_bytes = 0, total = 0;
    return cudaMemGetInfo(&free_bytes, &total) ? 0 : free_bytes;
}

/* Pinned: the GPU reads and writes it while the host does something else. */
static void *cuda_host_take(size_t bytes, const char *what, Error *e)
{
    void *p = NULL;
    cudaError_t status = cudaMallocHost(&p, bytes ? bytes : 1);
    if (!status)
        return memset(p, 0, bytes);
    cudaGetLastError();
    error_set(e, "CUDA: %zu bytes of host memory for %s: %s", bytes, what, cudaGetErrorString(status));
    return NULL;
}

static void cuda_host_give(void *p)
{
    cudaFreeHost(p);
}

static void cuda_synchronize(Ctx *c)
{
    cudaError_t status = cudaStreamSynchronize((cudaStream_t)c->stream);
    if (status)
        error_set(c->error, "CUDA, found while waiting: %s", cudaGetErrorString(status));
}

/* ---- The GPU ------------------------------------------------------------------------------------------------------- */

/* Why there is no GPU to be found at all. */
static bool absence_explain(cudaError_t status, Error *e)
{
    int driver = 0;
    cudaDriverGetVersion(&driver);
    if (status == cudaErrorInsufficientDriver && driver > 0)
        return error_usage(e, "the NVIDIA driver knows CUDA %d.%d, and this build needs %d.%d: update it", driver / 1000,
                           driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    if (status == cudaErrorInsufficientDriver)
        return error_usage(e, "there is no NVIDIA driver on this machine");
    if (status == cudaErrorNoDevice)
        return error_usage(e, "the NVIDIA driver sees no GPU (CUDA_VISIBLE_DEVICES may hide it)");
    return error_usage(e, "CUDA does not start: %s", cudaGetErrorString(status));
}

static bool target_read(Target *t, int index, Error *e)
{
    struct cudaDeviceProp p;
    cudaError_t status = cudaGetDeviceProperties(&p, index);
    if (!status)
        status = cudaSetDevice(index);
    if (!status)
        status = cudaMemGetInfo(&t->free_bytes, &t->total_bytes);
    if (!status)
        status = cudaDeviceGetPCIBusId(t->bus, sizeof t->bus, index);
    if (!status)
        status = (cudaError_t)cuda_queues_open();
    if (status)
        return error_set(e, "GPU %d does not answer: %s", index, cudaGetErrorString(status));
    t->kind = DEVICE_CUDA;
    t->capability = p.major * 10 + p.minor;
    t->bf16_gemm = t->capability >= 80;
    t->sm_count = p.multiProcessorCount;
    snprintf(t->name, sizeof t->name, "%.36s, %d SMs, sm_%d", p.name, t->sm_count, t->capability);
    return true;
}

/* The table; the functions that are no ops are those above and cuda_queue.c's. */
static const Device device = {.name = "cuda",
                              .memory_take = cuda_memory_take,
                              .memory_give = cuda_memory_give,
                              .memory_free = cuda_memory_free,
                              .synchronize = cuda_synchronize,
                              .host_take = cuda_host_take,
                              .host_give = cuda_host_give,
                              .queue = cuda_queue,
                              .follow = cuda_follow,
                              .mark = cuda_mark,
                              .wait = cuda_wait,
                              .record_begin = cuda_record_begin,
                              .record_end = cuda_record_end,
                              .replay = cuda_replay,
                              .record_free = cuda_record_free,
                              .tune = cuda_tune,
                              .tuning_write = cuda_tuning_write,
                              .tuning_read = cuda_tuning_read,
#define X(op) .op = cuda_##op,
                              TALLY_OPS(X)
#undef X
};

int cuda_version(void)
{
    return CUDART_VERSION;
}

const Device *cuda_device(Target *target, int index, Error *e)
{
    int count = 0;
    cudaError_t status = cudaGetDeviceCount(&count);
    if (status) {
        absence_explain(status, e);
        return NULL;
    }
    if (index < 0 || index >= count) {
        error_usage(e, "there is no GPU %d: there %s %d, numbered from 0", index, count == 1 ? "is" : "are", count);
        return NULL;
    }
    if (!target_read(target, index, e))
        return NULL;
    if ((status = cuda_code_status())) {
        error_usage(e, "this build has no code for %s (%s): build with CUDA_ARCHS=%d", target->name, cudaGetErrorString(status),
                    target->capability);
        return NULL;
    }
    return &device;
}
