/* The ops of the CPU in 16 bits, in every build and on 1, 2 and 3 threads. Inputs are 16-bit numbers, and the reference is the
 * same op in FP32 on them: element by element the output must be its result rounded to nearest even. Where the order of a sum is
 * another one (matrix products), the reference is a sum in double, and the bound what that order and one rounding can cost. */
#include "tests/half_tensors.h"

static const Dropout none, half = {0.5f, RANDOM_MLP_RESIDUAL, 3};

/* A type for each role: all the same, and mixtures. */
typedef struct Roles {
    DType param, grad, act, resid;
} Roles;

static const Roles roles[] = {{DTYPE_BF16, DTYPE_F32, DTYPE_BF16, DTYPE_BF16}, {DTYPE_F16, DTYPE_F32, DTYPE_F16, DTYPE_F16},
                              {DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, DTYPE_F32}, {DTYPE_F32, DTYPE_F16, DTYPE_F16, DTYPE_BF16},
                              {DTYPE_F16, DTYPE_F16, DTYPE_F32, DTYPE_F16},    {DTYPE_BF16, DTYPE_F16, DTYPE_F32, DTYPE_F32},
                              {DTYPE_F32, DTYPE_F32, DTYPE_BF16, DTYPE_F32}};
enum { ROLES = sizeof roles / sizeof *roles };

/* ---- Norm ----------------------------------------------------------------------------------------------------------- */

static void norm_check(Machine *m, Roles r, int64_t N, int64_t C, Dropout drop, bool bias)
{
    Ctx *c = &m->ctx;
    Tensor in = random_2d(m, N, C, 1), branch = random_2d(m, N, C, 2), w = random_1d(m, C, 3), b = random_1d(m, C, 4);
    Tensor in_h = in_type(m, in, r.resid), branch_h = in_type(m, branch, r.act), w_h = in_type(m, w, r.param);
    Tensor b_h = bias ? in_type(m, b, r.param) : TENSOR_NONE;
    Tensor x = zeros_2d(m, N, C), y = zeros_2d(m, N, C), stats = zeros_2d(m, N, 2), stats_h = zeros_2d(m, N, 2);
    Tensor x_h = room_for(m, x, r.resid), y_h = room_for(m, y, r.act), again = room_for(m, y, r.act);
    b = bias ? b : TENSOR_NONE;
    residual_norm_forward(c, x_h, y_h, stats_h, in_h, branch_h, w_h, b_h, drop);
    residual_norm_forward(c, x, y, stats, in, branch, w, b, drop);
    assert_rounded(x_h, x);
    for (int64_t i = 0; i < N * C; i++) /* the norm is that of the sum as it is stored */
        floats(x)[i] = value_at(x_h, i);
    norm_forward(c, y, stats, x, w, b);
    assert_rounded(y_h, y);
    assert_same_bits(stats_h, stats);
    norm_forward(c, again, stats_h, x_h, w_h, b_h);
    assert_same_bits(again, y_h);
    residual_norm_forward(c, in_h, again, stats_h, in_h, branch_h, w_h, b_h, drop); /* in place */
    assert_same_bits(in_h, x_h);
    assert_same_bits(again, y_h);

    Tensor dy = random_2d(m, N, C, 5), skip = random_2d(m, N, C, 6), dw = random_1d(m, C, 7), db = random_1d(m, C, 8);
    Tensor dy_h = in_type(m, dy, r.act), skip_h = in_type(m, skip, r.resid), dw_h = in_type(m, dw, r.grad);
    Tensor db_h = in_type(m, db, r.grad), dx = zeros_2d(m, N, C), dx_h = room_for(m, dx, r.resid);
    Tensor dbranch = zeros_2d(m, N, C), dbranch_h = room_for(m, dbranch, r.act);
    residual_norm_backward(c, dx_h, dbranch_h, dw_h, db_h, skip_h, dy_h, x_h, stats_h, w_h, drop);
    residual_norm_backward(c, dx, TENSOR_NONE, dw, db, skip, dy, x, stats, w, drop);
    assert_rounded(dx_h, dx);
    assert_rounded(dw_h, dw);
    assert_rounded(db_h, db);
    for (int64_t i = 0; i < N * C; i++) /* the branch's gradient comes from the sum's as it is stored */
        floats(dbranch)[i] = (float)dropped(m, drop, i, value_at(dx_h, i));
    assert_rounded(dbranch_h, dbranch);
    residual_norm_backward(c, skip_h, TENSOR_NONE, TENSOR_NONE, TENSOR_NONE, skip_h, dy_h, x_h, stats_h, w_h, none);
    assert_same_bits(skip_h, dx_h);
}

