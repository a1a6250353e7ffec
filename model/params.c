/* The table of weights: which there are, their Hugging Face names and shapes, their order, and how they start.
 *
 * Weights, gradients and moments lie in one flat range each, in the same order: that in which the backward pass finishes a
 * gradient (last layer first, the tied embedding last). An optimizer launch, a clip, a bucket of an all-reduce is a range. */
#include "base/convert.h"
#include "model/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One row of the table: gives the weight its name ("h.0.ln_1.bias" of "ln_1" and "bias"), role and shape ([rows] where width is
 * 0) and appends it to the model's list. */
static void weight_add(Model *m, Weight *w, bool residual, const char *name, const char *part, int layer, int64_t rows,
                       int64_t width)
{
    int used = layer >= 0 ? snprintf(w->name, sizeof w->name, "h.%d.", layer) : 0;
    snprintf(w->name + used, sizeof w->name - (size_t)used, "%s.%s", name, part);
    w->residual = residual;
    w->value = (Tensor){NULL, DTYPE_F32, width ? 2 : 1, {rows, width}};
    m->weight[m->n_weights++] = w;
}

/* "NAME.bias" and "NAME.weight", in the order in which a backward finishes them. */
static void linear_add(Model *m, Linear *l, bool residual, const char *name, int layer, int64_t in, int64_t out)
{
    if (m->config.bias)
        weight_add(m, &l->b, false, name, "bias", layer, out, 0);
    weight_add(m, &l->w, residual, name, "weight", layer, in, out);
}

static void norm_add(Model *m, Norm *n, const char *name, int layer)
{
    if (m->config.bias)
        weight_add(m, &n->b, false, name, "bias", layer, m->config.n_embd, 0);
    weight_add(m, &n->w, false, name, "weight", layer, m->config.n_embd, 0);
}

static void weights_list(Model *m)
{
    const ModelConfig *f = &m->config;
    int64_t C = f->n_embd, hd = C / f->n_head;
    norm_add(m, &m->ln_f, "ln_f", -1);
    for (int l = (int)f->n_layer - 1; l >= 0; l--) {
        Block *b = &m->block[l];
        linear_add(m, &b->mlp_proj, true, "mlp.c_proj", l, f->n_inner, C);
        linear_add(m, &b->c_fc, false, "mlp.c_fc", l, C, f->n_inner);
        norm_add(m, &b->ln_2, "ln_2", l);
        linear_add(m, &b->attn_proj, true, "attn.c_proj", l, C, C);
        linear_add(m, &b->c_attn, false, "attn.c_attn", l, C, (f->n_head + 2 * f->n_kv_head) * hd);
        norm_add(m, &b->ln_1, "ln_1", l);
    }
    weight_add(m, &m->wpe, false, "wpe", "weight", -1, f->block_size, C);
    weight_add(m, &m->wte, false, "wte", "weight", -1, model_config_padded_vocab(f), C);
}

/* Declares one member (value, master, grad, m or v) of all weights in its type, and the flat range over them. */
static bool range_declare(Model *m, Tensor *range, size_t member, Category category, DType dtype, Error *e)
{
    size_t begin = m->plan.persistent_bytes;
    for (int i = 0; i < m->n_weights; i++) {
        Weight *w = m->weight[i];
        Tensor shape = w->value;
        int layer = -1;
        sscanf(w->name, "h.%d.", &layer);
        if (!plan_tensor(&m->plan, (Tensor *)((char *)w + member), category, w->name, layer, dtype, shape.ndim, shape.shape, e))
            return false;
    }
    Tensor first = *(Tensor *)((char *)m->weight[0] + member);
    *range = tensor_1d(first.data, first.dtype, (int64_t)((m->plan.persistent_bytes - begin) / dtype_size(first.dtype)));
    return true;
}

/* The parts of the range that weight decay applies to: the matrices. */
static bool decay_list(Model *m, Error *e)
{
    DecayRange *decay = memory_get(e, (size_t)m->n_weights, sizeof *decay, "the decay ranges");
    m->adam.n_decay = 0;
    for (int i = 0; decay && i < m->n_weights; i++) {
        Tensor t = m->weight[i]->value;
        int64_t begin = ((char *)t.data - (char *)m->values.data) / (int64_t)dtype_size(t.dtype);
        if (t.ndim == 2)
            decay[m->adam.n_decay++] = (DecayRange){begin, begin + tensor_count(t)};
    }
    m->adam.decay = decay;
    return decay != NULL;
}

