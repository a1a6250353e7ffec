/* The linear layer y = x w + b and its gradients: three matrix products, the second with the derivative of GELU where x was made
 * by it, the third with a column sum.
 *
 *   y [N, O] = x [N, I] w [I, O] + b        dx = dy w'        dw += x' dy        db += sum over rows of dy */
#include "kernels/cuda/gemm.h"

void cuda_linear_forward(Ctx *c, Tensor y, Tensor x, Tensor w, Tensor b)
{
    cuda_gemm(c, OP_linear_forward, matrix_of(y, false), matrix_of(x, false), matrix_of(w, false), (GemmEpilogue){.bias = b},
              false);
}

/* The weight's gradient reads dy, and sums its columns by the way. */
static void gradients(Ctx *c, OpId op, Tensor dx, Tensor dw, Tensor db, Tensor dy, Tensor x, Tensor w, Tensor pre_gelu)
{
    if (tensor_present(dx))
        cuda_gemm(c, op, matrix_of(dx, false), matrix_of(dy, false), matrix_of(w, true), (GemmEpilogue){.pre_gelu = pre_gelu},
                  false);
    if (tensor_present(dw))
        cuda_gemm(c, op, matrix_of(dw, false), matrix_of(x, true), matrix_of(dy, false), (GemmEpilogue){.bias_sum = db}, true);
    else if (tensor_present(db))
        cuda_column_sums(c, op, db, dy);
}

void cuda_linear_backward(Ctx *c, Tensor dx, Tensor dw, Tensor db, Tensor dy, Tensor x, Tensor w)
{
    gradients(c, OP_linear_backward, dx, dw, db, dy, x, w, TENSOR_NONE);
}

void cuda_linear_gelu_backward(Ctx *c, Tensor dpre, Tensor dw, Tensor db, Tensor dy, Tensor x, Tensor w, Tensor pre)
{
    gradients(c, OP_linear_gelu_backward, dpre, dw, db, dy, x, w, pre);
}