static void norm_each(Machine *m)
{
    static const int64_t sizes[][2] = {{1, 1}, {3, 7}, {7, 31}, {33, 33}, {130, 257}};
    for (int i = 0; i < ROLES; i++)
        for (int s = 0; s < 5; s++)
            norm_check(m, roles[i], sizes[s][0], sizes[s][1], (i + s) % 2 ? half : none, (i + s) % 3);
}

/* ---- Linear --------------------------------------------------------------------------------------------------------- */

typedef struct Products {
    double *y, *dx, *dw, *db;                     /* the sums                      */
    double *y_size, *dx_size, *dw_size, *db_size; /* the sums of their magnitudes  */
} Products;

static void sum_add(double *sum, double *size, int64_t i, double term)
{
    sum[i] += term;
    size[i] += fabs(term);
}

static void linear_reference(Products *p, const float *x, const float *w, const float *b, const float *dy, int64_t N, int64_t I,
                             int64_t O)
{
    for (int64_t n = 0; n < N; n++)
        for (int64_t o = 0; o < O; o++) {
            if (b)
                sum_add(p->y, p->y_size, n * O + o, b[o]);
            sum_add(p->db, p->db_size, o, dy[n * O + o]);
            for (int64_t i = 0; i < I; i++) {
                sum_add(p->y, p->y_size, n * O + o, (double)x[n * I + i] * w[i * O + o]);
                sum_add(p->dx, p->dx_size, n * I + i, (double)dy[n * O + o] * w[i * O + o]);
                sum_add(p->dw, p->dw_size, i * O + o, (double)x[n * I + i] * dy[n * O + o]);
            }
        }
}

static void linear_check(Machine *m, Roles r, int64_t N, int64_t I, int64_t O, bool bias)
{
    Tensor x = random_2d(m, N, I, 1), w = random_2d(m, I, O, 2), b = random_1d(m, O, 3), dy = random_2d(m, N, O, 4);
    Tensor dw = random_2d(m, I, O, 5), db = random_1d(m, O, 6), y = zeros_2d(m, N, O), dx = zeros_2d(m, N, I);
    Tensor x_h = in_type(m, x, r.act), w_h = in_type(m, w, r.param), b_h = in_type(m, b, r.param), dy_h = in_type(m, dy, r.act);
    Tensor dw_h = in_type(m, dw, r.grad), db_h = in_type(m, db, r.grad);
    Tensor y_h = room_for(m, y, r.act), dx_h = room_for(m, dx, r.act), dpre_h = room_for(m, dx, r.act);
    Tensor pre = random_2d(m, N, I, 7), pre_h = in_type(m, pre, r.act), dw_too = copy_of(m, dw_h), db_too = copy_of(m, db_h);
    Tensor slope = zeros_2d(m, N, I), ones = zeros_2d(m, N, I);
    Products p = {doubles(m, N * O), doubles(m, N * I), doubles(m, I * O), doubles(m, O),
                  doubles(m, N * O), doubles(m, N * I), doubles(m, I * O), doubles(m, O)};
    for (int64_t i = 0; i < I * O; i++) /* these are added to */
        sum_add(p.dw, p.dw_size, i, floats(dw)[i]);
    for (int64_t o = 0; o < O; o++)
        sum_add(p.db, p.db_size, o, floats(db)[o]);
    linear_reference(&p, x.data, w.data, bias ? b.data : NULL, dy.data, N, I, O);
    size_t room = m->ctx.workspace_bytes,
           products = linear_workspace(N, I, O, (GemmTypes){r.act, r.param, r.grad}, &m->ctx.target),
           sums = linear_bias_workspace(N, O, &m->ctx.target);
    m->ctx.workspace_bytes = products > sums ? products : sums; /* what is planned is enough */
    assert_true(m->ctx.workspace_bytes <= room);
    linear_forward(&m->ctx, y_h, x_h, w_h, bias ? b_h : TENSOR_NONE);
    linear_backward(&m->ctx, dx_h, dw_h, db_h, dy_h, x_h, w_h);
    linear_gelu_backward(&m->ctx, dpre_h, dw_too, db_too, dy_h, x_h, w_h, pre_h);
    m->ctx.workspace_bytes = room;
    assert_sums(y_h, p.y, p.y_size, I + 1, 0);
    assert_sums(dx_h, p.dx, p.dx_size, O, 0);
    assert_sums(dw_h, p.dw, p.dw_size, N + 1, 0);
    assert_sums(db_h, p.db, p.db_size, N + 1, 0);
    assert_same_bits(dw_too, dw_h);
    assert_same_bits(db_too, db_h);
    for (int64_t i = 0; i < N * I; i++)
        floats(ones)[i] = 1;
    gelu_backward(&m->ctx, slope, ones, pre);
    for (int64_t i = 0; i < N * I; i++) {
        p.dx[i] *= floats(slope)[i];
        p.dx_size[i] *= fabs(floats(slope)[i]);
    }
    assert_sums(dpre_h, p.dx, p.dx_size, O + 64,
                half_ulp(r.act, 1)); /* 64: of the slope, a product's sums may be rounded first */
}

