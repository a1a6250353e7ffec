/* What is compared, and how (tests/golden/README.md, "Tolerances"). The figure of merit of a tensor is its relative L2 error,
 *
 *     |got - expected| / |expected|
 *
 * with |expected| of all tensors together in place of one that is 0 or below 1e-7 of it. Weights are compared by their change
 * since the start. Columns that hold nothing but rounding noise (the k part of c_attn.bias, whose exact gradient is 0) are left
 * out, and judged by their size where the rule says so. */
#include "tools/golden.h"

#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The table ----------------------------------------------------------------------------------------------------- */

void golden_report_row(GoldenReport *r, const char *kind, const char *where, double error, double limit)
{
    bool ok = error <= limit; /* false for a NaN */
    printf("%-28s %-32s %10.2e %10.2e%s\n", kind, where, error, limit, ok ? "" : "  FAILED");
    double excess = isnan(error) ? INFINITY : error / limit;
    if (!ok && (r->failures == 0 || excess > r->worst)) {
        r->worst = excess;
        snprintf(r->text, sizeof r->text, "%s: %s: error %.2e, limit %.2e", kind, where, error, limit);
    }
    r->failures += !ok;
}

/* The row of a kind is its worst tensor: keeps the larger error, and a NaN for good. */
typedef struct Worst {
    double error;
    const char *where;
} Worst;

static void worst_take(Worst *w, double error, const char *where)
{
    if (!w->where || (!isnan(w->error) && !(error <= w->error)))
        *w = (Worst){error, where};
}

/* ---- Sets ---------------------------------------------------------------------------------------------------------- */

int64_t golden_entry_count(const SafeEntry *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->ndim; i++)
        n *= t->shape[i];
    return n;
}

float *golden_set_add(GoldenSet *s, const char *name, int ndim, const int64_t *shape, Error *e)
{
    if (!memory_grow(&s->entry, &s->capacity, s->count + 1, sizeof *s->entry, "a list of tensors", e))
        return NULL;
    SafeEntry t = {.dtype = SAFE_F32, .ndim = ndim};
    memcpy(t.shape, shape, (size_t)ndim * sizeof *shape);
    char *copy = strdup(name);
    float *data = memory_get(e, (size_t)golden_entry_count(&t), sizeof *data, name);
    if (!copy || !data) {
        error_set(e, "out of host memory: %s", name);
        free(copy);
        free(data);
        return NULL;
    }
    t.name = copy;
    t.data = data;
    s->entry[s->count++] = t;
    return data;
}

void golden_set_free(GoldenSet *s)
{
    for (size_t i = 0; i < s->count; i++) {
        free((char *)s->entry[i].name);
        free((float *)s->entry[i].data);
    }
    free(s->entry);
    *s = (GoldenSet){0};
}

/* ---- Tensors ------------------------------------------------------------------------------------------------------- */

/* The columns [first, last) of a tensor that case.json says are noise; none: first = last. A tensor with one dimension has its
 * elements as columns. */
typedef struct Columns {
    int64_t first, last;
} Columns;

static Columns noise_columns(const GoldenCase *g, const char *tensor)
{
    const json_t *list = json_object_get(g->root, "noise_only");
    size_t n = strlen(tensor);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i), *cols = json_object_get(entry, "cols");
        const char *name = json_string_value(json_object_get(entry, "name"));
        bool same = name && strncmp(tensor, name, strlen(name)) == 0 && /* "NAME.m" and "NAME.v" are NAME's moments */
                    (n == strlen(name) || strcmp(tensor + strlen(name), ".m") == 0 || strcmp(tensor + strlen(name), ".v") == 0);
        if (same)
            return (Columns){json_integer_value(json_array_get(cols, 0)), json_integer_value(json_array_get(cols, 1))};
    }
    return (Columns){0, 0};
}

/* Sums of squares over one tensor. */
typedef struct Squares {
    bool compared;          /* else there is nothing to compare it with */
    double error, expected; /* outside the noise columns */
    double noise;           /* of ours, inside           */
} Squares;

static Squares squares(const SafeEntry *got, const float *expected, const float *initial, Columns noise)
{
    Squares s = {.compared = true};
    const float *x = got->data;
    int64_t width = got->ndim ? got->shape[got->ndim - 1] : 1;
    for (int64_t i = 0, n = golden_entry_count(got); i < n; i++) {
        int64_t column = i % width;
        double start = initial ? (double)initial[i] : 0, error = (double)x[i] - (double)expected[i];
        if (column >= noise.first && column < noise.last) {
            s.noise += ((double)x[i] - start) * ((double)x[i] - start);
        } else {
            s.error += error * error;
            s.expected += ((double)expected[i] - start) * ((double)expected[i] - start);
        }
    }
    return s;
}

/* |expected| of a tensor, or of all of them when its own is next to nothing. */
static double measure(double expected, double all)
{
    double own = sqrt(expected), whole = sqrt(all);
    return own < 1e-7 * whole || own == 0 ? (whole > 0 ? whole : 1) : own;
}

