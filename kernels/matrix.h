/* A matrix as a factor or the result of a product: what kernels/cpu/gemm_widened.c and kernels/cuda/gemm.c are given. */
#ifndef TALLY_KERNELS_MATRIX_H
#define TALLY_KERNELS_MATRIX_H

#include "kernels/tensor.h"

/* In row-major memory: rows are `stride` elements apart. Transposed, it is used as its transpose. */
typedef struct Matrix {
    void *data;
    DType dtype;
    int64_t rows, columns, stride; /* as it lies in memory */
    bool transposed;
} Matrix;

/* A dense 2-D tensor as a matrix. */
static inline Matrix matrix_of(Tensor t, bool transposed)
{
    return (Matrix){t.data, t.dtype, t.shape[0], t.shape[1], t.shape[1], transposed};
}

/* The gradient of logits [rows, Vp], which is written over them in the type of the activations: its rows stay as far apart, in
 * elements of that type, as the FP32 ones are. */
static inline Matrix matrix_of_dlogits(Tensor logits, DType act, bool transposed)
{
    Matrix m = matrix_of(logits, transposed);
    m.dtype = act;
    m.stride *= (int64_t)(sizeof(float) / dtype_size(act));
    return m;
}

#endif
