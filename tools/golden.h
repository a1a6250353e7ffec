/* tally golden: trains a golden case (tests/golden/README.md) and compares every number with the expected ones.
 *
 *   golden_case.c      reads case.json, the batches and the initial weights
 *   golden.c           runs the steps, dumps what the case names, the command
 *   golden_compare.c   the figures of merit and the table
 */
#ifndef TALLY_TOOLS_GOLDEN_H
#define TALLY_TOOLS_GOLDEN_H

#include "base/safetensors.h"
#include "model/model.h"
#include "train/schedule.h"

#include <jansson.h>

/* ---- A case (golden_case.c) ----------------------------------------------------------------------------------------- */

typedef struct GoldenCase {
    char dir[PATH_SIZE];
    json_t *root; /* case.json */
    ModelConfig config;
    int64_t steps, micro_batches, B, T;
    int32_t *tokens, *targets; /* [steps, micro_batches, B, T]; a target that does not count is -1 */
    int64_t *counted;          /* [steps] targets that count, over all micro-batches               */
    bool train;                /* there are hyper-parameters: weights are updated after each step   */
    ModelRun run;              /* what the case says of it: batch and hyper-parameters              */
    Schedule schedule;
} GoldenCase;

/* Reads and checks everything but the weights. On error the message names file and field; golden_case_free must follow either
 * way. A kind other than "gpt2" is a usage error. */
bool golden_case_read(GoldenCase *g, const char *dir, Error *e);
void golden_case_free(GoldenCase *g);

/* Is the file among those that case.json lists? */
bool golden_case_lists(const GoldenCase *g, const char *file);

/* The initial weights, from the case's file or made by its hash formula, into an allocated model. */
bool golden_case_weights(const GoldenCase *g, Model *m, Error *e);

/* ---- Tensors on the host --------------------------------------------------------------------------------------------- */

/* What is dumped into one file: entries whose names and F32 data are owned by the set. */
typedef struct GoldenSet {
    SafeEntry *entry;
    size_t count, capacity;
} GoldenSet;

/* Adds a tensor and returns where its values go, or NULL after recording an error. */
float *golden_set_add(GoldenSet *s, const char *name, int ndim, const int64_t *shape, Error *e);
int64_t golden_entry_count(const SafeEntry *t);
void golden_set_free(GoldenSet *s);

/* ---- Comparison (golden_compare.c) ----------------------------------------------------------------------------------- */

/* The table being printed, and the row that is furthest beyond its limit. */
typedef struct GoldenReport {
    double worst;     /* largest error / limit so far */
    char text[320];   /* that row in words            */
    int64_t failures; /* rows beyond their limit      */
} GoldenReport;

/* One row: `where` (a tensor, a step) has the largest error of its kind, held against a limit. A NaN fails. */
void golden_report_row(GoldenReport *r, const char *kind, const char *where, double error, double limit);

/* How tensors are compared. */
typedef struct GoldenRule {
    const char *kind;         /* first column of the table                                            */
    double limit;             /* of the relative L2 error of a tensor                                 */
    double limit_all;         /* of all tensors together; 0: not judged                               */
    const GoldenSet *initial; /* compare changes since these values (same tensors); NULL: the values   */
    bool noise_apart;         /* judge the noise-only columns by their size (gradients)               */
} GoldenRule;

/* Compares the set with the tensors of the file, if the case has that file, and prints the rows. Tensors of the set that the file
 * lacks are not compared. False after recording an error: a broken file, a tensor that the set lacks or of another shape. */
bool golden_compare(GoldenReport *r, const GoldenCase *g, const GoldenSet *set, const char *file, const GoldenRule *rule,
                    Error *e);

/* Compares the L2 norms of whole gradients with "grad_l2" of case.json, if it is there. */
bool golden_compare_norms(GoldenReport *r, const GoldenCase *g, const GoldenSet *grads, double limit, Error *e);

#endif
