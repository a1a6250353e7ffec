/* model/plan: the plan is what is allocated, and tensors that are alive at once never share memory, whatever the types, recompute
 * level, threads. (What the numbers should be: test_plan_numbers.c.)
 *
 * The properties are checked against lives found here from the log of ops, not against those that the plan has found. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/model_rig.h"

static RigShape preset_shape(const char *name, int64_t B, int64_t T)
{
    Error e = {0};
    RigShape s = {.run = model_run_default(), .threads = 2};
    assert_true(model_config_preset(name, &s.config, &e));
    s.run.batch_size = B;
    s.run.block_size = T;
    return s;
}

/* ---- What is needed ------------------------------------------------------------------------------------------------- */

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
        size_t live = rig_live_bytes(p, i), *of = &peak[p->log.op[i].phase == PHASE_EVALUATION];
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

static size_t taken, takes, last_taken[2]; /* bytes in all, calls, bytes of the last two */
static const Device *real_device;

static void *counting_take(size_t bytes, const char *what, Error *e)
{
    taken += bytes;
    last_taken[takes++ % 2] = bytes;
    return real_device->memory_take(bytes, what, e);
}

static void counting_give(void *p, size_t bytes)
{
    taken -= bytes;
    real_device->memory_give(p, bytes);
}

/* The CPU as a device that counts what is taken from it, from 0 on. */
static const Device *counting_device(int threads, Error *e)
{
    static Device counting; /* a model keeps its address */
    Target target;
    real_device = cpu_device(&target, threads, e);
    counting = *real_device;
    counting.memory_take = counting_take;
    counting.memory_give = counting_give;
    taken = takes = 0;
    return &counting;
}

