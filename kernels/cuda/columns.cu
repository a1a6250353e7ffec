/* Sums over the rows of a matrix, column by column: gradients of biases and of a norm's gain. Groups of blocks make partial sums
 * over their rows, a last kernel adds the groups' in their order: the same bits each time, for a given number of groups. */
#include "kernels/cuda/common.cuh"

enum { WARPS = 8, THREADS = WARPS * WARP };

/* Block (s, g): N columns a lane from slice s on; each warp every so many rows of x. */
template <int N>
static __global__ void __launch_bounds__(THREADS) column_groups_kernel(float *partial, Elements x, int64_t rows, int64_t width)
{
    enum { PITCH = WARP + WARP / N }; /* of a lane's k-th columns: neighbours are then read from different banks */
    __shared__ float part[WARPS][N * PITCH];
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    int64_t first = (int64_t)blockIdx.x * N * WARP, i = first + lane * N;
    Floats<N> sum = {};
    for (int64_t n = (int64_t)blockIdx.y * WARPS + warp; n < rows; n += (int64_t)gridDim.y * WARPS) {
        Floats<N> v = load<N>(x, n * width + i, (n + 1) * width);
#pragma unroll
        for (int k = 0; k < N; k++)
            sum.v[k] += v.v[k];
    }
#pragma unroll
    for (int k = 0; k < N; k++)
        part[warp][k * PITCH + lane] = sum.v[k];
    __syncthreads();
    for (int at = threadIdx.x; at < N * WARP; at += THREADS) {
        float all = 0;
        for (int w = 0; w < WARPS; w++)
            all += part[w][at % N * PITCH + at / N];
        if (first + at < width)
            partial[blockIdx.y * width + first + at] = all;
    }
}

/* A lane a column; each warp a part of the groups. */
static __global__ void __launch_bounds__(THREADS)
    column_groups_add_kernel(Elements sums, const float *partial, int64_t groups, int64_t stride, int64_t width)
{
    __shared__ float part[WARPS][WARP];
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    int64_t i = (int64_t)blockIdx.x * WARP + lane, share = blocks_of(groups, WARPS);
    float sum = 0;
    for (int64_t g = warp * share; g < (warp + 1) * share && g < groups && i < width; g++)
        sum += partial[g * stride + i];
    part[warp][lane] = sum;
    __syncthreads();
    if (warp != 0 || i >= width)
        return;
    sum = load_one(sums, i);
    for (int w = 0; w < WARPS; w++)
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
    if (!workspace_check(c, op, linear_bias_workspace(rows, width, &c->target)))
        return;
    auto launch = [&](auto number) {
        constexpr int N = decltype(number)::value;
        dim3 grid((unsigned)blocks_of(width, N * WARP), (unsigned)groups);
        column_groups_kernel<N><<<grid, THREADS, 0, stream_of(c)>>>(partial, elements(x), rows, width);
    };
    with_width(launch, x);
    if (launch_check(c, op))
        cuda_column_groups_add(c, op, db, partial, groups, width);
}
