/* The model's numbers. The reference is written here, apart from the engine: GPT-2's equations in double precision, one number at
 * a time, with the dropout masks of the same Philox keys. Its loss is what the engine's must be; central differences of its loss
 * along random directions are what the engine's gradients must be.
 *
 * Tolerances. The engine computes in float32, where the gradients of the golden cases are off by 6e-7 to 1.5e-6 per tensor; their
 * limit is 2e-5, and here too. The differences themselves add little: with a step of 1e-5 in weights of size 1 the truncation
 * error is about 1e-10 and the rounding of a double loss about 1e-15 / 1e-5 = 1e-10. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/gpt_reference.h"

/* ---- Gradients ----------------------------------------------------------------------------------------------------- */

static double length(const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sqrt(sum);
}

/* A direction in a tensor's space: half along its gradient, where the derivative is large, half at random. Unit length or so. */
static void direction_make(double *d, const float *gradient, int64_t n)
{
    double size = 0;
    for (int64_t i = 0; i < n; i++)
        d[i] = rig_normal();
    double random_size = length(d, n);
    for (int64_t i = 0; i < n; i++)
        size += (double)gradient[i] * (double)gradient[i];
    for (int64_t i = 0; i < n; i++)
        d[i] = d[i] / random_size + (size > 0 ? (double)gradient[i] / sqrt(size) : 0);
}

/* The derivative of the mean loss along d in the n weights from `at` on, by central differences. */
static double slope(const Rig *r, double *flat, int64_t at, const double *d, int64_t n)
{
    double step = 1e-5, loss[2];
    for (int side = 0; side < 2; side++) {
        double move = side ? -step : step;
        for (int64_t i = 0; i < n; i++)
            flat[at + i] += move * d[i];
        loss[side] = reference_loss(r, flat, NULL);
        for (int64_t i = 0; i < n; i++)
            flat[at + i] = (double)((float *)r->m.values.data)[at + i];
    }
    return (loss[0] - loss[1]) / (2 * step) / (double)(r->counted ? r->counted : 1);
}

/* Every tensor of a rig whose gradients have been computed, along one direction each. Where a tensor's gradient is next to
 * nothing beside the whole (a norm's that nobody reads), the whole sets the scale: rounding errors come down from there. */
static void gradients_check(const Rig *r, const char *what)
{
    double *flat = reference_weights(r), whole = 0;
    const float *grads = r->m.grads.data;
    for (int64_t i = 0; i < tensor_count(r->m.grads); i++)
        whole += (double)grads[i] * (double)grads[i];
    for (int k = 0; k < r->m.n_weights; k++) {
        const Weight *w = r->m.weight[k];
        const float *g = w->grad.data;
        int64_t n = w == &r->m.wte ? r->m.config.vocab_size * r->m.config.n_embd : tensor_count(w->grad);
        double *d = numbers(n), got = 0, size = 0;
        direction_make(d, g, n);
        for (int64_t i = 0; i < n; i++) {
            got += (double)g[i] * d[i];
            size += (double)g[i] * (double)g[i];
        }
        double expected = slope(r, flat, g - grads, d, n), scale = fmax(sqrt(size), 1e-7 * sqrt(whole)) * length(d, n);
        if (!(fabs(got - expected) <= 2e-5 * scale + 1e-9))
            fail_msg("%s: %s: slope %.9g, expected %.9g, scale %.3g", what, w->name, got, expected, scale);
        free(d);
    }
    free(flat);
}

static void loss_check(const Rig *r, const char *what)
{
    double *flat = reference_weights(r), expected = reference_loss(r, flat, NULL);
    if (!(fabs(r->state.loss_sum - expected) <= 1e-6 * expected))
        fail_msg("%s: loss %.9g, expected %.9g", what, r->state.loss_sum, expected);
    free(flat);
}

/* Loss and gradients of random models: odd sizes, with and without biases, dropout, grouped keys, padding, head chunks. At least
 * three channels: a norm of one gives 0 and of two +-1, whatever comes in, and the gradient through it is nothing but rounding.
 */
