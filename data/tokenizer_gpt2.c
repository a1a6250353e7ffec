/* GPT-2's tokenizer (Radford et al. 2019): a text is cut into words (data/words.h), and each word is byte pair encoded
 * (data/bpe.h).
 *
 * A token is written in the files as text of 256 printable characters, one for each byte: the printable ones of Latin-1 stand for
 * themselves, and U+0100 and up for the others in their order.
 *
 * In meta.json: "vocab" {token: id}, "merges" ["left right", ...], "special_tokens" {text: id}. */
#include "base/json.h"
#include "data/bpe.h"
#include "data/gpt2_files.h"
#include "data/tokenizer_kind.h"
#include "data/utf8.h"
#include "data/words.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { CACHE_SLOTS = 1 << 15, CACHED_BYTES = 30, CACHED_IDS = 8, ALPHABET_END = 256 + 68 };

/* A word and its ids, 64 bytes: one line of the processor's cache. */
typedef struct Cached {
    uint8_t n, count; /* n = 0: nothing */
    uint8_t word[CACHED_BYTES];
    int32_t ids[CACHED_IDS];
} Cached;

/* What a thread encodes with. */
typedef struct Worker {
    struct Worker *next; /* in the list of those that have nothing to do */
    WordMatch *match;
    BpeScratch scratch;
    Cached cache[CACHE_SLOTS]; /* by the hash of the word */
} Worker;

typedef struct Gpt2 {
    Bpe bpe;
    WordPattern *words;
    json_t *vocab, *merges;
    pthread_mutex_t lock; /* of `idle` */
    Worker *idle;
} Gpt2;

/* ---- From the files to tables ---- */

/* The character that stands for a byte. */
static int32_t alphabet_symbol(int byte)
{
    int32_t others = 256;
    for (int b = 0; b <= byte; b++) {
        bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b != 0xAD);
        if (b == byte)
            return printable ? b : others;
        others += !printable;
    }
    return others;
}

/* Fills in names[id] of all tokens: those of the vocabulary, and special ones that are not in it. */
static bool names_take(const json_t *tokens, const char *field, const char **names, int64_t n, Error *e)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)tokens, name, value)
    {
        json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
        if (id < 0 || id >= n)
            return error_set(e, "%s: \"%.40s\" needs an id from 0 to %lld: there are %lld tokens, and no id is left out", field,
                             name, (long long)n - 1, (long long)n);
        if (names[id] && strcmp(names[id], name) != 0)
            return error_set(e, "%s: \"%.40s\" has the id %lld, which is that of \"%.40s\"", field, name, (long long)id,
                             names[id]);
        names[id] = name;
    }
    return true;
}

/* Appends the bytes that a token's name stands for to the pieces, as those of `id`. */
static bool piece_make(Tokenizer *t, int32_t id, const char *name, bool special, const int16_t *byte_of, Error *e)
{
    const uint8_t *text = (const uint8_t *)name;
    size_t n = strlen(name), end = t->start[id];
    for (size_t at = 0; at < n && !special;) {
        int32_t symbol;
        at += utf8_next(text + at, n - at, &symbol);
        if (symbol >= ALPHABET_END || byte_of[symbol] < 0)
            return error_set(e, "vocab: \"%.40s\" (id %d) has the character U+%04X, which stands for no byte", name, id,
                             (unsigned)symbol);
        t->bytes[end++] = (uint8_t)byte_of[symbol];
    }
    if (special) {
        memcpy(t->bytes + end, name, n);
        end += n;
    }
    t->start[id + 1] = end;
    return n > 0 || error_set(e, "vocab: the token of id %d is an empty text", id);
}

static bool pieces_make(Tokenizer *t, const json_t *vocab, const json_t *special, Error *e)
{
    const char *name;
    json_t *value;
    size_t n = json_object_size(vocab), total = 0;
    json_object_foreach((json_t *)special, name, value) n += !json_object_get(vocab, name);
    const char **names = memory_get(e, n, sizeof *names, "the names of the tokens");
    bool good =
        names && names_take(vocab, "vocab", names, (int64_t)n, e) && names_take(special, "special_tokens", names, (int64_t)n, e);
    for (size_t i = 0; good && i < n; i++)
        total += strlen(names[i]);
    good = good && tokenizer_make_pieces(t, (int64_t)n, total, e);
    int16_t byte_of[ALPHABET_END];
    memset(byte_of, -1, sizeof byte_of);
    for (int b = 0; b < 256; b++)
        byte_of[alphabet_symbol(b)] = (int16_t)b;
    for (size_t i = 0; good && i < n; i++)
        good = piece_make(t, (int32_t)i, names[i], json_object_get(special, names[i]) != NULL, byte_of, e);
    free(names);
    return good;
}

/* The id of a token of the vocabulary, by its name [n]; -1 when there is none. */
static int32_t id_find(const json_t *vocab, const char *name, size_t n)
{
    const json_t *id = json_object_getn(vocab, name, n);
    return id ? (int32_t)json_integer_value(id) : -1;
}

