/* Attention in every type, on the device that TALLY_TEST_DEVICE names (the CPU without it), against the definition in double
 * precision: lengths at the edges of tiles and head sizes on both sides of those that have kernels on a GPU, grouped queries,
 * dropout; and what must hold exactly: the same bits in every run, extreme scores, the cache. */
#include "base/convert.h"
#include "tests/attention_reference.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

/* ---- The device ------------------------------------------------------------------------------------------------------- */

static Ctx ctx;
static Error error;
static const StepState step_state = {.seed = 42, .step = 3, .micro = 1};
static const Dropout no_drop = {0, RANDOM_ATTENTION_DROPOUT, 5};

/* Device memory of that type and count, full of NaNs. */
static Tensor take(DType type, int ndim, const int64_t *shape)
{
    Tensor t = {NULL, type, ndim, {0}};
    memcpy(t.shape, shape, (size_t)ndim * sizeof *shape);
    t.data = ctx.device->memory_take(tensor_bytes(t), "a test", &error);
    assert_non_null(t.data);
    void *nans = malloc(tensor_bytes(t));
    memset(nans, 0xFF, tensor_bytes(t));
    copy_in(&ctx, t, nans);
    ctx.device->synchronize(&ctx);
    free(nans);
    return t;
}

static void give(Tensor t)
{
    ctx.device->memory_give(t.data, tensor_bytes(t));
}

static float number_read(const void *data, DType type, int64_t i)
{
    uint16_t half = type == DTYPE_F32 ? 0 : ((const uint16_t *)data)[i];
    return type == DTYPE_F32 ? ((const float *)data)[i] : type == DTYPE_BF16 ? bf16_to_f32(half) : f16_to_f32(half);
}

static void number_write(void *data, DType type, int64_t i, float x)
{
    if (type == DTYPE_F32)
        ((float *)data)[i] = x;
    else
        ((uint16_t *)data)[i] = type == DTYPE_BF16 ? f32_to_bf16(x) : f32_to_f16(x);
}

/* x, rounded to t's type, into t. */
static void put(Tensor t, const double *x)
{
    void *data = malloc(tensor_bytes(t));
    for (int64_t i = 0; i < tensor_count(t); i++)
        number_write(data, t.dtype, i, (float)x[i]);
    copy_in(&ctx, t, data);
    ctx.device->synchronize(&ctx);
    free(data);
}

/* A new array of t's numbers. */
static double *fetch(Tensor t)
{
    void *data = malloc(tensor_bytes(t));
    double *x = calloc((size_t)tensor_count(t), sizeof *x);
    copy_out(&ctx, data, t);
    ctx.device->synchronize(&ctx);
    for (int64_t i = 0; i < tensor_count(t); i++)
        x[i] = number_read(data, t.dtype, i);
    free(data);
    return x;
}

static int begin(void **unused)
{
    (void)unused;
    const char *name = getenv("TALLY_TEST_DEVICE");
    ctx = (Ctx){.error = &error, .layer = -1};
    ctx.device = device_open(name && *name ? name : "cpu", 2, &ctx.target, &error);
    if (!ctx.device) {
        print_error("%s\n", error.text);
        return 1;
    }
    Tensor state = take(DTYPE_I32, 1, (int64_t[]){sizeof(StepState) / 4});
    copy_in(&ctx, state, &step_state);
    ctx.state = state.data;
    ctx.workspace_bytes = 64u << 20;
    ctx.workspace = ctx.device->memory_take(ctx.workspace_bytes, "workspace", &error);
    return error.set;
}

/* ---- A case ------------------------------------------------------------------------------------------------------------ */

typedef struct Case {
    AttentionReference r;
    DType type;
    int64_t n_qkv, n_att;
    double *in_qkv, *in_datt;
    Tensor qkv, datt, att, lse, dqkv;
} Case;

static double *numbers(int64_t n)
{
    double *x = calloc((size_t)n, sizeof *x);
    assert_non_null(x);
    return x;
}

/* Numbers in [-size, size) that the type has. */
static void fill(double *x, int64_t n, DType type, uint32_t stream, float size)
{
    RandomKey key = random_key(7, RANDOM_INIT, stream, 0, 0);
    for (int64_t i = 0; i < n; i++) {
        uint32_t room;
        number_write(&room, type, 0, size * (2 * random_unit(random_bits(key, (uint64_t)i)) - 1));
        x[i] = number_read(&room, type, 0);
    }
}

