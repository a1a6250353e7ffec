#include "data/stories.h"
#include "data/stories_grammar.h"

#include "base/philox.h"

#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { VARIABLES = 8 };

/* Some bytes of the grammar. */
typedef struct Span {
    const char *at;
    int n;
} Span;

typedef struct Variable {
    Span name;
    const StorySymbol *symbol;
    int way;
} Variable;

typedef struct Variables {
    Variable bound[VARIABLES];
    int count;
} Variables;

/* What a way's text is made of. */
typedef struct Part {
    enum { PART_WORDS, PART_CAPITAL, PART_SYMBOL, PART_FIELD } kind;
    Span text;                 /* words as they are told, or of a field's value, which may hold parts itself */
    const StorySymbol *symbol; /* of <symbol>                                                                */
    Span variable;             /* of <variable:symbol>; n = 0: none                                          */
} Part;

/* ---- Reading the grammar --------------------------------------------------------------------------------------------- */

static bool span_is(Span s, const char *text)
{
    return strncmp(s.at, text, (size_t)s.n) == 0 && text[s.n] == 0;
}

static const StorySymbol *symbol_find(Span name)
{
    const StorySymbol *s = stories_grammar;
    while (s->name && !span_is(name, s->name))
        s++;
    return s;
}

/* Element `index` of "a|b|c". */
static Span element(const char *list, int index)
{
    for (; index > 0; index--)
        list = strchr(list, '|') + 1;
    return (Span){list, (int)strcspn(list, "|")};
}

/* What {variable.field} stands for, or {variable}. */
static Span field_value(const Variables *v, Span name)
{
    const char *dot = memchr(name.at, '.', (size_t)name.n);
    int length = dot ? (int)(dot - name.at) : name.n, field = 0, i = 0;
    while (v->bound[i].name.n != length || memcmp(v->bound[i].name.at, name.at, (size_t)length) != 0)
        i++;
    const StorySymbol *s = v->bound[i].symbol;
    for (Span f; dot && (f = element(s->fields, field), f.n != name.n - length - 1 || memcmp(f.at, dot + 1, (size_t)f.n) != 0);)
        field++;
    return element(s->way[v->bound[i].way].text, field);
}

/* Takes the next part of *text, n >= 1. */
static Part part_next(Span *text, const Variables *v)
{
    const char *at = text->at, *end = at + text->n;
    Part part = {.kind = *at == '^' ? PART_CAPITAL : *at == '<' ? PART_SYMBOL : *at == '{' ? PART_FIELD : PART_WORDS};
    const char *stop = at + 1;
    while (part.kind != PART_CAPITAL && stop < end && !strchr(part.kind == PART_WORDS ? "^<{" : ">}", *stop))
        stop++;
    part.text = part.kind == PART_WORDS ? (Span){at, (int)(stop - at)} : (Span){at + 1, (int)(stop - at) - 1};
    if (part.kind == PART_FIELD)
        part.text = field_value(v, part.text);
    if (part.kind == PART_SYMBOL) {
        const char *colon = memchr(at, ':', (size_t)(stop - at));
        part.variable = (Span){at + 1, colon ? (int)(colon - at) - 1 : 0};
        at = colon ? colon : at;
        part.symbol = symbol_find((Span){at + 1, (int)(stop - at) - 1});
    }
    stop += part.kind == PART_SYMBOL || part.kind == PART_FIELD;
    *text = (Span){stop, (int)(end - stop)};
    return part;
}

/* The weights of a part's ways, 0 for those that another variable has; *total is their sum. Returns their number. */
static int weights(const Part *part, const Variables *v, int weight[STORY_WAYS], int *total)
{
    int ways = 0;
    *total = 0;
    for (; ways < STORY_WAYS && part->symbol->way[ways].text; ways++) {
        weight[ways] = part->symbol->way[ways].weight;
        for (int i = 0; part->variable.n && i < v->count; i++)
            if (v->bound[i].symbol == part->symbol && v->bound[i].way == ways)
                weight[ways] = 0;
        *total += weight[ways];
    }
    return ways;
}

/* Takes way `way` of a <symbol>, and returns its text. */
static Span way_take(const Part *part, Variables *v, int way)
{
    if (part->variable.n)
        v->bound[v->count++] = (Variable){part->variable, part->symbol, way};
    return element(part->symbol->way[way].text, 0);
}

/* ---- Telling --------------------------------------------------------------------------------------------------------- */

