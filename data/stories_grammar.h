/* The grammar of the stories, as a table (data/stories_grammar.c). A symbol has ways to be told, each with a weight. In a way's
 * text
 *
 *   <time>         the symbol `time` in one of its ways
 *   <hero:child>   the same, and from here on `hero` stands for the way taken; not the way of another variable of that symbol
 *   {hero.she}     a field of it: a way of a symbol with fields holds them all, "a|b|c", and the first is what is told
 *   ^              the next letter is a capital */
#ifndef TALLY_DATA_STORIES_GRAMMAR_H
#define TALLY_DATA_STORIES_GRAMMAR_H

#include "data/stories.h"

typedef struct StorySymbol {
    const char *name;
    const char *fields; /* their names, "first|she|..."; NULL: it has none */
    struct StoryWay {
        int weight;
        const char *text;
    } way[STORY_WAYS]; /* up to the first without a text */
} StorySymbol;

/* The first is the whole story, the last has no name. */
extern const StorySymbol stories_grammar[];

#endif
