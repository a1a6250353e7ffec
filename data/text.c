#include "data/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Makes room for `more` bytes behind the text, at least doubling it, so that appending is linear in the end. */
static bool text_reserve(Text *t, size_t more, Error *e)
{
    if (more <= t->capacity - t->size)
        return true;
    size_t capacity = t->size + more > 2 * t->capacity ? t->size + more : 2 * t->capacity;
    uint8_t *bytes = realloc(t->bytes, capacity);
    if (!bytes)
        return error_set(e, "out of host memory: %zu bytes for the text", capacity);
    t->bytes = bytes;
    t->capacity = capacity;
    return true;
}

bool text_read(Text *t, Error *e)
{
    for (;;) {
        if (!text_reserve(t, 1 << 16, e))
            return false;
        ssize_t n = read(STDIN_FILENO, t->bytes + t->size, t->capacity - t->size);
        if (n == 0)
            return true;
        if (n < 0 && errno != EINTR)
            return error_set(e, "standard input: cannot read: %s", strerror(errno));
        t->size += n > 0 ? (size_t)n : 0;
    }
}

void text_free(Text *t)
{
    free(t->bytes);
    *t = (Text){0};
}
