/* AdamW over the whole range of parameters in one pass: 28 bytes a parameter are moved and nothing else costs.
 *
 *   g' = g clip_coef / loss_scale,  m = b1 m + (1-b1) g',  v = b2 v + (1-b2) g'^2
 *   w  = w (1 - lr wd)  where decayed,  then  w -= lr (m / bias_1) / (sqrt(v / bias_2) + eps)
 *
 * When the gradient is not finite nothing at all is written: no moments, no decay. */
#include "kernels/cpu/cpu_ops.h"

#include <math.h>
#include <omp.h>

typedef struct Update {
    float scale, beta1, one_beta1, beta2, one_beta2, inverse_bias_1, inverse_bias_2, lr, eps;
    float keep; /* 1 - lr wd */
} Update;

/* Updates n parameters, of which either all or none are decayed: keep is 1 - lr wd or 1. */
static void span_update(float *restrict w, const float *restrict g, float *restrict m, float *restrict v, int64_t n,
                        const Update *u, float keep)
{
    Update k = *u;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float d = g[i] * k.scale;
        float m_new = k.beta1 * m[i] + k.one_beta1 * d, v_new = k.beta2 * v[i] + k.one_beta2 * (d * d);
        m[i] = m_new;
        v[i] = v_new;
        w[i] = w[i] * keep - k.lr * (m_new * k.inverse_bias_1) / (sqrtf(v_new * k.inverse_bias_2) + k.eps);
    }
}

void CPU(adamw)(Ctx *c, Tensor w, Tensor g, Tensor m, Tensor v, const AdamW *adam)
{
    const StepState *s = c->state;
    int64_t n = tensor_count(w);
    int threads = cpu_threads(c, n);
    float *wp = w.data, *mp = m.data, *vp = v.data;
    const float *gp = g.data;
    if (s->nonfinite)
        return;
    Update u = {.scale = s->clip_coef / s->loss_scale,
                .beta1 = (float)adam->beta1,
                .one_beta1 = (float)(1 - adam->beta1),
                .beta2 = (float)adam->beta2,
                .one_beta2 = (float)(1 - adam->beta2),
                .inverse_bias_1 = 1 / s->bias_1,
                .inverse_bias_2 = 1 / s->bias_2,
                .lr = s->learning_rate,
                .eps = adam->eps,
                .keep = 1 - s->learning_rate * adam->weight_decay};
#pragma omp parallel num_threads(threads)
    {
        int64_t at, last;
        cpu_share(n, omp_get_thread_num(), threads, &at, &last);
        for (int r = 0; at < last; r++) { /* alternately the gap before decay range r and the range; at the end the rest */
            int64_t begin = r < adam->n_decay ? adam->decay[r].begin : n, end = r < adam->n_decay ? adam->decay[r].end : n;
            int64_t stop[2] = {begin < last ? begin : last, end < last ? end : last};
            for (int decayed = 0; decayed < 2; decayed++)
                if (at < stop[decayed]) {
                    span_update(wp + at, gp + at, mp + at, vp + at, stop[decayed] - at, &u, decayed ? u.keep : 1.0f);
                    at = stop[decayed];
                }
        }
    }
}
