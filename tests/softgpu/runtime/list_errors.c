/* Prints {number, "name", "text"} of every error that the toolkit's own libcudart knows, as C. It needs no GPU for that. */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    for (int i = 0; i < 2000; i++)
        if (strcmp(cudaGetErrorName((cudaError_t)i), "unrecognized error code") != 0)
            printf("{%d, \"%s\", \"%s\"},\n", i, cudaGetErrorName((cudaError_t)i), cudaGetErrorString((cudaError_t)i));
    return 0;
}