static Case case_new(AttentionShape s, float p, DType type)
{
    const int64_t N = s.B * s.T, w = attention_width(s);
    Case c = {.type = type, .n_qkv = N * w, .n_att = N * s.NH * s.hd};
    c.in_qkv = numbers(c.n_qkv), c.in_datt = numbers(c.n_att);
    fill(c.in_qkv, c.n_qkv, type, 1, 2);
    fill(c.in_datt, c.n_att, type, 2, 1);
    c.r = (AttentionReference){.s = s, .drop = {p, RANDOM_ATTENTION_DROPOUT, 5}, .qkv = c.in_qkv, .datt = c.in_datt};
    c.r.bits = random_key(step_state.seed, RANDOM_ATTENTION_DROPOUT, 5, (uint64_t)step_state.step, (uint32_t)step_state.micro);
    c.r.u = type == DTYPE_F32 ? 0 : type == DTYPE_BF16 ? 0x1p-8 : 0x1p-11;
    c.r.least = type == DTYPE_F16 ? 0x1p-25 : 0;
    c.r.att = numbers(c.n_att), c.r.att_off = numbers(c.n_att);
    c.r.dqkv = numbers(c.n_qkv), c.r.dqkv_off = numbers(c.n_qkv), c.r.lse = numbers(N * s.NH);
    c.qkv = take(type, 2, (int64_t[]){N, w}), c.dqkv = take(type, 2, (int64_t[]){N, w});
    c.att = take(type, 2, (int64_t[]){N, s.NH * s.hd}), c.datt = take(type, 2, (int64_t[]){N, s.NH * s.hd});
    c.lse = take(DTYPE_F32, 3, (int64_t[]){s.B, s.NH, s.T});
    return c;
}

static void case_free(Case *c)
{
    give(c->qkv), give(c->dqkv), give(c->att), give(c->datt), give(c->lse);
    free(c->in_qkv), free(c->in_datt), free(c->r.att), free(c->r.att_off), free(c->r.dqkv), free(c->r.dqkv_off), free(c->r.lse);
}

static void reference(Case *c)
{
    double *room = numbers(3 * c->r.s.T);
    attention_reference(&c->r, room);
    free(room);
}

/* Forward and backward of what in_qkv and in_datt hold. */
static void run(Case *c)
{
    put(c->qkv, c->in_qkv);
    put(c->datt, c->in_datt);
    attention_forward(&ctx, c->r.s, c->att, c->lse, c->qkv, c->r.drop);
    attention_backward(&ctx, c->r.s, c->dqkv, c->datt, c->att, c->lse, c->qkv, c->r.drop);
    ctx.device->synchronize(&ctx);
    if (error.set)
        fail_msg("%s", error.text);
}

/* ---- Comparing --------------------------------------------------------------------------------------------------------- */

static void failed(const Case *c, const char *what, double by)
{
    AttentionShape s = c->r.s;
    fail_msg("%s B%ld T%ld heads %ld/%ld hd%ld p%g: %s is off by %g times what it may be", dtype_name(c->type), (long)s.B,
             (long)s.T, (long)s.NH, (long)s.NKV, (long)s.hd, (double)c->r.drop.p, what, by);
}

/* Half the distance of the type's numbers near x. */
static double half_ulp(DType type, double x)
{
    int bits = type == DTYPE_BF16 ? 8 : type == DTYPE_F16 ? 11 : 24, least = type == DTYPE_F16 ? -14 : -126, exponent;
    frexp(x, &exponent);
    exponent--;
    return ldexp(1, (x == 0 || exponent < least ? least : exponent) - bits);
}

/* FP32: |got - want| over columns from .. to-1 of rows of w, against `most` times |want| there, and a part of it that is 3e-7 or
 * less of the whole |want|: where one key has nearly all of the probability dq and dk are small differences, of dP and its mean
 * D, each known to about 2^-24 of itself. */
static void check_norm(const Case *c, const char *what, const double *got, const double *want, int64_t n, int64_t w, int64_t from,
                       int64_t to, double most)
{
    double difference = 0, norm = 0, whole = 0;
    for (int64_t i = 0; i < n; i++) {
        whole += want[i] * want[i];
        if (i % w >= from && i % w < to) {
            difference += (got[i] - want[i]) * (got[i] - want[i]);
            norm += want[i] * want[i];
        }
    }
    double is = sqrt(difference) / (1e-30 + sqrt(norm) + 0.03 * sqrt(whole));
    if (!(is <= most))
        failed(c, what, is / most);
}

