/* Tokenizers, token files and streams of shards. */
#include "base/file.h"
#include "base/json.h"
#include "data/stream.h"
#include "data/tokenfile.h"
#include "data/tokenizer.h"
#include "data/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[64]; /* of this run, removed at the end */

static const char *in_dir(const char *name)
{
    static char path[4][256];
    static int next;
    char *p = path[next++ % 4];
    snprintf(p, sizeof path[0], "%s/%s", dir, name);
    return p;
}

static const char *write_bytes(const char *name, const void *bytes, size_t n)
{
    const char *path = in_dir(name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
    return path;
}

static char *read_bytes(const char *path, size_t *n)
{
    char *bytes;
    Error e = {0};
    if (!file_read_all(path, SIZE_MAX, &bytes, n, &e))
        fail_msg("%s", e.text);
    return bytes;
}

static void assert_says(const Error *e, const char *part)
{
    if (!e->set || !strstr(e->text, part))
        fail_msg("wanted a message with \"%s\", got \"%s\"", part, e->set ? e->text : "(no error)");
}

/* ---- Tokenizers ---- */

static void utf8_symbols(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n, taken;
        int32_t symbol;
    } cases[] = {
        {"A", 1, 1, 'A'},
        {"\0", 1, 1, 0},
        {"\xC3\xA9", 2, 2, 0xE9},
        {"\xE2\x82\xAC", 3, 3, 0x20AC},
        {"\xF0\x9F\xA6\x99", 4, 4, 0x1F999},
        {"\xF4\x8F\xBF\xBF", 4, 4, 0x10FFFF},
        {"\xC3", 1, 1, 0xDCC3}, /* cut short                   */
        {"\xC3"
         "A",
         2, 1, 0xDCC3},                     /* no continuation             */
        {"\x80", 1, 1, 0xDC80},             /* a continuation alone        */
        {"\xC0\x80", 2, 1, 0xDCC0},         /* overlong                    */
        {"\xE0\x9F\xBF", 3, 1, 0xDCE0},     /* overlong                    */
        {"\xF0\x8F\xBF\xBF", 4, 1, 0xDCF0}, /* overlong                    */
        {"\xED\xB2\x80", 3, 1, 0xDCED},     /* the surrogate U+DC80 itself */
        {"\xF4\x90\x80\x80", 4, 1, 0xDCF4}, /* beyond U+10FFFF             */
        {"\xFF\xFE", 2, 1, 0xDCFF},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int32_t symbol;
        uint8_t back[UTF8_MAX_BYTES];
        assert_int_equal(utf8_next((const uint8_t *)cases[i].bytes, cases[i].n, &symbol), cases[i].taken);
        assert_int_equal(symbol, cases[i].symbol);
        assert_true(utf8_symbol_valid(symbol));
        assert_int_equal(utf8_put(symbol, back), cases[i].taken);
        assert_memory_equal(back, cases[i].bytes, cases[i].taken);
    }
    assert_false(utf8_symbol_valid(0xD800) || utf8_symbol_valid(0xDC7F) || utf8_symbol_valid(0xDD00) || utf8_symbol_valid(-1) ||
                 utf8_symbol_valid(0x110000));
    assert_int_equal(utf8_count((const uint8_t *)"h\xC3\xA9\xFFo", 5), 4);
    assert_int_equal(utf8_offset((const uint8_t *)"h\xC3\xA9\xFFo", 5, 2), 3);
}

static Tokenizer *tokenizer_learned(const char *which, const void *text, size_t n)
{
    Error e = {0};
    Tokenizer *t = tokenizer_create(which, &e);
    if (!t || !tokenizer_learn(t, text, n, &e) || !tokenizer_learn_end(t, &e) || tokenizer_learns(t))
        fail_msg("%s", e.text);
    return t;
}

/* The ids of text[0 .. n) encoded in two parts, cut where tokenizer_cut says for its first `known` bytes, are these. */
static void assert_cut(const Tokenizer *t, const uint8_t *text, size_t n, size_t known, const int32_t *ids, int64_t count)
{
    Error e = {0};
    int32_t *part;
    int64_t part_count, first = 0;
    size_t cut = tokenizer_cut(t, text, known);
    assert_true(cut <= known);
    for (int half = 0; half < 2; half++, first += part_count) {
        assert_true(tokenizer_encode(t, text + (half ? cut : 0), half ? n - cut : cut, &part, &part_count, &e));
        assert_true(first + part_count <= count);
        assert_memory_equal(part, ids + first, (size_t)part_count * sizeof *ids);
        free(part);
    }
    assert_int_equal(first, count);
}

