/* Scratch of the GPU's ops but attention: see "Scratch" in kernels/device.h. */
#include "kernels/cuda/gemm.h"

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* The rows sorted by token, in pieces and as a whole. */
size_t cuda_embedding_backward_workspace(int64_t N, int64_t Vp, const Target *t)
{
    int64_t pieces = (N + CUDA_EMBEDDING_PIECE - 1) / CUDA_EMBEDDING_PIECE;
    (void)t;
    return (size_t)(Vp ? pieces * CUDA_EMBEDDING_PIECE + N : 0) * sizeof(uint64_t);
}

/* Each group's sums for dw and for db, for as many rows as there may be. */
size_t cuda_norm_workspace(int64_t C, const Target *t)
{
    return (size_t)(cuda_column_groups(INT32_MAX, t) * 2 * C) * sizeof(float);
}

size_t cuda_linear_bias_workspace(int64_t N, int64_t O, const Target *t)
{
    return (size_t)(cuda_column_groups(N, t) * O) * sizeof(float);
}

/* A double per piece of the range. */
size_t cuda_grad_norm_workspace(int64_t n, const Target *t)
{
    (void)t;
    return (size_t)((n + CUDA_GRAD_NORM_PIECE - 1) / CUDA_GRAD_NORM_PIECE) * sizeof(double);
}

/* The library's, operands as FP32, and a row for a bias as FP32; 256 bytes to begin where the library wants to. */
size_t cuda_gemm_workspace(Matrix C, Matrix A, Matrix B, const Target *t)
{
    GemmWay way = gemm_way(C.dtype, A.dtype, B.dtype, t);
    Matrix bias = {.dtype = DTYPE_COUNT, .rows = 1, .columns = C.columns};
    return GEMM_SCRATCH_ALIGNMENT + gemm_library_bytes(t) + matrix_scratch(A, way.in) + matrix_scratch(B, way.in) +
           matrix_scratch(C, way.out) + matrix_scratch(bias, way.out);
}

static Matrix dense(DType dtype, int64_t rows, int64_t columns)
{
    return (Matrix){.dtype = dtype, .rows = rows, .columns = columns, .stride = columns};
}

size_t cuda_linear_workspace(int64_t N, int64_t I, int64_t O, GemmTypes types, const Target *t)
{
    Matrix x = dense(types.act, N, I), y = dense(types.act, N, O), w = dense(types.param, I, O), dw = dense(types.grad, I, O);
    size_t backward = larger(cuda_gemm_workspace(x, y, w, t), cuda_gemm_workspace(dw, x, y, t));
    return larger(cuda_gemm_workspace(y, x, w, t), backward);
}

static size_t chunk_workspace(int64_t rows, int64_t C, int64_t Vp, GemmTypes types, const Target *t)
{
    Matrix x = dense(types.act, rows, C), wte = dense(types.param, Vp, C), dwte = dense(types.grad, Vp, C);
    Matrix logits = dense(DTYPE_F32, rows, Vp), dlogits = dense(types.act, rows, Vp);
    dlogits.stride = cuda_dlogits_stride(Vp, types.act);
    size_t backward = larger(cuda_gemm_workspace(x, dlogits, wte, t), cuda_gemm_workspace(dwte, dlogits, x, t));
    return larger(cuda_gemm_workspace(logits, x, wte, t), backward);
}

/* A shorter last chunk needs no more than a whole one. */
size_t cuda_head_workspace(int64_t N, int64_t R, int64_t C, int64_t Vp, GemmTypes types, const Target *t)
{
    return chunk_workspace(R < N ? R : N, C, Vp, types, t);
}