/* 16 bits: each number against the roundings inside and its own, and 1e-5 of it for sums in FP32. */
static void check_bounds(const Case *c, const char *what, const double *got, const double *want, const double *off, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double inside = off[i] * (1 + c->r.u) + 1e-5 * (fabs(want[i]) + off[i] / c->r.u);
        double may = inside + half_ulp(c->type, fabs(want[i]) + inside);
        if (!(fabs(got[i] - want[i]) <= may))
            failed(c, what, fabs(got[i] - want[i]) / may);
    }
}

static void check(const Case *c)
{
    AttentionShape s = c->r.s;
    const int64_t w = attention_width(s), q = s.NH * s.hd, kv = s.NKV * s.hd, n_lse = s.B * s.NH * s.T;
    double *att = fetch(c->att), *lse = fetch(c->lse), *dqkv = fetch(c->dqkv);
    for (int64_t i = 0; i < n_lse; i++)
        if (!(fabs(lse[i] - c->r.lse[i]) <= 2e-6 * (1 + fabs(c->r.lse[i]))))
            failed(c, "lse", fabs(lse[i] - c->r.lse[i]) / (2e-6 * (1 + fabs(c->r.lse[i]))));
    if (c->type == DTYPE_F32) {
        check_norm(c, "att", att, c->r.att, c->n_att, q, 0, q, 2e-6);
        check_norm(c, "dq", dqkv, c->r.dqkv, c->n_qkv, w, 0, q, 1e-5);
        check_norm(c, "dk", dqkv, c->r.dqkv, c->n_qkv, w, q, q + kv, 1e-5);
        check_norm(c, "dv", dqkv, c->r.dqkv, c->n_qkv, w, q + kv, w, 2e-6);
    } else {
        check_bounds(c, "att", att, c->r.att, c->r.att_off, c->n_att);
        check_bounds(c, "dqkv", dqkv, c->r.dqkv, c->r.dqkv_off, c->n_qkv);
    }
    free(att), free(lse), free(dqkv);
}

/* ---- Against the definition ------------------------------------------------------------------------------------------- */

static const DType types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
static const int64_t lengths[] = {1, 2, 3, 7, 31, 33, 64, 100, 128, 255, 257};
static const int64_t head_sizes[] = {1, 3, 8, 32, 33, 64, 80, 96, 128, 160, 192, 250, 256};
static const int64_t heads[][2] = {{1, 1}, {2, 2}, {2, 1}, {3, 1}};
enum { N_TYPES = 3, N_LENGTHS = 11, N_HEAD_SIZES = 13, N_HEADS = 4 };

static void check_shape(AttentionShape s, float p, DType type)
{
    Case c = case_new(s, p, type);
    reference(&c);
    run(&c);
    check(&c);
    case_free(&c);
}

/* Every length with every head size; types, heads, batch and dropout take turns. */
static void test_shapes(void **unused)
{
    (void)unused;
    for (unsigned n = 0; n < N_LENGTHS * N_HEAD_SIZES; n++) {
        const int64_t *h = heads[(n + n / N_HEADS) % N_HEADS];
        AttentionShape s = {1 + n % 5 / 4, lengths[n / N_HEAD_SIZES], h[0], h[1], head_sizes[n % N_HEAD_SIZES]};
        check_shape(s, n % 3 == 1 ? 0.3f : 0.0f, types[(n + n / N_HEAD_SIZES) % N_TYPES]);
    }
}

/* Every head size in every type over several tiles, with dropout and grouped queries. */
static void test_types(void **unused)
{
    (void)unused;
    for (unsigned n = 0; n < N_HEAD_SIZES * N_TYPES; n++)
        check_shape((AttentionShape){1, n % 2 ? 132 : 131, 2, 1, head_sizes[n / N_TYPES]}, 0.2f, types[n % N_TYPES]);
}

/* ---- What must hold exactly ------------------------------------------------------------------------------------------- */

