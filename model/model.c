/* Building a model: declare every tensor, rehearse a step of everything on the dry device, pack, allocate. See model.h. */
#include "model/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

ModelRun model_run_default(void)
{
    return (ModelRun){.training = true, .grad_clip = 1, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};
}

/* ---- Declarations -------------------------------------------------------------------------------------------------- */

/* A declaration that remembers failure, so that the lists below read as tables. */
typedef struct Declare {
    Plan *plan;
    Error *e;
    Category category;
    int layer;
} Declare;

static void tensor_declare(const Declare *d, Tensor *slot, const char *name, DType dtype, int ndim, const int64_t *shape)
{
    if (!d->e->set)
        plan_tensor(d->plan, slot, d->category, name, d->layer, dtype, ndim, shape, d->e);
}

static void matrix(const Declare *d, Tensor *slot, const char *name, DType dtype, int64_t rows, int64_t width)
{
    tensor_declare(d, slot, name, dtype, 2, (int64_t[]){rows, width});
}

/* The activations of block l: all of them in m->acts[l]; and for the backward, those that the recompute level drops once more,
 * with a life of their own, in m->again[l]. */
static void block_declare(Model *m, Declare d, int l, int64_t N)
{
    const ModelConfig *f = &m->config;
    int64_t C = f->n_embd, hd = C / f->n_head, F = f->n_inner, B = m->run.batch_size, T = m->run.block_size;
    int64_t qkv = (f->n_head + 2 * f->n_kv_head) * hd;
    DType act = m->run.precision.act, resid = m->run.precision.resid;
    BlockActs shape = {.x_in = tensor_2d(NULL, resid, N, C),
                       .ln_1 = tensor_2d(NULL, act, N, C),
                       .stat_1 = tensor_2d(NULL, DTYPE_F32, N, 2),
                       .qkv = tensor_2d(NULL, act, N, qkv),
                       .att = tensor_2d(NULL, act, N, f->n_head * hd),
                       .lse = {NULL, DTYPE_F32, 3, {B, f->n_head, T}},
                       .x_mid = tensor_2d(NULL, resid, N, C),
                       .ln_2 = tensor_2d(NULL, act, N, C),
                       .stat_2 = tensor_2d(NULL, DTYPE_F32, N, 2),
                       .fc = tensor_2d(NULL, act, N, F),
                       .act = tensor_2d(NULL, act, N, F),
                       .att_branch = tensor_2d(NULL, act, N, C),
                       .mlp_branch = tensor_2d(NULL, act, N, C)};
    int rows;
    const ActRow *row = recompute_table(&rows);
    d.category = CATEGORY_ACTIVATIONS;
    for (int i = 0; i < rows; i++) {
        Tensor t = *block_act(&shape, &row[i]);
        char name[64];
        snprintf(name, sizeof name, "%s again", row[i].name);
        tensor_declare(&d, block_act(&m->acts[l], &row[i]), row[i].name, t.dtype, t.ndim, t.shape);
        if (m->run.training && recompute_drops(&row[i], m->run.recompute, m->run.recompute_every, l))
            tensor_declare(&d, block_act(&m->again[l], &row[i]), name, t.dtype, t.ndim, t.shape);
    }
}

static void block_gradients_declare(Model *m, Declare d, BlockGrads *g, int64_t N)
{
    const ModelConfig *f = &m->config;
    int64_t C = f->n_embd, hd = C / f->n_head;
    Precision p = m->run.precision;
    d.category = CATEGORY_ACTIVATION_GRADIENTS;
    if (f->dropout > 0 || p.act != p.resid) { /* else dx itself is the branch's gradient */
        matrix(&d, &g->mlp_branch, "d_mlp_branch", p.act, N, C);
        matrix(&d, &g->att_branch, "d_att_branch", p.act, N, C);
    }
    matrix(&d, &g->fc, "d_fc", p.act, N, f->n_inner);
    matrix(&d, &g->ln_2, "d_ln_2", p.act, N, C);
    matrix(&d, &g->att, "d_att", p.act, N, f->n_head * hd);
    matrix(&d, &g->qkv, "d_qkv", p.act, N, (f->n_head + 2 * f->n_kv_head) * hd);
    matrix(&d, &g->ln_1, "d_ln_1", p.act, N, C);
}