/* With the processor's BF16 products, where it has them, and by widening. */
static void linear_each(Machine *m)
{
    static const int64_t sizes[][3] = {{1, 1, 1}, {7, 31, 33}, {33, 100, 7}, {64, 33, 130}, {2, 513, 612}};
    bool native = m->ctx.target.bf16_gemm;
    for (int widen = !native; widen < 2; widen++) {
        m->ctx.target.bf16_gemm = !widen;
        for (int i = 0; i < ROLES; i++)
            for (int s = 0; s < 5; s++)
                linear_check(m, roles[i], sizes[s][0], sizes[s][1], sizes[s][2], (i + s) % 2);
    }
    m->ctx.target.bf16_gemm = native;
}

/* Sizes beyond the blocks that are widened (gemm.h: 1024 rows of C, 4096 columns, 4096 along K): of y, dx and dw each
 * dimension alone, and two of them; with gradients of 16 bits and FP32. */
static void test_linear_in_blocks(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{3, 8200, 5},    {5, 3, 8200},    {2100, 5, 3},
                                       {1030, 5, 4100}, {1025, 4100, 3}, {4100, 1030, 3}};
    static Machine m;
    if (mirror_wanted())
        return; /* of the CPU's gemm.c */
    assert_true(machine_open(&m, "plain", 2));
    m.ctx.target.bf16_gemm = false;
    m.ctx.workspace_bytes = (size_t)80 << 20;
    m.ctx.workspace = machine_memory(&m, m.ctx.workspace_bytes);
    for (int s = 0; s < 6; s++)
        for (int h = 0; h < 2; h++)
            linear_check(&m, (Roles){half_types[h], half_types[s % 2], s % 3 ? half_types[h] : DTYPE_F32, DTYPE_F32}, sizes[s][0],
                         sizes[s][1], sizes[s][2], true);
    machine_close(&m);
}

/* ---- GELU, embedding ------------------------------------------------------------------------------------------------ */

static void gelu_each(Machine *m)
{
    static const int64_t sizes[] = {1, 7, 511, 513, 40001};
    for (int h = 0; h < 2; h++)
        for (int s = 0; s < 5; s++) {
            Tensor x = random_1d(m, sizes[s], 1), dy = random_1d(m, sizes[s], 2), y = zeros_1d(m, sizes[s]);
            Tensor dx = zeros_1d(m, sizes[s]);
            for (int64_t i = 0; i < sizes[s]; i++)
                floats(x)[i] *= 6;
            Tensor x_h = in_type(m, x, half_types[h]), dy_h = in_type(m, dy, half_types[h]);
            Tensor y_h = room_for(m, y, half_types[h]);
            gelu_forward(&m->ctx, y, x);
            gelu_backward(&m->ctx, dx, dy, x);
            gelu_forward(&m->ctx, y_h, x_h);
            gelu_backward(&m->ctx, dy_h, dy_h, x_h); /* in place */
            assert_rounded(y_h, y);
            assert_rounded(dy_h, dx);
        }
}

