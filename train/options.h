/* All settings of a training run in one table (options.c): from it come the command line, the JSON configuration file, what is
 * printed back, what the log and the checkpoint store. A setting has one name everywhere: `--learning-rate` and
 * `--learning_rate` on the command line, "learning_rate" in a file.
 *
 * Precedence, low to high: default, model preset, checkpoint being resumed, --config FILE, command line. */
#ifndef TALLY_TRAIN_OPTIONS_H
#define TALLY_TRAIN_OPTIONS_H

#include "base/file.h"
#include "base/options.h"
#include "model/model.h"

#include <jansson.h>

typedef struct TrainOptions {
    OptionText data, out_dir, config, init_from, device, schedule, model, prompt;
    OptionText precision, param_dtype, master_dtype, grad_dtype, act_dtype, resid_dtype, m_dtype, v_dtype, recompute;
    bool resume, quiet, verbose, json, fit, no_graph;
    int64_t seed, threads;
    double mem_cap; /* bytes; 0: what the machine has */

    /* Of `tally plan` alone: another machine's memory, and the table of other settings. */
    OptionText card;
    double vram; /* bytes; 0: the card's, or this machine's */
    bool what_if;

    /* Model: 0 (or -1 for dropout) means "as the preset says". */
    int64_t n_layer, n_head, n_embd, vocab_size, vocab_multiple;
    double dropout;
    bool no_bias;

    /* Batch. */
    int64_t batch_size, block_size, gradient_accumulation_steps, head_rows, recompute_every;

    /* Schedule and optimizer. -1: derived, see options_resolve. */
    int64_t max_iters, epochs, warmup_iters, lr_decay_iters;
    double learning_rate, min_lr, decay_fraction, weight_decay, beta1, beta2, eps, grad_clip;
    int64_t max_skips;
    double loss_scale; /* 0: dynamic for FP16, 1 otherwise */

    /* What happens when. */
    int64_t grad_stats, nvml_interval, eval_interval, eval_iters, log_interval, sample_interval, sample_tokens,
        checkpoint_interval, keep;
    bool overfit, tune;

    /* Which windows, and which of their targets. */
    bool whole_documents;
    int64_t ignore_after_token, loader_delay; /* -1: all count; milliseconds */
} TrainOptions;

TrainOptions train_options_default(void);

/* Reads the command line of `tally train` into *o, which has the defaults, in order of precedence: with --resume the settings of
 * the latest whole checkpoint in --out-dir, then --config FILE, then the flags. For a resumed run *checkpoint is the checkpoint's
 * path and *trainer its trainer.json (a new reference); else "" and NULL. --help exits. Who is going to write to --out-dir gives
 * `lock`: then the folder of a resumed run is locked (dir_lock) before its checkpoints are looked at; NULL: it is only read.
 * False with a message for an unknown flag, a bad value, a bad file. */
bool train_options_parse(TrainOptions *o, int argc, char **argv, int *lock, char checkpoint[PATH_SIZE], json_t **trainer,
                         Error *e);

/* Takes settings from an object as options_to_json makes it or as a --config file has it. Unknown names are refused;
 * `where` is for messages. */
bool train_options_from_json(TrainOptions *o, const json_t *object, const char *where, Error *e);

/* Every setting but those that say where things are (out_dir, config, init_from, resume); a new reference, NULL when out of
 * memory. */
json_t *train_options_to_json(const TrainOptions *o);

/* Fills in what depends on other settings (min_lr = learning_rate / 10, lr_decay_iters = max_iters, warm-up) and refuses
 * combinations that make no sense (warm-up not shorter than the run, ...). */
bool train_options_resolve(TrainOptions *o, Error *e);

/* The policy that --precision and the flags of single roles describe. */
bool train_options_precision(const TrainOptions *o, Precision *p, Error *e);

/* How the options have a model run: batch, precision, recomputation, optimizer. Needs block_size to be resolved. */
bool train_options_run(const TrainOptions *o, ModelRun *run, Error *e);

/* The model that the options describe, on top of `base` (a preset, or the configuration of --init-from). */
void train_options_model(const TrainOptions *o, ModelConfig *config);

#endif
