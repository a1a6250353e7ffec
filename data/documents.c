#include "data/documents.h"

#include <inttypes.h>
#include <stdlib.h>

/* The search, at some token: the window in progress begins at token `start`, and `separator` is the last one behind that; -1:
 * none yet. */
typedef struct Search {
    DocumentWindows *found;
    size_t capacity;
    int64_t start, separator;
} Search;

static bool cut_add(Search *s, int64_t at, Error *e)
{
    DocumentWindows *d = s->found;
    if (!memory_grow(&d->cut, &s->capacity, (size_t)d->windows + 2, sizeof *d->cut, "the places of windows", e))
        return false;
    d->cut[++d->windows] = at;
    s->start = at;
    s->separator = -1;
    return true;
}

/* Token `at`, behind the window's start: when it is too far from there, the window ends at the last separator before it. */
static bool token_take(Search *s, int64_t at, bool is_separator, int64_t block_size, Error *e)
{
    if (at - s->start > block_size) {
        bool whole = s->separator >= 0;
        if (!cut_add(s, whole ? s->separator : at - 1, e))
            return false;
        s->found->inside += !whole;
    }
    if (is_separator)
        s->separator = at;
    return true;
}

bool document_windows_find(DocumentWindows *d, const TokenStream *stream, int64_t separator, int64_t block_size,
                           int64_t vocab_size, Error *e)
{
    enum { PART = 8192 };
    int32_t ids[PART];
    bool any = false;
    *d = (DocumentWindows){.windows = -1};
    Search s = {d, 0, 0, -1};
    bool good = cut_add(&s, 0, e);
    for (int64_t first = 0; good && first < stream->count; first += PART) {
        int64_t n = stream->count - first < PART ? stream->count - first : PART;
        good = token_stream_read(stream, first, n, vocab_size, ids, e);
        for (int64_t i = 0; good && i < n; i++) {
            any = any || ids[i] == separator;
            good = first + i == 0 || token_take(&s, first + i, ids[i] == separator, block_size, e);
        }
    }
    if (good && (!any || stream->count < 2))
        return error_set(e, "%s: no document ends: of %" PRId64 " tokens none is %" PRId64 ", the separator",
                         token_stream_name(stream), stream->count, separator);
    return good && cut_add(&s, stream->count - 1, e);
}

Window document_window(const DocumentWindows *d, int64_t i)
{
    return (Window){d->cut[i], d->cut[i + 1] - d->cut[i]};
}

void document_windows_free(DocumentWindows *d)
{
    free(d->cut);
    *d = (DocumentWindows){0};
}
