/* What a run says: a line per logged step for a person, and log.jsonl in the out-dir for programs: first an object with the
 * configuration, then one per step. */
#ifndef TALLY_TRAIN_LOG_H
#define TALLY_TRAIN_LOG_H

#include "base/error.h"
#include "base/file.h"
#include "train/gpu_watch.h"
#include "train/grad_stats.h"

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

typedef struct LogStep {
    int64_t step, steps;     /* done, and in all                                               */
    double loss, val_loss;   /* nats per token                                                */
    double floor, val_floor; /* below which these cannot be in the mean; NaN: not known       */
    double learning_rate, grad_norm;
    double seconds;      /* of this step, without evaluation and the like                   */
    double wait_seconds; /* of which waiting for data                                       */
    double tokens_per_s;
    double mfu;                  /* model FLOPs over the measured GEMM peak; NaN: not known         */
    double loss_scale;           /* of this step, where it is dynamic; 0: it is not, and not worth a word */
    bool evaluated;              /* there is a val_loss                                             */
    bool skipped;                /* for a non-finite gradient                                       */
    const GpuWatch *gpu;         /* after this step; NULL: not looked at   */
    const GradStats *grad_stats; /* of this step; NULL: not counted                        */
} LogStep;

typedef struct Log {
    FILE *file; /* log.jsonl */
    char path[PATH_SIZE];
    int64_t interval; /* a line for a person every so many steps */
    bool quiet;
    double started;     /* clock at the first step of this process */
    int64_t first_step; /* and which one that was                  */
} Log;

/* Opens out_dir/log.jsonl. A new run writes `configuration` first; a resumed one keeps the lines of steps up to `resumed_at` (the
 * rest came after the checkpoint and will be done again) and appends. */
bool log_open(Log *l, const char *out_dir, const json_t *configuration, int64_t resumed_at, int64_t interval, bool quiet,
              Error *e);

/* Writes the step to the file, and to the terminal when it is due. False when the disk is full or the like. */
bool log_step(Log *l, const LogStep *s, Error *e);

void log_close(Log *l);

#endif
