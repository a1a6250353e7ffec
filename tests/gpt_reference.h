/* For tests of the model: GPT-2's equations in double precision, one number at a time, with the dropout masks of the engine's
 * Philox keys. Slow, and as plain as the formulas. Include after cmocka. */
#ifndef TALLY_TESTS_GPT_REFERENCE_H
#define TALLY_TESTS_GPT_REFERENCE_H

#include "tests/model_rig.h"

/* What stands in for a weight: its place in a copy of the flat range in double precision. */
typedef struct Reference {
    const Rig *r;
    const double *flat;
    int64_t N, T, C;
} Reference;

static inline const double *weight(const Reference *f, const Weight *w)
{
    return tensor_present(w->value) ? f->flat + ((float *)w->value.data - (float *)f->r->m.values.data) : NULL;
}

static inline double *numbers(int64_t n)
{
    double *x = calloc((size_t)n, sizeof *x);
    assert_non_null(x);
    return x;
}

/* 0 for a dropped element, else 1 / (1 - p). */
static inline double kept(const Reference *f, RandomPurpose purpose, int layer, int64_t index)
{
    const StepState *s = &f->r->state;
    double p = (double)(float)f->r->m.config.dropout;
    if (p == 0)
        return 1;
    RandomKey key = random_key(s->seed, purpose, (uint32_t)layer, (uint64_t)s->step, (uint32_t)s->micro);
    return (double)random_bits(key, (uint64_t)index) < floor(p * 4294967296.0) ? 0 : 1 / (1 - p);
}

static inline void norm(const Reference *f, double *y, const double *x, const Norm *n)
{
    const double *w = weight(f, &n->w), *b = weight(f, &n->b);
    for (int64_t i = 0; i < f->N; i++, x += f->C, y += f->C) {
        double mean = 0, variance = 0;
        for (int64_t c = 0; c < f->C; c++)
            mean += x[c] / (double)f->C;
        for (int64_t c = 0; c < f->C; c++)
            variance += (x[c] - mean) * (x[c] - mean) / (double)f->C;
        for (int64_t c = 0; c < f->C; c++)
            y[c] = (x[c] - mean) / sqrt(variance + 1e-5) * w[c] + (b ? b[c] : 0);
    }
}

/* x W + b, new memory. */
static inline double *linear(const Reference *f, const double *x, const Linear *l)
{
    int64_t I = l->w.value.shape[0], O = l->w.value.shape[1];
    const double *w = weight(f, &l->w), *b = weight(f, &l->b);
    double *y = numbers(f->N * O);
    for (int64_t n = 0; n < f->N; n++)
        for (int64_t o = 0; o < O; o++) {
            double sum = b ? b[o] : 0;
            for (int64_t i = 0; i < I; i++)
                sum += x[n * I + i] * w[i * O + o];
            y[n * O + o] = sum;
        }
    return y;
}

/* Row i of one head: softmax over j <= i of q k' / sqrt(hd), dropped, times v. q is row b*T + i of qkv. */
static inline void attend(const Reference *f, double *out, const double *qkv, int64_t b, int64_t h, int64_t i, int layer)
{
    const ModelConfig *c = &f->r->m.config;
    int64_t hd = f->C / c->n_head, width = (c->n_head + 2 * c->n_kv_head) * hd, kv = h / (c->n_head / c->n_kv_head);
    const double *row = qkv + b * f->T * width, *q = row + i * width + h * hd;
    const double *k = row + (c->n_head + kv) * hd, *v = k + c->n_kv_head * hd;
    double p[64], sum = 0, most = -INFINITY;
    for (int64_t j = 0; j <= i; j++) {
        p[j] = 0;
        for (int64_t d = 0; d < hd; d++)
            p[j] += q[d] * k[j * width + d] / sqrt((double)hd);
        most = fmax(most, p[j]);
    }
    for (int64_t j = 0; j <= i; j++)
        sum += p[j] = exp(p[j] - most);
    for (int64_t j = 0; j <= i; j++) {
        double share = p[j] / sum * kept(f, RANDOM_ATTENTION_DROPOUT, layer, ((b * c->n_head + h) * f->T + i) * f->T + j);
        for (int64_t d = 0; d < hd; d++)
            out[d] += share * v[j * width + d];
    }
}