static void assert_round_trip(const Tokenizer *t, const uint8_t *text, size_t n)
{
    Error e = {0};
    int32_t *ids;
    int64_t count;
    uint8_t streamed[4096];
    size_t at = 0, piece_n;
    assert_true(tokenizer_encode(t, text, n, &ids, &count, &e));
    for (int64_t i = 0; i < count; i++, at += piece_n) {
        const uint8_t *piece = tokenizer_piece(t, ids[i], &piece_n);
        memcpy(streamed + at, piece, piece_n);
    }
    assert_int_equal(at, n);
    assert_memory_equal(streamed, text, n);
    for (int i = 0; i < 10; i++)
        assert_cut(t, text, n, (size_t)rand() % (n + 1), ids, count);
    free(ids);
}

/* Random bytes, half of them from a set that often makes (almost) well-formed UTF-8; through meta.json and back as well. */
static void tokenizers_round_trip(void **state)
{
    (void)state;
    static const char spice[] = "ab\n\xC3\xA9\xE2\x82\xAC\xF0\x9F\xA6\x99\xED\xA0\x80\xF4\x80\xC0";
    const char *kinds[] = {"byte", "char"}, *path = in_dir("round-trip.json");
    srand(1);
    for (int round = 0; round < 60; round++) {
        uint8_t text[3000];
        size_t n = 1 + (size_t)rand() % sizeof text;
        for (size_t i = 0; i < n; i++)
            text[i] = (uint8_t)(rand() % 2 ? rand() : spice[(size_t)rand() % (sizeof spice - 1)]);
        for (int k = 0; k < 2; k++) {
            Error e = {0};
            Tokenizer *t = tokenizer_learned(kinds[k], text, n);
            assert_round_trip(t, text, n);
            json_t *meta = tokenizer_to_json(t, &e);
            assert_true(json_write(path, meta, &e));
            json_decref(meta);
            Tokenizer *again = tokenizer_load(path, &e);
            assert_non_null(again);
            assert_int_equal(tokenizer_vocab_size(again), tokenizer_vocab_size(t));
            assert_string_equal(tokenizer_kind(again), kinds[k]);
            assert_round_trip(again, text, n);
            tokenizer_destroy(again);
            tokenizer_destroy(t);
        }
    }
}

static void char_ids_and_errors(void **state)
{
    (void)state;
    Error e = {0};
    int32_t *ids;
    int64_t count;
    size_t n;
    Tokenizer *t = tokenizer_create("char", &e); /* \n a b U+E9 U+DCFF -> 0 .. 4 */
    assert_true(tokenizer_learns(t) && tokenizer_learn(t, (const uint8_t *)"b\xC3\xA9\xFF", 4, &e));
    assert_true(tokenizer_learn(t, (const uint8_t *)"a\n", 2, &e) && tokenizer_learn_end(t, &e));
    assert_int_equal(tokenizer_vocab_size(t), 5);
    assert_true(tokenizer_encode(t,
                                 (const uint8_t *)"\xFF"
                                                  "ba\xC3\xA9\n",
                                 6, &ids, &count, &e));
    const int32_t want[] = {4, 2, 1, 3, 0};
    assert_int_equal(count, 5);
    assert_memory_equal(ids, want, sizeof want);
    free(ids);

    assert_false(tokenizer_encode(t, (const uint8_t *)"ab\xE2\x82\xAC", 5, &ids, &count, &e));
    assert_says(&e, "character '\xE2\x82\xAC' U+20AC at byte offset 2 is not in the vocabulary of 5");
    e = (Error){0};
    assert_false(tokenizer_encode(t, (const uint8_t *)"\xC3\xA9\xC3", 3, &ids, &count, &e));
    assert_says(&e, "byte 0xC3 (not UTF-8) at byte offset 2");
    e = (Error){0};
    assert_false(tokenizer_encode(t, (const uint8_t *)"\x1B", 1, &ids, &count, &e));
    assert_says(&e, "character U+001B at byte offset 0");
    e = (Error){0};
    assert_null(tokenizer_piece(t, 5, &n));
    assert_null(tokenizer_piece(t, -1, &n));
    tokenizer_destroy(t);

    e = (Error){0};
    assert_null(tokenizer_create("words", &e));
    assert_says(&e, "no tokenizer is called \"words\": known are byte, char, gpt2:DIR");
    e = (Error){0};
    t = tokenizer_create("char", &e);
    assert_false(tokenizer_learn_end(t, &e));
    assert_says(&e, "the text is empty");
    tokenizer_destroy(t);
}

