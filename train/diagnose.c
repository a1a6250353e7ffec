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
    tensor_fetch(m, t, 0, n, values);
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

/* The activations that a forward leaves for the backward, in the order in which it makes them, which is that of the plan; the
 * rest has been written over by others. */
static bool forward_suspect(Model *m, char *text, size_t size)
{
    const Plan *p = &m->plan;
    int64_t head = 0; /* the first op of the backward */
    while (p->log.op[head].op != OP_head_loss_backward)
        head++;
    for (int i = 0; i < p->count; i++) {
        const PlanTensor *t = &p->tensor[i];
        const Life *life = &t->life[PASS_TRAINING];
        char name[sizeof t->name + 16];
        if (t->category != CATEGORY_ACTIVATIONS || life->first < 0 || life->first >= head || life->last < head)
            continue;
        if (t->layer < 0)
            snprintf(name, sizeof name, "%s", t->name);
        else
            snprintf(name, sizeof name, "h.%d.%s", t->layer, t->name);
        if (tensor_suspect(m, *t->slot, "activation", name, text, size))
            return true;
    }
    return false;
}

bool nonfinite_find(Model *m, char *text, size_t size)
{
    for (int i = 0; i < m->n_weights; i++)
        if (tensor_suspect(m, m->weight[i]->value, "weight", m->weight[i]->name, text, size))
            return true;
    model_forward(m, PHASE_FORWARD);
    if (forward_suspect(m, text, size))
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
