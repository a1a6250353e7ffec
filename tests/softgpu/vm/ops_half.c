/* Arithmetic in fp16 and bf16, alone and in pairs. Each operation computes in fp32 and rounds once: for sums, products and
 * quotients of numbers that short, rounding to fp32 first does not change the result. A fused multiply-add keeps what fp32 loses
 * as its last bit. */
#include "tests/softgpu/vm/ops.h"

/* a b + c to odd: when bits are lost, the last one that stays is set. Rounding that to 8 or 11 bits gives what rounding the exact
 * value would, for no tie is made or hidden. */
static inline f32 fma_odd(f32 a, f32 b, f32 c)
{
    f64 product = (f64)a * (f64)b, addend = c, sum = product + addend, part = sum - product;
    f64 error = (product - (sum - part)) + (addend - part);
    f32 nearest = (f32)sum;
    f64 beyond = sum - (f64)nearest;
    beyond = beyond != 0 ? beyond : error; /* > 0: the exact value lies above the nearest float */
    u32 bits = float_bits(nearest);
    bool outside = (beyond > 0) == (bits >> 31 == 0);
    bool inexact = beyond != 0 && (bits & 1) == 0 && nearest - nearest == 0;
    return inexact ? bits_float(outside ? bits + 1 : bits - 1) : nearest;
}

#define LOW(x)  ((x)&0xffffu)
#define HIGH(x) ((x) >> 16)

/* Type t: W widens to fp32, N rounds back. */
#define HALF(X, t, W, N)                                                                                                         \
    X(add_##t, "add." #t, u32, u32, u32, NONE, 2, VM_FP32, 1, N(W(a) + W(b)))                                                    \
    X(sub_##t, "sub." #t, u32, u32, u32, NONE, 2, VM_FP32, 1, N(W(a) - W(b)))                                                    \
    X(mul_##t, "mul." #t, u32, u32, u32, NONE, 2, VM_FP32, 1, N(W(a) * W(b)))                                                    \
    X(fma_##t, "fma." #t, u32, u32, u32, u32, 3, VM_FP32, 2, N(fma_odd(W(a), W(b), W(c))))                                       \
    X(min_##t, "min." #t, u32, u32, u32, NONE, 2, VM_FP32_OTHER, 0, N(float_min(W(a), W(b))))                                    \
    X(max_##t, "max." #t, u32, u32, u32, NONE, 2, VM_FP32_OTHER, 0, N(float_max(W(a), W(b))))                                    \
    X(neg_##t, "neg." #t, u32, u32, NONE, NONE, 1, VM_FP32_OTHER, 0, LOW(a) ^ 0x8000u)                                           \
    X(abs_##t, "abs." #t, u32, u32, NONE, NONE, 1, VM_FP32_OTHER, 0, a & 0x7fffu)

#define PAIR(X, t, W, N)                                                                                                         \
    X(add_##t##x2, "add." #t "x2", u32, u32, u32, NONE, 2, VM_FP32, 2,                                                           \
      N(W(LOW(a)) + W(LOW(b))) | N(W(HIGH(a)) + W(HIGH(b))) << 16)                                                               \
    X(sub_##t##x2, "sub." #t "x2", u32, u32, u32, NONE, 2, VM_FP32, 2,                                                           \
      N(W(LOW(a)) - W(LOW(b))) | N(W(HIGH(a)) - W(HIGH(b))) << 16)                                                               \
    X(mul_##t##x2, "mul." #t "x2", u32, u32, u32, NONE, 2, VM_FP32, 2,                                                           \
      N(W(LOW(a)) * W(LOW(b))) | N(W(HIGH(a)) * W(HIGH(b))) << 16)                                                               \
    X(fma_##t##x2, "fma." #t "x2", u32, u32, u32, u32, 3, VM_FP32, 4,                                                            \
      N(fma_odd(W(LOW(a)), W(LOW(b)), W(LOW(c)))) | N(fma_odd(W(HIGH(a)), W(HIGH(b)), W(HIGH(c)))) << 16)                        \
    X(min_##t##x2, "min." #t "x2", u32, u32, u32, NONE, 2, VM_FP32_OTHER, 0,                                                     \
      N(float_min(W(LOW(a)), W(LOW(b)))) | N(float_min(W(HIGH(a)), W(HIGH(b)))) << 16)                                           \
    X(max_##t##x2, "max." #t "x2", u32, u32, u32, NONE, 2, VM_FP32_OTHER, 0,                                                     \
      N(float_max(W(LOW(a)), W(LOW(b)))) | N(float_max(W(HIGH(a)), W(HIGH(b)))) << 16)                                           \
    X(neg_##t##x2, "neg." #t "x2", u32, u32, NONE, NONE, 1, VM_FP32_OTHER, 0, a ^ 0x80008000u)                                   \
    X(abs_##t##x2, "abs." #t "x2", u32, u32, NONE, NONE, 1, VM_FP32_OTHER, 0, a & 0x7fff7fffu)

#define HALF_OPS(X)                                                                                                              \
    HALF(X, f16, f16_widen, f16_narrow)                                                                                          \
    HALF(X, bf16, bf16_widen, bf16_narrow)                                                                                       \
    PAIR(X, f16, f16_widen, f16_narrow)                                                                                          \
    PAIR(X, bf16, bf16_widen, bf16_narrow)

HALF_OPS(OP_FUNCTION)

const OpDef half_ops[] = {HALF_OPS(OP_ENTRY) OP_END};
