/* Characters as tokens: the kinds of character (symbols of data/utf8.h) that the training text has, in ascending order, get the
 * ids 0, 1, 2, ... Encoding looks a symbol up in a table over all of Unicode, of which only the pages in use ever become real
 * memory. */
#include "base/json.h"
#include "data/tokenizer_kind.h"
#include "data/utf8.h"

#include <stdlib.h>
#include <string.h>

/* Builds pieces and table from symbols[0 .. kinds), which are valid and strictly ascending. */
static bool char_pieces(Tokenizer *t, const int32_t *symbols, int64_t kinds, Error *e)
{
    int32_t *id_plus_1 = t->state = memory_get(e, UTF8_SYMBOLS, sizeof *id_plus_1, "the table of characters"); /* 0: no such */
    if (!id_plus_1 || !tokenizer_make_pieces(t, kinds, (size_t)kinds * UTF8_MAX_BYTES, e))
        return false;
    for (int64_t i = 0; i < kinds; i++) {
        t->start[i + 1] = t->start[i] + utf8_put(symbols[i], t->bytes + t->start[i]);
        id_plus_1[symbols[i]] = (int32_t)i + 1;
    }
    return true;
}

static bool char_learn(Tokenizer *t, const uint8_t *text, size_t n, Error *e)
{
    if (n == 0)
        return error_set(e, "the text is empty: a character tokenizer takes its vocabulary from a text");
    int32_t *symbols = memory_get(e, UTF8_SYMBOLS, sizeof *symbols, "the characters of the text"), symbol;
    if (!symbols)
        return false;
    for (size_t at = 0; at < n; symbols[symbol] = 1) /* marks which occur ... */
        at += utf8_next(text + at, n - at, &symbol);
    int64_t kinds = 0;
    for (int32_t s = 0; s < UTF8_SYMBOLS; s++) /* ... and gathers them at the front */
        if (symbols[s])
            symbols[kinds++] = s;
    bool good = char_pieces(t, symbols, kinds, e);
    free(symbols);
    return good;
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
    const json_t *list = json_object_get(meta, "characters");
    size_t kinds = json_array_size(list);
    if (kinds == 0)
        return error_set(e, "characters: a character tokenizer needs a list of code points here, at least one");
    int32_t *symbols = memory_get(e, kinds, sizeof *symbols, "the characters of the vocabulary");
    bool good = symbols != NULL;
    for (size_t i = 0; good && i < kinds; i++) {
        const json_t *value = json_array_get(list, i);
        good = char_check(value, (int64_t)i, i ? symbols[i - 1] : -1, e);
        if (good)
            symbols[i] = (int32_t)json_integer_value(value);
    }
    good = good && char_pieces(t, symbols, (int64_t)kinds, e);
    free(symbols);
    return good;
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

static bool char_encode(const Tokenizer *t, const uint8_t *text, size_t n, int32_t *ids, int64_t *count, Error *e)
{
    const int32_t *id_plus_1 = t->state;
    int64_t k = 0;
    for (size_t at = 0; at < n;) {
        int32_t symbol;
        size_t length = utf8_next(text + at, n - at, &symbol);
        if (id_plus_1[symbol] == 0)
            return char_unknown(t, text, at, length, symbol, e);
        ids[k++] = id_plus_1[symbol] - 1;
        at += length;
    }
    *count = k;
    return true;
}

const TokenizerKind tokenizer_char = {"char", char_learn, char_read, char_write, char_encode};
