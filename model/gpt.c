/* GPT-2: a pre-norm transformer with learned positions, tanh GELU and a head tied to the token embedding
 * (Radford et al. 2019; Vaswani et al. 2017).
 *
 *   x        = wte[token] + wpe[position]
 *   x        = x + attn_proj(attention(c_attn(ln_1(x))))       for each block
 *   x        = x + mlp_proj(gelu(c_fc(ln_2(x))))
 *   logits   = ln_f(x) wte'
 *
 * The sum of a branch into the residual stream and the norm that reads the sum are one pass over memory, so each block starts
 * by adding what the one before it left in its mlp_branch. The backward is the same lines from the last to the first. */
#include "model/model.h"

static Dropout drop(const Model *m, Phase phase, RandomPurpose purpose, int layer)
{
    return (Dropout){phase == PHASE_EVALUATION || phase == PHASE_SAMPLING ? 0 : (float)m->config.dropout, purpose, layer};
}

static AttentionShape attention_shape(const Model *m, int64_t B, int64_t T)
{
    const ModelConfig *f = &m->config;
    return (AttentionShape){B, T, f->n_head, f->n_kv_head, f->n_embd / f->n_head};
}

/* ---- Forward ------------------------------------------------------------------------------------------------------- */

static void linear(Ctx *c, Tensor y, Tensor x, const Linear *l)
{
    linear_forward(c, y, x, l->w.value, l->b.value);
}

/* Block l into the activations *s, up to its last projection. `before` is the block before it, whose last sum is made here; NULL:
 * x_in is there already. */
static void block_forward(Model *m, int l, Phase phase, const BlockActs *s, const BlockActs *before)
{
    Ctx *c = &m->ctx;
    const Block *w = &m->block[l];
    c->layer = l;

    if (before) /* x_in = x_mid + mlp_branch of the block before, and its norm */
        residual_norm_forward(c, s->x_in, s->ln_1, s->stat_1, before->x_mid, before->mlp_branch, w->ln_1.w.value, w->ln_1.b.value,
                              drop(m, phase, RANDOM_MLP_RESIDUAL, l - 1));
    else
        norm_forward(c, s->ln_1, s->stat_1, s->x_in, w->ln_1.w.value, w->ln_1.b.value);
    linear(c, s->qkv, s->ln_1, &w->c_attn);
    attention_forward(c, attention_shape(m, m->run.batch_size, m->run.block_size), s->att, s->lse, s->qkv,
                      drop(m, phase, RANDOM_ATTENTION_DROPOUT, l));
    linear(c, s->att_branch, s->att, &w->attn_proj);
    residual_norm_forward(c, s->x_mid, s->ln_2, s->stat_2, s->x_in, s->att_branch, w->ln_2.w.value, w->ln_2.b.value,
                          drop(m, phase, RANDOM_ATTENTION_RESIDUAL, l));
    linear(c, s->fc, s->ln_2, &w->c_fc);
    gelu_forward(c, s->act, s->fc);
}

/* What the MLP of block l adds to the residual stream; the backward of the block itself does not need it. */
static void block_forward_end(Model *m, int l, const BlockActs *s)
{
    linear(&m->ctx, s->mlp_branch, s->act, &m->block[l].mlp_proj);
}

void model_forward(Model *m, Phase phase)
{
    Ctx *c = &m->ctx;
    int L = (int)m->config.n_layer;
    const BlockActs *last = &m->acts[L - 1];
    c->phase = phase;
    c->layer = -1;
    embedding_forward(c, m->acts[0].x_in, m->tokens, m->wte.value, m->wpe.value, 0, drop(m, phase, RANDOM_EMBEDDING_DROPOUT, 0));
    for (int l = 0; l < L; l++) {
        block_forward(m, l, phase, &m->acts[l], l > 0 ? &m->acts[l - 1] : NULL);
        block_forward_end(m, l, &m->acts[l]);
    }
    c->layer = -1;
    residual_norm_forward(c, m->x_final, m->ln_f_out, m->stat_f, last->x_mid, last->mlp_branch, m->ln_f.w.value, m->ln_f.b.value,
                          drop(m, phase, RANDOM_MLP_RESIDUAL, L - 1));
}

void model_evaluate(Model *m)
{
    model_forward(m, PHASE_EVALUATION);
    head_loss_forward(&m->ctx, m->losses, m->ln_f_out, m->wte.value, m->targets, m->logits, m->config.vocab_size);
}

/* ---- Backward ------------------------------------------------------------------------------------------------------ */

static void linear_back(Ctx *c, Tensor dx, Tensor dy, Tensor x, const Linear *l)
{
    linear_backward(c, dx, l->w.grad, l->b.grad, dy, x, l->w.value);
}

