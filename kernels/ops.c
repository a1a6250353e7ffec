/* The op table as the model sees it: every op checks its shapes and dtypes here, once, for all devices, and then calls the
 * device's function of the same name. After a first failure every op of the context does nothing (kernels/device.h). */
#include "kernels/device.h"

#include "base/clock.h"

#include <stdio.h>

const char *op_name(OpId op)
{
    static const char *const names[OP_COUNT] = {
#define X(name) #name,
        TALLY_OPS(X)
#undef X
    };
    return names[op];
}

/* ---- Checks -------------------------------------------------------------------------------------------------------- */

const char *shape_text(ShapeText text, int ndim, const int64_t *shape)
{
    size_t used = (size_t)snprintf(text, sizeof(ShapeText), "[");
    for (int i = 0; i < ndim; i++)
        used += (size_t)snprintf(text + used, sizeof(ShapeText) - used, i ? ", %lld" : "%lld", (long long)shape[i]);
    snprintf(text + used, sizeof(ShapeText) - used, "]");
    return text;
}

static bool expect(Ctx *c, OpId op, const char *operand, Tensor t, DType dtype, int ndim, const int64_t *shape)
{
    bool same = tensor_present(t) && t.dtype == dtype && t.ndim == ndim;
    for (int i = 0; same && i < ndim; i++)
        same = t.shape[i] == shape[i];
    if (same || c->error->set)
        return !c->error->set;
    ShapeText have, want;
    shape_text(want, ndim, shape);
    if (!tensor_present(t))
        return error_set(c->error, "%s (layer %d): %s is absent, expected %s %s", op_name(op), c->layer, operand,
                         dtype_name(dtype), want);
    return error_set(c->error, "%s (layer %d): %s is %s %s, expected %s %s", op_name(op), c->layer, operand, dtype_name(t.dtype),
                     shape_text(have, t.ndim, t.shape), dtype_name(dtype), want);
}

static bool expect_1d(Ctx *c, OpId op, const char *operand, Tensor t, DType dtype, int64_t n)
{
    return expect(c, op, operand, t, dtype, 1, (int64_t[]){n});
}

static bool expect_2d(Ctx *c, OpId op, const char *operand, Tensor t, DType dtype, int64_t rows, int64_t width)
{
    return expect(c, op, operand, t, dtype, 2, (int64_t[]){rows, width});
}

/* The type of an operand that may be of any float type: its own; F32 is asked for in place of integers. */
static DType any_float(Tensor t)
{
    return t.dtype == DTYPE_I32 ? DTYPE_F32 : t.dtype;
}

/* An operand that may be absent. */
static bool allow_1d(Ctx *c, OpId op, const char *operand, Tensor t, DType dtype, int64_t n)
{
    return !tensor_present(t) || expect_1d(c, op, operand, t, dtype, n);
}

static bool allow_2d(Ctx *c, OpId op, const char *operand, Tensor t, DType dtype, int64_t rows, int64_t width)
{
    return !tensor_present(t) || expect_2d(c, op, operand, t, dtype, rows, width);
}

/* A condition between operands that a shape alone cannot say. */
static bool require(Ctx *c, OpId op, bool condition, const char *what)
{
    if (!condition && !c->error->set)
        error_set(c->error, "%s (layer %d): needs %s", op_name(op), c->layer, what);
    return !c->error->set;
}

static bool is_matrix(Ctx *c, OpId op, const char *operand, Tensor t)
{
    bool yes = tensor_present(t) && t.ndim == 2 && t.dtype != DTYPE_I32;
    return require(c, op, yes, operand);
}

/* ---- Timing -------------------------------------------------------------------------------------------------------- */

