/* tally golden CASE_DIR --out DIR: the steps of a golden case, exactly as the case states them. For each optimizer step, for each
 * micro-batch: forward, loss, backward; then norm, clip, AdamW. Everything that the case lists is written to DIR, and compared
 * with the file of the same name in CASE_DIR when that is there. */
#include "tools/golden.h"
#include "tools/commands.h"

#include "base/json.h"
#include "base/options.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Largest errors allowed; relative. */
typedef struct Limits {
    double loss, grad_norm;
    double tensor;  /* L2 error of a gradient, of logits, of an activation                                      */
    double weights; /* of the whole model's change; 0: the case says it, by step, and for each tensor as well   */
} Limits;

typedef struct Run {
    GoldenCase g;
    Model m;
    StepState state; /* the host's copy */
    Limits limits;
    GoldenSet initial; /* weights before the first step */
    GoldenReport report;
    json_t *steps; /* for result.json */
    const char *out;
} Run;

/* ---- Limits -------------------------------------------------------------------------------------------------------- */

/* In 16 bits, and in TF32, all cases have the limits that follow from case g07: some two to four times the largest errors of
 * correct training with every parameter and activation rounded, or the operands of matrix products to TF32. A norm is off by no
 * more than the whole gradient is: there 2.4e-2, 2.3e-3 and 1.8e-3. */
static const Limits limits_bf16 = {3e-3, 4e-2, 8e-2, 0.25}, limits_fp16 = {5e-4, 1e-2, 1.5e-2, 0.1},
                    limits_tf32 = {5e-4, 1e-2, 1e-2, 0.1};

/* The loss scale in FP16 with which they were measured. */
enum { FP16_SCALE = 1024 };

/* The case's limits for float32; where it is silent, the floors that all cases share. Logits and activations have none of their
 * own and take the gradients': a plain float32 run of g01 is off by 3e-7 in activations and by 6e-7 in gradients. */
static bool limits_read(Limits *l, const GoldenCase *g, const Precision *p, Error *e)
{
    json_t *o = NULL;
    *l = p->act == DTYPE_BF16  ? limits_bf16
         : p->act == DTYPE_F16 ? limits_fp16
         : p->tf32             ? limits_tf32
                               : (Limits){.loss = 1e-6, .grad_norm = 1e-5, .tensor = 2e-5};
    if (p->act != DTYPE_F32 || p->tf32)
        return true;
    if (!json_get_object(g->root, "tolerance_float32", &o, false, e))
        return error_prefix(e, "%s/case.json", g->dir);
    return !o ||
           (json_get_double(o, "loss_rel", 0, 1, &l->loss, false, e) &&
            json_get_double(o, "grad_norm_rel", 0, 1, &l->grad_norm, false, e) &&
            json_get_double(o, "grad_rel_l2_per_tensor", 0, 1, &l->tensor, false, e)) ||
           error_prefix(e, "%s/case.json: tolerance_float32", g->dir);
}

/* Limits of the weights' change after a step: of each tensor, and of all together. In 16 bits a small tensor may be off by half
 * after Adam's first step and is not judged. */
static bool weight_limits(GoldenRule *rule, const Run *r, int64_t step, Error *e)
{
    json_t *o, *each, *all;
    char name[24];
    const GoldenCase *g = &r->g;
    rule->limit = (double)INFINITY;
    rule->limit_all = r->limits.weights;
    if (r->limits.weights > 0)
        return true;
    snprintf(name, sizeof name, "%" PRId64, step);
    return (json_get_object(g->root, "tolerance_float32", &o, true, e) &&
            json_get_object(o, "weight_delta_rel_l2_per_tensor", &each, true, e) &&
            json_get_double(each, name, 0, 10, &rule->limit, true, e) &&
            json_get_object(o, "weight_delta_rel_l2_all", &all, true, e) &&
            json_get_double(all, name, 0, 10, &rule->limit_all, true, e)) ||
           error_prefix(e, "%s/case.json: limits of the weights' change", g->dir);
}

/* Limit of Adam's moments after a step. After the first they are as good as the gradient. After that a gradient is taken at
 * weights that are off themselves, as far as their limit allows, and follows: measured, by 0.14 of the weights' relative error.
 */
