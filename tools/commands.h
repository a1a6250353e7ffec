/* The command line `tally COMMAND ...`. The commands are each in a file of their own. */
#ifndef TALLY_TOOLS_COMMANDS_H
#define TALLY_TOOLS_COMMANDS_H

#include "base/error.h"

/* Runs the command that argv names, and prints its error, if there is one. Returns the exit code: 0 fine, 1 failed, 2 asked for
 * something impossible. */
int tally_main(int argc, char **argv);

/* A command. argv[0] is "tally NAME", what its messages begin with. false: it has failed, and has recorded why, unless that is in
 * what it printed. */
typedef bool Command(int argc, char **argv, Error *e);

Command data_prepare_command, data_stories_command, data_info_command, tokenize_command, detokenize_command, plan_command,
    sample_command, bench_command, bench_amp_command, report_command, doctor_command, golden_command;

#endif
