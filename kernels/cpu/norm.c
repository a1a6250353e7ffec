/* Layer normalisation, alone and fused with the residual addition before it.
 *
 *   y = xhat * w + b,   xhat = (x - mean) rstd,   rstd = 1 / sqrt(var + 1e-5)
 *
 * in two passes over a row that stays in cache: the mean, then the mean square of the deviations; E[x^2] - E[x]^2 would
 * cancel for rows far from 0. The mean is summed in double, so that a constant row has deviations of exactly 0. Backward, with g
 * = dy w:
 *
 *   dx = rstd (g - mean(g) - xhat mean(g xhat)) + dskip,   dw += sum over rows of dy xhat,   db += sum over rows of dy */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/dropout.h"
#include "kernels/cpu/rows.h"

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

/* Rows of scratch: gain and bias as floats, shared; and each thread's own. */
typedef struct NormScratch {
    const float *w, *b; /* [C]; b NULL: none                        */
    float *rows;        /* [threads][NORM_ROWS][stride]             */
    int64_t stride;
} NormScratch;

static bool scratch_make(Ctx *c, OpId op, NormScratch *s, Tensor w, Tensor b, int64_t C)
{
    float *at = c->workspace;
    if (!workspace_check(c, op, norm_workspace(C, &c->target)))
        return false;
    s->stride = partial_width(C);
    s->w = row_in(&w, 0, C, at);
    s->b = tensor_present(b) ? row_in(&b, 0, C, at + s->stride) : NULL;
    s->rows = at + 2 * s->stride;
    return true;
}

static float *scratch_row(const NormScratch *s, int row)
{
    return s->rows + (omp_get_thread_num() * NORM_ROWS + row) * s->stride;
}

void CPU(norm_forward)(Ctx *c, Tensor y, Tensor stats, Tensor x, Tensor w, Tensor b)
{
    int64_t N = x.shape[0], C = x.shape[1];
    float *stat = stats.data;
    NormScratch s;
    if (!scratch_make(c, OP_norm_forward, &s, w, b, C))
        return;
#pragma omp parallel for num_threads(cpu_threads(c, N *C)) schedule(static)
    for (int64_t n = 0; n < N; n++) {
        int64_t at = n * C;
        float *to = row_out(&y, at, scratch_row(&s, 0));
        row_norm(to, stat + 2 * n, row_in(&x, at, C, scratch_row(&s, 1)), s.w, s.b, C);
        row_done(&y, at, C, to);
    }
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
    float *stat = stats.data;
    DropoutMask mask = dropout_mask(c, drop);
    NormScratch s;
    if (!scratch_make(c, OP_residual_norm_forward, &s, w, b, C))
        return;
#pragma omp parallel for num_threads(cpu_threads(c, N *C)) schedule(static)
    for (int64_t n = 0; n < N; n++) {
        int64_t at = n * C;
        const float *in = row_in(&x_in, at, C, scratch_row(&s, 0)), *add = row_in(&branch, at, C, scratch_row(&s, 1));
        float *out = row_out(&x_out, at, scratch_row(&s, 2)), *to = row_out(&y, at, scratch_row(&s, 3));
        row_residual(out, in, add, to, C, &mask, at);
        row_done_rounded(&x_out, at, C, out);
        row_norm(to, stat + 2 * n, out, s.w, s.b, C);
        row_done(&y, at, C, to);
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
    int64_t N = x.shape[0], C = x.shape[1];
    int threads = cpu_threads(c, N * C);
    const float *stat = stats.data;
    DropoutMask mask = dropout_mask(c, drop);
    NormScratch s;
    if (!scratch_make(c, OP_residual_norm_backward, &s, w, TENSOR_NONE, C))
        return;
#pragma omp parallel num_threads(threads)
    {
        int64_t first, last;
        cpu_share(N, omp_get_thread_num(), threads, &first, &last);
        float *mine = scratch_row(&s, 0); /* dw, db, g */
        memset(mine, 0, (size_t)(3 * s.stride) * sizeof(float));
        for (int64_t n = first; n < last; n++) {
            int64_t at = n * C;
            const float *skip = tensor_present(dskip) ? row_in(&dskip, at, C, scratch_row(&s, 3)) : NULL;
            const float *dout = row_in(&dy, at, C, scratch_row(&s, 4)), *in = row_in(&x, at, C, scratch_row(&s, 5));
            float *to = row_out(&dx, at, scratch_row(&s, 6));
            row_norm_backward(to, mine, s.stride, skip, dout, in, stat + 2 * n, s.w, C);
            row_done_rounded(&dx, at, C, to);
            if (!tensor_present(dbranch))
                continue;
            float *branch = row_out(&dbranch, at, scratch_row(&s, 7));
            if (mask.active)
                dropout_apply(branch, to, C, &mask, at);
            else
                memcpy(branch, to, (size_t)C * sizeof(float));
            row_done(&dbranch, at, C, branch);
        }
    }
    Tensor sums[2] = {dw, db};
    for (int i = 0; i < 2; i++) /* with row 4 of thread 0, which is free again */
        if (tensor_present(sums[i]))
            partials_add(&sums[i], s.rows + i * s.stride, NORM_ROWS * s.stride, threads, s.rows + 4 * s.stride);
}
