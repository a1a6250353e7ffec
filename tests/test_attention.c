/* Attention against a naive reference in double precision, the golden cases, and what must hold exactly: repeated runs,
 * thread counts, the workspace's bounds, extreme scores. Every build that this processor can run is tested. */
#include "base/json.h"
#include "base/safetensors.h"
#include "kernels/cpu/attention_tile.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- A call: shape, inputs, outputs of the op, outputs of the reference ------------------------------------------------ */

enum { GUARD = 4096 };

static const char *const isas[] = {"plain", "v3", "v4"};
static StepState step_state = {.seed = 42, .step = 3, .micro = 1};

typedef struct Case {
    AttentionShape s;
    Dropout drop;
    float *qkv, *datt, *att, *lse, *dqkv;
    double *want_att, *want_lse, *want_dqkv;
} Case;

static void *get(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size);
    assert_non_null(p);
    return p;
}

static int64_t width(AttentionShape s)
{
    return (s.NH + 2 * s.NKV) * s.hd;
}

static size_t rows(const Case *c)
{
    return (size_t)(c->s.B * c->s.T);
}

static size_t count_qkv(const Case *c)
{
    return rows(c) * (size_t)width(c->s);
}

static size_t count_att(const Case *c)
{
    return rows(c) * (size_t)(c->s.NH * c->s.hd);
}

static size_t count_lse(const Case *c)
{
    return rows(c) * (size_t)c->s.NH;
}

/* Numbers in [-size, size), the same for the same stream. */
static void fill(float *x, size_t n, uint32_t stream, float size)
{
    RandomKey key = random_key(7, RANDOM_INIT, stream, 0, 0);
    for (size_t i = 0; i < n; i++)
        x[i] = size * (2 * random_unit(random_bits(key, i)) - 1);
}

static Case case_new(AttentionShape s, float p)
{
    Case c = {.s = s, .drop = {p, RANDOM_ATTENTION_DROPOUT, 5}};
    c.qkv = get(count_qkv(&c), sizeof(float));
    c.dqkv = get(count_qkv(&c), sizeof(float));
    c.att = get(count_att(&c), sizeof(float));
    c.datt = get(count_att(&c), sizeof(float));
    c.lse = get(count_lse(&c), sizeof(float));
    c.want_att = get(count_att(&c), sizeof(double));
    c.want_lse = get(count_lse(&c), sizeof(double));
    c.want_dqkv = get(count_qkv(&c), sizeof(double));
    fill(c.qkv, count_qkv(&c), 1, 2);
    fill(c.datt, count_att(&c), 2, 1);
    return c;
}

static void case_free(Case *c)
{
    free(c->qkv), free(c->dqkv), free(c->att), free(c->datt), free(c->lse);
    free(c->want_att), free(c->want_lse), free(c->want_dqkv);
}

/* ---- The reference: the definition, a query at a time ---------------------------------------------------------------- */

static void reference_query(Case *c, const double *qkv, int64_t b, int64_t h, int64_t i, double *p, double *dp)
{
    AttentionShape s = c->s;
    const int64_t w = width(s), key = (s.NH + h / (s.NH / s.NKV)) * s.hd, value = key + s.NKV * s.hd, head = b * s.NH + h;
    const int64_t row = b * s.T + i, out = row * s.NH * s.hd + h * s.hd;
    const double *q = qkv + row * w + h * s.hd, scale = 1 / sqrt((double)s.hd);
    const RandomKey bits = random_key(step_state.seed, c->drop.purpose, 5, 3, 1);
    double max = -INFINITY, sum = 0, delta = 0;
    for (int64_t j = 0; j <= i; j++) {
        p[j] = 0;
        for (int64_t d = 0; d < s.hd; d++)
            p[j] += scale * q[d] * qkv[(b * s.T + j) * w + key + d];
        max = fmax(max, p[j]);
    }
    for (int64_t j = 0; j <= i; j++)
        sum += exp(p[j] - max);
    c->want_lse[head * s.T + i] = max + log(sum);
    memset(c->want_att + out, 0, (size_t)s.hd * sizeof(double));
    for (int64_t j = 0; j <= i; j++) {
        const bool kept = random_bits(bits, (uint64_t)((head * s.T + i) * s.T + j)) >= dropout_threshold(c->drop);
        const double factor = kept ? 1 / (1 - (double)c->drop.p) : 0;
        p[j] = exp(p[j] - max) / sum;
        dp[j] = 0;
        for (int64_t d = 0; d < s.hd; d++) {
            c->want_att[out + d] += p[j] * factor * qkv[(b * s.T + j) * w + value + d];
            c->want_dqkv[(b * s.T + j) * w + value + d] += p[j] * factor * c->datt[out + d];
            dp[j] += factor * c->datt[out + d] * qkv[(b * s.T + j) * w + value + d];
        }
        delta += p[j] * dp[j];
    }
    for (int64_t j = 0; j <= i; j++)
        for (int64_t d = 0; d < s.hd; d++) {
            const double ds = scale * p[j] * (dp[j] - delta);
            c->want_dqkv[row * w + h * s.hd + d] += ds * qkv[(b * s.T + j) * w + key + d];
            c->want_dqkv[(b * s.T + j) * w + key + d] += ds * q[d];
        }
}

