/* model/plan: the plan is what is allocated; tensors that are alive at once never share memory; the peak is the formula's.
 *
 * The properties are checked against lives found here from the log of ops, not against those that the plan has found. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/model_rig.h"

/* ---- Sizes known beforehand ---------------------------------------------------------------------------------------- */

static RigShape preset_shape(const char *name, int64_t B, int64_t T)
{
    Error e = {0};
    RigShape s = {.run = model_run_default(), .threads = 2};
    assert_true(model_config_preset(name, &s.config, &e));
    s.run.batch_size = B;
    s.run.block_size = T;
    return s;
}

static void test_parameters(void **state)
{
    (void)state;
    static const struct {
        int64_t multiple, parameters;
    } gpt2[] = {{1, 124439808}, {128, 124475904}}; /* the second pads 50257 to 50304 */
    for (int i = 0; i < 2; i++) {
        Rig r;
        RigShape s = preset_shape("gpt2", 1, 64);
        s.config.vocab_multiple = gpt2[i].multiple;
        rig_plan(&r, &s);
        assert_int_equal(model_parameters(&r.m), gpt2[i].parameters);
        assert_int_equal(model_config_parameters(&s.config), gpt2[i].parameters);
        assert_int_equal(r.m.plan.category_bytes[CATEGORY_WEIGHTS], 4 * gpt2[i].parameters);
        assert_int_equal(r.m.plan.category_bytes[CATEGORY_ADAM_V], 4 * gpt2[i].parameters);
        rig_free(&r);
    }
}

/* The first op of that kind in the log. */
static int64_t op_find(const Plan *p, OpId op)
{
    for (int64_t i = 0; i < p->log.count; i++)
        if (p->log.op[i].op == op)
            return i;
    fail_msg("no %s in the log", op_name(op));
    return -1;
}

/* Where forward turns into backward everything that a step keeps is alive, and nothing else: per row 16 C a block (1 + 1 + 3 + 1
 * + 1 + 1 + 4 + 4), the final sum and its norm, the gradient of that; statistics; losses, tokens, targets. And never is more than
 * two more [N, C] alive. */
static void test_peak_is_the_formula(void **state)
{
    (void)state;
    static const char *const names[] = {"gpt2", "shakespeare-cpu", "gpt2-xl"};
    for (int i = 0; i < 3; i++) {
        Rig r;
        RigShape s = preset_shape(names[i], 4, 64);
        s.config.dropout = 0;
        rig_plan(&r, &s);
        const Plan *p = &r.m.plan;
        size_t N = 4 * 64, L = (size_t)s.config.n_layer, C = (size_t)s.config.n_embd, NH = (size_t)s.config.n_head;
        size_t stats = L * (4 + NH) + 2, rest = tensor_bytes(r.m.logits) + tensor_bytes(r.m.workspace) + sizeof(StepState);
        size_t turn = 4 * N * (16 * L * C + 3 * C + stats + 3) + rest;
        assert_int_equal(plan_live_bytes(p, op_find(p, OP_head_loss_backward)), turn);
        assert_in_range(p->peak_live, turn, turn + 4 * N * 2 * C);
        rig_free(&r);
    }
}

/* FIELD 41: an evaluation needs less than training, and logits are never held whole. */
static void test_evaluation_needs_no_more(void **state)
{
    (void)state;
    Rig training, evaluation;
    RigShape s = preset_shape("gpt2", 8, 512);
    rig_plan(&training, &s);
    const Plan *p = &training.m.plan;
    size_t peak[2] = {0, 0};
    for (int64_t i = 0; i < p->log.count; i++) {
        size_t live = plan_live_bytes(p, i), *of = &peak[p->log.op[i].phase == PHASE_EVALUATION];
        *of = live > *of ? live : *of;
    }
    assert_true(peak[1] < peak[0]);
    assert_int_equal(peak[0], p->peak_live);
    assert_true(p->category_bytes[CATEGORY_LOGITS] <= (size_t)HEAD_ROWS * 50304 * 4); /* not 0.767 GiB */
    s.run.training = false;
    rig_plan(&evaluation, &s);
    assert_true(evaluation.m.plan.step_bytes < p->step_bytes);
    assert_int_equal(evaluation.m.plan.category_bytes[CATEGORY_GRADIENTS], 0);
    rig_free(&training);
    rig_free(&evaluation);
}

/* ---- Plan and allocation ------------------------------------------------------------------------------------------- */

static size_t taken, takes;
static const Device *real_device;

static void *counting_take(size_t bytes, const char *what, Error *e)
{
    taken += bytes;
    takes++;
    return real_device->memory_take(bytes, what, e);
}

static void counting_give(void *p, size_t bytes)
{
    taken -= bytes;
    real_device->memory_give(p, bytes);
}

