/* The linear layer y = x w + b and its gradients: three matrix products and a column sum.
 *
 *   y [N, O] = x [N, I] w [I, O] + b        dx = dy w'        dw += x' dy        db += sum over rows of dy */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/rows.h"

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

/* Rows first..last-1 of x, widened four at a time through `wide` [4][width] where they are not FP32. */
static void rows_add_any(float *sums, const Tensor *x, int64_t first, int64_t last, int64_t width, float *wide)
{
    if (x->dtype == DTYPE_F32) {
        rows_add(sums, x->data, first, last, width);
        return;
    }
    for (int64_t r = first; r < last; r += 4) {
        int64_t rows = min_of(last - r, 4);
        rows_add(sums, row_in(x, r * width, rows * width, wide), 0, rows, width);
    }
}

/* db [width] += column sums of x [rows, width]. Each thread sums its rows; the threads' sums are added in their order. */
static void column_sums(Ctx *c, Tensor db, Tensor x)
{
    int64_t rows = x.shape[0], width = x.shape[1], stride = partial_width(width);
    int threads = cpu_threads(c, rows * width);
    float *partial = c->workspace, *total = partial + threads * 5 * stride; /* partial [threads][1 + 4][stride], total [stride] */
#pragma omp parallel num_threads(threads)
    {
        int id = omp_get_thread_num();
        int64_t first, last;
        cpu_share(rows, id, threads, &first, &last);
        float *mine = partial + id * 5 * stride;
        memset(mine, 0, (size_t)width * sizeof(float));
        rows_add_any(mine, &x, first, last, width, mine + stride);
    }
    partials_add(&db, partial, 5 * stride, threads, total);
}

void CPU(linear_forward)(Ctx *c, Tensor y, Tensor x, Tensor w, Tensor b)
{
    CPU(gemm)(c, matrix_of(y, false), matrix_of(x, false), matrix_of(w, false), b, false);
}

void CPU(linear_backward)(Ctx *c, Tensor dx, Tensor dw, Tensor db, Tensor dy, Tensor x, Tensor w)
{
    if (tensor_present(dx))
        CPU(gemm)(c, matrix_of(dx, false), matrix_of(dy, false), matrix_of(w, true), TENSOR_NONE, false);
    if (tensor_present(dw))
        CPU(gemm)(c, matrix_of(dw, false), matrix_of(x, true), matrix_of(dy, false), TENSOR_NONE, true);
    if (tensor_present(db) && workspace_check(c, OP_linear_backward, linear_bias_workspace(x.shape[0], w.shape[1], &c->target)))
        column_sums(c, db, dy);
}

void CPU(linear_gelu_backward)(Ctx *c, Tensor dpre, Tensor dw, Tensor db, Tensor dy, Tensor x, Tensor w, Tensor pre)
{
    CPU(linear_backward)(c, dpre, dw, db, dy, x, w);
    CPU(gelu_backward)(c, dpre, dpre, pre);
}
