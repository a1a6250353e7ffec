/* tally: the command line. `tally COMMAND ...` hands on to the command's own file. */
#include "tools/commands.h"
#include "tools/data.h"
#include "train/train.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *title; /* argv[0] of the command: what its messages begin with */
    const char *help;
} commands[] = {
    {"data", data_main, "tally data", "prepare token files from text"},
    {"tokenize", tokenize_main, "tally tokenize", "text on standard input to token ids"},
    {"detokenize", detokenize_main, "tally detokenize", "token ids on standard input to text"},
    {"plan", plan_main, "tally plan", "what a run would need, byte by byte, without running it"},
    {"train", train_main, "tally train", "train a GPT"},
    {"sample", sample_main, "tally sample", "let a trained GPT write"},
    {"bench", bench_main, "tally bench", "time a training step, op by op; bench amp: in each precision"},
    {"report", report_main, "tally report", "a run or a plan as one HTML file of charts"},
    {"doctor", doctor_main, "tally doctor", "what this machine offers, what is wrong with it, what to do"},
    {"golden", golden_main, "tally golden", "run a golden case and compare"},
};

enum { COMMANDS = sizeof commands / sizeof *commands };

static void usage(FILE *out)
{
    fprintf(out, "tally trains GPTs from scratch, and accounts for every byte and every FLOP while it does.\n\n"
                 "usage: tally COMMAND [OPTIONS]       (tally COMMAND --help lists its options)\n\n");
    for (int i = 0; i < COMMANDS; i++)
        fprintf(out, "  %-12s %s\n", commands[i].name, commands[i].help);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        usage(stderr);
        return 2;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0) {
        usage(stdout);
        return 0;
    }
    for (int i = 0; i < COMMANDS; i++) {
        if (strcmp(argv[1], commands[i].name) != 0)
            continue;
        argv[1] = (char *)commands[i].title;
        return commands[i].run(argc - 1, argv + 1);
    }
    fprintf(stderr, "tally: there is no command '%s'; tally --help lists them\n", argv[1]);
    return 2;
}
