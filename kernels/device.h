/* The table of operations: everything that the model asks of a device, and all that a new device must implement.
 *
 *   cpu   kernels/cpu   computes on this machine's cores
 *   cuda  kernels/cuda  computes on an NVIDIA GPU
 *   dry   kernels/dry   computes nothing: records the FLOPs, bytes and tensors of each call; the planner is built on it
 *
 * The model calls the functions below. Each checks shapes and dtypes once, for all devices (kernels/ops.c), and hands on
 * to the device's own function of the same name. Names of dimensions: B sequences, T positions, N = B*T rows, C channels,
 * L layers, NH query heads, NKV key/value heads, hd head size, V vocabulary, Vp vocabulary padded, P positions at most.
 *
 * Failure: a wrong shape or dtype records a message in ctx->error. From then on every op of that context does nothing, so
 * that the model reads as equations and its caller asks once, at the end, whether all went well. */
#ifndef TALLY_KERNELS_DEVICE_H
#define TALLY_KERNELS_DEVICE_H

#include "base/error.h"
#include "base/philox.h"
#include "kernels/scaler.h"
#include "kernels/tensor.h"

/* ---- What an op is given ------------------------------------------------------------------------------------------ */

typedef enum DeviceKind { DEVICE_CPU, DEVICE_DRY, DEVICE_CUDA } DeviceKind;
typedef enum Isa { ISA_PLAIN, ISA_X86_V3, ISA_X86_V4 } Isa;

/* The machine that a plan is for, real or imagined. Whatever depends on it (scratch, partial sums) is a function of it. */
typedef struct Target {
    DeviceKind kind;
    int threads;        /* OpenMP threads; decides the number of partial sums            */
    Isa isa;            /* which build of kernels/cpu runs                               */
    bool bf16_gemm;     /* BF16 matrices are multiplied as such; else widened to FP32    */
    bool tf32;          /* a GPU's tensor cores multiply FP32 matrices, rounded to TF32  */
    int capability;     /* of a GPU: 10 x major + minor, 80 for an A100; else 0          */
    int sm_count;       /* its multiprocessors; decides the number of partial sums       */
    size_t total_bytes; /* memory of the device                                          */
    size_t free_bytes;  /* of a GPU: what of it was free when the device was opened      */
    char name[64];      /* for people: "Intel Xeon ..., 2 threads, AVX-512"              */
    char bus[16];       /* of a GPU: its place on the PCI bus, "0000:3b:00.0"                */
    char note[192];     /* why this is the CPU, where a GPU was looked for; else ""      */
} Target;

/* All that changes from step to step. It lives in device memory: a captured sequence of launches stays valid, and no
 * launch waits for the host. The host writes the first group, up to loss_sum, before a step and reads the second after it. */
typedef struct StepState {
    uint64_t seed;
    int64_t step;  /* iteration, 0-based                                                       */
    int32_t micro; /* global number of the micro-batch within the step                         */
    float learning_rate;
    float inverse_count; /* 1 / counted targets of the whole optimizer step; 0 when none count       */

    double loss_sum; /* sum of -log p over counted targets since the host last zeroed it               */

    int64_t adam_t;       /* updates applied so far                                                   */
    float bias_1, bias_2; /* 1 - beta1^t, 1 - beta2^t of the current update                           */
    double grad_norm;     /* global L2 norm before clipping                                           */
    float clip_coef;      /* min(1, max_norm / (norm + 1e-6)), or 1                                   */
    int32_t nonfinite;    /* 1: this step's gradient holds an Inf or NaN and the update is skipped     */
    float grad_factor;    /* clip_coef / the step's loss scale: what the update multiplies gradients by */
    Scaler scaler;        /* of the losses: of this step, and from grad_norm on of the next            */
} StepState;

typedef enum Phase {
    PHASE_FORWARD,
    PHASE_RECOMPUTE, /* a part of the forward once more, before the backward that needs it */
    PHASE_BACKWARD,
    PHASE_OPTIMIZER,
    PHASE_EVALUATION,
    PHASE_SAMPLING,
    PHASE_COUNT
} Phase;

