/* One function per row of the op table: what the op costs. See dry.h. */
#include "kernels/dry/dry.h"

#include <stdlib.h>

/* ---- The log ------------------------------------------------------------------------------------------------------- */

static DryOp *op_add(Ctx *c, OpId op, int64_t gemm_flops, int64_t other_flops, size_t workspace)
{
    DryLog *log = c->dry;
    if (log->count == log->capacity) {
        int64_t capacity = log->capacity ? 2 * log->capacity : 256;
        DryOp *grown = realloc(log->op, (size_t)capacity * sizeof *grown);
        if (!grown) {
            error_set(c->error, "out of host memory: a plan of %lld ops", (long long)capacity);
            return NULL;
        }
        log->op = grown;
        log->capacity = capacity;
    }
    DryOp *r = &log->op[log->count++];
    *r = (DryOp){.op = op,
                 .phase = c->phase,
                 .layer = c->layer,
                 .gemm_flops = gemm_flops,
                 .other_flops = other_flops,
                 .workspace = workspace};
    return r;
}

static void operand_add(DryOp *r, const void *address, size_t bytes, bool written)
{
    if (r && address && r->n_operands < DRY_MAX_OPERANDS)
        r->operand[r->n_operands++] = (DryOperand){address, bytes, written};
}

/* `bytes` of t are read, written, or both; t itself is live throughout. Absent operands cost nothing. */
static void reads_part(DryOp *r, Tensor t, int64_t bytes)
{
    if (r && tensor_present(t))
        r->bytes_read += bytes;
    operand_add(r, t.data, tensor_bytes(t), false);
}

static void reads(DryOp *r, Tensor t)
{
    reads_part(r, t, (int64_t)tensor_bytes(t));
}

static void writes(DryOp *r, Tensor t)
{
    if (r && tensor_present(t))
        r->bytes_written += (int64_t)tensor_bytes(t);
    operand_add(r, t.data, tensor_bytes(t), true);
}

static void accumulates(DryOp *r, Tensor t)
{
    if (r && tensor_present(t))
        r->bytes_read += (int64_t)tensor_bytes(t);
    writes(r, t);
}

void dry_log_free(DryLog *log)
{
    free(log->op);
    *log = (DryLog){0};
}

/* ---- The ops ------------------------------------------------------------------------------------------------------- */

static void dry_copy_in(Ctx *c, Tensor to, const void *from)
{
    (void)from;
    writes(op_add(c, OP_copy_in, 0, 0, 0), to);
}

static void dry_copy_out(Ctx *c, void *to, Tensor from)
{
    (void)to;
    reads(op_add(c, OP_copy_out, 0, 0, 0), from);
}

static void dry_zero(Ctx *c, Tensor t)
{
    writes(op_add(c, OP_zero, 0, 0, 0), t);
}

static void dry_cast(Ctx *c, Tensor to, Tensor from)
{
    DryOp *r = op_add(c, OP_cast, 0, tensor_count(to), 0);
    writes(r, to);
    reads(r, from);
}

static void dry_micro_next(Ctx *c, int32_t by)
{
    (void)by;
    op_add(c, OP_micro_next, 0, 0, 0);
}

static void dry_embedding_forward(Ctx *c, Tensor x, Tensor tokens, Tensor wte, Tensor wpe, int64_t first, Dropout drop)
{
    (void)first;
    int64_t T = tokens.shape[1], row = tensor_width(wte) * (int64_t)dtype_size(wte.dtype);
    DryOp *r = op_add(c, OP_embedding_forward, 0, tensor_count(x) * (drop.p > 0 ? 2 : 1), 0);
    writes(r, x);
    reads(r, tokens);
    reads_part(r, wte, tensor_count(tokens) * row);
    reads_part(r, wpe, T * row);
}

static void dry_embedding_backward(Ctx *c, Tensor dwte, Tensor dwpe, Tensor dx, Tensor tokens, Dropout drop)
{
    int64_t T = tokens.shape[1], row = tensor_width(dx) * (int64_t)dtype_size(dwte.dtype);
    size_t lists = embedding_backward_workspace(dx.shape[0], tensor_present(dwte) ? dwte.shape[0] : 0, &c->target);
    DryOp *r = op_add(c, OP_embedding_backward, 0, tensor_count(dx) * (drop.p > 0 ? 3 : 2), lists);
    reads(r, dx);
    reads(r, tokens);
    int64_t touched[2] = {tensor_count(tokens) * row, T * row}; /* rows that are read and written again */
    Tensor target[2] = {dwte, dwpe};
    for (int i = 0; i < 2; i++) {
        reads_part(r, target[i], touched[i]);
        if (r && tensor_present(target[i])) {
            r->bytes_written += touched[i];
            r->operand[r->n_operands - 1].written = true;
        }
    }
}

