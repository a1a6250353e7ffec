/* The global L2 norm of the gradient, and what follows from it for the update: is it finite, how far to clip, Adam's t.
 *
 * Squares are summed in double: no float's square overflows or vanishes there, so the sum is finite exactly when every
 * element is. The partial sums belong to fixed pieces of the range and are added in their order, hence the same result
 * for any number of threads. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/rows.h"

#include <math.h>

/* The processor's own prefetcher keeps one such stream at a third of the memory's speed: asking ahead gives the rest. */
static double squares_sum(const float *g, int64_t n)
{
    enum { BLOCK = 256, AHEAD = 1024, LINE = 16 }; /* floats */
    double sum = 0;
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t end = min_of(at + BLOCK, n);
        double part = 0;
        for (int64_t i = at; i < end; i += LINE)
            __builtin_prefetch(g + i + AHEAD);
#pragma omp simd reduction(+ : part)
        for (int64_t i = at; i < end; i++)
            part += (double)g[i] * (double)g[i];
        sum += part;
    }
    return sum;
}

static double squares_sum_any(const Tensor *g, int64_t first, int64_t n)
{
    if (g->dtype == DTYPE_F32)
        return squares_sum(element_at(g, first), n);
    double sum = 0;
    for (int64_t at = 0; at < n; at += ROW_PIECE) {
        float wide[ROW_PIECE];
        int64_t count = min_of(n - at, ROW_PIECE);
        sum += squares_sum(row_in(g, first + at, count, wide), count);
    }
    return sum;
}

void CPU(grad_norm)(Ctx *c, Tensor grads, float clip, const AdamW *adam)
{
    int64_t n = tensor_count(grads), pieces = (n + GRAD_NORM_PIECE - 1) / GRAD_NORM_PIECE;
    double *partial = c->workspace, sum = 0;
    StepState *s = c->state;
    if (!workspace_check(c, OP_grad_norm, grad_norm_workspace(n)))
        return;
#pragma omp parallel for num_threads(cpu_threads(c, n)) schedule(static)
    for (int64_t p = 0; p < pieces; p++) {
        int64_t first = p * GRAD_NORM_PIECE, rest = n - first;
        partial[p] = squares_sum_any(&grads, first, min_of(rest, GRAD_NORM_PIECE));
    }
    for (int64_t p = 0; p < pieces; p++)
        sum += partial[p];
    s->grad_norm = sqrt(sum) / (double)s->scaler.scale;
    s->nonfinite = !isfinite(sum);
    s->clip_coef = clip > 0 && s->grad_norm + 1e-6 > clip ? (float)(clip / (s->grad_norm + 1e-6)) : 1.0f;
    s->grad_factor = s->clip_coef / s->scaler.scale;
    scaler_update(&s->scaler, s->nonfinite);
    if (s->nonfinite)
        return;
    s->adam_t++;
    s->bias_1 = (float)(1 - pow(adam->beta1, (double)s->adam_t));
    s->bias_2 = (float)(1 - pow(adam->beta2, (double)s->adam_t));
}
