/* How an operation is written down, for the files ops_*.c. One on registers is one line of a list,
 *
 *     X(add_s32, "add.s32", u32, u32, u32, NONE, 2, VM_INTEGER, 0, a + b)
 *
 * function, name in PTX, types of the result and of up to three inputs as the registers hold them, number of inputs, class, FLOPs
 * of a lane, and the result as an expression of a, b, c and the lane l. OP_FUNCTION makes of it a loop over the lanes that
 * vectorises, and OP_ENTRY its line of the table. */
#ifndef SOFTGPU_OPS_H
#define SOFTGPU_OPS_H

#include <string.h>

#include "tests/softgpu/vm/machine.h"

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int8_t s8;
typedef int16_t s16;
typedef int32_t s32;
typedef int64_t s64;
typedef float f32;
typedef double f64;
typedef u32 NONE; /* the type of an input that there is not */

/* The tables, one a file. */
extern const OpDef integer_ops[], float_ops[], half_ops[], convert_ops[], compare_ops[], warp_ops[], tensor_ops[], memory_ops[];

#define UNUSED __attribute__((unused))

/* In place is fine: a lane reads its inputs before it writes. When all lanes take part no old value is needed. */
#define OP_FUNCTION(id, name, D, A, B, C, n, class, flops, expression)                                                           \
    static void id(Warp *w, const Insn *i)                                                                                       \
    {                                                                                                                            \
        D *out = REG(D, 0);                                                                                                      \
        const A *in_a = REG(A, 1);                                                                                               \
        const B *in_b = REG(B, 2);                                                                                               \
        const C *in_c = REG(C, 3);                                                                                               \
        UNUSED const f32 *nudge = w->nudge;                                                                                      \
        const u32 mask = w->mask;                                                                                                \
        if (mask == UINT32_MAX) {                                                                                                \
            _Pragma("GCC ivdep") EACH (l)                                                                                        \
            {                                                                                                                    \
                UNUSED const A a = in_a[l];                                                                                      \
                UNUSED const B b = in_b[l];                                                                                      \
                UNUSED const C c = in_c[l];                                                                                      \
                out[l] = (D)(expression);                                                                                        \
            }                                                                                                                    \
        } else {                                                                                                                 \
            _Pragma("GCC ivdep") EACH (l)                                                                                        \
            {                                                                                                                    \
                UNUSED const A a = in_a[l];                                                                                      \
                UNUSED const B b = in_b[l];                                                                                      \
                UNUSED const C c = in_c[l];                                                                                      \
                const D result = (D)(expression);                                                                                \
                out[l] = mask >> l & 1 ? result : out[l];                                                                        \
            }                                                                                                                    \
        }                                                                                                                        \
    }

#define OP_ENTRY(id, name, D, A, B, C, n, class, flops, expression)                                                              \
    {name, id, sizeof(D), n, {sizeof(A), sizeof(B), sizeof(C), 4}, class, flops},

/* The end of a table. */
#define OP_END                                                                                                                   \
    {                                                                                                                            \
        NULL, NULL, 0, 0, {0}, 0, 0                                                                                              \
    }

/* Writes a predicate: bit l of `bits` for each lane that takes part. */
static inline void predicate_set(u32 *p, u32 bits, u32 mask)
{
    *p = (*p & ~mask) | (bits & mask);
}

/* ---- Floating-point numbers and their bits --------------------------------------------------------------------------- */

static inline u32 float_bits(f32 f)
{
    u32 u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline f32 bits_float(u32 u)
{
    f32 f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline f32 bf16_widen(u32 x)
{
    return bits_float(x << 16);
}

/* To nearest, ties to even; NaN becomes the canonical one. */
static inline u32 bf16_narrow(f32 f)
{
    u32 u = float_bits(f);
    return (u & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : (u + 0x7fffu + (u >> 16 & 1)) >> 16;
}

/* The 15 bits below the sign as those of a float have an exponent that is 112 too small. Multiplying by 2^112 is exact, for
 * subnormal numbers too; infinity and NaN need their exponent set. */
static inline f32 f16_widen(u32 x)
{
    u32 shifted = (x & 0x7fffu) << 13;
    u32 magnitude = float_bits(bits_float(shifted) * 0x1p112f);
    magnitude = (x & 0x7c00u) == 0x7c00u ? shifted | 0x7f800000u : magnitude;
    return bits_float(magnitude | (x & 0x8000u) << 16);
}

/* To nearest, ties to even, without branches. Normal: add half of the last bit that stays, less one if that is even, and move the
 * exponent. Subnormal: adding 0.5 puts the bits where f16's are, rounded by the addition. */
static inline u32 f16_narrow(f32 f)
{
    u32 u = float_bits(f), sign = u >> 16 & 0x8000u, magnitude = u & 0x7fffffffu;
    u32 normal = (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1)) >> 13;
    u32 subnormal = float_bits(bits_float(magnitude) + 0.5f) - 0x3f000000u;
    u32 r = magnitude < 0x38800000u ? subnormal : normal;
    r = magnitude >= 0x47800000u ? 0x7c00u : r; /* 65536 and more; from 65520 on, rounding has made it infinite already */
    r = magnitude > 0x7f800000u ? 0x7fffu : r;
    return sign | r;
}

/* ftz: subnormal numbers count as zero. */
static inline f32 flush(f32 x)
{
    return float_bits(x) & 0x7f800000u ? x : bits_float(float_bits(x) & 0x80000000u);
}

/* The number, if one of them is none; +0 is more than -0. */
static inline f32 float_max(f32 x, f32 y)
{
    f32 larger = x > y ? x : y > x ? y : bits_float(float_bits(x) & float_bits(y));
    return x != x ? (y != y ? bits_float(0x7fffffffu) : y) : y != y ? x : larger;
}

static inline f32 float_min(f32 x, f32 y)
{
    f32 smaller = x < y ? x : y < x ? y : bits_float(float_bits(x) | float_bits(y));
    return x != x ? (y != y ? bits_float(0x7fffffffu) : y) : y != y ? x : smaller;
}

#endif