static void reference(Case *c, const double *qkv)
{
    double *p = get((size_t)c->s.T, sizeof *p), *dp = get((size_t)c->s.T, sizeof *dp);
    memset(c->want_dqkv, 0, count_qkv(c) * sizeof(double));
    for (int64_t b = 0; b < c->s.B; b++)
        for (int64_t h = 0; h < c->s.NH; h++)
            for (int64_t i = 0; i < c->s.T; i++)
                reference_query(c, qkv, b, h, i, p, dp);
    free(p), free(dp);
}

static void reference_of_case(Case *c)
{
    double *qkv = get(count_qkv(c), sizeof *qkv);
    for (size_t i = 0; i < count_qkv(c); i++)
        qkv[i] = c->qkv[i];
    reference(c, qkv);
    free(qkv);
}

/* ---- Running the op -------------------------------------------------------------------------------------------------- */

/* The device of one build, or NULL where the processor lacks it. */
static const Device *device_of(const char *isa, int threads, Target *target)
{
    Error e = {0};
    setenv("TALLY_ISA", isa, 1);
    const Device *d = cpu_device(target, threads, &e);
    unsetenv("TALLY_ISA");
    return d;
}

static Tensor tensor(void *data, int64_t r, int64_t w)
{
    return tensor_2d(data, DTYPE_F32, r, w);
}

static Tensor tensor_lse(const Case *c)
{
    return (Tensor){c->lse, DTYPE_F32, 3, {c->s.B, c->s.NH, c->s.T}};
}

static void run_forward(Ctx *ctx, Case *c)
{
    const int64_t n = c->s.B * c->s.T;
    ctx->device->attention_forward(ctx, c->s, tensor(c->att, n, c->s.NH * c->s.hd), tensor_lse(c), tensor(c->qkv, n, width(c->s)),
                                   c->drop);
}

static void run_backward(Ctx *ctx, Case *c)
{
    const int64_t n = c->s.B * c->s.T, C = c->s.NH * c->s.hd;
    ctx->device->attention_backward(ctx, c->s, tensor(c->dqkv, n, width(c->s)), tensor(c->datt, n, C), tensor(c->att, n, C),
                                    tensor_lse(c), tensor(c->qkv, n, width(c->s)), c->drop);
}

/* Calls one pass with exactly the workspace that the plan would give it, full of NaNs and between guard bytes. */
static void with_workspace(Ctx ctx, Case *c, size_t need, void (*pass)(Ctx *, Case *))
{
    Error e = {0};
    unsigned char *block = aligned_alloc(64, (GUARD + need + GUARD + 63) / 64 * 64);
    assert_non_null(block);
    memset(block, 0xFF, GUARD + need + GUARD);
    ctx.workspace = block + GUARD;
    ctx.workspace_bytes = need;
    ctx.error = &e;
    pass(&ctx, c);
    assert_false(e.set);
    for (size_t i = 0; i < GUARD; i++)
        assert_true(block[i] == 0xFF && block[GUARD + need + i] == 0xFF);
    free(block);
}