static void test_random_models(void **state)
{
    (void)state;
    for (int i = 0; i < 30; i++) {
        Rig r;
        char what[200];
        rig_draws = (uint64_t)(1000 * i);
        RigShape s = rig_random_shape(3);
        const ModelConfig *c = &s.config;
        snprintf(what, sizeof what, "model %d: L %d NH %d NKV %d C %d F %d V %d x%d B %d T %d rows %d bias %d p %g threads %d", i,
                 (int)c->n_layer, (int)c->n_head, (int)c->n_kv_head, (int)c->n_embd, (int)c->n_inner, (int)c->vocab_size,
                 (int)c->vocab_multiple, (int)s.run.batch_size, (int)s.run.block_size, (int)s.run.head_rows, c->bias, c->dropout,
                 s.threads);
        rig_make(&r, &s, (uint64_t)(i + 1));
        r.state.micro = i % 3;
        rig_gradients(&r);
        loss_check(&r, what);
        gradients_check(&r, what);
        rig_free(&r);
    }
}

/* An evaluation drops nothing. */
static void test_evaluation(void **state)
{
    (void)state;
    Rig r;
    RigShape s = rig_small_shape();
    s.config.dropout = 0.3;
    rig_make(&r, &s, 1);
    rig_gradients(&r);
    double trained = r.state.loss_sum;
    rig_evaluate(&r);
    assert_true(fabs(trained - r.state.loss_sum) > 1e-3 * trained);
    r.m.config.dropout = 0;
    loss_check(&r, "evaluation");
    rig_free(&r);
}

/* Rows that pad the vocabulary: no gradient, and still 0 after updates with weight decay. They change nothing else either. */
static void test_padding(void **state)
{
    (void)state;
    Rig padded, plain;
    RigShape s = rig_small_shape();
    s.config.vocab_multiple = 1;
    rig_make(&plain, &s, 1);
    s.config.vocab_multiple = 16; /* 37 -> 48 */
    rig_make(&padded, &s, 1);
    int64_t used = 37 * 21, all = 48 * 21;
    assert_int_equal(tensor_count(padded.m.wte.value), all);
    for (int step = 0; step < 3; step++) {
        rig_gradients(&padded);
        rig_gradients(&plain);
        rig_update(&padded);
        rig_update(&plain);
    }
    for (int64_t i = used; i < all; i++) {
        assert_true(((float *)padded.m.wte.grad.data)[i] == 0);
        assert_true(((float *)padded.m.wte.value.data)[i] == 0);
    }
    assert_true(rig_difference(padded.m.wte.value.data, plain.m.wte.value.data, used) < 1e-6);
    rig_free(&padded);
    rig_free(&plain);
}

/* FIELD 15: one tensor, one gradient: what the head gives plus what the embedding gives, and neither is nothing. */
static void test_tied_embedding(void **state)
{
    (void)state;
    Rig r;
    RigShape s = rig_small_shape();
    rig_make(&r, &s, 1);
    Ctx *c = &r.m.ctx;
    int64_t n = tensor_count(r.m.wte.grad);
    float *both = malloc((size_t)n * sizeof *both), *sum = malloc((size_t)n * sizeof *sum), *dx = malloc(tensor_bytes(r.m.dx));
    rig_gradients(&r);
    copy_out(c, both, r.m.wte.grad);
    copy_out(c, dx, r.m.dx); /* the gradient that has come down to the embedding */

    model_gradients_zero(&r.m);
    copy_in(c, r.m.tokens, r.tokens);
    model_forward(&r.m, PHASE_FORWARD);
    copy_in(c, r.m.targets, r.targets);
    head_loss_backward(c, r.m.dln_f_out, r.m.wte.grad, r.m.losses, r.m.ln_f_out, r.m.wte.value, r.m.targets, r.m.logits, 37);
    copy_out(c, sum, r.m.wte.grad);
    assert_true(rig_difference(sum, both, n) > 0.1);

    model_gradients_zero(&r.m);
    copy_in(c, r.m.tokens, r.tokens);
    copy_in(c, r.m.dx, dx);
    embedding_backward(c, r.m.wte.grad, TENSOR_NONE, r.m.dx, r.m.tokens, (Dropout){0});
    assert_true(rig_difference(r.m.wte.grad.data, both, n) > 0.1);
    for (int64_t i = 0; i < n; i++)
        sum[i] += ((float *)r.m.wte.grad.data)[i];
    assert_true(rig_difference(sum, both, n) < 1e-6);

    for (int step = 0; step < 10; step++) { /* after ten steps the loss is still that of one shared table */
        rig_gradients(&r);
        rig_update(&r);
    }
    rig_gradients(&r);
    loss_check(&r, "after ten steps");
    gradients_check(&r, "after ten steps");
    free(both);
    free(sum);
    free(dx);
    rig_free(&r);
}

