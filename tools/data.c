/* tally data prepare, tally data stories: text to token files. */
#include "tools/commands.h"

#include "base/clock.h"
#include "base/options.h"
#include "data/prepare.h"
#include "data/stories.h"
#include "data/tokenfile.h"

#include <inttypes.h>
#include <omp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What the command line asks for. */
typedef struct Request {
    PrepareOptions prepare;
    OptionWords texts;
    double bytes; /* of stories */
    int64_t seed, threads;
} Request;

#define AT_TYPE Request
static const OptionRow rows[] = {
    /* of data prepare */
    OPTION(0, NULL, OPTION_ARGUMENTS, texts, 1, INT32_MAX, "TEXT",
           "needs at least one text: a file, a folder, a pattern, or - for standard input"),
    OPTION('s', "allow-special", OPTION_FLAG, prepare.allow_special, 0, 0, NULL,
           "Text such as <|endoftext|> is the special token of that name; default: it is text"),
    OPTION(0, "separator", OPTION_WORD, prepare.separator, 0, 0, "TEXT",
           "What ends a document, besides the end of a file: \\n for a document a line. It has to be one token, which will stand "
           "between documents. A document validates or trains by a hash of its own text, so that adding files moves none"),
    /* of both */
    OPTION('t', "tokenizer", OPTION_WORD, prepare.tokenizer, 0, 0, "KIND",
           "char (the default): one token for every kind of character in the text; byte: 256 tokens, one for every byte; "
           "gpt2:DIR: GPT-2's tokens, with its vocab.json and merges.txt, or tokenizer.json, in DIR; a data set's folder or a "
           "checkpoint: the same ids as there"),
    OPTION(
        'o', "out", OPTION_WORD, prepare.out, 0, 0, "DIR",
        "Where to write, ready to train on; made when it doesn't exist. Stories without it: to standard output, a story a line"),
    OPTION('f', "val-fraction", OPTION_NUMBER, prepare.val_fraction, -1e9, 1e9, "FRACTION",
           "How much is kept for validation: the last characters of the text, or so many of the documents or stories (default "
           "0.1; 0: nothing)"),
    OPTION(0, "shard-tokens", OPTION_INT, prepare.shard_tokens, 2, TOKEN_FILE_MAX_TOKENS, "N",
           "Files of so many tokens, train_000000.bin and on, instead of one"),
    OPTION(0, "threads", OPTION_INT, threads, 1, 4096, "N", "Threads that encode; default: one per core. The result is the same"),
    /* of data stories */
    OPTION(0, "bytes", OPTION_BYTES, bytes, 1, 1e15, "SIZE", "How much, at least, e.g. 20MB (default 1MB)"),
    OPTION(0, "seed", OPTION_INT, seed, 0, 0x1p63, "N", "Which stories (default 1)"),
};
enum { PREPARE_ONLY = 3, STORIES_ONLY = 2, ROWS = sizeof rows / sizeof *rows };

/* In place: \n and \t, as a shell passes them on. */
static void unescape(char *text)
{
    char *to = text;
    for (const char *from = text; *from; from++)
        *to++ = *from == '\\' && from[1] == 'n' ? (from++, '\n') : *from == '\\' && from[1] == 't' ? (from++, '\t') : *from;
    *to = 0;
}

static volatile sig_atomic_t stop_asked;

static void stop_ask(int signal_number)
{
    stop_asked = signal_number;
}

typedef struct Progress {
    const char *pass;
    double started, shown; /* clock */
} Progress;

/* A line on a terminal that changes twice a second; elsewhere a new one every ten. */
static bool progress_print(void *user, const char *pass, int64_t done, int64_t all)
{
    Progress *p = user;
    double now = clock_seconds(), interval = isatty(STDERR_FILENO) ? 0.5 : 10;
    if (p->pass != pass)
        *p = (Progress){pass, now, now};
    if (now - p->shown >= interval) {
        double rate = (double)done / (now - p->started);
        fprintf(stderr, "%s  %.1f of %.1f MB, %.0f %%, %.1f MB/s, %.0f s left%s", pass, (double)done / 1e6, (double)all / 1e6,
                100.0 * (double)done / (double)(all ? all : 1), rate / 1e6, (double)(all - done) / rate,
                interval < 1 ? "   \r" : "\n");
        p->shown = now;
    }
    return !stop_asked;
}

