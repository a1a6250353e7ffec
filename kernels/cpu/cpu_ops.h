/* What the op files of the CPU device share: their declarations, how much of a machine a small op wakes, and the check of
 * the scratch that the plan has set aside. */
#ifndef TALLY_KERNELS_CPU_OPS_H
#define TALLY_KERNELS_CPU_OPS_H

#include "kernels/cpu/cpu.h"

/* Every row of the op table has one function a build, with the row's own signature: embedding_forward_v4, ... */
#define X(op) extern __typeof__(*((Device *)0)->op) CPU(op);
TALLY_OPS(X)
#undef X

/* The product of matrices of any types; takes gemm_scratch() bytes of the workspace. */
void CPU(gemm)(Ctx *c, const Gemm *g, void *C, const void *A, const void *B, const void *bias);

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

/* Is the workspace at least `need` bytes? Records an error when the plan gave less. */
static inline bool workspace_check(Ctx *c, OpId op, size_t need)
{
    return c->workspace_bytes >= need || error_set(c->error, "%s (layer %d): needs %zu bytes of workspace, the plan gave %zu",
                                                   op_name(op), c->layer, need, c->workspace_bytes);
}

/* Partial sums: one row of floats per thread, each on cache lines of its own. Floats of such a row of `width` sums. */
static inline int64_t partial_width(int64_t width)
{
    return (width + 15) / 16 * 16;
}

/* Rows of scratch that each thread has in norm.c: of the backward dw, db, g, dskip, dy, x, dx, dbranch. */
enum { NORM_ROWS = 8 };

/* Elements a partial sum of grad_norm covers: fixed, so that the sum does not depend on the threads. */
enum { GRAD_NORM_PIECE = 65536 };

/* ---- The matrix products of linear.c and head_loss.c, by what they compute; kernels/workspace.c sizes the same ones -- */

/* Dense operands: [M, K] or, transposed, [K, M] in memory; likewise [K, N]. */
static inline Gemm gemm_dense(int64_t M, int64_t N, int64_t K, bool transpose_a, bool transpose_b)
{
    return (Gemm){.M = M,
                  .N = N,
                  .K = K,
                  .lda = transpose_a ? M : K,
                  .ldb = transpose_b ? K : N,
                  .ldc = N,
                  .transpose_a = transpose_a,
                  .transpose_b = transpose_b};
}

/* y [N, O] = x [N, I] w [I, O] (+ b) */
static inline Gemm gemm_linear_y(int64_t N, int64_t I, int64_t O, bool bias, GemmTypes t)
{
    Gemm g = gemm_dense(N, O, I, false, false);
    g.bias = bias;
    g.type_a = g.type_c = t.act;
    g.type_b = t.param;
    return g;
}

/* dx [N, I] = dy [N, O] w' */
static inline Gemm gemm_linear_dx(int64_t N, int64_t I, int64_t O, GemmTypes t)
{
    Gemm g = gemm_dense(N, I, O, false, true);
    g.type_a = g.type_c = t.act;
    g.type_b = t.param;
    return g;
}

/* dw [I, O] += x' dy */
static inline Gemm gemm_linear_dw(int64_t N, int64_t I, int64_t O, GemmTypes t)
{
    Gemm g = gemm_dense(I, O, N, true, false);
    g.accumulate = true;
    g.type_a = g.type_b = t.act;
    g.type_c = t.grad;
    return g;
}

/* logits [R, Vp] = x [R, C] wte', FP32 */
static inline Gemm gemm_head_logits(int64_t R, int64_t C, int64_t Vp, GemmTypes t)
{
    Gemm g = gemm_dense(R, Vp, C, false, true);
    g.type_a = t.act;
    g.type_b = t.param;
    return g;
}

/* The gradient of a row of logits is written over it, in the type of the activations: its rows stay as far apart as the FP32
 * ones. */
static inline int64_t head_gradient_stride(int64_t Vp, GemmTypes t)
{
    return Vp * (int64_t)(sizeof(float) / dtype_size(t.act));
}

/* dx [R, C] = dlogits [R, Vp] wte */
static inline Gemm gemm_head_dx(int64_t R, int64_t C, int64_t Vp, GemmTypes t)
{
    Gemm g = gemm_dense(R, C, Vp, false, false);
    g.lda = head_gradient_stride(Vp, t);
    g.type_a = g.type_c = t.act;
    g.type_b = t.param;
    return g;
}

/* dwte [Vp, C] += dlogits' x */
static inline Gemm gemm_head_dwte(int64_t R, int64_t C, int64_t Vp, GemmTypes t)
{
    Gemm g = gemm_dense(Vp, C, R, true, false);
    g.lda = head_gradient_stride(Vp, t);
    g.accumulate = true;
    g.type_a = g.type_b = t.act;
    g.type_c = t.grad;
    return g;
}

#endif
