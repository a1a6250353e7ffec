/* See kernels.h. */
#include "tests/softgpu/kernels.h"

static __constant__ float factor;
static __device__ int count;

static __global__ void fill(float *p, float value, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        p[i] = value; /* the line that the test of out-of-bounds accesses names */
}

template <class T, int K> __global__ void add(T *y, const T *x, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] += K * factor * x[i];
    if (threadIdx.x == 0)
        atomicAdd(&count, 1);
}

static __global__ void __launch_bounds__(128) bounded(float *p)
{
    p[threadIdx.x] = 1;
}

static __global__ void reverse_static(float *p)
{
    __shared__ float s[8192];
    s[threadIdx.x] = p[threadIdx.x];
    __syncthreads();
    p[threadIdx.x] = s[blockDim.x - 1 - threadIdx.x];
}

static __global__ void reverse_dynamic(float *p)
{
    extern __shared__ float s[];
    s[threadIdx.x] = p[threadIdx.x];
    __syncthreads();
    p[threadIdx.x] = s[blockDim.x - 1 - threadIdx.x];
}

static __global__ void no_barrier(float *p)
{
    __shared__ float s[64];
    s[threadIdx.x] = p[threadIdx.x];
    p[threadIdx.x] = s[blockDim.x - 1 - threadIdx.x];
}

static __global__ void trap()
{
    asm volatile("trap;");
}

static __global__ void misaligned(char *p)
{
    *(int *)(p + 1) = 3;
}

static __global__ void forever(volatile int *p)
{
    while (*p == 0)
        ;
}

const void *const kernel_fill = (const void *)fill;
const void *const kernel_add = (const void *)add<float, 5>;
const void *const kernel_bounded = (const void *)bounded;
const void *const kernel_static = (const void *)reverse_static;
const void *const kernel_dynamic = (const void *)reverse_dynamic;
const void *const kernel_no_barrier = (const void *)no_barrier;
const void *const kernel_trap = (const void *)trap;
const void *const kernel_misaligned = (const void *)misaligned;
const void *const kernel_forever = (const void *)forever;
const void *const variable_factor = &factor;
const void *const variable_count = &count;

int kernel_fill_launch(float *p, float value, int n, void *stream)
{
    fill<<<(n + 255) / 256, 256, 0, (cudaStream_t)stream>>>(p, value, n);
    return cudaGetLastError();
}