static double moment_limit(const Run *r, int64_t step)
{
    char name[24];
    snprintf(name, sizeof name, "%" PRId64, step);
    const json_t *all = json_object_get(json_object_get(r->g.root, "tolerance_float32"), "weight_delta_rel_l2_all");
    double weights = r->limits.weights > 0 ? r->limits.weights : json_number_value(json_object_get(all, name));
    return r->limits.tensor + (step > 1 ? 0.2 * weights : 0);
}

/* ---- Dumps --------------------------------------------------------------------------------------------------------- */

/* Copies one member (value, grad, m, v) of all weights to the host, as files have it: without rows that pad the vocabulary, and
 * of a value its master where there is one. */
static bool member_copy(Model *m, size_t member, const char *suffix, GoldenSet *set, Error *e)
{
    for (int i = 0; i < m->n_weights; i++) {
        Weight *w = m->weight[i];
        bool master = member == offsetof(Weight, value) && tensor_present(w->master);
        Tensor t = master ? w->master : *(Tensor *)((char *)w + member);
        char name[sizeof w->name + 8];
        snprintf(name, sizeof name, "%s%s", w->name, suffix);
        if (w == &m->wte)
            t.shape[0] = m->config.vocab_size;
        float *values = golden_set_add(set, name, t.ndim, t.shape, e);
        if (!values)
            return false;
        tensor_fetch(m, t, 0, tensor_count(t), values);
    }
    return !e->set;
}

/* The gradients as the case states them: what a loss scale has multiplied them by is divided out. */
static bool gradients_copy(Run *r, GoldenSet *set, Error *e)
{
    bool ok = member_copy(&r->m, offsetof(Weight, grad), "", set, e);
    for (size_t i = 0; i < set->count; i++)
        for (int64_t k = 0; k < golden_entry_count(&set->entry[i]); k++)
            ((float *)set->entry[i].data)[k] /= r->state.scaler.scale;
    return ok;
}

/* Writes the set as OUT/file and compares it with the case's. */
static bool dump(Run *r, const GoldenSet *set, const char *file, const GoldenRule *rule, Error *e)
{
    char path[PATH_SIZE];
    return path_join(path, r->out, file, e) && safetensors_write(path, set->entry, set->count, NULL, e) &&
           golden_compare(&r->report, &r->g, set, file, rule, e);
}

/* Keeps rows 0, s, 2s, ... of the gradients for which the case gives a stride s. */
static bool rows_thin(const GoldenCase *g, GoldenSet *set, Error *e)
{
    json_t *strides = NULL;
    if (!json_get_object(g->root, "grad_row_stride", &strides, false, e))
        return error_prefix(e, "%s/case.json", g->dir);
    for (size_t i = 0; strides && i < set->count; i++) {
        SafeEntry *t = &set->entry[i];
        int64_t stride = 1, kept = 0;
        if (!json_get_int(strides, t->name, 1, INT32_MAX, &stride, false, e))
            return error_prefix(e, "%s/case.json: grad_row_stride", g->dir);
        if (t->ndim != 2 || stride == 1)
            continue;
        float *rows = (float *)t->data;
        for (int64_t row = 0; row < t->shape[0]; row += stride, kept++)
            memmove(rows + kept * t->shape[1], rows + row * t->shape[1], (size_t)t->shape[1] * sizeof *rows);
        t->shape[0] = kept;
    }
    return true;
}

static bool gradients_dump(Run *r, Error *e)
{
    GoldenSet set = {0};
    GoldenRule rule = {.kind = "gradients", .limit = r->limits.tensor, .noise_apart = true};
    bool ok = gradients_copy(r, &set, e) && golden_compare_norms(&r->report, &r->g, &set, r->limits.tensor, e) &&
              rows_thin(&r->g, &set, e) && dump(r, &set, "grads.safetensors", &rule, e);
    golden_set_free(&set);
    return ok;
}

static bool weights_dump(Run *r, const char *file, int64_t step, Error *e)
{
    GoldenSet set = {0};
    char kind[48], path[PATH_SIZE];
    snprintf(kind, sizeof kind, "weights, step %" PRId64, step);
    GoldenRule rule = {.kind = kind, .initial = &r->initial};
    bool ok = path_join(path, r->g.dir, file, e) && (!file_exists(path) || weight_limits(&rule, r, step, e)) &&
              member_copy(&r->m, offsetof(Weight, value), "", &set, e) && dump(r, &set, file, &rule, e);
    golden_set_free(&set);
    return ok;
}

