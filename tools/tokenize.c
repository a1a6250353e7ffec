/* tally tokenize, tally detokenize: text to token ids and back, as filters. */
#include "tools/commands.h"

#include "base/options.h"
#include "data/tokenizer.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct FilterOptions {
    const char *tokenizer;
    bool allow_special;
} FilterOptions;

#define AT_TYPE FilterOptions
/* Without the last, those of detokenize: in ids there is nothing to allow. */
static const OptionRow rows[] = {
    OPTION('t', "tokenizer", OPTION_WORD, tokenizer, 0, 0, "WHICH",
           "byte, gpt2:DIR, or the folder or meta.json that `tally data prepare` or training has written"),
    OPTION('s', "allow-special", OPTION_FLAG, allow_special, 0, 0, NULL,
           "Text such as <|endoftext|> is the special token of that name; default: it is text"),
};

/* All of standard input: *text [*size], with a NUL behind it. Free it, after false, too. */
static bool input_read(char **text, size_t *size, Error *e)
{
    size_t capacity = 0;
    for (;;) {
        if (!memory_grow(text, &capacity, *size + (1 << 16), 1, "the text", e))
            return false;
        ssize_t n = read(STDIN_FILENO, *text + *size, capacity - *size - 1);
        if (n < 0 && errno != EINTR)
            return error_set(e, "standard input: cannot read: %s", strerror(errno));
        *size += n > 0 ? (size_t)n : 0;
        (*text)[*size] = 0;
        if (n == 0)
            return true;
    }
}

static void ids_print(const Tokenizer *t, const char *text, size_t size, Error *e)
{
    int32_t *ids;
    int64_t count;
    if (!tokenizer_encode(t, (const uint8_t *)text, size, &ids, &count, e))
        return;
    for (int64_t i = 0; i < count; i++)
        printf(i ? " %d" : "%d", ids[i]);
    printf("\n");
    free(ids);
}

static bool is_blank(char c)
{
    return isspace((unsigned char)c);
}

/* Prints the bytes of decimal ids. */
static void pieces_print(const Tokenizer *t, const char *text, size_t size, Error *e)
{
    for (const char *at = text, *end = text + size; at < end;) {
        if (is_blank(*at)) {
            at++;
            continue;
        }
        char *stop;
        size_t n = 0;
        long long id = strtoll(at, &stop, 10); /* what is too large for 64 bits is the largest of these */
        bool number = isdigit((unsigned char)*at) && (stop == end || is_blank(*stop));
        const uint8_t *piece = number && id <= INT32_MAX ? tokenizer_piece(t, (int32_t)id, &n) : NULL;
        if (!piece) {
            int width = 0;
            while (width < 20 && at + width < end && !is_blank(at[width]))
                width++;
            error_set(e, "standard input, byte offset %zu: \"%.*s\" is not a token id; ids are decimal numbers, 0 .. %" PRId64,
                      (size_t)(at - text), width, at, tokenizer_vocab_size(t) - 1);
            return;
        }
        fwrite(piece, 1, n, stdout);
        at = stop;
    }
}

static bool filter_run(const OptionTable *options, int argc, char **argv,
                       void (*print)(const Tokenizer *, const char *, size_t, Error *), Error *e)
{
    FilterOptions o = {0};
    char *text = NULL;
    size_t size = 0;
    if (!options_parse(options, &o, argc, argv, e))
        return false;
    if (!o.tokenizer)
        return error_usage(e, "--tokenizer is needed");
    Tokenizer *t = tokenizer_load(o.tokenizer, e);
    if (t && (!o.allow_special || tokenizer_allow_special(t, e)) && input_read(&text, &size, e))
        print(t, text, size, e);
    free(text);
    tokenizer_destroy(t);
    return !e->set;
}

bool tokenize_command(int argc, char **argv, Error *e)
{
    static const OptionTable options = {
        rows, 2, "--tokenizer WHICH < TEXT > IDS",
        "Reads text on standard input and prints its token ids as decimal numbers, separated by blanks."};
    return filter_run(&options, argc, argv, ids_print, e);
}

bool detokenize_command(int argc, char **argv, Error *e)
{
    static const OptionTable options = {
        rows, 1, "--tokenizer WHICH < IDS > TEXT",
        "Reads decimal token ids on standard input, separated by any white space, and prints the bytes they stand for."};
    return filter_run(&options, argc, argv, pieces_print, e);
}
