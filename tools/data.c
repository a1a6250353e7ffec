/* tally data prepare: text -> token files. tally tokenize, tally detokenize: text <-> token ids, as filters. */
#include "tools/data.h"

#include "base/args.h"
#include "data/prepare.h"
#include "data/text.h"
#include "data/tokenizer.h"

#include <argp.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Prints an error, if there is one. Returns the exit code. */
static int finish(const char *command, Error *e)
{
    if (!e->set && (fflush(stdout) != 0 || ferror(stdout)))
        error_set(e, "standard output: cannot write: %s", strerror(errno));
    if (!e->set)
        return 0;
    fprintf(stderr, "%s: %s\n", command, e->text);
    return e->usage ? 2 : 1;
}

/* Parses the command line into `input`; a wrong one ends the program with exit code 2. */
static void parse(const struct argp *argp, int argc, char **argv, void *input)
{
    argp_err_exit_status = 2;
    args_dashes(argc, argv);
    argp_parse(argp, argc, argv, 0, NULL, input);
}

/* ---- tally data prepare ---- */

static const struct argp_option data_options[] = {
    {"tokenizer", 't', "KIND", 0,
     "char (the default): one token for every kind of character in the text; byte: 256 tokens, one for every byte; gpt2:DIR: "
     "GPT-2's, with vocab.json and merges.txt, or tokenizer.json, in DIR",
     0},
    {"allow-special", 's', NULL, 0, "Text such as <|endoftext|> becomes the special token of that name", 0},
    {"out", 'o', "DIR", 0, "Where to write; made when it doesn't exist", 0},
    {"val-fraction", 'f', "FRACTION", 0, "How much of the text, its end, is kept for validation (default 0.1; 0: nothing)", 0},
    {0}};

static error_t data_option(int key, char *arg, struct argp_state *state)
{
    PrepareOptions *o = state->input;
    char *end;
    switch (key) {
    case 't':
        o->tokenizer = arg;
        return 0;
    case 's':
        o->allow_special = true;
        return 0;
    case 'o':
        o->out = arg;
        return 0;
    case 'f':
        o->val_fraction = strtod(arg, &end);
        if (end == arg || *end)
            argp_error(state, "--val-fraction is \"%s\", which is not a number", arg);
        return 0;
    case ARGP_KEY_ARG:
        if (state->arg_num == 0 && strcmp(arg, "prepare") != 0)
            argp_error(state, "\"%s\" is not known; what there is: prepare", arg);
        if (state->arg_num > 0)
            o->files[o->count++] = arg;
        return 0;
    case ARGP_KEY_END:
        if (o->count == 0)
            argp_error(state, "prepare needs at least one text file (- is standard input)");
        if (!o->out)
            argp_error(state, "--out DIR is needed");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void data_report(const PrepareOptions *o, const PrepareResult *r)
{
    double all = (double)(r->train_tokens + r->val_tokens);
    printf("text       %" PRId64 " bytes\n", r->text_bytes);
    printf("meta.json  tokenizer %s, vocabulary of %" PRId64 "\n", o->tokenizer, r->vocab_size);
    printf("train.bin  %" PRId64 " tokens, %.1f %%\n", r->train_tokens, 100 * (double)r->train_tokens / all);
    if (r->val_tokens)
        printf("val.bin    %" PRId64 " tokens, %.1f %%\n", r->val_tokens, 100 * (double)r->val_tokens / all);
    else
        printf("val.bin    not written: --val-fraction leaves nothing to validate on\n");
    printf("\nTrain on it with:\n  tally train --data %s --out-dir OUT\n", o->out);
}

int data_main(int argc, char **argv)
{
    static const struct argp argp = {
        data_options,
        data_option,
        "prepare FILE... --out DIR",
        "Turns text into what `tally train --data DIR` reads. `prepare` takes the files as one text (- is standard input), keeps "
        "its end for "
        "validation, and writes train.bin, val.bin and meta.json (the tokenizer and the counts) into DIR.",
        NULL,
        NULL,
        NULL};
    Error e = {0};
    PrepareOptions o = {.tokenizer = "char", .val_fraction = 0.1};
    PrepareResult r;
    if ((o.files = memory_get(&e, (size_t)argc, sizeof *o.files, "the list of files"))) {
        parse(&argp, argc, argv, &o);
        if (data_prepare(&o, &r, &e))
            data_report(&o, &r);
        free(o.files);
    }
    return finish(argv[0], &e);
}

/* ---- tally tokenize, tally detokenize ---- */

typedef struct FilterOptions {
    const char *tokenizer;
    bool allow_special;
} FilterOptions;

/* Without the first, those of detokenize: in ids there is nothing to allow. */
static const struct argp_option tokenizer_options[] = {
    {"allow-special", 's', NULL, 0, "Text such as <|endoftext|> becomes the special token of that name", 0},
    {"tokenizer", 't', "WHICH", 0,
     "byte, gpt2:DIR (GPT-2's files), or the folder or meta.json that `tally data prepare` or training has written", 0},
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

static int filter_main(const struct argp *argp, int argc, char **argv, void (*print)(const Tokenizer *, const Text *, Error *))
{
    FilterOptions o = {0};
    parse(argp, argc, argv, &o);
    Error e = {0};
    Text text = {0};
    Tokenizer *t = tokenizer_load(o.tokenizer, &e);
    if (t && (!o.allow_special || tokenizer_allow_special(t, &e)) && text_append(&text, "-", &e))
        print(t, &text, &e);
    text_free(&text);
    tokenizer_destroy(t);
    return finish(argv[0], &e);
}

int tokenize_main(int argc, char **argv)
{
    static const struct argp argp = {
        tokenizer_options,
        tokenizer_option,
        "--tokenizer WHICH < TEXT > IDS",
        "Reads text on standard input and prints its token ids as decimal numbers, separated by blanks.",
        NULL,
        NULL,
        NULL};
    return filter_main(&argp, argc, argv, print_ids);
}

int detokenize_main(int argc, char **argv)
{
    static const struct argp argp = {
        tokenizer_options + 1,
        tokenizer_option,
        "--tokenizer WHICH < IDS > TEXT",
        "Reads decimal token ids on standard input, separated by any white space, and prints the bytes they stand for.",
        NULL,
        NULL,
        NULL};
    return filter_main(&argp, argc, argv, print_pieces);
}
