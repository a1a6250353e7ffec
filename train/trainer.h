/* All that a training run holds, and its parts: setting up (setup.c), the step and the loop (train.c), evaluation and samples
 * (observe.c). */
#ifndef TALLY_TRAIN_TRAINER_H
#define TALLY_TRAIN_TRAINER_H

#include "data/evaluation.h"
#include "data/loader.h"
#include "data/prepare.h"
#include "data/tokenizer.h"
#include "model/fit.h"
#include "train/checkpoint.h"
#include "train/gpu_watch.h"
#include "train/grad_stats.h"
#include "train/log.h"
#include "train/options.h"
#include "train/schedule.h"

/* A step that has been given to the device and whose results have not been read yet. */
typedef struct StepFlight {
    StepState *state; /* the host's copy: what the step begins with, then its results. The device copies both by itself */
    StepBatch batch;
    int64_t loader_position; /* after it                  */
    double begun, waited;    /* clock; seconds for data   */
} StepFlight;

/* What is recorded of a step, on a device that can: the same ops on either of the two places of a micro-batch, and the update. */
enum { RECORDED_MICRO, RECORDED_UPDATE = 2, RECORDINGS };

typedef struct Trainer {
    TrainOptions options;
    char checkpoint[PATH_SIZE]; /* the one that the run resumes from, or "" */
    json_t *resumed;            /* its trainer.json, or NULL                */
    json_t *settings;           /* the options, as they are stored          */
    int lock;                   /* of out_dir (dir_lock); 0: not taken      */

    TokenStream tokens, validation;
    DataFacts facts;                   /* of meta.json; zeros without one              */
    DocumentWindows documents[SPLITS]; /* with --whole-documents                       */
    double floor[SPLITS];              /* nats per target that no model goes below; NaN: not known */
    bool validates;
    EvaluationData evaluation;
    int32_t *evaluation_batch; /* [2, B, T]: tokens and targets             */
    Loader *loader;
    StepBatch batch;
    Tokenizer *tokenizer; /* NULL: the data has none */
    char meta[PATH_SIZE]; /* where its meta.json is  */
    char *meta_text;      /* what was in it when the run began, whatever becomes of the folder; NULL: there was none */
    int32_t *prompt;      /* [prompt_length]: what samples begin with, when there are to be any */
    int64_t prompt_length;

    const Device *device;
    Model model;
    Room room;                   /* that the run has to fit into                     */
    Target card;                 /* the GPU that a plan is for; kind DEVICE_CPU: the run's own device */
    Setting fitted;              /* what --fit has chosen; batch_size 0: not asked   */
    StepState step;              /* the host's copy, after the latest step that has been read: with the next one's scaler */
    int64_t given;               /* steps given to the device: those that have been read, and up to two more, */
    StepFlight flight[2];        /* step i in flight[i % 2]; only a device that works behind the host's back has two at a time */
    Ctx copier;                  /* its queue for the next micro-batch */
    int place;                   /* which of its two places the present micro-batch is in */
    void *recording[RECORDINGS]; /* NULL: not recorded */
    bool looked;                 /* at the machine's memory */
    bool warm;                   /* a step has been run: libraries are loaded, and passes can be recorded */
    double read_at;              /* clock when the latest step's results were read */
    Schedule schedule;
    TrainState state;
    float step_scale;     /* the loss scale that the latest step had */
    GradStats grad_stats; /* with --grad-stats */
    int64_t saved_iter;   /* the iteration of the latest checkpoint; -1: there is none */
    Log log;
    GpuWatch gpu;     /* on a GPU */
    double gemm_peak; /* FLOP/s, measured */
} Trainer;

/* The first parts of trainer_open, which `tally plan` and `tally bench` use as well. The options in *t are the defaults;
 * trainer_close must follow in any case. trainer_settings reads the command line (`lock`: train_options_parse). trainer_plan
 * plans the model that the settings describe: with --fit it changes them first, to what fits into t->room, which the caller may
 * have filled in, like t->card; else it is this machine's memory, or its GPU's. A GPU that nobody asked for by name and that the
 * plan does not fit leaves it to the CPU. */
bool trainer_settings(Trainer *t, int *lock, int argc, char **argv, Error *e);
bool trainer_plan(Trainer *t, Error *e);

/* Does the run fit into t->room? See fit_check. */
bool trainer_fits(const Trainer *t, Error *e);

/* Says what --fit has chosen, if asked, and prints the plan. */
void trainer_print_plan(FILE *out, const Trainer *t);

/* After trainer_plan: opens the tokens of --data, reads where a resumed run stands, sets the loss scale, and fills in the
 * settings that depend on others. Without --data there are no tokens: who wants to train puts random ones into t->batch, with
 * `overfit` set. */
bool trainer_data(Trainer *t, Error *e);

/* After that: takes the memory and fills it with the weights. What comes next is the first step. */
bool trainer_begin(Trainer *t, Error *e);

/* Measures t->gemm_peak. trainer_mfu: model FLOPs a second over it, at that speed; at most 1, since a faster step corrects it. */
bool trainer_measure_peak(Trainer *t, Error *e);
double trainer_mfu(Trainer *t, double tokens_per_s);

/* All of these, from the command line on, and the log. Prints the plan and the header. */
bool trainer_open(Trainer *t, int argc, char **argv, Error *e);
void trainer_close(Trainer *t);

/* One optimizer step on the next data (train.c): the gradient of the mean loss over all counted targets of its micro-batches, the
 * update, and the counters moved on. What it was is in t->step and t->batch. */
bool trainer_step(Trainer *t, Error *e);

/* Mean loss over the validation split, as --eval-iters says, in *loss. */
bool trainer_evaluate(Trainer *t, double *loss, Error *e);

/* Prints a sample. */
bool trainer_sample(Trainer *t, Error *e);

/* Copies what the host decides of a step to the device. *s must not change before the device has it: be memory of its host_take,
 * or of no interest to it later. */
void step_state_send(Trainer *t, const StepState *s);

#endif