static inline double *attention(const Reference *f, const double *qkv, int layer)
{
    int64_t NH = f->r->m.config.n_head, hd = f->C / NH;
    double *out = numbers(f->N * f->C);
    for (int64_t n = 0; n < f->N; n++)
        for (int64_t h = 0; h < NH; h++)
            attend(f, out + n * f->C + h * hd, qkv, n / f->T, h, n % f->T, layer);
    return out;
}

static inline void residual_add(const Reference *f, double *x, double *branch, RandomPurpose purpose, int layer)
{
    for (int64_t i = 0; i < f->N * f->C; i++)
        x[i] += branch[i] * kept(f, purpose, layer, i);
    free(branch);
}

static inline void block(const Reference *f, double *x, double *y, int l)
{
    const Block *w = &f->r->m.block[l];
    norm(f, y, x, &w->ln_1);
    double *qkv = linear(f, y, &w->c_attn), *att = attention(f, qkv, l);
    residual_add(f, x, linear(f, att, &w->attn_proj), RANDOM_ATTENTION_RESIDUAL, l);
    norm(f, y, x, &w->ln_2);
    double *fc = linear(f, y, &w->c_fc);
    for (int64_t i = 0; i < f->N * w->c_fc.w.value.shape[1]; i++)
        fc[i] = 0.5 * fc[i] * (1 + tanh(sqrt(2 / M_PI) * (fc[i] + 0.044715 * fc[i] * fc[i] * fc[i])));
    residual_add(f, x, linear(f, fc, &w->mlp_proj), RANDOM_MLP_RESIDUAL, l);
    free(qkv);
    free(att);
    free(fc);
}

/* The sum of losses over the counted targets of the rig's batch, with weights `flat` and the keys of r->state. When logits is not
 * NULL, it gets them [N, V]. */
static inline double reference_loss(const Rig *r, const double *flat, double *logits)
{
    const ModelConfig *c = &r->m.config;
    Reference f = {r, flat, r->m.run.batch_size * r->m.run.block_size, r->m.run.block_size, c->n_embd};
    assert_in_range(f.T, 1, 64); /* attend's room for a row */
    const double *wte = weight(&f, &r->m.wte), *wpe = weight(&f, &r->m.wpe);
    double *x = numbers(f.N * f.C), *y = numbers(f.N * f.C), *row = numbers(c->vocab_size), loss = 0;
    for (int64_t i = 0; i < f.N * f.C; i++)
        x[i] = (wte[r->tokens[i / f.C] * f.C + i % f.C] + wpe[i / f.C % f.T * f.C + i % f.C]) *
               kept(&f, RANDOM_EMBEDDING_DROPOUT, 0, i);
    for (int l = 0; l < (int)c->n_layer; l++)
        block(&f, x, y, l);
    norm(&f, y, x, &r->m.ln_f);
    for (int64_t n = 0; n < f.N; n++) {
        double most = -INFINITY, sum = 0;
        for (int64_t v = 0; v < c->vocab_size; v++) {
            row[v] = 0;
            for (int64_t i = 0; i < f.C; i++)
                row[v] += y[n * f.C + i] * wte[v * f.C + i];
            most = fmax(most, row[v]);
        }
        for (int64_t v = 0; v < c->vocab_size; v++)
            sum += exp(row[v] - most);
        loss += r->targets[n] < 0 ? 0 : most + log(sum) - row[r->targets[n]];
        if (logits)
            memcpy(logits + n * c->vocab_size, row, (size_t)c->vocab_size * sizeof *row);
    }
    free(x);
    free(y);
    free(row);
    return loss;
}

/* The weights of the rig as they are, in double precision. */
static inline double *reference_weights(const Rig *r)
{
    int64_t n = tensor_count(r->m.values);
    double *flat = numbers(n);
    for (int64_t i = 0; i < n; i++)
        flat[i] = (double)((float *)r->m.values.data)[i];
    return flat;
}

#endif