/* ---- Counting, accumulation ---------------------------------------------------------------------------------------- */

/* FIELD 13: a micro-batch without a target that counts adds nothing, to the loss, to the gradient, to the mean. */
static void test_all_ignored(void **state)
{
    (void)state;
    Rig r;
    RigShape s = rig_small_shape();
    rig_make(&r, &s, 1);
    int32_t ignored[26];
    for (int i = 0; i < 26; i++)
        ignored[i] = -1;
    int64_t n = tensor_count(r.m.grads);
    float *alone = malloc((size_t)n * sizeof *alone);
    rig_gradients(&r);
    double loss = r.state.loss_sum;
    memcpy(alone, r.m.grads.data, tensor_bytes(r.m.grads));
    rig_micro(&r, r.tokens, ignored, r.counted); /* as the second micro-batch of the step */
    assert_memory_equal(alone, r.m.grads.data, tensor_bytes(r.m.grads));
    assert_true(r.state.loss_sum == loss);

    r.state.loss_sum = 0; /* as the only one: no target counts in the whole step */
    model_gradients_zero(&r.m);
    rig_micro(&r, r.tokens, ignored, 0);
    for (int64_t i = 0; i < n; i++)
        assert_true(((float *)r.m.grads.data)[i] == 0);
    assert_true(r.state.loss_sum == 0);
    rig_update(&r);
    assert_true(r.state.grad_norm == 0 && r.state.clip_coef == 1 && !r.state.nonfinite);
    free(alone);
    rig_free(&r);
}

/* FIELD 20, 17: four micro-batches of two sequences are one of eight, though they hold different numbers of targets that count
 * (a fifth, on average, does not). 18: what is divided by is the number that the window holds, not what it might have held: the
 * step's count is all that the gradient depends on. Sums in another order: each of them adds up some 200 rounded terms, 6e-8 of
 * each, that is 1e-6 at the worst. */
static void test_accumulation(void **state)
{
    (void)state;
    Rig one, four;
    RigShape s = rig_small_shape();
    s.run.batch_size = 8;
    rig_make(&one, &s, 1);
    rig_gradients(&one);
    s.run.batch_size = 2;
    rig_make(&four, &s, 1);
    assert_memory_equal(one.m.values.data, four.m.values.data, tensor_bytes(one.m.values));
    model_gradients_zero(&four.m);
    for (int i = 0; i < 4; i++)
        rig_micro(&four, one.tokens + 26 * i, one.targets + 26 * i, one.counted);
    assert_true(rig_difference(four.m.grads.data, one.m.grads.data, tensor_count(one.m.grads)) < 1e-6);
    assert_true(fabs(four.state.loss_sum - one.state.loss_sum) <= 1e-7 * one.state.loss_sum);
    for (int k = 0; k < one.m.n_weights; k++) /* and no tensor of them hides behind the others; k's bias is noise */
        if (!strstr(one.m.weight[k]->name, "c_attn.bias") &&
            rig_difference(four.m.weight[k]->grad.data, one.m.weight[k]->grad.data, tensor_count(one.m.weight[k]->grad)) > 3e-6)
            fail_msg("%s", one.m.weight[k]->name);
    rig_free(&one);
    rig_free(&four);
}

