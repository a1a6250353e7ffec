/* The ops of the CPU but attention, in every build and on 1, 2 and 3 threads: against references in double that are written
 * from the formulas, over sizes that fit no vector; and what must hold exactly. */
#include "kernels/cpu/cpu.h"
#include "tests/cpu_machine.h"

static const int64_t sizes[] = {1, 2, 3, 7, 31, 33, 64, 100, 255, 257};
enum { N_SIZES = sizeof sizes / sizeof sizes[0] };

static const Dropout none, half = {0.5f, RANDOM_MLP_RESIDUAL, 3};

/* ---- Norm ---------------------------------------------------------------------------------------------------------- */

typedef struct Row {
    double mean, rstd;
} Row;

static Row row_statistics(const float *x, int64_t C)
{
    double mean = 0, var = 0;
    for (int64_t i = 0; i < C; i++)
        mean += x[i] / (double)C;
    for (int64_t i = 0; i < C; i++)
        var += (x[i] - mean) * (x[i] - mean) / (double)C;
    return (Row){mean, 1 / sqrt(var + 1e-5)};
}

static void norm_forward_check(Machine *m, int64_t N, int64_t C, Dropout drop, bool bias)
{
    Tensor in = random_2d(m, N, C, 1), branch = random_2d(m, N, C, 2), w = random_1d(m, C, 3), b = random_1d(m, C, 4);
    Tensor y = zeros_2d(m, N, C), stats = zeros_2d(m, N, 2), out = zeros_2d(m, N, C), again = zeros_2d(m, N, C);
    double *want = doubles(m, N * C), *want_out = doubles(m, N * C), *want_stats = doubles(m, 2 * N);
    b = bias ? b : TENSOR_NONE;
    residual_norm_forward(&m->ctx, out, y, stats, in, branch, w, b, drop);
    for (int64_t n = 0; n < N; n++) {
        Row r = row_statistics(floats(out) + n * C, C);
        want_stats[2 * n] = r.mean;
        want_stats[2 * n + 1] = r.rstd;
        for (int64_t i = 0, at = n * C; i < C; i++, at++) {
            want_out[at] = floats(in)[at] + dropped(m, drop, at, floats(branch)[at]);
            want[at] = (floats(out)[at] - r.mean) * r.rstd * floats(w)[i] + (bias ? floats(b)[i] : 0);
        }
    }
    assert_close(out, want_out);
    assert_close(y, want);
    assert_close(stats, want_stats);
    norm_forward(&m->ctx, again, stats, out, w, b);
    assert_same_bits(again, y);
    residual_norm_forward(&m->ctx, in, y, stats, in, branch, w, b, drop); /* in place */
    assert_same_bits(in, out);
}

/* dx, dw and db by the formulas; `skip` may be NULL. */
static void norm_backward_reference(double *dx, double *dw, double *db, const float *skip, const float *dy, const float *x,
                                    const float *w, int64_t N, int64_t C)
{
    for (int64_t n = 0; n < N; n++, dx += C, dy += C, x += C) {
        Row r = row_statistics(x, C);
        double mean_g = 0, mean_gx = 0;
        for (int64_t i = 0; i < C; i++) {
            double xhat = (x[i] - r.mean) * r.rstd;
            mean_g += dy[i] * w[i] / (double)C;
            mean_gx += dy[i] * w[i] * xhat / (double)C;
            dw[i] += dy[i] * xhat;
            db[i] += dy[i];
        }
        for (int64_t i = 0; i < C; i++)
            dx[i] = (skip ? skip[n * C + i] : 0) + r.rstd * (dy[i] * w[i] - mean_g - (x[i] - r.mean) * r.rstd * mean_gx);
    }
}

