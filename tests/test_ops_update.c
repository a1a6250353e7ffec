/* The update of the weights, random bits, what must be the same bits, and the CPU as a device: in every build and on 1, 2
 * and 3 threads. */
#include "tests/cpu_machine.h"

/* ---- Random bits ---------------------------------------------------------------------------------------------------- */

/* Known answers published with the generator. */
static void philox_known_answers(void **state)
{
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    (void)state;
    for (int i = 0; i < 3; i++) {
        const uint32_t *c = known[i].counter;
        Philox p = philox4x32_10(c[0], c[1], c[2], c[3], known[i].key[0], known[i].key[1]);
        assert_memory_equal(p.word, known[i].out, sizeof p.word);
    }
}

/* Every build drops the same elements, a stream's own share of them, and others at another step, micro-batch or layer. */
static void dropout_streams(Machine *m)
{
    enum { N = 300, C = 100 };
    Tensor zero_in = zeros_2d(m, N, C), ones = zeros_2d(m, N, C), w = zeros_1d(m, C), y = zeros_2d(m, N, C),
           stats = zeros_2d(m, N, 2);
    Tensor out[4];
    const Dropout drop[4] = {{0.1f, RANDOM_MLP_RESIDUAL, 1},
                             {0.1f, RANDOM_MLP_RESIDUAL, 2},
                             {0.1f, RANDOM_ATTENTION_RESIDUAL, 1},
                             {0.1f, RANDOM_MLP_RESIDUAL, 1}};
    for (int i = 0; i < N * C; i++)
        floats(ones)[i] = 1;
    for (int i = 0; i < 4; i++) {
        m->state.micro = i == 3 ? 7 : 2;
        out[i] = zeros_2d(m, N, C);
        residual_norm_forward(&m->ctx, out[i], y, stats, zero_in, ones, w, TENSOR_NONE, drop[i]);
        int64_t kept = 0, differ = 0;
        for (int64_t k = 0; k < N * C; k++) {
            assert_true((double)floats(out[i])[k] == dropped(m, drop[i], k, 1));
            kept += floats(out[i])[k] != 0;
            differ += (floats(out[i])[k] != 0) != (floats(out[0])[k] != 0);
        }
        assert_true(kept > 26700 && kept < 27300);                          /* 27000 +- 52 of 30000 */
        assert_true(i == 0 ? differ == 0 : differ > 5000 && differ < 5800); /* 5400 +- 66 */
    }
    m->state.micro = 2;
}

/* ---- Norm of the gradient and AdamW --------------------------------------------------------------------------------- */

static const AdamW plain_adam = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8f, .weight_decay = 0.1f};

static void grad_norm_check(Machine *m)
{
    enum { N = 200003 };
    Tensor g = random_1d(m, N, 1);
    double sum = 0;
    for (int64_t i = 0; i < N; i++)
        sum += (double)floats(g)[i] * floats(g)[i];
    m->state.adam_t = 4;
    grad_norm(&m->ctx, g, 2.5f, &plain_adam);
    assert_true(fabs(m->state.grad_norm - sqrt(sum)) < 1e-12 * sqrt(sum));
    assert_true(fabs(m->state.clip_coef - 2.5 / (sqrt(sum) + 1e-6)) < 1e-9);
    assert_int_equal(m->state.nonfinite, 0);
    assert_int_equal(m->state.adam_t, 5);
    assert_true(fabs(m->state.bias_1 - (1 - pow(0.9, 5))) < 1e-7 && fabs(m->state.bias_2 - (1 - pow(0.95, 5))) < 1e-7);
    grad_norm(&m->ctx, g, 0, &plain_adam);
    assert_true(m->state.clip_coef == 1);
    grad_norm(&m->ctx, g, 1e9f, &plain_adam);
    assert_true(m->state.clip_coef == 1);
}

typedef struct Params {
    Tensor w, g, m, v;
} Params;

static Params params_make(Machine *m, int64_t n)
{
    Params p = {random_1d(m, n, 1), random_1d(m, n, 2), random_1d(m, n, 3), random_1d(m, n, 4)};
    for (int64_t i = 0; i < n; i++)
        floats(p.v)[i] *= floats(p.v)[i];
    return p;
}

