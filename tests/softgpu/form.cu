/* One kernel, compiled under the name FORM in every form that a fat binary can have (softgpu.mk). */
#include "tests/softgpu/kernels.h"

static __global__ void twice(int *p)
{
    p[threadIdx.x] = 2 * threadIdx.x;
}

extern "C" const void *const FORM = (const void *)twice;
