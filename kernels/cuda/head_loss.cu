/* The language-model head, softmax, cross-entropy and their gradients, in chunks of rows: the logits of all N rows never exist at
 * once. For a row with logits z, target t and p = softmax(z) over the first V columns:
 *
 *   loss = logsumexp(z) - z[t] = log(sum exp(z - max)) + (max - z[t])        dz = (p - onehot(t)) * scale
 *
 * with scale = loss scale / counted targets of the optimizer step. A block has a row: it reads it once for maximum and sum
 * together (each thread keeps a sum relative to the largest it has seen), and once more to write the gradient over it, in the
 * type of the activations. A 16-bit gradient takes the front half of the row's memory: a chunk of it is written behind a barrier
 * after the FP32 numbers of that chunk have been read, and covers only numbers that were read by then.
 *
 * The loader has checked the targets. One outside [-1, V) would give a loss of NaN, and nothing outside the row is touched. */
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/gemm.h"

#include <float.h>

enum { N = 4, THREADS = 512, WARPS = THREADS / WARP, SUM_THREADS = 1024 };

/* sum exp(z - max) over some elements. An empty one has max -FLT_MAX, which is no sentinel: larger numbers only replace it. */
struct SoftSum {
    float max, sum;
};

static __device__ __forceinline__ SoftSum soft_add(SoftSum a, SoftSum b)
{
    float max = fmaxf(a.max, b.max);
    return SoftSum{max, a.sum * expf(a.max - max) + b.sum * expf(b.max - max)};
}

/* Over LANES neighbouring lanes, a power of two. */
template <int LANES> static __device__ __forceinline__ SoftSum lanes_soft_sum(SoftSum mine)
{
#pragma unroll
    for (int distance = LANES / 2; distance; distance /= 2)
        mine = soft_add(
            mine, SoftSum{__shfl_xor_sync(0xFFFFFFFFu, mine.max, distance), __shfl_xor_sync(0xFFFFFFFFu, mine.sum, distance)});
    return mine;
}

/* Over the block; every thread gets it. */
static __device__ SoftSum block_soft_sum(SoftSum mine)
{
    __shared__ SoftSum part[WARPS];
    mine = lanes_soft_sum<WARP>(mine);
    if (threadIdx.x % WARP == 0)
        part[threadIdx.x / WARP] = mine;
    __syncthreads();
    return lanes_soft_sum<WARPS>(part[threadIdx.x % WARPS]);
}

/* The row's sum over its first V logits. */
static __device__ SoftSum row_soft_sum(const float *z, int64_t V)
{
    Elements row = {(void *)z, DTYPE_F32};
    SoftSum mine = {-FLT_MAX, 0};
    for (int64_t i = threadIdx.x * N; i < V; i += THREADS * N) {
        Floats<N> v = load<N>(row, i, V);
        float max = mine.max;
#pragma unroll
        for (int k = 0; k < N; k++)
            max = i + k < V ? fmaxf(max, v.v[k]) : max;
        mine.sum *= expf(mine.max - max);
        mine.max = max;
#pragma unroll
        for (int k = 0; k < N; k++)
            mine.sum += i + k < V ? expf(v.v[k] - max) : 0;
    }
    return block_soft_sum(mine);
}

struct Rows {
    float *losses, *logits; /* [rows], [rows, Vp] */
    const int32_t *targets;
    int64_t V, Vp;
    DType type; /* of the gradient */
    const StepState *state;
};

/* Loss of the block's row; NaN for a target that there is not. Returns what is needed for its gradient. */
static __device__ SoftSum row_loss(const Rows &a, const float *z, int32_t target)
{
    float at_target = target >= 0 && target < a.V ? z[target] : __int_as_float(0x7FC00000);
    SoftSum s = row_soft_sum(z, a.V);
    if (threadIdx.x == 0)
        a.losses[blockIdx.x] = logf(s.sum) + (s.max - at_target);
    return s;
}

static __global__ void __launch_bounds__(THREADS) head_loss_kernel(Rows a)
{
    int32_t target = a.targets[blockIdx.x];
    if (target != -1)
        row_loss(a, a.logits + blockIdx.x * a.Vp, target);
    else if (threadIdx.x == 0)
        a.losses[blockIdx.x] = 0;
}

