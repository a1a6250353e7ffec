/* All that a training run holds, and its parts: setting up (setup.c), the step and the loop (train.c), evaluation and samples
 * (observe.c). */
#ifndef TALLY_TRAIN_TRAINER_H
#define TALLY_TRAIN_TRAINER_H

#include "data/evaluation.h"
#include "data/loader.h"
#include "data/tokenizer.h"
#include "train/checkpoint.h"
#include "train/log.h"
#include "train/options.h"
#include "train/scaler.h"
#include "train/schedule.h"

typedef struct Trainer {
    TrainOptions options;
    char checkpoint[PATH_SIZE]; /* the one that the run resumes from, or "" */
    json_t *resumed;            /* its trainer.json, or NULL                */
    json_t *settings;           /* the options, as they are stored          */

    TokenStream tokens, validation;
    bool validates;
    EvaluationData evaluation;
    int32_t *evaluation_batch; /* [2, B, T]: tokens and targets             */
    Loader *loader;
    StepBatch batch;
    Tokenizer *tokenizer; /* NULL: the data has none */
    char meta[PATH_SIZE]; /* its meta.json, or ""    */
    int32_t *prompt;      /* [prompt_length]: what samples begin with, when there are to be any */
    int64_t prompt_length;

    const Device *device;
    Model model;
    StepState step; /* the host's copy */
    Schedule schedule;
    TrainState state;
    Scaler scaler;
    int64_t saved_iter; /* the iteration of the latest checkpoint; -1: there is none */
    Log log;
    double gemm_peak; /* FLOP/s, measured */
} Trainer;

/* The first part of trainer_open, and all that `tally plan` needs: the settings, and the model that they describe, planned. The
 * options in *t are the defaults. trainer_close must follow in any case. */
bool trainer_plan(Trainer *t, int argc, char **argv, Error *e);

/* Does the run fit: the plan, and beside it the loader's two optimizer steps and a batch of the evaluation? See ledger_check. */
bool trainer_fits(const Trainer *t, Error *e);

/* Everything up to the first step, from the command line on: data, model, plan, memory, weights, log. Prints the header. */
bool trainer_open(Trainer *t, int argc, char **argv, Error *e);
void trainer_close(Trainer *t);

/* Mean loss over the validation split, as --eval-iters says, in *loss. */
bool trainer_evaluate(Trainer *t, double *loss, Error *e);

/* Prints a sample. */
bool trainer_sample(Trainer *t, Error *e);

/* Copies the host's step state to the device, or back (which waits for the device). */
void step_state_send(Trainer *t);
void step_state_fetch(Trainer *t);

#endif