static bool moments_dump(Run *r, const char *file, int64_t step, Error *e)
{
    GoldenSet set = {0};
    char kind[48];
    snprintf(kind, sizeof kind, "moments, step %" PRId64, step);
    GoldenRule rule = {.kind = kind, .limit = moment_limit(r, step)};
    bool ok = member_copy(&r->m, offsetof(Weight, m), ".m", &set, e) && member_copy(&r->m, offsetof(Weight, v), ".v", &set, e) &&
              dump(r, &set, file, &rule, e);
    golden_set_free(&set);
    return ok;
}

/* An activation [B*T, width] as [B, T, width]. */
static bool act_copy(Run *r, GoldenSet *set, int layer, const char *name, Tensor t, Error *e)
{
    char full[64];
    if (layer < 0)
        snprintf(full, sizeof full, "%s", name);
    else
        snprintf(full, sizeof full, "h.%d.%s", layer, name);
    float *values = golden_set_add(set, full, 3, (int64_t[]){r->g.B, r->g.T, tensor_width(t)}, e);
    if (!values)
        return false;
    tensor_fetch(&r->m, t, 0, tensor_count(t), values);
    return !e->set;
}

/* The activations that a forward has left. "attn" is the heads' output, before c_proj. */
static bool acts_dump(Run *r, Error *e)
{
    const Model *m = &r->m;
    int L = (int)m->config.n_layer;
    GoldenSet set = {0};
    bool ok = act_copy(r, &set, -1, "embed", m->acts[0].x_in, e);
    for (int l = 0; ok && l < L; l++) {
        const BlockActs *s = &m->acts[l];
        ok = act_copy(r, &set, l, "ln_1", s->ln_1, e) && act_copy(r, &set, l, "attn", s->att, e) &&
             act_copy(r, &set, l, "resid_attn", s->x_mid, e) && act_copy(r, &set, l, "mlp.c_fc", s->fc, e) &&
             act_copy(r, &set, l, "resid_mlp", l + 1 < L ? s[1].x_in : m->x_final, e);
    }
    GoldenRule rule = {.kind = "activations", .limit = r->limits.tensor};
    ok = ok && act_copy(r, &set, -1, "ln_f", m->ln_f_out, e) && dump(r, &set, "acts.safetensors", &rule, e);
    golden_set_free(&set);
    return ok;
}

/* Logits of the forward that has just been, in the chunks of rows that the model has room for; [B, T, V]. */
static bool logits_dump(Run *r, Error *e)
{
    Model *m = &r->m;
    int64_t V = m->config.vocab_size, Vp = m->logits.shape[1], N = r->g.B * r->g.T, chunk = m->logits.shape[0];
    GoldenSet set = {0};
    GoldenRule rule = {.kind = "logits", .limit = r->limits.tensor};
    float *values = golden_set_add(&set, "logits", 3, (int64_t[]){r->g.B, r->g.T, V}, e);
    float *rows = memory_get(e, (size_t)(chunk * Vp), sizeof *rows, "a chunk of logits");
    for (int64_t first = 0; values && rows && first < N; first += chunk) {
        int64_t n = N - first < chunk ? N - first : chunk;
        Tensor logits = tensor_slice_rows(m->logits, 0, n);
        head_logits(&m->ctx, logits, tensor_slice_rows(m->ln_f_out, first, n), m->wte.value);
        copy_out(&m->ctx, rows, logits);
        for (int64_t i = 0; i < n; i++)
            memcpy(values + (first + i) * V, rows + i * Vp, (size_t)V * sizeof *values);
    }
    bool ok = values && rows && !e->set && dump(r, &set, "logits.safetensors", &rule, e);
    free(rows);
    golden_set_free(&set);
    return ok;
}

/* ---- Steps --------------------------------------------------------------------------------------------------------- */

static void batch_copy(Run *r, int64_t step, int64_t micro)
{
    int64_t at = (step * r->g.micro_batches + micro) * r->g.B * r->g.T;
    copy_in(&r->m.ctx, r->m.tokens, r->g.tokens + at);
    copy_in(&r->m.ctx, r->m.targets, r->g.targets + at);
}

