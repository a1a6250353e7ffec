/* tally: the command line. `tally COMMAND ...` hands on to the command's own file. */
#include "base/file.h"
#include "tools/commands.h"
#include "tools/data.h"
#include "train/train.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* What was printed and could not be written is a failure, whatever the command says. */
static void output_check(void)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return;
    fprintf(stderr, "tally: standard output: cannot write%s%s\n", errno ? ": " : "", errno ? strerror(errno) : "");
    _exit(1);
}

/* A standard stream that the caller has closed leaves its number to the next file, which would get what is printed. A file that
 * may not grow is an error with a name, not the end. */
static void process_begin(void)
{
    int fd = 0;
    while (fd >= 0 && fd <= STDERR_FILENO)
        fd = open("/dev/null", O_RDWR);
    if (fd >= 0)
        close(fd);
    signal(SIGXFSZ, SIG_IGN);
    file_maps_guard();
    atexit(output_check);
}

int main(int argc, char **argv)
{
    process_begin();
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
