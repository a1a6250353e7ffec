/* One function per row of the op table: what the op costs. See dry.h. */
#include "kernels/dry/dry.h"

#include <stdlib.h>

/* ---- The log ------------------------------------------------------------------------------------------------------- */

static DryOp *op_add(Ctx *c, OpId op, int64_t gemm_flops, int64_t other_flops, size_t workspace)
{
    DryLog *log = c->dry;
    if (!memory_grow(&log->op, &log->capacity, (size_t)log->count + 1, sizeof *log->op, "the ops of a plan", c->error))
        return NULL;
    DryOp *r = &log->op[log->count++];
    *r = (DryOp){.op = op,
                 .phase = c->phase,
                 .layer = c->layer,
                 .gemm_flops = gemm_flops,
                 .other_flops = other_flops,
                 .workspace = workspace};
    return r;
}

/* `read` bytes of t are read and `written` bytes written; t itself is live throughout. Absent operands cost nothing. */
static void operand_add(DryOp *r, Tensor t, size_t read, size_t written)
{
    if (!r || !tensor_present(t) || r->n_operands == DRY_MAX_OPERANDS)
        return;
    r->bytes_read += (int64_t)read;
    r->bytes_written += (int64_t)written;
    r->operand[r->n_operands++] = (DryOperand){t.data, tensor_bytes(t), written > 0};
}

static void operands_add(DryOp *r, bool read, bool written, int n, const Tensor *t)
{
    for (int i = 0; i < n; i++)
        operand_add(r, t[i], read ? tensor_bytes(t[i]) : 0, written ? tensor_bytes(t[i]) : 0);
}

/* Whole operands, as many as there are: READS(r, x, w, b). */
#define OPERANDS(r, read, written, ...)                                                                                          \
    operands_add(r, read, written, (int)(sizeof((Tensor[]){__VA_ARGS__}) / sizeof(Tensor)), (Tensor[]){__VA_ARGS__})
#define READS(r, ...)       OPERANDS(r, true, false, __VA_ARGS__)
#define WRITES(r, ...)      OPERANDS(r, false, true, __VA_ARGS__)
#define ACCUMULATES(r, ...) OPERANDS(r, true, true, __VA_ARGS__)

void dry_log_free(DryLog *log)
{
    free(log->op);
    *log = (DryLog){0};
}

/* ---- The ops ------------------------------------------------------------------------------------------------------- */

static void dry_copy_in(Ctx *c, Tensor to, const void *from)
{
    (void)from;
    WRITES(op_add(c, OP_copy_in, 0, 0, 0), to);
}

static void dry_copy_out(Ctx *c, void *to, Tensor from)
{
    (void)to;
    READS(op_add(c, OP_copy_out, 0, 0, 0), from);
}

static void dry_zero(Ctx *c, Tensor t)
{
    WRITES(op_add(c, OP_zero, 0, 0, 0), t);
}

static void dry_cast(Ctx *c, Tensor to, Tensor from)
{
    DryOp *r = op_add(c, OP_cast, 0, tensor_count(to), 0);
    WRITES(r, to);
    READS(r, from);
}

static void dry_micro_next(Ctx *c)
{
    op_add(c, OP_micro_next, 0, 0, 0);
}

static void dry_embedding_forward(Ctx *c, Tensor x, Tensor tokens, Tensor wte, Tensor wpe, int64_t first, Dropout drop)
{
    (void)first;
    int64_t T = tokens.shape[1], row = tensor_width(wte) * (int64_t)dtype_size(wte.dtype);
    DryOp *r = op_add(c, OP_embedding_forward, 0, tensor_count(x) * (drop.p > 0 ? 2 : 1), 0);
    WRITES(r, x);
    READS(r, tokens);
    operand_add(r, wte, (size_t)(tensor_count(tokens) * row), 0);
    operand_add(r, wpe, (size_t)(T * row), 0);
}

static void dry_embedding_backward(Ctx *c, Tensor dwte, Tensor dwpe, Tensor dx, Tensor tokens, Dropout drop)
{
    int64_t T = tokens.shape[1], row = tensor_width(dx) * (int64_t)dtype_size(dwte.dtype);
    size_t lists = embedding_backward_workspace(dx.shape[0], tensor_present(dwte) ? dwte.shape[0] : 0, &c->target);
    DryOp *r = op_add(c, OP_embedding_backward, 0, tensor_count(dx) * (drop.p > 0 ? 3 : 2), lists);
    READS(r, dx, tokens);
    size_t of_tokens = (size_t)(tensor_count(tokens) * row), of_positions = (size_t)(T * row);
    operand_add(r, dwte, of_tokens, of_tokens); /* rows that are read and written again */
    operand_add(r, dwpe, of_positions, of_positions);
}