static __global__ void __launch_bounds__(THREADS) head_gradient_kernel(Rows a)
{
    int32_t target = a.targets[blockIdx.x];
    float *z = a.logits + blockIdx.x * a.Vp;
    Elements row = {z, DTYPE_F32}, gradient = {z, a.type};
    bool counted = target != -1;
    float scale = a.state->inverse_count * a.state->scaler.scale;
    SoftSum s = {0, 1};
    if (counted)
        s = row_loss(a, z, target);
    else if (threadIdx.x == 0)
        a.losses[blockIdx.x] = 0;
    float factor = counted ? scale / s.sum : 0;
    for (int64_t first = 0; first < a.Vp; first += THREADS * N) {
        int64_t i = first + threadIdx.x * N;
        Floats<N> v = {};
        if (counted && i < a.V)
            v = load<N>(row, i, a.V);
#pragma unroll
        for (int k = 0; k < N; k++) {
            v.v[k] = counted && i + k < a.V ? expf(v.v[k] - s.max) * factor : 0;
            v.v[k] -= i + k == target ? scale : 0;
        }
        __syncthreads();
        if (i < a.Vp)
            store<N>(gradient, i, a.Vp, v);
    }
}

/* state->loss_sum += the losses, in double: one block, by a fixed tree. */
static __global__ void __launch_bounds__(SUM_THREADS) head_losses_add_kernel(StepState *state, const float *losses, int64_t rows)
{
    double sum = 0;
    for (int64_t n = threadIdx.x; n < rows; n += SUM_THREADS)
        sum += losses[n];
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        state->loss_sum += sum;
}

static void losses_add(Ctx *c, OpId op, Tensor losses)
{
    head_losses_add_kernel<<<1, SUM_THREADS, 0, stream_of(c)>>>(c->state, (const float *)losses.data, losses.shape[0]);
    launch_check(c, op);
}

/* logits [rows, Vp] = x wte' */
static void logits_make(Ctx *c, OpId op, Tensor logits, Tensor x, Tensor wte)
{
    logits.shape[0] = x.shape[0];
    cuda_gemm(c, op, matrix_of(logits, false), matrix_of(x, false), matrix_of(wte, true), GemmEpilogue{}, false);
}

/* The chunk of rows from `first` on. */
static Rows rows_of(const Ctx *c, int64_t first, Tensor losses, Tensor logits, Tensor targets, int64_t V, DType type)
{
    return Rows{(float *)losses.data + first,
                (float *)logits.data,
                (const int32_t *)targets.data + first,
                V,
                logits.shape[1],
                type,
                c->state};
}

extern "C" void cuda_head_logits(Ctx *c, Tensor logits, Tensor x, Tensor wte)
{
    logits_make(c, OP_head_logits, logits, x, wte);
}

extern "C" void cuda_head_loss_forward(Ctx *c, Tensor losses, Tensor x, Tensor wte, Tensor targets, Tensor logits, int64_t V)
{
    const OpId op = OP_head_loss_forward;
    int64_t n = x.shape[0], R = logits.shape[0];
    for (int64_t first = 0; first < n && !c->error->set; first += R) {
        int64_t rows = n - first < R ? n - first : R;
        logits_make(c, op, logits, tensor_slice_rows(x, first, rows), wte);
        head_loss_kernel<<<(unsigned)rows, THREADS, 0, stream_of(c)>>>(rows_of(c, first, losses, logits, targets, V, DTYPE_F32));
        launch_check(c, op);
    }
    losses_add(c, op, losses);
}

/* dx = dlogits wte and dwte += dlogits' x for a chunk, whose gradients lie over its logits. */
static void products(Ctx *c, Tensor dx, Tensor dwte, Tensor x, Tensor wte, Tensor logits)
{
    const OpId op = OP_head_loss_backward;
    logits.shape[0] = x.shape[0];
    cuda_gemm(c, op, matrix_of(dx, false), matrix_of_dlogits(logits, x.dtype, false), matrix_of(wte, false), GemmEpilogue{},
              false);
    if (tensor_present(dwte))
        cuda_gemm(c, op, matrix_of(dwte, false), matrix_of_dlogits(logits, x.dtype, true), matrix_of(x, false), GemmEpilogue{},
                  true);
}

extern "C" void cuda_head_loss_backward(Ctx *c, Tensor dx, Tensor dwte, Tensor losses, Tensor x, Tensor wte, Tensor targets,
                                        Tensor logits, int64_t V)
{
    const OpId op = OP_head_loss_backward;
    int64_t n = x.shape[0], R = logits.shape[0];
    for (int64_t first = 0; first < n && !c->error->set; first += R) {
        int64_t rows = n - first < R ? n - first : R;
        Tensor x_rows = tensor_slice_rows(x, first, rows);
        logits_make(c, op, logits, x_rows, wte);
        head_gradient_kernel<<<(unsigned)rows, THREADS, 0, stream_of(c)>>>(
            rows_of(c, first, losses, logits, targets, V, x.dtype));
        if (launch_check(c, op))
            products(c, tensor_slice_rows(dx, first, rows), dwte, x_rows, wte, logits);
    }
    losses_add(c, op, losses);
}
