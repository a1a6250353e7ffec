/* The sub-commands, each in a file of its own. argv[0] is "tally NAME". They return the exit code: 0 fine, 1 failed, 2 usage. */
#ifndef TALLY_TOOLS_COMMANDS_H
#define TALLY_TOOLS_COMMANDS_H

int plan_main(int argc, char **argv);
int sample_main(int argc, char **argv);
int golden_main(int argc, char **argv);
int bench_main(int argc, char **argv);
int report_main(int argc, char **argv);
int doctor_main(int argc, char **argv);

#endif
