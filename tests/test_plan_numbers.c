/* model/plan, model/ledger: bytes and FLOPs against formulas and published numbers (Korthikanti et al., arXiv 2205.05198; ZeRO,
 * arXiv 1910.02054; the 6 N rule, arXiv 2001.08361). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/ledger.h"
#include "tests/model_rig.h"

/* ---- Models and policies ------------------------------------------------------------------------------------------- */

static RigShape preset_shape(const char *name, int64_t B, int64_t T)
{
    Error e = {0};
    RigShape s = {.run = model_run_default(), .threads = 2};
    assert_true(model_config_preset(name, &s.config, &e));
    s.config.dropout = 0;
    s.run.batch_size = B;
    s.run.block_size = T;
    return s;
}

static Precision named(const char *name)
{
    Error e = {0};
    Precision p;
    if (!precision_parse(name, &p, &e))
        fail_msg("%s", e.text);
    return p;
}

static const char *const policies[] = {"fp32", "bf16", "fp16"};

/* OpenAI's four models with 50257 tokens; parameters as published, FLOPs per token 6 N + 12 L s C at s = 1024 to three digits. */
static const struct {
    const char *name;
    int64_t parameters;
    double flops, digit;
} published[] = {{"gpt2", 124439808, 8.60e8, 1e6},
                 {"gpt2-medium", 354823168, 2.43e9, 1e7},
                 {"gpt2-large", 774030080, 5.21e9, 1e7},
                 {"gpt2-xl", 1557611200, 1.03e10, 1e8}};
enum { PUBLISHED = sizeof published / sizeof *published };

static RigShape published_shape(int i, int64_t B)
{
    RigShape s = preset_shape(published[i].name, B, 1024);
    s.config.vocab_multiple = 1;
    return s;
}

/* ---- What stays ---------------------------------------------------------------------------------------------------- */

static void test_parameters(void **state)
{
    (void)state;
    for (int i = 0; i < PUBLISHED; i++) {
        Rig r;
        RigShape s = published_shape(i, 1);
        rig_plan(&r, &s);
        assert_int_equal(model_parameters(&r.m), published[i].parameters);
        assert_int_equal(model_config_parameters(&s.config), published[i].parameters);
        assert_int_equal(r.m.plan.persistent_bytes, 16 * published[i].parameters); /* 1.99, 5.68, 12.38, 24.92 GB */
        rig_free(&r);
    }
    Rig r;
    RigShape s = preset_shape("gpt2", 1, 64);
    s.config.vocab_multiple = 128; /* pads 50257 to 50304 */
    rig_plan(&r, &s);
    assert_int_equal(model_parameters(&r.m), 124475904);
    rig_free(&r);
}

/* Exactly so many bytes a parameter: weights, master, gradients, m, v. What alignment adds is not among them. */
static void test_static_bytes(void **state)
{
    (void)state;
    Precision thin = named("bf16"), frugal, pure, first = named("fp32"), second = first;
    thin.grad = DTYPE_BF16;
    frugal = thin;
    frugal.master = false;
    pure = frugal;
    pure.m = pure.v = first.m = second.v = DTYPE_BF16;
    const struct {
        Precision precision;
        size_t category[5], total;
    } rows[] = {{named("fp32"), {4, 0, 4, 4, 4}, 16}, {named("bf16"), {2, 4, 4, 4, 4}, 18}, {named("fp16"), {2, 4, 4, 4, 4}, 18},
                {thin, {2, 4, 2, 4, 4}, 16},          {frugal, {2, 0, 2, 4, 4}, 12},        {pure, {2, 0, 2, 2, 2}, 8},
                {first, {4, 0, 4, 2, 4}, 14},         {second, {4, 0, 4, 4, 2}, 14}};
    static const Category categories[5] = {CATEGORY_WEIGHTS, CATEGORY_MASTER_WEIGHTS, CATEGORY_GRADIENTS, CATEGORY_ADAM_M,
                                           CATEGORY_ADAM_V};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int odd = 0; odd < 2; odd++) {
            Rig r;
            RigShape s = odd ? rig_small_shape() : published_shape(0, 1);
            s.run.precision = rows[i].precision;
            rig_plan(&r, &s);
            size_t N = (size_t)model_parameters(&r.m);
            for (int k = 0; k < 5; k++)
                assert_int_equal(r.m.plan.category_bytes[categories[k]], rows[i].category[k] * N);
            assert_true(ledger_static_bytes(&r.m) == (double)rows[i].total);
            assert_int_equal(r.m.plan.persistent_bytes, rows[i].total * N + r.m.plan.alignment_bytes);
            assert_true(odd ? r.m.plan.alignment_bytes > 0 : r.m.plan.alignment_bytes == 0);
            rig_free(&r);
        }
}

