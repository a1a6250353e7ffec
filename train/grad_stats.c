#include "train/grad_stats.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BUFFER = 1 << 16 }; /* floats */

static const char *const kind_name[GRAD_KINDS] = {"dx", "act", "weights"};

bool grad_stats_open(GradStats *s, Model *m, Error *e)
{
    s->model = m;
    s->layer = memory_get(e, (size_t)m->config.n_layer + 1, sizeof *s->layer, "gradient statistics");
    s->buffer = memory_get(e, BUFFER, sizeof *s->buffer, "gradient statistics");
    return s->layer && s->buffer;
}

void grad_stats_close(GradStats *s)
{
    free(s->layer);
    free(s->buffer);
}

/* ---- Counting ------------------------------------------------------------------------------------------------------- */

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
    tensor_count_into(s, &s->layer[layer][GRAD_DX], s->model->dx);
    tensor_count_into(s, &s->layer[layer][GRAD_ACT], s->model->grad[layer].ln_1);
}

void grad_stats_begin(GradStats *s)
{
    memset(s->layer, 0, (size_t)(s->model->config.n_layer + 1) * sizeof *s->layer);
    s->model->watch = block_watch;
    s->model->watch_user = s;
}

void grad_stats_end(GradStats *s)
{
    Model *m = s->model;
    m->watch = NULL;
    for (int i = 0; i < m->n_weights; i++) {
        const Weight *w = m->weight[i];
        int layer = (int)m->config.n_layer;
        sscanf(w->name, "h.%d.", &layer);
        Tensor real = w == &m->wte ? tensor_slice_rows(w->grad, 0, m->config.vocab_size) : w->grad; /* without padding */
        tensor_count_into(s, &s->layer[layer][GRAD_WEIGHTS], real);
    }
}

/* ---- Output --------------------------------------------------------------------------------------------------------- */

json_t *grad_stats_json(const GradStats *s)
{
    int L = (int)s->model->config.n_layer;
    json_t *list = json_array();
    for (int l = 0; l <= L; l++) {
        json_t *object = json_pack("{s:i}", "layer", l < L ? l : -1);
        for (int kind = 0; kind < GRAD_KINDS; kind++) {
            GradCounts c = s->layer[l][kind];
            double n = (double)c.elements;
            if (n > 0)
                json_object_set_new(object, kind_name[kind],
                                    json_pack("{s:f, s:f, s:f}", "zero", (double)c.zero / n, "subnormal", (double)c.subnormal / n,
                                              "saturated", (double)c.saturated / n));
        }
        json_array_append_new(list, object);
    }
    return list;
}

/* Each kind has a column of 28 characters. */
void grad_stats_print(FILE *out, const GradStats *s)
{
    const Precision *p = &s->model->run.precision;
    const DType type[GRAD_KINDS] = {p->resid, p->act, p->grad};
    int L = (int)s->model->config.n_layer;
    char name[32];
    fprintf(out, "  gradients that are 0 | subnormal | not finite, in %%\n  layer ");
    for (int kind = 0; kind < GRAD_KINDS; kind++) {
        snprintf(name, sizeof name, "%s (%s)", kind_name[kind], dtype_name(type[kind]));
        fprintf(out, "%28s", name);
    }
    for (int l = 0; l <= L; l++) {
        snprintf(name, sizeof name, l < L ? "%d" : "others", l);
        fprintf(out, "\n  %-6s", name);
        for (int kind = l < L ? 0 : GRAD_WEIGHTS; kind < GRAD_KINDS; kind++) {
            GradCounts c = s->layer[l][kind];
            double percent = 100 / (double)c.elements;
            fprintf(out, "%*.2f | %6.2f | %6.2f", l < L ? 10 : 10 + 28 * GRAD_WEIGHTS, percent * (double)c.zero,
                    percent * (double)c.subnormal, percent * (double)c.saturated);
        }
    }
    fprintf(out, "\n");
}
