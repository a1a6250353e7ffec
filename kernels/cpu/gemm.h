/* Matrix products on the CPU: what they are (gemm.c makes those of types that the processor multiplies), and how the others are
 * cut into such (gemm_widened.c). */
#ifndef TALLY_KERNELS_CPU_GEMM_H
#define TALLY_KERNELS_CPU_GEMM_H

#include "kernels/cpu/cpu.h"

/* C [M, N] = A B + bias, or C += A B, with FP32 sums. A is [M, K] with row stride lda (or [K, M] when transposed), likewise
 * B [K, N]. bias [N], of B's type, or NULL. Each matrix has a type of its own. */
typedef struct Gemm {
    int64_t M, N, K;
    int64_t lda, ldb, ldc;
    bool transpose_a, transpose_b;
    bool bias, accumulate;
    DType type_a, type_b, type_c;
} Gemm;

static inline Gemm gemm_of(Matrix C, Matrix A, Matrix B, bool bias, bool accumulate)
{
    return (Gemm){.M = C.rows,
                  .N = C.columns,
                  .K = A.transposed ? A.rows : A.columns,
                  .lda = A.stride,
                  .ldb = B.stride,
                  .ldc = C.stride,
                  .transpose_a = A.transposed,
                  .transpose_b = B.transposed,
                  .bias = bias,
                  .accumulate = accumulate,
                  .type_a = A.dtype,
                  .type_b = B.dtype,
                  .type_c = C.dtype};
}

/* Bytes of workspace that the product of any types takes. */
size_t gemm_scratch(const Gemm *g, const Target *t);

/* By oneDNN, of types that the target multiplies as they are; see gemm.c, and gemm_widened.c for all others. scratch: that many
 * bytes, in the workspace. Failures of the library are recorded in c->error. */
bool gemm_is_native(const Gemm *g, const Target *t);
void gemm_run(Ctx *c, const Gemm *g, void *C, const void *A, const void *B, const void *bias, void *scratch);

/* ---- Blocks ----------------------------------------------------------------------------------------------------------
 *
 * Products of types that the processor does not multiply (FP16; BF16 without AVX512_BF16; mixtures) are made of FP32 products of
 * blocks: what is 16 bits wide is copied, widened, into scratch, and what is FP32 is used where it lies. This is how they are
 * cut: gemm.c says by it how much scratch there has to be, gemm_widened.c computes.
 *
 *   scratch   [A's block][B's block][C's block][bias][the library's own], a part only where the matrix is 16 bits wide
 *
 * A block of B is as large as it needs to be, for it is widened once and stays; the rows of A and C pass by in smaller blocks, to
 * take less scratch. */
enum { BLOCK_M = 1024, BLOCK_NK = 4096 };

typedef struct GemmBlocks {
    int64_t M, N, K;           /* of an inner block; those at the far edges are what is left   */
    size_t b, c, bias, floats; /* floats before B's block, C's block, the bias; and all of them */
} GemmBlocks;

/* Workspace sizes are asked for the shorter last chunk of rows, which may have none. */
static inline bool gemm_is_empty(const Gemm *g)
{
    return g->M <= 0 || g->N <= 0 || g->K <= 0;
}

static inline const void *gemm_element(const void *p, DType t, int64_t index)
{
    return (const char *)p + (size_t)index * dtype_size(t);
}

/* Floats of a block, on whole cache lines. */
static inline size_t block_floats(DType type, int64_t rows, int64_t width)
{
    return type == DTYPE_F32 ? 0 : (size_t)(rows * width + 15) / 16 * 16;
}

static inline GemmBlocks gemm_blocks(const Gemm *g)
{
    GemmBlocks s = {.M = min_of(g->M, BLOCK_M), .N = min_of(g->N, BLOCK_NK), .K = min_of(g->K, BLOCK_NK)};
    s.b = block_floats(g->type_a, s.M, s.K);
    s.c = s.b + block_floats(g->type_b, s.K, s.N);
    s.bias = s.c + block_floats(g->type_c, s.M, s.N);
    s.floats = s.bias + block_floats(g->type_b, 1, g->bias ? s.N : 0);
    return s;
}

/* The FP32 product of blocks of M x K and K x N, the first or a later one along K: copies are dense. */
static inline Gemm gemm_block(const Gemm *g, int64_t M, int64_t N, int64_t K, bool later)
{
    return (Gemm){.M = M,
                  .N = N,
                  .K = K,
                  .lda = g->type_a == DTYPE_F32 ? g->lda
                         : g->transpose_a       ? M
                                                : K,
                  .ldb = g->type_b == DTYPE_F32 ? g->ldb
                         : g->transpose_b       ? K
                                                : N,
                  .ldc = g->type_c == DTYPE_F32 ? g->ldc : N,
                  .transpose_a = g->transpose_a,
                  .transpose_b = g->transpose_b,
                  .bias = g->bias && !later,
                  .accumulate = g->accumulate || later};
}

#endif
