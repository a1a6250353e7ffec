/* What a precision policy means for training: the optimizer's arithmetic is FP32 whatever is stored, nothing stalls that should
 * move, nothing moves that should not, and each role alone in 16 bits changes the gradient by no more than its rounding. */
#include "tests/half_tensors.h"
#include "tests/model_rig.h"

static const DType types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};

static const AdamW plain_adam = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8f, .weight_decay = 0.1f};

/* ---- AdamW ---------------------------------------------------------------------------------------------------------- */

typedef struct Stored {
    Tensor w, master, g, m, v;
} Stored;

/* What of a 16-bit t that is rounded stochastically: element i up or down by the bits of its stream. */
static float rounded_at_random(const Machine *m, DType type, float x, uint32_t stream, int64_t i)
{
    RandomKey key = random_key(m->state.seed, RANDOM_ROUNDING, stream, (uint64_t)m->state.step, 0);
    uint32_t bits = random_bits(key, (uint64_t)i);
    return type == DTYPE_BF16 ? bf16_to_f32(f32_to_bf16_random(x, bits)) : f16_to_f32(f32_to_f16_random(x, bits));
}

static void assert_at_random(const Machine *m, Tensor got, Tensor want, uint32_t stream)
{
    for (int64_t i = 0; i < tensor_count(want); i++) {
        float x = floats(want)[i];
        float expected = got.dtype == DTYPE_F32 ? x : rounded_at_random(m, got.dtype, x, stream, i);
        if (float_bits(value_at(got, i)) != float_bits(expected))
            fail_msg("%s, stream %u, element %lld: %.9g, and should be %.9g", dtype_name(got.dtype), stream, (long long)i,
                     (double)value_at(got, i), (double)expected);
    }
}

/* The update in other types is that of FP32 on the same numbers, and then rounded: with a master there, and to nearest in w. */
static void adamw_check(Machine *m, int64_t n, DType param, bool master, DType grad, DType first, DType second)
{
    Stored a = {.w = random_1d(m, n, 1), .g = random_1d(m, n, 2), .m = random_1d(m, n, 3), .v = random_1d(m, n, 4)}, b;
    AdamW adam = plain_adam;
    DecayRange decay[] = {{n / 7, n / 2}};
    adam.decay = decay;
    adam.n_decay = 1;
    for (int64_t i = 0; i < n; i++)
        floats(a.v)[i] *= floats(a.v)[i];
    b.master = master ? copy_of(m, a.w) : TENSOR_NONE; /* the numbers that count: w is only their rounding */
    b.w = master ? room_for(m, a.w, param) : in_type(m, a.w, param);
    b.g = in_type(m, a.g, grad);
    b.m = in_type(m, a.m, first);
    b.v = in_type(m, a.v, second);
    m->state.learning_rate = 0.01f;
    m->state.scaler.scale = 8;
    m->state.adam_t = 2;
    grad_norm(&m->ctx, a.g, 0.25f, &adam);
    StepState of_f32 = m->state;
    adamw(&m->ctx, a.w, TENSOR_NONE, a.g, a.m, a.v, &adam);
    m->state.adam_t = 2;
    grad_norm(&m->ctx, b.g, 0.25f, &adam);
    assert_true(fabs(m->state.grad_norm - of_f32.grad_norm) <= 1e-12 * of_f32.grad_norm);
    m->state = of_f32; /* but for the last bits, which the order of a sum in double decides */
    adamw(&m->ctx, b.w, b.master, b.g, b.m, b.v, &adam);
    if (master) {
        assert_same_bits(b.master, a.w);
        assert_rounded(b.w, a.w);
    } else {
        assert_at_random(m, b.w, a.w, 0);
    }
    assert_at_random(m, b.m, a.m, 1);
    assert_at_random(m, b.v, a.v, 2);
    m->state.scaler.scale = 1;
}