/* Calls the device's `name` with the given arguments, timed when the context asks for it. */
#define DISPATCH(name, ...)                                                                                                      \
    do {                                                                                                                         \
        double start = c->times ? clock_seconds() : 0;                                                                           \
        c->device->name(c, ##__VA_ARGS__);                                                                                       \
        if (c->times) {                                                                                                          \
            c->device->synchronize(c);                                                                                           \
            c->times->seconds[OP_##name] += clock_seconds() - start;                                                             \
            c->times->calls[OP_##name]++;                                                                                        \
        }                                                                                                                        \
    } while (0)

/* ---- The operations ------------------------------------------------------------------------------------------------ */

void copy_in(Ctx *c, Tensor to, const void *from)
{
    if (require(c, OP_copy_in, tensor_present(to), "a tensor to copy to"))
        DISPATCH(copy_in, to, from);
}

void copy_out(Ctx *c, void *to, Tensor from)
{
    if (require(c, OP_copy_out, tensor_present(from), "a tensor to copy from"))
        DISPATCH(copy_out, to, from);
}

void zero(Ctx *c, Tensor t)
{
    if (require(c, OP_zero, tensor_present(t), "a tensor"))
        DISPATCH(zero, t);
}

void cast(Ctx *c, Tensor to, Tensor from)
{
    if (expect(c, OP_cast, "from", from, any_float(from), to.ndim, to.shape) &&
        expect(c, OP_cast, "to", to, any_float(to), to.ndim, to.shape))
        DISPATCH(cast, to, from);
}

void micro_next(Ctx *c)
{
    if (!c->error->set)
        DISPATCH(micro_next);
}

void embedding_forward(Ctx *c, Tensor x, Tensor tokens, Tensor wte, Tensor wpe, int64_t first, Dropout drop)
{
    const OpId op = OP_embedding_forward;
    if (!is_matrix(c, op, "a matrix wte", wte) || !is_matrix(c, op, "a matrix wpe", wpe))
        return;
    int64_t C = wte.shape[1];
    bool ok = expect(c, op, "tokens", tokens, DTYPE_I32, 2, tokens.shape) &&
              expect_2d(c, op, "x", x, any_float(x), tokens.shape[0] * tokens.shape[1], C) &&
              expect_2d(c, op, "wpe", wpe, wte.dtype, wpe.shape[0], C) &&
              require(c, op, first >= 0 && first + tokens.shape[1] <= wpe.shape[0], "positions that wpe has");
    if (ok)
        DISPATCH(embedding_forward, x, tokens, wte, wpe, first, drop);
}

void embedding_backward(Ctx *c, Tensor dwte, Tensor dwpe, Tensor dx, Tensor tokens, Dropout drop)
{
    const OpId op = OP_embedding_backward;
    if (!is_matrix(c, op, "a matrix dx", dx))
        return;
    int64_t C = dx.shape[1];
    bool ok = expect(c, op, "tokens", tokens, DTYPE_I32, 2, tokens.shape) &&
              expect_2d(c, op, "dx", dx, dx.dtype, tokens.shape[0] * tokens.shape[1], C) &&
              allow_2d(c, op, "dwte", dwte, any_float(dwte), dwte.shape[0], C) &&
              allow_2d(c, op, "dwpe", dwpe, any_float(dwpe), dwpe.shape[0], C) &&
              require(c, op, !tensor_present(dwpe) || tokens.shape[1] <= dwpe.shape[0], "positions that wpe has");
    if (ok)
        DISPATCH(embedding_backward, dwte, dwpe, dx, tokens, drop);
}

void norm_forward(Ctx *c, Tensor y, Tensor stats, Tensor x, Tensor w, Tensor b)
{
    const OpId op = OP_norm_forward;
    if (!is_matrix(c, op, "a matrix x", x))
        return;
    int64_t N = x.shape[0], C = x.shape[1];
    if (expect_2d(c, op, "y", y, any_float(y), N, C) && expect_2d(c, op, "stats", stats, DTYPE_F32, N, 2) &&
        expect_1d(c, op, "w", w, any_float(w), C) && allow_1d(c, op, "b", b, w.dtype, C))
        DISPATCH(norm_forward, y, stats, x, w, b);
}

void residual_norm_forward(Ctx *c, Tensor x_out, Tensor y, Tensor stats, Tensor x_in, Tensor branch, Tensor w, Tensor b,
                           Dropout drop)
{
    const OpId op = OP_residual_norm_forward;
    if (!is_matrix(c, op, "a matrix x_in", x_in))
        return;
    int64_t N = x_in.shape[0], C = x_in.shape[1];
    if (expect_2d(c, op, "x_out", x_out, x_in.dtype, N, C) && expect_2d(c, op, "y", y, any_float(y), N, C) &&
        expect_2d(c, op, "stats", stats, DTYPE_F32, N, 2) && expect_2d(c, op, "branch", branch, any_float(branch), N, C) &&
        expect_1d(c, op, "w", w, any_float(w), C) && allow_1d(c, op, "b", b, w.dtype, C))
        DISPATCH(residual_norm_forward, x_out, y, stats, x_in, branch, w, b, drop);
}

void residual_norm_backward(Ctx *c, Tensor dx, Tensor dbranch, Tensor dw, Tensor db, Tensor dskip, Tensor dy, Tensor x,
                            Tensor stats, Tensor w, Dropout drop)
{
    const OpId op = OP_residual_norm_backward;
    if (!is_matrix(c, op, "a matrix x", x))
        return;
    int64_t N = x.shape[0], C = x.shape[1];
    bool ok = expect_2d(c, op, "dx", dx, x.dtype, N, C) && allow_2d(c, op, "dbranch", dbranch, any_float(dbranch), N, C) &&
              allow_1d(c, op, "dw", dw, any_float(dw), C) && allow_1d(c, op, "db", db, dw.dtype, C) &&
              allow_2d(c, op, "dskip", dskip, x.dtype, N, C) && expect_2d(c, op, "dy", dy, any_float(dy), N, C) &&
              expect_2d(c, op, "stats", stats, DTYPE_F32, N, 2) && expect_1d(c, op, "w", w, any_float(w), C) &&
              require(c, op, dbranch.data != dx.data, "a dbranch apart from dx");
    if (ok)
        DISPATCH(residual_norm_backward, dx, dbranch, dw, db, dskip, dy, x, stats, w, drop);
}

void linear_forward(Ctx *c, Tensor y, Tensor x, Tensor w, Tensor b)
{
    const OpId op = OP_linear_forward;
    if (!is_matrix(c, op, "a matrix x", x) || !is_matrix(c, op, "a matrix w", w))
        return;
    if (expect_2d(c, op, "w", w, w.dtype, x.shape[1], w.shape[1]) && expect_2d(c, op, "y", y, x.dtype, x.shape[0], w.shape[1]) &&
        allow_1d(c, op, "b", b, w.dtype, w.shape[1]))
        DISPATCH(linear_forward, y, x, w, b);
}

static bool linear_backward_check(Ctx *c, OpId op, Tensor dw, Tensor db, Tensor dy, Tensor x, Tensor w)
{
    if (!is_matrix(c, op, "a matrix x", x) || !is_matrix(c, op, "a matrix w", w))
        return false;
    int64_t N = x.shape[0], I = w.shape[0], O = w.shape[1];
    return expect_2d(c, op, "x", x, x.dtype, N, I) && expect_2d(c, op, "dy", dy, x.dtype, N, O) &&
           allow_2d(c, op, "dw", dw, any_float(dw), I, O) && allow_1d(c, op, "db", db, any_float(db), O);
}

void linear_backward(Ctx *c, Tensor dx, Tensor dw, Tensor db, Tensor dy, Tensor x, Tensor w)
{
    const OpId op = OP_linear_backward;
    if (linear_backward_check(c, op, dw, db, dy, x, w) && allow_2d(c, op, "dx", dx, x.dtype, x.shape[0], x.shape[1]))
        DISPATCH(linear_backward, dx, dw, db, dy, x, w);
}

void linear_gelu_backward(Ctx *c, Tensor dpre, Tensor dw, Tensor db, Tensor dy, Tensor x, Tensor w, Tensor pre)
{
    const OpId op = OP_linear_gelu_backward;
    if (linear_backward_check(c, op, dw, db, dy, x, w) && expect_2d(c, op, "dpre", dpre, x.dtype, x.shape[0], x.shape[1]) &&
        expect_2d(c, op, "pre", pre, x.dtype, x.shape[0], x.shape[1]))
        DISPATCH(linear_gelu_backward, dpre, dw, db, dy, x, w, pre);
}

void gelu_forward(Ctx *c, Tensor y, Tensor x)
{
    if (expect(c, OP_gelu_forward, "y", y, x.dtype, x.ndim, x.shape) &&
        expect(c, OP_gelu_forward, "x", x, any_float(x), x.ndim, x.shape))
        DISPATCH(gelu_forward, y, x);
}

void gelu_backward(Ctx *c, Tensor dx, Tensor dy, Tensor x)
{
    const OpId op = OP_gelu_backward;
    if (expect(c, op, "dx", dx, x.dtype, x.ndim, x.shape) && expect(c, op, "dy", dy, x.dtype, x.ndim, x.shape) &&
        expect(c, op, "x", x, any_float(x), x.ndim, x.shape))
        DISPATCH(gelu_backward, dx, dy, x);
}

static bool attention_shape_check(Ctx *c, OpId op, AttentionShape s)
{
    return require(c, op, s.B > 0 && s.T > 0 && s.NH > 0 && s.NKV > 0 && s.hd > 0, "positive B, T, NH, NKV and hd") &&
           require(c, op, s.NH % s.NKV == 0, "NH to be a multiple of NKV");
}

void attention_forward(Ctx *c, AttentionShape s, Tensor att, Tensor lse, Tensor qkv, Dropout drop)
{
    const OpId op = OP_attention_forward;
    if (attention_shape_check(c, op, s) && expect_2d(c, op, "att", att, qkv.dtype, s.B * s.T, s.NH * s.hd) &&
        expect(c, op, "lse", lse, DTYPE_F32, 3, (int64_t[]){s.B, s.NH, s.T}) &&
        expect_2d(c, op, "qkv", qkv, any_float(qkv), s.B * s.T, (s.NH + 2 * s.NKV) * s.hd))
        DISPATCH(attention_forward, s, att, lse, qkv, drop);
}

void attention_backward(Ctx *c, AttentionShape s, Tensor dqkv, Tensor datt, Tensor att, Tensor lse, Tensor qkv, Dropout drop)
{
    const OpId op = OP_attention_backward;
    int64_t N = s.B * s.T, width = (s.NH + 2 * s.NKV) * s.hd;
    if (attention_shape_check(c, op, s) && expect_2d(c, op, "dqkv", dqkv, qkv.dtype, N, width) &&
        expect_2d(c, op, "datt", datt, qkv.dtype, N, s.NH * s.hd) && expect_2d(c, op, "att", att, qkv.dtype, N, s.NH * s.hd) &&
        expect(c, op, "lse", lse, DTYPE_F32, 3, (int64_t[]){s.B, s.NH, s.T}) &&
        expect_2d(c, op, "qkv", qkv, any_float(qkv), N, width))
        DISPATCH(attention_backward, s, dqkv, datt, att, lse, qkv, drop);
}

void attention_cached(Ctx *c, AttentionShape s, Tensor att, Tensor cache, Tensor qkv, int64_t first)
{
    const OpId op = OP_attention_cached;
    if (attention_shape_check(c, op, s) && expect_2d(c, op, "att", att, qkv.dtype, s.B * s.T, s.NH * s.hd) &&
        expect_2d(c, op, "qkv", qkv, any_float(qkv), s.B * s.T, (s.NH + 2 * s.NKV) * s.hd) &&
        expect(c, op, "cache", cache, qkv.dtype, 3, (int64_t[]){s.B, cache.shape[1], 2 * s.NKV * s.hd}) &&
        require(c, op, first >= 0 && first + s.T <= cache.shape[1], "positions that the cache has"))
        DISPATCH(attention_cached, s, att, cache, qkv, first);
}

static bool head_check(Ctx *c, OpId op, Tensor losses, Tensor x, Tensor wte, Tensor targets, Tensor logits, int64_t V)
{
    if (!is_matrix(c, op, "a matrix x", x) || !is_matrix(c, op, "a matrix wte", wte) ||
        !is_matrix(c, op, "a matrix logits", logits))
        return false;
    int64_t N = x.shape[0], Vp = wte.shape[0];
    return expect_2d(c, op, "wte", wte, wte.dtype, Vp, x.shape[1]) &&
           expect_2d(c, op, "logits", logits, DTYPE_F32, logits.shape[0], Vp) &&
           expect_1d(c, op, "losses", losses, DTYPE_F32, N) && expect(c, op, "targets", targets, DTYPE_I32, 1, (int64_t[]){N}) &&
           require(c, op, V > 0 && V <= Vp && logits.shape[0] > 0, "0 < V <= Vp and room for a row of logits");
}

void head_loss_forward(Ctx *c, Tensor losses, Tensor x, Tensor wte, Tensor targets, Tensor logits, int64_t V)
{
    if (head_check(c, OP_head_loss_forward, losses, x, wte, targets, logits, V))
        DISPATCH(head_loss_forward, losses, x, wte, targets, logits, V);
}

void head_loss_backward(Ctx *c, Tensor dx, Tensor dwte, Tensor losses, Tensor x, Tensor wte, Tensor targets, Tensor logits,
                        int64_t V)
{
    const OpId op = OP_head_loss_backward;
    if (head_check(c, op, losses, x, wte, targets, logits, V) && expect_2d(c, op, "dx", dx, x.dtype, x.shape[0], x.shape[1]) &&
        allow_2d(c, op, "dwte", dwte, any_float(dwte), wte.shape[0], wte.shape[1]))
        DISPATCH(head_loss_backward, dx, dwte, losses, x, wte, targets, logits, V);
}

void head_logits(Ctx *c, Tensor logits, Tensor x, Tensor wte)
{
    const OpId op = OP_head_logits;
    if (is_matrix(c, op, "a matrix x", x) && is_matrix(c, op, "a matrix wte", wte) &&
        expect_2d(c, op, "wte", wte, wte.dtype, wte.shape[0], x.shape[1]) &&
        expect_2d(c, op, "logits", logits, DTYPE_F32, x.shape[0], wte.shape[0]))
        DISPATCH(head_logits, logits, x, wte);
}

void grad_norm(Ctx *c, Tensor grads, float clip, const AdamW *adam)
{
    if (expect_1d(c, OP_grad_norm, "grads", grads, any_float(grads), grads.shape[0]))
        DISPATCH(grad_norm, grads, clip, adam);
}

void adamw(Ctx *c, Tensor w, Tensor master, Tensor g, Tensor m, Tensor v, const AdamW *adam)
{
    const OpId op = OP_adamw;
    int64_t n = w.shape[0];
    if (expect_1d(c, op, "w", w, any_float(w), n) && allow_1d(c, op, "master", master, DTYPE_F32, n) &&
        expect_1d(c, op, "g", g, any_float(g), n) && expect_1d(c, op, "m", m, any_float(m), n) &&
        expect_1d(c, op, "v", v, any_float(v), n))
        DISPATCH(adamw, w, master, g, m, v, adam);
}