static void embedding_check(Machine *m, Roles r, int64_t B, int64_t T, int64_t C, int64_t Vp, Dropout drop)
{
    int64_t N = B * T;
    Tensor wte = random_2d(m, Vp, C, 1), wpe = random_2d(m, T + 2, C, 2), tokens = random_ids(m, B, T, Vp, 3);
    Tensor dx = random_2d(m, N, C, 4), dwte = random_2d(m, Vp, C, 5), dwpe = random_2d(m, T + 2, C, 6), x = zeros_2d(m, N, C);
    Tensor wte_h = in_type(m, wte, r.param), wpe_h = in_type(m, wpe, r.param), dx_h = in_type(m, dx, r.resid);
    Tensor dwte_h = in_type(m, dwte, r.grad), dwpe_h = in_type(m, dwpe, r.grad), x_h = room_for(m, x, r.resid);
    embedding_forward(&m->ctx, x, tokens, wte, wpe, 2, drop);
    embedding_backward(&m->ctx, dwte, dwpe, dx, tokens, drop);
    embedding_forward(&m->ctx, x_h, tokens, wte_h, wpe_h, 2, drop);
    embedding_backward(&m->ctx, dwte_h, dwpe_h, dx_h, tokens, drop);
    assert_rounded(x_h, x);
    assert_rounded(dwte_h, dwte); /* also where a token is in many rows: they are summed before they are rounded */
    assert_rounded(dwpe_h, dwpe);
}

static void embedding_each(Machine *m)
{
    for (int i = 0; i < ROLES; i++) {
        embedding_check(m, roles[i], 1, 1, 1, 1, none);
        embedding_check(m, roles[i], 3, 7, 33, 5, half);
        embedding_check(m, roles[i], 2, 70, 513, 3, i % 2 ? half : none);
    }
}

/* ---- Attention ------------------------------------------------------------------------------------------------------ */

/* The columns first .. last-1 of a matrix, as FP32. */
static Tensor columns(Machine *m, Tensor t, int64_t first, int64_t last)
{
    Tensor part = zeros_2d(m, t.shape[0], last - first);
    for (int64_t n = 0; n < t.shape[0]; n++)
        for (int64_t i = first; i < last; i++)
            floats(part)[n * (last - first) + i - first] = value_at(t, n * t.shape[1] + i);
    return part;
}

/* dK and dV of a head whose queries several threads share are added up in 16 bits, thread by thread: a rounding more for each. */
static void attention_check(Machine *m, DType type, AttentionShape s, Dropout drop)
{
    int64_t N = s.B * s.T, width = (s.NH + 2 * s.NKV) * s.hd, out = s.NH * s.hd;
    Tensor qkv = random_2d(m, N, width, 1), datt = random_2d(m, N, out, 2), att = zeros_2d(m, N, out),
           dqkv = zeros_2d(m, N, width);
    Tensor lse = zeros_1d(m, s.B * s.NH * s.T), lse_h;
    lse = (Tensor){lse.data, DTYPE_F32, 3, {s.B, s.NH, s.T}};
    lse_h = copy_of(m, lse);
    Tensor qkv_h = in_type(m, qkv, type), datt_h = in_type(m, datt, type), att_h = room_for(m, att, type);
    Tensor dqkv_h = room_for(m, dqkv, type);
    attention_forward(&m->ctx, s, att, lse, qkv, drop);
    attention_forward(&m->ctx, s, att_h, lse_h, qkv_h, drop);
    assert_rounded(att_h, att);
    assert_same_bits(lse_h, lse);
    for (int64_t i = 0; i < N * out; i++)
        floats(att)[i] = value_at(att_h, i);
    attention_backward(&m->ctx, s, dqkv, datt, att, lse, qkv, drop);
    attention_backward(&m->ctx, s, dqkv_h, datt_h, att_h, lse, qkv_h, drop);
    if (m->ctx.target.threads == 1) {
        assert_rounded(dqkv_h, dqkv);
        return;
    }
    Tensor dq = columns(m, dqkv, 0, out), dkv = columns(m, dqkv, out, width), dkv_h = columns(m, dqkv_h, out, width);
    double *want = doubles(m, tensor_count(dkv));
    for (int64_t i = 0; i < tensor_count(dkv); i++)
        want[i] = floats(dkv)[i];
    Tensor dq_h = columns(m, dqkv_h, 0, out);
    for (int64_t i = 0; i < tensor_count(dq); i++)
        assert_true(floats(dq_h)[i] == rounded(type, floats(dq)[i]));
    assert_true(relative_error(dkv_h, want) < (type == DTYPE_BF16 ? 0x1p-8 : 0x1p-11)); /* one rounding is half of it at most */
}