static void adamw_each(Machine *m)
{
    for (int i = 0; i < 3 * 2 * 27; i++) {
        DType param = types[i % 3];
        bool master = i / 3 % 2;
        if (!(param == DTYPE_F32 && master))
            adamw_check(m, i % 5 ? 515 : 20003, param, master, types[i / 6 % 3], types[i / 18 % 3], types[i / 54 % 3]);
    }
}

/* FIELD: weights {1, -2, 0.5} without gradients, and an eps that is 0 in FP16: nothing moves, nothing is NaN. */
static void zero_gradients(Machine *m)
{
    static const float weights[] = {1, -2, 0.5f};
    for (int p = 0; p < 3; p++)
        for (int other = 0; other < 3; other++) {
            Tensor zeros = zeros_1d(m, 3), w = in_type(m, zeros, types[p]), g = in_type(m, zeros, types[other]);
            Tensor first = in_type(m, zeros, types[other]), second = in_type(m, zeros, types[other]);
            for (int i = 0; i < 3; i++)
                value_set(w, i, weights[i]);
            m->state.learning_rate = 0.01f;
            m->state.adam_t = 0;
            for (int step = 0; step < 5; step++) {
                grad_norm(&m->ctx, g, 1, &plain_adam);
                adamw(&m->ctx, w, TENSOR_NONE, g, first, second, &plain_adam);
            }
            for (int i = 0; i < 3; i++)
                assert_true(value_at(w, i) == weights[i] && value_at(first, i) == 0 && value_at(second, i) == 0);
        }
}

/* FIELD: w = 1 less 6e-4 a hundred times. To nearest BF16 stays at 1, for the next number is 0.0039 below. With a master the
 * 16-bit weight is 0.94 as near as it can be; without, rounded at random, a thousand such weights are 0.94 in the mean. */
static void small_updates(Machine *m)
{
    enum { N = 1024 };
    float stuck = 1;
    for (int step = 0; step < 100; step++)
        stuck = rounded(DTYPE_BF16, stuck - 6e-4f);
    assert_true(stuck == 1);
    for (int h = 0; h < 2; h++)
        for (int master = 0; master < 2; master++) {
            Tensor ones = zeros_1d(m, N), first = zeros_1d(m, N), second = zeros_1d(m, N);
            for (int i = 0; i < N; i++)
                floats(ones)[i] = 1;
            Tensor w = in_type(m, ones, half_types[h]), exact = master ? copy_of(m, ones) : TENSOR_NONE;
            m->state.learning_rate = 6e-4f;
            double mean = 0, spread = 0;
            for (int step = 0; step < 100; step++) { /* a constant gradient moves a weight by lr a step */
                m->state.step = step;
                m->state.adam_t = step;
                grad_norm(&m->ctx, ones, 0, &plain_adam);
                adamw(&m->ctx, w, exact, ones, first, second, &plain_adam);
            }
            for (int i = 0; i < N; i++)
                mean += (double)value_at(w, i) / N;
            for (int i = 0; i < N; i++)
                spread += ((double)value_at(w, i) - mean) * ((double)value_at(w, i) - mean) / N;
            if (master)
                assert_true(value_at(w, 0) == rounded(half_types[h], 0.94f) && spread == 0);
            else /* five deviations of the mean */
                assert_true(spread > 0 && fabs(mean - 0.94) < 5 * sqrt(spread / N) + 1e-5);
        }
    m->state.step = 5;
}

/* FIELD: 1 added to a gradient 4096 times. In 16 bits it stalls where 1 is half the distance of two numbers; the default does
 * not. */
static void gradients_accumulate(Machine *m)
{
    static const float ends[] = {4096, 256, 2048};
    for (int act = 0; act < 3; act++)
        for (int grad = 0; grad < 3; grad++) {
            Tensor one = zeros_2d(m, 1, 1), db = zeros_1d(m, 1), dw = zeros_2d(m, 1, 1);
            floats(one)[0] = 1;
            Tensor x = in_type(m, one, types[act]), b = in_type(m, db, types[grad]), w = in_type(m, dw, types[grad]);
            for (int i = 0; i < 4096; i++)
                linear_backward(&m->ctx, TENSOR_NONE, w, b, x, x, x);
            assert_true(value_at(b, 0) == ends[grad]);
            assert_true(value_at(w, 0) == ends[grad]);
        }
}

