/* The device that computes nothing. Running the training code on it writes down, for every op: its FLOPs, the bytes that it
 * must at least read and write (each operand once), the scratch it needs on the target, and which memory it touches. From
 * this log the planner knows what every tensor's life is and what a step costs (model/plan.c). */
#ifndef TALLY_KERNELS_DRY_H
#define TALLY_KERNELS_DRY_H

#include "kernels/device.h"

enum { DRY_MAX_OPERANDS = 12 };

typedef struct DryOperand {
    const void *address; /* a made-up address: nothing is ever read from it */
    size_t bytes;
    bool written; /* else only read; an accumulated output is both and counts as both */
} DryOperand;

typedef struct DryOp {
    OpId op;
    Phase phase;
    int layer;           /* -1 outside the blocks                                                               */
    int64_t gemm_flops;  /* multiply-adds of matrix products, 2 each; causal attention counts only pairs j <= i  */
    int64_t other_flops; /* everything else, with an exponential or a square root counted as one                */
    int64_t bytes_read;  /* at least                                                                            */
    int64_t bytes_written;
    size_t workspace;
    int n_operands;
    DryOperand operand[DRY_MAX_OPERANDS];
} DryOp;

struct DryLog {
    DryOp *op;
    int64_t count;
    size_t capacity;
};

void dry_log_free(DryLog *log);

#endif
