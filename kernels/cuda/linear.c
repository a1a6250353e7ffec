/* The linear layer y = x w + b and its gradients: three matrix products and a column sum.
 *
 *   y [N, O] = x [N, I] w [I, O] + b        dx = dy w'        dw += x' dy        db += sum over rows of dy */
#include "kernels/cuda/gemm.h"

void cuda_linear_forward(Ctx *c, Tensor y, Tensor x, Tensor w, Tensor b)
{
    cuda_gemm(c, OP_linear_forward, matrix_of(y, false), matrix_of(x, false), matrix_of(w, false), b, false);
}

void cuda_linear_backward(Ctx *c, Tensor dx, Tensor dw, Tensor db, Tensor dy, Tensor x, Tensor w)
{
    const OpId op = OP_linear_backward;
    if (tensor_present(dx))
        cuda_gemm(c, op, matrix_of(dx, false), matrix_of(dy, false), matrix_of(w, true), TENSOR_NONE, false);
    if (tensor_present(dw))
        cuda_gemm(c, op, matrix_of(dw, false), matrix_of(x, true), matrix_of(dy, false), TENSOR_NONE, true);
    if (tensor_present(db))
        cuda_column_sums(c, op, db, dy);
}