/* FIELD: clipping does not depend on the loss scale, and is that of the true gradient. */
static void clip_ignores_loss_scale(Machine *m)
{
    for (int h = 0; h < 2; h++) {
        float scale = half_types[h] == DTYPE_BF16 ? 65536 : 1024;
        Tensor g = random_1d(m, 1000, 1), scaled = zeros_1d(m, 1000);
        Tensor g_h = in_type(m, g, half_types[h]);
        for (int i = 0; i < 1000; i++)
            floats(scaled)[i] = floats(g)[i] * scale;
        Tensor scaled_h = in_type(m, scaled, half_types[h]);
        grad_norm(&m->ctx, g_h, 0.5f, &plain_adam);
        double norm = m->state.grad_norm;
        float clip = m->state.clip_coef;
        m->state.scaler.scale = scale;
        grad_norm(&m->ctx, scaled_h, 0.5f, &plain_adam);
        assert_true(fabs(m->state.grad_norm / norm - 1) < 1e-6); /* a few FP16 subnormals have more digits when scaled */
        assert_true(fabsf(m->state.clip_coef / clip - 1) < 1e-6f && clip < 0.1f);
        m->state.scaler.scale = 1;
    }
}

/* ---- Functions of stored numbers ------------------------------------------------------------------------------------ */

/* FIELD: GELU(256) = 256 with slope 1 and GELU(-256) = 0 with slope 0, though 256^3 is too large for FP16. */
static void gelu_far_out(Machine *m)
{
    for (int h = 0; h < 2; h++) {
        Tensor x = zeros_1d(m, 4), dy = zeros_1d(m, 4);
        for (int i = 0; i < 4; i++) {
            floats(x)[i] = (i % 2 ? -1.0f : 1.0f) * (i < 2 ? 256 : 60000);
            floats(dy)[i] = 1;
        }
        Tensor x_h = in_type(m, x, half_types[h]), dy_h = in_type(m, dy, half_types[h]), y_h = room_for(m, x, half_types[h]);
        gelu_forward(&m->ctx, y_h, x_h);
        gelu_backward(&m->ctx, dy_h, dy_h, x_h);
        for (int i = 0; i < 4; i++) {
            assert_true(value_at(y_h, i) == (i % 2 ? 0 : floats(x)[i]));
            assert_true(fabsf(value_at(dy_h, i) - (i % 2 ? 0.0f : 1.0f)) < 1e-30f);
        }
    }
}

/* FIELD: the loss is FP32: 36.234375, which BF16 has not. Logits {36.25, 1/64}, by the identity as embedding. */
static void losses_are_fp32(Machine *m)
{
    for (int h = 0; h < 2; h++) {
        Tensor x = zeros_2d(m, 1, 2), wte = zeros_2d(m, 2, 2), targets = tensor_1d(zeros_1d(m, 1).data, DTYPE_I32, 1);
        Tensor losses = zeros_1d(m, 1), logits = zeros_2d(m, 1, 2);
        floats(x)[0] = 36.25f;
        floats(x)[1] = 0x1p-6f;
        floats(wte)[0] = floats(wte)[3] = 1;
        *(int32_t *)targets.data = 1;
        Tensor x_h = in_type(m, x, half_types[h]), wte_h = in_type(m, wte, half_types[h]);
        Tensor dx = room_for(m, x, half_types[h]);
        head_loss_backward(&m->ctx, dx, TENSOR_NONE, losses, x_h, wte_h, targets, logits, 2);
        assert_true(floats(losses)[0] == 36.234375f && rounded(DTYPE_BF16, 36.234375f) == 36.25f);
        assert_true(value_at(dx, 0) == 1 && value_at(dx, 1) == -1);
    }
}

/* ---- A model -------------------------------------------------------------------------------------------------------- */

