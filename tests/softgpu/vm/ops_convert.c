/* Conversions between numbers.
 *
 * Between integers C's casts do what PTX says: cut off, then extend by zeros or the sign. From floating point to integer the
 * result is the nearest there is, and 0 for NaN. "cvtw" is a conversion whose source lies in a 64-bit register but is narrower.
 */
#include <math.h>

#include "tests/softgpu/vm/ops.h"

static inline f32 saturate(f32 x)
{
    return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f;
}

/* Toward zero */
static inline u32 bf16_truncate(f32 f)
{
    return float_bits(f) << 1 > 0xff000000u ? 0x7fffu : float_bits(f) >> 16;
}

/* Toward zero: what a float has beyond the bits of an fp16 is cut off before it is converted. */
static inline u32 f16_truncate(f32 f)
{
    u32 magnitude = float_bits(f) & 0x7fffffffu;
    f32 cut = bits_float(float_bits(f) & 0xffffe000u), small = truncf(f * 0x1p24f) * 0x1p-24f;
    f32 largest = bits_float((float_bits(f) & 0x80000000u) | 0x477fe000u);
    f32 r = magnitude < 0x38800000u ? small : cut;
    return f16_narrow(magnitude > 0x477fe000u && magnitude < 0x7f800000u ? largest : magnitude > 0x7f800000u ? f : r);
}

/* To the 10 bits of tf32, ties away from zero */
static inline u32 tf32_round(f32 f)
{
    u32 u = float_bits(f);
    return (u & 0x7f800000u) == 0x7f800000u ? u : (u + 0x1000u) & 0xffffe000u;
}

/* ---- Between integers ---------------------------------------------------------------------------------------------- */

#define CAST(X, d, s, D, S, DR, SR) X(cvt_##d##_##s, "cvt." #d "." #s, DR, SR, NONE, NONE, 1, VM_CONVERT, 0, (DR)(D)(S)a)
#define CASTS_TO(X, d, D, DR)                                                                                                    \
    CAST(X, d, u8, D, u8, DR, u32)                                                                                               \
    CAST(X, d, s8, D, s8, DR, u32)                                                                                               \
    CAST(X, d, u16, D, u16, DR, u32)                                                                                             \
    CAST(X, d, s16, D, s16, DR, u32)                                                                                             \
    CAST(X, d, u32, D, u32, DR, u32)                                                                                             \
    CAST(X, d, s32, D, s32, DR, u32)                                                                                             \
    CAST(X, d, u64, D, u64, DR, u64)                                                                                             \
    CAST(X, d, s64, D, s64, DR, u64)

#define CAST_WIDE(X, d, s, D, S, DR) X(cvtw_##d##_##s, "cvtw." #d "." #s, DR, u64, NONE, NONE, 1, VM_CONVERT, 0, (DR)(D)(S)a)
#define CASTS_WIDE_TO(X, d, D, DR)                                                                                               \
    CAST_WIDE(X, d, u8, D, u8, DR)                                                                                               \
    CAST_WIDE(X, d, s8, D, s8, DR)                                                                                               \
    CAST_WIDE(X, d, u16, D, u16, DR)                                                                                             \
    CAST_WIDE(X, d, s16, D, s16, DR)                                                                                             \
    CAST_WIDE(X, d, u32, D, u32, DR)                                                                                             \
    CAST_WIDE(X, d, s32, D, s32, DR)

#define TO_INTEGERS(LIST, X)                                                                                                     \
    LIST(X, u8, u8, u32)                                                                                                         \
    LIST(X, s8, s8, u32)                                                                                                         \
    LIST(X, u16, u16, u32)                                                                                                       \
    LIST(X, s16, s16, u32)                                                                                                       \
    LIST(X, u32, u32, u32)                                                                                                       \
    LIST(X, s32, s32, u32)                                                                                                       \
    LIST(X, u64, u64, u64)                                                                                                       \
    LIST(X, s64, s64, u64)

/* ---- Between integers and floating point --------------------------------------------------------------------------- */

/* x is whole; least is the smallest value of type T, and beyond the first that is too large, both exact in floating point. */
#define LIMIT(x, T, least, beyond, largest) ((x) != (x) ? (T)0 : (x) < least ? (T)least : (x) >= beyond ? (T)largest : (T)(x))