static void adamw_check(Machine *m, int64_t n, const DecayRange *decay, int n_decay)
{
    Params p = params_make(m, n);
    AdamW adam = plain_adam;
    double *w = doubles(m, n), *first = doubles(m, n), *second = doubles(m, n);
    adam.decay = decay;
    adam.n_decay = n_decay;
    m->state.learning_rate = 0.01f;
    m->state.scaler.scale = 4;
    m->state.adam_t = 2;
    grad_norm(&m->ctx, p.g, 0.25f, &adam);
    for (int64_t i = 0; i < n; i++) {
        double g = floats(p.g)[i] * (double)m->state.clip_coef / 4, lr = 0.01f, keep = 1;
        for (int r = 0; r < n_decay; r++)
            keep = i >= decay[r].begin && i < decay[r].end ? 1 - lr * 0.1f : keep;
        first[i] = 0.9 * floats(p.m)[i] + 0.1 * g;
        second[i] = 0.95 * floats(p.v)[i] + 0.05 * g * g;
        w[i] = floats(p.w)[i] * keep - lr * (first[i] / (1 - pow(0.9, 3))) / (sqrt(second[i] / (1 - pow(0.95, 3))) + 1e-8f);
    }
    adamw(&m->ctx, p.w, TENSOR_NONE, p.g, p.m, p.v, &adam);
    assert_close(p.m, first);
    assert_close(p.v, second);
    assert_close(p.w, w);
    for (int64_t i = 0; i < n; i++) /* each: decay alone makes 1e-3 of a weight */
        assert_true(fabs(floats(p.w)[i] - w[i]) < 1e-6 * fmax(1, fabs(w[i])));
    m->state.scaler.scale = 1;
}

static void adamw_each(Machine *m)
{
    static const int64_t sizes[] = {1, 2, 3, 7, 31, 33, 64, 100, 255, 257};
    for (int i = 0; i < 10; i++) {
        adamw_check(m, sizes[i], NULL, 0);
        adamw_check(m, sizes[i], &(DecayRange){0, sizes[i]}, 1);
        adamw_check(m, sizes[i], (DecayRange[]){{sizes[i] / 3, sizes[i] / 2}, {sizes[i] / 2, sizes[i] - 1 + !i}}, 2);
    }
    adamw_check(m, 50001, (DecayRange[]){{0, 1}, {5, 5}, {16000, 16700}, {20000, 40001}, {50000, 50001}}, 5);
}

/* The scale of this step divides the norm and makes grad_factor; the next step's is half of it after an overflow, and twice after
 * 2000 steps without; a fixed one stays. */
static void scaler_moves_on(Machine *m)
{
    Tensor g = random_1d(m, 100, 1);
    double norm;
    m->state.scaler = (Scaler){.scale = 1, .dynamic = 1};
    grad_norm(&m->ctx, g, 0, &plain_adam);
    norm = m->state.grad_norm;
    m->state.scaler = (Scaler){.scale = 64, .dynamic = 1, .good = SCALER_INTERVAL - 1};
    grad_norm(&m->ctx, g, 0, &plain_adam);
    assert_true(m->state.grad_norm == norm / 64 && m->state.grad_factor == 1.0f / 64);
    assert_true(m->state.scaler.scale == 128 && m->state.scaler.good == 0);
    grad_norm(&m->ctx, g, 0, &plain_adam);
    assert_true(m->state.grad_norm == norm / 128 && m->state.scaler.scale == 128 && m->state.scaler.good == 1);
    floats(g)[50] = INFINITY;
    grad_norm(&m->ctx, g, 0, &plain_adam);
    assert_true(m->state.nonfinite && m->state.scaler.scale == 64 && m->state.scaler.good == 0);
    m->state.scaler = (Scaler){.scale = 1, .dynamic = 1};
    grad_norm(&m->ctx, g, 0, &plain_adam);
    assert_true(m->state.scaler.scale == 1);
    m->state.scaler = (Scaler){.scale = 64};
    grad_norm(&m->ctx, g, 0, &plain_adam);
    assert_true(m->state.scaler.scale == 64 && m->state.scaler.good == 0);
    m->state.scaler = (Scaler){.scale = 1};
}

