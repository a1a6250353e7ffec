/* Recomputation changes memory and FLOPs, and no bit of a gradient. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/model_rig.h"

enum { SHAPES = 12 };

static RigShape at_level(RigShape s, Recompute level, int64_t every)
{
    s.run.recompute = level;
    s.run.recompute_every = every;
    return s;
}

/* The gradients of the rig's batch, as FP32. */
static float *gradients_of(RigShape s, uint64_t seed, int64_t *n, double *loss)
{
    Rig r;
    rig_make(&r, &s, seed);
    rig_gradients(&r);
    *n = tensor_count(r.m.grads);
    *loss = r.state.loss_sum;
    float *copy = rig_numbers(&r, r.m.grads);
    rig_free(&r);
    return copy;
}

/* Gradients and loss of a shape are the same at every level as when all is kept; which is not 0. */
static void same_at_every_level(RigShape s, uint64_t seed)
{
    static const struct {
        Recompute level;
        int64_t every;
    } levels[] = {{RECOMPUTE_NORM, 1},  {RECOMPUTE_ATTENTION, 1}, {RECOMPUTE_BLOCK, 1},
                  {RECOMPUTE_BLOCK, 2}, {RECOMPUTE_BLOCK, 3},     {RECOMPUTE_BLOCK, 9}};
    int64_t n, again, counted = 0;
    double loss, loss_again;
    float *kept = gradients_of(at_level(s, RECOMPUTE_NONE, 1), seed, &n, &loss);
    for (int64_t i = 0; i < n; i++)
        counted += kept[i] != 0;
    assert_true(counted > n / 10);
    for (size_t k = 0; k < sizeof levels / sizeof *levels; k++) {
        float *remade = gradients_of(at_level(s, levels[k].level, levels[k].every), seed, &again, &loss_again);
        assert_int_equal(n, again);
        assert_true(loss == loss_again);
        assert_memory_equal(kept, remade, (size_t)n * sizeof *kept);
        free(remade);
    }
    free(kept);
}

static RigShape shape_number(int i)
{
    rig_draws = (uint64_t)(1000 + i) << 32;
    RigShape s = rig_random_shape(3);
    s.config.n_layer = 1 + i % 5;
    s.config.dropout = i % 2 ? 0.2 : 0;
    return s;
}

static void test_gradients_are_the_same_bits(void **state)
{
    (void)state;
    for (int i = 0; i < SHAPES; i++)
        same_at_every_level(shape_number(i), (uint64_t)i);
}

/* In 16 bits too: what is made again is made from what is stored. */
static void test_the_same_bits_in_16_bits(void **state)
{
    (void)state;
    static const Precision policies[] = {
        {DTYPE_BF16, DTYPE_F32, DTYPE_BF16, DTYPE_BF16, DTYPE_F32, DTYPE_F32, .master = true},
        {DTYPE_F16, DTYPE_F32, DTYPE_F16, DTYPE_F16, DTYPE_F32, DTYPE_F32, .master = true},
        {DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, DTYPE_F32, DTYPE_F32, DTYPE_F32, .master = true},
        {DTYPE_F32, DTYPE_F16, DTYPE_F32, DTYPE_BF16, DTYPE_F32, DTYPE_F32, .master = false},
    };
    for (int p = 0; p < 4; p++)
        for (int i = p; i < SHAPES; i += 3) {
            RigShape s = shape_number(i);
            s.run.precision = policies[p];
            same_at_every_level(s, (uint64_t)i);
        }
}

/* Bytes of activations alive between forward and backward: when the head's backward runs. */
static size_t kept_bytes(RigShape s)
{
    Rig r;
    rig_plan(&r, &s);
    const Plan *p = &r.m.plan;
    size_t bytes = 0;
    for (int64_t op = 0; op < p->log.count; op++)
        for (int k = 0; p->log.op[op].op == OP_head_loss_backward && k < p->count; k++)
            if (p->tensor[k].category == CATEGORY_ACTIVATIONS && p->tensor[k].layer >= 0 &&
                p->tensor[k].life[PASS_TRAINING].first < op && p->tensor[k].life[PASS_TRAINING].last > op)
                bytes += p->tensor[k].bytes;
    rig_free(&r);
    return bytes;
}

/* Elements per row and layer: 16C, 10C, 6C, C; statistics 4 + NH, 4 + NH, 4, none. */
static void test_what_is_kept(void **state)
{
    (void)state;
    RigShape s = rig_small_shape();
    s.config.n_layer = 6;
    size_t rows = (size_t)(6 * s.run.batch_size * s.run.block_size), C = (size_t)s.config.n_embd, NH = (size_t)s.config.n_head;
    assert_int_equal(kept_bytes(at_level(s, RECOMPUTE_NONE, 1)), 4 * rows * (16 * C + 4 + NH));
    assert_int_equal(kept_bytes(at_level(s, RECOMPUTE_NORM, 1)), 4 * rows * (10 * C + 4 + NH));
    assert_int_equal(kept_bytes(at_level(s, RECOMPUTE_ATTENTION, 1)), 4 * rows * (6 * C + 4));
    assert_int_equal(kept_bytes(at_level(s, RECOMPUTE_BLOCK, 1)), 4 * rows * C);
    assert_int_equal(kept_bytes(at_level(s, RECOMPUTE_BLOCK, 2)), 4 * rows / 2 * C);
    assert_int_equal(kept_bytes(at_level(s, RECOMPUTE_BLOCK, 4)), 4 * rows / 3 * C);
}

static int64_t executed(RigShape s, Phase phase)
{
    Rig r;
    rig_plan(&r, &s);
    int64_t flops = plan_cost(&r.m.plan, phase).gemm_flops;
    rig_free(&r);
    return flops;
}

/* `block` makes every block's forward again but for its last projection, which no gradient needs. */
static void test_what_is_made_again_is_counted(void **state)
{
    (void)state;
    RigShape s = rig_small_shape();
    int64_t forward = executed(s, PHASE_FORWARD), N = s.run.batch_size * s.run.block_size;
    int64_t last = 2 * N * s.config.n_embd * s.config.n_inner;
    assert_int_equal(executed(s, PHASE_RECOMPUTE), 0);
    assert_int_equal(executed(at_level(s, RECOMPUTE_NORM, 1), PHASE_RECOMPUTE), 0);
    assert_int_equal(executed(at_level(s, RECOMPUTE_BLOCK, 1), PHASE_RECOMPUTE), forward - s.config.n_layer * last);
    assert_int_equal(executed(at_level(s, RECOMPUTE_BLOCK, 2), PHASE_RECOMPUTE), forward - last);
    assert_int_equal(executed(at_level(s, RECOMPUTE_BLOCK, 1), PHASE_BACKWARD), executed(s, PHASE_BACKWARD));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients_are_the_same_bits),
        cmocka_unit_test(test_the_same_bits_in_16_bits),
        cmocka_unit_test(test_what_is_kept),
        cmocka_unit_test(test_what_is_made_again_is_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