static bool bytes_find(Gpt2 *g, Error *e)
{
    for (int b = 0; b < 256; b++) {
        char name[UTF8_MAX_BYTES];
        g->bpe.byte_id[b] = id_find(g->vocab, name, utf8_put(alphabet_symbol(b), (uint8_t *)name));
        if (g->bpe.byte_id[b] < 0)
            return error_set(e, "vocab: has no token for the byte 0x%02X (U+%04X): every byte needs one", b,
                             (unsigned)alphabet_symbol(b));
    }
    return true;
}

/* Reads a merge, "left right" or ["left", "right"]; `joined` has room for the longest of the tokens, `longest` bytes. */
static bool merge_take(const json_t *vocab, const json_t *item, char *joined, size_t longest, BpeMerge *merge)
{
    const char *left = json_string_value(json_is_array(item) ? json_array_get(item, 0) : item), *right;
    if (!left)
        return false;
    size_t left_n, right_n;
    if (json_is_array(item)) {
        right = json_string_value(json_array_get(item, 1));
        left_n = strlen(left);
    } else {
        right = strchr(left, ' ');
        left_n = right ? (size_t)(right++ - left) : 0;
    }
    if (!right || (right_n = strlen(right)) > longest || left_n > longest - right_n)
        return false;
    memcpy(joined, left, left_n);
    memcpy(joined + left_n, right, right_n);
    *merge = (BpeMerge){id_find(vocab, left, left_n), id_find(vocab, right, right_n), id_find(vocab, joined, left_n + right_n)};
    return merge->left >= 0 && merge->right >= 0 && merge->made >= 0;
}

static bool merges_make(Gpt2 *g, Error *e)
{
    const char *name;
    json_t *item;
    size_t i, longest = 0, n = json_array_size(g->merges);
    json_object_foreach(g->vocab, name, item) longest = strlen(name) > longest ? strlen(name) : longest;
    char *joined = memory_get(e, longest, 1, "a token");
    BpeMerge *merges = memory_get(e, n, sizeof *merges, "the merges");
    bool good = joined && merges;
    json_array_foreach(g->merges, i, item) if (good && !merge_take(g->vocab, item, joined, longest, &merges[i]))
    {
        char *text = json_dumps(item, JSON_ENCODE_ANY | JSON_COMPACT);
        good = error_set(e, "merges: number %zu, %.60s, is not two tokens of the vocabulary that make a third", i + 1, text);
        free(text);
    }
    good = good && bpe_create(&g->bpe, merges, n, e);
    free(joined);
    free(merges);
    return good;
}

/* Which tokens can ordinary text have? Those of bytes, and what merges make. [vocab_size]; NULL after an error. */
static bool *ordinary_find(const Gpt2 *g, int64_t vocab_size, Error *e)
{
    bool *ordinary = memory_get(e, (size_t)vocab_size, sizeof *ordinary, "the ordinary tokens");
    for (int b = 0; ordinary && b < 256; b++)
        ordinary[g->bpe.byte_id[b]] = true;
    for (size_t i = 0; ordinary && i < json_array_size(g->merges); i++)
        ordinary[g->bpe.made[i]] = true;
    return ordinary;
}

/* Is that token special, in a vocab.json, which doesn't say? If it looks like <this> and cannot come from ordinary text. */
static bool looks_special(const Tokenizer *t, const char *name, int32_t id, const bool *ordinary)
{
    size_t n = strlen(name), piece_n;
    const uint8_t *piece = tokenizer_piece(t, id, &piece_n);
    return !ordinary[id] && name[0] == '<' && name[n - 1] == '>' && piece_n == n && memcmp(piece, name, n) == 0;
}

/* The special tokens: those that are given, or else what looks like one. */
static bool special_make(Tokenizer *t, const json_t *given, Error *e)
{
    Gpt2 *g = t->state;
    const json_t *from = given ? given : g->vocab;
    const char *name;
    json_t *value;
    bool *ordinary = ordinary_find(g, t->vocab_size, e), good = ordinary != NULL;
    t->special = memory_get(e, json_object_size(from), sizeof *t->special, "the special tokens");
    json_object_foreach((json_t *)from, name, value)
    {
        int32_t id = (int32_t)json_integer_value(value);
        if (!good || !t->special || (!given && !looks_special(t, name, id, ordinary)))
            continue;
        if (ordinary[id] || strpbrk(name, " \t\n\v\f\r")) /* where a text may be cut */
            good =
                error_set(e, "special_tokens: \"%.40s\" %s", name, ordinary[id] ? "is also ordinary text" : "has a blank in it");
        t->special[t->specials++] = id;
    }
    free(ordinary);
    return good && t->special;
}

/* ---- Words to ids ---- */

static void worker_destroy(Worker *w)
{
    word_match_destroy(w->match);
    bpe_scratch_free(&w->scratch);
    free(w);
}

