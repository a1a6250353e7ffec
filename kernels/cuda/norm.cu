/* Layer normalisation, alone and fused with the residual addition before it: y = xhat w + b, xhat = (x - mean) rstd, rstd = 1 /
 * sqrt(var + 1e-5). Backward, with g = dy w:
 *
 *   dx = rstd (g - mean(g) - xhat mean(g xhat)) + dskip,   dw += sum over rows of dy xhat,   db += sum over rows of dy
 *
 * Forward: a warp a row. In passes: the first reads from memory, the others what the cache has kept of it. The mean is that of x
 * minus the row's first element, so that a constant row has deviations of exactly 0 in FP32; the variance that of the deviations.
 * A lane reads in a later pass what it wrote itself in an earlier one, so no barrier is needed.
 *
 * Backward: some threads a row, which make its two means together. A thread has the same channels of all the block's rows, so it
 * keeps their part of dw and db in registers; columns.cu adds the blocks'.
 *
 * A lane takes 4 elements, or 8 where all are 16-bit numbers; the sums are made in one order in both cases: of quads, 32 of them
 * by a tree, alternating quads of 32 apart. */
#include "kernels/cuda/common.cuh"

#define NORM_EPS 1e-5f

enum { THREADS = 256, WARPS = THREADS / WARP };

/* The sum of 32 quads that neighbouring lanes have, one or two each: lane l has quad l, or quads 2 l and 2 l + 1 of the 32 of its
 * half of the warp. */
template <int N> static __device__ __forceinline__ float quads_sum(const float (&quad)[N / 4])
{
    if constexpr (N == 4)
        return warp_sum(quad[0]);
    float even = quad[0], odd = quad[N / 4 - 1];
#pragma unroll
    for (int distance = WARP / 4; distance; distance /= 2) {
        even += __shfl_xor_sync(0xFFFFFFFFu, even, distance);
        odd += __shfl_xor_sync(0xFFFFFFFFu, odd, distance);
    }
    return even + odd;
}

/* A lane's sums over a row of which a warp takes 32 N elements at a time: of every other 32 quads, so that lanes with 8 elements,
 * half of which have the even and half the odd ones, add the same numbers. */
template <int N> struct RowSum {
    float part[2] = {0, 0};

    __device__ __forceinline__ void add(const float (&x)[N])
    {
#pragma unroll
        for (int i = 0; i < N; i++)
            part[i / 4] += x[i];
        if (N == 4) {
            float next = part[1];
            part[1] = part[0], part[0] = next;
        }
    }
    __device__ __forceinline__ float total() const
    {
        if constexpr (N == 4)
            return warp_sum(part[0] + part[1]);
        const float both[2] = {part[0] + __shfl_xor_sync(0xFFFFFFFFu, part[0], WARP / 2),
                               part[1] + __shfl_xor_sync(0xFFFFFFFFu, part[1], WARP / 2)};
        return quads_sum<8>(both);
    }
};

/* ---- Forward ------------------------------------------------------------------------------------------------------- */

struct NormForward {
    Elements x_out, y, x_in, branch, w, b; /* branch, b absent: none; without a branch x_out is x_in, and is not written */
    float2 *stats;                         /* [rows] (mean, rstd) */
    int64_t rows, C;
    DropoutPlace drop;
    const StepState *state;
};

/* Elements at .. of the row's x: with a branch, of the sum as it is stored. */
template <int N>
static __device__ __forceinline__ Floats<N> residual(const NormForward &a, int64_t at, int64_t end, RandomKey key)
{
    if (!a.branch.data)
        return load<N>(a.x_in, at, end);
    Words<N> in_words = fetch<N>(a.x_in, at, end), branch_words = fetch<N>(a.branch, at, end);
    Floats<N> sum = widen<N>(in_words, a.x_in.dtype), add = widen<N>(branch_words, a.branch.dtype);
    dropout_apply<N>(add, a.drop, key, at);
#pragma unroll
    for (int i = 0; i < N; i++)
        sum.v[i] += add.v[i];
    return store_rounded<N>(a.x_out, at, end, sum);
}