static void norm_backward_check(Machine *m, int64_t N, int64_t C, Dropout drop)
{
    Tensor x = random_2d(m, N, C, 1), dy = random_2d(m, N, C, 2), w = random_1d(m, C, 3), skip = random_2d(m, N, C, 4);
    Tensor y = zeros_2d(m, N, C), stats = zeros_2d(m, N, 2), dx = zeros_2d(m, N, C), dbranch = zeros_2d(m, N, C);
    Tensor dw = random_1d(m, C, 5), db = random_1d(m, C, 6);
    double *want_dx = doubles(m, N * C), *want_branch = doubles(m, N * C), *want_dw = doubles(m, C), *want_db = doubles(m, C);
    for (int64_t i = 0; i < C; i++) { /* they are added to */
        want_dw[i] = floats(dw)[i];
        want_db[i] = floats(db)[i];
    }
    norm_backward_reference(want_dx, want_dw, want_db, floats(skip), floats(dy), floats(x), floats(w), N, C);
    norm_forward(&m->ctx, y, stats, x, w, TENSOR_NONE);
    residual_norm_backward(&m->ctx, dx, dbranch, dw, db, skip, dy, x, stats, w, drop);
    for (int64_t i = 0; i < N * C; i++)
        want_branch[i] = dropped(m, drop, i, floats(dx)[i]);
    assert_close(dx, want_dx);
    assert_close(dbranch, want_branch);
    assert_close(dw, want_dw);
    assert_close(db, want_db);
    residual_norm_backward(&m->ctx, skip, TENSOR_NONE, TENSOR_NONE, TENSOR_NONE, skip, dy, x, stats, w, none); /* in place */
    assert_same_bits(skip, dx);
    norm_backward_reference(want_dx, want_dw, want_db, NULL, floats(dy), floats(x), floats(w), N, C);
    residual_norm_backward(&m->ctx, dx, TENSOR_NONE, TENSOR_NONE, TENSOR_NONE, TENSOR_NONE, dy, x, stats, w, none);
    assert_close(dx, want_dx);
}

static void norm_each(Machine *m)
{
    for (int i = 0; i < N_SIZES; i++) {
        norm_forward_check(m, sizes[N_SIZES - 1 - i], sizes[i], i % 2 ? half : none, i % 3);
        norm_backward_check(m, sizes[N_SIZES - 1 - i], sizes[i], i % 2 ? none : half);
    }
    norm_forward_check(m, 130, 257, half, true);
    norm_backward_check(m, 130, 257, half);
}

/* FIELD: {40000..40003}, and rows of one value, which E[x^2] - E[x]^2 gets wrong. */
static void norm_extremes(Machine *m)
{
    const double want[4] = {-1.34163539, -0.44721180, 0.44721180, 1.34163539}; /* (-1.5, -0.5, ...) / sqrt(1.25 + 1e-5) */
    Tensor x = zeros_2d(m, 1, 4), y = zeros_2d(m, 1, 4), stats = zeros_2d(m, 1, 2), w = zeros_1d(m, 256);
    for (int i = 0; i < 256; i++)
        floats(w)[i] = 1;
    for (int i = 0; i < 4; i++)
        floats(x)[i] = 40000 + (float)i;
    norm_forward(&m->ctx, y, stats, x, tensor_1d(w.data, DTYPE_F32, 4), TENSOR_NONE);
    assert_close(y, want);
    for (int64_t C = 255; C < 257; C++) { /* 255 times 1234.567 has no exact sum in FP32 */
        x = zeros_2d(m, 1, C), y = zeros_2d(m, 1, C);
        for (int64_t i = 0; i < C; i++)
            floats(x)[i] = C == 256 ? 1234 : 1234.567f;
        norm_forward(&m->ctx, y, stats, x, tensor_1d(w.data, DTYPE_F32, C), TENSOR_NONE);
        for (int64_t i = 0; i < C; i++)
            assert_true(floats(y)[i] == 0);
    }
}

/* ---- Linear, with the derivative of GELU -------------------------------------------------------------------------------- */