typedef struct Device Device;
typedef struct DryLog DryLog;
struct json_t;              /* of jansson */
enum { TUNING_NOTE = 256 }; /* bytes: see Device.tuning_read */

/* Seconds and calls per row of the op table, kept when Ctx.times is set. Indexed by OpId. */
typedef struct OpTimes OpTimes;

typedef struct Ctx {
    const Device *device;
    Target target;
    void *stream;    /* one of the device's queues; NULL: its own choice, or the CPU            */
    void *workspace; /* scratch shared by all ops, workspace_bytes long; 64-byte aligned        */
    size_t workspace_bytes;
    StepState *state; /* in device memory                                                        */
    Error *error;     /* the first failure                                                       */
    Phase phase;      /* where the model is; for records and messages only                       */
    int layer;        /* -1 outside the blocks                                                   */
    DryLog *dry;      /* where the dry device writes                                             */
    OpTimes *times;   /* NULL: not timed                                                         */
} Ctx;

/* Dropout of one place in the model. p = 0 means none; the bits come from (state->seed, purpose, layer, state->step,
 * state->micro) and the element's index. A kept element is multiplied by 1 / (1 - p). */
typedef struct Dropout {
    float p;
    RandomPurpose purpose;
    int layer;
} Dropout;

/* An element is kept when its 32 random bits are at or above this number: p in exact integer arithmetic. */
static inline uint32_t dropout_threshold(Dropout d)
{
    return (uint32_t)((double)d.p * 4294967296.0);
}

/* qkv rows are [NH*hd | NKV*hd | NKV*hd]; query head h reads key/value head h / (NH / NKV). */
typedef struct AttentionShape {
    int64_t B, T, NH, NKV, hd;
} AttentionShape;

/* Which elements of the parameter range are decayed: [begin, end) of the flat range; the rest is not. */
typedef struct DecayRange {
    int64_t begin, end;
} DecayRange;

typedef struct AdamW {
    double beta1, beta2; /* double: the float nearest 0.999 would put 1 - beta2 off by 1.3e-5 */
    float eps, weight_decay;
    const DecayRange *decay; /* ascending, disjoint; in memory that the device can read */
    int n_decay;
} AdamW;

/* ---- The operations ------------------------------------------------------------------------------------------------
 * Outputs come first. `+=` marks outputs that are accumulated into; all others are overwritten.
 *
 * Types: a policy gives each role one of F32, BF16, F16 (model/precision.h). x, x_in, x_out, dx, dskip of the norms and
 * the embedding are the residual stream ("resid"); weights are "param", their gradients "grad", all else that is [N, ..]
 * is "act". stats, lse, losses and logits are always F32. Arithmetic is FP32 everywhere: what is read is widened, what is
 * stored is rounded to nearest even, once. An op that uses its own output again (the norm of a sum) uses what it stored. */

/* clang-format off */
#define TALLY_OPS(X)                                                    \
    X(copy_in) X(copy_out) X(zero) X(cast) X(micro_next)                \
    X(embedding_forward) X(embedding_backward)                          \
    X(norm_forward) X(residual_norm_forward) X(residual_norm_backward)  \
    X(linear_forward) X(linear_backward) X(linear_gelu_backward)        \
    X(gelu_forward) X(gelu_backward)                                    \
    X(attention_forward) X(attention_backward) X(attention_cached)      \
    X(head_loss_forward) X(head_loss_backward) X(head_logits)           \
    X(grad_norm) X(adamw)
/* clang-format on */

typedef enum OpId {
#define X(name) OP_##name,
    TALLY_OPS(X)
#undef X
        OP_COUNT
} OpId;

struct OpTimes {
    double seconds[OP_COUNT];
    int64_t calls[OP_COUNT];
};

/* The op's name, "attention_forward". */
const char *op_name(OpId op);

/* Between host and device memory, in order with the ops of the context; any dtype and shape. */
void copy_in(Ctx *c, Tensor to, const void *from);
void copy_out(Ctx *c, void *to, Tensor from);

/* t = 0, any dtype and shape. */
void zero(Ctx *c, Tensor t);

