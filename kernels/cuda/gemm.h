/* Matrix products by cuBLASLt. See gemm.c. */
#ifndef TALLY_KERNELS_CUDA_GEMM_H
#define TALLY_KERNELS_CUDA_GEMM_H

#include "kernels/cuda/cuda.h"
#include "kernels/matrix.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Elements from a matrix's first to its last, the gaps between its rows included. */
static inline int64_t matrix_span(Matrix m)
{
    return (m.rows - 1) * m.stride + m.columns;
}

/* How a product is made: both operands as `in`, C as `out`, which is `in` or FP32. */
typedef struct GemmWay {
    DType in, out;
} GemmWay;

static inline GemmWay gemm_way(DType C, DType A, DType B, const Target *t)
{
    DType in = A == B && (A != DTYPE_BF16 || t->bf16_gemm) ? A : DTYPE_F32;
    return (GemmWay){in, C == in ? in : DTYPE_F32};
}

/* What the library may use for itself: what NVIDIA recommends for its kernels. */
static inline size_t gemm_library_bytes(const Target *t)
{
    return (size_t)(t->capability >= 90 ? 32 : 4) << 20;
}

/* Room for a matrix as another type: FP32. None when it has that type. */
enum { GEMM_SCRATCH_ALIGNMENT = 256 };
static inline size_t matrix_scratch(Matrix m, DType as)
{
    size_t bytes = m.dtype == as ? 0 : (size_t)matrix_span(m) * sizeof(float);
    return (bytes + GEMM_SCRATCH_ALIGNMENT - 1) / GEMM_SCRATCH_ALIGNMENT * GEMM_SCRATCH_ALIGNMENT;
}

/* Bytes of scratch for matrices of these shapes and types: the library's, operands as FP32, and a row for a bias as FP32; 256
 * bytes to begin where the library wants to. */
static inline size_t cuda_gemm_workspace(Matrix C, Matrix A, Matrix B, const Target *t)
{
    GemmWay way = gemm_way(C.dtype, A.dtype, B.dtype, t);
    Matrix bias = {NULL, DTYPE_COUNT, 1, C.columns, C.columns, false};
    return GEMM_SCRATCH_ALIGNMENT + gemm_library_bytes(t) + matrix_scratch(A, way.in) + matrix_scratch(B, way.in) +
           matrix_scratch(C, way.out) + matrix_scratch(bias, way.out);
}

/* What a product does besides: nothing, or one of these. Each of any type; the others are absent. */
typedef struct GemmEpilogue {
    Tensor bias;     /* [columns of C]: is added                                                         */
    Tensor pre_gelu; /* as C, which is dense: the product is multiplied by the derivative of GELU there  */
    Tensor bias_sum; /* [columns of C]: += the column sums of B, which is dense                          */
} GemmEpilogue;

/* C = A B + bias, C = A B gelu'(pre_gelu) element by element, or C += A B, with FP32 sums; C is rounded once, or where the
 * library has no such epilogue for these types, sizes and alignments, once more by the op's own kernel. Each may have a type of
 * its own: pairs that the library doesn't multiply are widened to FP32 first, in the workspace, which must have
 * cuda_gemm_workspace() bytes, and linear_bias_workspace() for bias_sum. FP32 is multiplied in TF32 where c->target.tf32
 * says so. Failures are recorded in c->error. */
void cuda_gemm(Ctx *c, OpId op, Matrix C, Matrix A, Matrix B, GemmEpilogue e, bool accumulate);

/* The same without the library and without scratch: slow, but any shape, stride and type. In gemm_plain.cu. */
void cuda_gemm_plain(Ctx *c, OpId op, Matrix C, Matrix A, Matrix B, Tensor bias, bool accumulate);

#ifdef __cplusplus
}
#endif

#endif