static void test_same_bits(void **unused)
{
    (void)unused;
    for (unsigned n = 0; n < N_TYPES; n++) {
        Case c = case_new((AttentionShape){1, 150, 3, 1, 40}, 0.2f, types[n]);
        run(&c);
        double *dqkv = fetch(c.dqkv), *att = fetch(c.att);
        run(&c);
        double *dqkv_again = fetch(c.dqkv), *att_again = fetch(c.att);
        assert_memory_equal(dqkv, dqkv_again, (size_t)c.n_qkv * sizeof *dqkv);
        assert_memory_equal(att, att_again, (size_t)c.n_att * sizeof *att);
        free(dqkv), free(att), free(dqkv_again), free(att_again);
        case_free(&c);
    }
}

/* One key: att is its value, dv is datt, and dq, dk are 0 or next to it. */
static void test_one_key(void **unused)
{
    (void)unused;
    for (unsigned n = 0; n < N_TYPES; n++) {
        Case c = case_new((AttentionShape){1, 1, 1, 1, 64}, 0, types[n]);
        run(&c);
        double *att = fetch(c.att), *dqkv = fetch(c.dqkv);
        for (int d = 0; d < 64; d++) {
            assert_true(att[d] == c.in_qkv[128 + d] && dqkv[128 + d] == c.in_datt[d]);
            assert_true(fabs(dqkv[d]) < 1e-5 && fabs(dqkv[64 + d]) < 1e-5);
        }
        free(att), free(dqkv);
        case_free(&c);
    }
}

/* Scores between -1e4 and 1e4: one key takes all; and rows near -1e5, where a score and its neighbours are exact in FP32. Also
 * where 1 / sqrt(hd) is no power of two and a score times that has to be rounded. */
static void test_huge_scores(void **unused)
{
    (void)unused;
    static const int64_t sizes[] = {4, 256, 100};
    for (int n = 0; n < 9; n++) {
        const int64_t sign = n % 3 - 1, hd = sizes[n / 3];
        Case c = case_new((AttentionShape){1, 130, 1, 1, hd}, 0, DTYPE_F32);
        for (int64_t r = 0; r < c.r.s.T; r++) {
            double *q = c.in_qkv + r * 3 * hd, *k = q + hd;
            memset(q, 0, (size_t)(2 * hd) * sizeof *q);
            q[0] = (double)(r % 5) - 2, q[1] = sign ? (double)sign * 2e5 : 2e4;
            k[0] = (double)(r % 7) * 0.25, k[1] = sign ? 1 : (double)(r % 9) * 0.25 - 1;
        }
        reference(&c);
        run(&c);
        check(&c);
        case_free(&c);
    }
}

/* Finite inputs whose scores are all minus infinity in FP32: output 0, lse -Inf, gradients 0. */
static void test_minus_infinity(void **unused)
{
    (void)unused;
    for (unsigned n = 0; n < 2; n++) { /* F16 has no number that large */
        Case c = case_new((AttentionShape){1, 100, 1, 1, 16}, 0, types[n]);
        for (int64_t i = 0; i < c.n_qkv; i++)
            if (i % 48 < 32)
                c.in_qkv[i] = i % 48 < 16 ? 1e30 : -1e30;
        run(&c);
        double *att = fetch(c.att), *lse = fetch(c.lse), *dqkv = fetch(c.dqkv);
        for (int64_t i = 0; i < c.n_att; i++)
            assert_true(att[i] == 0);
        for (int64_t i = 0; i < 100; i++)
            assert_true(lse[i] == -INFINITY);
        for (int64_t i = 0; i < c.n_qkv; i++)
            assert_true(dqkv[i] == 0);
        free(att), free(lse), free(dqkv);
        case_free(&c);
    }
}

/* A NaN in q spoils its row, in k or v all rows from its position on; tiles before stay clean; gradients show it too. */
static void test_nan(void **unused)
{
    (void)unused;
    enum { AT = 120, T = 200, HD = 32, W = 3 * HD };
    for (unsigned n = 0; n < 3 * N_TYPES; n++) {
        const unsigned part = n / N_TYPES;
        Case c = case_new((AttentionShape){1, T, 1, 1, HD}, 0, types[n % N_TYPES]);
        c.in_qkv[AT * W + part * HD + 7] = NAN;
        run(&c);
        double *att = fetch(c.att), *lse = fetch(c.lse), *dqkv = fetch(c.dqkv);
        for (int r = part ? AT : 0; r < T; r++)
            assert_true(isnan(att[r * HD + 7]) == (part || r == AT));
        for (int r = 0; part < 2 && r < T; r++)
            assert_true(!isnan(lse[r]) || r >= AT);
        for (int r = 0; r < 64; r++)
            assert_false(isnan(att[r * HD + 7]));
        assert_true(isnan(dqkv[AT * W]) && isnan(dqkv[AT * W + HD]));
        free(att), free(lse), free(dqkv);
        case_free(&c);
    }
}

