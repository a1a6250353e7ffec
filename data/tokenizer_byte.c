/* Bytes as tokens: id = byte. */
#include "base/json.h"
#include "data/tokenizer_kind.h"

static bool byte_pieces(Tokenizer *t, Error *e)
{
    if (!tokenizer_make_pieces(t, 256, 256, e))
        return false;
    for (size_t i = 0; i < 256; i++) {
        t->bytes[i] = (uint8_t)i;
        t->start[i + 1] = i + 1;
    }
    return true;
}

static bool byte_learn(Tokenizer *t, const uint8_t *text, size_t n, Error *e)
{
    (void)text, (void)n;
    return byte_pieces(t, e);
}

static bool byte_read(Tokenizer *t, const json_t *meta, Error *e)
{
    (void)meta;
    return byte_pieces(t, e);
}

static bool byte_write(const Tokenizer *t, json_t *meta, Error *e)
{
    (void)t, (void)meta, (void)e;
    return true;
}

static bool byte_encode(const Tokenizer *t, const uint8_t *text, size_t n, int32_t *ids, int64_t *count, Error *e)
{
    (void)t, (void)e;
    for (size_t i = 0; i < n; i++)
        ids[i] = text[i];
    *count = (int64_t)n;
    return true;
}

const TokenizerKind tokenizer_byte = {"byte", byte_learn, byte_read, byte_write, byte_encode};
