/* Checkpoints: OUT_DIR/step-N/ with
 *
 *   config.json            the model's shape, Hugging Face's GPT-2 form
 *   model.safetensors      the weights, with Hugging Face's names and shapes: `from_pretrained` loads the folder as it is
 *   optimizer.safetensors  "NAME.m" and "NAME.v", AdamW's moments
 *   trainer.json           where training stands, the settings, the size of each file above
 *   meta.json              the tokenizer, when there is one
 *   gemm-tune.json         which algorithms multiply matrices, when they were chosen by timing (--tune)
 *
 * A checkpoint is written as step-N.tmp/, every file and the folder fsynced, renamed to step-N/, the parent fsynced; old ones are
 * removed after that. So at any instant there is a whole one, and a folder without .tmp is whole unless something damaged it
 * later: then its sizes or its JSON tell, and the one before it is taken. */
#ifndef TALLY_TRAIN_CHECKPOINT_H
#define TALLY_TRAIN_CHECKPOINT_H

#include "base/file.h"
#include "model/model.h"

#include <jansson.h>

/* Where training stands: with the weights and moments, all that a run needs to go on bit for bit. */
typedef struct TrainState {
    int64_t iter;            /* optimizer steps done, skipped ones included                 */
    int64_t adam_t;          /* updates applied                                             */
    int64_t loader_position; /* windows consumed                                            */
    int64_t tokens;          /* counted targets trained on                                  */
    int64_t data_tokens;     /* tokens of the training data, and                            */
    int64_t block_size;      /* positions of a window: loader_position means nothing else   */
    int64_t evaluations;     /* done so far: the next one draws other windows               */
    int64_t skips;           /* steps skipped for a non-finite gradient, all in all         */
    int64_t skips_in_a_row;
    double loss_scale;   /* of the next step, and                                       */
    int64_t scaler_good; /* steps without overflow since it last changed                */
    double best_loss;    /* lowest validation loss so far; +infinity: none yet          */
    int64_t best_iter;   /* and its iteration; -1: none yet                             */
} TrainState;

/* Saves step-<state->iter> under out_dir and makes it durable. Then removes all but the `keep` newest and the one of
 * state->best_iter. settings (borrowed) is stored as it is; meta is the text of meta.json, or NULL. Rows of the embedding
 * that only pad the vocabulary are not written; a model without biases is written with zero ones and says so in config.json.
 * On failure the older checkpoints are untouched. */
bool checkpoint_save(const char *out_dir, Model *m, const TrainState *state, const json_t *settings, const char *meta,
                     int64_t keep, Error *e);

/* Finds the newest checkpoint in out_dir that is whole and puts its path in `path`, and its trainer.json (a new reference) in
 * *trainer. Each damaged one on the way is reported on stderr with what is wrong. False: none is whole, or no such folder. */
bool checkpoint_find(const char *out_dir, char path[PATH_SIZE], json_t **trainer, Error *e);

/* Does out_dir hold checkpoints, whole or damaged? False, too, when there is no such folder. */
bool checkpoint_present(const char *out_dir);

/* Weights from a checkpoint of ours or of Hugging Face's (names with or without "transformer.", "attn.bias" and
 * "attn.masked_bias" buffers ignored, a tied "lm_head.weight" ignored, sharded or not, F32, F16 or BF16) into an allocated model.
 * The model may have fewer positions than the file (the first are taken) and a larger vocab_multiple (padding rows stay 0). Names
 * the tensor that is missing, or has another shape, or is unknown. */
bool checkpoint_load_weights(Model *m, const char *dir, Error *e);

/* The state in a trainer.json that has been read from the checkpoint `dir`. */
bool checkpoint_read_state(const char *dir, const json_t *trainer, TrainState *state, Error *e);

/* The moments of one of our checkpoints into an allocated model in training. What is missing, left over or of another shape is an
 * error that names file and tensor; then the moments hold part of the file. */
bool checkpoint_load_moments(Model *m, const char *dir, Error *e);

#endif
