/* For tests of ops in 16 bits, beside cpu_machine.h: tensors of any type whose numbers an FP32 tensor holds as well. */
#ifndef TALLY_TESTS_HALF_TENSORS_H
#define TALLY_TESTS_HALF_TENSORS_H

#include "base/convert.h"
#include "tests/cpu_machine.h"

static const DType half_types[] = {DTYPE_BF16, DTYPE_F16};

/* The number of that type that is nearest to x, as FP32. */
static inline float rounded(DType type, float x)
{
    return type == DTYPE_BF16 ? bf16_to_f32(f32_to_bf16(x)) : type == DTYPE_F16 ? f16_to_f32(f32_to_f16(x)) : x;
}

static inline float value_at(Tensor t, int64_t i)
{
    if (t.dtype == DTYPE_F32)
        return ((const float *)t.data)[i];
    uint16_t half = ((const uint16_t *)t.data)[i];
    return t.dtype == DTYPE_BF16 ? bf16_to_f32(half) : f16_to_f32(half);
}

static inline void value_set(Tensor t, int64_t i, float x)
{
    if (t.dtype == DTYPE_F32)
        ((float *)t.data)[i] = x;
    else
        ((uint16_t *)t.data)[i] = t.dtype == DTYPE_BF16 ? f32_to_bf16(x) : f32_to_f16(x);
}

/* A copy of the FP32 tensor t in another type; t becomes what the copy holds. Absent stays absent. */
static inline Tensor in_type(Machine *m, Tensor t, DType type)
{
    if (!tensor_present(t))
        return t;
    Tensor u = copy_of(m, t);
    u.dtype = type;
    for (int64_t i = 0; i < tensor_count(t); i++) {
        floats(t)[i] = rounded(type, floats(t)[i]);
        value_set(u, i, floats(t)[i]);
    }
    return u;
}

/* A tensor of that type as large as t, of other numbers. */
static inline Tensor room_for(Machine *m, Tensor t, DType type)
{
    Tensor u = copy_of(m, t);
    u.dtype = type;
    memset(u.data, 0x3C, tensor_bytes(u));
    return u;
}

/* Does `got` hold exactly the FP32 numbers `want`, rounded to nearest even? */
#define assert_rounded(got, want)                                                                                                \
    do {                                                                                                                         \
        for (int64_t i_ = 0; i_ < tensor_count(want); i_++)                                                                      \
            if (float_bits(value_at(got, i_)) != float_bits(rounded((got).dtype, floats(want)[i_])))                             \
                fail_msg("%s, %s: element %lld is %.9g, and should be %.9g rounded", #got, dtype_name((got).dtype),              \
                         (long long)i_, (double)value_at(got, i_), (double)floats(want)[i_]);                                    \
    } while (0)

/* Half the distance of the numbers of that type near x. */
static inline double half_ulp(DType type, double x)
{
    int bits = type == DTYPE_BF16 ? 8 : type == DTYPE_F16 ? 11 : 24, least = type == DTYPE_F16 ? -14 : -126, exponent;
    frexp(x, &exponent);
    exponent--; /* x = 1.f 2^exponent */
    return ldexp(1, (x == 0 || exponent < least ? least : exponent) - bits);
}

/* A sum of `terms` numbers whose magnitudes add up to `size`, in FP32 and in any order, is off by at most terms 2^-24 size; then
 * it is rounded to the type of the output. `operands` is the relative error of the terms themselves. */
static inline bool near_sum(Tensor got, int64_t i, double want, double size, int64_t terms, double operands)
{
    double slack = ((double)terms * 0x1p-24 + operands) * size;
    return fabs((double)value_at(got, i) - want) <= slack + half_ulp(got.dtype, fabs(want) + slack);
}

#define assert_sums(got, want, size, terms, operands)                                                                            \
    do {                                                                                                                         \
        for (int64_t i_ = 0; i_ < tensor_count(got); i_++)                                                                       \
            if (!near_sum(got, i_, (want)[i_], (size)[i_], terms, operands))                                                     \
                fail_msg("%s, %s: element %lld is %.9g, and should be %.9g", #got, dtype_name((got).dtype), (long long)i_,       \
                         (double)value_at(got, i_), (want)[i_]);                                                                 \
    } while (0)

#endif
