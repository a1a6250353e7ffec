/* Rows of any float type, computed with as FP32. An FP32 row is read and written where it lies; a 16-bit row is widened into a
 * buffer and rounded out of one, to nearest even. So each kernel is written once, for floats.
 *
 *   const float *x = row_in(&t, at, n, buffer);      elements at .. at+n-1 of t
 *   float *y = row_out(&t, at, buffer);              room for them: t's own memory, or the buffer
 *   float *z = row_inout(&t, at, n, buffer);         the elements, to be changed
 *   row_done(&t, at, n, y);                          rounds them into t; nothing for FP32 */
#ifndef TALLY_KERNELS_CPU_ROWS_H
#define TALLY_KERNELS_CPU_ROWS_H

#include "base/convert.h"
#include "kernels/cpu/cpu.h"

#if defined(__F16C__)
#include <immintrin.h>
#endif

/* Floats of a buffer on the stack, for ops that take a row piece by piece. */
enum { ROW_PIECE = 512 };

static inline void *element_at(const Tensor *t, int64_t at)
{
    return (char *)t->data + (size_t)at * dtype_size(t->dtype);
}

static inline void widen_f16(float *restrict to, const uint16_t *restrict from, int64_t n)
{
    int64_t i = 0;
#if defined(__F16C__)
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(from + i))));
#endif
    for (; i < n; i++)
        to[i] = f16_to_f32(from[i]);
}

static inline void narrow_f16(uint16_t *restrict to, const float *restrict from, int64_t n)
{
    int64_t i = 0;
#if defined(__F16C__)
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(to + i), _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
#endif
    for (; i < n; i++)
        to[i] = f32_to_f16(from[i]);
}

/* to [n] = from [n], exactly. */
static inline void widen(float *restrict to, const uint16_t *restrict from, DType type, int64_t n)
{
    if (type == DTYPE_F16)
        widen_f16(to, from, n);
    else
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            to[i] = bf16_to_f32(from[i]);
}

/* to [n] = from [n], rounded to nearest even. */
static inline void narrow(uint16_t *restrict to, const float *restrict from, DType type, int64_t n)
{
    if (type == DTYPE_F16)
        narrow_f16(to, from, n);
    else
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            to[i] = f32_to_bf16(from[i]);
}

static inline float *row_inout(const Tensor *t, int64_t at, int64_t n, float *buffer)
{
    if (t->dtype == DTYPE_F32)
        return element_at(t, at);
    widen(buffer, element_at(t, at), t->dtype, n);
    return buffer;
}

static inline const float *row_in(const Tensor *t, int64_t at, int64_t n, float *buffer)
{
    return row_inout(t, at, n, buffer);
}

static inline float *row_out(const Tensor *t, int64_t at, float *buffer)
{
    return t->dtype == DTYPE_F32 ? element_at(t, at) : buffer;
}

static inline void row_done(const Tensor *t, int64_t at, int64_t n, const float *row)
{
    if (t->dtype != DTYPE_F32)
        narrow(element_at(t, at), row, t->dtype, n);
}

/* The same, and leaves in `row` what t now holds: for an op that goes on with its own output. */
static inline void row_done_rounded(const Tensor *t, int64_t at, int64_t n, float *row)
{
    row_done(t, at, n, row);
    if (t->dtype != DTYPE_F32)
        widen(row, element_at(t, at), t->dtype, n);
}

/* sums [n], of any type, += the threads' partial sums in the threads' order; those of a thread are `stride` floats after those of
 * the one before. total: room for a row. */
static inline void partials_add(const Tensor *sums, const float *partial, int64_t stride, int threads, float *total)
{
    int64_t n = tensor_count(*sums);
    float *to = row_inout(sums, 0, n, total);
    for (int id = 0; id < threads; id++, partial += stride)
        for (int64_t i = 0; i < n; i++)
            to[i] += partial[i];
    row_done(sums, 0, n, to);
}

#endif
