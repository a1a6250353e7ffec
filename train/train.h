/* `tally train`. */
#ifndef TALLY_TRAIN_TRAIN_H
#define TALLY_TRAIN_TRAIN_H

#include "base/error.h"

/* The command (tools/commands.h). argv[0] is "tally train". False after recording an error; SIGINT and SIGTERM are none, when the
 * run has been saved. */
bool train_command(int argc, char **argv, Error *e);

#endif
