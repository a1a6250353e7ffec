/* db += column sums of dy, and the last step of every column sum. See columns.cuh. */
#include "kernels/cuda/columns.cuh"

enum { N = 4, THREADS = COLUMN_WARPS * WARP };

/* Block (s, g): N columns a lane from slice s on; each warp every so many rows of x. */
static __global__ void __launch_bounds__(THREADS) column_groups_kernel(float *partial, Elements x, int64_t rows, int64_t width)
{
    int64_t i = (int64_t)blockIdx.x * COLUMNS + threadIdx.x % WARP * N;
    Floats<N> sum = {};
    for (int64_t n = (int64_t)blockIdx.y * COLUMN_WARPS + threadIdx.x / WARP; n < rows; n += (int64_t)gridDim.y * COLUMN_WARPS) {
        Floats<N> v = load<N>(x, n * width + i, (n + 1) * width);
#pragma unroll
        for (int k = 0; k < N; k++)
            sum.v[k] += v.v[k];
    }
    column_warps_add(partial + blockIdx.y * width, i, width, sum);
}

/* A lane a column; each warp a part of the groups. */
static __global__ void __launch_bounds__(THREADS)
    column_groups_add_kernel(Elements sums, const float *partial, int64_t groups, int64_t stride, int64_t width)
{
    __shared__ float part[COLUMN_WARPS][WARP];
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    int64_t i = (int64_t)blockIdx.x * WARP + lane, share = blocks_of(groups, COLUMN_WARPS);
    float sum = 0;
    for (int64_t g = warp * share; g < (warp + 1) * share && g < groups && i < width; g++)
        sum += partial[g * stride + i];
    part[warp][lane] = sum;
    __syncthreads();
    if (warp != 0 || i >= width)
        return;
    sum = load_one(sums, i);
    for (int w = 0; w < COLUMN_WARPS; w++)
        sum += part[w][lane];
    store_one(sums, i, sum);
}

extern "C" void cuda_column_groups_add(Ctx *c, OpId op, Tensor sums, const float *partial, int64_t groups, int64_t stride)
{
    if (!tensor_present(sums))
        return;
    int64_t width = tensor_count(sums);
    column_groups_add_kernel<<<(unsigned)blocks_of(width, WARP), THREADS, 0, stream_of(c)>>>(elements(sums), partial, groups,
                                                                                             stride, width);
    launch_check(c, op);
}

extern "C" void cuda_column_sums(Ctx *c, OpId op, Tensor db, Tensor x)
{
    int64_t rows = x.shape[0], width = x.shape[1], groups = cuda_column_groups(rows, &c->target);
    float *partial = (float *)c->workspace;
    if (!cuda_workspace_check(c, op, cuda_linear_bias_workspace(rows, width, &c->target)))
        return;
    dim3 grid((unsigned)blocks_of(width, COLUMNS), (unsigned)groups);
    column_groups_kernel<<<grid, THREADS, 0, stream_of(c)>>>(partial, elements(x), rows, width);
    if (launch_check(c, op))
        cuda_column_groups_add(c, op, db, partial, groups, width);
}
