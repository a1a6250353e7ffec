/* AdamW over the whole range of parameters in one pass: 28 bytes a parameter are moved and nothing else costs.
 *
 *   g' = g grad_factor,  m = b1 m + (1-b1) g',  v = b2 v + (1-b2) g'^2
 *   w  = w (1 - lr wd)  where decayed,  then  w -= lr (m / bias_1) / (sqrt(v / bias_2) + eps)
 *
 * When the gradient is not finite nothing at all is written: no moments, no decay. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/dropout.h"
#include "kernels/cpu/rows.h"

#include <math.h>
#include <omp.h>

typedef struct Update {
    Tensor w, master, g, m, v;
    RandomKey rounding[3]; /* of w, m and v */
    float scale, beta1, one_beta1, beta2, one_beta2, inverse_bias_1, inverse_bias_2, lr, eps;
    float keep; /* 1 - lr wd */
} Update;

/* The formulas above, for n parameters. */
static void floats_update(float *restrict w, const float *restrict g, float *restrict m, float *restrict v, int64_t n,
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

/* Elements at .. at+n-1 of a 16-bit t = row [n], rounded up or down with the probability that makes the mean exact. */
static void row_round(const Tensor *t, int64_t at, int64_t n, const float *row, RandomKey key)
{
    uint32_t word[4 * VECTOR];
    uint16_t *to = element_at(t, at);
    int64_t skip = at & 3; /* words of the first block that belong to elements before `at` */
    for (uint64_t block = (uint64_t)at >> 2; n > 0; block += VECTOR) {
        int64_t count = min_of(4 * VECTOR - skip, n);
        dropout_words(word, key, block);
        if (t->dtype == DTYPE_BF16)
#pragma omp simd
            for (int64_t i = 0; i < count; i++)
                to[i] = f32_to_bf16_random(row[i], word[skip + i]);
        else
            for (int64_t i = 0; i < count; i++)
                to[i] = f32_to_f16_random(row[i], word[skip + i]);
        row += count;
        to += count;
        n -= count;
        skip = 0;
    }
}

/* Parameters at .. at+n-1, n <= ROW_PIECE, of any types. */
static void piece_update(const Update *u, int64_t at, int64_t n, float keep)
{
    float room[4][ROW_PIECE];
    bool master = tensor_present(u->master);
    float *w = master ? element_at(&u->master, at) : row_inout(&u->w, at, n, room[0]);
    float *m = row_inout(&u->m, at, n, room[2]), *v = row_inout(&u->v, at, n, room[3]);
    floats_update(w, row_in(&u->g, at, n, room[1]), m, v, n, u, keep);
    if (master)
        row_done(&u->w, at, n, w);
    else if (u->w.dtype != DTYPE_F32)
        row_round(&u->w, at, n, w, u->rounding[0]);
    if (u->m.dtype != DTYPE_F32)
        row_round(&u->m, at, n, m, u->rounding[1]);
    if (u->v.dtype != DTYPE_F32)
        row_round(&u->v, at, n, v, u->rounding[2]);
}

/* Parameters at .. at+n-1, of which either all or none are decayed: keep is 1 - lr wd or 1. */
static void span_update(const Update *u, int64_t at, int64_t n, float keep)
{
    for (; n > 0; at += ROW_PIECE, n -= ROW_PIECE)
        piece_update(u, at, min_of(n, ROW_PIECE), keep);
}

void CPU(adamw)(Ctx *c, Tensor w, Tensor master, Tensor g, Tensor m, Tensor v, const AdamW *adam)
{
    const StepState *s = c->state;
    int64_t n = tensor_count(w);
    int threads = cpu_threads(c, n);
    if (s->nonfinite)
        return;
    Update u = {.w = w,
                .master = master,
                .g = g,
                .m = m,
                .v = v,
                .scale = s->grad_factor,
                .beta1 = (float)adam->beta1,
                .one_beta1 = (float)(1 - adam->beta1),
                .beta2 = (float)adam->beta2,
                .one_beta2 = (float)(1 - adam->beta2),
                .inverse_bias_1 = 1 / s->bias_1,
                .inverse_bias_2 = 1 / s->bias_2,
                .lr = s->learning_rate,
                .eps = adam->eps,
                .keep = 1 - s->learning_rate * adam->weight_decay};
    for (uint32_t i = 0; i < 3; i++)
        u.rounding[i] = random_key(s->seed, RANDOM_ROUNDING, i, (uint64_t)s->step, 0);
#pragma omp parallel num_threads(threads)
    {
        int64_t at, last;
        cpu_share(n, omp_get_thread_num(), threads, &at, &last);
        for (int r = 0; at < last; r++) { /* alternately the gap before decay range r and the range; at the end the rest */
            int64_t begin = r < adam->n_decay ? adam->decay[r].begin : n, end = r < adam->n_decay ? adam->decay[r].end : n;
            int64_t stop[2] = {min_of(begin, last), min_of(end, last)};
            for (int decayed = 0; decayed < 2; decayed++)
                if (at < stop[decayed]) {
                    span_update(&u, at, stop[decayed] - at, decayed ? u.keep : 1.0f);
                    at = stop[decayed];
                }
        }
    }
}