static void split_report(const PrepareOptions *o, const DataFacts *f, int split)
{
    double all = (double)(f->tokens[SPLIT_TRAIN] + f->tokens[SPLIT_VAL]);
    if (!f->tokens[split]) {
        printf("%s.bin    not written: %s\n", split_name[split],
               o->val_fraction > 0 ? "no document fell to it" : "--val-fraction leaves nothing to validate on");
        return;
    }
    char name[16];
    snprintf(name, sizeof name, "%s%s", split_name[split], o->shard_tokens ? "" : ".bin");
    printf("%-9s  %" PRId64 " tokens, %.1f %%", name, f->tokens[split], 100 * (double)f->tokens[split] / all);
    if (o->shard_tokens)
        printf(" in %" PRId64 " files", (f->tokens[split] - 1) / o->shard_tokens + 1);
    if (f->documents[split])
        printf(", %" PRId64 " documents", f->documents[split]);
    if (f->nats[split] > 0)
        printf(", %.6f nats per token at least", f->nats[split] / (double)(f->tokens[split] - 1));
    printf("\n");
}

/* Prepares what comes from the source (NULL: an error is recorded), and gives the source back. `flags`: with which to train on
 * it.
 */
static bool prepare_run(Request *r, TextSource *source, const char *what, const char *flags, Error *e)
{
    PrepareOptions *o = &r->prepare;
    DataFacts f;
    Progress progress = {0};
    if (r->threads)
        omp_set_num_threads((int)r->threads);
    signal(SIGINT, stop_ask);
    signal(SIGTERM, stop_ask);
    o->source = source;
    o->progress = progress_print;
    o->user = &progress;
    bool ok = source && data_prepare(o, &f, e);
    source_close(source);
    if (!ok)
        return false;
    printf("%-9s  %" PRId64 " bytes\n", what, f.text_bytes);
    printf("meta.json  tokenizer %s, vocabulary of %" PRId64 "\n", o->tokenizer, f.vocab_size);
    split_report(o, &f, SPLIT_TRAIN);
    split_report(o, &f, SPLIT_VAL);
    printf("\nTrain on it with:\n  tally train --data %s --out-dir OUT%s\n", o->out, flags);
    return true;
}

bool data_prepare_command(int argc, char **argv, Error *e)
{
    static const OptionTable options = {
        rows, ROWS - STORIES_ONLY, "TEXT... --out DIR",
        "Turns text into what `tally train --data DIR` reads: train.bin, val.bin and meta.json (the tokenizer and the counts). "
        "Texts are files, folders with all that is in them, patterns, or - for standard input; they may be larger than memory.\v"
        "Without --separator the texts are one, of which the end validates; with it they are documents."};
    Request r = {.prepare = {.tokenizer = "char", .val_fraction = 0.1}};
    PrepareOptions *o = &r.prepare;
    if (!options_parse(&options, &r, argc, argv, e))
        return false;
    if (!o->out)
        return error_usage(e, "--out DIR is needed");
    if (o->separator && !*o->separator)
        return error_usage(e, "--separator is empty");
    if (o->separator)
        unescape((char *)o->separator);
    TextSource *source = source_files(r.texts.word, (int)r.texts.count, o->separator, o->out, e);
    return prepare_run(&r, source, "text", "", e);
}

static void stories_print(const Request *r)
{
    Story story;
    int64_t told = 0;
    double nats = 0;
    for (uint64_t number = 0; (double)told < r->bytes; number++) {
        story_draw(&story, (uint64_t)r->seed, number);
        puts(story.text);
        told += story.size + 1;
        nats += story.nats;
    }
    fprintf(stderr, "%" PRId64 " bytes; these have %.6f nats per byte\n", told, nats / (double)told);
}

bool data_stories_command(int argc, char **argv, Error *e)
{
    static const OptionTable options = {
        rows + PREPARE_ONLY, ROWS - PREPARE_ONLY, NULL,
        "Tells short stories out of a probabilistic grammar, in which names, things and consequences agree. A story has one "
        "derivation, so its probability is known, and with it the loss that no model can go below."};
    Request r = {.prepare = {.tokenizer = "char", .val_fraction = 0.1, .separator = "\n"}, .bytes = 1e6, .seed = 1};
    if (!options_parse(&options, &r, argc, argv, e))
        return false;
    StoryMean mean = stories_expected();
    fprintf(r.prepare.out ? stdout : stderr, "grammar    %.6f nats per byte: %.4f nats a story of %.2f bytes, at most %d\n",
            mean.nats / (mean.bytes + 1), mean.nats, mean.bytes + 1, mean.longest + 1);
    if (!r.prepare.out) {
        stories_print(&r);
        return true;
    }
    TextSource *source = source_stories((int64_t)r.bytes, (uint64_t)r.seed, e);
    return prepare_run(&r, source, "stories", " --whole-documents --block-size 256", e);
}
