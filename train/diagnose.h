/* Where a non-finite number comes from. */
#ifndef TALLY_TRAIN_DIAGNOSE_H
#define TALLY_TRAIN_DIAGNOSE_H

#include "model/model.h"

/* Runs the micro-batch that is in the model once more and looks at its tensors in the order in which they are made: weights,
 * activations of the forward, losses, gradients. Puts a sentence about the first that holds an Inf or NaN into `text` (its name,
 * layer, index and value) and returns true; false, saying so, when all are finite. Overwrites the gradients. */
bool nonfinite_find(Model *m, char *text, size_t size);

#endif