/* FIELD 17 in small: one target in the first micro-batch, five in the second: the mean is over six. */
static void test_mean_over_targets(void **state)
{
    (void)state;
    Rig r;
    RigShape s = rig_small_shape();
    rig_make(&r, &s, 1);
    int32_t targets[2][26];
    double loss[2];
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < 26; i++)
            targets[k][i] = i < (k ? 5 : 1) ? i : -1;
        memcpy(r.targets, targets[k], sizeof targets[k]);
        double *flat = reference_weights(&r);
        loss[k] = reference_loss(&r, flat, NULL);
        free(flat);
    }
    model_gradients_zero(&r.m);
    r.state.loss_sum = 0;
    rig_micro(&r, r.tokens, targets[0], 6);
    rig_micro(&r, r.tokens, targets[1], 6);
    assert_true(fabs(r.state.loss_sum / 6 - (loss[0] + loss[1]) / 6) < 1e-6 * r.state.loss_sum / 6);
    memcpy(r.targets, targets[0], sizeof targets[0]); /* the same tokens twice: the gradient of the sum of both, over six */
    r.counted = 6;
    float *first = malloc(tensor_bytes(r.m.grads)), *sum = malloc(tensor_bytes(r.m.grads));
    memcpy(sum, r.m.grads.data, tensor_bytes(r.m.grads));
    rig_gradients(&r);
    gradients_check(&r, "one target of six");
    memcpy(first, r.m.grads.data, tensor_bytes(r.m.grads));
    memcpy(r.targets, targets[1], sizeof targets[1]);
    rig_gradients(&r);
    gradients_check(&r, "five targets of six");
    for (int64_t i = 0; i < tensor_count(r.m.grads); i++)
        first[i] += ((float *)r.m.grads.data)[i];
    assert_true(rig_difference(sum, first, tensor_count(r.m.grads)) < 1e-6);
    free(first);
    free(sum);
    rig_free(&r);
}

/* ---- Updates ------------------------------------------------------------------------------------------------------- */

/* FIELD 3: one gradient that is no number, and the update is skipped: weights, moments and the count of updates are as before. */
static void test_nonfinite_is_skipped(void **state)
{
    (void)state;
    Rig r;
    RigShape s = rig_small_shape();
    rig_make(&r, &s, 1);
    rig_gradients(&r);
    rig_update(&r);
    size_t bytes = r.m.plan.persistent_bytes;
    char *before = malloc(bytes);
    rig_gradients(&r);
    ((float *)r.m.grads.data)[17] = INFINITY;
    memcpy(before, r.m.persistent, bytes);
    rig_update(&r);
    assert_memory_equal(before, r.m.persistent, bytes);
    assert_int_equal(r.state.adam_t, 1);
    assert_int_equal(r.state.nonfinite, 1);
    rig_gradients(&r);
    rig_update(&r);
    assert_int_equal(r.state.adam_t, 2);
    assert_int_equal(r.state.nonfinite, 0);
    free(before);
    rig_free(&r);
}

static void train(Rig *r, int steps)
{
    for (int step = 0; step < steps; step++) {
        rig_gradients(r);
        r->state.micro = 1;
        rig_micro(r, r->tokens, r->targets, r->counted);
        r->state.micro = 0;
        rig_update(r);
    }
}

/* The same seed gives the same bits, dropout and accumulation on, whatever was in memory before. */
static void test_same_bits(void **state)
{
    (void)state;
    Rig rig[2];
    RigShape s = rig_small_shape();
    s.config.dropout = 0.2;
    for (int k = 0; k < 2; k++) {
        rig_make(&rig[k], &s, 1);
        memset(rig[k].m.step, k ? 0xFF : 0, rig[k].m.plan.step_bytes);
        train(&rig[k], 5);
    }
    assert_memory_equal(rig[0].m.persistent, rig[1].m.persistent, rig[0].m.plan.persistent_bytes);
    assert_memory_equal(&rig[0].state, &rig[1].state, sizeof(StepState));
    rig_free(&rig[0]);
    rig_free(&rig[1]);
}

