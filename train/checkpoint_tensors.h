/* The tensors of a checkpoint, between device memory and safetensors files. They pass through one host buffer of a few MiB,
 * whatever the size of the model. checkpoint_load_weights and checkpoint_load_moments of
 * train/checkpoint.h are in checkpoint_tensors.c as well.
 *
 * In a file the token embedding has vocab_size rows: those that only pad it are 0 always, in weights and moments. */
#ifndef TALLY_TRAIN_CHECKPOINT_TENSORS_H
#define TALLY_TRAIN_CHECKPOINT_TENSORS_H

#include "model/model.h"

/* Writes dir/model.safetensors, F32: every weight under its name, and for a model without biases zeros [O] in place of each
 * that Hugging Face's GPT-2 has. */
bool checkpoint_write_weights(const char *dir, Model *m, Error *e);

/* Writes dir/optimizer.safetensors, F32: "NAME.m" and "NAME.v", of the weight's shape, for every weight of a model in training.
 */
bool checkpoint_write_moments(const char *dir, Model *m, Error *e);

#endif
