/* A golden case: case.json says what to run, batches.safetensors has the tokens, the weights are a file or a formula. */
#include "tools/golden.h"

#include "base/json.h"
#include "train/checkpoint.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SIZE = 1 << 24 }; /* of any dimension that a case states */

/* ---- case.json ----------------------------------------------------------------------------------------------------- */

static bool size_get(const json_t *object, const char *field, int64_t *out, Error *e)
{
    return json_get_int(object, field, 1, MAX_SIZE, out, true, e);
}

static bool batch_read(GoldenCase *g, Error *e)
{
    json_t *batch;
    if (!json_get_object(g->root, "batch", &batch, true, e))
        return false;
    bool ok = size_get(batch, "steps", &g->steps, e) && size_get(batch, "micro_batches", &g->micro_batches, e) &&
              size_get(batch, "B", &g->B, e) && size_get(batch, "T", &g->T, e);
    g->run.batch_size = g->B;
    g->run.block_size = g->T;
    return ok || error_prefix(e, "batch");
}

static bool schedule_read(Schedule *s, const json_t *hyper, Error *e)
{
    json_t *o = NULL;
    *s = (Schedule){.kind = SCHEDULE_CONSTANT};
    if (!json_get_double(hyper, "lr", 0, 1e6, &s->lr, true, e) || !json_get_object(hyper, "schedule", &o, false, e))
        return false;
    if (!o)
        return true;
    s->kind = SCHEDULE_COSINE;
    if (!json_get_int(o, "warmup_steps", 0, MAX_SIZE, &s->warmup, true, e) ||
        !json_get_int(o, "total_steps", 1, MAX_SIZE, &s->end, true, e) ||
        !json_get_double(o, "min_lr", 0, 1e6, &s->min_lr, true, e))
        return error_prefix(e, "schedule");
    return s->warmup < s->end ||
           error_set(e, "schedule: warmup_steps: is %" PRId64 "; must be less than total_steps = %" PRId64, s->warmup, s->end);
}

static bool hyper_read(GoldenCase *g, Error *e)
{
    json_t *hyper = NULL;
    if (!json_get_object(g->root, "hyper", &hyper, false, e))
        return false;
    g->train = hyper != NULL;
    if (!hyper)
        return true;
    return (schedule_read(&g->schedule, hyper, e) && json_get_double(hyper, "beta1", 0, 1, &g->run.beta1, true, e) &&
            json_get_double(hyper, "beta2", 0, 1, &g->run.beta2, true, e) &&
            json_get_double(hyper, "eps", 0, 1, &g->run.eps, true, e) &&
            json_get_double(hyper, "weight_decay", 0, 1e6, &g->run.weight_decay, true, e) &&
            json_get_double(hyper, "clip", 0, 1e30, &g->run.grad_clip, true, e)) ||
           error_prefix(e, "hyper");
}

bool golden_case_lists(const GoldenCase *g, const char *file)
{
    return json_object_get(json_object_get(g->root, "files"), file) != NULL;
}

/* Every weights_stepN and adam_stepN that is listed must be one that the run will come by. */
static bool files_check(const GoldenCase *g, Error *e)
{
    json_t *files = NULL;
    const char *name;
    json_t *value;
    if (!json_get_object(g->root, "files", &files, false, e))
        return false;
    json_object_foreach(files, name, value)
    {
        char expected[64];
        long long n = 0;
        const char *kind = strncmp(name, "adam_step", 9) == 0 ? "adam" : "weights";
        if (sscanf(name, "weights_step%lld", &n) != 1 && sscanf(name, "adam_step%lld", &n) != 1)
            continue;
        snprintf(expected, sizeof expected, "%s_step%lld.safetensors", kind, n);
        if (strcmp(name, expected) != 0 || n < 1 || n > g->steps)
            return error_set(e, "files: %.100s: the case has steps 1 to %" PRId64, name, g->steps);
        if (!g->train)
            return error_set(e, "hyper: is missing; %.100s needs an optimizer", name);
    }
    return true;
}

/* What the comparison reads later must have its form now: a scalar for each step, columns for each noisy tensor. */
static bool expectations_check(const GoldenCase *g, Error *e)
{
    const json_t *steps = json_object_get(g->root, "steps"), *noise = json_object_get(g->root, "noise_only");
    if (steps && (int64_t)json_array_size(steps) != g->steps)
        return error_set(e, "steps: needs to be a list of the %" PRId64 " steps that batch states", g->steps);
    if (noise && !json_is_array(noise))
        return error_set(e, "noise_only: needs to be a list");
    for (size_t i = 0; i < json_array_size(noise); i++) {
        const json_t *entry = json_array_get(noise, i), *cols = json_object_get(entry, "cols");
        json_int_t first = json_integer_value(json_array_get(cols, 0)), last = json_integer_value(json_array_get(cols, 1));
        if (!json_is_string(json_object_get(entry, "name")) || json_array_size(cols) != 2 || first < 0 || last <= first)
            return error_set(e, "noise_only: %zu: needs a name and cols, a first column and the one after the last", i);
    }
    return true;
}