/* to = from, rounded to nearest even where to's type is narrower. Same shape, any two float types. */
void cast(Ctx *c, Tensor to, Tensor from);

/* state->micro += 1: the next micro-batch of the same step, without a word from the host. */
void micro_next(Ctx *c);

/* x[b*T+t, :] = dropout(wte[tokens[b,t], :] + wpe[first + t, :]).
 * x [B*T, C], tokens [B, T] I32 with ids in [0, Vp), wte [Vp, C], wpe [P, C], first + T <= P. */
void embedding_forward(Ctx *c, Tensor x, Tensor tokens, Tensor wte, Tensor wpe, int64_t first, Dropout drop);

/* dwte += scattered dx, dwpe += dx summed over the batch; dx [B*T, C] is the gradient of x. dwte, dwpe may be absent. */
void embedding_backward(Ctx *c, Tensor dwte, Tensor dwpe, Tensor dx, Tensor tokens, Dropout drop);

/* y = (x - mean) * rstd * w + b, with rstd = 1 / sqrt(var + 1e-5) and the biased variance, in two passes.
 * y, x [N, C]; stats [N, 2] = (mean, rstd); w [C]; b [C] or absent. */
void norm_forward(Ctx *c, Tensor y, Tensor stats, Tensor x, Tensor w, Tensor b);

/* x_out = x_in + dropout(branch), then y, stats = norm(x_out): one pass. x_out may be x_in. All [N, C]. */
void residual_norm_forward(Ctx *c, Tensor x_out, Tensor y, Tensor stats, Tensor x_in, Tensor branch, Tensor w, Tensor b,
                           Dropout drop);

/* The backward of either: dx = dskip + (gradient of norm at x given dy); dbranch = dropout'(dx); dw += ..., db += ...
 * dskip is the gradient that reaches x by the residual path (absent: 0) and may be dx. dbranch is absent when the branch's
 * gradient is dx itself (no dropout) or when there is no branch. dw, db may be absent (frozen). dx, dy, x [N, C]; stats [N, 2].
 */
void residual_norm_backward(Ctx *c, Tensor dx, Tensor dbranch, Tensor dw, Tensor db, Tensor dskip, Tensor dy, Tensor x,
                            Tensor stats, Tensor w, Dropout drop);

/* y = x w + b. y [N, O], x [N, I], w [I, O] (HF's Conv1D layout), b [O] or absent. */
void linear_forward(Ctx *c, Tensor y, Tensor x, Tensor w, Tensor b);

/* dx = dy w'; dw += x' dy; db += column sums of dy. dx, dw, db may each be absent. */
void linear_backward(Ctx *c, Tensor dx, Tensor dw, Tensor db, Tensor dy, Tensor x, Tensor w);

/* The same for x = gelu(pre), down to the gradient of pre: dpre = (dy w') * gelu'(pre), rounded once where the device does both
 * in one pass, else once more between them. dpre, pre [N, I]. dw, db may each be absent. */
void linear_gelu_backward(Ctx *c, Tensor dpre, Tensor dw, Tensor db, Tensor dy, Tensor x, Tensor w, Tensor pre);

/* y = x / (1 + exp(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3): the tanh form of GELU. Any shape. */
void gelu_forward(Ctx *c, Tensor y, Tensor x);

/* dx = dy * gelu'(x). dx may be dy. */
void gelu_backward(Ctx *c, Tensor dx, Tensor dy, Tensor x);

/* att = dropout(softmax(causal(q k' / sqrt(hd)))) v, by blocks with an online softmax: T x T is never stored.
 * att [B*T, NH*hd]; lse [B, NH, T] = log-sum-exp of the scaled scores; qkv [B*T, (NH + 2 NKV) hd]. */
void attention_forward(Ctx *c, AttentionShape s, Tensor att, Tensor lse, Tensor qkv, Dropout drop);

/* dqkv from datt [B*T, NH*hd]; the probabilities are made again from qkv and lse. */
void attention_backward(Ctx *c, AttentionShape s, Tensor dqkv, Tensor datt, Tensor att, Tensor lse, Tensor qkv, Dropout drop);