/* The gradient of a branch is that of the sum it was added to, unless dropout stands between: then it has its own tensor. */
static Tensor branch_gradient(const Model *m, Tensor own)
{
    return tensor_present(own) ? own : m->dx;
}

/* What the backward of block l reads: what the forward kept, and the rest made again. */
static BlockActs acts_for_backward(Model *m, int l)
{
    BlockActs s = m->acts[l];
    int rows;
    const ActRow *row = recompute_table(&rows);
    for (int i = 0; i < rows; i++)
        if (recompute_drops(&row[i], m->run.recompute, m->run.recompute_every, l))
            *block_act(&s, &row[i]) = *block_act(&m->again[l], &row[i]);
    return s;
}

/* Makes again what the recompute level did not keep of block l. At level `block` that is the forward itself, from the last input
 * that was kept: the blocks up to the next kept input in one go, when their backward begins. */
static void block_remake(Model *m, int l)
{
    Ctx *c = &m->ctx;
    const Block *w = &m->block[l];
    int every = (int)m->run.recompute_every, last = (int)m->config.n_layer - 1;
    BlockActs s = acts_for_backward(m, l), before;
    c->phase = PHASE_RECOMPUTE;
    c->layer = l;
    if (m->run.recompute == RECOMPUTE_BLOCK) {
        bool begins = l == last || l % every == every - 1;
        for (int k = l - l % every; begins && k <= l; k++, before = s) {
            s = acts_for_backward(m, k);
            block_forward(m, k, PHASE_RECOMPUTE, &s, k % every ? &before : NULL);
            if (k < l)
                block_forward_end(m, k, &s);
        }
    } else if (m->run.recompute >= RECOMPUTE_NORM) {
        norm_forward(c, s.ln_1, s.stat_1, s.x_in, w->ln_1.w.value, w->ln_1.b.value);
        norm_forward(c, s.ln_2, s.stat_2, s.x_mid, w->ln_2.w.value, w->ln_2.b.value);
        gelu_forward(c, s.act, s.fc);
    }
    if (m->run.recompute == RECOMPUTE_ATTENTION) {
        linear(c, s.qkv, s.ln_1, &w->c_attn);
        attention_forward(c, attention_shape(m, m->run.batch_size, m->run.block_size), s.att, s.lse, s.qkv,
                          drop(m, PHASE_RECOMPUTE, RANDOM_ATTENTION_DROPOUT, l));
    }
    c->phase = PHASE_BACKWARD;
}

/* m->dx comes in as the gradient of the residual stream that leaves block l and goes out as that of its x_in. */
static void block_backward(Model *m, int l)
{
    Ctx *c = &m->ctx;
    const Block *w = &m->block[l];
    const BlockActs kept = acts_for_backward(m, l), *s = &kept;
    const BlockGrads *d = &m->grad[l], *before = d - 1;
    c->layer = l;

    linear_gelu_backward(c, d->fc, w->mlp_proj.w.grad, w->mlp_proj.b.grad, branch_gradient(m, d->mlp_branch), s->act,
                         w->mlp_proj.w.value, s->fc);
    linear_back(c, d->ln_2, d->fc, s->ln_2, &w->c_fc);
    residual_norm_backward(c, m->dx, d->att_branch, w->ln_2.w.grad, w->ln_2.b.grad, m->dx, d->ln_2, s->x_mid, s->stat_2,
                           w->ln_2.w.value, drop(m, PHASE_BACKWARD, RANDOM_ATTENTION_RESIDUAL, l));
    linear_back(c, d->att, branch_gradient(m, d->att_branch), s->att, &w->attn_proj);
    attention_backward(c, attention_shape(m, m->run.batch_size, m->run.block_size), d->qkv, d->att, s->att, s->lse, s->qkv,
                       drop(m, PHASE_BACKWARD, RANDOM_ATTENTION_DROPOUT, l));
    linear_back(c, d->ln_1, d->qkv, s->ln_1, &w->c_attn);
    residual_norm_backward(c, m->dx, l > 0 ? before->mlp_branch : TENSOR_NONE, w->ln_1.w.grad, w->ln_1.b.grad, m->dx, d->ln_1,
                           s->x_in, s->stat_1, w->ln_1.w.value, drop(m, PHASE_BACKWARD, RANDOM_MLP_RESIDUAL, l - 1));
}

