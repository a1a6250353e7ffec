/* In place of the cuda device where tally was built without nvcc. */
#include "kernels/device.h"

const Device *cuda_device(Target *target, int index, Error *e)
{
    (void)target;
    error_usage(e,
                "device: cuda:%d: this tally was built without nvcc, so it has no code for a GPU: install the CUDA toolkit and "
                "build again, or say --device cpu",
                index);
    return NULL;
}
