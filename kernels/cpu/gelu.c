/* GELU, tanh form: y = x s, where s = 1 / (1 + exp(-2u)) and u = sqrt(2/pi) (x + 0.044715 x^3), since
 * (1 + tanh u) / 2 = s. Its derivative is s + x s' with s' = 2 u' s (1 - s) and 1 - s = exp(-2u) s.
 *
 * y = x / (1 + exp(-2u)) needs no care at either end: exp goes to infinity and y to -0, or to 0 and y to x. For the
 * derivative x is first brought into [-10, 10], where it has long been 0 or 1 and nothing overflows to inf * 0. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/rows.h"

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
    int64_t n = tensor_count(x), pieces = (n + ROW_PIECE - 1) / ROW_PIECE;
#pragma omp parallel for num_threads(cpu_threads(c, n)) schedule(static)
    for (int64_t p = 0; p < pieces; p++) {
        float buffer[2][ROW_PIECE];
        int64_t at = p * ROW_PIECE, count = min_of(n - at, ROW_PIECE);
        const float *from = row_in(&x, at, count, buffer[0]);
        float *to = row_out(&y, at, buffer[1]);
#pragma omp simd
        for (int64_t i = 0; i < count; i++)
            to[i] = gelu(from[i]);
        row_done(&y, at, count, to);
    }
}

void CPU(gelu_backward)(Ctx *c, Tensor dx, Tensor dy, Tensor x)
{
    int64_t n = tensor_count(x), pieces = (n + ROW_PIECE - 1) / ROW_PIECE;
#pragma omp parallel for num_threads(cpu_threads(c, n)) schedule(static)
    for (int64_t p = 0; p < pieces; p++) {
        float buffer[3][ROW_PIECE];
        int64_t at = p * ROW_PIECE, count = min_of(n - at, ROW_PIECE);
        const float *in = row_in(&x, at, count, buffer[0]), *dout = row_in(&dy, at, count, buffer[1]);
        float *to = row_out(&dx, at, buffer[2]);
#pragma omp simd
        for (int64_t i = 0; i < count; i++)
            to[i] = dout[i] * gelu_derivative(in[i]);
        row_done(&dx, at, count, to);
    }
}