/* Forward and backward into outputs that hold NaNs. False where the processor lacks the build. */
static bool run(Case *c, const char *isa, int threads)
{
    Ctx ctx = {.state = &step_state};
    ctx.device = device_of(isa, threads, &ctx.target);
    if (!ctx.device)
        return false;
    memset(c->att, 0xFF, count_att(c) * sizeof(float));
    memset(c->lse, 0xFF, count_lse(c) * sizeof(float));
    memset(c->dqkv, 0xFF, count_qkv(c) * sizeof(float));
    with_workspace(ctx, c, attention_workspace(c->s, &ctx.target), run_forward);
    with_workspace(ctx, c, attention_backward_workspace(c->s, &ctx.target), run_backward);
    return true;
}

/* |got - want| / |want| over the columns from..to-1 of rows of w; / whole where |want| is 0 or next to nothing of it.
 * NaN where got has one. */
static double distance(const float *got, const double *want, size_t n, int64_t w, int64_t from, int64_t to, double whole)
{
    double difference = 0, norm = 0;
    for (size_t r = 0; r < n; r++)
        for (int64_t i = (int64_t)r * w + from; i < (int64_t)r * w + to; i++) {
            difference += (got[i] - want[i]) * (got[i] - want[i]);
            norm += want[i] * want[i];
        }
    return sqrt(difference) / (sqrt(norm) <= 1e-7 * whole ? whole : sqrt(norm));
}

static double norm_of(const double *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sqrt(sum);
}

/* Outputs against the reference's. dq and dk have more rounding: they come from differences dP - D of near numbers, and may
 * be 0 altogether. */
static void check(const Case *c, const char *isa, int threads)
{
    AttentionShape s = c->s;
    const int64_t q = s.NH * s.hd, kv = s.NKV * s.hd;
    const double whole = 1e-30 + norm_of(c->want_dqkv, count_qkv(c));
    const double error[] = {distance(c->att, c->want_att, rows(c), q, 0, q, 1e-30),
                            distance(c->lse, c->want_lse, 1, (int64_t)count_lse(c), 0, (int64_t)count_lse(c), 1),
                            distance(c->dqkv, c->want_dqkv, rows(c), width(s), 0, q, whole),
                            distance(c->dqkv, c->want_dqkv, rows(c), width(s), q, q + kv, whole),
                            distance(c->dqkv, c->want_dqkv, rows(c), width(s), q + kv, q + 2 * kv, whole)};
    for (int i = 0; i < 5; i++)
        if (!(error[i] <= (i == 2 || i == 3 ? 1e-5 : 2e-6)))
            fail_msg("B%ld T%ld heads %ld/%ld hd%ld p%g %s threads %d: %s differs by %g", (long)s.B, (long)s.T, (long)s.NH,
                     (long)s.NKV, (long)s.hd, (double)c->drop.p, isa, threads,
                     (const char *[]){"att", "lse", "dq", "dk", "dv"}[i], error[i]);
}

/* ---- Against the reference ------------------------------------------------------------------------------------------- */

static const int64_t lengths[] = {1, 2, 3, 7, 31, 33, 64, 65, 100, 127, 257};
static const int64_t head_sizes[] = {1, 3, 16, 32, 40, 64, 80, 96, 128};
static const int64_t heads[][2] = {{1, 1}, {4, 4}, {4, 2}, {6, 1}};
static const int thread_counts[] = {1, 2, 3, 5};
enum { N_LENGTHS = 11, N_HEAD_SIZES = 9, N_HEADS = 4, N_THREADS = 4, N_ISAS = 3 };

static void check_shape(AttentionShape s, float p, unsigned n)
{
    Case c = case_new(s, p);
    reference_of_case(&c);
    for (unsigned isa = 0; isa < N_ISAS; isa++) {
        const int threads = thread_counts[(n + isa) % N_THREADS];
        if (run(&c, isas[isa], threads))
            check(&c, isas[isa], threads);
    }
    case_free(&c);
}