static void dry_norm_forward(Ctx *c, Tensor y, Tensor stats, Tensor x, Tensor w, Tensor b)
{
    DryOp *r = op_add(c, OP_norm_forward, 0, 8 * tensor_count(x), norm_workspace(x.shape[1], &c->target));
    WRITES(r, y, stats);
    READS(r, x, w, b);
}

static void dry_residual_norm_forward(Ctx *c, Tensor x_out, Tensor y, Tensor stats, Tensor x_in, Tensor branch, Tensor w,
                                      Tensor b, Dropout drop)
{
    DryOp *r = op_add(c, OP_residual_norm_forward, 0, (drop.p > 0 ? 10 : 9) * tensor_count(x_in),
                      norm_workspace(x_in.shape[1], &c->target));
    WRITES(r, x_out, y, stats);
    READS(r, x_in, branch, w, b);
}

static void dry_residual_norm_backward(Ctx *c, Tensor dx, Tensor dbranch, Tensor dw, Tensor db, Tensor dskip, Tensor dy, Tensor x,
                                       Tensor stats, Tensor w, Dropout drop)
{
    (void)drop;
    int64_t N = x.shape[0], C = x.shape[1];
    DryOp *r = op_add(c, OP_residual_norm_backward, 0, 15 * N * C, norm_workspace(C, &c->target));
    WRITES(r, dx, dbranch);
    ACCUMULATES(r, dw, db);
    READS(r, dskip, dy, x, stats, w);
}

enum { GELU_BACKWARD_FLOPS = 17 }; /* per element */

static void dry_linear_forward(Ctx *c, Tensor y, Tensor x, Tensor w, Tensor b)
{
    int64_t N = x.shape[0], I = w.shape[0], O = w.shape[1];
    GemmTypes types = {x.dtype, w.dtype, DTYPE_F32};
    DryOp *r =
        op_add(c, OP_linear_forward, 2 * N * I * O, tensor_present(b) ? N * O : 0, linear_workspace(N, I, O, types, &c->target));
    WRITES(r, y);
    READS(r, x, w, b);
}

static DryOp *linear_gradients(Ctx *c, OpId op, Tensor dx, Tensor dw, Tensor db, Tensor dy, Tensor x, Tensor w)
{
    int64_t N = x.shape[0], I = w.shape[0], O = w.shape[1];
    int products = tensor_present(dx) + tensor_present(dw);
    GemmTypes types = {x.dtype, w.dtype, dw.dtype};
    size_t gemm = linear_workspace(N, I, O, types, &c->target), sums = linear_bias_workspace(N, O, &c->target);
    DryOp *r = op_add(c, op, products * 2 * N * I * O, tensor_present(db) ? N * O : 0, gemm > sums ? gemm : sums);
    WRITES(r, dx);
    ACCUMULATES(r, dw, db);
    READS(r, dy, x, w);
    return r;
}

static void dry_linear_backward(Ctx *c, Tensor dx, Tensor dw, Tensor db, Tensor dy, Tensor x, Tensor w)
{
    linear_gradients(c, OP_linear_backward, dx, dw, db, dy, x, w);
}

/* A GPU multiplies by GELU's derivative before dpre is written; the CPU reads and writes it once more. */
static void dry_linear_gelu_backward(Ctx *c, Tensor dpre, Tensor dw, Tensor db, Tensor dy, Tensor x, Tensor w, Tensor pre)
{
    DryOp *r = linear_gradients(c, OP_linear_gelu_backward, dpre, dw, db, dy, x, w);
    READS(r, pre);
    if (r)
        r->other_flops += GELU_BACKWARD_FLOPS * tensor_count(pre);
    if (c->target.kind != DEVICE_CUDA)
        ACCUMULATES(r, dpre);
}

static void dry_gelu_forward(Ctx *c, Tensor y, Tensor x)
{
    DryOp *r = op_add(c, OP_gelu_forward, 0, 9 * tensor_count(x), 0);
    WRITES(r, y);
    READS(r, x);
}

static void dry_gelu_backward(Ctx *c, Tensor dx, Tensor dy, Tensor x)
{
    DryOp *r = op_add(c, OP_gelu_backward, 0, GELU_BACKWARD_FLOPS * tensor_count(x), 0);
    WRITES(r, dx);
    READS(r, dy, x);
}

/* Pairs (i, j) with j <= i of all heads. */
static int64_t causal_pairs(AttentionShape s)
{
    return s.B * s.NH * (s.T * (s.T + 1) / 2);
}