static void dry_norm_forward(Ctx *c, Tensor y, Tensor stats, Tensor x, Tensor w, Tensor b)
{
    DryOp *r = op_add(c, OP_norm_forward, 0, 8 * tensor_count(x), norm_workspace(x.shape[1], &c->target));
    writes(r, y);
    writes(r, stats);
    reads(r, x);
    reads(r, w);
    reads(r, b);
}

static void dry_residual_norm_forward(Ctx *c, Tensor x_out, Tensor y, Tensor stats, Tensor x_in, Tensor branch, Tensor w,
                                      Tensor b, Dropout drop)
{
    DryOp *r = op_add(c, OP_residual_norm_forward, 0, (drop.p > 0 ? 10 : 9) * tensor_count(x_in),
                      norm_workspace(x_in.shape[1], &c->target));
    writes(r, x_out);
    writes(r, y);
    writes(r, stats);
    reads(r, x_in);
    reads(r, branch);
    reads(r, w);
    reads(r, b);
}

static void dry_residual_norm_backward(Ctx *c, Tensor dx, Tensor dbranch, Tensor dw, Tensor db, Tensor dskip, Tensor dy, Tensor x,
                                       Tensor stats, Tensor w, Dropout drop)
{
    (void)drop;
    int64_t N = x.shape[0], C = x.shape[1];
    DryOp *r = op_add(c, OP_residual_norm_backward, 0, 15 * N * C, norm_workspace(C, &c->target));
    writes(r, dx);
    writes(r, dbranch);
    accumulates(r, dw);
    accumulates(r, db);
    reads(r, dskip);
    reads(r, dy);
    reads(r, x);
    reads(r, stats);
    reads(r, w);
}

enum { GELU_BACKWARD_FLOPS = 17 }; /* per element */

static void dry_linear_forward(Ctx *c, Tensor y, Tensor x, Tensor w, Tensor b)
{
    int64_t N = x.shape[0], I = w.shape[0], O = w.shape[1];
    GemmTypes types = {x.dtype, w.dtype, DTYPE_F32};
    DryOp *r =
        op_add(c, OP_linear_forward, 2 * N * I * O, tensor_present(b) ? N * O : 0, linear_workspace(N, I, O, types, &c->target));
    writes(r, y);
    reads(r, x);
    reads(r, w);
    reads(r, b);
}

static DryOp *linear_gradients(Ctx *c, OpId op, Tensor dx, Tensor dw, Tensor db, Tensor dy, Tensor x, Tensor w)
{
    int64_t N = x.shape[0], I = w.shape[0], O = w.shape[1];
    int products = tensor_present(dx) + tensor_present(dw);
    GemmTypes types = {x.dtype, w.dtype, dw.dtype};
    size_t gemm = linear_workspace(N, I, O, types, &c->target), sums = linear_bias_workspace(N, O, &c->target);
    DryOp *r = op_add(c, op, products * 2 * N * I * O, tensor_present(db) ? N * O : 0, gemm > sums ? gemm : sums);
    writes(r, dx);
    accumulates(r, dw);
    accumulates(r, db);
    reads(r, dy);
    reads(r, x);
    reads(r, w);
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
    reads(r, pre);
    if (r)
        r->other_flops += GELU_BACKWARD_FLOPS * tensor_count(pre);
    if (c->target.kind != DEVICE_CUDA)
        accumulates(r, dpre);
}

static void dry_gelu_forward(Ctx *c, Tensor y, Tensor x)
{
    DryOp *r = op_add(c, OP_gelu_forward, 0, 9 * tensor_count(x), 0);
    writes(r, y);
    reads(r, x);
}

static void dry_gelu_backward(Ctx *c, Tensor dx, Tensor dy, Tensor x)
{
    DryOp *r = op_add(c, OP_gelu_backward, 0, GELU_BACKWARD_FLOPS * tensor_count(x), 0);
    writes(r, dx);
    reads(r, dy);
    reads(r, x);
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
    writes(r, att);
    writes(r, lse);
    reads(r, qkv);
}