/* Attention of T new positions first .. first+T-1 over a cache: appends their k and v to the cache, then attends to all
 * positions up to each one's own. cache [B, P, 2*NKV*hd], qkv and att as above, first + T <= P. */
void attention_cached(Ctx *c, AttentionShape s, Tensor att, Tensor cache, Tensor qkv, int64_t first);

/* losses[n] = logsumexp(x[n] wte') - (x[n] wte')[targets[n]], 0 where targets[n] is -1; state->loss_sum += their sum.
 * Works in chunks of R rows through logits [R, Vp]; only the first V columns count. losses [N], x [N, C], wte [Vp, C],
 * targets [N] I32. */
void head_loss_forward(Ctx *c, Tensor losses, Tensor x, Tensor wte, Tensor targets, Tensor logits, int64_t V);

/* The same, and in the same chunks the gradients: with dlogits = (softmax - onehot) * inverse_count * scaler.scale for
 * counted rows, dx = dlogits wte, dwte += dlogits' x. dwte may be absent. */
void head_loss_backward(Ctx *c, Tensor dx, Tensor dwte, Tensor losses, Tensor x, Tensor wte, Tensor targets, Tensor logits,
                        int64_t V);

/* logits [N, Vp] = x wte'. Padded columns hold whatever the padded rows of wte give: readers use the first V. */
void head_logits(Ctx *c, Tensor logits, Tensor x, Tensor wte);

/* Of the whole gradient range [n]: state->grad_norm (summed in double), nonfinite, clip_coef, grad_factor; and unless nonfinite,
 * adam_t + 1 with its bias corrections. Then state->scaler is the next step's. clip 0 means no clipping. */
void grad_norm(Ctx *c, Tensor grads, float clip, const AdamW *adam);

/* One AdamW update of the range w [n] with g, m, v [n], unless state->nonfinite:
 *   g' = g * grad_factor; m = b1 m + (1-b1) g'; v = b2 v + (1-b2) g'^2;
 *   w = w (1 - lr wd) where decayed; w = w - lr (m / bias_1) / (sqrt(v / bias_2) + eps).
 * With master [n] F32 the update is made there and w becomes its rounding. Without (absent), a 16-bit w is widened, updated and
 * rounded stochastically; so are 16-bit m and v: up with the probability of the part that rounding down would lose, with random
 * bits of (seed, RANDOM_ROUNDING, 0 for w, 1 for m, 2 for v, step) and the element's index. */
void adamw(Ctx *c, Tensor w, Tensor master, Tensor g, Tensor m, Tensor v, const AdamW *adam);

/* ---- A device ------------------------------------------------------------------------------------------------------ */

#define X(name) typedef __typeof__(name) name##_function;
TALLY_OPS(X)
#undef X

typedef enum QueueKind { QUEUE_COMPUTE, QUEUE_COPY, QUEUE_COUNT } QueueKind;

struct Device {
    const char *name;
    /* Zeroed memory of this device, 64-byte aligned, for `what`; NULL after recording an error. */
    void *(*memory_take)(size_t bytes, const char *what, Error *e);
    void (*memory_give)(void *p, size_t bytes);
    /* Of a device with memory of its own: what of it is free now, for this program and all others. NULL: the host's memory. */
    size_t (*memory_free)(void);
    /* Waits until all ops so far are done. */
    void (*synchronize)(Ctx *c);
    /* Zeroed host memory that the device copies from and to by itself; NULL after recording an error. */
    void *(*host_take)(size_t bytes, const char *what, Error *e);
    void (*host_give)(void *p);

    /* Of a device that works behind the host's back; NULL where every op has ended when its call returns.
     *
     * Its ops wait in queues (Ctx.stream): one for what computes, one for copies beside it. `follow`: what `after` is given from
     * now on waits for what `before` has been given so far; the host waits for neither. `mark` and `wait`: the host waits until
     * what c had been given at the last mark of that number, 0 or 1, is done. */
    void *(*queue)(QueueKind kind);
    void (*follow)(Ctx *after, Ctx *before);
    void (*mark)(Ctx *c, int number);
    void (*wait)(Ctx *c, int number);
    /* What c is given between record_begin and record_end is written down instead of done; `replay` does all of it, again and
     * again, in one call: with the same memory, and with the StepState and the data that are in it then. An op must have run
     * before it is recorded: libraries are loaded and scratch is taken the first time. record_end returns NULL after an error. */
    void (*record_begin)(Ctx *c);
    void *(*record_end)(Ctx *c);
    void (*replay)(Ctx *c, void *recording);
    void (*record_free)(void *recording);