/* Every length with every head size; heads, batch, dropout and threads take turns. */
static void test_shapes(void **state)
{
    (void)state;
    for (unsigned n = 0; n < N_LENGTHS * N_HEAD_SIZES; n++) {
        const int64_t *h = heads[(n + n / N_HEADS) % N_HEADS];
        AttentionShape s = {1 + n % 3, lengths[n / N_HEAD_SIZES], h[0], h[1], head_sizes[n % N_HEAD_SIZES]};
        check_shape(s, n % 2 ? 0.0f : 0.3f, n);
    }
}

/* Every arrangement of heads with every number of threads and dropout, at lengths of several tiles. */
static void test_heads(void **state)
{
    (void)state;
    for (unsigned n = 0; n < 4 * N_HEADS * N_THREADS; n++) {
        const int64_t *h = heads[n % N_HEADS];
        check_shape((AttentionShape){1, n & 32 ? 257 : 200, h[0], h[1], 16}, n & 16 ? 0.5f : 0.0f, n / N_HEADS);
    }
}

/* The reference's own gradient is the slope of sum(datt * att). */
static void test_reference_gradient(void **state)
{
    (void)state;
    Case c = case_new((AttentionShape){1, 5, 4, 2, 3}, 0.3f);
    const size_t n = count_qkv(&c);
    double *qkv = get(n, sizeof *qkv), *gradient = get(n, sizeof *gradient);
    for (size_t i = 0; i < n; i++)
        qkv[i] = c.qkv[i];
    reference(&c, qkv);
    memcpy(gradient, c.want_dqkv, n * sizeof *gradient);
    for (size_t i = 0; i < n; i++) {
        double value[2] = {0, 0}, at = qkv[i];
        for (int side = 0; side < 2; side++) {
            qkv[i] = at + (side ? 1e-5 : -1e-5);
            reference(&c, qkv);
            for (size_t k = 0; k < count_att(&c); k++)
                value[side] += c.datt[k] * c.want_att[k];
        }
        qkv[i] = at;
        assert_true(fabs((value[1] - value[0]) / 2e-5 - gradient[i]) < 1e-8);
    }
    free(qkv), free(gradient);
    case_free(&c);
}

/* ---- What must hold exactly ------------------------------------------------------------------------------------------ */

/* Two runs have the same bits; att, lse and dq whatever the number of threads, dk and dv for the same number. */
static void test_same_bits(void **state)
{
    (void)state;
    AttentionShape s = {1, 257, 3, 1, 40};
    Case a = case_new(s, 0.2f), b = case_new(s, 0.2f);
    for (unsigned isa = 0; isa < N_ISAS; isa++)
        for (unsigned t = 0; t < N_THREADS && run(&a, isas[isa], thread_counts[t]); t++) {
            run(&b, isas[isa], thread_counts[t]);
            assert_memory_equal(a.dqkv, b.dqkv, count_qkv(&a) * sizeof(float));
            run(&b, isas[isa], 1);
            assert_memory_equal(a.att, b.att, count_att(&a) * sizeof(float));
            assert_memory_equal(a.lse, b.lse, count_lse(&a) * sizeof(float));
            for (size_t r = 0; r < rows(&a); r++)
                assert_memory_equal(a.dqkv + r * (size_t)width(s), b.dqkv + r * (size_t)width(s),
                                    (size_t)(s.NH * s.hd) * sizeof(float));
        }
    case_free(&a);
    case_free(&b);
}

/* A tile's random words where element numbers pass 2^34, that is, where the number of a Philox block outgrows 32 bits. */
static void test_random_tile(void **state)
{
    (void)state;
    static uint32_t bits[RANDOM_ROWS * BLOCK];
    const RandomKey key = random_key(1, RANDOM_ATTENTION_DROPOUT, 2, 3, 4);
    for (int64_t T = 60; T < 64; T++) {
        const uint64_t first = ((uint64_t)1 << 34) - 1000 - (uint64_t)T % 4;
        random_tile(bits, key, first, T, 59, 33, false);
        for (int64_t j = 0; j < 59; j++)
            for (int64_t i = 0; i < 33; i++)
                assert_int_equal(bits[j * BLOCK + i], random_bits(key, first + (uint64_t)(i * T + j)));
    }
}