/* FIELD: clipping does not depend on the loss scale. */
static void clip_ignores_loss_scale(Machine *m)
{
    Params a = params_make(m, 1000), b = params_make(m, 1000);
    m->state.learning_rate = 0.01f;
    m->state.adam_t = 0;
    grad_norm(&m->ctx, a.g, 0.5f, &plain_adam);
    double norm = m->state.grad_norm;
    adamw(&m->ctx, a.w, TENSOR_NONE, a.g, a.m, a.v, &plain_adam);
    for (int i = 0; i < 1000; i++)
        floats(b.g)[i] *= 65536;
    m->state.scaler.scale = 65536;
    m->state.adam_t = 0;
    grad_norm(&m->ctx, b.g, 0.5f, &plain_adam);
    adamw(&m->ctx, b.w, TENSOR_NONE, b.g, b.m, b.v, &plain_adam);
    assert_true(m->state.grad_norm == norm);
    assert_same_bits(a.w, b.w);
    m->state.scaler.scale = 1;
}

/* FIELD: one Inf or NaN anywhere, and weights, moments and step count stay bit-identical, without even decay. */
static void nonfinite_changes_nothing(Machine *m)
{
    static const float bad[] = {INFINITY, -INFINITY, NAN};
    enum { N = 40000 };
    for (int i = 0; i < 3; i++)
        for (int64_t at = 0; at < N; at += N - 1) {
            Params p = params_make(m, N), before = params_make(m, N);
            AdamW adam = plain_adam;
            adam.decay = &(DecayRange){0, N};
            adam.n_decay = 1;
            floats(p.g)[at] = bad[i];
            m->state.adam_t = 7;
            m->state.bias_1 = m->state.bias_2 = 0.5f;
            m->state.learning_rate = 0.01f;
            grad_norm(&m->ctx, p.g, 1, &adam);
            adamw(&m->ctx, p.w, TENSOR_NONE, p.g, p.m, p.v, &adam);
            assert_int_equal(m->state.nonfinite, 1);
            assert_false(isfinite(m->state.grad_norm));
            assert_int_equal(m->state.adam_t, 7);
            assert_true(m->state.bias_1 == 0.5f && m->state.bias_2 == 0.5f);
            assert_same_bits(p.w, before.w);
            assert_same_bits(p.m, before.m);
            assert_same_bits(p.v, before.v);
        }
    Tensor g = random_1d(m, 10, 1);
    grad_norm(&m->ctx, g, 1, &plain_adam);
    assert_int_equal(m->state.nonfinite, 0); /* and the next step is well again */
    assert_int_equal(m->state.adam_t, 8);
}

/* FIELD: w = 1 minus 6e-4 a hundred times is 0.94; zero gradients and moments move nothing and give no NaN. */
static void small_updates(Machine *m)
{
    Tensor w = zeros_1d(m, 3), g = zeros_1d(m, 3), first = zeros_1d(m, 3), second = zeros_1d(m, 3);
    floats(w)[0] = 1;
    floats(w)[1] = -2;
    m->state.learning_rate = 6e-4f;
    for (int step = 0; step < 100; step++) {
        floats(g)[0] = 1; /* a constant gradient moves a weight by lr a step */
        m->state.adam_t = step;
        grad_norm(&m->ctx, g, 0, &plain_adam);
        adamw(&m->ctx, w, TENSOR_NONE, g, first, second, &plain_adam);
    }
    assert_true(fabs(floats(w)[0] - 0.94) < 1e-5);
    assert_true(floats(w)[1] == -2 && floats(w)[2] == 0);
}

/* ---- The same bits --------------------------------------------------------------------------------------------------- */

enum { ROWS = 200, WIDTH = 257, VOCABULARY = 301, OUTPUTS = 14 };