/* A forward of its own, before the first step: activations and logits of its first micro-batch. */
static bool forward_dump(Run *r, Error *e)
{
    copy_in(&r->m.ctx, r->m.state, &r->state);
    batch_copy(r, 0, 0);
    model_forward(&r->m, PHASE_FORWARD);
    return !e->set && (!golden_case_lists(&r->g, "acts.safetensors") || acts_dump(r, e)) && logits_dump(r, e);
}

static bool step_dump(Run *r, int64_t step, Error *e)
{
    char weights[64], adam[64];
    snprintf(weights, sizeof weights, "weights_step%" PRId64 ".safetensors", step);
    snprintf(adam, sizeof adam, "adam_step%" PRId64 ".safetensors", step);
    return (!golden_case_lists(&r->g, weights) || weights_dump(r, weights, step, e)) &&
           (!golden_case_lists(&r->g, adam) || moments_dump(r, adam, step, e));
}

/* One optimizer step, 0-based; without hyper-parameters the norm is taken and nothing is updated. */
static bool step_run(Run *r, int64_t step, Error *e)
{
    Model *m = &r->m;
    int64_t counted = r->g.counted[step];
    r->state.step = step;
    r->state.learning_rate = (float)schedule_rate(&r->g.schedule, step);
    r->state.inverse_count = counted ? (float)(1 / (double)counted) : 0;
    r->state.loss_sum = 0;
    model_gradients_zero(m);
    for (int64_t micro = 0; micro < r->g.micro_batches; micro++) {
        r->state.micro = (int32_t)micro;
        copy_in(&m->ctx, m->state, &r->state);
        batch_copy(r, step, micro);
        model_forward_backward(m);
        copy_out(&m->ctx, &r->state, m->state);
    }
    if (e->set || (step == 0 && !gradients_dump(r, e)))
        return false;
    if (r->g.train)
        model_update(m);
    else
        grad_norm(&m->ctx, m->grads, 0, &m->adam);
    copy_out(&m->ctx, &r->state, m->state);
    json_t *row = json_pack("{s:I, s:f, s:I, s:f, s:f, s:f}", "step", (json_int_t)(step + 1), "loss",
                            counted ? r->state.loss_sum / (double)counted : 0.0, "n_valid", (json_int_t)counted, "grad_norm",
                            r->state.grad_norm, "clip_coef", (double)r->state.clip_coef, "lr",
                            r->g.train ? schedule_rate(&r->g.schedule, step) : 0.0);
    if (e->set || !row || json_array_append_new(r->steps, row) != 0)
        return error_set(e, "step %" PRId64 ": a loss or norm that is not finite, or out of memory", step + 1);
    return step_dump(r, step + 1, e);
}

/* |got - expected| / |expected|; when expected is 0, |got|. */
static double relative(double got, double expected)
{
    return fabs(got - expected) / (expected != 0 ? fabs(expected) : 1);
}

/* The scalars of all steps against the case's "steps": for each kind the worst step. */
static bool steps_compare(Run *r, Error *e)
{
    const struct {
        const char *name;
        double limit;
    } kinds[] = {{"loss", r->limits.loss},
                 {"grad_norm", r->limits.grad_norm},
                 {"clip_coef", r->limits.grad_norm},
                 {"lr", 1e-9 /* double arithmetic on both sides; near the end of a cosine most digits cancel */}};
    const json_t *expected = json_object_get(r->g.root, "steps");
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        double worst = -1;
        char where[32] = "";
        for (size_t i = 0; i < json_array_size(r->steps) && i < json_array_size(expected); i++) {
            double want = -1, got = json_number_value(json_object_get(json_array_get(r->steps, i), kinds[k].name));
            if (!json_get_double(json_array_get(expected, i), kinds[k].name, 0, 1e300, &want, false, e))
                return error_prefix(e, "%s/case.json: steps: %zu", r->g.dir, i);
            if (want >= 0 && relative(got, want) > worst) {
                worst = relative(got, want);
                snprintf(where, sizeof where, "step %zu", i + 1);
            }
        }
        if (worst >= 0)
            golden_report_row(&r->report, kinds[k].name, where, worst, kinds[k].limit);
    }
    return true;
}

