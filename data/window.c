#include "data/window.h"

#include <string.h>

bool window_read(const TokenStream *s, int64_t start, int64_t count, int64_t block_size, int64_t vocab_size, int32_t *tokens,
                 int32_t *targets, Error *e)
{
    if (count > 0) {
        if (!token_stream_read(s, start, count, vocab_size, tokens, e) ||
            !token_stream_read(s, start + count, 1, vocab_size, &targets[count - 1], e))
            return false;
        memcpy(targets, tokens + 1, (size_t)(count - 1) * sizeof *targets);
    }
    for (int64_t i = count; i < block_size; i++) {
        tokens[i] = 0;
        targets[i] = TARGET_IGNORED;
    }
    return true;
}
