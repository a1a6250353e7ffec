/* The linear layer y = x w + b and its gradients: three matrix products and a column sum.
 *
 *   y [N, O] = x [N, I] w [I, O] + b        dx = dy w'        dw += x' dy        db += sum over rows of dy */
#include "kernels/cpu/cpu_ops.h"

#include <omp.h>
#include <string.h>

/* Adds rows first..last-1 of x [.., width] to sums [width]. Four rows a pass: the sums are loaded and stored once for the four.
 */
static void rows_add(float *sums, const float *x, int64_t first, int64_t last, int64_t width)
{
    int64_t r = first;
    for (; r + 4 <= last; r += 4) {
        const float *a = x + r * width, *b = a + width, *d = b + width, *e = d + width;
#pragma omp simd
        for (int64_t i = 0; i < width; i++)
            sums[i] += (a[i] + b[i]) + (d[i] + e[i]);
    }
    for (; r < last; r++) {
        const float *a = x + r * width;
#pragma omp simd
        for (int64_t i = 0; i < width; i++)
            sums[i] += a[i];
    }
}

/* sums [width] += column sums of x [rows, width]. Each thread sums its rows; the threads' sums are added in their order.
 * scratch: linear_bias_workspace(rows, width) bytes. */
void CPU(column_sums)(Ctx *c, float *sums, const float *x, int64_t rows, int64_t width, void *scratch)
{
    int threads = cpu_threads(c, rows * width);
    if (threads == 1) {
        rows_add(sums, x, 0, rows, width);
        return;
    }
    float *partial = scratch;
    int64_t stride = partial_width(width);
#pragma omp parallel num_threads(threads)
    {
        int id = omp_get_thread_num();
        int64_t first, last;
        cpu_share(rows, id, threads, &first, &last);
        memset(partial + id * stride, 0, (size_t)width * sizeof(float));
        rows_add(partial + id * stride, x, first, last, width);
    }
    for (int id = 0; id < threads; id++)
        rows_add(sums, partial + id * stride, 0, 1, width);
}

void CPU(linear_forward)(Ctx *c, Tensor y, Tensor x, Tensor w, Tensor b)
{
    Gemm g = gemm_linear_y(x.shape[0], w.shape[0], w.shape[1], tensor_present(b));
    gemm_run(c, &g, y.data, x.data, w.data, b.data, c->workspace);
}

void CPU(linear_backward)(Ctx *c, Tensor dx, Tensor dw, Tensor db, Tensor dy, Tensor x, Tensor w)
{
    int64_t N = x.shape[0], I = w.shape[0], O = w.shape[1];
    if (tensor_present(dx)) {
        Gemm g = gemm_linear_dx(N, I, O);
        gemm_run(c, &g, dx.data, dy.data, w.data, NULL, c->workspace);
    }
    if (tensor_present(dw)) {
        Gemm g = gemm_linear_dw(N, I, O);
        gemm_run(c, &g, dw.data, x.data, dy.data, NULL, c->workspace);
    }
    if (tensor_present(db) && workspace_check(c, OP_linear_backward, linear_bias_workspace(N, O, &c->target)))
        CPU(column_sums)(c, db.data, dy.data, N, O, c->workspace);
}