/* Two arenas of exactly the planned sizes, nothing while steps run, all given back. */
static void test_plan_is_allocation(void **state)
{
    (void)state;
    Rig r;
    RigShape s = rig_small_shape();
    s.run.sample_size = 2;
    rig_plan(&r, &s);
    Target target;
    real_device = cpu_device(&target, 2, &r.e);
    Device counting = *real_device;
    counting.memory_take = counting_take;
    counting.memory_give = counting_give;
    taken = takes = 0;
    size_t planned = plan_total_bytes(&r.m.plan);
    assert_true(model_allocate(&r.m, &counting, &r.e));
    assert_int_equal(taken, planned);
    assert_int_equal(takes, 2);
    r.tokens = calloc(26, sizeof *r.tokens);
    r.targets = calloc(26, sizeof *r.targets);
    r.counted = 26;
    rig_weights(&r);
    rig_gradients(&r);
    rig_update(&r);
    rig_evaluate(&r);
    zero(&r.m.ctx, r.m.decoder.tokens);
    model_decode(&r.m, 1, 0);
    assert_int_equal(takes, 2);
    rig_free(&r);
    assert_int_equal(taken, 0);
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        int64_t B, T, samples;
        const char *says;
    } bad[] = {{0, 8, 0, "batch_size"},  {-1, 8, 0, "batch_size"},       {1, 0, 0, "block_size"},
               {1, 20, 0, "block_size"}, {INT64_MAX, 8, 0, "too large"}, {1, 8, -1, "samples"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        RigShape s = rig_small_shape();
        Target target = rig_target(1);
        Model m;
        Error e = {0};
        s.run.batch_size = bad[i].B;
        s.run.block_size = bad[i].T;
        s.run.sample_size = bad[i].samples;
        assert_false(model_plan(&m, &s.config, &s.run, &target, &e));
        assert_true(e.usage && strstr(e.text, bad[i].says));
        model_free(&m);
    }
}

/* ---- Properties of any plan ---------------------------------------------------------------------------------------- */

enum { MAX_TENSORS = 512 };

/* A step tensor's life in one pass: from first to last op that has an operand inside it. */
typedef struct Span {
    int64_t first, last;
} Span;

static int pass_of(const DryOp *op)
{
    return op->phase == PHASE_EVALUATION ? 1 : op->phase == PHASE_SAMPLING ? 2 : 0;
}

/* The declared tensor that [address, + bytes) lies in, by the addresses that the model saw while it rehearsed. */
static int tensor_at(const Plan *p, const void *address, size_t bytes)
{
    uintptr_t begin = (uintptr_t)address;
    for (int i = 0; i < p->count; i++) {
        uintptr_t own = (uintptr_t)p->tensor[i].slot->data;
        if (begin >= own && begin + bytes <= own + p->tensor[i].bytes)
            return i;
    }
    return -1;
}

/* Ranges over all weights, gradients or moments begin where a member's first tensor does and end, aligned, where its last does.
 */
static bool is_range(const Model *m, const DryOperand *o)
{
    const Tensor *range[] = {&m->values, &m->grads, &m->m, &m->v};
    for (int i = 0; i < 4; i++)
        if (o->address == range[i]->data && o->bytes == tensor_bytes(*range[i]))
            return true;
    return false;
}

/* Lives of all step tensors; each operand must lie in a declared tensor, and what a pass reads it must have written before. */
static void lives_find(const Model *m, Span life[][3])
{
    const Plan *p = &m->plan;
    for (int64_t i = 0; i < p->log.count; i++) {
        const DryOp *op = &p->log.op[i];
        assert_true(op->n_operands < DRY_MAX_OPERANDS); /* one more might have been dropped */
        assert_true(op->workspace <= tensor_bytes(m->workspace));
        for (int pass_reads = 1; pass_reads >= 0; pass_reads--) { /* an op reads before it writes */
            for (int k = 0; k < op->n_operands; k++) {
                const DryOperand *o = &op->operand[k];
                int t = tensor_at(p, o->address, o->bytes);
                assert_true(t >= 0 || is_range(m, o));
                if (t < 0 || category_is_persistent(p->tensor[t].category) || o->written == (pass_reads == 1))
                    continue;
                Span *s = &life[t][pass_of(op)];
                if (s->first < 0 && !o->written && !p->tensor[t].held)
                    fail_msg("%s reads %s (layer %d), which nothing has written", op_name(op->op), p->tensor[t].name,
                             p->tensor[t].layer);
                s->first = s->first < 0 ? i : s->first;
                s->last = i;
            }
        }
    }
}

static void lives_of_whole_passes(const Model *m, Span life[][3])
{
    const Plan *p = &m->plan;
    Span pass[3] = {{-1, -1}, {-1, -1}, {-1, -1}};
    for (int64_t i = 0; i < p->log.count; i++) {
        Span *s = &pass[pass_of(&p->log.op[i])];
        s->first = s->first < 0 ? i : s->first;
        s->last = i;
    }
    for (int t = 0; t < p->count; t++) /* scratch belongs to every op; what is held, to every op of the passes that use it */
        for (int k = 0; k < 3; k++)
            if (p->tensor[t].slot == &m->workspace || (p->tensor[t].held && life[t][k].first >= 0))
                life[t][k] = pass[k];
}