static bool result_write(Run *r, Error *e)
{
    char path[PATH_SIZE];
    json_t *root = json_pack("{s:O}", "steps", r->steps);
    bool ok = root ? path_join(path, r->out, "result.json", e) && json_write(path, root, e) : error_set(e, "out of memory");
    json_decref(root);
    return ok;
}

/* ---- The command --------------------------------------------------------------------------------------------------- */

typedef struct Options {
    OptionWords dir;
    const char *out, *device, *precision;
    int64_t threads;
    Precision policy; /* that precision names */
} Options;

#define AT_TYPE Options
static const OptionRow rows[] = {
    OPTION(0, NULL, OPTION_ARGUMENTS, dir, 1, 1, "CASE_DIR", "CASE_DIR and --out DIR are needed"),
    OPTION('o', "out", OPTION_WORD, out, 0, 0, "DIR",
           "Where result.json, gradients, logits, weights go; made when it doesn't exist"),
    OPTION('d', "device", OPTION_WORD, device, 0, 0, "NAME", "cpu (the default), cuda (the first GPU) or cuda:N"),
    OPTION('p', "precision", OPTION_WORD, precision, 0, 0, "NAME", "fp32 (the default), tf32 (on a GPU), bf16 or fp16"),
    OPTION('t', "threads", OPTION_INT, threads, 0, 4096, "N", "Threads; 0, the default: one per core"),
};

/* The dumps would replace the expected values that they are compared with. */
static bool out_check(const Options *o, Error *e)
{
    char *in = realpath(*o->dir.word, NULL), *out = realpath(o->out, NULL);
    bool same = in && out && strcmp(in, out) == 0;
    free(in);
    free(out);
    return !same || error_usage(e, "--out: is the case's own folder, whose expected values would be overwritten; name another");
}

static bool model_make(Run *r, const Options *o, Error *e)
{
    Target target;
    const Device *device = device_open(o->device, (int)o->threads, &target, e);
    r->g.run.precision = o->policy;
    return device && model_plan(&r->m, &r->g.config, &r->g.run, &target, e) && model_allocate(&r->m, device, e) &&
           golden_case_weights(&r->g, &r->m, e) && member_copy(&r->m, offsetof(Weight, value), "", &r->initial, e);
}

static bool case_run(Run *r, const Options *o, Error *e)
{
    if (!golden_case_read(&r->g, *o->dir.word, e) || !limits_read(&r->limits, &r->g, &o->policy, e) || !dir_make(o->out, e) ||
        !out_check(o, e) || !model_make(r, o, e))
        return false;
    if (!(r->steps = json_array()))
        return error_set(e, "out of memory");
    r->state = (StepState){.scaler.scale = o->policy.act == DTYPE_F16 ? FP16_SCALE : 1};
    printf("%-28s %-32s %10s %10s\n", "compared", "worst", "error", "limit");
    if (!forward_dump(r, e))
        return false;
    for (int64_t step = 0; step < r->g.steps; step++)
        if (!step_run(r, step, e))
            return false;
    return steps_compare(r, e) && result_write(r, e);
}

bool golden_command(int argc, char **argv, Error *e)
{
    static const OptionTable options = {
        rows, sizeof rows / sizeof *rows, "CASE_DIR --out DIR",
        "Trains a golden case and compares loss, gradients, logits, activations, weights and moments "
        "with the expected values in CASE_DIR, each within the case's tolerance, or in 16 bits within what "
        "case g07 has measured of them.\v"
        "Exit code: 0 all within tolerance; 1 not, the worst tensor is named; 2 no such case can be run."};
    Options o = {.device = "cpu", .precision = "fp32"};
    Run r = {0};
    bool ok = options_parse(&options, &o, argc, argv, e) && (o.out || error_usage(e, "CASE_DIR and --out DIR are needed")) &&
              precision_parse(o.precision, &o.policy, e);
    r.out = o.out;
    if (ok && case_run(&r, &o, e) && r.report.failures)
        error_set(e, "%s: %s (%" PRId64 " in all)", r.g.dir, r.report.text, r.report.failures);
    json_decref(r.steps);
    golden_set_free(&r.initial);
    golden_case_free(&r.g);
    model_free(&r.m);
    return !e->set;
}