/* Position by position over a cache, which holds keys and values as they are. The compiler may take the sums over hd and over the
 * keys in another order. */
static void cached_check(Machine *m, DType type, AttentionShape s, int64_t P)
{
    int64_t width = (s.NH + 2 * s.NKV) * s.hd, out = s.NH * s.hd, kv = 2 * s.NKV * s.hd;
    Tensor cache = zeros_1d(m, s.B * P * kv);
    cache = (Tensor){cache.data, DTYPE_F32, 3, {s.B, P, kv}};
    Tensor cache_h = in_type(m, cache, type);
    for (int64_t first = 0; first + s.T <= P; first += s.T) {
        Tensor qkv = random_2d(m, s.B * s.T, width, 10 + (uint32_t)first), att = zeros_2d(m, s.B * s.T, out);
        Tensor qkv_h = in_type(m, qkv, type), att_h = room_for(m, att, type);
        attention_cached(&m->ctx, s, att, cache, qkv, first);
        attention_cached(&m->ctx, s, att_h, cache_h, qkv_h, first);
        for (int64_t i = 0; i < tensor_count(att); i++) /* a mean of values below 1 */
            assert_true(near_sum(att_h, i, floats(att)[i], 1, P + s.hd, 0));
    }
    assert_rounded(cache_h, cache);
}

static void attention_each(Machine *m)
{
    static const Dropout drop = {0.3f, RANDOM_ATTENTION_DROPOUT, 1};
    if (mirror_wanted())
        return; /* a GPU's tensor cores multiply rounded probabilities: FP32 on the same numbers is no reference for them */
    static const AttentionShape shapes[] = {
        {1, 1, 1, 1, 1}, {2, 7, 3, 3, 5}, {1, 65, 4, 2, 32}, {2, 130, 2, 1, 64}, {1, 100, 3, 3, 20}};
    for (int h = 0; h < 2; h++)
        for (int s = 0; s < 5; s++) {
            attention_check(m, half_types[h], shapes[s], s % 2 ? drop : none);
            AttentionShape one = shapes[s];
            one.T = one.T > 3 ? 3 : one.T;
            cached_check(m, half_types[h], one, 68);
        }
}

/* ---- Head and loss -------------------------------------------------------------------------------------------------- */

typedef struct Head {
    double *losses, *logits, *dx, *dwte;     /* the sums, and */
    double *logits_size, *dx_size, *dw_size; /* the sums of their magnitudes */
} Head;

/* Of N rows of x [N, C], wte [Vp, C]; the gradients times `scale`. */
static void head_reference(Head *h, const float *x, const float *wte, const int32_t *target, int64_t N, int64_t C, int64_t V,
                           int64_t Vp, double scale)
{
    for (int64_t n = 0; n < N; n++) {
        double *z = h->logits + n * Vp, max = -INFINITY, sum = 0;
        for (int64_t v = 0; v < Vp; v++) {
            for (int64_t i = 0; i < C; i++)
                sum_add(z, h->logits_size + n * Vp, v, (double)x[n * C + i] * wte[v * C + i]);
            max = v < V ? fmax(max, z[v]) : max;
        }
        for (int64_t v = 0; v < V; v++)
            sum += exp(z[v] - max);
        h->losses[n] = target[n] < 0 ? 0 : max + log(sum) - z[target[n]];
        for (int64_t v = 0; target[n] >= 0 && v < V; v++) {
            double dz = (exp(z[v] - max) / sum - (v == target[n])) * scale;
            for (int64_t i = 0; i < C; i++) {
                sum_add(h->dx, h->dx_size, n * C + i, dz * wte[v * C + i]);
                sum_add(h->dwte, h->dw_size, v * C + i, dz * x[n * C + i]);
            }
        }
    }
}

