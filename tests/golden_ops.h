/* The golden cases of single operations (tests/golden/g06): inputs, expected outputs, and the tolerance each has earned. */
#ifndef TALLY_TESTS_GOLDEN_OPS_H
#define TALLY_TESTS_GOLDEN_OPS_H

#include "base/json.h"
#include "base/safetensors.h"
#include "tests/cpu_machine.h"

#define GOLDEN_OPS "tests/golden/g06"

typedef struct Golden {
    SafeTensors file;
    json_t *root;
} Golden;

/* One entry of case.json's "ops". */
typedef struct GoldenCase {
    Golden *golden;
    Machine *machine;
    const json_t *entry;
    const char *op, *name;
} GoldenCase;

static inline void golden_open(Golden *g)
{
    Error e = {0};
    bool ok = safetensors_open(&g->file, GOLDEN_OPS "/ops.safetensors", &e);
    g->root = ok ? json_read(GOLDEN_OPS "/case.json", &e) : NULL;
    if (!g->root)
        fail_msg("%s", e.text);
}

static inline void golden_close(Golden *g)
{
    json_decref(g->root);
    safetensors_close(&g->file);
}

static inline const SafeTensor *golden_find(const GoldenCase *c, const char *part)
{
    char name[128];
    snprintf(name, sizeof name, "%s.%s.%s", c->op, c->name, part);
    return safetensors_find(&c->golden->file, name);
}

/* A copy of tensor OP.CASE.part ("in.x", "dout.y", "out.grad.w"). Its absence fails the test. */
static inline Tensor golden_tensor(const GoldenCase *c, const char *part)
{
    const SafeTensor *t = golden_find(c, part);
    if (!t)
        fail_msg("%s.%s.%s is missing", c->op, c->name, part);
    assert_true(t->ndim <= TENSOR_MAX_DIMS);
    Tensor r = {machine_memory(c->machine, t->bytes), t->dtype == SAFE_I32 ? DTYPE_I32 : DTYPE_F32, t->ndim, {0}};
    memcpy(r.shape, t->shape, (size_t)t->ndim * sizeof r.shape[0]);
    memcpy(r.data, t->data, t->bytes);
    return r;
}

/* A number of the case's entry: "norm", or within an object: "hyper", "lr". */
static inline double golden_number(const GoldenCase *c, const char *object, const char *field)
{
    const json_t *o = object ? json_object_get(c->entry, object) : c->entry, *value = json_object_get(o, field);
    if (!json_is_number(value))
        fail_msg("%s.%s: no number %s", c->op, c->name, field);
    return json_number_value(value);
}

/* Compares with out.NAME: 10 times the error of a plain float32 evaluation, at least 1e-5 (rel_l2), or where `by_max` says that
 * single elements matter, 1e-6 of the largest expected (max_abs). An output of zeros must be zeros. */
static inline void golden_check(const GoldenCase *c, const char *name, Tensor got, bool by_max)
{
    char part[64];
    snprintf(part, sizeof part, "out.%s", name);
    Tensor want = golden_tensor(c, part);
    const json_t *evidence = json_object_get(json_object_get(c->entry, "float32_evidence"), name);
    double rel = json_number_value(json_object_get(evidence, "rel_l2")),
           max = json_number_value(json_object_get(evidence, "max_abs"));
    double largest = 0, difference = 0, norm = 0, worst = 0;
    assert_int_equal(tensor_count(got), tensor_count(want));
    for (int64_t i = 0; i < tensor_count(want); i++) {
        double w = floats(want)[i], d = fabs(floats(got)[i] - w);
        largest = fmax(largest, fabs(w));
        difference += d * d;
        norm += w * w;
        worst = d > worst || d != d ? d : worst;
    }
    bool ok = largest == 0 || by_max ? worst <= fmax(10 * max, 1e-6 * largest) : sqrt(difference / norm) <= fmax(10 * rel, 1e-5);
    if (!ok)
        fail_msg("%s.%s.%s: rel_l2 %g (float32: %g), max_abs %g (float32: %g)", c->op, c->name, name, sqrt(difference / norm),
                 rel, worst, max);
}

#endif
