/* The memory ledger: what was planned, printed before anything is taken, and what the process then really holds, with every
 * difference explained. */
#ifndef TALLY_MODEL_LEDGER_H
#define TALLY_MODEL_LEDGER_H

#include "model/model.h"

#include <jansson.h>
#include <stdio.h>

/* "1.86 GiB", "474.8 MiB", "312 B": into text, which is returned. */
typedef char BytesText[32];
const char *bytes_text(BytesText text, double bytes);

/* Prints the plan: bytes and share by category with bars, static bytes per parameter, the peak and its moment, gap and alignment;
 * FLOPs and bytes moved per token, by phase, of a step of `accumulation` micro-batches. `verbose` adds each phase's ops and a
 * table of layers. */
void ledger_print(FILE *out, const Model *m, int64_t accumulation, bool verbose);

/* The plan as JSON. A new reference; NULL when out of memory.
 *
 *   "categories"       {"weights", "packed_weights", ... (category_name)}: bytes; those of the step arena at its peak
 *   "persistent_bytes", "step_bytes", "total_bytes", "alignment_bytes", "packing_bytes"
 *                      total = categories + alignment + packing
 *   "peak"             {"bytes", "op", "phase", "layer"}: of the step arena
 *   "parameters", "static_bytes_per_parameter", "model_flops_per_token", "executed_flops_per_token"
 *   "run"              {"batch_size", "block_size", "gradient_accumulation_steps", "precision": {...}, "recompute",
 *                      "recompute_every"}
 *   "costs"            {PHASE: {"gemm_flops", "other_flops", "bytes_read", "bytes_written": of one micro-batch or update;
 *                      "flops_per_token", "bytes_per_token", "intensity" in FLOPs per byte; "ops": {OP: the same}}}
 *   "tensors"          [{"name", "layer", "category", "dtype", "shape", "bytes", "arena", "offset", "lives": {PASS: [first op,
 *                      last op]}}] */
json_t *ledger_json(const Model *m, int64_t accumulation);

/* Bytes of weights, masters, gradients and moments per parameter; alignment is not part of it. */
double ledger_static_bytes(const Model *m);

/* The resident memory of this process, read from /proc/self/smaps: where each byte belongs. */
typedef struct Resident {
    size_t total;       /* all that is resident                                                   */
    size_t persistent;  /* of the persistent arena                                                */
    size_t step;        /* of the step arena; less than planned while parts have not been touched  */
    size_t files;       /* program, libraries and other mapped files                              */
    size_t tokens;      /* mapped token files                                                     */
    size_t code;        /* machine code generated at run time by oneDNN                           */
    size_t stacks;      /* of all threads                                                         */
    size_t heap;        /* malloc: libraries' and our own small data                              */
    size_t unexplained; /* the rest                                                               */
} Resident;

/* Fills *r. False where /proc is not to be had. */
bool resident_read(Resident *r, const Model *m);

/* Prints the plan beside the resident size, line by line. */
void resident_print(FILE *out, const Resident *r, const Model *m);

/* The memory of a GPU, in bytes, to whom it belongs: total = arenas + libraries + context + others + free + remainder. */
typedef struct GpuLedger {
    double total, persistent, step; /* the arenas as planned                                                    */
    double libraries;               /* cuBLASLt's, when it was loaded                                           */
    double context;                 /* the runtime's: context, kernels, graphs                                  */
    double others;                  /* other programs'; NaN: unknown, and part of the context                   */
    double free;
    double remainder; /* what nobody owns up to: rounding, what the driver keeps, and all growth since the first look */
} GpuLedger;

/* From what is free now, what the driver says that this process (own) and others hold, and what the libraries took. `context` is
 * that of an earlier look, or NaN: then it is what this process holds beyond arenas and libraries. Where the driver says nothing
 * (own is NaN), the context is what was not free when the device was opened: other programs' memory too. */
GpuLedger gpu_ledger(const Model *m, double free_bytes, double own, double others, double libraries, double context);

/* Prints it, line by line, and its remainder. */
void gpu_ledger_print(FILE *out, const GpuLedger *l);

/* Model FLOPs of training on one token: 6 N_matmul + 6 L C T, with N_matmul the elements of all matrices but the position table
 * (the token table once, as the head), and causal attention counted half. No recomputation. Forward only: a third. */
double model_flops_per_token(const Model *m);

/* FLOPs that the ops of a phase execute for one token of training, matrix products and all else, by the dry device's count;
 * PHASE_COUNT: forward, recomputation, backward and update together. */
double executed_flops_per_token(const Model *m, Phase phase, int64_t accumulation);

#endif