static void batch_declare(Model *m, Declare d)
{
    int64_t B = m->run.batch_size, T = m->run.block_size, N = B * T, C = m->config.n_embd;
    int64_t rows = N < m->run.head_rows ? N : m->run.head_rows;
    Precision p = m->run.precision;
    d.category = CATEGORY_DATA;
    tensor_declare(&d, &m->tokens, "tokens", DTYPE_I32, 2, (int64_t[]){B, T});
    tensor_declare(&d, &m->targets, "targets", DTYPE_I32, 1, (int64_t[]){N});
    if (m->run.training && m->ctx.target.kind == DEVICE_CUDA) {
        tensor_declare(&d, &m->next_tokens, "next_tokens", DTYPE_I32, 2, (int64_t[]){B, T});
        tensor_declare(&d, &m->next_targets, "next_targets", DTYPE_I32, 1, (int64_t[]){N});
    }
    for (d.layer = 0; d.layer < m->config.n_layer; d.layer++) {
        block_declare(m, d, d.layer, N);
        if (m->run.training)
            block_gradients_declare(m, d, &m->grad[d.layer], N);
    }
    d.layer = -1;
    d.category = CATEGORY_ACTIVATIONS;
    matrix(&d, &m->x_final, "x_final", p.resid, N, C);
    matrix(&d, &m->ln_f_out, "ln_f_out", p.act, N, C);
    matrix(&d, &m->stat_f, "stat_f", DTYPE_F32, N, 2);
    tensor_declare(&d, &m->losses, "losses", DTYPE_F32, 1, (int64_t[]){N});
    d.category = CATEGORY_LOGITS;
    matrix(&d, &m->logits, "logits", DTYPE_F32, rows, model_config_padded_vocab(&m->config));
    d.category = CATEGORY_ACTIVATION_GRADIENTS;
    if (m->run.training) {
        matrix(&d, &m->dln_f_out, "d_ln_f_out", p.act, N, C);
        matrix(&d, &m->dx, "d_x", p.resid, N, C);
    }
}

static void decoder_declare(Model *m, Declare d)
{
    const ModelConfig *f = &m->config;
    Decoder *s = &m->decoder;
    int64_t chunk = f->block_size < DECODE_CHUNK ? f->block_size : DECODE_CHUNK, S = m->run.sample_size, N = S * chunk;
    int64_t C = f->n_embd, hd = C / f->n_head;
    Precision p = m->run.precision;
    d.category = CATEGORY_DATA;
    tensor_declare(&d, &s->tokens, "sample_tokens", DTYPE_I32, 2, (int64_t[]){S, chunk});
    d.category = CATEGORY_ACTIVATIONS;
    tensor_declare(&d, &s->cache, "sample_cache", p.act, 4, (int64_t[]){f->n_layer, S, f->block_size, 2 * f->n_kv_head * hd});
    matrix(&d, &s->x, "sample_x", p.resid, N, C);
    matrix(&d, &s->norm, "sample_norm", p.act, N, C);
    matrix(&d, &s->stat, "sample_stat", DTYPE_F32, N, 2);
    matrix(&d, &s->qkv, "sample_qkv", p.act, N, (f->n_head + 2 * f->n_kv_head) * hd);
    matrix(&d, &s->att, "sample_att", p.act, N, f->n_head * hd);
    matrix(&d, &s->branch, "sample_branch", p.act, N, C);
    matrix(&d, &s->fc, "sample_fc", p.act, N, f->n_inner);
    matrix(&d, &s->act, "sample_act", p.act, N, f->n_inner);
    d.category = CATEGORY_LOGITS;
    matrix(&d, &s->logits, "sample_logits", DTYPE_F32, S, model_config_padded_vocab(f));
}

