#include "train/grad_stats.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUFFER = 1 << 16 }; /* floats */

bool grad_stats_open(GradStats *s, Model *m, Error *e)
{
    s->model = m;
    s->dx = memory_get(e, (size_t)m->config.n_layer, sizeof *s->dx, "gradient statistics");
    s->buffer = memory_get(e, BUFFER, sizeof *s->buffer, "gradient statistics");
    return s->dx && s->buffer;
}

void grad_stats_close(GradStats *s)
{
    free(s->dx);
    free(s->buffer);
    json_decref(s->list);
}

/* Adds the elements of a tensor. */
static void tensor_count_into(GradStats *s, GradCounts *c, Tensor t)
{
    const float smallest = t.dtype == DTYPE_F16 ? 0x1p-14f : FLT_MIN; /* of the normal numbers */
    int64_t total = tensor_count(t), n;
    for (int64_t done = 0; done < total; done += n) {
        n = total - done < BUFFER ? total - done : BUFFER;
        tensor_fetch(s->model, t, done, n, s->buffer);
        for (int64_t i = 0; i < n; i++) {
            float magnitude = fabsf(s->buffer[i]);
            c->zero += magnitude == 0;
            c->subnormal += magnitude > 0 && magnitude < smallest;
            c->saturated += !isfinite(magnitude);
        }
    }
    c->elements += total;
}

static void block_watch(void *user, int layer)
{
    GradStats *s = user;
    tensor_count_into(s, &s->dx[layer], s->model->dx);
}

void grad_stats_begin(GradStats *s)
{
    memset(s->dx, 0, (size_t)s->model->config.n_layer * sizeof *s->dx);
    s->model->watch = block_watch;
    s->model->watch_user = s;
}

/* The weights of a layer; -1: those outside the blocks. Rows that pad the vocabulary have no gradient. */
static GradCounts weights_count(GradStats *s, int layer)
{
    Model *m = s->model;
    GradCounts counts = {0};
    for (int i = 0; i < m->n_weights; i++) {
        const Weight *w = m->weight[i];
        int of = -1;
        sscanf(w->name, "h.%d.", &of);
        if (of == layer)
            tensor_count_into(s, &counts, w == &m->wte ? tensor_slice_rows(w->grad, 0, m->config.vocab_size) : w->grad);
    }
    return counts;
}

static json_t *counts_json(GradCounts c)
{
    double n = (double)c.elements;
    return json_pack("{s:f, s:f, s:f}", "zero", (double)c.zero / n, "subnormal", (double)c.subnormal / n, "saturated",
                     (double)c.saturated / n);
}

void grad_stats_end(GradStats *s)
{
    int L = (int)s->model->config.n_layer;
    s->model->watch = NULL;
    json_decref(s->list);
    s->list = json_array();
    for (int l = 0; l < L; l++)
        json_array_append_new(s->list, json_pack("{s:i, s:o, s:o}", "layer", l, "dx", counts_json(s->dx[l]), "weights",
                                                 counts_json(weights_count(s, l))));
    json_array_append_new(s->list, json_pack("{s:i, s:o}", "layer", -1, "weights", counts_json(weights_count(s, -1))));
}
