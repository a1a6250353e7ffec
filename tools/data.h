/* The commands tally data, tally tokenize and tally detokenize. argv[0] is the command as the user knows it ("tally data"): it
 * begins every message. They return the exit code: 0, 1 after a failure, 2 for a request that makes no sense. */
#ifndef TALLY_TOOLS_DATA_H
#define TALLY_TOOLS_DATA_H

int data_main(int argc, char **argv);
int tokenize_main(int argc, char **argv);
int detokenize_main(int argc, char **argv);

#endif