void model_forward_backward(Model *m)
{
    Ctx *c = &m->ctx;
    int L = (int)m->config.n_layer;
    model_forward(m, PHASE_FORWARD);
    c->phase = PHASE_BACKWARD;
    head_loss_backward(c, m->dln_f_out, m->wte.grad, m->losses, m->ln_f_out, m->wte.value, m->targets, m->logits,
                       m->config.vocab_size);
    residual_norm_backward(c, m->dx, m->grad[L - 1].mlp_branch, m->ln_f.w.grad, m->ln_f.b.grad, TENSOR_NONE, m->dln_f_out,
                           m->x_final, m->stat_f, m->ln_f.w.value, drop(m, PHASE_BACKWARD, RANDOM_MLP_RESIDUAL, L - 1));
    for (int l = L - 1; l >= 0; l--) {
        block_remake(m, l);
        block_backward(m, l);
        if (m->watch)
            m->watch(m->watch_user, l);
    }
    c->layer = -1;
    embedding_backward(c, m->wte.grad, m->wpe.grad, m->dx, m->tokens, drop(m, PHASE_BACKWARD, RANDOM_EMBEDDING_DROPOUT, 0));
    micro_next(c);
}

/* ---- Optimizer ----------------------------------------------------------------------------------------------------- */

void model_gradients_zero(Model *m)
{
    m->ctx.phase = PHASE_OPTIMIZER;
    m->ctx.layer = -1;
    zero(&m->ctx, m->grads);
}

void model_update(Model *m)
{
    m->ctx.phase = PHASE_OPTIMIZER;
    m->ctx.layer = -1;
    grad_norm(&m->ctx, m->grads, (float)m->run.grad_clip, &m->adam);
    adamw(&m->ctx, m->values, m->masters, m->grads, m->m, m->v, &m->adam);
}

/* ---- Generation ---------------------------------------------------------------------------------------------------- */

/* The first `rows` rows of a decoder tensor that was sized for a whole chunk. */
static Tensor head_of(Tensor t, int64_t rows)
{
    t.shape[0] = rows;
    return t;
}

/* The same block, over new positions only: keys and values of the old ones are in the cache. x is updated in place. */
static void block_decode(Model *m, const Decoder *d, int l, int64_t n, int64_t first)
{
    Ctx *c = &m->ctx;
    const Block *w = &m->block[l];
    int64_t rows = d->x.shape[0];
    Tensor cache = {.dtype = d->cache.dtype, .ndim = 3, .shape = {d->cache.shape[1], d->cache.shape[2], d->cache.shape[3]}};
    cache.data = (char *)d->cache.data + (size_t)l * tensor_bytes(cache);
    Dropout none = {0};
    c->layer = l;
    if (l == 0)
        norm_forward(c, d->norm, d->stat, d->x, w->ln_1.w.value, w->ln_1.b.value);
    else
        residual_norm_forward(c, d->x, d->norm, d->stat, d->x, d->branch, w->ln_1.w.value, w->ln_1.b.value, none);
    linear(c, d->qkv, d->norm, &w->c_attn);
    attention_cached(c, attention_shape(m, rows / n, n), d->att, cache, d->qkv, first);
    linear(c, d->branch, d->att, &w->attn_proj);
    residual_norm_forward(c, d->x, d->norm, d->stat, d->x, d->branch, w->ln_2.w.value, w->ln_2.b.value, none);
    linear(c, d->fc, d->norm, &w->c_fc);
    gelu_forward(c, d->act, d->fc);
    linear(c, d->branch, d->act, &w->mlp_proj);
}

void model_decode(Model *m, int64_t n, int64_t first)
{
    Ctx *c = &m->ctx;
    Decoder d = m->decoder;
    int64_t S = m->run.sample_size, rows = S * n;
    Tensor *sized[] = {&d.x, &d.norm, &d.stat, &d.qkv, &d.att, &d.branch, &d.fc, &d.act};
    for (size_t i = 0; i < sizeof sized / sizeof *sized; i++)
        *sized[i] = head_of(*sized[i], rows);
    d.tokens.shape[1] = n;
    c->phase = PHASE_SAMPLING;
    c->layer = -1;
    embedding_forward(c, d.x, d.tokens, m->wte.value, m->wpe.value, first, (Dropout){0});
    for (int l = 0; l < (int)m->config.n_layer; l++)
        block_decode(m, &d, l, n, first);
    c->layer = -1;
    residual_norm_forward(c, d.x, d.norm, d.stat, d.x, d.branch, m->ln_f.w.value, m->ln_f.b.value, (Dropout){0});
    for (int64_t s = 0; s < S; s++) /* only the last position of each sequence says what comes next */
        head_logits(c, tensor_slice_rows(d.logits, s, 1), tensor_slice_rows(d.norm, s * n + n - 1, 1), m->wte.value);
}