/* FP32 but for the role number `role` (param without and with a master, grad, act, resid, m, v), which is of `type`. */
enum { ROLES = 7 };

static Precision alone(int role, DType type)
{
    Precision p = {0};
    DType *const place[ROLES] = {&p.param, &p.param, &p.grad, &p.act, &p.resid, &p.m, &p.v};
    *place[role] = type;
    p.master = role == 1;
    return p;
}

static RigShape in_precision(RigShape s, Precision p)
{
    s.run.precision = p;
    return s;
}

/* |a - b| / |b - start|: how far off a change is. */
static double change_difference(const float *a, const float *b, const float *start, int64_t n)
{
    double error = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        error += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        size += ((double)b[i] - (double)start[i]) * ((double)b[i] - (double)start[i]);
    }
    return sqrt(error / size);
}

/* Two models of the same numbers, one in FP32: losses, gradients and the first change of the weights differ by no more than
 * golden case g07 allows all roles at once, and gradients do differ where the role has to do with them. */
static void role_check(RigShape s, int role, DType type, uint64_t seed)
{
    static const double limits[2][3] = {{3e-3, 8e-2, 0.25}, {5e-4, 1.5e-2, 0.1}};
    const double *limit = limits[type == DTYPE_F16];
    Rig rig[2];
    RigShape shape[2] = {s, in_precision(s, alone(role, type))};
    float *gradient[2], *start[2], *end[2];
    for (int i = 0; i < 2; i++) {
        rig_make(&rig[i], &shape[i], seed);
        rig[i].state.scaler.scale = type == DTYPE_F16 ? 1024 : 1;
        rig_gradients(&rig[i]);
        Tensor weights = role == 1 && i == 1 ? rig[i].m.masters : rig[i].m.values;
        gradient[i] = rig_numbers(&rig[i], rig[i].m.grads);
        start[i] = rig_numbers(&rig[i], weights);
        rig_update(&rig[i]);
        assert_int_equal(rig[i].state.adam_t, 1);
        end[i] = rig_numbers(&rig[i], weights);
    }
    int64_t n = tensor_count(rig[0].m.grads);
    double loss = fabs(rig[1].state.loss_sum / rig[0].state.loss_sum - 1), off = rig_difference(gradient[1], gradient[0], n);
    double change = change_difference(end[1], end[0], start[0], n);
    bool change_counts = role > 0; /* without a master the rounding of the weights is larger than their change */
    if (!(loss <= limit[0] && off <= limit[1] && (!change_counts || change <= limit[2])))
        fail_msg("role %d in %s: loss off by %g, gradient by %g, change by %g", role, dtype_name(type), loss, off, change);
    assert_true(role >= 5 ? off == 0 : off > 1e-5);
    assert_true(rig_difference(end[1], start[1], n) > 1e-3); /* lr is 0.01 */
    for (int i = 0; i < 2; i++) {
        free(gradient[i]);
        free(start[i]);
        free(end[i]);
        rig_free(&rig[i]);
    }
}

static void test_each_role_alone(void **state)
{
    (void)state;
    for (int role = 0; role < ROLES; role++)
        for (int h = 0; h < 2; h++) {
            role_check(rig_small_shape(), role, half_types[h], 5);
            rig_draws = (uint64_t)(500 + role) << 32;
            RigShape s = rig_random_shape(20);
            role_check(s, role, half_types[h], 6);
        }
}