/* A text of many chunks, encoded by several threads: the ids are those of one piece, and the error is the first one. */
static void tokenizer_threads(void **state)
{
    (void)state;
    enum { N = 3 << 20 };
    static uint8_t text[N];
    for (size_t i = 0; i < N; i++)
        text[i] = i % 3 == 0 ? 0xC3 : i % 3 == 1 ? (uint8_t)(0x80 + rand() % 64) : (uint8_t)(rand() % 128);
    Tokenizer *t = tokenizer_learned("char", text, N);
    Error e = {0};
    int32_t *ids;
    int64_t count, at = 0;
    assert_true(tokenizer_encode(t, text, N, &ids, &count, &e));
    assert_int_equal(count, N / 3 * 2);
    for (size_t i = 0; i < N; i += 3000, at += 2000) {
        int32_t *part;
        int64_t part_count;
        assert_true(tokenizer_encode(t, text + i, i + 3000 < N ? 3000 : N - i, &part, &part_count, &e));
        assert_memory_equal(part, ids + at, (size_t)part_count * sizeof *part);
        free(part);
    }
    free(ids);
    text[1000 * 1000 + 1] = text[2 * 1000 * 1000] = 0xFF;
    assert_false(tokenizer_encode(t, text, N, &ids, &count, &e));
    assert_says(&e, "byte 0xFF (not UTF-8) at byte offset 1000001 is not");
    assert_null(ids);
    tokenizer_destroy(t);
}

static void meta_is_checked(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"", "meta.json:1:0: not JSON"},
        {"[]", "an object {...} is needed"},
        {"{}", "meta.json: tokenizer: is missing"},
        {"{\"tokenizer\": 3}", "meta.json: tokenizer: "},
        {"{\"tokenizer\": \"bpe9\", \"vocab_size\": 3}", "meta.json: tokenizer: is \"bpe9\": known are byte, char, gpt2:DIR"},
        {"{\"tokenizer\": \"byte\"}", "meta.json: vocab_size: is missing"},
        {"{\"tokenizer\": \"byte\", \"vocab_size\": 257}",
         "vocab_size: is 257, but the \"byte\" vocabulary in this file has 256"},
        {"{\"tokenizer\": \"byte\", \"vocab_size\": 99999999999}", "meta.json: vocab_size: is 99999999999"},
        {"{\"tokenizer\": \"char\", \"vocab_size\": 2}", "meta.json: characters: "},
        {"{\"tokenizer\": \"char\", \"vocab_size\": 2, \"characters\": []}", "characters: a character tokenizer needs"},
        {"{\"tokenizer\": \"char\", \"vocab_size\": 2, \"characters\": \"ab\"}", "characters: a character tokenizer needs"},
        {"{\"tokenizer\": \"char\", \"vocab_size\": 2, \"characters\": [97, \"b\"]}", "characters: element 1 is not the number"},
        {"{\"tokenizer\": \"char\", \"vocab_size\": 2, \"characters\": [97, 1114112]}", "characters: element 1 is not"},
        {"{\"tokenizer\": \"char\", \"vocab_size\": 2, \"characters\": [-1, 98]}", "characters: element 0 is not"},
        {"{\"tokenizer\": \"char\", \"vocab_size\": 2, \"characters\": [97, 55296]}", "characters: element 1 is not"},
        {"{\"tokenizer\": \"char\", \"vocab_size\": 2, \"characters\": [97, 97]}", "element 1, 97, does not come after 97"},
        {"{\"tokenizer\": \"char\", \"vocab_size\": 2, \"characters\": [98, 97]}", "element 1, 97, does not come after 98"},
        {"{\"tokenizer\": \"char\", \"vocab_size\": 3, \"characters\": [97, 98]}", "vocab_size: is 3, but"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Error e = {0};
        const char *path = write_bytes("meta.json", cases[i][0], strlen(cases[i][0]));
        assert_null(tokenizer_load(path, &e));
        assert_says(&e, cases[i][1]);
        assert_says(&e, path);
        assert_false(e.usage);
    }
    Error e = {0};
    assert_null(tokenizer_load(in_dir("nowhere"), &e));
    assert_says(&e, "nowhere: ");
    unlink(in_dir("meta.json"));
}

