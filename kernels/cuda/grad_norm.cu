/* The global L2 norm of the gradient, and what follows from it for the update: is it finite, how far to clip, Adam's t.
 *
 * Squares are summed in double: no float's square overflows or vanishes there, so the sum is finite exactly when every element
 * is. A block has a piece of fixed size, a last block adds the pieces; both by fixed trees, so the result is the same each time.
 * The host need not know it: the update reads it from the step's state. */
#include "kernels/cuda/common.cuh"

enum { N = 4, THREADS = 256 };

static __global__ void __launch_bounds__(THREADS) grad_norm_pieces_kernel(double *partial, Elements g, int64_t n)
{
    int64_t begin = (int64_t)blockIdx.x * GRAD_NORM_PIECE, rest = n - begin;
    int64_t end = begin + (rest < GRAD_NORM_PIECE ? rest : GRAD_NORM_PIECE);
    double sum = 0;
    for (int64_t at = begin + threadIdx.x * N; at < end; at += THREADS * N) {
        Floats<N> v = load<N>(g, at, end);
#pragma unroll
        for (int i = 0; i < N; i++)
            sum += (double)v.v[i] * (double)v.v[i];
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        partial[blockIdx.x] = sum;
}

/* base^n by squaring: some 20 products, each good to 2^-53. */
static __device__ double power(double base, int64_t n)
{
    double result = 1;
    for (; n > 0; n >>= 1, base *= base)
        result *= n & 1 ? base : 1;
    return result;
}

static __global__ void __launch_bounds__(THREADS)
    grad_norm_finish_kernel(StepState *s, const double *partial, int64_t pieces, float clip, double beta1, double beta2)
{
    double sum = 0;
    for (int64_t p = threadIdx.x; p < pieces; p += THREADS)
        sum += partial[p];
    sum = block_sum(sum);
    if (threadIdx.x != 0)
        return;
    double norm = sqrt(sum) / s->scaler.scale;
    s->grad_norm = norm;
    s->nonfinite = !isfinite(sum);
    s->clip_coef = clip > 0 && norm + 1e-6 > clip ? (float)(clip / (norm + 1e-6)) : 1.0f;
    s->grad_factor = s->clip_coef / s->scaler.scale;
    scaler_update(&s->scaler, s->nonfinite);
    if (s->nonfinite)
        return;
    s->adam_t++;
    s->bias_1 = (float)(1 - power(beta1, s->adam_t));
    s->bias_2 = (float)(1 - power(beta2, s->adam_t));
}

extern "C" void cuda_grad_norm(Ctx *c, Tensor grads, float clip, const AdamW *adam)
{
    int64_t n = tensor_count(grads), pieces = blocks_of(n, GRAD_NORM_PIECE);
    double *partial = (double *)c->workspace;
    if (!workspace_check(c, OP_grad_norm, grad_norm_workspace(n)))
        return;
    if (pieces)
        grad_norm_pieces_kernel<<<(unsigned)pieces, THREADS, 0, stream_of(c)>>>(partial, elements(grads), n);
    grad_norm_finish_kernel<<<1, THREADS, 0, stream_of(c)>>>(c->state, partial, pieces, clip, adam->beta1, adam->beta2);
    launch_check(c, OP_grad_norm);
}
