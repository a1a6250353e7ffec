#include "train/diagnose.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Is there an Inf or NaN in t? Then says where, as `kind` NAME. */
static bool tensor_suspect(Model *m, Tensor t, const char *kind, const char *name, char *text, size_t size)
{
    int64_t n = tensor_present(t) ? tensor_count(t) : 0;
    float *values = malloc((size_t)n * sizeof *values + 1);
    if (!values || n == 0) {
        free(values);
        return false;
    }
    copy_out(&m->ctx, values, t);
    m->ctx.device->synchronize(&m->ctx);
    int64_t bad = 0, first = -1;
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(values[i])) {
            first = first < 0 ? i : first;
            bad++;
        }
    if (bad)
        snprintf(text, size, "the first tensor that is not finite is the %s %s: %lld of %lld elements, element %lld is %g", kind,
                 name, (long long)bad, (long long)n, (long long)first, (double)values[first]);
    free(values);
    return bad > 0;
}

static bool block_suspect(Model *m, int l, char *text, size_t size)
{
    const BlockActs *s = &m->acts[l];
    struct {
        Tensor t;
        const char *name;
    } made[] = {{s->x_in, "x_in"},   {s->ln_1, "ln_1"}, {s->qkv, "qkv"}, {s->lse, "lse"}, {s->att, "att"},
                {s->x_mid, "x_mid"}, {s->ln_2, "ln_2"}, {s->fc, "fc"},   {s->act, "act"}};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
        char name[64];
        snprintf(name, sizeof name, "h.%d.%s", l, made[i].name);
        if (tensor_suspect(m, made[i].t, "activation", name, text, size))
            return true;
    }
    return false;
}

bool nonfinite_find(Model *m, char *text, size_t size)
{
    for (int i = 0; i < m->n_weights; i++)
        if (tensor_suspect(m, m->weight[i]->value, "weight", m->weight[i]->name, text, size))
            return true;
    model_forward(m, PHASE_FORWARD); /* afterwards all that the backward needs is there */
    for (int l = 0; l < (int)m->config.n_layer; l++)
        if (block_suspect(m, l, text, size))
            return true;
    if (tensor_suspect(m, m->x_final, "activation", "x_final", text, size) ||
        tensor_suspect(m, m->ln_f_out, "activation", "ln_f_out", text, size))
        return true;
    model_gradients_zero(m);
    model_forward_backward(m);
    if (tensor_suspect(m, m->losses, "activation", "losses", text, size))
        return true;
    for (int i = 0; i < m->n_weights; i++)
        if (tensor_suspect(m, m->weight[i]->grad, "gradient of", m->weight[i]->name, text, size))
            return true;
    snprintf(text, size, "run again, every tensor is finite");
    return false;
}