/* The exponential and the logarithm over their ranges, in the test's own build. */
static void test_exp_log(void **state)
{
    (void)state;
    for (float x = -87.3f; x < 88; x += 0.00173f) {
        const double e = vec_exp(vec_all(x))[0], want = exp((double)x);
        assert_true(fabs(e - want) < 2.5e-7 * want);
    }
    for (float x = 1; x < 1e9f; x *= 1.0017f) {
        const double y = vec_log(vec_all(x))[0], want = log((double)x);
        assert_true(fabs(y - want) < 2e-7 * (1 + want));
    }
    const float inputs[] = {0, -0.0f, -87.34f, -1e4f, -3e38f, -INFINITY};
    for (int i = 0; i < 6; i++)
        assert_true(vec_exp(vec_all(inputs[i]))[0] == (i < 2 ? 1 : 0));
    assert_true(isnan(vec_exp(vec_all(NAN))[0]) && isnan(vec_log(vec_all(NAN))[0]));
}

/* A workspace one byte short is refused, and nothing is written. */
static void test_short_workspace(void **state)
{
    (void)state;
    Case c = case_new((AttentionShape){1, 9, 2, 2, 8}, 0);
    Error e = {0};
    Ctx ctx = {.state = &step_state, .error = &e};
    ctx.device = device_of("plain", 2, &ctx.target);
    ctx.workspace_bytes = attention_workspace(c.s, &ctx.target) - 1;
    run_forward(&ctx, &c);
    assert_true(e.set);
    assert_non_null(strstr(e.text, "attention_forward"));
    e.set = false;
    ctx.workspace_bytes = attention_backward_workspace(c.s, &ctx.target) - 1;
    run_backward(&ctx, &c);
    assert_true(e.set);
    assert_non_null(strstr(e.text, "attention_backward"));
    for (size_t i = 0; i < count_att(&c); i++)
        assert_true(c.att[i] == 0 && c.dqkv[i] == 0);
    case_free(&c);
}

/* The rows of the forward pass, made a few positions at a time over a cache with room to spare. */
static void check_cached(AttentionShape s, const char *isa, int threads)
{
    Case c = case_new(s, 0);
    const int64_t P = s.T + 3, w = width(s), C = s.NH * s.hd, kv = 2 * s.NKV * s.hd;
    float *cache = get((size_t)(s.B * P * kv), sizeof *cache), *in = get(count_qkv(&c), sizeof *in);
    float *out = get(count_att(&c), sizeof *out);
    Error e = {0};
    Ctx ctx = {.state = &step_state, .error = &e};
    ctx.device = device_of(isa, threads, &ctx.target);
    reference_of_case(&c);
    for (int64_t first = 0, n = 1; ctx.device && first < s.T; first += n, n = first + 2 * n <= s.T ? 2 * n : 1) {
        AttentionShape part = {s.B, n, s.NH, s.NKV, s.hd};
        for (int64_t b = 0; b < s.B; b++)
            memcpy(in + b * n * w, c.qkv + (b * s.T + first) * w, (size_t)(n * w) * sizeof(float));
        ctx.workspace_bytes = attention_cached_workspace(part, &ctx.target);
        ctx.workspace = get(ctx.workspace_bytes, 1);
        ctx.device->attention_cached(&ctx, part, tensor(out, s.B * n, C), (Tensor){cache, DTYPE_F32, 3, {s.B, P, kv}},
                                     tensor(in, s.B * n, w), first);
        free(ctx.workspace);
        assert_false(e.set);
        for (int64_t b = 0; b < s.B; b++) {
            assert_true(distance(out + b * n * C, c.want_att + (b * s.T + first) * C, (size_t)n, C, 0, C, 0) < 2e-6);
            assert_memory_equal(cache + (b * P + first) * kv, in + b * n * w + C, (size_t)kv * sizeof(float));
        }
    }
    free(cache), free(in), free(out);
    case_free(&c);
}

static void test_cached(void **state)
{
    (void)state;
    for (unsigned n = 0; n < N_HEADS * N_HEAD_SIZES; n++)
        for (unsigned isa = 0; isa < N_ISAS; isa++)
            check_cached((AttentionShape){1 + n % 2, 150, heads[n % N_HEADS][0], heads[n % N_HEADS][1], head_sizes[n / N_HEADS]},
                         isas[isa], thread_counts[n % N_THREADS]);
}

