/* Scratch of the ops but attention, as a function of the shapes and the target: see "Scratch" in device.h. The CPU's is here, a
 * GPU's in kernels/cuda/cuda_workspace.c. */
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cuda/cuda.h"

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t gemm_bytes(Gemm g, const Target *t)
{
    return gemm_scratch(&g, t);
}

/* For each token and row a number of a row. */
size_t embedding_backward_workspace(int64_t N, int64_t Vp, const Target *t)
{
    if (t->kind == DEVICE_CUDA)
        return cuda_embedding_backward_workspace(N, Vp, t);
    return (size_t)(Vp ? N + Vp : 0) * sizeof(int32_t);
}

/* Gain and bias as floats, and rows for each thread. */
size_t norm_workspace(int64_t C, const Target *t)
{
    if (t->kind == DEVICE_CUDA)
        return cuda_norm_workspace(C, t);
    return ((size_t)t->threads * NORM_ROWS + 2) * (size_t)partial_width(C) * sizeof(float);
}

size_t linear_workspace(int64_t N, int64_t I, int64_t O, GemmTypes types, const Target *t)
{
    if (t->kind == DEVICE_CUDA)
        return cuda_linear_workspace(N, I, O, types, t);
    size_t y = larger(gemm_bytes(gemm_linear_y(N, I, O, false, types), t), gemm_bytes(gemm_linear_y(N, I, O, true, types), t));
    return larger(y, larger(gemm_bytes(gemm_linear_dx(N, I, O, types), t), gemm_bytes(gemm_linear_dw(N, I, O, types), t)));
}

/* For each thread a row of column sums and four rows to widen into; and the total. */
size_t linear_bias_workspace(int64_t N, int64_t O, const Target *t)
{
    if (t->kind == DEVICE_CUDA)
        return cuda_linear_bias_workspace(N, O, t);
    return ((size_t)t->threads * 5 + 1) * (size_t)partial_width(O) * sizeof(float);
}

static size_t head_chunk_workspace(int64_t rows, int64_t C, int64_t Vp, GemmTypes types, const Target *t)
{
    size_t backward = larger(gemm_bytes(gemm_head_dx(rows, C, Vp, types), t), gemm_bytes(gemm_head_dwte(rows, C, Vp, types), t));
    return larger(gemm_bytes(gemm_head_logits(rows, C, Vp, types), t), backward);
}

size_t head_workspace(int64_t N, int64_t R, int64_t C, int64_t Vp, GemmTypes types, const Target *t)
{
    if (t->kind == DEVICE_CUDA)
        return cuda_head_workspace(N, R, C, Vp, types, t);
    return larger(head_chunk_workspace(R < N ? R : N, C, Vp, types, t), head_chunk_workspace(N % R, C, Vp, types, t));
}

/* A double per piece of the range. */
size_t grad_norm_workspace(int64_t n, const Target *t)
{
    if (t->kind == DEVICE_CUDA)
        return cuda_grad_norm_workspace(n, t);
    return (size_t)((n + GRAD_NORM_PIECE - 1) / GRAD_NORM_PIECE) * sizeof(double);
}