/* Runs every op on sizes that all threads share, from the same inputs; keeps all outputs. */
static void outputs_make(Machine *m, Tensor out[OUTPUTS], double *loss_sum, double *norm)
{
    Ctx *c = &m->ctx;
    const Dropout drop = {0.2f, RANDOM_EMBEDDING_DROPOUT, 0};
    Tensor x = random_2d(m, ROWS, WIDTH, 1), dy = random_2d(m, ROWS, WIDTH, 2), w = random_2d(m, WIDTH, WIDTH, 3);
    Tensor b = random_1d(m, WIDTH, 4), wte = random_2d(m, VOCABULARY, WIDTH, 5),
           tokens = random_ids(m, 4, ROWS / 4, VOCABULARY, 6);
    Tensor targets = tensor_1d(tokens.data, DTYPE_I32, ROWS), stats = zeros_2d(m, ROWS, 2), logits = zeros_2d(m, 150, VOCABULARY);
    Tensor losses = zeros_1d(m, ROWS);
    for (int i = 0; i < OUTPUTS; i++)
        out[i] = zeros_2d(m, ROWS, WIDTH);
    out[0] = zeros_2d(m, VOCABULARY, WIDTH); /* the first five do not depend on the number of threads */
    embedding_backward(c, out[0], TENSOR_NONE, dy, tokens, drop);
    embedding_forward(c, out[1], tokens, wte, x, 0, drop);
    residual_norm_forward(c, out[2], out[3], stats, x, dy, b, b, drop);
    gelu_backward(c, out[4], dy, x);
    out[5] = zeros_1d(m, WIDTH), out[6] = zeros_1d(m, WIDTH), out[7] = zeros_1d(m, WIDTH), out[8] = zeros_2d(m, WIDTH, WIDTH);
    residual_norm_backward(c, out[9], TENSOR_NONE, out[5], out[6], dy, dy, x, stats, b, drop);
    linear_forward(c, out[10], x, w, b);
    linear_backward(c, out[11], out[8], out[7], dy, x, w);
    out[12] = zeros_2d(m, VOCABULARY, WIDTH);
    m->state.loss_sum = 0;
    head_loss_backward(c, out[13], out[12], losses, x, wte, targets, logits, VOCABULARY);
    *loss_sum = m->state.loss_sum;
    grad_norm(c, tensor_1d(wte.data, DTYPE_F32, tensor_count(wte)), 1, &plain_adam);
    *norm = m->state.grad_norm;
}

static void same_bits_again(Machine *m)
{
    Tensor a[OUTPUTS], b[OUTPUTS];
    double sums[2], norms[2];
    outputs_make(m, a, &sums[0], &norms[0]);
    outputs_make(m, b, &sums[1], &norms[1]);
    assert_memory_equal(&sums[0], &sums[1], sizeof sums[0]);
    assert_memory_equal(&norms[0], &norms[1], sizeof norms[0]);
    for (int i = 0; i < OUTPUTS; i++)
        assert_same_bits(a[i], b[i]);
}

static void same_bits_on_more_threads(void **state)
{
    static Machine m[2];
    Tensor out[2][OUTPUTS];
    double sums[2], norms[2];
    (void)state;
    if (mirror_wanted())
        return; /* it has but one number of threads, and one memory */
    for (int i = 0; i < 2; i++) {
        assert_true(machine_open(&m[i], "plain", 1 + 2 * i));
        outputs_make(&m[i], out[i], &sums[i], &norms[i]);
    }
    assert_memory_equal(&norms[0], &norms[1], sizeof norms[0]);
    for (int i = 0; i < 5; i++)
        assert_same_bits(out[0][i], out[1][i]);
    for (int i = 0; i < 2; i++)
        machine_close(&m[i]);
}

/* ---- The device ------------------------------------------------------------------------------------------------------ */

static void memory_and_copies(Machine *m)
{
    const size_t sizes[] = {0, 1, 4096, 100000, ((size_t)4 << 20) + 12};
    for (int i = 0; i < 5; i++) {
        unsigned char *p = m->ctx.device->memory_take(sizes[i], "a test", &m->error);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 64, 0);
        for (size_t k = 0; k < sizes[i]; k++)
            assert_true(p[k] == 0);
        memset(p, 7, sizes[i]);
        m->ctx.device->memory_give(p, sizes[i]);
    }
    Tensor t = zeros_1d(m, 50001), source = random_1d(m, 50001, 1), back = zeros_1d(m, 50002);
    copy_in(&m->ctx, t, source.data);
    assert_same_bits(t, source);
    copy_out(&m->ctx, back.data, t);
    assert_memory_equal(back.data, source.data, tensor_bytes(source));
    assert_true(floats(back)[50001] == 0);
    floats(back)[50001] = 1;
    back.shape[0] = 50001;
    zero(&m->ctx, back);
    for (int i = 0; i < 50001; i++)
        assert_true(floats(back)[i] == 0);
    assert_true(floats(back)[50001] == 1);
    m->ctx.device->synchronize(&m->ctx);
}