/* ---- Token files ---- */

/* An llm.c file in memory: `claimed` in its header, then `bytes` bytes of tokens 0, 1, 2, ... Free it. */
static uint8_t *llmc(int32_t magic, int32_t version, int32_t claimed, int width, size_t bytes)
{
    uint8_t *file = calloc(1024 + bytes + 4, 1);
    int32_t header[3] = {magic, version, claimed};
    memcpy(file, header, sizeof header);
    for (size_t i = 0; i * (size_t)width < bytes; i++)
        file[1024 + i * (size_t)width] = (uint8_t)i;
    return file;
}

static void token_files_told_apart(void **state)
{
    (void)state;
    static const struct {
        int32_t magic, version, claimed;
        int width;
        size_t bytes;     /* after the header */
        size_t total;     /* of the file, when it is cut; 0: whole */
        const char *says; /* NULL: it is good */
    } cases[] = {
        {20240520, 1, 3, 2, 6, 0, NULL},
        {20240801, 7, 3, 4, 12, 0, NULL},
        {7, 1, 0, 2, 6, 0, NULL}, /* no magic: 515 tokens of 16 bits */
        {20240520, 1, 4, 2, 6, 0, "claims 4 tokens of 2 bytes, 8 bytes, but 6 bytes follow"},
        {20240801, 7, 2147483647, 4, 12, 0, "claims 2147483647 tokens of 4 bytes, 8589934588 bytes, but 12"},
        {20240520, 1, 2, 2, 6, 0, "claims 2 tokens"},
        {20240520, 1, 3, 2, 7, 0, "but 7 bytes follow"},
        {20240520, 1, -1, 2, 6, 0, "a negative number of tokens, -1"},
        {20240520, 1, INT32_MIN, 2, 6, 0, "a negative number of tokens, -2147483648"},
        {20240520, 1, 0, 2, 0, 0, "holds no tokens"},
        {20240520, 2, 3, 2, 6, 0, "of version 2; version 1 is understood"},
        {20240801, 1, 3, 4, 12, 0, "of version 1; version 7 is understood"},
        {20240520, 1, 3, 2, 6, 1023, "ends after 1023 bytes, inside the 1024 bytes of the header"},
        {20240520, 1, 3, 2, 6, 4, "ends after 4 bytes"},
        {7, 1, 0, 2, 7, 0, "has 1031 bytes, an odd number"},
        {7, 1, 0, 2, 6, 3, "has 3 bytes, an odd number"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t *bytes = llmc(cases[i].magic, cases[i].version, cases[i].claimed, cases[i].width, cases[i].bytes);
        Error e = {0};
        TokenFile f;
        bool good = token_file_parse(&f, bytes, cases[i].total ? cases[i].total : 1024 + cases[i].bytes, "f.bin", &e);
        assert_int_equal(good, cases[i].says == NULL);
        if (!good) {
            assert_says(&e, cases[i].says);
            assert_says(&e, "f.bin: ");
        } else if (cases[i].magic == 7) {
            assert_int_equal(f.count, 515);
        } else {
            int32_t ids[3];
            assert_int_equal(f.count, 3);
            assert_true(token_file_read(&f, 0, 3, 3, ids, "f.bin", &e));
            assert_int_equal(ids[0] * 100 + ids[1] * 10 + ids[2], 12);
        }
        free(bytes);
    }
    Error e = {0};
    TokenFile f;
    assert_false(token_file_parse(&f, (const uint8_t *)"", 0, "f.bin", &e));
    assert_says(&e, "f.bin: holds no tokens; training needs at least block_size + 1");
}

static void ids_are_checked(void **state)
{
    (void)state;
    const uint16_t small[] = {5, 9, 10, 3};
    Error e = {0};
    TokenFile f;
    int32_t ids[4];
    assert_true(token_file_parse(&f, (const uint8_t *)small, sizeof small, "f.bin", &e));
    assert_true(token_file_read(&f, 0, 4, 11, ids, "f.bin", &e));
    assert_true(token_file_read(&f, 0, 2, 10, ids, "f.bin", &e)); /* 10 is not among them */
    assert_false(token_file_read(&f, 1, 3, 10, ids, "f.bin", &e));
    assert_says(&e, "f.bin: token 2, at byte offset 4, is 10, but the vocabulary is 0 .. 9");

    uint8_t *wide = llmc(20240801, 7, 2, 4, 8); /* an id that is negative as int32 */
    memset(wide + 1028, 0xFF, 4);
    e = (Error){0};
    assert_true(token_file_parse(&f, wide, 1032, "w.bin", &e));
    assert_false(token_file_read(&f, 0, 2, 50257, ids, "w.bin", &e));
    assert_says(&e, "w.bin: token 1, at byte offset 1028, is 4294967295, but the vocabulary is 0 .. 50256");
    free(wide);
}

/* FIELD-CASES 38: the width follows from the vocabulary. */
static void written_files_and_their_limits(void **state)
{
    (void)state;
    const char *path = in_dir("written.bin"), *temp = in_dir("written.bin.tmp");
    const int32_t ids[] = {0, 65535, 7}, bad[] = {1, 3}, negative[] = {-1};
    for (int wide = 0; wide < 2; wide++) {
        Error e = {0};
        TokenWriter w;
        assert_true(token_writer_create(&w, path, 65536 + wide, &e) && token_writer_append(&w, ids, 2, &e) &&
                    token_writer_append(&w, ids + 2, 1, &e) && token_writer_finish(&w, &e));
        assert_false(file_exists(path));
        size_t n;
        uint8_t *bytes = (uint8_t *)read_bytes(temp, &n);
        const int32_t header[4] = {wide ? 20240801 : 20240520, wide ? 7 : 1, 3, 0};
        const uint16_t tokens[] = {0, 65535, 7};
        assert_int_equal(n, 1024 + (wide ? 12 : 6));
        assert_memory_equal(bytes, header, sizeof header);
        assert_memory_equal(bytes + 1024, wide ? (const void *)ids : tokens, n - 1024);
        free(bytes);
        unlink(temp);
    }
    Error e = {0};
    TokenWriter w;
    assert_true(token_writer_create(&w, path, 3, &e));
    assert_false(token_writer_append(&w, bad, 2, &e));
    assert_says(&e, "token 1 is 3, but the vocabulary is 0 .. 2");
    e = (Error){0};
    assert_false(token_writer_append(&w, negative, 1, &e));
    file_abandon(&w.file);
    assert_false(file_exists(temp));
}

/* Shards of 1, 2, 3, ... tokens of both widths, in a folder whose name is a pattern; token i of the stream is i. */
static void shards_make_one_stream(void **state)
{
    (void)state;
    enum { SHARDS = 6, TOKENS = SHARDS * (SHARDS + 1) / 2 };
    mkdir(in_dir("sh[a]*d"), 0777);
    for (int s = 0, first = 0; s < SHARDS; first += ++s) {
        uint8_t *bytes = llmc(20240520, 1, s + 1, 2, 2 * (size_t)(s + 1));
        for (int i = 0; i <= s; i++)
            bytes[1024 + 2 * i] = (uint8_t)(first + i);
        char name[64];
        snprintf(name, sizeof name, "sh[a]*d/web_train_%06d.bin", s);
        write_bytes(name, s % 2 ? bytes + 1024 : bytes, (s % 2 ? 0 : 1024) + 2 * (size_t)(s + 1));
        free(bytes);
    }
    Error e = {0};
    TokenStream s;
    assert_true(token_stream_present(in_dir("sh[a]*d"), "train") && !token_stream_present(in_dir("sh[a]*d"), "val"));
    if (!token_stream_open(&s, in_dir("sh[a]*d"), "train", &e))
        fail_msg("%s", e.text);
    assert_int_equal(s.count, TOKENS);
    for (int64_t first = 0; first <= TOKENS; first++)
        for (int64_t count = 0; count <= TOKENS - first; count++) {
            int32_t ids[TOKENS] = {0};
            assert_true(token_stream_read(&s, first, count, TOKENS, ids, &e));
            for (int64_t i = 0; i < count; i++)
                assert_int_equal(ids[i], first + i);
        }
    int32_t ids[TOKENS];
    assert_false(token_stream_read(&s, 0, TOKENS + 1, TOKENS, ids, &e));
    e = (Error){0};
    assert_false(token_stream_read(&s, 0, TOKENS, 20, ids, &e)); /* id 20 is the last of shard 5: headerless, six tokens */
    assert_says(&e, "web_train_000005.bin: token 5, at byte offset 10, is 20, but the vocabulary is 0 .. 19");
    token_stream_close(&s);

    e = (Error){0};
    assert_true(
        token_stream_open(&s, in_dir("sh\\[a\\]\\*d/*_00000[23].bin"), "val", &e)); /* a pattern: the split doesn't matter */
    assert_int_equal(s.count, 3 + 4);
    token_stream_close(&s);
    assert_false(token_stream_open(&s, in_dir("sh[a]*d"), "val", &e));
    assert_says(&e, "no val.bin and no *val*.bin in this folder");
    e = (Error){0};
    assert_false(token_stream_open(&s, in_dir("nothing*.bin"), "val", &e));
    assert_says(&e, "nothing*.bin: no such file");
    write_bytes("sh[a]*d/web_train_9.bin", "", 0);
    e = (Error){0};
    assert_false(token_stream_open(&s, in_dir("sh[a]*d"), "train", &e));
    assert_says(&e, "web_train_9.bin: holds no tokens");
    token_stream_close(&s);
    write_bytes("sh[a]*d/train.bin", "ab", 2); /* goes before *train*.bin */
    e = (Error){0};
    assert_true(token_stream_open(&s, in_dir("sh[a]*d"), "train", &e));
    assert_int_equal(s.count, 1);
    token_stream_close(&s);
}

/* A file of 5 GiB, most of it a hole: offsets need more than 32 bits. */
static void offsets_beyond_4_gib(void **state)
{
    (void)state;
    const int64_t tokens = 5ll << 29, at = tokens - 3;
    const uint16_t tail[] = {11, 12, 13};
    const char *path = in_dir("huge.bin");
    int fd = open(path, O_RDWR | O_CREAT, 0666);
    assert_true(fd >= 0);
    bool made = ftruncate(fd, 2 * tokens) == 0 && pwrite(fd, tail, sizeof tail, 2 * at) == sizeof tail;
    close(fd);
    if (!made) {
        unlink(path);
        print_message("SKIPPED: this file system has no sparse file of 5 GiB\n");
        skip();
    }
    Error e = {0};
    TokenStream s;
    int32_t ids[5];
    assert_true(token_stream_open(&s, path, "train", &e));
    assert_int_equal(s.count, tokens);
    assert_true(token_stream_read(&s, at - 2, 5, 14, ids, &e));
    assert_true(ids[1] == 0 && ids[2] == 11 && ids[4] == 13);
    assert_false(token_stream_read(&s, at - 2, 5, 13, ids, &e));
    assert_says(&e, "at byte offset 5368709118, is 13");
    token_stream_close(&s);
    unlink(path);
}

static int make_dir(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/test_data-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    (void)state;
    Error e = {0};
    return dir_remove(in_dir("sh[a]*d"), &e) && dir_remove(dir, &e) ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(utf8_symbols),           cmocka_unit_test(tokenizers_round_trip),
        cmocka_unit_test(char_ids_and_errors),    cmocka_unit_test(tokenizer_threads),
        cmocka_unit_test(meta_is_checked),        cmocka_unit_test(token_files_told_apart),
        cmocka_unit_test(ids_are_checked),        cmocka_unit_test(written_files_and_their_limits),
        cmocka_unit_test(shards_make_one_stream), cmocka_unit_test(offsets_beyond_4_gib),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
