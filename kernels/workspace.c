/* Scratch of the ops, as a function of the shapes and the target: see "Scratch" in device.h. */
#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cuda/gemm.h"

bool workspace_check(Ctx *c, OpId op, size_t need)
{
    return c->workspace_bytes >= need || error_set(c->error, "%s (layer %d): needs %zu bytes of workspace, the plan gave %zu",
                                                   op_name(op), c->layer, need, c->workspace_bytes);
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static bool on_gpu(const Target *t)
{
    return t->kind == DEVICE_CUDA;
}

/* On a GPU the rows sorted by token, in pieces and as a whole; on the CPU for each token and row a number of a row. */
size_t embedding_backward_workspace(int64_t N, int64_t Vp, const Target *t)
{
    if (Vp == 0)
        return 0;
    int64_t pieces = (N + CUDA_EMBEDDING_PIECE - 1) / CUDA_EMBEDDING_PIECE;
    return on_gpu(t) ? (size_t)(pieces * CUDA_EMBEDDING_PIECE + N) * sizeof(uint64_t) : (size_t)(N + Vp) * sizeof(int32_t);
}

/* On a GPU each group's sums for dw and for db, for as many rows as there may be; on the CPU gain and bias as floats, and rows
 * for each thread. */
size_t norm_workspace(int64_t C, const Target *t)
{
    return (on_gpu(t) ? (size_t)(cuda_column_groups(INT32_MAX, t) * 2 * C)
                      : ((size_t)t->threads * NORM_ROWS + 2) * (size_t)partial_width(C)) *
           sizeof(float);
}

/* Of C = A B + bias or C += A B; of the tensors only shapes and types are looked at. */
static size_t product(Matrix C, Matrix A, Matrix B, bool bias, bool accumulate, const Target *t)
{
    Gemm g = gemm_of(C, A, B, bias, accumulate);
    return on_gpu(t) ? cuda_gemm_workspace(C, A, B, t) : gemm_scratch(&g, t);
}

size_t linear_workspace(int64_t N, int64_t I, int64_t O, GemmTypes types, const Target *t)
{
    Tensor x = tensor_2d(NULL, types.act, N, I), y = tensor_2d(NULL, types.act, N, O);
    Tensor w = tensor_2d(NULL, types.param, I, O), dw = tensor_2d(NULL, types.grad, I, O);
    size_t forward = larger(product(matrix_of(y, false), matrix_of(x, false), matrix_of(w, false), false, false, t),
                            product(matrix_of(y, false), matrix_of(x, false), matrix_of(w, false), true, false, t));
    size_t backward = larger(product(matrix_of(x, false), matrix_of(y, false), matrix_of(w, true), false, false, t),
                             product(matrix_of(dw, false), matrix_of(x, true), matrix_of(y, false), false, true, t));
    return larger(forward, backward);
}

/* On a GPU each group's sums; on the CPU for each thread a row of column sums and four rows to widen into; and the total. */
size_t linear_bias_workspace(int64_t N, int64_t O, const Target *t)
{
    return (on_gpu(t) ? (size_t)(cuda_column_groups(N, t) * O) : ((size_t)t->threads * 5 + 1) * (size_t)partial_width(O)) *
           sizeof(float);
}

static size_t head_chunk_workspace(int64_t rows, int64_t C, int64_t Vp, GemmTypes types, const Target *t)
{
    Tensor x = tensor_2d(NULL, types.act, rows, C), logits = tensor_2d(NULL, DTYPE_F32, rows, Vp);
    Tensor wte = tensor_2d(NULL, types.param, Vp, C), dwte = tensor_2d(NULL, types.grad, Vp, C);
    Matrix dlogits = matrix_of_dlogits(logits, types.act, false), transposed = matrix_of_dlogits(logits, types.act, true);
    size_t backward = larger(product(matrix_of(x, false), dlogits, matrix_of(wte, false), false, false, t),
                             product(matrix_of(dwte, false), transposed, matrix_of(x, false), false, true, t));
    return larger(product(matrix_of(logits, false), matrix_of(x, false), matrix_of(wte, true), false, false, t), backward);
}

size_t head_workspace(int64_t N, int64_t R, int64_t C, int64_t Vp, GemmTypes types, const Target *t)
{
    size_t whole = head_chunk_workspace(R < N ? R : N, C, Vp, types, t);
    return N % R ? larger(whole, head_chunk_workspace(N % R, C, Vp, types, t)) : whole;
}

/* A double per piece of the range. */
size_t grad_norm_workspace(int64_t n)
{
    return (size_t)((n + GRAD_NORM_PIECE - 1) / GRAD_NORM_PIECE) * sizeof(double);
}

/* Of attention the CPU's tiles are of one size for every instruction set, so that a plan does not depend on the processor. */
size_t attention_workspace(AttentionShape s, const Target *t)
{
    return on_gpu(t) ? 0 : (size_t)t->threads * (size_t)forward_floats(s.T, s.hd) * sizeof(float);
}

/* On a GPU two numbers for each query of each head. */
size_t attention_backward_workspace(AttentionShape s, const Target *t)
{
    return (size_t)(on_gpu(t) ? 2 * s.B * s.NH * s.T : t->threads * backward_floats(s.T, s.hd)) * sizeof(float);
}

size_t attention_cached_workspace(AttentionShape s, const Target *t)
{
    return on_gpu(t) ? 0 : (size_t)(t->threads * 3 * partial_width(s.hd)) * sizeof(float);
}
