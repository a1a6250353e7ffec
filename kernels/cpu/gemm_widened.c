/* Any matrix product: as it is where the processor multiplies its types (gemm.c), else in FP32, block by block (gemm.h).
 * Widening is exact and sums are FP32, so the result is rounded once, to C's type. The blocks' rows are shared by the threads. */
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/rows.h"

/* The FP32 numbers of a block whose rows are `ld` apart: where they lie when they are FP32, else their copy in `room`, dense. */
static float *block_in(Ctx *c, float *room, const void *block, DType type, int64_t ld, int64_t rows, int64_t width)
{
    if (type == DTYPE_F32)
        return (float *)block;
#pragma omp parallel for num_threads(cpu_threads(c, rows *width)) schedule(static)
    for (int64_t r = 0; r < rows; r++)
        widen(room + r * width, gemm_element(block, type, r * ld), type, width);
    return room;
}

/* Rounds a copy back. */
static void block_out(Ctx *c, const float *room, void *block, DType type, int64_t ld, int64_t rows, int64_t width)
{
    if (type == DTYPE_F32)
        return;
#pragma omp parallel for num_threads(cpu_threads(c, rows *width)) schedule(static)
    for (int64_t r = 0; r < rows; r++)
        narrow((void *)gemm_element(block, type, r * ld), room + r * width, type, width);
}

/* The same of a factor, [rows, width] from (row, column) on, or its transpose in memory. */
static float *factor_in(Ctx *c, float *room, const void *matrix, DType type, int64_t ld, bool transposed, int64_t row,
                        int64_t column, int64_t rows, int64_t width)
{
    const void *block = gemm_element(matrix, type, transposed ? column * ld + row : row * ld + column);
    return block_in(c, room, block, type, ld, transposed ? width : rows, transposed ? rows : width);
}

/* C's block at (m, n), summed over all of K. B's block is still in scratch from the one above when one reaches over all of K. */
static void block_run(Ctx *c, const Gemm *g, const GemmBlocks *s, void *C, const void *A, const void *B, const void *bias,
                      int64_t m, int64_t n)
{
    int64_t M = min_of(s->M, g->M - m), N = min_of(s->N, g->N - n);
    float *a = c->workspace, *b = a + s->b, *sum = a + s->c, *wide_bias = a + s->bias;
    void *corner = (void *)gemm_element(C, g->type_c, m * g->ldc + n);
    if (g->accumulate)
        block_in(c, sum, corner, g->type_c, g->ldc, M, N);
    if (g->bias)
        wide_bias = block_in(c, wide_bias, gemm_element(bias, g->type_b, n), g->type_b, N, 1, N);
    if (g->type_c == DTYPE_F32)
        sum = corner;
    for (int64_t k = 0; k < g->K; k += s->K) {
        Gemm piece = gemm_block(g, M, N, min_of(s->K, g->K - k), k > 0);
        bool there = m > 0 && s->K == g->K && g->type_b != DTYPE_F32;
        const float *left = factor_in(c, a, A, g->type_a, g->lda, g->transpose_a, m, k, M, piece.K);
        const float *right = there ? b : factor_in(c, b, B, g->type_b, g->ldb, g->transpose_b, k, n, piece.K, N);
        gemm_run(c, &piece, sum, left, right, wide_bias, a + s->floats);
    }
    block_out(c, sum, corner, g->type_c, g->ldc, M, N);
}

void CPU(gemm)(Ctx *c, Matrix C, Matrix A, Matrix B, Tensor bias, bool accumulate)
{
    Gemm g = gemm_of(C, A, B, tensor_present(bias), accumulate);
    GemmBlocks s = gemm_blocks(&g);
    if (gemm_is_empty(&g))
        return;
    if (gemm_is_native(&g, &c->target))
        gemm_run(c, &g, C.data, A.data, B.data, bias.data, c->workspace);
    else if (c->workspace_bytes < s.floats * sizeof(float))
        error_set(c->error, "matrix product %lld x %lld x %lld: needs %zu bytes of workspace to widen in, the plan gave %zu",
                  (long long)g.M, (long long)g.N, (long long)g.K, s.floats * sizeof(float), c->workspace_bytes);
    else
        for (int64_t n = 0; n < g.N; n += s.N)
            for (int64_t m = 0; m < g.M; m += s.M)
                block_run(c, &g, &s, C.data, A.data, B.data, bias.data, m, n);
}
