/* GELU, tanh form: y = x s, where s = 1 / (1 + exp(-2u)) and u = sqrt(2/pi) (x + 0.044715 x^3), since
 * (1 + tanh u) / 2 = s. Its derivative is s + x s' with s' = 2 u' s (1 - s) and 1 - s = exp(-2u) s.
 *
 * y = x / (1 + exp(-2u)) needs no care at either end: exp goes to infinity and y to -0, or to 0 and y to x. For the
 * derivative x is first brought into [-10, 10], where it has long been 0 or 1 and nothing overflows to inf * 0. */
#include "kernels/cpu/cpu_ops.h"

#define MINUS_2_SQRT_2_OVER_PI (-1.5957691216f)
#define CUBIC                  0.044715f

static inline float gelu(float x)
{
    return x / (1.0f + exp_approx(MINUS_2_SQRT_2_OVER_PI * x * (1.0f + CUBIC * x * x)));
}

static inline float gelu_derivative(float x)
{
    x = x < -10.0f ? -10.0f : (x > 10.0f ? 10.0f : x);
    float e = exp_approx(MINUS_2_SQRT_2_OVER_PI * x * (1.0f + CUBIC * x * x)), s = 1.0f / (1.0f + e);
    float du2 = -MINUS_2_SQRT_2_OVER_PI * (1.0f + 3.0f * CUBIC * x * x); /* 2 u' */
    return s + x * du2 * (e * s) * s;
}

void CPU(gelu_forward)(Ctx *c, Tensor y, Tensor x)
{
    float *to = y.data;
    const float *from = x.data;
    int64_t n = tensor_count(x);
#pragma omp parallel for simd num_threads(cpu_threads(c, n)) schedule(static)
    for (int64_t i = 0; i < n; i++)
        to[i] = gelu(from[i]);
}

void CPU(gelu_backward)(Ctx *c, Tensor dx, Tensor dy, Tensor x)
{
    float *to = dx.data;
    const float *dout = dy.data, *in = x.data;
    int64_t n = tensor_count(x);
#pragma omp parallel for simd num_threads(cpu_threads(c, n)) schedule(static)
    for (int64_t i = 0; i < n; i++)
        to[i] = dout[i] * gelu_derivative(in[i]);
}
