/* Every golden case of an operation that GPT-2 uses, but attention, through the op table in every build. */
#include "tests/golden_ops.h"

static const Dropout none;

static Tensor as_rows(Tensor t)
{
    return tensor_2d(t.data, t.dtype, tensor_count(t) / tensor_width(t), tensor_width(t));
}

static void check_layernorm(const GoldenCase *g)
{
    Machine *m = g->machine;
    Tensor x = golden_tensor(g, "in.x"), w = golden_tensor(g, "in.w"), b = golden_tensor(g, "in.b");
    int64_t N = x.shape[0], C = x.shape[1];
    Tensor y = zeros_2d(m, N, C), stats = zeros_2d(m, N, 2), dx = zeros_2d(m, N, C), dw = zeros_1d(m, C), db = zeros_1d(m, C);
    bool constant = !strcmp(g->name, "constant_rows");
    norm_forward(&m->ctx, y, stats, x, w, b);
    residual_norm_backward(&m->ctx, dx, TENSOR_NONE, dw, db, TENSOR_NONE, golden_tensor(g, "dout.y"), x, stats, w, none);
    golden_check(g, "y", y, constant);
    golden_check(g, "grad.x", dx, false);
    golden_check(g, "grad.w", dw, constant);
    golden_check(g, "grad.b", db, false);
}

/* Each element against max(1, |x|), as the case asks; and the sign of -0. */
static void check_gelu(const GoldenCase *g)
{
    Machine *m = g->machine;
    Tensor x = golden_tensor(g, "in.x"), want = golden_tensor(g, "out.y"), y = copy_of(m, x), dx = copy_of(m, x);
    gelu_forward(&m->ctx, y, x);
    gelu_backward(&m->ctx, dx, golden_tensor(g, "dout.y"), x);
    GoldenCase evidence = *g;
    evidence.entry = json_object_get(json_object_get(g->entry, "float32_evidence"), "y");
    double error = 10 * golden_number(&evidence, NULL, "max_abs");
    for (int64_t i = 0; i < tensor_count(x); i++) {
        assert_true(fabs((double)floats(y)[i] - floats(want)[i]) <= error * fmax(1, fabs(floats(x)[i])));
        if (floats(x)[i] == 0)
            assert_int_equal(signbit(floats(x)[i]) != 0, signbit(floats(y)[i]) != 0);
    }
    golden_check(g, "grad.x", dx, true);
}

/* The logits are x wte' with wte the identity: exactly x, and dx = dlogits exactly. */
static void check_softmax_ce(const GoldenCase *g)
{
    Machine *m = g->machine;
    Tensor x = golden_tensor(g, "in.logits"), targets = golden_tensor(g, "in.targets");
    int64_t N = x.shape[0], V = x.shape[1], counted = 0;
    Tensor wte = zeros_2d(m, V, V), losses = zeros_1d(m, N), logits = zeros_2d(m, 2, V), dx = zeros_2d(m, N, V);
    Tensor loss = {machine_memory(m, 4), DTYPE_F32, 0, {0}};
    for (int64_t i = 0; i < V; i++)
        floats(wte)[i * V + i] = 1;
    for (int64_t n = 0; n < N; n++)
        counted += ((int32_t *)targets.data)[n] >= 0;
    m->state.loss_sum = 0;
    m->state.inverse_count = counted ? floats(golden_tensor(g, "dout.loss"))[0] / (float)counted : 0;
    head_loss_backward(&m->ctx, dx, TENSOR_NONE, losses, x, wte, targets, logits, V);
    floats(loss)[0] = counted ? (float)(m->state.loss_sum / (double)counted) : 0;
    golden_check(g, "nll", losses, false);
    golden_check(g, "grad.logits", dx, false);
    golden_check(g, "loss", loss, false);
}

static void check_embedding(const GoldenCase *g)
{
    Machine *m = g->machine;
    Tensor wte = golden_tensor(g, "in.wte"), wpe = golden_tensor(g, "in.wpe"), tokens = golden_tensor(g, "in.tokens");
    Tensor dy = as_rows(golden_tensor(g, "dout.y")), y = zeros_2d(m, dy.shape[0], dy.shape[1]);
    Tensor dwte = zeros_2d(m, wte.shape[0], wte.shape[1]), dwpe = zeros_2d(m, wpe.shape[0], wpe.shape[1]);
    embedding_forward(&m->ctx, y, tokens, wte, wpe, 0, none);
    embedding_backward(&m->ctx, dwte, dwpe, dy, tokens, none);
    golden_check(g, "y", y, false);
    golden_check(g, "grad.wte", dwte, false);
    golden_check(g, "grad.wpe", dwpe, false);
}

static void check_linear(const GoldenCase *g)
{
    Machine *m = g->machine;
    Tensor x = golden_tensor(g, "in.x"), w = golden_tensor(g, "in.w"), b = golden_tensor(g, "in.b");
    int64_t N = x.shape[0], I = w.shape[0], O = w.shape[1];
    Tensor y = zeros_2d(m, N, O), dx = zeros_2d(m, N, I), dw = zeros_2d(m, I, O), db = zeros_1d(m, O);
    linear_forward(&m->ctx, y, x, w, b);
    linear_backward(&m->ctx, dx, dw, db, golden_tensor(g, "dout.y"), x, w);
    golden_check(g, "y", y, false);
    golden_check(g, "grad.x", dx, false);
    golden_check(g, "grad.w", dw, false);
    golden_check(g, "grad.b", db, false);
}

