/* The memory plan: every tensor of a run with its category, size, place and life, known before the first step.
 *
 * Tensors are declared while the model is built. Each gets a made-up address; the training code then runs on the dry device,
 * and from the addresses that its ops touch the plan learns each tensor's first and last use. Tensors of the step arena
 * whose lives do not meet share memory. The plan is what is allocated: nothing else is, and nothing is during training.
 *
 *   persistent arena   weights, gradients, moments: one after the other, alive always
 *   step arena         activations, their gradients, logits, workspace, data: placed by life
 */
#ifndef TALLY_MODEL_PLAN_H
#define TALLY_MODEL_PLAN_H

#include "kernels/dry/dry.h"

typedef enum Category {
    CATEGORY_WEIGHTS,
    CATEGORY_PACKED_WEIGHTS,
    CATEGORY_MASTER_WEIGHTS,
    CATEGORY_GRADIENTS,
    CATEGORY_ADAM_M,
    CATEGORY_ADAM_V,
    CATEGORY_ACTIVATIONS,
    CATEGORY_ACTIVATION_GRADIENTS,
    CATEGORY_LOGITS,
    CATEGORY_WORKSPACE,
    CATEGORY_COMMUNICATION,
    CATEGORY_DATA,
    CATEGORY_COUNT
} Category;

/* Every tensor of the step arena starts at a multiple of 64 bytes; every persistent one at a multiple of 32 elements, which is as
 * much or more: so a weight has the same element offset in the ranges of weights, masters, gradients and moments, whatever their
 * types. */
enum { PLAN_ALIGNMENT = 64, PLAN_ALIGNMENT_ELEMENTS = 32 };

/* Training, evaluation and sampling never run at once and leave nothing behind in the step arena, so a tensor has one life in
 * each: the indices of the first and last op that touch it, -1 when none does. */
typedef enum Pass { PASS_TRAINING, PASS_EVALUATION, PASS_SAMPLING, PASS_COUNT } Pass;

typedef struct Life {
    int64_t first, last;
} Life;

typedef struct PlanTensor {
    char name[64];
    int layer; /* -1 outside the blocks */
    Category category;
    DType dtype;
    int ndim;
    int64_t shape[TENSOR_MAX_DIMS];
    size_t bytes;  /* of its elements                                                              */
    size_t offset; /* in its arena */
    bool held;     /* alive during the whole of every pass that touches it */
    Life life[PASS_COUNT];
    Tensor *slot; /* where the model keeps the tensor                                             */
} PlanTensor;

typedef struct Plan {
    PlanTensor *tensor;
    int count;
    size_t capacity;
    size_t made_up_end;      /* next free made-up address of the step arena */
    size_t persistent_bytes; /* size of the persistent arena                */
    size_t step_bytes;       /* size of the step arena                      */
    DryLog log;              /* the ops of one step of everything           */

    /* Derived by plan_pack. */
    size_t category_bytes[CATEGORY_COUNT]; /* persistent: all tensors; step: those alive at the peak */
    size_t alignment_bytes;                /* persistent arena: rounding up to PLAN_ALIGNMENT        */
    size_t packing_bytes;                  /* step arena: its size less what is alive at the peak    */
    size_t peak_live;                      /* bytes alive in the step arena at the peak              */
    int64_t peak_op;                       /* index into log.op                                      */
} Plan;

/* "weights", "adam_m", ...: the names in tables and JSON. */
const char *category_name(Category category);
bool category_is_persistent(Category category);

/* Declares a tensor and puts it, at a made-up address, into *slot, which must live as long as the plan.
 * Fails when the product of the shape does not fit or memory for the list is short. */
bool plan_tensor(Plan *p, Tensor *slot, Category category, const char *name, int layer, DType dtype, int ndim,
                 const int64_t *shape, Error *e);

/* Keeps the tensor in `slot`, declared before, alive during the whole of every pass that touches it: for what outlives one
 * forward and backward, like a key/value cache. */
void plan_hold(Plan *p, const Tensor *slot);

/* From the log: lives, then offsets in the step arena (largest first, each at the lowest place that is free during its life),
 * then the peak. Declares the workspace, as large as the neediest op asks, in *workspace. Call once, after the dry run. */
bool plan_pack(Plan *p, Tensor *workspace, Error *e);

/* Points every slot into the two arenas. */
void plan_bind(Plan *p, void *persistent, void *step);

/* Is every slot what was planned: of that type and size, at its place in the two arenas? With the arenas' own sizes that makes
 * what is allocated equal to the plan, to the byte, in every category. An error names the first tensor that is not. */
bool plan_verify(const Plan *p, const void *persistent, const void *step, Error *e);

/* persistent_bytes + step_bytes: exactly what is taken from the device. */
size_t plan_total_bytes(const Plan *p);

/* Sums over the log, of one phase (PHASE_COUNT: all of them); and of one op in it (OP_COUNT: all of them). The phases of training
 * are those of one micro-batch, but PHASE_OPTIMIZER, which is one update. */
typedef struct PlanCost {
    int64_t gemm_flops, other_flops, bytes_read, bytes_written;
} PlanCost;
PlanCost plan_cost(const Plan *p, Phase phase);
PlanCost plan_op_cost(const Plan *p, Phase phase, OpId op);

/* What a device does in a second at most. */
typedef struct PlanRates {
    double gemm_flops, other_flops, bytes;
} PlanRates;

/* The least time that a phase can take, in seconds (a roofline; Williams et al. 2009): op by op the matrix products, the other
 * FLOPs or the bytes, whichever takes longest. */
double plan_seconds(const Plan *p, Phase phase, const PlanRates *rates);

/* "forward", "backward", ... */
const char *phase_name(Phase phase);

void plan_free(Plan *p);

#endif
