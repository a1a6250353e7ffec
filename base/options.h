/* Command lines as tables: a row an option, with the place in a structure where its value goes. argp reads them and makes --help.
 *
 * `--batch_size` and `--batch-size` are the same option. */
#ifndef TALLY_BASE_OPTIONS_H
#define TALLY_BASE_OPTIONS_H

#include "base/error.h"

#include <stdint.h>

typedef char OptionText[1024];

/* The words of a command line that are no options. */
typedef struct OptionWords {
    char **word; /* [count], in argv */
    int64_t count;
} OptionWords;

typedef enum OptionType {
    OPTION_TEXT,      /* an OptionText, a copy                                                           */
    OPTION_WORD,      /* a const char *, in argv                                                         */
    OPTION_FLAG,      /* a bool: --name or --name=true; --name=false                                     */
    OPTION_INT,       /* an int64_t, min to max                                                          */
    OPTION_NUMBER,    /* a double, min to max                                                            */
    OPTION_BYTES,     /* a double, min to max: "4GiB", "512MiB", "1.5G", "20MB", "1000000", where K, M, G, T, with or without
                         iB, are powers of 1024 and KB, MB, GB, TB powers of 1000 */
    OPTION_ARGUMENTS, /* in the first row: no option, but the OptionWords, min to max; `help` is said when there are fewer */
    OPTION_HEADING    /* no option, but a line above the next ones in --help                             */
} OptionType;

typedef struct OptionRow {
    const char *name; /* with dashes or underscores; messages have it as it is here */
    OptionType type;
    size_t offset; /* of the value */
    double min, max;
    const char *arg, *help; /* what --help calls the value, and says of the option */
    bool place;             /* says where things are, not what is computed: not stored with a run */
    char letter;            /* of its short form, -o say; 0: none */
} OptionRow;

typedef struct OptionTable {
    const OptionRow *row; /* [rows] */
    int rows;
    const char *usage; /* what stands behind the command, besides options; NULL: nothing   */
    const char *doc;   /* what --help says above the options, and below them, behind a \v */
} OptionTable;

/* A row of a table whose values are in a structure called AT_TYPE. */
/* clang-format off */
#define OPTION(letter, name, type, field, min, max, arg, help) {name, type, offsetof(AT_TYPE, field), min, max, arg, help, false, letter}
/* clang-format on */

/* Reads argv[1 .. argc-1], in whatever order, into the structure `into`, which has the defaults. --help exits, and so does an
 * option that the table does not have. false after recording an error: a value that is none of its type or not in its range. */
bool options_parse(const OptionTable *t, void *into, int argc, char **argv, Error *e);

/* Sets one value from a text, as options_parse does. */
bool option_set(const OptionRow *r, void *into, const char *text, Error *e);

/* The end of an OPTION_INT's range: as a double, INT64_MAX is 2^63. */
int64_t option_largest(const OptionRow *r);

/* Rewrites `_` to `-` in the option names among argv[1 .. argc-1], in place, since argp knows one spelling only: in every
 * argument that begins with `--`, up to its `=` when it has one. Stops at a bare `--`. A value that itself begins with `--` must
 * be written `--name=value`. */
void args_dashes(int argc, char **argv);

#endif