/* The model of config.json; case.json repeats its sizes. */
static bool config_read(GoldenCase *g, Error *e)
{
    json_t *model = NULL;
    if (!model_config_load(g->dir, &g->config, e) || !json_get_object(g->root, "model", &model, false, e))
        return false;
    const struct {
        const char *name;
        int64_t value;
    } sizes[] = {{"n_layer", g->config.n_layer},
                 {"n_head", g->config.n_head},
                 {"n_embd", g->config.n_embd},
                 {"n_positions", g->config.block_size},
                 {"vocab_size", g->config.vocab_size}};
    for (size_t i = 0; model && i < sizeof sizes / sizeof *sizes; i++) {
        int64_t value = sizes[i].value;
        if (!json_get_int(model, sizes[i].name, 1, INT32_MAX, &value, false, e))
            return error_prefix(e, "model");
        if (value != sizes[i].value)
            return error_set(e, "model: %s: is %" PRId64 ", in config.json %" PRId64, sizes[i].name, value, sizes[i].value);
    }
    if (model && !json_get_bool(model, "bias", &g->config.bias, false, e)) /* which Hugging Face's form cannot say */
        return error_prefix(e, "model");
    g->config.dropout = 0; /* the cases have none, whatever Hugging Face's default is */
    return g->T <= g->config.block_size ||
           error_set(e, "batch: T: is %" PRId64 "; the model has %" PRId64 " positions", g->T, g->config.block_size);
}

/* ---- Batches ------------------------------------------------------------------------------------------------------- */

/* [steps, micro_batches, B, T] of the file's tensor, copied; NULL after recording an error. */
static int32_t *ids_read(const GoldenCase *g, const SafeTensors *f, const char *name, Error *e)
{
    const SafeTensor *t = safetensors_find(f, name);
    const int64_t shape[4] = {g->steps, g->micro_batches, g->B, g->T};
    bool ok = t && t->dtype == SAFE_I32 && t->ndim == 4 && memcmp(t->shape, shape, sizeof shape) == 0;
    if (!ok) {
        error_set(e, "%s: needs to be there as I32 [%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 "], the sizes in case.json",
                  name, g->steps, g->micro_batches, g->B, g->T);
        return NULL;
    }
    int32_t *ids = memory_get(e, t->bytes / sizeof *ids, sizeof *ids, name);
    if (ids)
        memcpy(ids, t->data, t->bytes);
    return ids;
}

/* Every id must be a token; a target may also be the ignore index, which is -1 from here on. */
static bool ids_check(GoldenCase *g, Error *e)
{
    int64_t ignore = -1, rows = g->micro_batches * g->B * g->T, V = g->config.vocab_size;
    if (!json_get_int(json_object_get(g->root, "batch"), "ignore_index", INT32_MIN, -1, &ignore, false, e))
        return error_prefix(e, "case.json: batch");
    for (int64_t i = 0; i < g->steps * rows; i++) {
        if (g->targets[i] == ignore)
            g->targets[i] = -1;
        if (g->tokens[i] < 0 || g->tokens[i] >= V)
            return error_set(e, "tokens: element %" PRId64 " is %d; the vocabulary has %" PRId64, i, g->tokens[i], V);
        if (g->targets[i] < -1 || g->targets[i] >= V)
            return error_set(e, "targets: element %" PRId64 " is %d; the vocabulary has %" PRId64, i, g->targets[i], V);
        g->counted[i / rows] += g->targets[i] >= 0;
    }
    return true;
}

static bool batches_read(GoldenCase *g, Error *e)
{
    char path[PATH_SIZE];
    SafeTensors f;
    if (!path_join(path, g->dir, "batches.safetensors", e) || !safetensors_open(&f, path, e))
        return false;
    g->tokens = ids_read(g, &f, "tokens", e);
    g->targets = g->tokens ? ids_read(g, &f, "targets", e) : NULL;
    g->counted = memory_get(e, (size_t)g->steps, sizeof *g->counted, "counts of targets");
    safetensors_close(&f);
    return (g->targets && g->counted && ids_check(g, e)) || error_prefix(e, "%s", path);
}

bool golden_case_read(GoldenCase *g, const char *dir, Error *e)
{
    char path[PATH_SIZE];
    const char *kind;
    *g = (GoldenCase){.run = model_run_default()};
    g->run.grad_clip = 0;
    if (!path_join(path, dir, "case.json", e))
        return false;
    snprintf(g->dir, sizeof g->dir, "%s", dir);
    if (!(g->root = json_read(path, e)))
        return false;
    if (!json_get_string(g->root, "kind", &kind, true, e))
        return error_prefix(e, "%s", path);
    if (strcmp(kind, "gpt2") != 0)
        return error_usage(e, "%s: kind: is \"%.60s\"; only \"gpt2\" can be run", path, kind);
    if (!batch_read(g, e) || !hyper_read(g, e) || !files_check(g, e) || !expectations_check(g, e) || !config_read(g, e))
        return error_prefix(e, "%s", path);
    return batches_read(g, e);
}