typedef struct Teller {
    Story *story;
    StoryChoose *choose;
    void *user;
    Variables variables;
    bool capital;
} Teller;

/* false: choose has stopped. */
static bool tell(Teller *t, Span text)
{
    Story *s = t->story;
    while (text.n > 0) {
        Part part = part_next(&text, &t->variables);
        int weight[STORY_WAYS], total, way;
        if (part.kind == PART_CAPITAL) {
            t->capital = true;
        } else if (part.kind == PART_FIELD) {
            tell(t, part.text);
        } else if (part.kind == PART_WORDS) {
            for (int i = 0; i < part.text.n && s->size < STORY_MAX; i++, t->capital = false)
                s->text[s->size++] = (char)(t->capital ? toupper(part.text.at[i]) : part.text.at[i]);
        } else {
            int ways = weights(&part, &t->variables, weight, &total);
            if ((way = t->choose(t->user, weight, ways)) < 0)
                return false;
            s->nats -= log((double)weight[way] / total);
            if (!tell(t, way_take(&part, &t->variables, way)))
                return false;
        }
    }
    return true;
}

void story_tell(Story *s, StoryChoose *choose, void *user)
{
    *s = (Story){0};
    Teller t = {.story = s, .choose = choose, .user = user};
    tell(&t, element(stories_grammar[0].way[0].text, 0));
}

typedef struct Draw {
    RandomKey key;
    uint64_t choices;
} Draw;

static int draw(void *user, const int *weight, int ways)
{
    Draw *d = user;
    int total = 0, way = 0;
    for (int i = 0; i < ways; i++)
        total += weight[i];
    int rest = (int)((uint64_t)random_bits(d->key, d->choices++) * (uint64_t)total >> 32);
    while (rest >= weight[way])
        rest -= weight[way++];
    return way;
}

void story_draw(Story *s, uint64_t seed, uint64_t number)
{
    Draw d = {random_key(seed, RANDOM_STORY, 0, number, 0), 0};
    story_tell(s, draw, &d);
}

/* ---- What is to be expected ------------------------------------------------------------------------------------------ */

/* What is to be told after a text. */
typedef struct Rest {
    Span text;
    const struct Rest *next;
} Rest;

/* Does a symbol bind variables, in any of its ways? What follows it depends on the way then. */
static bool binds(const StorySymbol *s)
{
    for (int i = 0; i < STORY_WAYS && s->way[i].text; i++)
        for (const char *at = s->way[i].text; (at = strchr(at, '<')); at++) {
            int n = (int)strcspn(at, ">:");
            if (at[n] == ':' || binds(symbol_find((Span){at + 1, n - 1})))
                return true;
        }
    return false;
}

/* Of the text and the rest behind it: the mean over the ways of each <symbol> of -log p and of what they tell. Only a way that
 * binds a variable has to be followed to the story's end; the others make no difference to what comes after them. */
static StoryMean mean(Span text, const Variables *v, const Rest *rest)
{
    StoryMean m = {0};
    while (text.n > 0 || rest) {
        if (text.n == 0) {
            text = rest->text;
            rest = rest->next;
            continue;
        }
        Part part = part_next(&text, v);
        StoryMean inner = {0, part.kind == PART_WORDS ? part.text.n : 0, part.kind == PART_WORDS ? part.text.n : 0};
        if (part.kind == PART_FIELD)
            inner = mean(part.text, v, NULL);
        if (part.kind != PART_SYMBOL) {
            m = (StoryMean){m.nats + inner.nats, m.bytes + inner.bytes, m.longest + inner.longest};
            continue;
        }
        bool follow = part.variable.n || binds(part.symbol);
        Rest after = {text, rest};
        int weight[STORY_WAYS], total, ways = weights(&part, v, weight, &total), longest = 0;
        for (int way = 0; way < ways; way++) {
            if (!weight[way])
                continue;
            Variables bound = *v;
            double p = (double)weight[way] / total;
            Span told = way_take(&part, &bound, way);
            inner = mean(told, &bound, follow ? &after : NULL);
            m.nats += p * (inner.nats - log(p));
            m.bytes += p * inner.bytes;
            longest = inner.longest > longest ? inner.longest : longest;
        }
        m.longest += longest;
        if (follow)
            return m;
    }
    return m;
}

StoryMean stories_expected(void)
{
    return mean(element(stories_grammar[0].way[0].text, 0), &(Variables){0}, NULL);
}