template <int N> static __global__ void __launch_bounds__(THREADS, 4) norm_forward_kernel(NormForward a)
{
    int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP;
    if (row >= a.rows)
        return; /* the whole warp */
    int64_t begin = row * a.C, end = begin + a.C, mine = begin + threadIdx.x % WARP * N;
    RandomKey key = dropout_key(a.drop, a.state);
    float shift = 0, term[N];
    RowSum<N> sum, squares;
    for (int64_t step = 0; begin + step < end; step += WARP * N) { /* all lanes as often: they exchange the shift */
        Floats<N> x = residual<N>(a, mine + step, end, key);
        if (step == 0)
            shift = __shfl_sync(0xFFFFFFFFu, x.v[0], 0);
#pragma unroll
        for (int i = 0; i < N; i++)
            term[i] = mine + step + i < end ? x.v[i] - shift : 0;
        sum.add(term);
    }
    float mean = shift + sum.total() / (float)a.C;
    for (int64_t at = mine; at < end; at += WARP * N) {
        Floats<N> x = load<N>(a.x_out, at, end);
#pragma unroll
        for (int i = 0; i < N; i++)
            term[i] = at + i < end ? __fmul_rn(x.v[i] - mean, x.v[i] - mean) : 0;
        squares.add(term);
    }
    float rstd = 1.0f / sqrtf(squares.total() / (float)a.C + NORM_EPS);
    for (int64_t at = mine; at < end; at += WARP * N) {
        Words<N> x_words = fetch<N>(a.x_out, at, end), w_words = fetch<N>(a.w, at - begin, a.C);
        Floats<N> b = a.b.data ? load<N>(a.b, at - begin, a.C) : Floats<N>{};
        Floats<N> x = widen<N>(x_words, a.x_out.dtype), w = widen<N>(w_words, a.w.dtype);
#pragma unroll
        for (int i = 0; i < N; i++)
            x.v[i] = (x.v[i] - mean) * rstd * w.v[i] + b.v[i];
        store<N>(a.y, at, end, x);
    }
    if (threadIdx.x % WARP == 0)
        a.stats[row] = make_float2(mean, rstd);
}

static void forward_launch(Ctx *c, OpId op, const NormForward &a)
{
    auto launch = [&](auto width) {
        norm_forward_kernel<decltype(width)::value><<<(unsigned)blocks_of(a.rows, WARPS), THREADS, 0, stream_of(c)>>>(a);
    };
    with_width(launch, a.x_out, a.y, a.x_in, a.branch, a.w, a.b);
    launch_check(c, op);
}

extern "C" void cuda_norm_forward(Ctx *c, Tensor y, Tensor stats, Tensor x, Tensor w, Tensor b)
{
    NormForward a = {elements(x),          elements(y), elements(x), elements(TENSOR_NONE), elements(w), elements(b),
                     (float2 *)stats.data, x.shape[0],  x.shape[1],  DropoutPlace{},        c->state};
    forward_launch(c, OP_norm_forward, a);
}

extern "C" void cuda_residual_norm_forward(Ctx *c, Tensor x_out, Tensor y, Tensor stats, Tensor x_in, Tensor branch, Tensor w,
                                           Tensor b, Dropout drop)
{
    NormForward a = {elements(x_out),      elements(y),   elements(x_in), elements(branch),    elements(w), elements(b),
                     (float2 *)stats.data, x_in.shape[0], x_in.shape[1],  dropout_place(drop), c->state};
    forward_launch(c, OP_residual_norm_forward, a);
}

/* ---- Backward ------------------------------------------------------------------------------------------------------ */

enum { BACKWARD_THREADS = 1024, BACKWARD_ROWS = 16 }; /* of a block, at most */

struct NormBackward {
    Elements dx, dbranch, dskip, dy, x, w; /* dbranch, dskip may be absent */
    const float2 *stats;                   /* [rows] (mean, rstd) */
    int64_t rows, C;
    DropoutPlace drop;
    const StepState *state;
    float *partial; /* [groups][2][C]: sums of dy xhat and of dy */
};

/* The sums of g and of g xhat over the row of these threads (those with one threadIdx.y), of which each gives what it has of two
 * quads at most; `part` has room for the sums of 32 lanes' quads, and is not in use since the last barrier. */
template <int N>
static __device__ __forceinline__ float2 row_sums(const float (&g)[N / 4], const float (&gx)[N / 4], float2 *part)
{
    constexpr int HALVES = N / 4, LANES = WARP / HALVES; /* with 8 elements a lane, half a warp has 32 quads */
    int thread = threadIdx.y * blockDim.x + threadIdx.x, parts = blockDim.x / LANES;
    float2 sum = make_float2(quads_sum<N>(g), quads_sum<N>(gx));
    if (threadIdx.x % LANES == 0)
        part[thread / LANES] = sum;
    __syncthreads();
    sum = part[threadIdx.y * parts];
    for (int i = 1; i < parts; i++) {
        sum.x += part[threadIdx.y * parts + i].x;
        sum.y += part[threadIdx.y * parts + i].y;
    }
    return sum;
}

/* The sums over the block's rows of what its threads have of columns `at`.., to to[..end). */
template <int N>
static __device__ __forceinline__ void block_columns_add(float *to, const Floats<N> &mine, int64_t first, int64_t end)
{
    __shared__ float part[N * BACKWARD_THREADS + WARP];
    int threads = blockDim.x * blockDim.y, thread = threadIdx.y * blockDim.x + threadIdx.x, pitch = threads + WARP / N;
    __syncthreads(); /* an earlier call's sums have been read */
#pragma unroll
    for (int k = 0; k < N; k++)
        part[k * pitch + thread] = mine.v[k];
    __syncthreads();
    for (int i = thread; i < (int)blockDim.x * N && first + i < end; i += threads) {
        float sum = 0;
        for (int row = 0; row < (int)blockDim.y; row++)
            sum += part[i % N * pitch + row * blockDim.x + i / N];
        to[first + i] = sum;
    }
}

/* Block (g, p): of every row of group g, blockDim.y at a time, part p of the channels, N a thread: the gradients there, for which
 * it reads the whole row, and its part again from the cache. All but very long rows are one part. */
