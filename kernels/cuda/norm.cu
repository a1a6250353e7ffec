/* Layer normalisation, alone and fused with the residual addition before it: y = xhat w + b, xhat = (x - mean) rstd, rstd = 1 /
 * sqrt(var + 1e-5). Backward, with g = dy w:
 *
 *   dx = rstd (g - mean(g) - xhat mean(g xhat)) + dskip,   dw += sum over rows of dy xhat,   db += sum over rows of dy
 *
 * A warp a row, 4 elements a lane whatever their type, so that sums of 16-bit numbers are made in the order of FP32's. In passes:
 * the first reads from memory, the others what the cache has kept of it. The mean is that of x minus the row's first element, so
 * that a constant row has deviations of exactly 0 in FP32; the variance that of the deviations. A lane reads in a later pass what
 * it wrote itself in an earlier one, so no barrier is needed.
 *
 * dw and db are column sums: a kernel of their own (columns.cuh), which reads dy and x once more. */
#include "kernels/cuda/columns.cuh"

#define NORM_EPS 1e-5f

enum { N = 4, THREADS = 256, WARPS = THREADS / WARP };

/* ---- Forward ------------------------------------------------------------------------------------------------------- */

struct NormForward {
    Elements x_out, y, x_in, branch, w, b; /* branch, b absent: none; without a branch x_out is x_in, and is not written */
    float2 *stats;                         /* [rows] (mean, rstd) */
    int64_t rows, C;
    DropoutPlace drop;
    const StepState *state;
};

/* Elements at .. of the row's x: with a branch, of the sum as it is stored. */
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