static bool step_declare(Model *m, Error *e)
{
    Declare d = {&m->plan, e, CATEGORY_DATA, -1};
    m->acts = memory_get(e, (size_t)m->config.n_layer, sizeof *m->acts, "the activations' list");
    m->again = memory_get(e, (size_t)m->config.n_layer, sizeof *m->again, "the activations' list");
    m->grad = memory_get(e, (size_t)m->config.n_layer, sizeof *m->grad, "the activation gradients' list");
    if (!m->acts || !m->again || !m->grad)
        return false;
    tensor_declare(&d, &m->state, "step_state", DTYPE_I32, 1, (int64_t[]){sizeof(StepState) / 4});
    if (m->run.batch_size)
        batch_declare(m, d);
    if (m->run.sample_size)
        decoder_declare(m, d);
    return !e->set;
}

/* ---- Rehearsal ----------------------------------------------------------------------------------------------------- */

/* A micro-batch arrives, and where there is one, the next. */
static void batch_arrive(Model *m)
{
    Tensor batch[] = {m->tokens, m->targets, m->next_tokens, m->next_targets};
    for (int i = 0; i < 4; i++)
        if (tensor_present(batch[i]))
            copy_in(&m->ctx, batch[i], NULL);
}

/* One step of everything that the run may do. What it touches, and when, is all that the plan knows. */
static void rehearse(Model *m)
{
    Ctx *c = &m->ctx;
    if (m->run.training && m->run.batch_size) {
        model_gradients_zero(m);
        c->phase = PHASE_FORWARD;
        copy_in(c, m->state, NULL);
        batch_arrive(m);
        model_forward_backward(m);
        model_update(m);
        copy_out(c, NULL, m->state);
    }
    if (m->run.batch_size) {
        c->phase = PHASE_EVALUATION;
        copy_in(c, m->state, NULL);
        batch_arrive(m);
        model_evaluate(m);
        copy_out(c, NULL, m->state);
        copy_out(c, NULL, m->losses);
    }
    if (m->run.sample_size) {
        c->phase = PHASE_SAMPLING;
        copy_in(c, m->state, NULL);
        copy_in(c, m->decoder.tokens, NULL);
        int64_t chunk = m->decoder.tokens.shape[1];
        model_decode(m, chunk, m->config.block_size - chunk);
        if (chunk > 1)
            model_decode(m, 1, m->config.block_size - 1);
        copy_out(c, NULL, m->decoder.logits);
    }
}

static bool run_check(const Model *m, Error *e)
{
    const ModelRun *r = &m->run;
    if (r->batch_size < 0 || (r->training && r->batch_size < 1))
        return error_usage(e, "batch_size: is %lld; needs to be 1 or more", (long long)r->batch_size);
    if (r->batch_size && (r->block_size < 1 || r->block_size > m->config.block_size))
        return error_usage(e, "block_size: is %lld; needs to be 1 to %lld, the positions that the model has",
                           (long long)r->block_size, (long long)m->config.block_size);
    if (r->head_rows < 0 || r->sample_size < 0)
        return error_usage(e, "head_rows and the number of samples need to be 0 or more");
    if (r->recompute_every < 0 || (r->recompute_every > 1 && r->recompute != RECOMPUTE_BLOCK))
        return error_usage(e, "recompute_every: is %lld; needs to be 1 or more, and goes with recompute block only",
                           (long long)r->recompute_every);
    if (!(r->grad_clip >= 0) || !(r->eps > 0) || !(r->weight_decay >= 0))
        return error_usage(e, "grad_clip %g, eps %g, weight_decay %g: need to be >= 0, > 0, >= 0", r->grad_clip, r->eps,
                           r->weight_decay);
    if (!(r->beta1 >= 0 && r->beta1 < 1 && r->beta2 >= 0 && r->beta2 < 1))
        return error_usage(e, "beta1 %g, beta2 %g: need to be at least 0 and less than 1", r->beta1, r->beta2);
    int64_t rows; /* GEMM libraries count them in 32 bits */
    if (!product_fits(r->batch_size, r->block_size, &rows) || rows > INT32_MAX)
        return error_usage(e, "batch_size %lld x block_size %lld is too large: a micro-batch has at most %d positions",
                           (long long)r->batch_size, (long long)r->block_size, INT32_MAX);
    return true;
}

/* FLOPs and bytes are counted in 63 bits. A row costs at most 16 FLOPs a parameter and, in attention, 40 for each channel and
 * position: more than twice what forward, recomputation, backward, evaluation and sampling together come to. */
