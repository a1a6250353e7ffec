/* GELU, tanh form: y = x s with s = 1 / (1 + exp(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3); derivative s + x 2u' s (1 - s), where
 * 1 - s = exp(-2u) s. See kernels/cpu/gelu.c for what happens at either end.
 *
 * Bytes moved: each operand once. A thread takes 4 elements, or 8 of a 16-bit type: 128 bits. */
#include "kernels/cuda/common.cuh"

enum { THREADS = 256 };

#define MINUS_2_SQRT_2_OVER_PI (-1.5957691216f)
#define CUBIC                  0.044715f

static __device__ __forceinline__ float gelu(float x)
{
    return x / (1.0f + expf(MINUS_2_SQRT_2_OVER_PI * x * (1.0f + CUBIC * x * x)));
}

/* x is first brought into [-10, 10], where the derivative has long been 0 or 1 and nothing overflows to inf * 0; NaN stays. */
static __device__ __forceinline__ float gelu_derivative(float x)
{
    x = x < -10.0f ? -10.0f : (x > 10.0f ? 10.0f : x);
    float e = expf(MINUS_2_SQRT_2_OVER_PI * x * (1.0f + CUBIC * x * x)), s = 1.0f / (1.0f + e);
    float du2 = -MINUS_2_SQRT_2_OVER_PI * (1.0f + 3.0f * CUBIC * x * x); /* 2 u' */
    return s + x * du2 * (e * s) * s;
}

template <int N> static __global__ void __launch_bounds__(THREADS) gelu_forward_kernel(Elements y, Elements x, int64_t n)
{
    int64_t at = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * N;
    if (at >= n)
        return;
    Floats<N> v = load<N>(x, at, n);
#pragma unroll
    for (int i = 0; i < N; i++)
        v.v[i] = gelu(v.v[i]);
    store<N>(y, at, n, v);
}

template <int N>
static __global__ void __launch_bounds__(THREADS) gelu_backward_kernel(Elements dx, Elements dy, Elements x, int64_t n)
{
    int64_t at = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * N;
    if (at >= n)
        return;
    Words<N> x_words = fetch<N>(x, at, n), dy_words = fetch<N>(dy, at, n);
    Floats<N> v = widen<N>(x_words, x.dtype), d = widen<N>(dy_words, dy.dtype);
#pragma unroll
    for (int i = 0; i < N; i++)
        d.v[i] *= gelu_derivative(v.v[i]);
    store<N>(dx, at, n, d);
}

extern "C" void cuda_gelu_forward(Ctx *c, Tensor y, Tensor x)
{
    int64_t n = tensor_count(x);
    auto launch = [&](auto width) {
        constexpr int N = decltype(width)::value;
        gelu_forward_kernel<N><<<(unsigned)blocks_of(n, N * THREADS), THREADS, 0, stream_of(c)>>>(elements(y), elements(x), n);
    };
    with_width(launch, x);
    launch_check(c, OP_gelu_forward);
}

extern "C" void cuda_gelu_backward(Ctx *c, Tensor dx, Tensor dy, Tensor x)
{
    int64_t n = tensor_count(x);
    auto launch = [&](auto width) {
        constexpr int N = decltype(width)::value;
        gelu_backward_kernel<N>
            <<<(unsigned)blocks_of(n, N * THREADS), THREADS, 0, stream_of(c)>>>(elements(dx), elements(dy), elements(x), n);
    };
    with_width(launch, x);
    launch_check(c, OP_gelu_backward);
}