static double gelu_reference(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

static double gelu_derivative_reference(double x)
{
    double u = sqrt(2 / M_PI) * (x + 0.044715 * x * x * x), t = tanh(u);
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}

static void linear_check(Machine *m, int64_t N, int64_t I, int64_t O, bool bias)
{
    Tensor x = random_2d(m, N, I, 1), w = random_2d(m, I, O, 2), b = random_1d(m, O, 3), dy = random_2d(m, N, O, 4);
    Tensor y = zeros_2d(m, N, O), dx = zeros_2d(m, N, I), dw = random_2d(m, I, O, 5), db = random_1d(m, O, 6);
    double *want_y = doubles(m, N * O), *want_dx = doubles(m, N * I), *want_dw = doubles(m, I * O), *want_db = doubles(m, O);
    const float *X = x.data, *W = w.data, *D = dy.data;
    for (int64_t o = 0; o < O; o++)
        want_db[o] = floats(db)[o];
    for (int64_t i = 0; i < I * O; i++)
        want_dw[i] = floats(dw)[i];
    for (int64_t n = 0; n < N; n++)
        for (int64_t o = 0; o < O; o++) {
            want_y[n * O + o] = bias ? floats(b)[o] : 0;
            want_db[o] += D[n * O + o];
            for (int64_t i = 0; i < I; i++) {
                want_y[n * O + o] += (double)X[n * I + i] * W[i * O + o];
                want_dx[n * I + i] += (double)D[n * O + o] * W[i * O + o];
                want_dw[i * O + o] += (double)X[n * I + i] * D[n * O + o];
            }
        }
    linear_forward(&m->ctx, y, x, w, bias ? b : TENSOR_NONE);
    Tensor dw_too = copy_of(m, dw), db_too = copy_of(m, db), pre = random_2d(m, N, I, 7), dpre = zeros_2d(m, N, I);
    linear_backward(&m->ctx, dx, dw, TENSOR_NONE, dy, x, w);
    linear_backward(&m->ctx, TENSOR_NONE, TENSOR_NONE, db, dy, x, w);
    linear_gelu_backward(&m->ctx, dpre, dw_too, db_too, dy, x, w, pre);
    assert_close(y, want_y);
    assert_close(dx, want_dx);
    assert_close(dw, want_dw);
    assert_close(db, want_db);
    assert_same_bits(dw_too, dw);
    assert_close(db_too, want_db);
    for (int64_t i = 0; i < N * I; i++)
        want_dx[i] *= gelu_derivative_reference(floats(pre)[i]);
    assert_close(dpre, want_dx);
}

static void linear_each(Machine *m)
{
    for (int i = 0; i < N_SIZES; i++)
        linear_check(m, sizes[i], sizes[(i + 3) % N_SIZES], sizes[(i + 7) % N_SIZES], i % 2);
    linear_check(m, 9, 5, 513, true); /* widths that gemm.c cuts into pieces: 513; 512 + 100; 1024 + 512 + 64; 2048 + 1024 */
    linear_check(m, 9, 33, 612, true);
    linear_check(m, 3, 31, 1600, true);
    linear_check(m, 17, 7, 3072, true);
}

/* ---- exp, GELU ---------------------------------------------------------------------------------------------------------- */

/* What cpu.h claims of its exp, for the plain build: everywhere, and at the ends. */
static void exp_is_accurate(void **state)
{
    (void)state;
    for (float x = -87.33f; x < 88.72f; x += 1e-3f)
        assert_true(fabs(exp_approx(x) / exp((double)x) - 1) < 1.1e-7);
    assert_true(exp_approx(0) == 1 && exp_approx(-INFINITY) == 0 && exp_approx(-1e30f) == 0 && exp_approx(-87.34f) == 0);
    assert_true(isinf(exp_approx(88.73f)) && isinf(exp_approx(INFINITY)) && isnan(exp_approx(NAN)) && isnan(exp_approx(-NAN)));
}

static void gelu_each(Machine *m)
{
    for (int s = 0; s < N_SIZES + 1; s++) {
        int64_t n = s < N_SIZES ? sizes[s] : 40001;
        Tensor x = random_1d(m, n, 1), dy = random_1d(m, n, 2), y = zeros_1d(m, n), dx = zeros_1d(m, n);
        double *want_y = doubles(m, n), *want_dx = doubles(m, n);
        for (int64_t i = 0; i < n; i++) {
            floats(x)[i] *= 6;
            want_y[i] = gelu_reference(floats(x)[i]);
            want_dx[i] = floats(dy)[i] * gelu_derivative_reference(floats(x)[i]);
        }
        gelu_forward(&m->ctx, y, x);
        gelu_backward(&m->ctx, dx, dy, x);
        assert_close(y, want_y);
        assert_close(dx, want_dx);
        gelu_backward(&m->ctx, dy, dy, x); /* in place */
        assert_same_bits(dy, dx);
    }
}

/* FIELD: far out, gelu is x or 0 and its derivative 1 or 0; -0 stays -0; NaN is not hidden. */
static void gelu_extremes(Machine *m)
{
    static const float in[] = {256, -256, 1e30f, -1e30f, 20, -20, -0.0f, 0}, slope[] = {1, 0, 1, 0, 1, 0, 0.5f, 0.5f};
    Tensor x = zeros_1d(m, 9), y = zeros_1d(m, 9), dx = zeros_1d(m, 9), dy = zeros_1d(m, 9);
    for (int i = 0; i < 9; i++) {
        floats(x)[i] = i < 8 ? in[i] : NAN;
        floats(dy)[i] = 1;
    }
    gelu_forward(&m->ctx, y, x);
    gelu_backward(&m->ctx, dx, dy, x);
    for (int i = 0; i < 8; i++) {
        assert_true(floats(y)[i] == (in[i] > 0 ? in[i] : 0));
        assert_true(fabsf(floats(dx)[i] - slope[i]) < 1e-30f);
    }
    assert_true(signbit(floats(y)[6]) && !signbit(floats(y)[7]));
    assert_true(isnan(floats(y)[8]) && isnan(floats(dx)[8]));
}

/* ---- Embedding ------------------------------------------------------------------------------------------------------ */

static void embedding_check(Machine *m, int64_t B, int64_t T, int64_t C, int64_t Vp, int64_t first, Dropout drop)
{
    int64_t N = B * T;
    Tensor wte = random_2d(m, Vp, C, 1), wpe = random_2d(m, first + T, C, 2), tokens = random_ids(m, B, T, Vp, 3);
    Tensor x = zeros_2d(m, N, C), dx = random_2d(m, N, C, 4), dwte = random_2d(m, Vp, C, 5), dwpe = random_2d(m, first + T, C, 6);
    Tensor dwte_only = copy_of(m, dwte), dwpe_only = copy_of(m, dwpe);
    double *want_x = doubles(m, N * C), *want_wte = doubles(m, Vp * C), *want_wpe = doubles(m, (first + T) * C);
    for (int64_t i = 0; i < Vp * C; i++)
        want_wte[i] = floats(dwte)[i];
    for (int64_t i = 0; i < (first + T) * C; i++)
        want_wpe[i] = floats(dwpe)[i];
    for (int64_t n = 0; n < N; n++)
        for (int64_t i = 0; i < C; i++) {
            int64_t token = ((int32_t *)tokens.data)[n] * C + i, at = n * C + i;
            double d = dropped(m, drop, at, floats(dx)[at]);
            want_x[at] = dropped(m, drop, at, (double)floats(wte)[token] + floats(wpe)[(first + n % T) * C + i]);
            want_wte[token] += d;
            want_wpe[n % T * C + i] += d;
        }
    embedding_forward(&m->ctx, x, tokens, wte, wpe, first, drop);
    embedding_backward(&m->ctx, dwte, dwpe, dx, tokens, drop);
    embedding_backward(&m->ctx, dwte_only, TENSOR_NONE, dx, tokens, drop);
    embedding_backward(&m->ctx, TENSOR_NONE, dwpe_only, dx, tokens, drop);
    assert_close(x, want_x);
    assert_close(dwte, want_wte);
    assert_close(dwpe, want_wpe);
    assert_same_bits(dwte, dwte_only);
    assert_same_bits(dwpe, dwpe_only);
}

static void embedding_each(Machine *m)
{
    for (int i = 0; i < N_SIZES; i++)
        embedding_check(m, 1 + i % 3, sizes[(i + 4) % N_SIZES], sizes[i], sizes[(i + 7) % N_SIZES], i % 4, i % 2 ? half : none);
    embedding_check(m, 3, 64, 768, 65, 0, half);
}

/* ---- Head and loss -------------------------------------------------------------------------------------------------- */

typedef struct Head {
    int64_t N, C, V, Vp, R;
    Tensor x, wte, targets, logits, losses, dx, dwte;
} Head;

static Head head_make(Machine *m, int64_t N, int64_t C, int64_t V, int64_t Vp, int64_t R)
{
    Head h = {N, C, V, Vp, R, .x = random_2d(m, N, C, 1), .wte = random_2d(m, Vp, C, 2)};
    h.targets = random_ids(m, N, 1, V + V / 3 + 1, 3); /* some beyond V: those are made ignored ones */
    h.targets = tensor_1d(h.targets.data, DTYPE_I32, N);
    for (int64_t n = 0; n < N; n++)
        if (((int32_t *)h.targets.data)[n] >= V)
            ((int32_t *)h.targets.data)[n] = -1;
    h.logits = zeros_2d(m, R, Vp);
    h.losses = zeros_1d(m, N);
    h.dx = zeros_2d(m, N, C);
    h.dwte = random_2d(m, Vp, C, 4);
    return h;
}

/* Losses, dx and dwte, with the gradient multiplied by scale. */
static void head_reference(Machine *m, const Head *h, double *losses, double *dx, double *dwte, double scale)
{
    double *z = doubles(m, h->V);
    const float *x = h->x.data, *w = h->wte.data;
    for (int64_t n = 0; n < h->N; n++) {
        int32_t t = ((int32_t *)h->targets.data)[n];
        double max = -INFINITY, sum = 0;
        for (int64_t v = 0; v < h->V; v++) {
            z[v] = 0;
            for (int64_t i = 0; i < h->C; i++)
                z[v] += (double)x[n * h->C + i] * w[v * h->C + i];
            max = fmax(max, z[v]);
        }
        for (int64_t v = 0; v < h->V; v++)
            sum += exp(z[v] - max);
        losses[n] = t < 0 ? 0 : max + log(sum) - z[t];
        for (int64_t v = 0; t >= 0 && v < h->V; v++) {
            double dz = (exp(z[v] - max) / sum - (v == t)) * scale;
            for (int64_t i = 0; i < h->C; i++) {
                dx[n * h->C + i] += dz * w[v * h->C + i];
                dwte[v * h->C + i] += dz * x[n * h->C + i];
            }
        }
    }
}

static void head_check(Machine *m, int64_t N, int64_t C, int64_t V, int64_t Vp, int64_t R)
{
    Head h = head_make(m, N, C, V, Vp, R);
    Tensor forward_losses = zeros_1d(m, N), all = zeros_2d(m, N, Vp), frozen = zeros_2d(m, N, C);
    double *want_losses = doubles(m, N), *want_dx = doubles(m, N * C), *want_dwte = doubles(m, Vp * C), sum = 0;
    for (int64_t i = 0; i < Vp * C; i++)
        want_dwte[i] = floats(h.dwte)[i];
    m->state.inverse_count = 0.125f;
    m->state.scaler.scale = 4;
    head_reference(m, &h, want_losses, want_dx, want_dwte, 0.5);
    m->state.loss_sum = 100;
    head_loss_backward(&m->ctx, h.dx, h.dwte, h.losses, h.x, h.wte, h.targets, h.logits, V);
    for (int64_t n = 0; n < N; n++)
        sum += floats(h.losses)[n];
    assert_true(m->state.loss_sum == 100 + sum);
    assert_close(h.losses, want_losses);
    assert_close(h.dx, want_dx);
    assert_close(h.dwte, want_dwte);
    head_loss_forward(&m->ctx, forward_losses, h.x, h.wte, h.targets, h.logits, V);
    assert_close(forward_losses, want_losses);
    head_loss_backward(&m->ctx, frozen, TENSOR_NONE, h.losses, h.x, h.wte, h.targets, h.logits, V);
    assert_same_bits(frozen, h.dx);
    head_logits(&m->ctx, all, h.x, h.wte);
    double z = 0;
    for (int64_t i = 0; i < C; i++)
        z += (double)floats(h.x)[(N - 1) * C + i] * floats(h.wte)[(V - 1) * C + i];
    assert_true(fabs(floats(all)[(N - 1) * Vp + V - 1] - z) < 1e-5);
    m->state.inverse_count = m->state.scaler.scale = 1;
}

static void head_each(Machine *m)
{
    for (int i = 0; i < N_SIZES; i++) {
        int64_t V = sizes[(i + 2) % N_SIZES], N = sizes[(i + 5) % N_SIZES];
        head_check(m, N, sizes[i] < 100 ? sizes[i] : 33, V, V + i % 3, 1 + (N - 1) / (1 + i % 4));
    }
    head_check(m, 100, 7, 257, 264, 64);
}

/* A head whose logits are exactly those given: C = V and wte the identity. */
static Head head_of_logits(Machine *m, int64_t N, int64_t V, const float *logits, const int32_t *targets)
{
    Head h = head_make(m, N, V, V, V, N);
    memset(h.wte.data, 0, tensor_bytes(h.wte));
    memset(h.dwte.data, 0, tensor_bytes(h.dwte));
    for (int64_t i = 0; i < V; i++)
        floats(h.wte)[i * V + i] = 1;
    memcpy(h.x.data, logits, tensor_bytes(h.x));
    memcpy(h.targets.data, targets, tensor_bytes(h.targets));
    return h;
}

static void head_run(Machine *m, Head *h)
{
    m->state.loss_sum = 0;
    head_loss_backward(&m->ctx, h->dx, h->dwte, h->losses, h->x, h->wte, h->targets, h->logits, h->V);
}

/* FIELD: softmax of {151.29, 150.29}; cross-entropy on {1e4, 0, -1e4}; rows near -1e5 as near 0. */
static void head_extremes(Machine *m)
{
    Head h = head_of_logits(m, 1, 2, (float[]){151.29f, 150.29f}, (int32_t[]){1});
    head_run(m, &h);
    assert_true(fabsf(floats(h.dx)[0] - 0.73106f) < 1e-5f && fabsf(floats(h.dx)[1] - (0.26894f - 1)) < 1e-5f);
    h = head_of_logits(m, 2, 3, (float[]){1e4f, 0, -1e4f, 1e4f, 0, -1e4f}, (int32_t[]){0, 1});
    head_run(m, &h);
    assert_true(floats(h.losses)[0] == 0 && floats(h.losses)[1] == 10000);
    h = head_of_logits(m, 2, 3, (float[]){-1e5f, -100001, -99998, 0, -1, 2}, (int32_t[]){1, 1});
    head_run(m, &h);
    assert_true(floats(h.losses)[0] == floats(h.losses)[1]);
    assert_memory_equal(floats(h.dx), floats(h.dx) + 3, 3 * sizeof(float));
    h = head_of_logits(m, 1, 3, (float[]){0, NAN, 0}, (int32_t[]){0});
    head_run(m, &h);
    assert_true(isnan(floats(h.losses)[0]) && isnan(m->state.loss_sum)); /* said, not hidden */
}

/* FIELD: a micro-batch of ignored targets gives no loss and no gradient; micro-batches of 1 token with loss 2 and 5 with
 * loss 1 have the mean 7/6. With V = 2 and logits {d, 0}, target 1: loss log(1 + e^d). */
static void head_counts(Machine *m)
{
    Head h = head_of_logits(m, 3, 2, (float[]){1, 2, 3, 4, 5, 6}, (int32_t[]){-1, -1, -1});
    head_run(m, &h);
    assert_true(m->state.loss_sum == 0);
    for (int i = 0; i < 6; i++)
        assert_true(floats(h.dx)[i] == 0 && floats(h.losses)[i / 2] == 0 && (i > 3 || floats(h.dwte)[i] == 0));
    float two = logf(expf(2) - 1), one = logf(expf(1) - 1);
    float logits[10] = {one, 0, one, 0, one, 0, one, 0, one, 0};
    h = head_of_logits(m, 1, 2, (float[]){two, 0}, (int32_t[]){1});
    head_run(m, &h);
    double sum = m->state.loss_sum;
    h = head_of_logits(m, 5, 2, logits, (int32_t[]){1, 1, 1, 1, 1});
    m->state.inverse_count = 1.0f / 6;
    head_run(m, &h);
    sum += m->state.loss_sum;
    assert_true(fabs(sum * m->state.inverse_count - 7.0 / 6) < 1e-6);
    for (int i = 0; i < 5; i++) /* p0 = 1 - 1/e; each counted row weighs 1/6 */
        assert_true(fabs(floats(h.dx)[2 * i] - (1 - exp(-1)) / 6) < 1e-6);
    m->state.inverse_count = 1;
}

/* ---- Each in every build -------------------------------------------------------------------------------------------- */

#define TEST_EACH(body)                                                                                                          \
    static void test_##body(void **state)                                                                                        \
    {                                                                                                                            \
        (void)state;                                                                                                             \
        machine_each(body);                                                                                                      \
    }
TEST_EACH(norm_each)
TEST_EACH(norm_extremes)
TEST_EACH(linear_each)
TEST_EACH(gelu_each)
TEST_EACH(gelu_extremes)
TEST_EACH(embedding_each)
TEST_EACH(head_each)
TEST_EACH(head_extremes)
TEST_EACH(head_counts)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norm_each),   cmocka_unit_test(test_norm_extremes), cmocka_unit_test(test_linear_each),
        cmocka_unit_test(test_gelu_each),   cmocka_unit_test(test_gelu_extremes), cmocka_unit_test(test_embedding_each),
        cmocka_unit_test(exp_is_accurate),  cmocka_unit_test(test_head_each),     cmocka_unit_test(test_head_extremes),
        cmocka_unit_test(test_head_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