static void dry_attention_backward(Ctx *c, AttentionShape s, Tensor dqkv, Tensor datt, Tensor att, Tensor lse, Tensor qkv,
                                   Dropout drop)
{
    /* q k' again, do v', p' do, ds k, ds' q: five; on a GPU the first two once for queries and once for keys */
    int64_t pairs = causal_pairs(s), products = c->target.kind == DEVICE_CUDA ? 7 : 5;
    DryOp *r = op_add(c, OP_attention_backward, pairs * 2 * products * s.hd, pairs * (drop.p > 0 ? 7 : 5),
                      attention_backward_workspace(s, &c->target));
    writes(r, dqkv);
    reads(r, datt);
    reads(r, att);
    reads(r, lse);
    reads(r, qkv);
}

static void dry_attention_cached(Ctx *c, AttentionShape s, Tensor att, Tensor cache, Tensor qkv, int64_t first)
{
    int64_t pairs = s.B * s.NH * (s.T * first + s.T * (s.T + 1) / 2);
    DryOp *r = op_add(c, OP_attention_cached, pairs * 4 * s.hd, pairs * 4, attention_cached_workspace(s, &c->target));
    int64_t row = tensor_width(cache) * (int64_t)dtype_size(cache.dtype), appended = s.B * s.T * row;
    writes(r, att);
    reads_part(r, cache, s.B * (first + s.T) * row);
    reads(r, qkv);
    if (r)
        r->bytes_written += appended;
}

static void head_loss(Ctx *c, OpId op, int products, DType grad, Tensor losses, Tensor x, Tensor wte, Tensor targets,
                      Tensor logits)
{
    int64_t N = x.shape[0], C = x.shape[1], Vp = wte.shape[0], R = logits.shape[0];
    DryOp *r = op_add(c, op, products * 2 * N * C * Vp, (products > 1 ? 5 : 3) * N * Vp,
                      head_workspace(N, R, C, Vp, (GemmTypes){x.dtype, wte.dtype, grad}, &c->target));
    writes(r, losses);
    reads(r, x);
    reads(r, wte);
    reads(r, targets);
    writes(r, logits);
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
    head_loss(c, OP_head_loss_backward, 2 + tensor_present(dwte), dwte.dtype, losses, x, wte, targets, logits);
    if (c->error->set)
        return;
    DryOp *r = &c->dry->op[c->dry->count - 1];
    writes(r, dx);
    accumulates(r, dwte);
}

static void dry_head_logits(Ctx *c, Tensor logits, Tensor x, Tensor wte)
{
    int64_t N = x.shape[0], C = x.shape[1], Vp = wte.shape[0];
    DryOp *r = op_add(c, OP_head_logits, 2 * N * C * Vp, 0,
                      head_workspace(N, N, C, Vp, (GemmTypes){x.dtype, wte.dtype, DTYPE_F32}, &c->target));
    writes(r, logits);
    reads(r, x);
    reads(r, wte);
}

static void dry_grad_norm(Ctx *c, Tensor grads, float clip, const AdamW *adam)
{
    (void)clip;
    (void)adam;
    int64_t n = tensor_count(grads);
    reads(op_add(c, OP_grad_norm, 0, 2 * n, grad_norm_workspace(n)), grads);
}

static void dry_adamw(Ctx *c, Tensor w, Tensor master, Tensor g, Tensor m, Tensor v, const AdamW *adam)
{
    (void)adam;
    DryOp *r = op_add(c, OP_adamw, 0, 16 * tensor_count(w), 0);
    if (tensor_present(master)) {
        accumulates(r, master);
        writes(r, w);
    } else {
        accumulates(r, w);
    }
    reads(r, g);
    accumulates(r, m);
    accumulates(r, v);
}

/* ---- The device ---------------------------------------------------------------------------------------------------- */

static void *dry_memory_take(size_t bytes, const char *what, Error *e)
{
    error_set(e, "the dry device has no memory: %zu bytes for %s", bytes, what);
    return NULL;
}

static void dry_memory_give(void *p, size_t bytes)
{
    (void)p;
    (void)bytes;
}

static void dry_synchronize(Ctx *c)
{
    (void)c;
}

const Device *dry_device(void)
{
    static const Device device = {.name = "dry",
                                  .memory_take = dry_memory_take,
                                  .memory_give = dry_memory_give,
                                  .synchronize = dry_synchronize,
#define X(op) .op = dry_##op,
                                  TALLY_OPS(X)
#undef X
    };
    return &device;
}
