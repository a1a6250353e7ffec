/* tally data: text -> token files. tally tokenize, tally detokenize: text <-> token ids, as filters. */
#include "tools/commands.h"

#include "base/args.h"
#include "base/clock.h"
#include "data/prepare.h"
#include "data/stories.h"
#include "data/text.h"
#include "data/tokenfile.h"
#include "data/tokenizer.h"
#include "train/options.h"

#include <argp.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <omp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- tally data prepare, tally data stories ---- */

/* What the command line asks for. */
typedef struct Request {
    PrepareOptions prepare;
    char **files; /* [count] */
    int count;
    double bytes; /* of stories */
    int64_t seed;
} Request;

enum { KEY_SHARD = 256, KEY_THREADS, KEY_BYTES, KEY_SEED, KEY_SEPARATOR };

#define TOKENIZER_OPTION                                                                                                         \
    {                                                                                                                            \
        "tokenizer", 't', "KIND", 0,                                                                                             \
            "char (the default): one token for every kind of character in the text; byte: 256 tokens, one for every byte; "      \
            "gpt2:DIR: GPT-2's tokens, with its vocab.json and merges.txt, or tokenizer.json, in DIR",                           \
            0                                                                                                                    \
    }
#define SPECIAL_OPTION                                                                                                           \
    {                                                                                                                            \
        "allow-special", 's', NULL, 0, "Text such as <|endoftext|> is the special token of that name; default: it is text", 0    \
    }
#define SHARD_OPTION                                                                                                             \
    {                                                                                                                            \
        "shard-tokens", KEY_SHARD, "N", 0, "Files of so many tokens, train_000000.bin and on, instead of one", 0                 \
    }
#define THREADS_OPTION                                                                                                           \
    {                                                                                                                            \
        "threads", KEY_THREADS, "N", 0, "Threads that encode; default: one per core. The result is the same", 0                  \
    }

static const struct argp_option prepare_options[] = {
    TOKENIZER_OPTION,
    SPECIAL_OPTION,
    {"out", 'o', "DIR", 0, "Where to write; made when it doesn't exist", 0},
    {"separator", KEY_SEPARATOR, "TEXT", 0,
     "What ends a document, besides the end of a file: \\n for a document a line. It has to be one token, which will stand "
     "between "
     "documents. A document validates or trains by a hash of its own text, so that adding files moves none",
     0},
    {"val-fraction", 'f', "FRACTION", 0,
     "How much is kept for validation: the last characters of the text, or, with --separator, so many of the documents (default "
     "0.1; 0: nothing)",
     0},
    SHARD_OPTION,
    THREADS_OPTION,
    {0}};

static const struct argp_option stories_options[] = {
    {"bytes", KEY_BYTES, "SIZE", 0, "How much, at least, e.g. 20MB (default 1MB)", 0},
    {"seed", KEY_SEED, "N", 0, "Which stories (default 1)", 0},
    {"out", 'o', "DIR", 0, "Write tokens there, ready to train on; default: the text to standard output, a story a line", 0},
    {"val-fraction", 'f', "FRACTION", 0, "How many of the stories are kept for validation (default 0.1)", 0},
    TOKENIZER_OPTION,
    SHARD_OPTION,
    THREADS_OPTION,
    {0}};

/* A whole number of at least `least`; anything else ends the program. */
static int64_t count_parse(const char *name, const char *arg, int64_t least, struct argp_state *state)
{
    char *end;
    errno = 0;
    long long value = strtoll(arg, &end, 10);
    if (end == arg || *end || errno || value < least)
        argp_error(state, "--%s is \"%s\"; a whole number of at least %" PRId64 " is needed", name, arg, least);
    return value;
}

/* In place: \n and \t, as a shell passes them on. */
static const char *unescape(char *text)
{
    char *to = text;
    for (const char *from = text; *from; from++)
        *to++ = *from == '\\' && from[1] == 'n' ? (from++, '\n') : *from == '\\' && from[1] == 't' ? (from++, '\t') : *from;
    *to = 0;
    return text;
}

