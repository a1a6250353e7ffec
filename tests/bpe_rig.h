/* For tests of GPT-2's tokenizer: the files that it is read from, made from the small vocabulary of the reference, and ids beside
 * what they should be. Include after cmocka. */
#ifndef TALLY_TESTS_BPE_RIG_H
#define TALLY_TESTS_BPE_RIG_H

#include "base/json.h"
#include "data/tokenizer.h"
#include "tests/bpe_reference.h"
#include "tests/command.h"

/* Writes a vocab.json and a merges.txt into the new folder `dir`, from an object with "vocab" and "merges". */
static inline void pair_write(const char *dir, const json_t *source)
{
    char path[PATH_SIZE];
    Error e = {0};
    json_t *line;
    size_t i;
    assert_true(dir_make(dir, &e) && path_join(path, dir, "vocab.json", &e));
    assert_true(json_write(path, json_object_get(source, "vocab"), &e) && path_join(path, dir, "merges.txt", &e));
    FILE *f = fopen(path, "w");
    fprintf(f, "#version: 0.2\n");
    json_array_foreach(json_object_get(source, "merges"), i, line) fprintf(f, "%s\n", json_string_value(line));
    fclose(f);
}

static inline void tokenizer_json_write(const char *dir, const json_t *root)
{
    char path[PATH_SIZE];
    Error e = {0};
    assert_true(dir_make(dir, &e) && path_join(path, dir, "tokenizer.json", &e) && json_write(path, root, &e));
}

static inline Tokenizer *loaded(const char *where)
{
    Error e = {0};
    Tokenizer *t = tokenizer_load(where, &e);
    if (!t)
        fail_msg("%s", e.text);
    return t;
}

static inline Tokenizer *small_tokenizer(void)
{
    Error e = {0};
    json_t *meta = small_meta();
    Tokenizer *t = tokenizer_from_json(meta, "small", &e);
    json_decref(meta);
    if (!t)
        fail_msg("%s", e.text);
    return t;
}

static inline int64_t encode(const Tokenizer *t, const void *text, size_t n, int32_t **ids)
{
    Error e = {0};
    int64_t count;
    if (!tokenizer_encode(t, text, n, ids, &count, &e))
        fail_msg("%s", e.text);
    return count;
}

static inline void assert_decodes(const Tokenizer *t, const int32_t *ids, int64_t count, const uint8_t *text, size_t n)
{
    size_t at = 0, piece_n;
    for (int64_t i = 0; i < count; i++, at += piece_n) {
        const uint8_t *piece = tokenizer_piece(t, ids[i], &piece_n);
        assert_true(piece && piece_n <= n - at);
        assert_memory_equal(piece, text + at, piece_n);
    }
    assert_int_equal(at, n);
}

/* The pieces of a text, with '|' between them, are these. */
static inline void assert_pieces(const Tokenizer *t, const char *text, size_t n, const char *want)
{
    char got[256] = "", *end = got;
    int32_t *ids;
    int64_t count = encode(t, text, n, &ids);
    for (int64_t i = 0; i < count; i++) {
        size_t piece_n;
        const uint8_t *piece = tokenizer_piece(t, ids[i], &piece_n);
        for (size_t k = 0; k < piece_n; k++)
            *end++ = piece[k] ? (char)piece[k] : '0';
        *end++ = i + 1 < count ? '|' : 0;
    }
    free(ids);
    if (strcmp(got, want) != 0)
        fail_msg("\"%s\": %s, not %s", text, got, want);
}

/* A random text of pieces that make words, and bytes that break them. Returns its bytes. */
static inline size_t random_text(uint8_t *text, size_t room)
{
    static const char *const pieces[] = {"h",
                                         "e",
                                         "l",
                                         "l",
                                         "o",
                                         "hello",
                                         " world",
                                         "w",
                                         "or",
                                         "d",
                                         "'s",
                                         "'",
                                         "s",
                                         "'re",
                                         "'l",
                                         " ",
                                         " ",
                                         "  ",
                                         "\n",
                                         "\n\n",
                                         "\r",
                                         "\t",
                                         "1",
                                         "12",
                                         "!",
                                         "!!",
                                         "^^^",
                                         "aaa",
                                         "--",
                                         "\xC2\x85",
                                         "\xC2\xA0",
                                         "\xE3\x80\x80",
                                         "\xE2\x80\x83",
                                         "\xE1\xA0\x8E",
                                         "\xE2\x80\x8B",
                                         "\xC3\xA9",
                                         "\xD0\xB6",
                                         "\xE4\xB8\xAD",
                                         "\xC2\xBD",
                                         "\xD9\xA1",
                                         "\xF0\x9F\xA6\x99",
                                         "\xE2\x80\x99",
                                         "\x80",
                                         "\xFF",
                                         "\xFF\xFF",
                                         "\xE2\x80",
                                         "\xF0\x9F",
                                         ""};
    size_t n = 0;
    while (n + 8 < room) {
        const char *piece = pieces[(size_t)rand() % (sizeof pieces / sizeof *pieces)];
        size_t length = *piece ? strlen(piece) : 1; /* "" stands for a NUL */
        memcpy(text + n, piece, length);
        n += length;
    }
    return n;
}

static inline void assert_as_reference(const Tokenizer *t, const uint8_t *text, size_t n)
{
    int32_t *ids, *want = malloc((n + 1) * sizeof *want), *left, *right;
    int64_t count = encode(t, text, n, &ids);
    assert_int_equal(count, reference_encode(text, n, want));
    assert_memory_equal(ids, want, (size_t)count * sizeof *ids);
    assert_decodes(t, ids, count, text, n);
    for (int i = 0; i < 5; i++) { /* cut where only a part of the text is known */
        size_t known = (size_t)rand() % (n + 1), cut = tokenizer_cut(t, text, known);
        assert_true(cut <= known);
        int64_t left_count = encode(t, text, cut, &left), right_count = encode(t, text + cut, n - cut, &right);
        assert_int_equal(left_count + right_count, count);
        assert_memory_equal(left, ids, (size_t)left_count * sizeof *ids);
        assert_memory_equal(right, ids + left_count, (size_t)right_count * sizeof *ids);
        free(left);
        free(right);
    }
    free(ids);
    free(want);
}

#endif