/* FIELD: one Inf or NaN in one gradient, and weights, masters, moments and the count of steps stay as they are, to the bit. */
static void test_nonfinite_changes_nothing(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * 2 * 2; i++) {
        DType type = half_types[i % 2];
        RigShape s = in_precision(rig_small_shape(), (Precision){.param = type,
                                                                 .grad = i / 2 % 2 ? type : DTYPE_F32,
                                                                 .act = type,
                                                                 .resid = type,
                                                                 .m = type,
                                                                 .v = DTYPE_F32,
                                                                 .master = i / 4 % 2});
        Rig r;
        rig_make(&r, &s, 3);
        rig_gradients(&r);
        rig_update(&r); /* so that the moments are not 0 */
        assert_int_equal(r.state.adam_t, 1);
        rig_gradients(&r);
        value_set(r.m.grads, 100 + i, i % 3 ? INFINITY : NAN);
        char *before = malloc(r.m.plan.persistent_bytes);
        memcpy(before, r.m.persistent, r.m.plan.persistent_bytes);
        rig_update(&r);
        assert_memory_equal(r.m.persistent, before, r.m.plan.persistent_bytes);
        assert_true(r.state.nonfinite == 1 && r.state.adam_t == 1);
        rig_gradients(&r);
        rig_update(&r); /* the next step is well again */
        assert_true(r.state.nonfinite == 0 && r.state.adam_t == 2);
        assert_memory_not_equal(r.m.values.data, before + ((char *)r.m.values.data - (char *)r.m.persistent),
                                tensor_bytes(r.m.values));
        free(before);
        rig_free(&r);
    }
}

/* What is not a float type, and a master beside FP32 weights, is refused. */
static void test_refusals(void **state)
{
    (void)state;
    static Machine m;
    Model model;
    Error e = {0};
    Precision p = {.master = true};
    RigShape s = in_precision(rig_small_shape(), p);
    Target target = rig_target(1);
    assert_false(model_plan(&model, &s.config, &s.run, &target, &e));
    assert_true(e.usage && strstr(e.text, "master_dtype: FP32 weights need no FP32 master copy"));
    model_free(&model);
    assert_true(machine_open(&m, "plain", 1));
    Tensor x = random_2d(&m, 4, 4, 1), ids = random_ids(&m, 4, 4, 4, 2), stats = zeros_2d(&m, 4, 2), w = zeros_1d(&m, 4);
    norm_forward(&m.ctx, ids, stats, x, w, TENSOR_NONE);
    assert_string_equal(m.error.text, "norm_forward (layer -1): y is i32 [4, 4], expected f32 [4, 4]");
    m.error = (Error){0};
    cast(&m.ctx, x, ids);
    assert_string_equal(m.error.text, "cast (layer -1): from is i32 [4, 4], expected f32 [4, 4]");
    m.error = (Error){0};
    Tensor half = in_type(&m, x, DTYPE_F16);
    linear_forward(&m.ctx, half, x, x, TENSOR_NONE); /* activations are of one type */
    assert_string_equal(m.error.text, "linear_forward (layer -1): y is f16 [4, 4], expected f32 [4, 4]");
    m.error = (Error){0};
    m.ctx.workspace_bytes = 64;
    linear_forward(&m.ctx, half, half, half, TENSOR_NONE);
    assert_non_null(strstr(m.error.text, mirror_wanted()
                                             ? "bytes of workspace, the plan gave 64"
                                             : "product 4 x 4 x 4: needs 192 bytes of workspace to widen in, the plan gave 64"));
    m.error = (Error){0};
    machine_close(&m);
}

#define TEST_EACH(body)                                                                                                          \
    static void test_##body(void **state)                                                                                        \
    {                                                                                                                            \
        (void)state;                                                                                                             \
        machine_each(body);                                                                                                      \
    }
TEST_EACH(adamw_each)
TEST_EACH(zero_gradients)
TEST_EACH(small_updates)
TEST_EACH(gradients_accumulate)
TEST_EACH(clip_ignores_loss_scale)
TEST_EACH(gelu_far_out)
TEST_EACH(losses_are_fp32)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_adamw_each),
        cmocka_unit_test(test_zero_gradients),
        cmocka_unit_test(test_small_updates),
        cmocka_unit_test(test_gradients_accumulate),
        cmocka_unit_test(test_clip_ignores_loss_scale),
        cmocka_unit_test(test_gelu_far_out),
        cmocka_unit_test(test_losses_are_fp32),
        cmocka_unit_test(test_each_role_alone),
        cmocka_unit_test(test_nonfinite_changes_nothing),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