/* Takes the context's message, which must contain `words`. */
static void expect_error(Machine *m, const char *words)
{
    if (!m->error.set || !strstr(m->error.text, words))
        fail_msg("expected an error with \"%s\", have \"%s\"", words, m->error.text);
    m->error = (Error){0};
}

static void wrong_input_is_said(Machine *m)
{
    Ctx *c = &m->ctx;
    const Dropout none = {0};
    if (mirror_wanted())
        return; /* a GPU does not stop for the host to look at ids: test_ids_elsewhere */
    Tensor wte = random_2d(m, 8, 20, 1), x = zeros_2d(m, 4, 20), tokens = random_ids(m, 1, 4, 7, 2), before;
    Tensor targets = tensor_1d(tokens.data, DTYPE_I32, 4), losses = zeros_1d(m, 4), logits = zeros_2d(m, 4, 8);
    ((int32_t *)tokens.data)[2] = 8;
    embedding_forward(c, x, tokens, wte, wte, 0, none);
    expect_error(m, "token 8 at position 2");
    before = copy_of(m, wte);
    embedding_backward(c, wte, TENSOR_NONE, x, tokens, none);
    expect_error(m, "token 8 at position 2");
    assert_same_bits(wte, before);
    ((int32_t *)tokens.data)[2] = 7; /* a padded id is no target */
    head_loss_forward(c, losses, x, wte, targets, logits, 7);
    expect_error(m, "target 7 at position 2");
    ((int32_t *)tokens.data)[2] = -100;
    head_loss_backward(c, x, TENSOR_NONE, losses, x, wte, targets, logits, 7);
    expect_error(m, "target -100 at position 2");
    c->workspace_bytes = 16;
    linear_forward(c, logits, x, zeros_2d(m, 20, 8), TENSOR_NONE);
    expect_error(m, "workspace");
    residual_norm_backward(c, x, TENSOR_NONE, TENSOR_NONE, TENSOR_NONE, TENSOR_NONE, x, x, zeros_2d(m, 4, 2), zeros_1d(m, 20),
                           none);
    expect_error(m, "workspace");
    c->workspace_bytes = 0;
    grad_norm(c, losses, 1, &plain_adam);
    expect_error(m, "workspace");
}

/* On a GPU: a token or target that there is not gives NaN, which stops a run, and nothing beside its row changes. */
static void ids_elsewhere(Machine *m)
{
    Ctx *c = &m->ctx;
    const Dropout none = {0};
    if (!mirror_wanted())
        return;
    Tensor wte = random_2d(m, 8, 20, 1), x = zeros_2d(m, 4, 20), dx = random_2d(m, 4, 20, 3), dwte = zeros_2d(m, 8, 20);
    Tensor tokens = random_ids(m, 1, 4, 7, 2), losses = zeros_1d(m, 4), logits = zeros_2d(m, 4, 8);
    memcpy(tokens.data, (int32_t[]){1, 8, -5, 2}, 4 * sizeof(int32_t));
    embedding_forward(c, x, tokens, wte, wte, 0, none);
    embedding_backward(c, dwte, TENSOR_NONE, dx, tokens, none);
    for (int i = 0; i < 80; i++)
        assert_true(isnan(floats(x)[i]) == (i >= 20 && i < 60));
    for (int i = 0; i < 160; i++) {
        float want = i / 20 == 1 ? floats(dx)[i - 20] : i / 20 == 2 ? floats(dx)[i + 20] : 0;
        assert_true(floats(dwte)[i] == want);
    }
    memcpy(tokens.data, (int32_t[]){1, 7, -100, -1}, 4 * sizeof(int32_t)); /* 7: a padded id */
    head_loss_backward(c, x, TENSOR_NONE, losses, dx, wte, tensor_1d(tokens.data, DTYPE_I32, 4), logits, 7);
    assert_true(isfinite(floats(losses)[0]) && isnan(floats(losses)[1]) && isnan(floats(losses)[2]) && floats(losses)[3] == 0);
    assert_true(isnan(m->state.loss_sum));
}

