/* Blocks, and the stories as a source. */
#include "data/source.h"

#include "data/stories.h"

#include <stdlib.h>
#include <string.h>

bool block_reserve(TextBlock *b, size_t capacity, Error *e)
{
    return memory_grow(&b->bytes, &b->capacity, capacity, 1, "a piece of the text", e);
}

bool block_add(TextBlock *b, TextSpan span, Error *e)
{
    if (!memory_grow(&b->span, &b->span_capacity, b->spans + 1, sizeof *b->span, "a list of documents", e))
        return false;
    b->span[b->spans++] = span;
    return true;
}

void block_free(TextBlock *b)
{
    free(b->bytes);
    free(b->span);
    *b = (TextBlock){0};
}

void source_close(TextSource *s)
{
    if (s)
        s->close(s);
}

/* ---- Stories --------------------------------------------------------------------------------------------------------- */

typedef struct StorySource {
    TextSource base;
    uint64_t seed, number; /* of the next story */
    int64_t told;          /* bytes so far      */
} StorySource;

static bool stories_next(TextSource *base, TextBlock *b, const Tokenizer *t, Error *e)
{
    enum { BLOCK = 1 << 20 };
    StorySource *s = (StorySource *)base;
    (void)t;
    b->size = b->spans = 0;
    if (!block_reserve(b, BLOCK, e))
        return false;
    while (s->told < s->base.bytes && b->size + STORY_MAX <= BLOCK) {
        Story story;
        story_draw(&story, s->seed, s->number++);
        size_t size = (size_t)story.size;
        memcpy(b->bytes + b->size, story.text, size);
        if (!block_add(b, (TextSpan){b->size, b->size + size, true, true, "stories", s->told, story.nats}, e))
            return false;
        b->size += size;
        s->told += story.size + 1;
    }
    return true;
}

static void stories_rewind(TextSource *base)
{
    StorySource *s = (StorySource *)base;
    s->number = 0;
    s->told = 0;
}

static void stories_close(TextSource *base)
{
    free(base);
}

TextSource *source_stories(int64_t bytes, uint64_t seed, Error *e)
{
    StorySource *s = memory_get(e, 1, sizeof *s, "the stories");
    if (!s)
        return NULL;
    *s = (StorySource){{bytes, stories_next, stories_rewind, stories_close}, seed, 0, 0};
    return &s->base;
}