/* Two arenas of exactly the planned sizes, nothing while steps run, all given back. */
static void test_plan_is_allocation(void **state)
{
    (void)state;
    Rig r;
    RigShape s = rig_small_shape();
    s.run.sample_size = 2;
    rig_plan(&r, &s);
    const Device *counting = counting_device(2, &r.e);
    size_t planned = plan_total_bytes(&r.m.plan);
    assert_true(model_allocate(&r.m, counting, &r.e));
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

/* A tensor that is not what was planned is found when memory is taken, before anything runs. */
static void test_other_tensors_are_found(void **state)
{
    (void)state;
    for (int wrong = 0; wrong < 2; wrong++) {
        Rig r;
        RigShape s = rig_small_shape();
        Target target;
        rig_plan(&r, &s);
        if (wrong == 0)
            r.m.dx.shape[0]++;
        else
            r.m.wpe.m.dtype = DTYPE_BF16;
        assert_false(model_allocate(&r.m, cpu_device(&target, 2, &r.e), &r.e));
        assert_non_null(strstr(r.e.text, wrong == 0 ? "d_x (layer -1): " : "wpe.weight (layer -1): "));
        r.e = (Error){0};
        rig_free(&r);
    }
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

/* FLOPs are counted in 63 bits: what would not fit is refused before it is counted. */
static void test_too_many_flops(void **state)
{
    (void)state;
    RigShape s = preset_shape("gpt2-xl", 1 << 20, 1024);
    Target target = rig_target(1);
    Model m;
    Error e = {0};
    assert_false(model_plan(&m, &s.config, &s.run, &target, &e));
    assert_true(e.usage && strstr(e.text, "batch_size 1048576 x block_size 1024 is too large"));
    model_free(&m);
    s.run.batch_size = 1 << 16;
    e = (Error){0};
    assert_true(model_plan(&m, &s.config, &s.run, &target, &e));
    for (int64_t i = 0; i < m.plan.log.count; i++)
        assert_true(m.plan.log.op[i].gemm_flops >= 0 && m.plan.log.op[i].other_flops >= 0);
    PlanCost all = plan_cost(&m.plan, PHASE_COUNT);
    assert_true((double)all.gemm_flops > 8e9 * 65536 * 1024 && all.bytes_read > 0 && all.bytes_written > 0);
    model_free(&m);
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
    const Tensor *range[] = {&m->values, &m->masters, &m->grads, &m->m, &m->v};
    for (int i = 0; i < 5; i++)
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

static void plan_check(const Model *m, Span life[MAX_TENSORS][3])
{
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

/* Takes the memory, and compares by category what the model's tensors have with what the plan says: all of the persistent ones,
 * and of the others those whose life, as found here, holds the peak. */
static void allocation_check(Rig *r, Span life[MAX_TENSORS][3])
{
    Model *m = &r->m;
    const Plan *p = &m->plan;
    size_t bytes[CATEGORY_COUNT] = {0}, arena[2] = {0, 0};
    assert_true(model_allocate(m, counting_device(m->ctx.target.threads, &r->e), &r->e));
    for (int t = 0; t < p->count; t++) {
        const PlanTensor *x = &p->tensor[t];
        bool persistent = category_is_persistent(x->category), counted = persistent;
        for (int k = 0; k < 3; k++)
            counted |= life[t][k].first >= 0 && life[t][k].first <= p->peak_op && p->peak_op <= life[t][k].last;
        bytes[x->category] += counted ? tensor_bytes(*x->slot) : 0;
        arena[persistent ? 0 : 1] += counted ? tensor_bytes(*x->slot) : 0;
    }
    for (int i = 0; i < CATEGORY_COUNT; i++)
        if (bytes[i] != p->category_bytes[i])
            fail_msg("%s: %zu bytes are taken, %zu planned", category_name((Category)i), bytes[i], p->category_bytes[i]);
    assert_int_equal(last_taken[0], arena[0] + p->alignment_bytes);
    assert_int_equal(last_taken[1], arena[1] + p->packing_bytes);
    assert_int_equal(taken, plan_total_bytes(p));
}

enum { POLICIES = 5 * 243 };

/* Every policy: FP32 weights, or 16-bit ones with and without masters; and every type for each of the five other roles. */
static Precision policy(int i)
{
    static const struct {
        DType param;
        bool master;
    } weights[5] = {{DTYPE_F32, false}, {DTYPE_BF16, true}, {DTYPE_BF16, false}, {DTYPE_F16, true}, {DTYPE_F16, false}};
    int w = i / 243;
    return (Precision){.param = weights[w].param,
                       .master = weights[w].master,
                       .grad = (DType)(i % 3),
                       .act = (DType)(i / 3 % 3),
                       .resid = (DType)(i / 9 % 3),
                       .m = (DType)(i / 27 % 3),
                       .v = (DType)(i / 81 % 3)};
}

/* Each policy with a recompute level; a new random shape for every 15 of them. */
static void test_properties_of_random_plans(void **state)
{
    (void)state;
    static Span life[MAX_TENSORS][3];
    for (int i = 0; i < POLICIES; i++) {
        Rig r;
        rig_draws = (uint64_t)(1000 * (i / 15));
        RigShape s = rig_random_shape(1);
        s.run.training = rig_between(0, 4) > 0;
        s.run.precision = policy(i);
        s.run.recompute = (Recompute)(i % 4);
        s.run.recompute_every = s.run.recompute == RECOMPUTE_BLOCK ? 1 + i / 4 % 3 : 1;
        rig_plan(&r, &s);
        plan_check(&r.m, life);
        if (s.run.training)
            order_check(&r.m);
        allocation_check(&r, life);
        rig_free(&r);
        assert_int_equal(taken, 0);
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
        cmocka_unit_test(test_evaluation_needs_no_more), cmocka_unit_test(test_plan_is_allocation),
        cmocka_unit_test(test_other_tensors_are_found),  cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_too_many_flops),           cmocka_unit_test(test_properties_of_random_plans),
        cmocka_unit_test(test_packing_changes_nothing),
    };
    return cmocka_run_group_tests_name("plan", tests, NULL, NULL);
}