    /* Of a device that has several algorithms for an operation, which round differently; the others have NULL in all three. The
     * choice is part of a run. tune(true): from now on an operation of a new kind tries several, times them and goes on with the
     * fastest; what it accumulates into is worthless then. tuning_write: all such choices as a new JSON object; NULL when there
     * are none. tuning_read takes them over from such an object instead; when they are of another card or library it leaves them
     * and says so in `note`, else "". False after recording which field is wrong. */
    void (*tune)(bool on);
    struct json_t *(*tuning_write)(const Target *t);
    bool (*tuning_read)(const struct json_t *file, const Target *t, char note[TUNING_NOTE], Error *e);

    /* The operations: functions with the signatures of those above, whose arguments have been checked. */
#define X(name) name##_function *name;
    TALLY_OPS(X)
#undef X
};

/* The device that computes on this machine with the best build of kernels/cpu for its processor; fills *target, with
 * `threads` threads (0: one per core that this process may use). TALLY_ISA=plain|v3|v4 in the environment asks for a
 * lower one. Returns NULL after recording an error (a higher one than the processor has). */
const Device *cpu_device(Target *target, int threads, Error *e);

/* GPU number `index` as CUDA counts them; fills in *target what is the GPU's, and leaves .threads, those of the host, as they
 * are. Returns NULL after recording why there is none: no driver, no GPU, one that this build has no code for, a build without
 * CUDA. A process uses one GPU. */
const Device *cuda_device(Target *target, int index, Error *e);

/* The CUDA that this build is made with, 13000 for 13.0; 0: none. */
int cuda_version(void);

/* The device of that name, "cpu", "cuda" (GPU 0), "cuda:N", or "auto": GPU 0, or the CPU and target->note says why; with
 * `threads` threads of the host (0: one per core); fills *target. Returns NULL after recording an error. */
const Device *device_open(const char *name, int threads, Target *target, Error *e);

/* The device that only records: it has ops, and neither memory nor anything to wait for. The target is whatever the plan is for.
 */
const Device *dry_device(void);

/* ---- Scratch --------------------------------------------------------------------------------------------------------
 * Bytes of ctx->workspace that an op needs on a target (kernels/workspace.c). Called by the dry device for the plan and by the
 * launcher, which refuses a workspace that is smaller. */
typedef struct GemmTypes {
    DType act, param, grad; /* of the activations, the weight, and the weight's gradient */
} GemmTypes;
size_t embedding_backward_workspace(int64_t N, int64_t Vp, const Target *t); /* Vp 0: without dwte */
size_t norm_workspace(int64_t C, const Target *t);                           /* forward and backward */
size_t linear_workspace(int64_t N, int64_t I, int64_t O, GemmTypes types,
                        const Target *t);                            /* the largest of forward, dx and dw */
size_t linear_bias_workspace(int64_t N, int64_t O, const Target *t); /* partial column sums               */
size_t attention_workspace(AttentionShape s, const Target *t);
size_t attention_backward_workspace(AttentionShape s, const Target *t);
size_t attention_cached_workspace(AttentionShape s, const Target *t);
/* The largest of logits, dx and dwte of N rows in chunks of R, the shorter last chunk included. */
size_t head_workspace(int64_t N, int64_t R, int64_t C, int64_t Vp, GemmTypes types, const Target *t);
size_t grad_norm_workspace(int64_t n);

/* Elements that a partial sum of grad_norm covers: fixed, so that the sum depends neither on threads nor on multiprocessors. */
enum { GRAD_NORM_PIECE = 65536 };

/* For a launcher: is the workspace at least `need` bytes? Records an error when the plan gave less. */
bool workspace_check(Ctx *c, OpId op, size_t need);

#endif