bool model_declare_weights(Model *m, Error *e)
{
    m->block = memory_get(e, (size_t)m->config.n_layer, sizeof *m->block, "the blocks");
    m->weight = memory_get(e, (size_t)m->config.n_layer * 12 + 4, sizeof *m->weight, "the list of weights");
    if (!m->block || !m->weight)
        return false;
    weights_list(m);
    Precision p = m->run.precision;
    bool ok = range_declare(m, &m->values, offsetof(Weight, value), CATEGORY_WEIGHTS, p.param, e);
    if (ok && m->run.training && p.master)
        ok = range_declare(m, &m->masters, offsetof(Weight, master), CATEGORY_MASTER_WEIGHTS, DTYPE_F32, e);
    if (ok && m->run.training)
        ok = range_declare(m, &m->grads, offsetof(Weight, grad), CATEGORY_GRADIENTS, p.grad, e) &&
             range_declare(m, &m->m, offsetof(Weight, m), CATEGORY_ADAM_M, p.m, e) &&
             range_declare(m, &m->v, offsetof(Weight, v), CATEGORY_ADAM_V, p.v, e);
    return ok && decay_list(m, e);
}

/* Element i of a normal variable, by Box and Muller from two of the stream's words (sin and cos of one angle for a pair). */
static float normal_at(RandomKey key, int64_t i, double deviation)
{
    Philox bits = random_block(key, (uint64_t)i / 2);
    double radius = sqrt(-2 * log(((double)bits.word[0] + 1) * 0x1p-32)), angle = 2 * M_PI * (double)bits.word[1] * 0x1p-32;
    return (float)(deviation * radius * (i % 2 ? sin(angle) : cos(angle)));
}

static void weight_initialize(const Model *m, const Weight *w, float *values, RandomKey key)
{
    int64_t n = tensor_count(w->value);
    bool gain = w->value.ndim == 1 && strstr(w->name, "ln_") && strstr(w->name, ".weight");
    double deviation = w->residual ? 0.02 / sqrt(2.0 * (double)m->config.n_layer) : 0.02;
    int64_t filled = w == &m->wte ? m->config.vocab_size * m->config.n_embd : n;
#pragma omp parallel for schedule(static) num_threads(m->ctx.target.threads)
    for (int64_t i = 0; i < n; i++)
        values[i] = w->value.ndim == 1 ? (gain ? 1.0f : 0.0f) : i < filled ? normal_at(key, i, deviation) : 0.0f;
}

void tensor_store(Model *m, Tensor t, int64_t first, int64_t n, float *values)
{
    for (int64_t i = 0; t.dtype != DTYPE_F32 && i < n; i++) { /* each number shrinks into the place of those already done */
        uint16_t half = t.dtype == DTYPE_BF16 ? f32_to_bf16(values[i]) : f32_to_f16(values[i]);
        memcpy((char *)values + (size_t)i * sizeof half, &half, sizeof half);
    }
    copy_in(&m->ctx, tensor_part(t, first, n), values);
    m->ctx.device->synchronize(&m->ctx);
}

void weight_store(Model *m, const Weight *w, int64_t first, int64_t n, float *values)
{
    if (!tensor_present(w->master)) {
        tensor_store(m, w->value, first, n, values);
        return;
    }
    tensor_store(m, w->master, first, n, values);
    cast(&m->ctx, tensor_part(w->value, first, n), tensor_part(w->master, first, n));
}

void tensor_fetch(Model *m, Tensor t, int64_t first, int64_t n, float *values)
{
    Tensor part = tensor_part(t, first, n);
    copy_out(&m->ctx, values, part);
    m->ctx.device->synchronize(&m->ctx);
    for (int64_t i = n - 1; t.dtype != DTYPE_F32 && i >= 0; i--) { /* from the end: each number grows into the place of two */
        uint16_t half;
        memcpy(&half, (char *)values + (size_t)i * sizeof half, sizeof half);
        values[i] = t.dtype == DTYPE_BF16 ? bf16_to_f32(half) : f16_to_f32(half);
    }
}

bool model_initialize(Model *m, uint64_t seed, Error *e)
{
    int64_t largest = 0;
    for (int i = 0; i < m->n_weights; i++)
        largest = tensor_count(m->weight[i]->value) > largest ? tensor_count(m->weight[i]->value) : largest;
    float *values = memory_get(e, (size_t)largest, sizeof *values, "initial weights");
    for (int i = 0; values && i < m->n_weights; i++) {
        weight_initialize(m, m->weight[i], values, random_key(seed, RANDOM_INIT, (uint32_t)i, 0, 0));
        weight_store(m, m->weight[i], 0, tensor_count(m->weight[i]->value), values);
    }
    free(values);
    return values && !e->set;
}

int64_t model_parameters(const Model *m)
{
    int64_t n = 0;
    for (int i = 0; i < m->n_weights; i++)
        n += tensor_count(m->weight[i]->value);
    return n;
}
