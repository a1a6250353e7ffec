/* See kernels.h. */
#include "tests/softgpu/kernels.h"

static __constant__ float factor;
static __device__ int count;

template <class T> __global__ void scale(T *x, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        x[i] *= factor;
    if (i == 0)
        atomicAdd(&count, 1);
}

const void *const other_scale = (const void *)scale<float>;
const void *const other_factor = &factor;
const void *const other_count = &count;
