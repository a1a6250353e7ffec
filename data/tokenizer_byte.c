/* Bytes as tokens: id = byte. */
#include "data/tokenizer_kind.h"

static bool byte_create(Tokenizer *t, Error *e)
{
    if (!tokenizer_make_pieces(t, 256, 256, e))
        return false;
    for (size_t i = 0; i < 256; i++) {
        t->bytes[i] = (uint8_t)i;
        t->start[i + 1] = i + 1;
    }
    return true;
}

static bool byte_encode(const Tokenizer *t, const uint8_t *text, size_t begin, size_t end, int32_t *ids, int64_t *count, Error *e)
{
    (void)t, (void)e;
    for (size_t at = begin; at < end; at++)
        ids[at - begin] = text[at];
    *count = (int64_t)(end - begin);
    return true;
}

static size_t byte_cut(const uint8_t *text, size_t n)
{
    (void)text;
    return n;
}

const TokenizerKind tokenizer_byte = {.name = "byte", .create = byte_create, .encode = byte_encode, .cut = byte_cut};
