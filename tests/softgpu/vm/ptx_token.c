/* The parser's way through the tokens, and its errors. */
#include "tests/softgpu/vm/ptx_parse.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void parse_error(Parser *p, const char *format, ...)
{
    if (p->error != NULL)
        return;
    char text[512];
    int n = snprintf(text, sizeof text, "%s, PTX line %d: ", p->module->name, p->line);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + n, sizeof text - (size_t)n, format, arguments);
    va_end(arguments);
    p->error = arena_text(p->arena, text, strlen(text));
    p->at = p->module->n_tokens - 1;
}

const char *token_peek(const Parser *p)
{
    return p->module->tokens[p->at].text;
}

bool token_is(const Parser *p, const char *text)
{
    return strcmp(token_peek(p), text) == 0;
}

const char *token_next(Parser *p)
{
    const Token *t = &p->module->tokens[p->at];
    p->line = t->line;
    if (t->text[0] == 0)
        parse_error(p, "the text ends too early");
    else
        p->at++;
    return t->text;
}

bool token_accept(Parser *p, const char *text)
{
    bool found = token_is(p, text);
    if (found)
        token_next(p);
    return found;
}

void token_expect(Parser *p, const char *text)
{
    const char *found = token_next(p);
    if (strcmp(found, text) != 0)
        parse_error(p, "expected '%s', found '%s'", text, found);
}

void line_skip(Parser *p)
{
    while (p->module->tokens[p->at].line == p->line && token_peek(p)[0] != 0)
        token_next(p);
}

/* Moves behind the brace that closes the one at hand. */
void braces_skip(Parser *p)
{
    int depth = 0;
    do {
        depth += token_is(p, "{") - token_is(p, "}");
        token_next(p);
    } while (depth > 0 && p->error == NULL);
}

long integer_next(Parser *p)
{
    const char *text = token_next(p);
    char *end;
    long v = strtol(text, &end, 0);
    if (end == text)
        parse_error(p, "expected a number, found '%s'", text);
    return v;
}