/* ---- Extreme values -------------------------------------------------------------------------------------------------- */

/* Scores between -1e4 and 1e4: one key takes all; and rows near -1e5, where a score and its neighbours are exact in FP32. */
static void test_huge_scores(void **state)
{
    (void)state;
    Case c = case_new((AttentionShape){1, 130, 1, 1, 4}, 0);
    for (int sign = -1; sign <= 1; sign++) {
        fill(c.qkv, count_qkv(&c), 3, 1);
        for (size_t r = 0; r < rows(&c); r++) {
            float *q = c.qkv + r * 12, *k = q + 4;
            q[0] = (float)(r % 5) - 2, q[1] = sign ? (float)sign * 2e5f : 2e4f, q[2] = q[3] = 0;
            k[0] = (float)(r % 7) * 0.25f, k[1] = sign ? 1 : (float)(r % 9) * 0.25f - 1, k[2] = k[3] = 0;
        }
        reference_of_case(&c);
        for (unsigned isa = 0; isa < N_ISAS; isa++)
            if (run(&c, isas[isa], 2))
                check(&c, isas[isa], 2);
    }
    case_free(&c);
}

/* Finite inputs whose scores are all minus infinity in FP32: output 0, lse -Inf, gradients 0. */
static void test_minus_infinity(void **state)
{
    (void)state;
    Case c = case_new((AttentionShape){1, 100, 1, 1, 16}, 0);
    for (size_t r = 0; r < rows(&c); r++)
        for (int d = 0; d < 16; d++) {
            c.qkv[r * 48 + (size_t)d] = 1e30f;
            c.qkv[r * 48 + 16 + (size_t)d] = -1e30f;
        }
    for (unsigned isa = 0; isa < N_ISAS; isa++)
        if (run(&c, isas[isa], 2)) {
            for (size_t i = 0; i < count_att(&c); i++)
                assert_true(c.att[i] == 0);
            for (size_t i = 0; i < count_lse(&c); i++)
                assert_true(c.lse[i] == -INFINITY);
            for (size_t i = 0; i < count_qkv(&c); i++)
                assert_true(c.dqkv[i] == 0);
        }
    case_free(&c);
}

/* A NaN in q spoils its row, in k or v all rows from its position on; earlier tiles stay clean; gradients show it too. */
static void test_nan(void **state)
{
    (void)state;
    enum { AT = 120, T = 300, HD = 32 };
    for (int part = 0; part < 3; part++) {
        Case c = case_new((AttentionShape){1, T, 1, 1, HD}, 0);
        c.qkv[AT * 3 * HD + part * HD + 7] = NAN;
        for (unsigned isa = 0; isa < N_ISAS; isa++)
            if (run(&c, isas[isa], 3)) {
                for (int r = part ? AT : 0; r < T; r++)
                    assert_true(isnan(c.att[r * HD + 7]) == (part || r == AT));
                for (int r = 0; part < 2 && r < T; r++)
                    assert_true(!isnan(c.lse[r]) || r >= AT);
                for (int r = 0; r < 96; r++)
                    assert_false(isnan(c.att[r * HD + 7]));
                assert_true(isnan(c.dqkv[AT * 3 * HD]) && isnan(c.dqkv[AT * 3 * HD + HD]));
            }
        case_free(&c);
    }
}

/* ---- Golden cases ---------------------------------------------------------------------------------------------------- */