#define FLOAT_TO_INTEGER(X, t, T, R, least, beyond, largest, f, F)                                                               \
    X(cvt_rzi_##t##_##f, "cvt.rzi." #t "." #f, R, F, NONE, NONE, 1, VM_CONVERT, 0,                                               \
      LIMIT(__builtin_trunc##F(a), T, least, beyond, largest))                                                                   \
    X(cvt_rni_##t##_##f, "cvt.rni." #t "." #f, R, F, NONE, NONE, 1, VM_CONVERT, 0,                                               \
      LIMIT(__builtin_rint##F(a), T, least, beyond, largest))                                                                    \
    X(cvt_rmi_##t##_##f, "cvt.rmi." #t "." #f, R, F, NONE, NONE, 1, VM_CONVERT, 0,                                               \
      LIMIT(__builtin_floor##F(a), T, least, beyond, largest))                                                                   \
    X(cvt_rpi_##t##_##f, "cvt.rpi." #t "." #f, R, F, NONE, NONE, 1, VM_CONVERT, 0,                                               \
      LIMIT(__builtin_ceil##F(a), T, least, beyond, largest))

#define __builtin_truncf32 __builtin_truncf
#define __builtin_rintf32  __builtin_rintf
#define __builtin_floorf32 __builtin_floorf
#define __builtin_ceilf32  __builtin_ceilf
#define __builtin_truncf64 __builtin_trunc
#define __builtin_rintf64  __builtin_rint
#define __builtin_floorf64 __builtin_floor
#define __builtin_ceilf64  __builtin_ceil

#define FLOAT_TO_INTEGERS(X, f, F)                                                                                               \
    FLOAT_TO_INTEGER(X, u16, u16, u32, 0, 0x1p16f, 0xffff, f, F)                                                                 \
    FLOAT_TO_INTEGER(X, s16, s16, u32, -0x1p15f, 0x1p15f, 0x7fff, f, F)                                                          \
    FLOAT_TO_INTEGER(X, u32, u32, u32, 0, 0x1p32f, 0xffffffffu, f, F)                                                            \
    FLOAT_TO_INTEGER(X, s32, s32, u32, -0x1p31f, 0x1p31f, 0x7fffffff, f, F)                                                      \
    FLOAT_TO_INTEGER(X, u64, u64, u64, 0, 0x1p64f, UINT64_MAX, f, F)                                                             \
    FLOAT_TO_INTEGER(X, s64, s64, u64, -0x1p63f, 0x1p63f, INT64_MAX, f, F)

#define INTEGER_TO_FLOAT(X, t, T, R)                                                                                             \
    X(cvt_f32_##t, "cvt.rn.f32." #t, f32, R, NONE, NONE, 1, VM_CONVERT, 0, (f32)(T)a)                                            \
    X(cvt_f64_##t, "cvt.rn.f64." #t, f64, R, NONE, NONE, 1, VM_CONVERT, 0, (f64)(T)a)                                            \
    X(cvt_f16_##t, "cvt.f16." #t, u32, R, NONE, NONE, 1, VM_CONVERT, 0, f16_narrow((f32)(T)a))

#define INTEGERS_TO_FLOAT(X)                                                                                                     \
    INTEGER_TO_FLOAT(X, u8, u8, u32)                                                                                             \
    INTEGER_TO_FLOAT(X, s8, s8, u32)                                                                                             \
    INTEGER_TO_FLOAT(X, u16, u16, u32)                                                                                           \
    INTEGER_TO_FLOAT(X, s16, s16, u32)                                                                                           \
    INTEGER_TO_FLOAT(X, u32, u32, u32)                                                                                           \
    INTEGER_TO_FLOAT(X, s32, s32, u32)                                                                                           \
    INTEGER_TO_FLOAT(X, u64, u64, u64)                                                                                           \
    INTEGER_TO_FLOAT(X, s64, s64, u64)

/* ---- Between floating-point types ---------------------------------------------------------------------------------- */

#define SAME(x) (x)

#define FLOAT_TO_FLOAT(X, s, z, F)                                                                                               \
    X(cvt_f32_f32##s, "cvt." z "f32.f32", f32, f32, NONE, NONE, 1, VM_CONVERT, 0, F(a))                                          \
    X(cvt_rni##s, "cvt.rni." z "f32.f32", f32, f32, NONE, NONE, 1, VM_CONVERT, 0, __builtin_rintf(F(a)))                         \
    X(cvt_rzi##s, "cvt.rzi." z "f32.f32", f32, f32, NONE, NONE, 1, VM_CONVERT, 0, __builtin_truncf(F(a)))                        \
    X(cvt_rmi##s, "cvt.rmi." z "f32.f32", f32, f32, NONE, NONE, 1, VM_CONVERT, 0, __builtin_floorf(F(a)))                        \
    X(cvt_rpi##s, "cvt.rpi." z "f32.f32", f32, f32, NONE, NONE, 1, VM_CONVERT, 0, __builtin_ceilf(F(a)))                         \
    X(cvt_sat##s, "cvt." z "sat.f32.f32", f32, f32, NONE, NONE, 1, VM_CONVERT, 0, saturate(F(a)))                                \
    X(cvt_f32_f64##s, "cvt.rn." z "f32.f64", f32, f64, NONE, NONE, 1, VM_CONVERT, 0, F((f32)a))                                  \
    X(cvt_f64_f32##s, "cvt." z "f64.f32", f64, f32, NONE, NONE, 1, VM_CONVERT, 0, F(a))

#define DOUBLE_TO_DOUBLE(X)                                                                                                      \
    X(cvt_rni_f64, "cvt.rni.f64.f64", f64, f64, NONE, NONE, 1, VM_CONVERT, 0, __builtin_rint(a))                                 \
    X(cvt_rzi_f64, "cvt.rzi.f64.f64", f64, f64, NONE, NONE, 1, VM_CONVERT, 0, __builtin_trunc(a))                                \
    X(cvt_rmi_f64, "cvt.rmi.f64.f64", f64, f64, NONE, NONE, 1, VM_CONVERT, 0, __builtin_floor(a))                                \
    X(cvt_rpi_f64, "cvt.rpi.f64.f64", f64, f64, NONE, NONE, 1, VM_CONVERT, 0, __builtin_ceil(a))

/* Of a pair the first source becomes the high half. */
#define HALF_CONVERT(X, t, W, N, Z)                                                                                              \
    X(cvt_##t##_f32, "cvt." #t ".f32", u32, f32, NONE, NONE, 1, VM_CONVERT, 0, N(a))                                             \
    X(cvt_rz_##t##_f32, "cvt.rz." #t ".f32", u32, f32, NONE, NONE, 1, VM_CONVERT, 0, Z(a))                                       \
    X(cvt_f32_##t, "cvt.f32." #t, f32, u32, NONE, NONE, 1, VM_CONVERT, 0, W(a & 0xffffu))                                        \
    X(cvt_##t##x2_f32, "cvt." #t "x2.f32", u32, f32, f32, NONE, 2, VM_CONVERT, 0, N(b) | N(a) << 16)                             \
    X(cvt_rni_s32_##t, "cvt.rni.s32." #t, u32, u32, NONE, NONE, 1, VM_CONVERT, 0,                                                \
      LIMIT(__builtin_rintf(W(a)), s32, -0x1p31f, 0x1p31f, 0x7fffffff))                                                          \
    X(cvt_rzi_s32_##t, "cvt.rzi.s32." #t, u32, u32, NONE, NONE, 1, VM_CONVERT, 0,                                                \
      LIMIT(__builtin_truncf(W(a)), s32, -0x1p31f, 0x1p31f, 0x7fffffff))

#define CONVERT_OPS(X)                                                                                                           \
    TO_INTEGERS(CASTS_TO, X)                                                                                                     \
    TO_INTEGERS(CASTS_WIDE_TO, X)                                                                                                \
    FLOAT_TO_INTEGERS(X, f32, f32)                                                                                               \
    FLOAT_TO_INTEGERS(X, f64, f64)                                                                                               \
    INTEGERS_TO_FLOAT(X)                                                                                                         \
    FLOAT_TO_FLOAT(X, , , SAME)                                                                                                  \
    FLOAT_TO_FLOAT(X, _ftz, "ftz.", flush)                                                                                       \
    DOUBLE_TO_DOUBLE(X)                                                                                                          \
    HALF_CONVERT(X, f16, f16_widen, f16_narrow, f16_truncate)                                                                    \
    HALF_CONVERT(X, bf16, bf16_widen, bf16_narrow, bf16_truncate)                                                                \
    X(cvt_rna_tf32, "cvt.rna.tf32.f32", u32, f32, NONE, NONE, 1, VM_CONVERT, 0, tf32_round(a))

CONVERT_OPS(OP_FUNCTION)

const OpDef convert_ops[] = {CONVERT_OPS(OP_ENTRY) OP_END};
