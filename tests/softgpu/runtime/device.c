/* The one device that there is: number 0, the card of settings.c. */
#include <stdio.h>
#include <string.h>

#include "tests/softgpu/runtime/runtime.h"

cudaError_t cudaGetDeviceCount(int *count)
{
    cudaError_t e = enter();
    *count = e == cudaErrorNoDevice ? 0 : 1;
    return leave(e);
}

cudaError_t cudaGetDevice(int *device)
{
    cudaError_t e = enter();
    if (!e)
        *device = 0;
    return leave(e);
}

cudaError_t cudaSetDevice(int device)
{
    cudaError_t e = enter();
    return leave(!e && device ? cudaErrorInvalidDevice : e);
}

cudaError_t cudaInitDevice(int device, unsigned flags, unsigned more)
{
    (void)flags, (void)more;
    return cudaSetDevice(device);
}

cudaError_t cudaSetDeviceFlags(unsigned flags)
{
    (void)flags;
    return leave(enter());
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int size, int device)
{
    cudaError_t e = enter();
    if (!e && device)
        e = cudaErrorInvalidDevice;
    if (!e)
        snprintf(text, (size_t)size, "0000:00:00.0");
    return leave(e);
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    (void)device, (void)peer;
    *can = 0;
    return leave(enter());
}

cudaError_t cudaDeviceSetLimit(enum cudaLimit limit, size_t value)
{
    (void)limit, (void)value;
    return leave(enter());
}

cudaError_t cudaProfilerStart(void);
cudaError_t cudaProfilerStop(void);

cudaError_t cudaProfilerStart(void)
{
    return leave(enter());
}

cudaError_t cudaProfilerStop(void)
{
    return leave(enter());
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *out, int device)
{
    cudaError_t e = enter();
    const Card *card = &settings.card;
    if (!e && device)
        e = cudaErrorInvalidDevice;
    if (e)
        return leave(e);
    *out = (struct cudaDeviceProp){.totalGlobalMem = card->memory,
                                   .sharedMemPerBlock = 49152,
                                   .regsPerBlock = 65536,
                                   .warpSize = 32,
                                   .memPitch = 0x7fffffff,
                                   .maxThreadsPerBlock = 1024,
                                   .maxThreadsDim = {1024, 1024, 64},
                                   .maxGridSize = {0x7fffffff, 65535, 65535},
                                   .totalConstMem = 65536,
                                   .major = card->capability / 10,
                                   .minor = card->capability % 10,
                                   .textureAlignment = 512,
                                   .multiProcessorCount = card->sm_count,
                                   .canMapHostMemory = 1,
                                   .concurrentKernels = 1,
                                   .asyncEngineCount = 2,
                                   .unifiedAddressing = 1,
                                   .memoryBusWidth = card->bus_bits,
                                   .l2CacheSize = card->l2_bytes,
                                   .maxThreadsPerMultiProcessor = card_warps() * 32,
                                   .streamPrioritiesSupported = 1,
                                   .globalL1CacheSupported = 1,
                                   .localL1CacheSupported = 1,
                                   .sharedMemPerMultiprocessor = (size_t)card->shared_per_sm,
                                   .regsPerMultiprocessor = 65536,
                                   .sharedMemPerBlockOptin = (size_t)card->shared_per_block,
                                   .maxBlocksPerMultiProcessor = 32,
                                   .reservedSharedMemPerBlock = 1024,
                                   .hostRegisterSupported = 1};
    memcpy(out->name, card->name, sizeof card->name);
    return leave(e);
}

/* What there is of an attribute; 0 is also the answer for a property that this card lacks. */
static int attribute_of(enum cudaDeviceAttr attribute)
{
    const Card *card = &settings.card;
    switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY:
    case cudaDevAttrReservedSharedMemoryPerBlock:
        return 1024;
    case cudaDevAttrMaxBlockDimZ:
        return 64;
    case cudaDevAttrMaxGridDimX:
        return 0x7fffffff;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ:
        return 65535;
    case cudaDevAttrMaxSharedMemoryPerBlock:
        return 49152;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        return card->shared_per_block;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        return card->shared_per_sm;
    case cudaDevAttrTotalConstantMemory:
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor:
        return 65536;
    case cudaDevAttrWarpSize:
    case cudaDevAttrMaxBlocksPerMultiprocessor:
        return 32;
    case cudaDevAttrClockRate:
        return card->clock_khz;
    case cudaDevAttrMemoryClockRate:
        return card->memory_clock_khz;
    case cudaDevAttrGlobalMemoryBusWidth:
        return card->bus_bits;
    case cudaDevAttrMultiProcessorCount:
        return card->sm_count;
    case cudaDevAttrL2CacheSize:
        return card->l2_bytes;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
        return card_warps() * 32;
    case cudaDevAttrComputeCapabilityMajor:
        return card->capability / 10;
    case cudaDevAttrComputeCapabilityMinor:
        return card->capability % 10;
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrStreamPrioritiesSupported:
    case cudaDevAttrHostRegisterSupported:
        return 1;
    case cudaDevAttrAsyncEngineCount:
        return 2;
    default:
        return 0;
    }
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    cudaError_t e = enter();
    if (!e && device)
        e = cudaErrorInvalidDevice;
    if (!e)
        *value = attribute_of(attribute);
    return leave(e);
}