/* ---- What a step keeps --------------------------------------------------------------------------------------------- */

/* The first op of that kind in the log. */
static int64_t op_find(const Plan *p, OpId op)
{
    for (int64_t i = 0; i < p->log.count; i++)
        if (p->log.op[i].op == op)
            return i;
    fail_msg("no %s in the log", op_name(op));
    return -1;
}

/* Where forward turns into backward everything that a step keeps is alive, and nothing else. Per row, in the type of activations:
 * 16 C a block (1 + 1 + 3 + 1 + 1 + 1 + 4 + 4), the final sum and its norm, the gradient of that; in FP32: 4 + NH statistics a
 * block, 2 of the final norm, the loss; tokens and targets. And never is more than two more [N, C] alive. */
static void test_kept_activations(void **state)
{
    (void)state;
    static const char *const names[] = {"gpt2", "shakespeare-cpu", "gpt2-xl"};
    for (int i = 0; i < 9; i++) {
        Rig r;
        RigShape s = preset_shape(names[i / 3], 4, 64);
        s.run.precision = named(policies[i % 3]);
        rig_plan(&r, &s);
        const Plan *p = &r.m.plan;
        size_t N = 4 * 64, L = (size_t)s.config.n_layer, C = (size_t)s.config.n_embd, NH = (size_t)s.config.n_head;
        size_t element = i % 3 ? 2 : 4, kept = N * (element * (16 * L * C + 2 * C) + 4 * (4 * L + 3 + L * NH));
        size_t rest = 2 * 4 * N + tensor_bytes(r.m.logits) + tensor_bytes(r.m.workspace) + sizeof(StepState);
        size_t turn = kept + element * N * C + rest;
        assert_int_equal(rig_live_bytes(p, op_find(p, OP_head_loss_backward)), turn);
        assert_in_range(p->peak_live, turn, turn + element * N * 2 * C);
        assert_true(tensor_bytes(r.m.logits) <= (size_t)HEAD_ROWS * 50304 * 4);
        rig_free(&r);
    }
}

/* At level `block`: C a layer, and at the peak, where the last block's own backward begins, its 15 C of all but the input, with
 * their statistics, the gradient that came in (C), and that of the MLP's inside (4 C). */
static void test_block_peak(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        Rig r;
        RigShape s = preset_shape("gpt2-xl", 4, 1024);
        s.run.precision = named(policies[i]);
        s.run.recompute = RECOMPUTE_BLOCK;
        rig_plan(&r, &s);
        const Plan *p = &r.m.plan;
        size_t N = 4 * 1024, L = 48, C = 1600, NH = 25, element = i ? 2 : 4;
        size_t own = element * (15 + 1 + 4) * C + 4 * (4 + NH), tokens = 4;
        assert_int_equal(p->peak_live, N * (element * L * C + own + tokens) + tensor_bytes(r.m.workspace) + sizeof(StepState));
        assert_int_equal(p->log.op[p->peak_op].layer, 47);
        assert_int_equal(p->log.op[p->peak_op].phase, PHASE_BACKWARD);
        rig_free(&r);
    }
}

/* Placing tensors so that none overlap costs less than 2 % of the step's memory. */
static void test_packing_is_tight(void **state)
{
    (void)state;
    static const char *const names[] = {"gpt2", "shakespeare-cpu", "gpt2-xl"};
    for (int i = 0; i < 3 * 3 * RECOMPUTE_COUNT; i++) {
        Rig r;
        RigShape s = preset_shape(names[i % 3], 8, 64);
        s.config.dropout = i % 2 ? 0.1 : 0;
        s.run.precision = named(policies[i / 3 % 3]);
        s.run.recompute = (Recompute)(i / 9);
        rig_plan(&r, &s);
        assert_true((double)r.m.plan.packing_bytes <= 0.02 * (double)r.m.plan.step_bytes);
        rig_free(&r);
    }
}

/* ---- FLOPs and bytes ----------------------------------------------------------------------------------------------- */

