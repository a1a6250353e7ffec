#include "data/window.h"

#include <string.h>

bool window_read(const TokenStream *s, Window w, int64_t block_size, int64_t vocab_size, int32_t *tokens, int32_t *targets,
                 int64_t *counted, Error *e)
{
    *counted += w.count;
    if (w.count > 0) {
        if (!token_stream_read(s, w.start, w.count, vocab_size, tokens, e) ||
            !token_stream_read(s, w.start + w.count, 1, vocab_size, &targets[w.count - 1], e))
            return false;
        memcpy(targets, tokens + 1, (size_t)(w.count - 1) * sizeof *targets);
    }
    for (int64_t i = 0; s->ignore_after >= 0 && i < w.count; i++)
        if (tokens[i] == s->ignore_after) {
            targets[i] = TARGET_IGNORED;
            --*counted;
        }
    for (int64_t i = w.count; i < block_size; i++) {
        tokens[i] = 0;
        targets[i] = TARGET_IGNORED;
    }
    return true;
}

bool window_count(const TokenStream *s, Window w, int64_t vocab_size, int64_t *counted, Error *e)
{
    enum { PART = 1024 };
    int32_t tokens[PART];
    *counted += w.count;
    for (int64_t n; s->ignore_after >= 0 && w.count > 0; w.start += n, w.count -= n) {
        n = w.count < PART ? w.count : PART;
        if (!token_stream_read(s, w.start, n, vocab_size, tokens, e))
            return false;
        for (int64_t i = 0; i < n; i++)
            *counted -= tokens[i] == s->ignore_after;
    }
    return true;
}
