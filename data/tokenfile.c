#include "data/tokenfile.h"

#include <endian.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER_WORDS = 256, HEADER_BYTES = 4 * HEADER_WORDS };

/* The two llm.c formats; a file that begins with neither magic is headerless. */
static const struct Format {
    int32_t magic, version;
    int width;
} formats[] = {{20240520, 1, 2}, {20240801, 7, 4}};

static int32_t header_word(const uint8_t *bytes, int index)
{
    uint32_t word;
    memcpy(&word, bytes + 4 * index, 4);
    return (int32_t)le32toh(word);
}

static bool parse_header(TokenFile *f, const uint8_t *bytes, size_t n, const struct Format *format, Error *e)
{
    if (n < HEADER_BYTES)
        return error_set(e, "begins like an llm.c token file but ends after %zu bytes, inside the %d bytes of the header", n,
                         HEADER_BYTES);
    int32_t version = header_word(bytes, 1), claimed = header_word(bytes, 2);
    size_t held = n - HEADER_BYTES;
    if (version != format->version)
        return error_set(e, "is an llm.c token file (magic %d) of version %d; version %d is understood", format->magic, version,
                         format->version);
    if (claimed < 0)
        return error_set(e, "the header claims a negative number of tokens, %d", claimed);
    if ((uint64_t)claimed * (unsigned)format->width != held)
        return error_set(e,
                         "the header claims %d tokens of %d bytes, %" PRId64
                         " bytes, but %zu bytes follow it: the file is cut short or "
                         "not finished; make it again",
                         claimed, format->width, (int64_t)claimed * format->width, held);
    *f = (TokenFile){bytes + HEADER_BYTES, claimed, format->width, HEADER_BYTES};
    return true;
}

static bool parse_headerless(TokenFile *f, const uint8_t *bytes, size_t n, Error *e)
{
    if (n % 2 != 0)
        return error_set(e, "has %zu bytes, an odd number, and no llm.c header: a file of 16-bit tokens has two bytes for each",
                         n);
    *f = (TokenFile){bytes, (int64_t)(n / 2), 2, 0};
    return true;
}

bool token_file_parse(TokenFile *f, const uint8_t *bytes, size_t n, const char *name, Error *e)
{
    const struct Format *format = NULL;
    for (size_t i = 0; n >= 4 && i < sizeof formats / sizeof *formats; i++)
        if (header_word(bytes, 0) == formats[i].magic)
            format = &formats[i];
    bool good = format ? parse_header(f, bytes, n, format, e) : parse_headerless(f, bytes, n, e);
    if (good && f->count == 0)
        good = error_set(e, "holds no tokens; training needs at least block_size + 1");
    return good || error_prefix(e, "%s", name);
}

/* Tokens -> int32; ids of 2^31 and more become negative. Returns the largest as unsigned: loops that a compiler turns into vector
 * code. */
static uint32_t widen(const uint8_t *from, int width, int64_t count, int32_t *out)
{
    uint32_t largest = 0;
    for (int64_t i = 0; width == 2 && i < count; i++) {
        uint16_t token;
        memcpy(&token, from + 2 * i, 2);
        token = le16toh(token);
        largest = token > largest ? token : largest;
        out[i] = token;
    }
    for (int64_t i = 0; width == 4 && i < count; i++) {
        uint32_t token;
        memcpy(&token, from + 4 * i, 4);
        token = le32toh(token);
        largest = token > largest ? token : largest;
        out[i] = (int32_t)token;
    }
    return largest;
}

bool token_file_read(const TokenFile *f, int64_t first, int64_t count, int64_t vocab_size, int32_t *out, const char *name,
                     Error *e)
{
    if (widen(f->tokens + first * f->width, f->width, count, out) < vocab_size)
        return true;
    int64_t i = 0;
    while (i < count && (uint32_t)out[i] < vocab_size)
        i++;
    if (i == count) /* nothing to read, or no vocabulary */
        return true;
    return error_set(e, "%s: token %" PRId64 ", at byte offset %" PRId64 ", is %u, but the vocabulary is 0 .. %" PRId64, name,
                     first + i, f->offset + (first + i) * f->width, (uint32_t)out[i], vocab_size - 1);
}

/* ---- Writing ---- */

static const struct Format *format_for(int64_t vocab_size)
{
    return &formats[vocab_size > TOKEN_FILE_NARROW];
}

static bool header_write(TokenWriter *w, bool again, Error *e)
{
    const struct Format *f = format_for(w->vocab_size);
    uint32_t header[HEADER_WORDS] = {htole32((uint32_t)f->magic), htole32((uint32_t)f->version), htole32((uint32_t)w->count)};
    return again ? file_write_at(&w->file, 0, header, sizeof header, e) : file_append(&w->file, header, sizeof header, e);
}

bool token_writer_create(TokenWriter *w, const char *path, int64_t vocab_size, Error *e)
{
    w->vocab_size = vocab_size;
    w->count = 0;
    w->filled = 0;
    if (!file_create(&w->file, path, e))
        return false;
    if (header_write(w, false, e))
        return true;
    file_abandon(&w->file);
    return false;
}

static bool buffer_write(TokenWriter *w, Error *e)
{
    size_t n = w->filled;
    w->filled = 0;
    return file_append(&w->file, w->buffer, n, e);
}

bool token_writer_append(TokenWriter *w, const int32_t *ids, int64_t n, Error *e)
{
    const size_t width = (size_t)format_for(w->vocab_size)->width;
    for (int64_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= w->vocab_size)
            return error_set(e, "%s: token %" PRId64 " is %d, but the vocabulary is 0 .. %" PRId64, w->file.path, w->count,
                             ids[i], w->vocab_size - 1);
        uint32_t id = htole32((uint32_t)ids[i]); /* its low bytes come first */
        memcpy(w->buffer + w->filled, &id, width);
        w->filled += width;
        w->count++;
        if (w->filled == sizeof w->buffer && !buffer_write(w, e))
            return false;
    }
    return true;
}

bool token_writer_finish(TokenWriter *w, Error *e)
{
    if (buffer_write(w, e) && header_write(w, true, e))
        return file_finish(&w->file, e);
    file_abandon(&w->file);
    return false;
}
