/* A GPT: its weights, what it keeps during a step, and the passes over it. The equations are in gpt.c; this page is the map.
 *
 *   model_plan       declares every tensor, runs a step of everything on the dry device, packs: the plan is complete
 *   model_allocate   takes the two arenas that the plan asks for, points every tensor into them
 *   model_forward_backward, model_update, model_evaluate, model_decode: the passes
 */
#ifndef TALLY_MODEL_MODEL_H
#define TALLY_MODEL_MODEL_H

#include "kernels/device.h"
#include "model/config.h"
#include "model/plan.h"
#include "model/precision.h"
#include "model/recompute.h"

/* A parameter and what the optimizer keeps about it. All have the same shape. */
typedef struct Weight {
    char name[64]; /* as in a Hugging Face GPT-2 checkpoint, "h.0.attn.c_attn.weight" */
    Tensor value;  /* what the model computes with                          */
    Tensor master; /* FP32, beside a 16-bit value; else absent              */
    Tensor grad, m, v;
    bool residual; /* projects into the residual stream: starts smaller by sqrt(2L) */
} Weight;

typedef struct Linear {
    Weight w, b; /* [I, O] and [O]; b is absent without biases */
} Linear;

typedef struct Norm {
    Weight w, b; /* [C] each; b is absent without biases */
} Norm;

typedef struct Block {
    Norm ln_1;
    Linear c_attn;    /* C -> q, k, v      [C, (NH + 2 NKV) hd] */
    Linear attn_proj; /* NH hd -> C                             */
    Norm ln_2;
    Linear c_fc;     /* C -> F            [C, F], F = 4C        */
    Linear mlp_proj; /* F -> C                                  */
} Block;

/* What a block keeps from its forward for its backward; N = B*T. 16 C elements a row, and 4 + NH statistics. */
typedef struct BlockActs {
    Tensor x_in;       /* residual stream as it enters            [N, C]           */
    Tensor ln_1;       /* normalised x_in                         [N, C]           */
    Tensor stat_1;     /* its mean and 1/deviation                [N, 2] f32       */
    Tensor qkv;        /* queries, keys, values                   [N, (NH+2NKV)hd] */
    Tensor att;        /* heads' outputs                          [N, NH hd]       */
    Tensor lse;        /* log-sum-exp of the attention scores     [B, NH, T] f32   */
    Tensor x_mid;      /* residual stream after attention         [N, C]           */
    Tensor ln_2;       /* normalised x_mid                        [N, C]           */
    Tensor stat_2;     /*                                         [N, 2] f32       */
    Tensor fc;         /* before GELU                             [N, F]           */
    Tensor act;        /* after GELU                              [N, F]           */
    Tensor att_branch; /* what attention adds; not kept           [N, C]           */
    Tensor mlp_branch; /* what the MLP adds; not kept             [N, C]           */
} BlockActs;

/* The tensor of a row of the recompute table. */
static inline Tensor *block_act(BlockActs *s, const ActRow *row)
{
    return (Tensor *)((char *)s + row->offset);
}

/* Gradients of a block's activations; each lives for a few ops. */
typedef struct BlockGrads {
    Tensor mlp_branch; /* of mlp_branch, when dropout makes it differ from dx  [N, C] */
    Tensor fc;         /* of act, then in the same place of fc                 [N, F] */
    Tensor ln_2;       /* [N, C]                                                      */
    Tensor att_branch; /* like mlp_branch                                      [N, C] */
    Tensor att;        /* [N, NH hd]                                                  */
    Tensor qkv;        /* [N, (NH+2NKV)hd]                                            */
    Tensor ln_1;       /* [N, C]                                                      */
} BlockGrads;

/* Generation: S sequences at once, up to `chunk` new positions a call, S*chunk rows. */
typedef struct Decoder {
    Tensor tokens; /* [S, chunk] i32                     */
    Tensor cache;  /* keys and values  [L, S, P, 2 NKV hd] */
    Tensor x, norm, stat, qkv, att, branch, fc, act;
    Tensor logits; /* of each sequence's last position [S, Vp] */
} Decoder;

/* How a model is going to be run. */
typedef struct ModelRun {
    bool training;       /* gradients, moments and activations exist                                   */
    int64_t batch_size;  /* B of a micro-batch (training and evaluation); 0: neither                   */
    int64_t block_size;  /* T, at most the model's                                                     */
    int64_t head_rows;   /* rows of logits that exist at once; 0: the default                          */
    int64_t sample_size; /* S; 0: nothing is generated                                                 */
    Precision precision;
    Recompute recompute;     /* what the backward makes again instead of finding it kept                   */
    int64_t recompute_every; /* level `block`: keep the input of every K-th block only; 0 is 1             */
    double grad_clip;        /* largest global gradient norm; 0: no clipping                               */
    double beta1, beta2, eps, weight_decay;
} ModelRun;

