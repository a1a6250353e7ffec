/* The statistics of --grad-stats, from gradients that are put there: what counts as 0, subnormal and not finite in which type, in
 * which layer, and that each step begins anew. What runs print and log of them is in test_scaler.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/model_rig.h"
#include "train/grad_stats.h"

/* In FP16: 0 twice, subnormal three times (the smallest and the largest there are), not finite three times, and normal. */
static const float sorts[] = {0, -0.0f, 0x1p-24f, -0x1p-20f, 0x1.ff8p-15f, INFINITY, -INFINITY, NAN, 0x1p-14f, 1, -65504};
enum { ZERO = 2, SUBNORMAL = 3, SATURATED = 3 };

/* The first numbers of a tensor are `times` of all sorts, the others 1. */
static void tensor_fill(Rig *r, Tensor t, int64_t times)
{
    int64_t n = tensor_count(t), sorted = times * (int64_t)(sizeof sorts / sizeof *sorts);
    float *values = malloc((size_t)n * sizeof *values);
    assert_true(sorted <= n);
    for (int64_t i = 0; i < n; i++)
        values[i] = i < sorted ? sorts[i % (int64_t)(sizeof sorts / sizeof *sorts)] : 1;
    tensor_store(&r->m, t, 0, n, values);
    free(values);
}

static void assert_shares(const json_t *layer, const char *kind, int64_t times, int64_t elements, int subnormal)
{
    const json_t *shares = json_object_get(layer, kind);
    const double share = (double)times / (double)elements;
    assert_true(fabs(json_real_value(json_object_get(shares, "zero")) - ZERO * share) < 1e-12);
    assert_true(fabs(json_real_value(json_object_get(shares, "subnormal")) - subnormal * share) < 1e-12);
    assert_true(fabs(json_real_value(json_object_get(shares, "saturated")) - SATURATED * share) < 1e-12);
}

static void test_counts(void **state)
{
    (void)state;
    Rig r;
    GradStats s = {0};
    RigShape shape = rig_small_shape();
    Error e = {0};
    assert_true(precision_parse("fp16", &shape.run.precision, &e));
    rig_make(&r, &shape, 1);
    Model *m = &r.m;
    int64_t N = m->run.batch_size * m->run.block_size, C = m->config.n_embd, n = N * C, in_block = 0;
    assert_true(grad_stats_open(&s, m, &e));
    for (int step = 0; step < 2; step++) { /* what the first counted, numbers that are all normal, is forgotten */
        grad_stats_begin(&s);
        for (int64_t micro = 1; micro <= 2; micro++)
            for (int layer = 1; layer >= 0; layer--) {
                tensor_fill(&r, m->dx, step * (micro + layer));
                tensor_fill(&r, m->grad[layer].ln_1, step * (3 * micro + layer));
                m->watch(m->watch_user, layer);
            }
        model_gradients_zero(m);
        for (int i = 0; i < m->n_weights; i++)
            tensor_fill(&r, m->weight[i]->grad, 0);
        tensor_fill(&r, m->block[1].c_fc.w.grad, 5 * step);
        tensor_fill(&r, m->wpe.grad, 4 * step);
        grad_stats_end(&s);
        assert_null(m->watch);
    }
    for (int i = 0; i < m->n_weights; i++)
        in_block += strncmp(m->weight[i]->name, "h.1.", 4) ? 0 : tensor_count(m->weight[i]->value);
    json_t *list = grad_stats_json(&s);
    assert_int_equal(json_array_size(list), 3);
    for (int layer = 0; layer < 2; layer++) {
        const json_t *l = json_array_get(list, (size_t)layer);
        assert_int_equal(json_integer_value(json_object_get(l, "layer")), layer);
        assert_shares(l, "dx", 3 + 2 * layer, 2 * n, SUBNORMAL);
        assert_shares(l, "act", 9 + 2 * layer, 2 * n, SUBNORMAL);
        assert_shares(l, "weights", layer ? 5 : 0, in_block, 0); /* as FP32 numbers they are normal */
    }
    const json_t *others = json_array_get(list, 2);
    int64_t outside = C * (2 + m->config.block_size + m->config.vocab_size); /* ln_f, wpe, and wte without its padding */
    assert_int_equal(json_integer_value(json_object_get(others, "layer")), -1);
    assert_null(json_object_get(others, "dx"));
    assert_shares(others, "weights", 4, outside, 0);
    json_decref(list);
    grad_stats_close(&s);
    rig_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_counts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