/* One golden array [B, NH, T, hd] against columns from.. of rows of w floats. */
static void check_golden(const SafeTensors *f, const json_t *op, const Case *c, const char *output, const float *got, int64_t w,
                         int64_t from)
{
    const char *name = json_string_value(json_object_get(op, "case"));
    const json_t *evidence = json_object_get(json_object_get(op, "float32_evidence"), output);
    const double rel = json_number_value(json_object_get(evidence, "rel_l2")), /* 0 when null */
        most = json_number_value(json_object_get(evidence, "max_abs")),
                 size = json_number_value(json_object_get(evidence, "max_expected"));
    AttentionShape s = c->s;
    float *want = get(count_att(c), sizeof *want);
    char key[96];
    Error e = {0};
    snprintf(key, sizeof key, "attention.%s.out.%s", name, output);
    const SafeTensor *t = safetensors_find(f, key);
    assert_non_null(t);
    assert_true(safetensors_read_f32(t, 0, (int64_t)count_att(c), want, &e));
    double difference = 0, norm = 0, worst = 0;
    for (int64_t i = 0; i < (int64_t)count_att(c); i++) {
        const int64_t d = i % s.hd, at = i / s.hd % s.T, h = i / s.hd / s.T % s.NH, b = i / s.hd / s.T / s.NH;
        const double x = (double)got[(b * s.T + at) * w + from + h * s.hd + d] - want[i];
        assert_false(isnan(x));
        difference += x * x;
        norm += (double)want[i] * want[i];
        worst = fmax(worst, fabs(x));
    }
    if (norm > 0 ? sqrt(difference / norm) > fmax(10 * rel, 1e-5) : worst > fmax(10 * most, 1e-6 * size))
        fail_msg("%s: relative error %g, largest %g", key, sqrt(difference / norm), worst);
    free(want);
}

/* q, k, v and dout of a golden case, [B, H, T, hd], into rows. */
static void load_golden(const SafeTensors *f, const char *name, Case *c)
{
    AttentionShape s = c->s;
    const char *const part[] = {"in.q", "in.k", "in.v", "dout.o"};
    float *x = get(count_att(c), sizeof *x);
    Error e = {0};
    for (int64_t k = 0; k < 4; k++) {
        char key[96];
        snprintf(key, sizeof key, "attention.%s.%s", name, part[k]);
        assert_true(safetensors_read_f32(safetensors_find(f, key), 0, (int64_t)count_att(c), x, &e));
        for (int64_t i = 0; i < (int64_t)count_att(c); i++) {
            const int64_t d = i % s.hd, at = i / s.hd % s.T, h = i / s.hd / s.T % s.NH, b = i / s.hd / s.T / s.NH;
            if (k < 3)
                c->qkv[(b * s.T + at) * width(s) + (k * s.NH + h) * s.hd + d] = x[i];
            else
                c->datt[(b * s.T + at) * s.NH * s.hd + h * s.hd + d] = x[i];
        }
    }
    free(x);
}

static void test_golden(void **state)
{
    (void)state;
    Error e = {0};
    SafeTensors f;
    json_t *root = json_read("tests/golden/g06/case.json", &e), *op;
    assert_non_null(root);
    assert_true(safetensors_open(&f, "tests/golden/g06/ops.safetensors", &e));
    size_t n, seen = 0;
    json_array_foreach(json_object_get(root, "ops"), n, op)
    {
        if (strcmp(json_string_value(json_object_get(op, "op")), "attention") != 0)
            continue;
        const char *name = json_string_value(json_object_get(op, "case"));
        char key[96];
        snprintf(key, sizeof key, "attention.%s.in.q", name);
        const SafeTensor *q = safetensors_find(&f, key);
        assert_non_null(q);
        AttentionShape s = {q->shape[0], q->shape[2], q->shape[1], q->shape[1], q->shape[3]};
        Case c = case_new(s, 0);
        load_golden(&f, name, &c);
        for (unsigned isa = 0; isa < N_ISAS; isa++)
            if (run(&c, isas[isa], 2)) {
                check_golden(&f, op, &c, "o", c.att, s.NH * s.hd, 0);
                check_golden(&f, op, &c, "grad.q", c.dqkv, width(s), 0);
                check_golden(&f, op, &c, "grad.k", c.dqkv, width(s), s.NH * s.hd);
                check_golden(&f, op, &c, "grad.v", c.dqkv, width(s), 2 * s.NH * s.hd);
            }
        case_free(&c);
        seen++;
    }
    assert_int_equal(seen, 6);
    safetensors_close(&f);
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference_gradient),
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_heads),
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_short_workspace),
        cmocka_unit_test(test_random_tile),
        cmocka_unit_test(test_exp_log),
        cmocka_unit_test(test_cached),
        cmocka_unit_test(test_huge_scores),
        cmocka_unit_test(test_minus_infinity),
        cmocka_unit_test(test_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