/* Prints the rows of one kind from the sums of its tensors. */
static void rows_print(GoldenReport *r, const GoldenCase *g, const GoldenSet *set, const Squares *s, const GoldenRule *rule)
{
    Squares all = {0};
    Worst tensor = {0, NULL}, noise = {0, NULL};
    size_t compared = 0;
    for (size_t i = 0; i < set->count; i++) {
        if (s[i].compared) {
            all.error += s[i].error;
            all.expected += s[i].expected;
            compared++;
        }
    }
    for (size_t i = 0; i < set->count; i++) {
        const char *name = set->entry[i].name;
        Columns columns = noise_columns(g, name);
        if (!s[i].compared)
            continue;
        worst_take(&tensor, sqrt(s[i].error) / measure(s[i].expected, all.expected), name);
        if (columns.last > columns.first)
            worst_take(&noise, sqrt(s[i].noise) / measure(s[i].expected, all.expected), name);
    }
    char kind[64];
    snprintf(kind, sizeof kind, "%s (%zu of %zu)", rule->kind, compared, set->count);
    if (tensor.where)
        golden_report_row(r, kind, tensor.where, tensor.error, rule->limit);
    snprintf(kind, sizeof kind, "%s, all", rule->kind);
    if (tensor.where && rule->limit_all > 0)
        golden_report_row(r, kind, "together", sqrt(all.error) / measure(all.expected, all.expected), rule->limit_all);
    snprintf(kind, sizeof kind, "%s, noise", rule->kind);
    if (noise.where && rule->noise_apart)
        golden_report_row(r, kind, noise.where, noise.error, rule->limit);
}

/* Each tensor of the file must be one of the set, with the same shape. */
static bool names_check(const GoldenSet *set, const SafeTensors *f, Error *e)
{
    for (size_t k = 0; k < f->count; k++) {
        const SafeTensor *t = &f->tensors[k];
        const SafeEntry *mine = NULL;
        for (size_t i = 0; i < set->count; i++)
            mine = strcmp(set->entry[i].name, t->name) == 0 ? &set->entry[i] : mine;
        if (!mine)
            return error_set(e, "%.100s: the model has no such tensor", t->name);
        if (mine->ndim != t->ndim || memcmp(mine->shape, t->shape, (size_t)t->ndim * sizeof *t->shape) != 0)
            return error_set(e, "%.100s: has another shape than the model's", t->name);
    }
    return true;
}

static bool file_compare(GoldenReport *r, const GoldenCase *g, const GoldenSet *set, const SafeTensors *f, const GoldenRule *rule,
                         Error *e)
{
    Squares *s = memory_get(e, set->count, sizeof *s, "comparison");
    bool ok = s && names_check(set, f, e);
    for (size_t i = 0; ok && i < set->count; i++) {
        const SafeEntry *got = &set->entry[i];
        const SafeTensor *t = safetensors_find(f, got->name);
        int64_t n = golden_entry_count(got);
        float *expected = t ? memory_get(e, (size_t)n, sizeof *expected, "expected values") : NULL;
        if (t && expected && safetensors_read_f32(t, 0, n, expected, e))
            s[i] = squares(got, expected, rule->initial ? rule->initial->entry[i].data : NULL, noise_columns(g, got->name));
        free(expected);
        ok = !e->set;
    }
    if (ok)
        rows_print(r, g, set, s, rule);
    free(s);
    return ok;
}

bool golden_compare(GoldenReport *r, const GoldenCase *g, const GoldenSet *set, const char *file, const GoldenRule *rule,
                    Error *e)
{
    char path[PATH_SIZE];
    SafeTensors f;
    if (!path_join(path, g->dir, file, e))
        return false;
    if (!file_exists(path)) {
        printf("%-28s not compared: the case has no %s\n", rule->kind, file);
        return true;
    }
    if (!safetensors_open(&f, path, e))
        return false;
    bool ok = file_compare(r, g, set, &f, rule, e) || error_prefix(e, "%s", path);
    safetensors_close(&f);
    return ok;
}

bool golden_compare_norms(GoldenReport *r, const GoldenCase *g, const GoldenSet *grads, double limit, Error *e)
{
    json_t *norms = NULL;
    Worst worst = {0, NULL};
    double all = 0;
    const char *name;
    json_t *value;
    if (!json_get_object(g->root, "grad_l2", &norms, false, e))
        return error_prefix(e, "%s/case.json", g->dir);
    json_object_foreach(norms, name, value) all += json_number_value(value) * json_number_value(value);
    for (size_t i = 0; norms && i < grads->count; i++) {
        const SafeEntry *t = &grads->entry[i];
        double expected = -1;
        if (!json_get_double(norms, t->name, 0, 1e300, &expected, false, e))
            return error_prefix(e, "%s/case.json: grad_l2", g->dir);
        Squares s = squares(t, t->data, NULL, noise_columns(g, t->name));
        if (expected >= 0)
            worst_take(&worst, fabs(sqrt(s.expected) - expected) / measure(expected * expected, all), t->name);
    }
    if (worst.where)
        golden_report_row(r, "gradient norms", worst.where, worst.error, limit);
    return true;
}