/* head_rows when it is 0: enough for the GEMM to run at speed, little beside the rest. */
enum { HEAD_ROWS = 512, DECODE_CHUNK = 64 };

/* The run with PyTorch's and nanoGPT's usual values: training, beta 0.9/0.95, eps 1e-8, weight decay 0.1, clip 1. */
ModelRun model_run_default(void);

typedef struct Model {
    ModelConfig config;
    ModelRun run;
    Plan plan;
    Ctx ctx;
    void *persistent, *step; /* the two arenas; NULL before model_allocate */

    Weight wte, wpe; /* [Vp, C] token and [P, C] position embeddings; wte is the head as well */
    Block *block;    /* [L] */
    Norm ln_f;
    Weight **weight; /* all that are present, in the order in which the backward finishes them */
    int n_weights;
    Tensor values, masters, grads, m, v; /* each one flat range over all weights, alignment gaps (zeros) included */
    AdamW adam;

    Tensor state;                     /* the StepState                              */
    Tensor tokens, targets;           /* [B, T] and [B*T] i32, of one micro-batch   */
    Tensor next_tokens, next_targets; /* the same of the next one, on a device that copies while it computes; else absent */
    BlockActs *acts;                  /* [L], what the forward makes                */
    BlockActs *again;                 /* [L], what the backward makes again; the kept ones are absent */
    Tensor x_final, ln_f_out, stat_f;
    Tensor losses;    /* [B*T] of the last micro-batch                     */
    Tensor logits;    /* [head_rows, Vp]                                   */
    Tensor dln_f_out; /* [B*T, C]                                          */
    Tensor dx;        /* gradient of the residual stream, all the way down */
    BlockGrads *grad; /* [L]                                               */
    Decoder decoder;
    Tensor workspace;

    /* Called after the backward of each block, when dx is the gradient of the block's input. NULL: nobody looks. */
    void (*watch)(void *user, int layer);
    void *watch_user;
} Model;

/* Fills *m for `config` and `run` on `target` without taking device memory: m->plan is complete. False with a message when
 * the run makes no sense (T beyond the model's block_size, ...). In either case model_free must follow. */
bool model_plan(Model *m, const ModelConfig *config, const ModelRun *run, const Target *target, Error *e);

/* Exchanges the micro-batch with the next one, where there is a next_tokens. */
void model_batch_turn(Model *m);

/* Takes the planned arenas from `device` and binds every tensor. All memory is zero. Failures of ops are recorded in *e from
 * now on, which must outlive the model. */
bool model_allocate(Model *m, const Device *device, Error *e);

void model_free(Model *m);

/* ---- Weights (params.c) --------------------------------------------------------------------------------------------- */

/* Declares all weights (and, for training, gradients and moments) in the plan. */
bool model_declare_weights(Model *m, Error *e);

/* GPT-2's initialisation: matrices normal with deviation 0.02, those that project into the residual stream 0.02 / sqrt(2L),
 * biases 0, norm gains 1, padded vocabulary rows 0. Made on the host from `seed`: the same on every device. */
bool model_initialize(Model *m, uint64_t seed, Error *e);

/* Elements first .. first+n-1 of a tensor of float type = values [n], rounded to nearest; waits for the device. The values are
 * host memory and are used as scratch. weight_store: those of the master where there is one, and of the value its rounding. */
void tensor_store(Model *m, Tensor t, int64_t first, int64_t n, float *values);
void weight_store(Model *m, const Weight *w, int64_t first, int64_t n, float *values);

/* values [n] = elements first .. first+n-1 of a tensor of float type, widened; waits for the device. */
void tensor_fetch(Model *m, Tensor t, int64_t first, int64_t n, float *values);

/* Parameters of the weights present, padded rows included. */
int64_t model_parameters(const Model *m);

/* ---- Passes (gpt.c); ops fail through m->ctx.error ------------------------------------------------------------------ */

/* Forward over m->tokens: fills the activations and m->ln_f_out. With dropout when phase is PHASE_FORWARD. */
void model_forward(Model *m, Phase phase);

/* Forward, loss and backward of the micro-batch in m->tokens and m->targets: adds to the gradients and to state->loss_sum, and
 * moves state->micro on. */
void model_forward_backward(Model *m);

/* Forward and loss only: adds to state->loss_sum, fills m->losses. */
void model_evaluate(Model *m);

/* The first n new tokens of each row of decoder.tokens [S, chunk] at positions first .. first+n-1, n <= chunk: extends the
 * cache, and leaves the logits of each sequence's last position in decoder.logits. Tokens are packed: [S, n]. */
void model_decode(Model *m, int64_t n, int64_t first);

/* Gradients to zero, before the first micro-batch of a step. */
void model_gradients_zero(Model *m);

/* Global norm, clip coefficient and one AdamW update, skipped when the gradient is not finite. */
void model_update(Model *m);

#endif
