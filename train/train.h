/* `tally train`. */
#ifndef TALLY_TRAIN_TRAIN_H
#define TALLY_TRAIN_TRAIN_H

/* The command. argv[0] is "tally train". Returns the exit code: 0 fine (also after SIGINT or SIGTERM, when the run has been
 * saved), 1 failed, 2 asked for something impossible. */
int train_main(int argc, char **argv);

#endif
