/* Sums over the rows of a matrix, column by column: gradients of biases and of a norm's gain. Groups of blocks make partial sums
 * over their rows, a last kernel adds the groups' in their order: the same bits each time, for a given number of groups. */
#ifndef TALLY_KERNELS_CUDA_COLUMNS_CUH
#define TALLY_KERNELS_CUDA_COLUMNS_CUH

#include "kernels/cuda/common.cuh"

/* For a block of COLUMN_WARPS warps, each with sums of 4 columns a lane: the sums over its warps, in their order, to `to`
 * [..end). */
enum { COLUMN_WARPS = 8, COLUMNS = 4 * WARP };
static __device__ __forceinline__ void column_warps_add(float *to, int64_t at, int64_t end, const Floats<4> &mine)
{
    __shared__ float part[COLUMN_WARPS][COLUMNS];
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    int64_t begin = at - lane * 4; /* the block's first column */
    __syncthreads();               /* an earlier call's sums have been read */
#pragma unroll
    for (int k = 0; k < 4; k++)
        part[warp][k * WARP + lane] = mine.v[k];
    __syncthreads();
    for (int i = threadIdx.x; i < COLUMNS; i += WARP * COLUMN_WARPS) {
        float sum = 0;
        for (int w = 0; w < COLUMN_WARPS; w++)
            sum += part[w][i];
        int64_t column = begin + i % WARP * 4 + i / WARP;
        if (column < end)
            to[column] = sum;
    }
}

#endif
