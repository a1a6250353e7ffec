/* What all kinds of tokenizer share: pieces and decoding, meta.json, and the list of kinds. */
#include "data/tokenizer.h"
#include "data/tokenizer_kind.h"

#include "base/file.h"
#include "base/json.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const TokenizerKind *const kinds[] = {&tokenizer_byte, &tokenizer_char, &tokenizer_gpt2};
static const char kinds_known[] = "byte, char, gpt2:DIR";

static const TokenizerKind *kind_find(const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strlen(kinds[i]->name) == n && memcmp(name, kinds[i]->name, n) == 0)
            return kinds[i];
    return NULL;
}

static Tokenizer *tokenizer_new(const TokenizerKind *kind, Error *e)
{
    Tokenizer *t = memory_get(e, 1, sizeof *t, "a tokenizer");
    if (t)
        t->kind = kind;
    return t;
}

/* Passes a finished tokenizer on, or destroys an unfinished one. */
static Tokenizer *tokenizer_if(bool good, Tokenizer *t)
{
    if (good)
        return t;
    tokenizer_destroy(t);
    return NULL;
}

Tokenizer *tokenizer_create(const char *which, Error *e)
{
    const char *colon = strchr(which, ':');
    const TokenizerKind *kind = kind_find(which, colon ? (size_t)(colon - which) : strlen(which));
    if (!kind && file_exists(which))
        return tokenizer_load(which, e);
    if (!kind || (colon ? !kind->open : !kind->create)) {
        error_usage(e, "no tokenizer is called \"%.100s\": known are %s, and a folder with a meta.json", which, kinds_known);
        return NULL;
    }
    Tokenizer *t = tokenizer_new(kind, e);
    return tokenizer_if(t && (colon ? kind->open(t, colon + 1, e) : kind->create(t, e)), t);
}

bool tokenizer_learns(const Tokenizer *t)
{
    return t->kind->learn && t->vocab_size == 0;
}

bool tokenizer_learn(Tokenizer *t, const uint8_t *text, size_t n, Error *e)
{
    return !tokenizer_learns(t) || t->kind->learn(t, text, n, e);
}

bool tokenizer_learn_end(Tokenizer *t, Error *e)
{
    return !tokenizer_learns(t) || t->kind->learn_end(t, e);
}

void tokenizer_destroy(Tokenizer *t)
{
    if (!t)
        return;
    if (t->kind->destroy)
        t->kind->destroy(t);
    free(t->bytes);
    free(t->start);
    free(t->special);
    free(t->state);
    free(t);
}

bool tokenizer_make_pieces(Tokenizer *t, int64_t vocab_size, size_t total, Error *e)
{
    t->vocab_size = vocab_size;
    t->bytes = memory_get(e, total, 1, "the pieces of the vocabulary");
    t->start = memory_get(e, (size_t)vocab_size + 1, sizeof *t->start, "the vocabulary");
    return t->bytes && t->start;
}

const char *tokenizer_kind(const Tokenizer *t)
{
    return t->kind->name;
}

int64_t tokenizer_vocab_size(const Tokenizer *t)
{
    return t->vocab_size;
}

json_t *tokenizer_to_json(const Tokenizer *t, Error *e)
{
    json_t *meta = json_pack("{s:s, s:I}", "tokenizer", t->kind->name, "vocab_size", (json_int_t)t->vocab_size);
    if (!meta) {
        error_set(e, "out of host memory for meta.json");
        return NULL;
    }
    if (!t->kind->write || t->kind->write(t, meta, e))
        return meta;
    json_decref(meta);
    return NULL;
}

/* Reads the vocabulary into t, whose kind is set, and compares its size with what the file says of it. */
static bool tokenizer_read(Tokenizer *t, const json_t *meta, Error *e)
{
    int64_t vocab_size = 0;
    if (!json_get_int(meta, "vocab_size", 1, INT32_MAX, &vocab_size, true, e) ||
        !(t->kind->read ? t->kind->read(t, meta, e) : t->kind->create(t, e)))
        return false;
    if (t->vocab_size != vocab_size)
        return error_set(e, "vocab_size: is %lld, but the \"%s\" vocabulary in this file has %lld ids", (long long)vocab_size,
                         t->kind->name, (long long)t->vocab_size);
    return true;
}

Tokenizer *tokenizer_from_json(const json_t *meta, const char *path, Error *e)
{
    const char *name = "";
    bool good = json_get_string(meta, "tokenizer", &name, true, e);
    const TokenizerKind *kind = kind_find(name, strlen(name));
    if (good && !kind)
        good = error_set(e, "tokenizer: is \"%.100s\": known are %s", name, kinds_known);
    Tokenizer *t = good ? tokenizer_new(kind, e) : NULL;
    good = t && tokenizer_read(t, meta, e);
    if (!good)
        error_prefix(e, "%s", path);
    return tokenizer_if(good, t);
}

Tokenizer *tokenizer_load(const char *where, Error *e)
{
    if (strcmp(where, "byte") == 0 || strncmp(where, "gpt2:", 5) == 0)
        return tokenizer_create(where, e);
    char path[PATH_SIZE];
    struct stat status;
    bool folder = stat(where, &status) == 0 && S_ISDIR(status.st_mode);
    if (folder && !path_join(path, where, "meta.json", e))
        return NULL;
    json_t *meta = json_read(folder ? path : where, e);
    Tokenizer *t = meta ? tokenizer_from_json(meta, folder ? path : where, e) : NULL;
    json_decref(meta);
    return t;
}