static void dry_attention_forward(Ctx *c, AttentionShape s, Tensor att, Tensor lse, Tensor qkv, Dropout drop)
{
    int64_t pairs = causal_pairs(s); /* q k' and p v: two products of hd multiply-adds a pair */
    DryOp *r =
        op_add(c, OP_attention_forward, pairs * 4 * s.hd, pairs * (drop.p > 0 ? 5 : 4), attention_workspace(s, &c->target));
    WRITES(r, att, lse);
    READS(r, qkv);
}

static void dry_attention_backward(Ctx *c, AttentionShape s, Tensor dqkv, Tensor datt, Tensor att, Tensor lse, Tensor qkv,
                                   Dropout drop)
{
    /* q k' again, do v', p' do, ds k, ds' q: five; on a GPU the first two once for queries and once for keys */
    int64_t pairs = causal_pairs(s), products = c->target.kind == DEVICE_CUDA ? 7 : 5;
    DryOp *r = op_add(c, OP_attention_backward, pairs * 2 * products * s.hd, pairs * (drop.p > 0 ? 7 : 5),
                      attention_backward_workspace(s, &c->target));
    WRITES(r, dqkv);
    READS(r, datt, att, lse, qkv);
}

static void dry_attention_cached(Ctx *c, AttentionShape s, Tensor att, Tensor cache, Tensor qkv, int64_t first)
{
    int64_t pairs = s.B * s.NH * (s.T * first + s.T * (s.T + 1) / 2);
    DryOp *r = op_add(c, OP_attention_cached, pairs * 4 * s.hd, pairs * 4, attention_cached_workspace(s, &c->target));
    int64_t row = tensor_width(cache) * (int64_t)dtype_size(cache.dtype);
    WRITES(r, att);
    operand_add(r, cache, (size_t)(s.B * (first + s.T) * row), (size_t)(s.B * s.T * row));
    READS(r, qkv);
}

static DryOp *head_loss(Ctx *c, OpId op, int products, DType grad, Tensor losses, Tensor x, Tensor wte, Tensor targets,
                        Tensor logits)
{
    int64_t N = x.shape[0], C = x.shape[1], Vp = wte.shape[0], R = logits.shape[0];
    DryOp *r = op_add(c, op, products * 2 * N * C * Vp, (products > 1 ? 5 : 3) * N * Vp,
                      head_workspace(N, R, C, Vp, (GemmTypes){x.dtype, wte.dtype, grad}, &c->target));
    WRITES(r, losses);
    READS(r, x, wte, targets);
    WRITES(r, logits);
    return r;
}

static void dry_head_loss_forward(Ctx *c, Tensor losses, Tensor x, Tensor wte, Tensor targets, Tensor logits, int64_t V)
{
    (void)V;
    head_loss(c, OP_head_loss_forward, 1, DTYPE_F32, losses, x, wte, targets, logits);
}

static void dry_head_loss_backward(Ctx *c, Tensor dx, Tensor dwte, Tensor losses, Tensor x, Tensor wte, Tensor targets,
                                   Tensor logits, int64_t V)
{
    (void)V;
    DryOp *r = head_loss(c, OP_head_loss_backward, 2 + tensor_present(dwte), dwte.dtype, losses, x, wte, targets, logits);
    WRITES(r, dx);
    ACCUMULATES(r, dwte);
}

static void dry_head_logits(Ctx *c, Tensor logits, Tensor x, Tensor wte)
{
    int64_t N = x.shape[0], C = x.shape[1], Vp = wte.shape[0];
    DryOp *r = op_add(c, OP_head_logits, 2 * N * C * Vp, 0,
                      head_workspace(N, N, C, Vp, (GemmTypes){x.dtype, wte.dtype, DTYPE_F32}, &c->target));
    WRITES(r, logits);
    READS(r, x, wte);
}

static void dry_grad_norm(Ctx *c, Tensor grads, float clip, const AdamW *adam)
{
    (void)clip;
    (void)adam;
    int64_t n = tensor_count(grads);
    READS(op_add(c, OP_grad_norm, 0, 2 * n, grad_norm_workspace(n)), grads);
}

static void dry_adamw(Ctx *c, Tensor w, Tensor master, Tensor g, Tensor m, Tensor v, const AdamW *adam)
{
    (void)adam;
    DryOp *r = op_add(c, OP_adamw, 0, 16 * tensor_count(w), 0);
    if (tensor_present(master)) {
        ACCUMULATES(r, master);
        WRITES(r, w);
    } else {
        ACCUMULATES(r, w);
    }
    READS(r, g);
    ACCUMULATES(r, m, v);
}

/* ---- The device ---------------------------------------------------------------------------------------------------- */

const Device *dry_device(void)
{
    static const Device device = {.name = "dry",
#define X(op) .op = dry_##op,
                                  TALLY_OPS(X)
#undef X
    };
    return &device;
}