static __global__ void __launch_bounds__(THREADS, 4) norm_forward_kernel(NormForward a)
{
    int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP;
    if (row >= a.rows)
        return; /* the whole warp */
    int64_t begin = row * a.C, end = begin + a.C, mine = begin + threadIdx.x % WARP * N;
    RandomKey key = dropout_key(a.drop, a.state);
    float shift = 0, sum = 0, squares = 0;
    for (int64_t step = 0; begin + step < end; step += WARP * N) { /* all lanes as often: they exchange the shift */
        Floats<N> x = residual(a, mine + step, end, key);
        if (step == 0)
            shift = __shfl_sync(0xFFFFFFFFu, x.v[0], 0);
#pragma unroll
        for (int i = 0; i < N; i++)
            sum += mine + step + i < end ? x.v[i] - shift : 0;
    }
    float mean = shift + warp_sum(sum) / (float)a.C;
    for (int64_t at = mine; at < end; at += WARP * N) {
        Floats<N> x = load<N>(a.x_out, at, end);
#pragma unroll
        for (int i = 0; i < N; i++)
            squares += at + i < end ? (x.v[i] - mean) * (x.v[i] - mean) : 0;
    }
    float rstd = 1.0f / sqrtf(warp_sum(squares) / (float)a.C + NORM_EPS);
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
    norm_forward_kernel<<<(unsigned)blocks_of(a.rows, WARPS), THREADS, 0, stream_of(c)>>>(a);
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

struct NormBackward {
    Elements dx, dbranch, dskip, dy, x, w; /* dbranch, dskip may be absent */
    const float2 *stats;                   /* [rows] (mean, rstd) */
    int64_t rows, C;
    DropoutPlace drop;
    const StepState *state;
    float *partial; /* [groups][2][C]: sums of dy xhat and of dy */
};

/* dx = rstd (g - mean_g - xhat mean_gx) + dskip of the row, and the branch's share of it. g is dy w rounded, as in the means:
 * where all g are equal their deviations are 0. */
static __device__ __forceinline__ void dx_write(const NormBackward &a, int64_t begin, int64_t mine, float2 stats, float mean_g,
                                                float mean_gx)
{
    int64_t end = begin + a.C;
    RandomKey key = dropout_key(a.drop, a.state);
    for (int64_t at = mine; at < end; at += WARP * N) {
        Words<N> dy_words = fetch<N>(a.dy, at, end), x_words = fetch<N>(a.x, at, end), w_words = fetch<N>(a.w, at - begin, a.C);
        Floats<N> d = a.dskip.data ? load<N>(a.dskip, at, end) : Floats<N>{};
        Floats<N> dy = widen<N>(dy_words, a.dy.dtype), x = widen<N>(x_words, a.x.dtype), w = widen<N>(w_words, a.w.dtype);
#pragma unroll
        for (int i = 0; i < N; i++)
            d.v[i] += stats.y * (__fmul_rn(dy.v[i], w.v[i]) - mean_g - (x.v[i] - stats.x) * stats.y * mean_gx);
        d = store_rounded<N>(a.dx, at, end, d);
        if (a.dbranch.data) {
            dropout_apply<N>(d, a.drop, key, at);
            store<N>(a.dbranch, at, end, d);
        }
    }
}

static __global__ void __launch_bounds__(THREADS, 4) norm_dx_kernel(NormBackward a)
{
    int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP;
    if (row >= a.rows)
        return;
    int64_t begin = row * a.C, end = begin + a.C, mine = begin + threadIdx.x % WARP * N;
    float2 stats = a.stats[row];
    float sum_g = 0, sum_gx = 0;
    for (int64_t at = mine; at < end; at += WARP * N) { /* beyond the end dy and w are 0 */
        Words<N> dy_words = fetch<N>(a.dy, at, end), x_words = fetch<N>(a.x, at, end), w_words = fetch<N>(a.w, at - begin, a.C);
        Floats<N> dy = widen<N>(dy_words, a.dy.dtype), x = widen<N>(x_words, a.x.dtype), w = widen<N>(w_words, a.w.dtype);
#pragma unroll
        for (int i = 0; i < N; i++) {
            float g = __fmul_rn(dy.v[i], w.v[i]);
            sum_g += g;
            sum_gx += g * ((x.v[i] - stats.x) * stats.y);
        }
    }
    dx_write(a, begin, mine, stats, warp_sum(sum_g) / (float)a.C, warp_sum(sum_gx) / (float)a.C);
}

/* Block (s, g): N columns a lane from slice s on; each warp every so many rows. */
static __global__ void __launch_bounds__(COLUMN_WARPS *WARP) norm_dw_kernel(NormBackward a)
{
    int64_t i = (int64_t)blockIdx.x * COLUMNS + threadIdx.x % WARP * N;
    Floats<N> dw = {}, db = {};
    for (int64_t n = (int64_t)blockIdx.y * COLUMN_WARPS + threadIdx.x / WARP; n < a.rows;
         n += (int64_t)gridDim.y * COLUMN_WARPS) {
        float2 stats = a.stats[n];
        Words<N> dy_words = fetch<N>(a.dy, n * a.C + i, (n + 1) * a.C), x_words = fetch<N>(a.x, n * a.C + i, (n + 1) * a.C);
        Floats<N> dy = widen<N>(dy_words, a.dy.dtype), x = widen<N>(x_words, a.x.dtype);
#pragma unroll
        for (int k = 0; k < N; k++) {
            dw.v[k] += dy.v[k] * ((x.v[k] - stats.x) * stats.y);
            db.v[k] += dy.v[k];
        }
    }
    float *to = a.partial + blockIdx.y * 2 * a.C;
    column_warps_add(to, i, a.C, dw);
    column_warps_add(to + a.C, i, a.C, db);
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
    bool sums = tensor_present(dw) || tensor_present(db);
    if (!cuda_workspace_check(c, op, cuda_norm_workspace(C, &c->target)))
        return;
    if (sums)
        norm_dw_kernel<<<dim3((unsigned)blocks_of(C, COLUMNS), (unsigned)groups), COLUMN_WARPS * WARP, 0, stream_of(c)>>>(a);
    norm_dx_kernel<<<(unsigned)blocks_of(rows, WARPS), THREADS, 0, stream_of(c)>>>(a);
    if (launch_check(c, op) && sums) {
        cuda_column_groups_add(c, op, dw, partial, groups, 2 * C);
        cuda_column_groups_add(c, op, db, partial + C, groups, 2 * C);
    }
}
