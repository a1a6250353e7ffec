/* What the op files of the CPU device share: their declarations, and how much of a machine a small op wakes. */
#ifndef TALLY_KERNELS_CPU_OPS_H
#define TALLY_KERNELS_CPU_OPS_H

#include "kernels/cpu/cpu.h"

/* Every row of the op table has one function a build, with the row's own signature: embedding_forward_v4, ... */
#define X(op) extern op##_function CPU(op);
TALLY_OPS(X)
#undef X

/* C = A B + bias, or C += A B: matrices of any types, a bias [columns of C] of B's type or absent. Takes gemm_workspace() bytes
 * of the workspace. */
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

#endif