static error_t data_option(int key, char *arg, struct argp_state *state)
{
    Request *r = state->input;
    char *end;
    switch (key) {
    case 't':
        r->prepare.tokenizer = arg;
        return 0;
    case 's':
        r->prepare.allow_special = true;
        return 0;
    case 'o':
        r->prepare.out = arg;
        return 0;
    case 'f':
        r->prepare.val_fraction = strtod(arg, &end);
        if (end == arg || *end)
            argp_error(state, "--val-fraction is \"%s\", which is not a number", arg);
        return 0;
    case KEY_SEPARATOR:
        if (!*arg)
            argp_error(state, "--separator is empty");
        r->prepare.separator = unescape(arg);
        return 0;
    case KEY_SHARD:
        r->prepare.shard_tokens = count_parse("shard-tokens", arg, 2, state);
        if (r->prepare.shard_tokens > TOKEN_FILE_MAX_TOKENS)
            argp_error(state, "--shard-tokens is %s; a file's header can count %d", arg, TOKEN_FILE_MAX_TOKENS);
        return 0;
    case KEY_THREADS:
        omp_set_num_threads((int)count_parse("threads", arg, 1, state));
        return 0;
    case KEY_BYTES:
        if (!bytes_parse(arg, &r->bytes) || r->bytes < 1 || r->bytes > 1e15)
            argp_error(state, "--bytes is \"%s\", which is not a size like 20MB", arg);
        return 0;
    case KEY_SEED:
        r->seed = count_parse("seed", arg, 0, state);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t prepare_option(int key, char *arg, struct argp_state *state)
{
    Request *r = state->input;
    if (key == ARGP_KEY_ARG)
        r->files[r->count++] = arg;
    else if (key == ARGP_KEY_END && r->count == 0)
        argp_error(state, "needs at least one text: a file, a folder, a pattern, or - for standard input");
    else if (key == ARGP_KEY_END && !r->prepare.out)
        argp_error(state, "--out DIR is needed");
    else
        return data_option(key, arg, state);
    return 0;
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
    const char *name = split == SPLIT_TRAIN ? "train" : "val";
    double all = (double)(f->tokens[SPLIT_TRAIN] + f->tokens[SPLIT_VAL]);
    if (!f->tokens[split]) {
        printf("%s.bin    not written: %s\n", name,
               o->val_fraction > 0 ? "no document fell to it" : "--val-fraction leaves nothing to validate on");
        return;
    }
    printf("%-9s  %" PRId64 " tokens, %.1f %%",
           o->shard_tokens        ? name
           : split == SPLIT_TRAIN ? "train.bin"
                                  : "val.bin",
           f->tokens[split], 100 * (double)f->tokens[split] / all);
    if (o->shard_tokens)
        printf(" in %" PRId64 " files", (f->tokens[split] - 1) / o->shard_tokens + 1);
    if (f->documents[split])
        printf(", %" PRId64 " documents", f->documents[split]);
    if (f->nats[split] > 0)
        printf(", %.6f nats per token at least", f->nats[split] / (double)(f->tokens[split] - 1));
    printf("\n");
}

static void prepare_run(Request *r, const char *what, Error *e)
{
    PrepareOptions *o = &r->prepare;
    DataFacts f;
    Progress progress = {0};
    signal(SIGINT, stop_ask);
    signal(SIGTERM, stop_ask);
    o->progress = progress_print;
    o->user = &progress;
    if (!data_prepare(o, &f, e))
        return;
    printf("%-9s  %" PRId64 " bytes\n", what, f.text_bytes);
    printf("meta.json  tokenizer %s, vocabulary of %" PRId64 "\n", o->tokenizer, f.vocab_size);
    split_report(o, &f, SPLIT_TRAIN);
    split_report(o, &f, SPLIT_VAL);
}

bool data_prepare_command(int argc, char **argv, Error *e)
{
    static const struct argp argp = {
        prepare_options,
        prepare_option,
        "TEXT... --out DIR",
        "Turns text into what `tally train --data DIR` reads: train.bin, val.bin and meta.json (the tokenizer and the counts). "
        "Texts "
        "are files, folders with all that is in them, patterns, or - for standard input; they may be larger than memory.\v"
        "Without --separator the texts are one, of which the end validates; with it they are documents.",
        NULL,
        NULL,
        NULL};
    Request r = {.prepare = {.tokenizer = "char", .val_fraction = 0.1}};
    if ((r.files = memory_get(e, (size_t)argc, sizeof *r.files, "the list of files"))) {
        args_dashes(argc, argv);
        argp_parse(&argp, argc, argv, 0, NULL, &r);
        r.prepare.source = source_files(r.files, r.count, r.prepare.separator, r.prepare.out, e);
        if (r.prepare.source)
            prepare_run(&r, "text", e);
        source_close(r.prepare.source);
        free(r.files);
    }
    if (!e->set)
        printf("\nTrain on it with:\n  tally train --data %s --out-dir OUT\n", r.prepare.out);
    return !e->set;
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
    static const struct argp argp = {
        stories_options,
        data_option,
        "",
        "Tells short stories out of a probabilistic grammar, in which names, things and consequences agree. A story has one "
        "derivation, so its probability is known, and with it the loss that no model can go below.",
        NULL,
        NULL,
        NULL};
    Request r = {.prepare = {.tokenizer = "char", .val_fraction = 0.1, .separator = "\n"}, .bytes = 1e6, .seed = 1};
    args_dashes(argc, argv);
    argp_parse(&argp, argc, argv, 0, NULL, &r);
    StoryMean mean = stories_expected();
    fprintf(r.prepare.out ? stdout : stderr, "grammar    %.6f nats per byte: %.4f nats a story of %.2f bytes, at most %d\n",
            mean.nats / (mean.bytes + 1), mean.nats, mean.bytes + 1, mean.longest + 1);
    if (!r.prepare.out) {
        stories_print(&r);
        return true;
    }
    if ((r.prepare.source = source_stories((int64_t)r.bytes, (uint64_t)r.seed, e)))
        prepare_run(&r, "stories", e);
    source_close(r.prepare.source);
    if (!e->set)
        printf("\nTrain on it with:\n  tally train --data %s --out-dir OUT --whole-documents --block-size 256\n", r.prepare.out);
    return !e->set;
}

/* ---- tally tokenize, tally detokenize ---- */

typedef struct FilterOptions {
    const char *tokenizer;
    bool allow_special;
} FilterOptions;

/* Without the first, those of detokenize: in ids there is nothing to allow. */
static const struct argp_option tokenizer_options[] = {
    SPECIAL_OPTION,
    {"tokenizer", 't', "WHICH", 0, "byte, gpt2:DIR, or the folder or meta.json that `tally data prepare` or training has written",
     0},
    {0}};

static error_t tokenizer_option(int key, char *arg, struct argp_state *state)
{
    FilterOptions *o = state->input;
    if (key == 't')
        o->tokenizer = arg;
    else if (key == 's')
        o->allow_special = true;
    else if (key == ARGP_KEY_END && !o->tokenizer)
        argp_error(state, "--tokenizer is needed");
    else if (key != ARGP_KEY_END)
        return ARGP_ERR_UNKNOWN;
    return 0;
}

static void print_ids(const Tokenizer *t, const Text *text, Error *e)
{
    int32_t *ids;
    int64_t count;
    if (!tokenizer_encode(t, text->bytes, text->size, &ids, &count, e))
        return;
    for (int64_t i = 0; i < count; i++)
        printf(i ? " %d" : "%d", ids[i]);
    printf("\n");
    free(ids);
}

/* Prints the bytes of decimal ids. They are 31-bit numbers; what is too large for that is too large for any vocabulary. */
static void print_pieces(const Tokenizer *t, const Text *text, Error *e)
{
    for (size_t at = 0; at < text->size;) {
        size_t begin = at;
        int64_t id = 0;
        bool number = true;
        for (; at < text->size && !isspace(text->bytes[at]); at++) {
            number = number && isdigit(text->bytes[at]);
            id = id > INT32_MAX ? id : 10 * id + text->bytes[at] - '0';
        }
        const char *word = (const char *)text->bytes + begin;
        int width = at - begin < 20 ? (int)(at - begin) : 20;
        size_t n = 0;
        if (width == 0) {
            at++;
            continue;
        }
        const uint8_t *piece = number && id <= INT32_MAX ? tokenizer_piece(t, (int32_t)id, &n) : NULL;
        if (!piece) {
            error_set(e, "standard input, byte offset %zu: \"%.*s\" is not a token id; ids are decimal numbers, 0 .. %" PRId64,
                      begin, width, word, tokenizer_vocab_size(t) - 1);
            return;
        }
        fwrite(piece, 1, n, stdout);
    }
}

static bool filter_run(const struct argp *argp, int argc, char **argv, void (*print)(const Tokenizer *, const Text *, Error *),
                       Error *e)
{
    FilterOptions o = {0};
    args_dashes(argc, argv);
    argp_parse(argp, argc, argv, 0, NULL, &o);
    Text text = {0};
    Tokenizer *t = tokenizer_load(o.tokenizer, e);
    if (t && (!o.allow_special || tokenizer_allow_special(t, e)) && text_read(&text, e))
        print(t, &text, e);
    text_free(&text);
    tokenizer_destroy(t);
    return !e->set;
}

bool tokenize_command(int argc, char **argv, Error *e)
{
    static const struct argp argp = {
        tokenizer_options,
        tokenizer_option,
        "--tokenizer WHICH < TEXT > IDS",
        "Reads text on standard input and prints its token ids as decimal numbers, separated by blanks.",
        NULL,
        NULL,
        NULL};
    return filter_run(&argp, argc, argv, print_ids, e);
}

bool detokenize_command(int argc, char **argv, Error *e)
{
    static const struct argp argp = {
        tokenizer_options + 1,
        tokenizer_option,
        "--tokenizer WHICH < IDS > TEXT",
        "Reads decimal token ids on standard input, separated by any white space, and prints the bytes they stand for.",
        NULL,
        NULL,
        NULL};
    return filter_run(&argp, argc, argv, print_pieces, e);
}