/* The published 6 N + 12 L s C counts look-ups, biases and gains among N, and pairs of tokens that causal attention never forms.
 * What is left without either are our model FLOPs, 6 N_matmul + 6 L s C. What is executed is more by the fifth product of the
 * attention's backward, which makes the scores again (2 of 12), and by the diagonal: s + 1 pairs for s. */
static void test_flops(void **state)
{
    (void)state;
    for (int i = 0; i < PUBLISHED; i++) {
        Rig r;
        RigShape s = published_shape(i, 2);
        rig_plan(&r, &s);
        int64_t L = s.config.n_layer, C = s.config.n_embd, T = 1024, N = published[i].parameters;
        assert_true(fabs((double)(6 * N + 12 * L * T * C) - published[i].flops) <= published[i].digit / 2);
        int64_t matmul = N - T * C - 13 * L * C - 2 * C; /* positions; 4 C of norms and 9 C of biases a block; the last norm */
        assert_true(model_flops_per_token(&r.m) == (double)(6 * matmul + 6 * L * C * T));
        int64_t executed = plan_cost(&r.m.plan, PHASE_FORWARD).gemm_flops + plan_cost(&r.m.plan, PHASE_BACKWARD).gemm_flops;
        assert_int_equal(executed, 2 * T * (6 * matmul + 7 * L * C * (T + 1)));
        rig_free(&r);
    }
}

/* An update in BF16 with masters and BF16 gradients reads 2 + 4 + 4 + 4 and writes 4 + 4 + 4 + 2 bytes a parameter. */
static void test_update_bytes(void **state)
{
    (void)state;
    Rig r;
    RigShape s = published_shape(0, 1);
    s.run.precision = named("bf16");
    s.run.precision.grad = DTYPE_BF16;
    rig_plan(&r, &s);
    PlanCost c = plan_op_cost(&r.m.plan, PHASE_OPTIMIZER, OP_adamw), all = plan_cost(&r.m.plan, PHASE_OPTIMIZER);
    assert_int_equal(c.bytes_read, 14 * published[0].parameters);
    assert_int_equal(c.bytes_written, 14 * published[0].parameters);
    int64_t gradients = 2 * published[0].parameters; /* zeroed before the step; read for their norm */
    assert_int_equal(all.bytes_read + all.bytes_written, 14 * gradients + 2 * gradients + (int64_t)sizeof(StepState));
    double tokens = 1024 * 3; /* in a step of three micro-batches */
    assert_true(executed_flops_per_token(&r.m, PHASE_OPTIMIZER, 3) == (double)all.other_flops / tokens);
    rig_free(&r);
}

/* One op is bound by its matrix products, the other by its bytes: the sum of the two times, not the larger. */
static void test_least_seconds(void **state)
{
    (void)state;
    Rig r;
    RigShape s = rig_small_shape();
    rig_plan(&r, &s);
    const Plan *p = &r.m.plan;
    PlanCost update = plan_cost(p, PHASE_OPTIMIZER), forward = plan_cost(p, PHASE_FORWARD);
    PlanRates slow_memory = {1e30, 1e30, 1e3}, slow_units = {1e3, 1e30, 1e30}, slow_rest = {1e30, 1e3, 1e30};
    assert_true(fabs(plan_seconds(p, PHASE_OPTIMIZER, &slow_memory) * 1e3 / (double)(update.bytes_read + update.bytes_written) -
                     1) < 1e-12);
    assert_true(fabs(plan_seconds(p, PHASE_FORWARD, &slow_units) * 1e3 / (double)forward.gemm_flops - 1) < 1e-12);
    assert_true(fabs(plan_seconds(p, PHASE_FORWARD, &slow_rest) * 1e3 / (double)forward.other_flops - 1) < 1e-12);
    PlanRates both = {(double)forward.gemm_flops, 1e30, (double)(forward.bytes_read + forward.bytes_written)};
    double seconds = plan_seconds(p, PHASE_FORWARD, &both);
    assert_true(seconds > 1 && seconds < 2); /* each alone takes one second */
    rig_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parameters),   cmocka_unit_test(test_static_bytes),     cmocka_unit_test(test_kept_activations),
        cmocka_unit_test(test_block_peak),   cmocka_unit_test(test_packing_is_tight), cmocka_unit_test(test_flops),
        cmocka_unit_test(test_update_bytes), cmocka_unit_test(test_least_seconds),
    };
    return cmocka_run_group_tests_name("plan numbers", tests, NULL, NULL);
}
