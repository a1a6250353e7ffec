#include "tests/softgpu/vm/ptx_lex.h"

#include <ctype.h>
#include <string.h>

/* Moves past white space and comments; counts lines. */
static const char *blank_skip(const char *s, int *line)
{
    for (;;) {
        if (s[0] == '/' && s[1] == '/') {
            s += strcspn(s, "\n");
        } else if (s[0] == '/' && s[1] == '*') {
            const char *end = strstr(s + 2, "*/");
            for (end = end ? end + 2 : s + strlen(s); s < end; s++)
                *line += *s == '\n';
        } else if (isspace((unsigned char)*s)) {
            *line += *s++ == '\n';
        } else {
            return s;
        }
    }
}

/* Length of the word at s; 0 when none begins there. "::" is part of a word: ld.global.L2::128B, .shared::cta. */
static size_t word_length(const char *s)
{
    size_t n = 0;
    for (;;) {
        if (isalnum((unsigned char)s[n]) || (s[n] != 0 && strchr("_$%.", s[n]) != NULL))
            n++;
        else if (n > 0 && s[n] == ':' && s[n + 1] == ':')
            n += 2;
        else
            return n;
    }
}

static size_t token_length(const char *s)
{
    if (*s == '"') {
        size_t n = 1 + strcspn(s + 1, "\"");
        return n + (s[n] == '"');
    }
    size_t n = word_length(s);
    return n ? n : 1;
}

static void token_add(VmModule *m, const char *text, int line)
{
    m->tokens = arena_grow(&m->arena, m->tokens, m->n_tokens, sizeof *m->tokens);
    m->tokens[m->n_tokens++] = (Token){text, line};
}

/* The texts of all tokens lie in one piece: a token and its zero byte need at most two bytes for each of the PTX. */
void ptx_lex(VmModule *m, const char *ptx)
{
    int line = 1;
    char *at = arena_get(&m->arena, 2 * strlen(ptx) + 1);
    for (const char *s = blank_skip(ptx, &line); *s != 0; s = blank_skip(s, &line)) {
        size_t n = token_length(s);
        memcpy(at, s, n);
        token_add(m, at, line);
        at += n + 1;
        for (; n > 0; n--)
            line += *s++ == '\n';
    }
    token_add(m, "", line);
}