/* The number of threads decides the order of sums and nothing else: gradients within rounding, as in test_accumulation. */
static void test_threads(void **state)
{
    (void)state;
    if (mirror_wanted()) {
        puts("SKIPPED: a GPU's threads are not counted");
        skip();
    }
    Rig rig[3];
    RigShape s = rig_small_shape();
    s.config.dropout = 0.2;
    for (int k = 0; k < 3; k++) {
        s.threads = k + 1;
        rig_make(&rig[k], &s, 1);
        assert_int_equal(rig[k].m.ctx.target.threads, k + 1);
        rig_gradients(&rig[k]);
        assert_true(rig_difference(rig[k].m.grads.data, rig[0].m.grads.data, tensor_count(rig[0].m.grads)) < 1e-6);
        assert_true(fabs(rig[k].state.loss_sum - rig[0].state.loss_sum) <= 1e-7 * rig[0].state.loss_sum);
    }
    for (int k = 0; k < 3; k++)
        rig_free(&rig[k]);
}

/* ---- Generation ---------------------------------------------------------------------------------------------------- */

/* Feeds the rig's tokens to the decoder, `chunks` at a time (0 ends), and compares the logits after each chunk with the
 * reference's at that position: within 1e-5 of the largest logit. */
static void decode_check(Rig *r, const double *logits, const int64_t *chunks)
{
    int64_t S = r->m.run.sample_size, T = r->m.run.block_size, V = r->m.config.vocab_size, Vp = r->m.decoder.logits.shape[1];
    int32_t *packed = malloc((size_t)(S * T) * sizeof *packed);
    float *got = malloc(tensor_bytes(r->m.decoder.logits));
    for (int64_t first = 0, n; first < T && (n = *chunks) > 0; first += n, chunks++) {
        Tensor tokens = {r->m.decoder.tokens.data, DTYPE_I32, 2, {S, n}};
        for (int64_t s = 0; s < S; s++)
            memcpy(packed + s * n, r->tokens + s * T + first, (size_t)n * sizeof *packed);
        copy_in(&r->m.ctx, tokens, packed);
        model_decode(&r->m, n, first);
        copy_out(&r->m.ctx, got, r->m.decoder.logits);
        assert_false(r->e.set);
        for (int64_t s = 0; s < S; s++) {
            const double *expected = logits + (s * T + first + n - 1) * V;
            double most = 0;
            for (int64_t v = 0; v < V; v++)
                most = fmax(most, fabs(expected[v]));
            for (int64_t v = 0; v < V; v++)
                if (!(fabs((double)got[s * Vp + v] - expected[v]) <= 1e-5 * most))
                    fail_msg("position %d of sequence %d: %g, expected %g", (int)(first + n - 1), (int)s, (double)got[s * Vp + v],
                             expected[v]);
        }
    }
    free(packed);
    free(got);
}

/* Decoding through the cache gives the forward's logits at every position, however the tokens are split: one by one, in a chunk
 * and then one by one, in uneven chunks. Dropout is off in generation. */
static void test_decode(void **state)
{
    (void)state;
    static const int64_t ones[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, prefill[] = {9, 1, 1, 1, 1}, uneven[] = {4, 3, 1, 5},
                         whole[] = {13};
    static const int64_t *const splits[] = {ones, prefill, uneven, whole};
    Rig r;
    RigShape s = rig_small_shape();
    s.run.sample_size = s.run.batch_size;
    s.config.n_head = 3;
    s.config.n_kv_head = 1;
    s.config.dropout = 0.5;
    rig_make(&r, &s, 1);
    double *flat = reference_weights(&r), *logits = numbers(26 * 37);
    r.m.config.dropout = 0;
    reference_loss(&r, flat, logits);
    r.m.config.dropout = 0.5;
    for (int i = 0; i < 4; i++)
        decode_check(&r, logits, splits[i]);
    free(flat);
    free(logits);
    rig_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_models),
        cmocka_unit_test(test_evaluation),
        cmocka_unit_test(test_padding),
        cmocka_unit_test(test_tied_embedding),
        cmocka_unit_test(test_all_ignored),
        cmocka_unit_test(test_accumulation),
        cmocka_unit_test(test_mean_over_targets),
        cmocka_unit_test(test_nonfinite_is_skipped),
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_decode),
    };
    return cmocka_run_group_tests_name("model", tests, NULL, NULL);
}
