#include "base/options.h"

#include <argp.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- One value ----------------------------------------------------------------------------------------------------- */

static bool bytes_parse(const char *text, double *bytes)
{
    static const char units[] = "KMGT";
    char *end;
    double value = strtod(text, &end);
    if (end == text || !(value >= 0) || !isfinite(value))
        return false;
    const char *unit = *end ? strchr(units, *end) : NULL;
    if (unit) {
        bool decimal = end[1] == 'B';
        value *= pow(decimal ? 1000 : 1024, (double)(unit - units + 1));
        end += decimal ? 2 : 1;
        if (end[0] == 'i' && end[1] == 'B')
            end += 2;
    } else if (*end == 'B') {
        end++;
    }
    *bytes = value;
    return *end == 0;
}

int64_t option_largest(const OptionRow *r)
{
    return r->max >= 0x1p63 ? INT64_MAX : (int64_t)r->max;
}

bool option_set(const OptionRow *r, void *into, const char *text, Error *e)
{
    void *at = (char *)into + r->offset;
    char *end = NULL;
    errno = 0;
    if (r->type == OPTION_FLAG) {
        bool yes = !text || !strcasecmp(text, "true");
        if (!yes && strcasecmp(text, "false") != 0)
            return error_usage(e, "%s: '%s' is neither true nor false", r->name, text);
        *(bool *)at = yes;
    } else if (r->type == OPTION_WORD) {
        *(const char **)at = text;
    } else if (r->type == OPTION_TEXT) {
        if (strlen(text) >= sizeof(OptionText))
            return error_usage(e, "%s: longer than %zu bytes", r->name, sizeof(OptionText) - 1);
        strcpy(at, text);
    } else if (r->type == OPTION_INT) {
        long long value = strtoll(text, &end, 10);
        if (end == text || *end || errno || (double)value < r->min || (double)value > r->max)
            return error_usage(e, "%s: '%s' is not a whole number from %lld to %lld", r->name, text, (long long)r->min,
                               (long long)option_largest(r));
        *(int64_t *)at = value;
    } else {
        double value = 0;
        bool ok = r->type == OPTION_BYTES ? bytes_parse(text, &value) : (value = strtod(text, &end), end != text && !*end);
        if (!ok || !(value >= r->min && value <= r->max))
            return error_usage(
                e, r->type == OPTION_BYTES ? "%s: '%s' is not a size like 4GiB" : "%s: '%s' is not a number from %g to %g",
                r->name, text, r->min, r->max);
        *(double *)at = value;
    }
    return true;
}

/* ---- The command line ---------------------------------------------------------------------------------------------- */

void args_dashes(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strncmp(argv[i], "--", 2) != 0)
            continue;
        for (char *c = argv[i]; *c && *c != '='; c++)
            if (*c == '_')
                *c = '-';
    }
}

typedef struct Parse {
    const OptionTable *table;
    void *into;
    Error *error;
} Parse;

static int row_key(const OptionTable *t, int i)
{
    return t->row[i].letter ? t->row[i].letter : 1000 + i;
}

/* Words: what is left when the options have been taken. */
static void words_take(const Parse *p, char **word, int count)
{
    const OptionRow *r = p->table->row;
    if (r->type != OPTION_ARGUMENTS && count)
        error_usage(p->error, "'%s' is not a flag", *word);
    if (r->type != OPTION_ARGUMENTS)
        return;
    if (count < r->min)
        error_usage(p->error, "%s", r->help);
    else if (count > r->max)
        error_usage(p->error, "'%s' is one %s too many", word[(int)r->max], r->arg);
    *(OptionWords *)((char *)p->into + r->offset) = (OptionWords){word, count};
}

static error_t option_take(int key, char *arg, struct argp_state *state)
{
    const Parse *p = state->input;
    if (key == ARGP_KEY_ARGS || key == ARGP_KEY_NO_ARGS) {
        words_take(p, state->argv + state->next, state->argc - state->next);
        return 0;
    }
    for (int i = 0; i < p->table->rows; i++)
        if (key == row_key(p->table, i)) {
            option_set(&p->table->row[i], p->into, arg, p->error);
            return 0;
        }
    return ARGP_ERR_UNKNOWN;
}

bool options_parse(const OptionTable *t, void *into, int argc, char **argv, Error *e)
{
    typedef char Name[48];
    Name *names = memory_get(e, (size_t)t->rows, sizeof *names, "the options");
    struct argp_option *options = memory_get(e, (size_t)t->rows + 1, sizeof *options, "the options"), *next = options;
    for (int i = 0; !e->set && i < t->rows; i++) {
        const OptionRow *r = &t->row[i];
        if (r->type == OPTION_HEADING)
            *next++ = (struct argp_option){.doc = r->help, .group = i + 1};
        if (r->type == OPTION_HEADING || r->type == OPTION_ARGUMENTS)
            continue;
        for (size_t k = 0; r->name[k] && k + 1 < sizeof *names; k++)
            names[i][k] = (char)(r->name[k] == '_' ? '-' : r->name[k]);
        bool flag = r->type == OPTION_FLAG;
        *next++ = (struct argp_option){.name = names[i],
                                       .key = row_key(t, i),
                                       .arg = flag ? "BOOL" : r->arg,
                                       .flags = flag ? OPTION_ARG_OPTIONAL : 0,
                                       .doc = r->help};
    }
    if (!e->set) {
        const struct argp argp = {.options = options, .parser = option_take, .args_doc = t->usage, .doc = t->doc};
        args_dashes(argc, argv);
        argp_err_exit_status = 2;
        argp_parse(&argp, argc, argv, 0, NULL, &(Parse){t, into, e});
    }
    free(names);
    free(options);
    return !e->set;
}