/* ---- The cache --------------------------------------------------------------------------------------------------------- */

/* Positions in pieces of 1, 2 and 70: the outputs are those of the whole, the cache holds the keys and values as they came. */
static void check_cached(AttentionShape s, DType type)
{
    const int64_t P = s.T + 3, w = attention_width(s), q = s.NH * s.hd, pieces[] = {70, 1, 2, 1, s.T - 74};
    Case c = case_new(s, 0, type);
    reference(&c);
    Tensor cache = take(type, 3, (int64_t[]){s.B, P, 2 * s.NKV * s.hd});
    double *got = numbers(c.n_att);
    for (int64_t piece = 0, first = 0; piece < 5; first += pieces[piece++]) {
        const int64_t n = pieces[piece];
        Tensor in = take(type, 2, (int64_t[]){s.B * n, w}), out = take(type, 2, (int64_t[]){s.B * n, q});
        double *x = numbers(s.B * n * w);
        for (int64_t b = 0; b < s.B; b++)
            memcpy(x + b * n * w, c.in_qkv + (b * s.T + first) * w, (size_t)(n * w) * sizeof *x);
        put(in, x);
        attention_cached(&ctx, (AttentionShape){s.B, n, s.NH, s.NKV, s.hd}, out, cache, in, first);
        double *y = fetch(out);
        for (int64_t b = 0; b < s.B; b++)
            memcpy(got + (b * s.T + first) * q, y + b * n * q, (size_t)(n * q) * sizeof *y);
        free(x), free(y);
        give(in), give(out);
    }
    if (error.set)
        fail_msg("%s", error.text);
    if (type == DTYPE_F32)
        check_norm(&c, "cached att", got, c.r.att, c.n_att, q, 0, q, 2e-6);
    else
        check_bounds(&c, "cached att", got, c.r.att, c.r.att_off, c.n_att);
    double *kept = fetch(cache);
    for (int64_t b = 0; b < s.B; b++)
        for (int64_t t = 0; t < P; t++)
            for (int64_t i = 0; i < w - q; i++) {
                const double x = kept[(b * P + t) * (w - q) + i];
                assert_true(t < s.T ? x == c.in_qkv[(b * s.T + t) * w + q + i] : isnan(x));
            }
    free(got), free(kept);
    give(cache);
    case_free(&c);
}

static void test_cached(void **unused)
{
    (void)unused;
    for (unsigned n = 0; n < N_HEAD_SIZES * N_TYPES; n++)
        check_cached((AttentionShape){1 + n % 2, 90, heads[n % N_HEADS][0], heads[n % N_HEADS][1], head_sizes[n / N_TYPES]},
                     types[n % N_TYPES]);
}

/* ---- What is refused ---------------------------------------------------------------------------------------------------- */

static void test_refused(void **unused)
{
    (void)unused;
    if (ctx.target.kind != DEVICE_CUDA)
        skip();
    Case c = case_new((AttentionShape){1, 2, 1, 1, 257}, 0, DTYPE_BF16);
    attention_forward(&ctx, c.r.s, c.att, c.lse, c.qkv, no_drop);
    assert_true(error.set && strstr(error.text, "head size 257") && strstr(error.text, "256"));
    error = (Error){0};
    c.r.s.hd = 1;
    case_free(&c);
    Case d = case_new((AttentionShape){2, 3, 1, 1, 8}, 0, DTYPE_BF16);
    ctx.workspace_bytes = 2 * 3 * 2 * sizeof(float) - 1;
    attention_backward(&ctx, d.r.s, d.dqkv, d.datt, d.att, d.lse, d.qkv, no_drop);
    assert_true(error.set && strstr(error.text, "workspace"));
    error = (Error){0};
    ctx.workspace_bytes = 64u << 20;
    case_free(&d);
}

/* With an argument, only the tests whose names match it. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_key),   cmocka_unit_test(test_types),       cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_same_bits), cmocka_unit_test(test_huge_scores), cmocka_unit_test(test_minus_infinity),
        cmocka_unit_test(test_nan),       cmocka_unit_test(test_cached),      cmocka_unit_test(test_refused),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, begin, NULL);
}