static bool alive_at_once(const Span a[3], const Span b[3])
{
    for (int k = 0; k < 3; k++)
        if (a[k].first >= 0 && b[k].first >= 0 && a[k].first <= b[k].last && b[k].first <= a[k].last)
            return true;
    return false;
}

static bool apart(const PlanTensor *a, const PlanTensor *b)
{
    return a->offset + a->bytes <= b->offset || b->offset + b->bytes <= a->offset;
}

static void plan_check(const Model *m)
{
    static Span life[MAX_TENSORS][3];
    const Plan *p = &m->plan;
    assert_true(p->count <= MAX_TENSORS);
    for (int t = 0; t < p->count; t++)
        life[t][0] = life[t][1] = life[t][2] = (Span){-1, -1};
    lives_find(m, life);
    lives_of_whole_passes(m, life);
    for (int a = 0; a < p->count; a++) {
        const PlanTensor *x = &p->tensor[a];
        bool persistent = category_is_persistent(x->category);
        assert_true(x->offset % PLAN_ALIGNMENT == 0);
        assert_true(x->offset + x->bytes <= (persistent ? p->persistent_bytes : p->step_bytes));
        assert_true(x->bytes == tensor_bytes(*x->slot));
        for (int b = 0; b < a; b++) {
            const PlanTensor *y = &p->tensor[b];
            if (category_is_persistent(y->category) == persistent && (persistent || alive_at_once(life[a], life[b])) &&
                !apart(x, y))
                fail_msg("%s (layer %d) and %s (layer %d) share memory", x->name, x->layer, y->name, y->layer);
        }
    }
    assert_int_equal(p->peak_live + p->packing_bytes, p->step_bytes);
}

/* Gradients lie in the order in which a backward finishes them: a part of the range is ready before all that follows it. */
static void order_check(const Model *m)
{
    int64_t ready = -1;
    for (int i = 0; i < m->n_weights; i++) {
        int64_t last = -1;
        for (int64_t k = 0; k < m->plan.log.count; k++) {
            const DryOp *op = &m->plan.log.op[k];
            for (int o = 0; op->phase == PHASE_BACKWARD && o < op->n_operands; o++)
                last = op->operand[o].address == m->weight[i]->grad.data ? k : last;
        }
        if (last < ready || (i > 0 && m->weight[i]->grad.data < m->weight[i - 1]->grad.data))
            fail_msg("%s is out of order", m->weight[i]->name);
        ready = last;
    }
}

static void test_properties_of_random_plans(void **state)
{
    (void)state;
    rig_draws = 0;
    for (int i = 0; i < 300; i++) {
        Rig r;
        RigShape s = rig_random_shape(1);
        s.run.training = rig_between(0, 4) > 0;
        rig_plan(&r, &s);
        plan_check(&r.m);
        if (s.run.training)
            order_check(&r.m);
        rig_free(&r);
    }
}

/* ---- Sharing changes nothing --------------------------------------------------------------------------------------- */

/* The same plan with every step tensor at a place of its own. */
static void plan_spread(Plan *p)
{
    p->step_bytes = 0;
    for (int i = 0; i < p->count; i++) {
        if (category_is_persistent(p->tensor[i].category))
            continue;
        p->tensor[i].offset = p->step_bytes;
        p->step_bytes += (p->tensor[i].bytes + PLAN_ALIGNMENT - 1) / PLAN_ALIGNMENT * PLAN_ALIGNMENT;
    }
}

/* Two steps and an evaluation with the packed and with the spread-out plan, each starting from a step arena full of NaNs: the
 * same bits, so no op reads what it was not given. */
static void test_packing_changes_nothing(void **state)
{
    (void)state;
    for (int i = 0; i < 12; i++) {
        Rig rig[2];
        rig_draws = (uint64_t)(1000 * i);
        RigShape s = rig_random_shape(1);
        for (int k = 0; k < 2; k++) {
            Rig *r = &rig[k];
            rig_plan(r, &s);
            if (k == 1)
                plan_spread(&r->m.plan);
            rig_start(r, 5);
            memset(r->m.step, 0xFF, r->m.plan.step_bytes);
            for (int step = 0; step < 2; step++) {
                rig_gradients(r);
                rig_update(r);
            }
            rig_evaluate(r);
        }
        assert_true(isfinite(rig[0].state.loss_sum));
        assert_memory_equal(rig[0].m.values.data, rig[1].m.values.data, tensor_bytes(rig[0].m.values));
        assert_memory_equal(&rig[0].state, &rig[1].state, sizeof(StepState));
        assert_memory_equal(rig[0].m.losses.data, rig[1].m.losses.data, tensor_bytes(rig[0].m.losses));
        rig_free(&rig[0]);
        rig_free(&rig[1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_peak_is_the_formula),
        cmocka_unit_test(test_evaluation_needs_no_more),
        cmocka_unit_test(test_plan_is_allocation),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_properties_of_random_plans),
        cmocka_unit_test(test_packing_changes_nothing),
    };
    return cmocka_run_group_tests_name("plan", tests, NULL, NULL);
}