template <int N> static __global__ void __launch_bounds__(BACKWARD_THREADS) norm_backward_kernel(NormBackward a)
{
    __shared__ float2 part[2][BACKWARD_THREADS / WARP * N / 4];
    int C = (int)a.C, stride = blockDim.x * N, own = blockIdx.y * stride + threadIdx.x * N;
    Floats<N> dw = {}, db = {};
    int turn = 0;
    for (int64_t first = (int64_t)blockIdx.x * blockDim.y; first < a.rows; first += (int64_t)gridDim.x * blockDim.y, turn ^= 1) {
        int64_t n = first + threadIdx.y, begin = n * a.C, end = n < a.rows ? begin + a.C : 0; /* beyond the rows all are 0 */
        float2 stats = n < a.rows ? a.stats[n] : make_float2(0, 0);
        float g_sum[N / 4] = {}, gx_sum[N / 4] = {};
        for (int i = threadIdx.x * N; i < C; i += stride) {
            Words<N> dy_words = fetch<N>(a.dy, begin + i, end), x_words = fetch<N>(a.x, begin + i, end);
            Floats<N> dy = widen<N>(dy_words, a.dy.dtype), x = widen<N>(x_words, a.x.dtype), w = load<N>(a.w, i, C);
#pragma unroll
            for (int k = 0; k < N; k++) {
                float g = __fmul_rn(dy.v[k], w.v[k]);
                g_sum[k / 4] += g;
                gx_sum[k / 4] += g * ((x.v[k] - stats.x) * stats.y);
            }
        }
        float2 sums = row_sums<N>(g_sum, gx_sum, part[turn]);
        int64_t at = begin + own;
        if (at >= end)
            continue;
        float mean_g = sums.x / (float)a.C, mean_gx = sums.y / (float)a.C;
        Words<N> dy_words = fetch<N>(a.dy, at, end), x_words = fetch<N>(a.x, at, end);
        Floats<N> d = a.dskip.data ? load<N>(a.dskip, at, end) : Floats<N>{}, w = load<N>(a.w, own, C);
        Floats<N> dy = widen<N>(dy_words, a.dy.dtype), x = widen<N>(x_words, a.x.dtype);
#pragma unroll
        for (int k = 0; k < N; k++) {
            float xhat = (x.v[k] - stats.x) * stats.y;
            d.v[k] += stats.y * (__fmul_rn(dy.v[k], w.v[k]) - mean_g - xhat * mean_gx);
            dw.v[k] += dy.v[k] * xhat;
            db.v[k] += dy.v[k];
        }
        d = store_rounded<N>(a.dx, at, end, d);
        if (a.dbranch.data) {
            dropout_apply<N>(d, a.drop, dropout_key(a.drop, a.state), at);
            store<N>(a.dbranch, at, end, d);
        }
    }
    float *to = a.partial + blockIdx.x * 2 * a.C;
    block_columns_add<N>(to, dw, blockIdx.y * stride, a.C);
    block_columns_add<N>(to + a.C, db, blockIdx.y * stride, a.C);
}

/* As many threads a row as its channels need; as many rows as fit, which the width N does not decide, since the order of the sums
 * depends on it. */
template <int N> static void backward_launch(Ctx *c, const NormBackward &a, int64_t groups)
{
    int64_t quads = blocks_of(a.C, 4 * WARP) * WARP, lanes = blocks_of(a.C, N * WARP) * WARP;
    int64_t rows = quads < BACKWARD_THREADS ? BACKWARD_THREADS / quads : 1,
            threads = lanes < BACKWARD_THREADS ? lanes : BACKWARD_THREADS;
    dim3 block((unsigned)threads, (unsigned)(rows < BACKWARD_ROWS ? rows : BACKWARD_ROWS));
    norm_backward_kernel<N><<<dim3((unsigned)groups, (unsigned)blocks_of(a.C, N * threads)), block, 0, stream_of(c)>>>(a);
}

extern "C" void cuda_residual_norm_backward(Ctx *c, Tensor dx, Tensor dbranch, Tensor dw, Tensor db, Tensor dskip, Tensor dy,
                                            Tensor x, Tensor stats, Tensor w, Dropout drop)
{
    const OpId op = OP_residual_norm_backward;
    int64_t rows = x.shape[0], C = x.shape[1], groups = cuda_column_groups(rows, &c->target);
    float *partial = (float *)c->workspace;
    NormBackward a = {elements(dx),
                      elements(dbranch),
                      elements(dskip),
                      elements(dy),
                      elements(x),
                      elements(w),
                      (const float2 *)stats.data,
                      rows,
                      C,
                      dropout_place(drop),
                      c->state,
                      partial};
    if (!workspace_check(c, op, norm_workspace(C, &c->target)))
        return;
    auto launch = [&](auto width) { backward_launch<decltype(width)::value>(c, a, groups); };
    with_width(launch, dx, dbranch, dskip, dy, x, w);
    if (launch_check(c, op)) {
        cuda_column_groups_add(c, op, dw, partial, groups, 2 * C);
        cuda_column_groups_add(c, op, db, partial + C, groups, 2 * C);
    }
}