/* Takes a worker that has nothing to do, or makes one. */
static Worker *worker_take(Gpt2 *g, Error *e)
{
    pthread_mutex_lock(&g->lock);
    Worker *w = g->idle;
    g->idle = w ? w->next : NULL;
    pthread_mutex_unlock(&g->lock);
    if (w || !(w = memory_get(e, 1, sizeof *w, "the cache of words")))
        return w;
    if ((w->match = word_match_create(e)))
        return w;
    worker_destroy(w);
    return NULL;
}

static void worker_give(Gpt2 *g, Worker *w)
{
    pthread_mutex_lock(&g->lock);
    w->next = g->idle;
    g->idle = w;
    pthread_mutex_unlock(&g->lock);
}

static bool word_encode(const Gpt2 *g, Worker *w, const uint8_t *word, size_t n, int32_t *ids, int64_t *count, Error *e)
{
    if (n > CACHED_BYTES)
        return bpe_encode(&g->bpe, &w->scratch, word, n, ids, count, e);
    uint32_t hash = 2166136261; /* FNV-1a */
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ word[i]) * 16777619;
    Cached *c = &w->cache[(hash ^ hash >> 16) % CACHE_SLOTS];
    if (c->n != n || memcmp(c->word, word, n) != 0) {
        if (!bpe_encode(&g->bpe, &w->scratch, word, n, ids, count, e))
            return false;
        if (*count > CACHED_IDS)
            return true;
        c->n = (uint8_t)n;
        c->count = (uint8_t)*count;
        memcpy(c->word, word, n);
        memcpy(c->ids, ids, (size_t)*count * sizeof *ids);
        return true;
    }
    *count = c->count;
    memcpy(ids, c->ids, c->count * sizeof *ids);
    return true;
}

static bool gpt2_encode(const Tokenizer *t, const uint8_t *text, size_t begin, size_t end, int32_t *ids, int64_t *count, Error *e)
{
    Gpt2 *g = t->state;
    Worker *w = worker_take(g, e);
    bool good = w != NULL;
    int64_t k = 0, n = 0;
    for (size_t at = begin, next = end; good && at < end; at = next) {
        good = word_find(g->words, w->match, text + begin, end - begin, at - begin, &next, e);
        next += begin;
        good = good && word_encode(g, w, text + at, next - at, ids + k, &n, e);
        k += n;
        if (!good)
            error_prefix(e, "byte offset %zu", at);
    }
    if (w)
        worker_give(g, w);
    *count = k;
    return good;
}

/* ---- The kind ---- */

static void gpt2_destroy(Tokenizer *t)
{
    Gpt2 *g = t->state;
    for (Worker *w = g ? g->idle : NULL, *next; w; w = next) {
        next = w->next;
        worker_destroy(w);
    }
    if (!g)
        return;
    json_decref(g->vocab);
    json_decref(g->merges);
    word_pattern_destroy(g->words);
    pthread_mutex_destroy(&g->lock);
    bpe_free(&g->bpe);
}

/* Builds the tokenizer from what meta.json and the published files have in common. */
static bool gpt2_read(Tokenizer *t, const json_t *source, Error *e)
{
    json_t *vocab = NULL, *special = NULL, *merges = json_object_get(source, "merges");
    Gpt2 *g = t->state = memory_get(e, 1, sizeof *g, "a tokenizer");
    if (!g)
        return false;
    pthread_mutex_init(&g->lock, NULL);
    if (!json_get_object(source, "vocab", &vocab, true, e) || !json_get_object(source, "special_tokens", &special, false, e))
        return false;
    if (!json_is_array(merges))
        return error_set(e, "merges: a list is needed");
    g->vocab = json_incref(vocab);
    g->merges = json_incref(merges);
    return pieces_make(t, g->vocab, special, e) && bytes_find(g, e) && merges_make(g, e) && special_make(t, special, e) &&
           (g->words = word_pattern_create(e));
}

static bool gpt2_open(Tokenizer *t, const char *dir, Error *e)
{
    json_t *source = gpt2_files_read(dir, e);
    bool good = source && (gpt2_read(t, source, e) || error_prefix(e, "%s", dir));
    json_decref(source);
    return good;
}

static bool gpt2_write(const Tokenizer *t, json_t *meta, Error *e)
{
    const Gpt2 *g = t->state;
    json_t *special = json_object();
    bool good = json_object_set(meta, "vocab", g->vocab) == 0 && json_object_set(meta, "merges", g->merges) == 0;
    for (int32_t i = 0; i < t->specials; i++) {
        size_t n;
        const char *text = (const char *)tokenizer_piece(t, t->special[i], &n);
        good = good && json_object_setn_new(special, text, n, json_integer(t->special[i])) == 0;
    }
    return (json_object_set_new(meta, "special_tokens", special) == 0 && good) ||
           error_set(e, "out of host memory for meta.json");
}

const TokenizerKind tokenizer_gpt2 = {.name = "gpt2",
                                      .open = gpt2_open,
                                      .read = gpt2_read,
                                      .write = gpt2_write,
                                      .encode = gpt2_encode,
                                      .cut = words_cut,
                                      .destroy = gpt2_destroy};
