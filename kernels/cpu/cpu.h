/* Shared by the files of the CPU device. Every file here but gemm.c and cpu_device.c is compiled once per instruction set
 * (CPU_ISA = plain, v3, v4); CPU(name) gives each build its own symbols: gelu_forward_v4, ... Kernels are written in plain C
 * that vectorises: fixed-trip inner loops, `omp simd` reductions, vector types of VECTOR floats. */
#ifndef TALLY_KERNELS_CPU_H
#define TALLY_KERNELS_CPU_H

#include "kernels/device.h"
#include "kernels/matrix.h"

#ifndef CPU_ISA
#define CPU_ISA plain
#endif
#define CPU_PASTE_(a, b) a##_##b
#define CPU_PASTE(a, b)  CPU_PASTE_(a, b)
#define CPU(name)        CPU_PASTE(name, CPU_ISA)

/* Floats in a vector register of this build. */
#if defined(__AVX512F__)
enum { VECTOR = 16 };
#elif defined(__AVX2__)
enum { VECTOR = 8 };
#else
enum { VECTOR = 4 };
#endif

static inline int64_t min_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The rows (or blocks) first..last-1 of n that thread `id` of `threads` works on: contiguous, sizes differing by at most 1. */
static inline void cpu_share(int64_t n, int id, int threads, int64_t *first, int64_t *last)
{
    int64_t each = n / threads, rest = n % threads;
    *first = id * each + (id < rest ? id : rest);
    *last = *first + each + (id < rest);
}

/* Does this processor multiply BF16 matrices as such (AVX512_BF16 or AMX, through oneDNN)? For Target.bf16_gemm. */
bool gemm_native_bf16(void);

/* exp(x) for any x: relative error below 1.1e-7, 0 below -87.33, +Inf above 88.72, NaN for NaN. Cody-Waite reduction by ln 2
 * in two parts and 1 + r + r^2 q(r), q of degree 4 fitted at Chebyshev points; no branches, so that loops over it vectorise. */
static inline float exp_approx(float x)
{
    float clamped = x < -87.33f ? -87.33f : (x > 88.72f ? 88.72f : x);
    float shifted = clamped * 1.44269504f + 12582912.0f; /* 1.5 * 2^23: rounds to the nearest integer */
    union {
        float f;
        int32_t i;
    } n = {shifted}, scale;
    float k = shifted - 12582912.0f;
    float r = clamped - k * 0.693359375f + k * 2.12194440e-4f;
    float p = 1.39262135e-03f;
    p = p * r + 8.36320297e-03f;
    p = p * r + 4.16665544e-02f;
    p = p * r + 1.66665768e-01f;
    p = p * r + 5.00000000e-01f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    /* 2^k in two factors, since 2^128 is not a float though e^88.7 is one */
    int32_t e = n.i - 0x4B400000, half = e >> 1;
    scale.i = (int32_t)((uint32_t)(half + 127) << 23);
    p *= scale.f;
    scale.i = (int32_t)((uint32_t)(e - half + 127) << 23);
    p *= scale.f;
    p = x < -87.33f ? 0.0f : p;
    p = x > 88.72f ? __builtin_inff() : p;
    return x != x ? x : p;
}

/* ---- The ops ------------------------------------------------------------------------------------------------------- */

/* Every row of the op table has one function a build, with the row's own signature: embedding_forward_v4, ... */
#define X(op) extern op##_function CPU(op);
TALLY_OPS(X)
#undef X

/* C = A B + bias, or C += A B: matrices of any types, a bias [columns of C] of B's type or absent. In gemm_widened.c; takes
 * gemm_scratch() bytes of the workspace (gemm.h). */
void CPU(gemm)(Ctx *c, Matrix C, Matrix A, Matrix B, Tensor bias, bool accumulate);

/* Compiled once, in cpu_device.c. */
void *cpu_memory_take(size_t bytes, const char *what, Error *e);
void cpu_memory_give(void *p, size_t bytes);
void cpu_synchronize(Ctx *c);
void *cpu_host_take(size_t bytes, const char *what, Error *e);
void cpu_host_give(void *p);

/* Threads for an op over n elements: waking the others takes some microseconds, in which one does about this much. */
enum { ELEMENTS_WORTH_THREADS = 16384 };
static inline int cpu_threads(const Ctx *c, int64_t n)
{
    return n < ELEMENTS_WORTH_THREADS ? 1 : c->target.threads;
}

/* Partial sums: one row of floats per thread, each on cache lines of its own. Floats of such a row of `width` sums. */
static inline int64_t partial_width(int64_t width)
{
    return (width + 15) / 16 * 16;
}

/* Rows of scratch that each thread has in norm.c: of the backward dw, db, g, dskip, dy, x, dx, dbranch. */
enum { NORM_ROWS = 8 };

/* The op table of one build; the selection is in cpu_device.c. */
extern const Device cpu_table_plain, cpu_table_v3, cpu_table_v4;

#endif
