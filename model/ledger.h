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

/* Prints the plan: bytes and share by category with bars, the peak and its moment, gap and alignment, FLOPs. per_layer adds a
 * table of layers. */
void ledger_print(FILE *out, const Model *m, bool per_layer);

/* The plan as JSON: {"categories": {...}, "persistent_bytes", "step_bytes", "total_bytes", "peak": {"bytes", "op", "phase",
 * "layer"}, "packing_bytes", "alignment_bytes", "parameters", "flops": {...}, "tensors": [...]}. New reference; NULL when out of
 * memory. */
json_t *ledger_json(const Model *m);

/* Does the plan fit, with `beside` bytes more that grow with the batch (the loader's), into `cap` bytes (0: what the target has,
 * and is free)? If not, a usage error that says by how much, which category is largest, and the largest batch_size that fits. */
bool ledger_check(const Model *m, size_t beside, double cap, Error *e);

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

/* Model FLOPs of training on one token: 6 N_matmul + 6 L C T, with N_matmul the elements of all matrices but the position table
 * (the token table once, as the head), and causal attention counted half. No recomputation. Forward only: a third. */
double model_flops_per_token(const Model *m);

#endif