static bool counts_fit(const Model *m, Error *e)
{
    const ModelConfig *f = &m->config;
    double rows = (double)m->run.batch_size * (double)m->run.block_size + (double)m->run.sample_size * DECODE_CHUNK;
    double row = 16 * (double)model_config_parameters(f) + 40 * (double)f->n_layer * (double)f->n_embd * (double)f->block_size;
    return rows * row < 0x1p62 || error_usage(e,
                                              "batch_size %lld x block_size %lld is too large: a micro-batch of this model would "
                                              "take more than 10^18 FLOPs",
                                              (long long)m->run.batch_size, (long long)m->run.block_size);
}

bool model_plan(Model *m, const ModelConfig *config, const ModelRun *run, const Target *target, Error *e)
{
    *m = (Model){.config = *config, .run = *run};
    if (m->run.head_rows == 0)
        m->run.head_rows = HEAD_ROWS;
    if (m->run.recompute_every == 0)
        m->run.recompute_every = 1;
    if (!model_config_check(config, e) || !run_check(m, e) || !counts_fit(m, e) || !precision_check(&m->run.precision, target, e))
        return false;
    m->adam = (AdamW){.beta1 = run->beta1, .beta2 = run->beta2, .eps = (float)run->eps, .weight_decay = (float)run->weight_decay};
    m->ctx = (Ctx){.device = dry_device(), .target = *target, .error = e, .layer = -1, .dry = &m->plan.log};
    m->ctx.target.tf32 = run->precision.tf32;
    if (!model_declare_weights(m, e) || !step_declare(m, e))
        return false;
    rehearse(m);
    plan_hold(&m->plan, &m->state);
    plan_hold(&m->plan, &m->decoder.cache);
    Tensor *batch[] = {&m->tokens, &m->targets, &m->next_tokens, &m->next_targets};
    for (int i = 0; i < 4 && tensor_present(m->next_tokens); i++) /* either may be on its way at any time */
        plan_hold(&m->plan, batch[i]);
    return !e->set && plan_pack(&m->plan, &m->workspace, e);
}

/* ---- Allocation ---------------------------------------------------------------------------------------------------- */

bool model_allocate(Model *m, const Device *device, Error *e)
{
    m->ctx.device = device;
    m->ctx.error = e;
    m->ctx.stream = device->queue ? device->queue(QUEUE_COMPUTE) : NULL;
    m->persistent = device->memory_take(m->plan.persistent_bytes, "the persistent arena (weights, gradients, moments)", e);
    m->step = m->persistent ? device->memory_take(m->plan.step_bytes, "the step arena (activations, workspace, data)", e) : NULL;
    if (!m->step)
        return false;
    plan_bind(&m->plan, m->persistent, m->step);
    Tensor *range[] = {&m->values, &m->masters, &m->grads, &m->m, &m->v};
    size_t member[] = {offsetof(Weight, value), offsetof(Weight, master), offsetof(Weight, grad), offsetof(Weight, m),
                       offsetof(Weight, v)};
    for (int i = 0; i < 5; i++)
        if (tensor_present(*range[i]))
            range[i]->data = ((Tensor *)((char *)m->weight[0] + member[i]))->data;
    m->ctx.workspace = m->workspace.data;
    m->ctx.workspace_bytes = tensor_bytes(m->workspace);
    m->ctx.state = m->state.data;
    return plan_verify(&m->plan, m->persistent, m->step, e);
}

void model_batch_turn(Model *m)
{
    Tensor tokens = m->tokens, targets = m->targets;
    if (!tensor_present(m->next_tokens))
        return;
    m->tokens = m->next_tokens;
    m->targets = m->next_targets;
    m->next_tokens = tokens;
    m->next_targets = targets;
}

void model_free(Model *m)
{
    if (m->persistent)
        m->ctx.device->memory_give(m->persistent, m->plan.persistent_bytes);
    if (m->step)
        m->ctx.device->memory_give(m->step, m->plan.step_bytes);
    plan_free(&m->plan);
    free(m->block);
    free(m->weight);
    free((void *)m->adam.decay);
    free(m->acts);
    free(m->again);
    free(m->grad);
    *m = (Model){0};
}