/* The relative error of a number of that type. */
static double unit(DType t)
{
    return t == DTYPE_BF16 ? 0x1p-8 : t == DTYPE_F16 ? 0x1p-11 : 0;
}

/* Logits are FP32 sums of products of the stored numbers, so losses are good to FP32. Their gradients are rounded to the type of
 * the activations before the products, and those once more: dwte after each chunk of rows. 64: exp and the like, in 2^-24. */
static void head_check(Machine *m, Roles r, int64_t N, int64_t C, int64_t V, int64_t Vp, int64_t R)
{
    Tensor x = random_2d(m, N, C, 1), wte = random_2d(m, Vp, C, 2), dwte = random_2d(m, Vp, C, 4), dx = zeros_2d(m, N, C);
    Tensor targets = tensor_1d(random_ids(m, N, 1, V, 3).data, DTYPE_I32, N), logits = zeros_2d(m, R, Vp);
    Tensor losses = zeros_1d(m, N), forward = zeros_1d(m, N), all = zeros_2d(m, N, Vp);
    Tensor x_h = in_type(m, x, r.act), wte_h = in_type(m, wte, r.param), dwte_h = in_type(m, dwte, r.grad);
    Tensor dx_h = room_for(m, dx, r.act);
    Head want = {doubles(m, N),      doubles(m, N * Vp), doubles(m, N * C), doubles(m, Vp * C),
                 doubles(m, N * Vp), doubles(m, N * C),  doubles(m, Vp * C)};
    for (int64_t n = 0; n < N; n += 5)
        ((int32_t *)targets.data)[n] = -1;
    for (int64_t i = 0; i < Vp * C; i++)
        sum_add(want.dwte, want.dw_size, i, floats(dwte)[i]);
    head_reference(&want, x.data, wte.data, targets.data, N, C, V, Vp, 64 / (double)N);
    m->state.inverse_count = 1 / (float)N;
    m->state.scaler.scale = 64;
    head_loss_backward(&m->ctx, dx_h, dwte_h, losses, x_h, wte_h, targets, logits, V);
    head_loss_forward(&m->ctx, forward, x_h, wte_h, targets, logits, V);
    head_logits(&m->ctx, all, x_h, wte_h);
    m->state.inverse_count = m->state.scaler.scale = 1;
    assert_close(losses, want.losses);
    assert_close(forward, want.losses);
    assert_sums(all, want.logits, want.logits_size, C, 0);
    assert_sums(dx_h, want.dx, want.dx_size, V + 64, unit(r.act));
    assert_sums(dwte_h, want.dwte, want.dw_size, N + 65, unit(r.act) + (double)((N + R - 1) / R) * unit(r.grad));
}

static void head_each(Machine *m)
{
    for (int i = 0; i < ROLES; i++) {
        head_check(m, roles[i], 1, 1, 2, 2, 1);
        head_check(m, roles[i], 13, 7, 5, 8, 4);
        head_check(m, roles[i], 33, 31, 65, 67, 10 + 30 * (i % 2));
    }
}

/* ---- Each in every build -------------------------------------------------------------------------------------------- */

#define TEST_EACH(body)                                                                                                          \
    static void test_##body(void **state)                                                                                        \
    {                                                                                                                            \
        (void)state;                                                                                                             \
        machine_each(body);                                                                                                      \
    }
TEST_EACH(norm_each)
TEST_EACH(linear_each)
TEST_EACH(gelu_each)
TEST_EACH(embedding_each)
TEST_EACH(attention_each)
TEST_EACH(head_each)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norm_each), cmocka_unit_test(test_linear_each),    cmocka_unit_test(test_linear_in_blocks),
        cmocka_unit_test(test_gelu_each), cmocka_unit_test(test_embedding_each), cmocka_unit_test(test_attention_each),
        cmocka_unit_test(test_head_each),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