/* ---- Special tokens ---- */

int32_t tokenizer_special(const Tokenizer *t, const char *text)
{
    for (int32_t i = 0; i < t->specials; i++) {
        size_t n;
        const uint8_t *piece = tokenizer_piece(t, t->special[i], &n);
        if (n == strlen(text) && memcmp(piece, text, n) == 0)
            return t->special[i];
    }
    return -1;
}

bool tokenizer_allow_special(Tokenizer *t, Error *e)
{
    for (int32_t i = 0; i < t->specials; i++)
        t->special_first[t->bytes[t->start[t->special[i]]]] = true;
    return t->specials > 0 || error_usage(e, "the tokenizer (%s) has no special tokens that could be allowed", t->kind->name);
}

/* The longest special token that text[0 .. n) begins with, and its bytes; -1: none. */
static int32_t special_at(const Tokenizer *t, const uint8_t *text, size_t n, size_t *length)
{
    int32_t found = -1;
    *length = 0;
    for (int32_t i = 0; i < t->specials && t->special_first[text[0]]; i++) {
        size_t piece_n;
        const uint8_t *piece = tokenizer_piece(t, t->special[i], &piece_n);
        if (piece_n <= n && piece_n > *length && memcmp(text, piece, piece_n) == 0) {
            found = t->special[i];
            *length = piece_n;
        }
    }
    return found;
}

/* ---- Encoding: by several threads, each with a chunk of the text at a time ------------------------------------------- */

enum { CHUNK = 1 << 18 }; /* bytes, about: many for a thread to have something to do, few enough to share the work evenly */

typedef struct Chunk {
    size_t begin, end; /* in the text */
    int64_t count;     /* of its ids, which are put at ids[begin] at first */
    Error error;
} Chunk;

size_t tokenizer_cut(const Tokenizer *t, const uint8_t *text, size_t n)
{
    return t->kind->cut(text, n);
}

/* Cuts the text into chunks of at least CHUNK / 2 bytes. What has no place to cut stays in one piece. Returns their number. */
static size_t chunks_make(const Tokenizer *t, const uint8_t *text, size_t n, Chunk *chunks)
{
    size_t used = 0;
    for (size_t begin = 0, size = 0; begin < n; begin += size) {
        size_t room = CHUNK;
        while (room < n - begin && (size = tokenizer_cut(t, text + begin, room)) < room / 2)
            room *= 2;
        size = room < n - begin ? size : n - begin;
        chunks[used++] = (Chunk){.begin = begin, .end = begin + size};
    }
    return used;
}

/* Encodes a chunk: the special tokens in it, where they are allowed, and the ordinary text before, between and behind them. */
static void chunk_encode(const Tokenizer *t, const uint8_t *text, Chunk *c, int32_t *ids)
{
    for (size_t at = c->begin; at < c->end && !c->error.set;) {
        size_t begin = at, length = 0;
        int32_t special = -1;
        while (at < c->end && (special = special_at(t, text + at, c->end - at, &length)) < 0)
            at++;
        int64_t count = 0;
        if (at > begin)
            t->kind->encode(t, text, begin, at, ids + c->count, &count, &c->error);
        c->count += count;
        if (special >= 0)
            ids[c->count++] = special;
        at += length;
    }
}

bool tokenizer_encode(const Tokenizer *t, const uint8_t *text, size_t n, int32_t **ids, int64_t *count, Error *e)
{
    *count = 0;
    *ids = memory_get(e, n, sizeof **ids, "the token ids of a text");
    Chunk *chunks = *ids ? memory_get(e, n / (CHUNK / 2) + 1, sizeof *chunks, "the chunks of a text") : NULL;
    size_t used = chunks ? chunks_make(t, text, n, chunks) : 0;
#pragma omp parallel for schedule(dynamic) if (used > 1)
    for (size_t i = 0; i < used; i++)
        chunk_encode(t, text, &chunks[i], *ids + chunks[i].begin);
    for (size_t i = 0; i < used && !e->set; i++) {
        memmove(*ids + *count, *ids + chunks[i].begin, (size_t)chunks[i].count * sizeof **ids);
        *count += chunks[i].count;
        if (chunks[i].error.set)
            *e = chunks[i].error;
    }
    free(chunks);
    if (!e->set)
        return true;
    free(*ids);
    *ids = NULL;
    return false;
}

bool tokenizer_encode_prompt(const Tokenizer *t, const char *text, int32_t **ids, int64_t *count, Error *e)
{
    size_t n = strlen(text);
    const uint8_t *bytes = (const uint8_t *)text;
    Error none = {0};
    if (strcmp(text, "\n") == 0 && tokenizer_encode(t, bytes, n, ids, count, &none))
        return true;
    if (none.set)
        bytes = tokenizer_piece(t, 0, &n);
    if (n && tokenizer_encode(t, bytes, n, ids, count, e))
        return true;
    if (!n)
        error_set(e, "is empty; a sample has to begin with something");
    e->usage = true;
    return error_prefix(e, "prompt");
}

const uint8_t *tokenizer_piece(const Tokenizer *t, int32_t id, size_t *n)
{
    *n = 0;
    if (id < 0 || id >= t->vocab_size)
        return NULL;
    *n = t->start[id + 1] - t->start[id];
    return t->bytes + t->start[id];
}
