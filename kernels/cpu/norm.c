/* Layer normalisation, alone and fused with the residual addition before it.
 *
 *   y = xhat * w + b,   xhat = (x - mean) rstd,   rstd = 1 / sqrt(var + 1e-5)
 *
 * in two passes over a row that stays in cache: the mean, then the mean square of the deviations; E[x^2] - E[x]^2 would
 * cancel for rows far from 0. The mean is summed in double, so that a constant row has deviations of exactly 0. Backward, with g
 * = dy w:
 *
 *   dx = rstd (g - mean(g) - xhat mean(g xhat)) + dskip,   dw += sum over rows of dy xhat,   db += sum over rows of dy */
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/dropout.h"

#include <math.h>
#include <omp.h>
#include <string.h>

#define NORM_EPS 1e-5f

/* y = norm(x) of one row; stats = (mean, rstd). */
static void row_norm(float *restrict y, float stats[2], const float *restrict x, const float *restrict w, const float *restrict b,
                     int64_t C)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < C; i++)
        sum += x[i];
    float mean = (float)(sum / (double)C), squares = 0;
#pragma omp simd reduction(+ : squares)
    for (int64_t i = 0; i < C; i++)
        squares += (x[i] - mean) * (x[i] - mean);
    float rstd = 1.0f / sqrtf(squares / (float)C + NORM_EPS);
    if (b)
#pragma omp simd
        for (int64_t i = 0; i < C; i++)
            y[i] = (x[i] - mean) * rstd * w[i] + b[i];
    else
#pragma omp simd
        for (int64_t i = 0; i < C; i++)
            y[i] = (x[i] - mean) * rstd * w[i];
    stats[0] = mean;
    stats[1] = rstd;
}

void CPU(norm_forward)(Ctx *c, Tensor y, Tensor stats, Tensor x, Tensor w, Tensor b)
{
    int64_t N = x.shape[0], C = x.shape[1];
    float *to = y.data, *stat = stats.data;
    const float *from = x.data;
#pragma omp parallel for num_threads(cpu_threads(c, N *C)) schedule(static)
    for (int64_t n = 0; n < N; n++)
        row_norm(to + n * C, stat + 2 * n, from + n * C, w.data, b.data, C);
}

/* out = in + dropout(branch) of one row, whose first element is `index` of the mask's stream; y is room for a row. */
static void row_residual(float *out, const float *in, const float *branch, float *y, int64_t C, const DropoutMask *mask,
                         int64_t index)
{
    if (mask->active) {
        dropout_apply(y, branch, C, mask, index);
        branch = y;
    }
#pragma omp simd
    for (int64_t i = 0; i < C; i++)
        out[i] = in[i] + branch[i];
}

void CPU(residual_norm_forward)(Ctx *c, Tensor x_out, Tensor y, Tensor stats, Tensor x_in, Tensor branch, Tensor w, Tensor b,
                                Dropout drop)
{
    int64_t N = x_in.shape[0], C = x_in.shape[1];
    float *out = x_out.data, *to = y.data, *stat = stats.data;
    const float *in = x_in.data, *add = branch.data;
    DropoutMask mask = dropout_mask(c, drop);
#pragma omp parallel for num_threads(cpu_threads(c, N *C)) schedule(static)
    for (int64_t n = 0; n < N; n++) {
        int64_t at = n * C;
        row_residual(out + at, in + at, add + at, to + at, C, &mask, at);
        row_norm(to + at, stat + 2 * n, out + at, w.data, b.data, C);
    }
}

/* One row of the backward. sums [3][stride] are a thread's own: its partial dw and db, and room for the row's g, which is kept
 * rather than made twice so that both uses see the same rounding: g - mean(g) is 0 where all g are equal. */
static void row_norm_backward(float *dx, float *restrict sums, int64_t stride, const float *dskip, const float *dy,
                              const float *x, const float stats[2], const float *w, int64_t C)
{
    float mean = stats[0], rstd = stats[1], sum_g = 0, sum_gx = 0;
    float *dw = sums, *db = sums + stride, *g = sums + 2 * stride;
#pragma omp simd reduction(+ : sum_g, sum_gx)
    for (int64_t i = 0; i < C; i++) {
        float xhat = (x[i] - mean) * rstd;
        g[i] = dy[i] * w[i];
        sum_g += g[i];
        sum_gx += g[i] * xhat;
        dw[i] += dy[i] * xhat;
        db[i] += dy[i];
    }
    float mean_g = sum_g / (float)C, mean_gx = sum_gx / (float)C;
#pragma omp simd
    for (int64_t i = 0; i < C; i++) {
        float d = rstd * (g[i] - mean_g - (x[i] - mean) * rstd * mean_gx);
        dx[i] = dskip ? dskip[i] + d : d;
    }
}

void CPU(residual_norm_backward)(Ctx *c, Tensor dx, Tensor dbranch, Tensor dw, Tensor db, Tensor dskip, Tensor dy, Tensor x,
                                 Tensor stats, Tensor w, Dropout drop)
{
    int64_t N = x.shape[0], C = x.shape[1], stride = partial_width(C);
    int threads = cpu_threads(c, N * C);
    float *partial = c->workspace, *to = dx.data, *branch = dbranch.data; /* partial [threads][3][stride] */
    const float *skip = dskip.data, *dout = dy.data, *in = x.data, *stat = stats.data;
    DropoutMask mask = dropout_mask(c, drop);
    if (!workspace_check(c, OP_residual_norm_backward, norm_backward_workspace(N, C, &c->target)))
        return;
#pragma omp parallel num_threads(threads)
    {
        int id = omp_get_thread_num();
        int64_t first, last;
        cpu_share(N, id, threads, &first, &last);
        float *mine = partial + id * 3 * stride;
        memset(mine, 0, (size_t)(3 * stride) * sizeof(float));
        for (int64_t n = first; n < last; n++) {
            int64_t at = n * C;
            row_norm_backward(to + at, mine, stride, skip ? skip + at : NULL, dout + at, in + at, stat + 2 * n, w.data, C);
            if (branch && mask.active)
                dropout_apply(branch + at, to + at, C, &mask, at);
            else if (branch)
                memcpy(branch + at, to + at, (size_t)C * sizeof(float));
        }
    }
    float *sums[2] = {dw.data, db.data};
    for (int s = 0; s < 2; s++)
        for (int id = 0; sums[s] && id < threads; id++)
            for (int64_t i = 0; i < C; i++)
                sums[s][i] += partial[(3 * id + s) * stride + i];
}
