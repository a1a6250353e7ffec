/* In place of the cuda device where tally was built without nvcc. */
#include "kernels/device.h"

int cuda_version(void)
{
    return 0;
}

const Device *cuda_device(Target *target, int index, Error *e)
{
    (void)target;
    (void)index;
    error_usage(e, "this tally was built without nvcc, so it has no code for a GPU");
    return NULL;
}
