/* The table of commands, and what they have in common: how they are found, and how they end. */
#include "tools/commands.h"
#include "train/train.h"

#include <stdio.h>
#include <string.h>

/* Where a name is the beginning of another, the longer one comes first. */
static const struct {
    const char *name;
    Command *run;
    const char *help;
} commands[] = {
    {"data prepare", data_prepare_command, "text to token files"},
    {"data stories", data_stories_command, "a text of any length whose entropy is known"},
    {"data info", data_info_command, "what is in a folder of tokens"},
    {"tokenize", tokenize_command, "text on standard input to token ids"},
    {"detokenize", detokenize_command, "token ids on standard input to text"},
    {"plan", plan_command, "what a run would need, byte by byte, without running it"},
    {"train", train_command, "train a GPT"},
    {"sample", sample_command, "let a trained GPT write"},
    {"bench amp", bench_amp_command, "time training steps in each precision"},
    {"bench", bench_command, "time a training step, op by op"},
    {"report", report_command, "a run or a plan as one HTML file of charts"},
    {"doctor", doctor_command, "what this machine offers, what is wrong with it, what to do"},
    {"golden", golden_command, "run a golden case and compare"},
};

enum { COMMANDS = sizeof commands / sizeof *commands };

/* Lists the commands whose names begin with this. */
static void usage(FILE *out, const char *beginning)
{
    fprintf(out, "tally trains GPTs from scratch, and accounts for every byte and every FLOP while it does.\n\n"
                 "usage: tally COMMAND [OPTIONS]       (tally COMMAND --help lists its options)\n\n");
    for (int i = 0; i < COMMANDS; i++)
        if (strncmp(commands[i].name, beginning, strlen(beginning)) == 0)
            fprintf(out, "  %-14s %s\n", commands[i].name, commands[i].help);
}

/* How many words of argv, from argv[1] on, are this name; 0: it is not there. */
static int name_words(const char *name, int argc, char **argv)
{
    int words = 0;
    for (size_t n; *name; name += n + (name[n] == ' ')) {
        n = strcspn(name, " ");
        if (++words >= argc || strlen(argv[words]) != n || memcmp(argv[words], name, n) != 0)
            return 0;
    }
    return words;
}

static int command_run(Command *run, int argc, char **argv)
{
    Error e = {0};
    bool ok = run(argc, argv, &e);
    if (e.set)
        fprintf(stderr, "%s: %s\n", argv[0], e.text);
    return ok ? 0 : e.usage ? 2 : 1;
}

int tally_main(int argc, char **argv)
{
    char text[64] = "";
    for (int i = 0; i < COMMANDS; i++) {
        int words = name_words(commands[i].name, argc, argv);
        if (words == 0)
            continue;
        snprintf(text, sizeof text, "tally %s", commands[i].name);
        argv[words] = text;
        return command_run(commands[i].run, argc - words, argv + words);
    }
    const char *group = argc > 1 && strcmp(argv[1], "data") == 0 ? "data " : "", *word = argv[*group ? 2 : 1];
    bool help = word && (strcmp(word, "--help") == 0 || strcmp(word, "help") == 0);
    if (word && !help)
        fprintf(stderr, "tally: there is no command '%s%s'; tally --help lists them\n", group, word);
    else
        usage(help ? stdout : stderr, group);
    return help ? 0 : 2;
}
