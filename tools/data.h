/* The commands tally data, tally tokenize and tally detokenize. argv[0] is the command as the user knows it ("tally data"): it
 * begins every message. They return the exit code: 0, 1 after a failure, 2 for a request that makes no sense. */
#ifndef TALLY_TOOLS_DATA_H
#define TALLY_TOOLS_DATA_H

#include "base/error.h"

int data_main(int argc, char **argv);
int tokenize_main(int argc, char **argv);
int detokenize_main(int argc, char **argv);

/* What their parts share. data_parse parses the command line into `input`; a wrong one ends the program with exit code 2.
 * data_finish prints an error, if there is one, and returns the exit code. */
struct argp;
void data_parse(const struct argp *argp, int argc, char **argv, void *input);
int data_finish(const char *command, Error *e);

/* tally data info, in a file of its own. */
int data_info_main(int argc, char **argv);

#endif