static void device_choice(void **state)
{
    Target t;
    Error e = {0};
    (void)state;
    assert_non_null(cpu_device(&t, 0, &e));
    assert_true(t.threads >= 1 && t.total_bytes > (size_t)1 << 20 && strstr(t.name, "thread"));
    assert_null(cpu_device(&t, -1, &e));
    assert_true(e.set && e.usage);
    e = (Error){0};
    setenv("TALLY_ISA", "v9", 1);
    assert_null(cpu_device(&t, 1, &e));
    assert_true(strstr(e.text, "v9") != NULL);
    e = (Error){0};
    setenv("TALLY_ISA", "plain", 1);
    assert_non_null(cpu_device(&t, 3, &e));
    assert_int_equal(t.isa, ISA_PLAIN);
    assert_int_equal(t.threads, 3);
    unsetenv("TALLY_ISA");
    assert_null(cpu_device(&t, 1, &e)->memory_take((size_t)1 << 62, "too much", &e));
    assert_true(strstr(e.text, "too much") != NULL);
    e = (Error){0};
    assert_null(cpu_device(&t, 1, &e)->memory_take(SIZE_MAX, "far too much", &e));
    assert_true(e.set);
}

/* The plan and the launch ask the same functions; a chunk of the head is never more than was planned, the last one included. */
static void workspace_of_all_chunks(Machine *m)
{
    enum { C = 33, V = 65 };
    static const int64_t rows[][2] = {{1, 2}, {13, 4}, {37, 10}, {37, 36}, {37, 40}}; /* N, R */
    for (int i = 0; i < 5; i++) {
        int64_t N = rows[i][0], R = rows[i][1];
        Tensor x = random_2d(m, N, C, 1), wte = random_2d(m, V, C, 2), dx = zeros_2d(m, N, C), dwte = zeros_2d(m, V, C);
        Tensor targets = random_ids(m, N, 1, V, 3), logits = zeros_2d(m, R, V);
        size_t planned = m->ctx.workspace_bytes;
        m->ctx.workspace_bytes = head_workspace(N, R, C, V, (GemmTypes){0}, &m->ctx.target);
        head_loss_backward(&m->ctx, dx, dwte, zeros_1d(m, N), x, wte, tensor_1d(targets.data, DTYPE_I32, N), logits, V);
        m->ctx.workspace_bytes = planned;
        assert_false(m->error.set);
    }
}

#define TEST_EACH(body)                                                                                                          \
    static void test_##body(void **state)                                                                                        \
    {                                                                                                                            \
        (void)state;                                                                                                             \
        machine_each(body);                                                                                                      \
    }
TEST_EACH(dropout_streams)
TEST_EACH(grad_norm_check)
TEST_EACH(adamw_each)
TEST_EACH(clip_ignores_loss_scale)
TEST_EACH(scaler_moves_on)
TEST_EACH(nonfinite_changes_nothing)
TEST_EACH(small_updates)
TEST_EACH(same_bits_again)
TEST_EACH(memory_and_copies)
TEST_EACH(wrong_input_is_said)
TEST_EACH(workspace_of_all_chunks)
TEST_EACH(ids_elsewhere)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_known_answers),
        cmocka_unit_test(test_dropout_streams),
        cmocka_unit_test(test_grad_norm_check),
        cmocka_unit_test(test_adamw_each),
        cmocka_unit_test(test_clip_ignores_loss_scale),
        cmocka_unit_test(test_scaler_moves_on),
        cmocka_unit_test(test_nonfinite_changes_nothing),
        cmocka_unit_test(test_small_updates),
        cmocka_unit_test(test_same_bits_again),
        cmocka_unit_test(same_bits_on_more_threads),
        cmocka_unit_test(test_memory_and_copies),
        cmocka_unit_test(test_wrong_input_is_said),
        cmocka_unit_test(test_workspace_of_all_chunks),
        cmocka_unit_test(test_ids_elsewhere),
        cmocka_unit_test(device_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
