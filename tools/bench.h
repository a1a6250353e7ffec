/* A training run whose steps are timed: what `tally bench` (bench.c) and `tally bench amp` (bench_amp.c) have in common. The step
 * is the one that `tally train` takes, with the same data, so it has the same loss. */
#ifndef TALLY_TOOLS_BENCH_H
#define TALLY_TOOLS_BENCH_H

#include "train/trainer.h"

typedef struct Bench {
    Trainer trainer;
    int32_t *ids; /* [accumulate * B * T + 1]: without --data random tokens, the same for every step */
} Bench;

/* Sets the defaults, then reads the command line. False after recording an error. bench_close must follow in any case. */
bool bench_settings(Bench *b, int argc, char **argv, Error *e);

/* Plans the run that the settings describe and opens its data, for `steps` steps. Takes no memory of the device yet. */
bool bench_plan(Bench *b, int64_t steps, Error *e);

/* Takes a step; *seconds of it. With `times` its ops are timed one by one and added there. */
bool bench_step(Bench *b, OpTimes *times, double *seconds, Error *e);

/* The model's name, or the folder it comes from. */
const char *bench_model(const Bench *b);

/* Sorts n numbers, ascending; returns the middle one. */
double bench_median(double *numbers, int64_t n);

void bench_close(Bench *b);

#endif
