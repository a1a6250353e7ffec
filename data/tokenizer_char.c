/* Characters as tokens: the kinds of character (symbols of data/utf8.h) that the training text has, in ascending order, get the
 * ids 0, 1, 2, ... Encoding looks a symbol up in a table over all of Unicode, of which only the pages in use ever become real
 * memory. */
#include "base/json.h"
#include "data/tokenizer_kind.h"
#include "data/utf8.h"

#include <stdlib.h>
#include <string.h>

/* The table over Unicode: id + 1 of a symbol, or 0 when there is none. While the tokenizer learns, 1 for every symbol seen. */
static bool char_create(Tokenizer *t, Error *e)
{
    return (t->state = memory_get(e, UTF8_SYMBOLS, sizeof(int32_t), "the table of characters")) != NULL;
}

static bool char_learn(Tokenizer *t, const uint8_t *text, size_t n, Error *e)
{
    (void)e;
    int32_t *seen = t->state, symbol;
    for (size_t at = 0; at < n; seen[symbol] = 1)
        at += utf8_next(text + at, n - at, &symbol);
    return true;
}

/* Numbers the symbols that are marked in the table, and makes their pieces. */
static bool char_learn_end(Tokenizer *t, Error *e)
{
    int32_t *table = t->state, kinds = 0;
    for (int32_t s = 0; s < UTF8_SYMBOLS; s++)
        if (table[s])
            table[s] = ++kinds;
    if (kinds == 0)
        return error_set(e, "the text is empty: a character tokenizer takes its vocabulary from a text");
    if (!tokenizer_make_pieces(t, kinds, (size_t)kinds * UTF8_MAX_BYTES, e))
        return false;
    for (int32_t s = 0, i = 0; s < UTF8_SYMBOLS; s++)
        if (table[s]) {
            t->start[i + 1] = t->start[i] + utf8_put(s, t->bytes + t->start[i]);
            i++;
        }
    return true;
}

/* Checks the element `index` of the field "characters" against the one before it, `previous` (-1 at first). */
static bool char_check(const json_t *value, int64_t index, int64_t previous, Error *e)
{
    if (!json_is_integer(value) || !utf8_symbol_valid(json_integer_value(value)))
        return error_set(e, "characters: element %lld is not the number of a Unicode code point", (long long)index);
    long long symbol = json_integer_value(value);
    if (symbol <= previous)
        return error_set(e, "characters: element %lld, %lld, does not come after %lld: they must ascend without duplicates",
                         (long long)index, symbol, (long long)previous);
    return true;
}

static bool char_read(Tokenizer *t, const json_t *meta, Error *e)
{
    const json_t *list = json_object_get(meta, "characters"), *value;
    size_t i;
    json_int_t previous = -1;
    if (json_array_size(list) == 0)
        return error_set(e, "characters: a character tokenizer needs a list of code points here, at least one");
    if (!char_create(t, e))
        return false;
    json_array_foreach(list, i, value)
    {
        if (!char_check(value, (int64_t)i, previous, e))
            return false;
        previous = json_integer_value(value);
        ((int32_t *)t->state)[previous] = 1;
    }
    return char_learn_end(t, e);
}

static bool char_write(const Tokenizer *t, json_t *meta, Error *e)
{
    json_t *list = json_array();
    bool good = list != NULL;
    for (int64_t i = 0; good && i < t->vocab_size; i++) {
        int32_t symbol;
        utf8_next(t->bytes + t->start[i], t->start[i + 1] - t->start[i], &symbol);
        good = json_array_append_new(list, json_integer(symbol)) == 0;
    }
    if (json_object_set_new(meta, "characters", list) != 0 || !good)
        return error_set(e, "out of host memory for the characters of meta.json");
    return true;
}

static bool char_unknown(const Tokenizer *t, const uint8_t *text, size_t at, size_t length, int32_t symbol, Error *e)
{
    long long kinds = t->vocab_size;
    if (symbol >= UTF8_RAW_BYTE + 0x80 && symbol <= UTF8_RAW_BYTE + 0xFF)
        return error_set(e, "byte 0x%02X (not UTF-8) at byte offset %zu is not in the vocabulary of %lld characters", text[at],
                         at, kinds);
    bool visible = symbol > ' ' && (symbol < 0x7F || symbol > 0x9F);
    return error_set(e, "character %s%.*s%sU+%04X at byte offset %zu is not in the vocabulary of %lld characters",
                     visible ? "'" : "", visible ? (int)length : 0, (const char *)text + at, visible ? "' " : "",
                     (unsigned)symbol, at, kinds);
}

static bool char_encode(const Tokenizer *t, const uint8_t *text, size_t begin, size_t end, int32_t *ids, int64_t *count, Error *e)
{
    const int32_t *id_plus_1 = t->state;
    int64_t k = 0;
    for (size_t at = begin; at < end;) {
        int32_t symbol;
        size_t length = utf8_next(text + at, end - at, &symbol);
        if (id_plus_1[symbol] == 0)
            return char_unknown(t, text, at, length, symbol, e);
        ids[k++] = id_plus_1[symbol] - 1;
        at += length;
    }
    *count = k;
    return true;
}

static bool goes_on(uint8_t byte) /* 10xxxxxx: it cannot begin a character */
{
    return (byte & 0xC0) == 0x80;
}

/* A symbol begins at every byte that does not go on, and at one with three before it that do. */
static size_t char_cut(const uint8_t *text, size_t n)
{
    for (size_t p = n; p > 1 && n - p < UTF8_MAX_BYTES;)
        if (!goes_on(text[--p]))
            return p;
    return n > UTF8_MAX_BYTES ? n - 1 : 0;
}

const TokenizerKind tokenizer_char = {.name = "char",
                                      .create = char_create,
                                      .learn = char_learn,
                                      .learn_end = char_learn_end,
                                      .read = char_read,
                                      .write = char_write,
                                      .encode = char_encode,
                                      .cut = char_cut};