void golden_case_free(GoldenCase *g)
{
    json_decref(g->root);
    free(g->tokens);
    free(g->targets);
    free(g->counted);
    *g = (GoldenCase){0};
}

/* ---- Initial weights ----------------------------------------------------------------------------------------------- */

/* The 64-bit FNV-1a hash of a name. */
static uint64_t fnv1a64(const char *name)
{
    uint64_t h = 0xCBF29CE484222325u;
    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 0x100000001B3u;
    return h;
}

/* Element i of tensor `name`: offset + k 2^-15 scale, with k the top 16 bits, less 2^15, of a splitmix64 step. Exact in float32.
 */
static float hash_value(uint64_t base, int64_t i, double scale, double offset)
{
    uint64_t z = base + (uint64_t)(i + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    return (float)(offset + (double)((int64_t)(z >> 48) - 32768) * (scale * 0x1p-15));
}

/* The part of a weight that files have: rows that only pad the vocabulary are nowhere but in memory, and stay 0. */
static Tensor part_on_file(const Model *m, const Weight *w)
{
    Tensor t = w->value;
    if (w == &m->wte)
        t.shape[0] = m->config.vocab_size;
    return t;
}

/* The entry {name, shape, scale, offset} of init.tensors for a weight, or NULL. */
static const json_t *hash_entry(const json_t *list, const char *name)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *other = json_string_value(json_object_get(json_array_get(list, i), "name"));
        if (other && strcmp(other, name) == 0)
            return json_array_get(list, i);
    }
    return NULL;
}

static bool weight_from_hash(const json_t *entry, int64_t seed, Model *m, const Weight *w, float *values, Error *e)
{
    double scale, offset;
    Tensor part = part_on_file(m, w);
    const json_t *shape = json_object_get(entry, "shape");
    bool fits = json_array_size(shape) == (size_t)part.ndim;
    for (int i = 0; i < part.ndim; i++)
        fits = fits && json_integer_value(json_array_get(shape, (size_t)i)) == part.shape[i];
    if (!fits)
        return error_set(e, "is missing, or has another shape than config.json makes it");
    if (!json_get_double(entry, "scale", -1e30, 1e30, &scale, true, e) ||
        !json_get_double(entry, "offset", -1e30, 1e30, &offset, true, e))
        return false;
    for (int64_t i = 0; i < tensor_count(part); i++)
        values[i] = hash_value((uint64_t)seed + fnv1a64(w->name), i, scale, offset);
    weight_store(m, w, 0, tensor_count(part), values);
    return true;
}

static bool weights_from_hash(const json_t *init, Model *m, float *values, Error *e)
{
    int64_t seed;
    if (!json_get_int(init, "seed", INT64_MIN, INT64_MAX, &seed, true, e))
        return error_prefix(e, "init");
    for (int i = 0; i < m->n_weights; i++) {
        const Weight *w = m->weight[i];
        if (!weight_from_hash(hash_entry(json_object_get(init, "tensors"), w->name), seed, m, w, values, e))
            return error_prefix(e, "init: tensors: %s", w->name);
    }
    return true;
}

/* The folder is laid out like a Hugging Face checkpoint, so its weights are read like any other's. */
static bool weights_from_file(const GoldenCase *g, const json_t *init, Model *m, Error *e)
{
    const char *file = "model.safetensors";
    if (!json_get_string(init, "file", &file, false, e))
        return error_prefix(e, "%s/case.json: init", g->dir);
    if (strcmp(file, "model.safetensors") != 0)
        return error_set(e, "%s/case.json: init: file: is \"%.100s\"; must be \"model.safetensors\"", g->dir, file);
    return checkpoint_load_weights(m, g->dir, e);
}

bool golden_case_weights(const GoldenCase *g, Model *m, Error *e)
{
    json_t *init;
    const char *kind;
    if (!json_get_object(g->root, "init", &init, true, e) || !json_get_string(init, "kind", &kind, true, e))
        return error_prefix(e, "%s/case.json", g->dir);
    if (strcmp(kind, "file") == 0)
        return weights_from_file(g, init, m, e);
    if (strcmp(kind, "hash") != 0)
        return error_set(e, "%s/case.json: init: kind: is \"%.60s\"; must be \"file\" or \"hash\"", g->dir, kind);
    float *values = memory_get(e, (size_t)tensor_count(m->values), sizeof *values, "initial weights");
    bool ok = values && (weights_from_hash(init, m, values, e) || error_prefix(e, "%s/case.json", g->dir));
    free(values);
    return ok && !e->set;
}