/* The tensors a, b, c of a case lie one after the other, as parameters do. */
static void check_global_norm(const GoldenCase *g)
{
    static const char *const parts[] = {"in.a", "in.b", "in.c"};
    Machine *m = g->machine;
    Tensor all = zeros_1d(m, 4096);
    int64_t n = 0;
    for (int i = 0; i < 3; i++)
        if (golden_find(g, parts[i])) {
            Tensor t = golden_tensor(g, parts[i]);
            assert_true(n + tensor_count(t) <= 4096);
            memcpy(floats(all) + n, t.data, tensor_bytes(t));
            n += tensor_count(t);
        }
    all.shape[0] = n;
    double norm = golden_number(g, NULL, "norm"), coef = golden_number(g, NULL, "clip_coef");
    grad_norm(&m->ctx, all, (float)golden_number(g, NULL, "max_norm"), &(AdamW){.beta1 = 0.9, .beta2 = 0.999});
    assert_true(fabs(m->state.grad_norm - norm) <= 1e-6 * norm);
    assert_true(fabs((double)m->state.clip_coef - coef) <= (coef == 1 ? 0 : 1e-6 * coef));
    assert_int_equal(m->state.nonfinite, 0);
}

/* A weight cannot be nearer to the truth than its own rounding: the update is judged beyond that. */
static void check_adamw(const GoldenCase *g)
{
    Machine *m = g->machine;
    Tensor p = golden_tensor(g, "in.p"), grad = golden_tensor(g, "in.g"), M = golden_tensor(g, "in.m"),
           V = golden_tensor(g, "in.v");
    Tensor delta = golden_tensor(g, "out.delta"), before = copy_of(m, p);
    int64_t n = tensor_count(p);
    double t = golden_number(g, NULL, "t"), beta1 = golden_number(g, "hyper", "beta1"),
           beta2 = golden_number(g, "hyper", "beta2");
    DecayRange all = {0, n};
    AdamW adam = {.beta1 = beta1,
                  .beta2 = beta2,
                  .eps = (float)golden_number(g, "hyper", "eps"),
                  .weight_decay = (float)golden_number(g, "hyper", "weight_decay"),
                  .decay = &all,
                  .n_decay = json_is_true(json_object_get(g->entry, "decayed"))};
    m->state.clip_coef = m->state.grad_factor = 1;
    m->state.learning_rate = (float)golden_number(g, "hyper", "lr");
    m->state.bias_1 = (float)(1 - pow(beta1, t));
    m->state.bias_2 = (float)(1 - pow(beta2, t));
    adamw(&m->ctx, tensor_1d(p.data, DTYPE_F32, n), TENSOR_NONE, tensor_1d(grad.data, DTYPE_F32, n),
          tensor_1d(M.data, DTYPE_F32, n), tensor_1d(V.data, DTYPE_F32, n), &adam);
    golden_check(g, "m", M, false);
    golden_check(g, "v", V, false);
    for (int64_t i = 0; i < n; i++) {
        double want = (double)floats(before)[i] + floats(delta)[i];
        assert_true(fabs(floats(p)[i] - want) <= 1e-5 * fabs(floats(delta)[i]) + 0x1p-23 * fabs(want));
    }
}

static const struct {
    const char *op;
    void (*check)(const GoldenCase *);
    int cases; /* that the folder has; more are checked too */
} checks[] = {{"layernorm", check_layernorm, 7}, {"gelu", check_gelu, 1},     {"softmax_ce", check_softmax_ce, 4},
              {"embedding", check_embedding, 2}, {"linear", check_linear, 1}, {"global_norm", check_global_norm, 5},
              {"adamw", check_adamw, 7}};
enum { N_CHECKS = sizeof checks / sizeof checks[0] };

static void check_all(Machine *m)
{
    Golden golden;
    int seen[N_CHECKS] = {0};
    golden_open(&golden);
    const json_t *ops = json_object_get(golden.root, "ops"), *entry;
    size_t index;
    json_array_foreach(ops, index, entry)
    {
        GoldenCase g = {&golden, m, entry, json_string_value(json_object_get(entry, "op")),
                        json_string_value(json_object_get(entry, "case"))};
        assert_true(g.op && g.name);
        for (int i = 0; i < N_CHECKS; i++)
            if (!strcmp(g.op, checks[i].op)) {
                checks[i].check(&g);
                seen[i]++;
            }
    }
    for (int i = 0; i < N_CHECKS; i++)
        if (seen[i] < checks[i].cases)
            fail_msg("%s: %d cases, expected at least %d", checks[i].op, seen[i], checks[i].cases);
    golden_close(&golden);
}

static void golden_cases_pass(void **state)
{
    (void)state;
    machine_each(check_all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(golden_cases_pass)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
