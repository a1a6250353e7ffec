/* Arithmetic in fp32 and fp64.
 *
 * Exact instructions are the processor's own: IEEE, rounded to nearest. Approximate ones compute the nearest or nearly nearest
 * result and multiply it with w->nudge: 1, or 2 ulp more or less. */
#include <math.h>

#include "tests/softgpu/vm/ops.h"

/* ---- Directed rounding --------------------------------------------------------------------------------------------- */

typedef enum Direction { DOWN, UP, ZERO } Direction;

/* a b + c, rounded in the direction. a b is exact as a double; sum + error is a b + c exactly (Knuth's two-sum), which says on
 * which side of the exact value the nearest float lies, and so whether to go back one. */
static inline f32 fma_directed(f32 a, f32 b, f32 c, Direction direction)
{
    f64 product = (f64)a * (f64)b, addend = c, sum = product + addend, part = sum - product;
    f64 error = (product - (sum - part)) + (addend - part);
    f32 nearest = (f32)sum;
    f64 beyond = sum - (f64)nearest, exact_side = beyond != 0 ? beyond : error; /* > 0: the exact value lies above */
    bool negative = sum < 0;
    bool step_down = exact_side < 0 && (direction == DOWN || (direction == ZERO && !negative));
    bool step_up = exact_side > 0 && (direction == UP || (direction == ZERO && negative));
    u32 bits = float_bits(nearest), sign = bits >> 31;
    u32 below = bits << 1 == 0 ? 0x80000001u : bits - 1 + 2 * sign, above = bits << 1 == 0 ? 1 : bits + 1 - 2 * sign;
    return step_down ? bits_float(below) : step_up ? bits_float(above) : nearest;
}

/* ---- Approximations ------------------------------------------------------------------------------------------------ */

/* 2^x within about 1 ulp: 2^f for f in [-1/2, 1/2] by a polynomial, times 2^n in two steps, so that n may be beyond the
 * exponents. */
static inline f32 exp2_near(f32 x)
{
    f32 limited = x < -160.0f ? -160.0f : x > 130.0f ? 130.0f : x;
    f32 n = __builtin_rintf(limited), f = limited - n;
    f32 p = 1.5353362e-4f;
    p = p * f + 1.3398874e-3f;
    p = p * f + 9.6184374e-3f;
    p = p * f + 5.5503324e-2f;
    p = p * f + 0.24022648f;
    p = p * f + 0.69314720f;
    p = p * f + 1.0f;
    s32 e = (s32)n, half = e / 2;
    p *= bits_float((u32)(half + 127) << 23);
    p *= bits_float((u32)(e - half + 127) << 23);
    return x != x ? x : p;
}

/* To [0, 1]; NaN becomes 0. */
static inline f32 saturate(f32 x)
{
    return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f;
}

static inline f32 copy_sign(f32 from, f32 to)
{
    return bits_float((float_bits(from) & 0x80000000u) | (float_bits(to) & 0x7fffffffu));
}

static inline f64 double_max(f64 x, f64 y)
{
    return x != x ? y : y != y ? x : x > y ? x : y > x ? y : copysign(1, x) > 0 ? x : y;
}

static inline f64 double_min(f64 x, f64 y)
{
    return x != x ? y : y != y ? x : x < y ? x : y < x ? y : copysign(1, x) < 0 ? x : y;
}

