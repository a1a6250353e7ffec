/* libFuzzer: any bytes as the files of a tokenizer. The first one says which:
 *
 *     m    a meta.json             t    a tokenizer.json       v    a vocab.json       l    a merges.txt, beside a good
 * vocab.json c    JSON that changes a good meta.json                  k    JSON that changes a good tokenizer.json
 *
 * They are refused with a message, or make a tokenizer that loses no byte and that its own meta.json makes again. */
#include "base/file.h"
#include "base/json.h"
#include "data/tokenizer.h"
#include "tests/bpe_reference.h"

#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition)
        abort();
}

/* ---- Files, in a folder of this process ---- */

static char folder[] = "/tmp/fuzz-tokenizer-XXXXXX";

static void folder_remove(void)
{
    Error e = {0};
    dir_remove(folder, &e);
}

static void put(const char *name, const void *bytes, size_t n)
{
    char path[PATH_SIZE];
    Error e = {0};
    require(path_join(path, folder, name, &e));
    FILE *f = fopen(path, "w");
    require(f && fwrite(bytes, 1, n, f) == n && fclose(f) == 0);
}

static void put_json(const char *name, const json_t *value)
{
    char *text = json_dumps(value, 0);
    put(name, text, strlen(text));
    free(text);
}

/* The tokenizer of the folder's files. */
static Tokenizer *folder_load(Error *e)
{
    static const char *const names[] = {"tokenizer.json", "vocab.json", "merges.txt"};
    char path[PATH_SIZE];
    snprintf(path, sizeof path, "gpt2:%s", folder);
    Tokenizer *t = tokenizer_load(path, e);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    return t;
}

/* Changes `good` by the JSON, and gives it to what `read` does with it. */
static Tokenizer *changed_load(json_t *good, const char *text, size_t n, bool is_meta, Error *e)
{
    Tokenizer *t = NULL;
    json_t *change = json_parse(text, n, "fuzz", e);
    if (change && json_object_update_recursive(good, change) == 0 && is_meta) {
        t = tokenizer_from_json(good, "fuzz", e);
    } else if (change) {
        put_json("tokenizer.json", good);
        t = folder_load(e);
    }
    json_decref(change);
    json_decref(good);
    return t;
}

static Tokenizer *load(char kind, const char *text, size_t n, Error *e)
{
    json_t *meta = small_meta(), *vocab = json_object_get(meta, "vocab");
    Tokenizer *t = NULL;
    if (kind == 'c' || kind == 'k') {
        t = changed_load(kind == 'c' ? json_incref(meta) : small_tokenizer_json(meta), text, n, kind == 'c', e);
    } else if (kind == 'm') {
        json_t *given = json_parse(text, n, "fuzz", e);
        t = given ? tokenizer_from_json(given, "fuzz", e) : NULL;
        json_decref(given);
    } else {
        if (kind == 'l')
            put_json("vocab.json", vocab);
        else
            put("merges.txt", "h e\nl l\n", 8);
        put(kind == 't' ? "tokenizer.json" : kind == 'l' ? "merges.txt" : "vocab.json", text, n);
        t = folder_load(e);
    }
    json_decref(meta);
    return t;
}

/* ---- What is accepted ---- */

/* Encodes all bytes and some words, decodes them, and gives the ids. A kind of character that a `char` tokenizer does not know is
 * fine. */
static int32_t *round_trip(const Tokenizer *t, int64_t *count)
{
    uint8_t text[1024];
    size_t n = 0, at = 0, piece_n;
    int32_t *ids;
    Error e = {0};
    for (; n < 512; n++)
        text[n] = (uint8_t)(n / 2 + n % 2 * n);
    n += (size_t)snprintf((char *)text + n, sizeof text - n, "hello world<|endoftext|> 's^^^^^^^^\n\n ello  <a>\xC3\xA9!!");
    if (!tokenizer_encode(t, text, n, &ids, count, &e)) {
        require(e.set && strcmp(tokenizer_kind(t), "char") == 0);
        return NULL;
    }
    for (int64_t i = 0; i < *count; i++, at += piece_n) {
        const uint8_t *piece = tokenizer_piece(t, ids[i], &piece_n);
        require(piece && piece_n > 0 && piece_n <= n - at && memcmp(piece, text + at, piece_n) == 0);
    }
    require(at == n);
    return ids;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool ready;
    Error e = {0};
    if (!ready)
        require(mkdtemp(folder) && atexit(folder_remove) == 0);
    ready = true;
    if (size == 0)
        return 0;
    Tokenizer *t = load((char)data[0], (const char *)data + 1, size - 1, &e);
    require((t != NULL) != e.set);
    if (!t)
        return 0;
    tokenizer_allow_special(t, &(Error){0});
    json_t *meta = tokenizer_to_json(t, &e);
    Tokenizer *again = meta ? tokenizer_from_json(meta, "again", &e) : NULL;
    require(again && tokenizer_vocab_size(again) == tokenizer_vocab_size(t));
    tokenizer_allow_special(again, &(Error){0});
    int64_t count = 0, count_again = 0;
    int32_t *ids = round_trip(t, &count), *ids_again = round_trip(again, &count_again);
    require(count == count_again && (!ids || memcmp(ids, ids_again, (size_t)count * sizeof *ids) == 0));
    free(ids);
    free(ids_again);
    json_decref(meta);
    tokenizer_destroy(t);
    tokenizer_destroy(again);
    return 0;
}