/* Approximations of doubles have 20 bits behind the point: the low half of the result is 0. */
static inline f64 double_coarse(f64 x)
{
    u64 bits;
    memcpy(&bits, &x, sizeof bits);
    bits &= 0xffffffff00000000ull;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* ---- The lists ----------------------------------------------------------------------------------------------------- */

#define SAME(x) (x)

/* F is what happens to inputs and results: nothing, or subnormal numbers become zero (z: "ftz."). s: suffix of the functions'
 * names. */
#define FLOAT_EXACT(X, s, z, F)                                                                                                  \
    X(add##s, "add." z "f32", f32, f32, f32, NONE, 2, VM_FP32, 1, F(F(a) + F(b)))                                                \
    X(sub##s, "sub." z "f32", f32, f32, f32, NONE, 2, VM_FP32, 1, F(F(a) - F(b)))                                                \
    X(mul##s, "mul." z "f32", f32, f32, f32, NONE, 2, VM_FP32, 1, F(F(a) * F(b)))                                                \
    X(fma##s, "fma." z "f32", f32, f32, f32, f32, 3, VM_FP32, 2, F(__builtin_fmaf(F(a), F(b), F(c))))                            \
    X(add_sat##s, "add." z "sat.f32", f32, f32, f32, NONE, 2, VM_FP32, 1, saturate(F(F(a) + F(b))))                              \
    X(mul_sat##s, "mul." z "sat.f32", f32, f32, f32, NONE, 2, VM_FP32, 1, saturate(F(F(a) * F(b))))                              \
    X(fma_sat##s, "fma." z "sat.f32", f32, f32, f32, f32, 3, VM_FP32, 2, saturate(F(__builtin_fmaf(F(a), F(b), F(c)))))          \
    X(neg##s, "neg." z "f32", f32, f32, NONE, NONE, 1, VM_FP32_OTHER, 0, F(-a))                                                  \
    X(abs##s, "abs." z "f32", f32, f32, NONE, NONE, 1, VM_FP32_OTHER, 0, F(bits_float(float_bits(a) & 0x7fffffffu)))             \
    X(min##s, "min." z "f32", f32, f32, f32, NONE, 2, VM_FP32_OTHER, 0, float_min(F(a), F(b)))                                   \
    X(max##s, "max." z "f32", f32, f32, f32, NONE, 2, VM_FP32_OTHER, 0, float_max(F(a), F(b)))                                   \
    X(min_nan##s, "min." z "NaN.f32", f32, f32, f32, NONE, 2, VM_FP32_OTHER, 0, a != a || b != b ? NAN : float_min(F(a), F(b)))  \
    X(max_nan##s, "max." z "NaN.f32", f32, f32, f32, NONE, 2, VM_FP32_OTHER, 0, a != a || b != b ? NAN : float_max(F(a), F(b)))  \
    X(div##s, "div." z "f32", f32, f32, f32, NONE, 2, VM_SPECIAL, 1, F(F(a) / F(b)))                                             \
    X(rcp##s, "rcp." z "f32", f32, f32, NONE, NONE, 1, VM_SPECIAL, 1, F(1.0f / F(a)))                                            \
    X(sqrt##s, "sqrt." z "f32", f32, f32, NONE, NONE, 1, VM_SPECIAL, 1, F(__builtin_sqrtf(F(a))))

#define FLOAT_DIRECTED(X, s, z, F)                                                                                               \
    X(fma_rm##s, "fma.rm." z "f32", f32, f32, f32, f32, 3, VM_FP32, 2, F(fma_directed(F(a), F(b), F(c), DOWN)))                  \
    X(fma_rp##s, "fma.rp." z "f32", f32, f32, f32, f32, 3, VM_FP32, 2, F(fma_directed(F(a), F(b), F(c), UP)))                    \
    X(fma_rz##s, "fma.rz." z "f32", f32, f32, f32, f32, 3, VM_FP32, 2, F(fma_directed(F(a), F(b), F(c), ZERO)))                  \
    X(add_rm##s, "add.rm." z "f32", f32, f32, f32, NONE, 2, VM_FP32, 1, F(fma_directed(F(a), 1, F(b), DOWN)))                    \
    X(add_rp##s, "add.rp." z "f32", f32, f32, f32, NONE, 2, VM_FP32, 1, F(fma_directed(F(a), 1, F(b), UP)))                      \
    X(add_rz##s, "add.rz." z "f32", f32, f32, f32, NONE, 2, VM_FP32, 1, F(fma_directed(F(a), 1, F(b), ZERO)))                    \
    X(mul_rz##s, "mul.rz." z "f32", f32, f32, f32, NONE, 2, VM_FP32, 1, F(fma_directed(F(a), F(b), -0.0f, ZERO)))

/* Of 0 the results are 1 exactly, as the manual says. */
#define EXACT_AT_ZERO(x) ((x) == 0 ? 1.0f : nudge[l])

#define FLOAT_APPROXIMATE(X, s, z, F)                                                                                            \
    X(div_near##s, "div.approx." z "f32", f32, f32, f32, NONE, 2, VM_SPECIAL, 1, F(F(a) / F(b)) * nudge[l])                      \
    X(rcp_near##s, "rcp.approx." z "f32", f32, f32, NONE, NONE, 1, VM_SPECIAL, 1, F(1.0f / F(a)) * nudge[l])                     \
    X(sqrt_near##s, "sqrt.approx." z "f32", f32, f32, NONE, NONE, 1, VM_SPECIAL, 1, F(__builtin_sqrtf(F(a))) * nudge[l])         \
    X(rsqrt##s, "rsqrt.approx." z "f32", f32, f32, NONE, NONE, 1, VM_SPECIAL, 1, F(1.0f / __builtin_sqrtf(F(a))) * nudge[l])     \
    X(ex2##s, "ex2.approx." z "f32", f32, f32, NONE, NONE, 1, VM_SPECIAL, 1, F(exp2_near(F(a))) * EXACT_AT_ZERO(F(a)))           \
    X(lg2##s, "lg2.approx." z "f32", f32, f32, NONE, NONE, 1, VM_SPECIAL, 1, F(log2f(F(a))) * nudge[l])                          \
    X(sin##s, "sin.approx." z "f32", f32, f32, NONE, NONE, 1, VM_SPECIAL, 1, F(sinf(F(a))) * nudge[l])                           \
    X(cos##s, "cos.approx." z "f32", f32, f32, NONE, NONE, 1, VM_SPECIAL, 1, F(cosf(F(a))) * EXACT_AT_ZERO(F(a)))

#define FLOAT_OTHER(X)                                                                                                           \
    X(tanh_near, "tanh.approx.f32", f32, f32, NONE, NONE, 1, VM_SPECIAL, 1, tanhf(a) * nudge[l])                                 \
    X(copysign_f32, "copysign.f32", f32, f32, f32, NONE, 2, VM_FP32_OTHER, 0, copy_sign(a, b))                                   \
    X(copysign_f64, "copysign.f64", f64, f64, f64, NONE, 2, VM_FP64, 0, copysign(b, a))

#define DOUBLE(X)                                                                                                                \
    X(add_f64, "add.f64", f64, f64, f64, NONE, 2, VM_FP64, 1, a + b)                                                             \
    X(sub_f64, "sub.f64", f64, f64, f64, NONE, 2, VM_FP64, 1, a - b)                                                             \
    X(mul_f64, "mul.f64", f64, f64, f64, NONE, 2, VM_FP64, 1, (a * b))                                                           \
    X(fma_f64, "fma.f64", f64, f64, f64, f64, 3, VM_FP64, 2, __builtin_fma(a, b, c))                                             \
    X(div_f64, "div.f64", f64, f64, f64, NONE, 2, VM_FP64, 1, a / b)                                                             \
    X(rcp_f64, "rcp.f64", f64, f64, NONE, NONE, 1, VM_FP64, 1, 1 / a)                                                            \
    X(rcp_near_f64, "rcp.approx.ftz.f64", f64, f64, NONE, NONE, 1, VM_FP64, 1, double_coarse(1 / a))                             \
    X(rsqrt_near_f64, "rsqrt.approx.ftz.f64", f64, f64, NONE, NONE, 1, VM_FP64, 1, double_coarse(1 / __builtin_sqrt(a)))         \
    X(sqrt_f64, "sqrt.f64", f64, f64, NONE, NONE, 1, VM_FP64, 1, __builtin_sqrt(a))                                              \
    X(neg_f64, "neg.f64", f64, f64, NONE, NONE, 1, VM_FP64, 0, -a)                                                               \
    X(abs_f64, "abs.f64", f64, f64, NONE, NONE, 1, VM_FP64, 0, fabs(a))                                                          \
    X(min_f64, "min.f64", f64, f64, f64, NONE, 2, VM_FP64, 0, double_min(a, b))                                                  \
    X(max_f64, "max.f64", f64, f64, f64, NONE, 2, VM_FP64, 0, double_max(a, b))

#define FLOAT_OPS(X)                                                                                                             \
    FLOAT_EXACT(X, _f32, , SAME)                                                                                                 \
    FLOAT_EXACT(X, _ftz, "ftz.", flush)                                                                                          \
    FLOAT_DIRECTED(X, _f32, , SAME)                                                                                              \
    FLOAT_DIRECTED(X, _ftz, "ftz.", flush)                                                                                       \
    FLOAT_APPROXIMATE(X, _f32, , SAME) FLOAT_APPROXIMATE(X, _ftz, "ftz.", flush) FLOAT_OTHER(X) DOUBLE(X)

FLOAT_OPS(OP_FUNCTION)

const OpDef float_ops[] = {FLOAT_OPS(OP_ENTRY) OP_END};
