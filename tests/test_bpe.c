/* GPT-2's tokenizer: against a reference with a vocabulary of our own, against published ids with GPT-2's, and its files. */
#include "base/file.h"
#include "base/json.h"
#include "data/tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <omp.h>
#include <time.h>

#include "tests/bpe_reference.h"
#include "tests/command.h"

/* ---- Files ---- */

/* Writes a vocab.json and a merges.txt into the new folder `dir`, from an object with "vocab" and "merges". */
static void pair_write(const char *dir, const json_t *source)
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

static void tokenizer_json_write(const char *dir, const json_t *root)
{
    char path[PATH_SIZE];
    Error e = {0};
    assert_true(dir_make(dir, &e) && path_join(path, dir, "tokenizer.json", &e) && json_write(path, root, &e));
}

static Tokenizer *loaded(const char *where)
{
    Error e = {0};
    Tokenizer *t = tokenizer_load(where, &e);
    if (!t)
        fail_msg("%s", e.text);
    return t;
}

static Tokenizer *small_tokenizer(void)
{
    Error e = {0};
    json_t *meta = small_meta();
    Tokenizer *t = tokenizer_from_json(meta, "small", &e);
    json_decref(meta);
    if (!t)
        fail_msg("%s", e.text);
    return t;
}

/* ---- Encoding ---- */

static int64_t encode(const Tokenizer *t, const void *text, size_t n, int32_t **ids)
{
    Error e = {0};
    int64_t count;
    if (!tokenizer_encode(t, text, n, ids, &count, &e))
        fail_msg("%s", e.text);
    return count;
}

static void assert_decodes(const Tokenizer *t, const int32_t *ids, int64_t count, const uint8_t *text, size_t n)
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
static void assert_pieces(const Tokenizer *t, const char *text, size_t n, const char *want)
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

static void small_cases(void **state)
{
    (void)state;
    Tokenizer *t = small_tokenizer();
    static const struct {
        const char *text, *pieces;
        size_t n; /* 0: strlen */
    } cases[] = {
        {"hello world", "hello| world", 0},
        {"hello!!hello", "hello|!!|hello", 0},
        {"hellold", "hello|ld", 0},
        {"world!", "w|or|ld|!", 0},  /* "ld !" is no merge across words */
        {"world1", "w|or|ld|1", 0},  /* nor "d 1"                       */
        {"ello", "e|ll|o", 0},       /* "l l" comes before "e l": nothing makes the token "ello", not even its own text */
        {"aaaaaaa", "aaaa|aa|a", 0}, /* the leftmost pair first         */
        {"^^^^^^^^^^", "^^^^|^^^^|^^", 0},
        {"'s", "'s", 0},
        {"'S", "'|S", 0},    /* contractions are lower-case only */
        {"o's", "o|'s", 0},  /* "o '" is no merge across words  */
        {" 's", " |'|s", 0}, /* a space before it: no contraction */
        {"a\xE2\x80\x99s", "a|\xE2\x80|\x99|s", 0},
        {"   ", "  | ", 0},
        {"   a", "  | |a", 0},
        {"a  b", "a| | |b", 0},
        {"\xE3\x80\x80  b", "\xE3|\x80|\x80 | |b", 0},
        {"\xC2\xA0  b", "\xC2|\xA0 | |b", 0},
        {"a\n\n\nb", "a|\n\n|\n|b", 0},
        {"\n\n\n", "\n\n|\n", 0},
        {"a\nhe", "a|\n|he", 0}, /* "\n h" is no merge across words */
        {"a\r\nb", "a|\r|\n|b", 0},
        {"1211", "121|1", 0},
        {"\xC3\xA9\xC3\xA9", "\xC3\xA9|\xC3\xA9", 0},
        {"\xFF\xFF", "\xFF\xFF", 0}, /* not UTF-8: a word of its own    */
        {"a\x80  b", "a|\x80| | |b", 0},
        {"  \x80", "  |\x80", 0}, /* no character comes behind the spaces */
        {"--\0\0--", "--|00|--", 6},
        {"", "", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_pieces(t, cases[i].text, cases[i].n ? cases[i].n : strlen(cases[i].text), cases[i].pieces);
    tokenizer_destroy(t);
}

/* A random text of pieces that make words, and bytes that break them. Returns its bytes. */
static size_t random_text(uint8_t *text, size_t room)
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

static void assert_as_reference(const Tokenizer *t, const uint8_t *text, size_t n)
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

static void random_texts(void **state)
{
    (void)state;
    Tokenizer *t = small_tokenizer();
    uint8_t text[400];
    srand(1);
    for (int round = 0; round < 4000; round++)
        assert_as_reference(t, text, random_text(text, 10 + (size_t)rand() % (sizeof text - 10)));
    tokenizer_destroy(t);
}

/* Many chunks: by one thread, by several, and by several callers at a time, the ids are those of the reference. */
static void threads(void **state)
{
    (void)state;
    enum { ROOM = 3 << 20 };
    Tokenizer *t = small_tokenizer();
    uint8_t *text = malloc(ROOM);
    int32_t *want = malloc(ROOM * sizeof *want);
    srand(2);
    size_t n = random_text(text, ROOM);
    int64_t count = reference_encode(text, n, want);
    int before = omp_get_max_threads();
    for (int k = 1; k <= 4; k += 3) {
        omp_set_num_threads(k);
        int32_t *ids;
        assert_int_equal(encode(t, text, n, &ids), count);
        assert_memory_equal(ids, want, (size_t)count * sizeof *ids);
        free(ids);
    }
    omp_set_num_threads(before);
    int wrong = 0;
#pragma omp parallel for num_threads(3) reduction(+ : wrong)
    for (int i = 0; i < 6; i++) {
        int32_t *ids;
        int64_t got;
        Error e = {0};
        bool good = tokenizer_encode(t, text, n, &ids, &got, &e);
        wrong += !good || got != count || memcmp(ids, want, (size_t)count * sizeof *ids) != 0;
        free(ids);
    }
    assert_int_equal(wrong, 0);
    free(text);
    free(want);
    tokenizer_destroy(t);
}

/* FIELD-CASES 35, with a vocabulary that has "^^^^" too: a word of n signs takes n log n. With n^2 the longer one would take
 * hours. */
static void long_words(void **state)
{
    (void)state;
    Tokenizer *t = small_tokenizer();
    uint8_t *text = malloc(8000000);
    memset(text, '^', 8000000);
    for (size_t n = 1000000; n <= 8000000; n *= 8) {
        int32_t *ids;
        clock_t begin = clock();
        assert_int_equal(encode(t, text, n, &ids), n / 4);
        assert_true(clock() - begin < 60 * CLOCKS_PER_SEC);
        assert_int_equal(ids[0], small_id("^^^^", 4));
        assert_int_equal(ids[n / 4 - 1], ids[0]);
        free(ids);
    }
    memset(text, ' ', 8000000); /* one word, and a blank left for the next, of which a place to cut knows nothing */
    assert_int_equal(tokenizer_cut(t, text, 8000000), 0);
    text[7999999] = 'a';
    int32_t *ids;
    assert_int_equal(encode(t, text, 8000000, &ids), 3999999 + 2);
    free(ids);
    free(text);
    tokenizer_destroy(t);
}

/* A word of 64 MiB is the longest; a file of NULs can be longer. */
static void too_long_a_word(void **state)
{
    (void)state;
    enum { N = (1 << 26) + 1 };
    Tokenizer *t = small_tokenizer();
    uint8_t *text = calloc(N + 8, 1);
    Error e = {0};
    int32_t *ids;
    int64_t count;
    memcpy(text, "hello ", 6);
    assert_false(tokenizer_encode(t, text, N + 8, &ids, &count, &e));
    assert_string_equal(e.text, "byte offset 5: a word of 67108868 bytes, without a blank in it; the longest can have 67108864");
    assert_null(ids);
    free(text);
    tokenizer_destroy(t);
}

static void special_tokens(void **state)
{
    (void)state;
    Error e = {0};
    json_t *meta = small_meta(), *special = json_object_get(meta, "special_tokens");
    json_object_set_new(special, "<|endoftext|><", json_integer(SMALL_VOCAB)); /* longer, and not in the vocabulary */
    json_object_set_new(special, "<|", json_integer(SMALL_VOCAB + 1));
    json_object_set_new(meta, "vocab_size", json_integer(SMALL_VOCAB + 2));
    Tokenizer *t = tokenizer_from_json(meta, "small", &e);
    assert_non_null(t);
    json_decref(meta);
    assert_int_equal(tokenizer_special(t, "<|endoftext|>"), SMALL_VOCAB - 1);
    assert_int_equal(tokenizer_special(t, "<|endoftext|><"), SMALL_VOCAB);
    assert_int_equal(tokenizer_special(t, "<|endoftext|"), -1);
    assert_int_equal(tokenizer_special(t, "hello"), -1);
    const char *text = "hello<|endoftext|> <|endoftext|><|endoftext|>'s  <|endoftext|>";
    assert_pieces(t, "<|endoftext|>", 13, "<|||e|n|d|o|f|t|e|x|t|||>");
    assert_true(tokenizer_allow_special(t, &e));
    assert_pieces(t, text, strlen(text), "hello|<|endoftext|>| |<|endoftext|><|||e|n|d|o|f|t|e|x|t|||>|'|s|  |<|endoftext|>");
    assert_pieces(t, "<|endoftext|", 12, "<||e|n|d|o|f|t|e|x|t||");
    assert_pieces(t, "  <|endoftext|>'s", 17, "  |<|endoftext|>|'s");
    tokenizer_destroy(t);

    t = tokenizer_create("byte", &e);
    assert_int_equal(tokenizer_special(t, "a"), -1);
    assert_false(tokenizer_allow_special(t, &e));
    assert_string_equal(e.text, "the tokenizer (byte) has no special tokens that could be allowed");
    tokenizer_destroy(t);
}

/* ---- Files ---- */

static void assert_same_tokenizer(const char *where)
{
    Tokenizer *t = loaded(where);
    uint8_t text[2000];
    assert_int_equal(tokenizer_vocab_size(t), SMALL_VOCAB);
    assert_int_equal(tokenizer_special(t, "<|endoftext|>"), SMALL_VOCAB - 1);
    assert_string_equal(tokenizer_kind(t), "gpt2");
    assert_as_reference(t, text, random_text(text, sizeof text));
    tokenizer_destroy(t);
}

static void all_files_say_the_same(void **state)
{
    (void)state;
    Error e = {0};
    json_t *meta = small_meta(), *root = small_tokenizer_json(meta), *pairs = json_array(), *line;
    size_t i;
    pair_write("pair", meta);
    assert_same_tokenizer("gpt2:pair");
    tokenizer_json_write("one", root);
    assert_same_tokenizer("gpt2:one");
    json_array_foreach(json_object_get(meta, "merges"), i, line)
    {
        const char *text = json_string_value(line), *space = strchr(text, ' ');
        json_array_append_new(pairs, json_pack("[s#, s]", text, (int)(space - text), space + 1));
    }
    json_object_set_new(json_object_get(root, "model"), "merges", pairs);
    tokenizer_json_write("one", root);
    assert_same_tokenizer("gpt2:one");
    json_object_del(json_object_get(json_object_get(root, "model"), "vocab"), "<|endoftext|>"); /* only an added token */
    tokenizer_json_write("one", root);
    assert_same_tokenizer("gpt2:one");

    Tokenizer *t = loaded("gpt2:one");
    json_t *written = tokenizer_to_json(t, &e);
    assert_true(json_write("meta.json", written, &e));
    tokenizer_destroy(t);
    json_decref(written);
    assert_same_tokenizer("meta.json");
    json_decref(meta);
    json_decref(root);
}

/* A merges.txt as Windows or an editor leaves it: CR LF, no comment, no end of the last line; and merges that begin with '#'. */
static void merges_in_other_clothes(void **state)
{
    (void)state;
    json_t *meta = small_meta(), *vocab = json_object_get(meta, "vocab");
    json_object_set_new(vocab, "##", json_integer(SMALL_VOCAB));
    json_object_set_new(vocab, "<>", json_integer(SMALL_VOCAB + 1)); /* a merge makes it: it is not special */
    pair_write("clothes", meta);
    put("clothes/merges.txt", "# #\r\n\r\n< >\nh e");
    Tokenizer *t = loaded("gpt2:clothes");
    assert_pieces(t, "##he", 4, "##|he");
    assert_int_equal(tokenizer_special(t, "<>"), -1);
    assert_int_equal(tokenizer_special(t, "<|endoftext|>"), SMALL_VOCAB - 1);
    tokenizer_destroy(t);
    json_decref(meta);
}

/* Files that are wrong: each is refused with a message that says where. A `change` is JSON that is merged into {"vocab",
 * "merges"}. */
static void pairs_refused(void **state)
{
    (void)state;
    static const struct {
        const char *change, *says;
    } cases[] = {
        {"{\"vocab\": {\"q\": 5000}}", "bad: vocab: \"q\" needs an id from 0 to "},
        {"{\"vocab\": {\"q\": 1}}", "has the id 1, which is that of \""},
        {"{\"vocab\": {\"q\": -1}}", "\"q\" needs an id from 0"},
        {"{\"vocab\": {\"q\": 1.5}}", "\"q\" needs an id from 0"},
        {"{\"vocab\": {\"q\": \"x\"}}", "\"q\" needs an id from 0"},
        {"{\"vocab\": {\"q\": null}}", "\"q\" needs an id from 0"},
        {"{\"vocab\": {\"q\": 4294967409}}", "\"q\" needs an id from 0"},
        {"{\"vocab\": {\"more\": 5000}}", "\"more\" needs an id from 0 to "},
        {"{\"vocab\": {\"a b\": 292}}", "\"a b\" (id 292) has the character U+0020, which stands for no byte"},
        {"{\"vocab\": {\"\xE4\xB8\xAD\": 292}}", "(id 292) has the character U+4E2D, which stands for no byte"},
        {"{\"vocab\": {\"\": 292}}", "the token of id 292 is an empty text"},
        {"{\"merges\": [\"h  e\"]}", "merges: number 1, \"h  e\", is not two tokens of the vocabulary that make a third"},
        {"{\"merges\": [\"h e\", \"he x\"]}", "merges: number 2, \"he x\", is not two tokens"},
        {"{\"merges\": [\"he\"]}", "merges: number 1, \"he\", is not"},
        {"{\"merges\": [\"zz z\"]}", "merges: number 1, \"zz z\", is not"},
        {"{\"merges\": [\"h e\", \"l l\", \"h e\"]}", "merges: number 3 is the same as number 1"},
        {"{\"merges\": [\" he\"]}", "merges: number 1, \" he\", is not"},
        {"{\"merges\": [\"he \"]}", "merges: number 1, \"he \", is not"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Error e = {0};
        json_t *meta = small_meta(), *change = json_loads(cases[i].change, 0, NULL);
        json_object_update_recursive(meta, change);
        pair_write("bad", meta);
        Tokenizer *t = tokenizer_load("gpt2:bad", &e);
        if (t || !strstr(e.text, cases[i].says) || strncmp(e.text, "bad: ", 5) != 0)
            fail_msg("%s: wanted \"%s\", got \"%s\"", cases[i].change, cases[i].says, e.text);
        json_decref(meta);
        json_decref(change);
    }
}

/* A vocabulary without one of the bytes. */
static void byte_missing(void **state)
{
    (void)state;
    Error e = {0};
    json_t *meta = small_meta(), *vocab = json_object_get(meta, "vocab");
    json_object_del(vocab, "q");
    json_object_set_new(vocab, "qq", json_integer('q'));
    assert_null(tokenizer_from_json(meta, "small", &e));
    assert_string_equal(e.text, "small: vocab: has no token for the byte 0x71 (U+0071): every byte needs one");
    json_decref(meta);
}

static void files_refused(void **state)
{
    (void)state;
    Error e = {0};
    json_t *meta = small_meta();
    static const struct {
        const char *file, *text, *says;
    } cases[] = {
        {"merges.txt", "h e\n\xFF x\n", "wrong/merges.txt: line 2: not UTF-8"},
        {"vocab.json", "{\"a\": 1, \"a\": 2}", "wrong/vocab.json:1:"}, /* twice */
        {"vocab.json", "[]", "wrong/vocab.json:1:1: holds a list"},
        {"vocab.json", "", "wrong/vocab.json:1:0: not JSON"},
        {"vocab.json", "{}", "wrong: vocab: has no token for the byte 0x00"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[PATH_SIZE];
        pair_write("wrong", meta);
        snprintf(path, sizeof path, "wrong/%s", cases[i].file);
        put(path, cases[i].text);
        e = (Error){0};
        Tokenizer *t = tokenizer_load("gpt2:wrong", &e);
        if (t || !strstr(e.text, cases[i].says))
            fail_msg("wanted \"%s\", got \"%s\"", cases[i].says, e.text);
    }
    pair_write("wrong", meta);
    assert_int_equal(truncate("wrong/merges.txt", INT64_C(1) << 30), 0); /* sparse */
    ends(1, "wrong/merges.txt: ", "tokenize --tokenizer gpt2:wrong");
    assert_int_equal(unlink("wrong/merges.txt"), 0);
    ends(1, "wrong/merges.txt: cannot open", "tokenize --tokenizer gpt2:wrong");
    ends(1, "nowhere: has neither a tokenizer.json nor a vocab.json with a merges.txt", "tokenize --tokenizer gpt2:nowhere");
    put("text", "text");
    ends(2, "no tokenizer is called \"gpt2\": known are byte, char, gpt2:DIR", "data prepare text --out x --tokenizer gpt2");
    ends(2, "no tokenizer is called \"byte:x\"", "data prepare text --out x --tokenizer byte:x");
    ends(2, "(byte) has no special tokens", "tokenize --tokenizer byte --allow-special");
    ends(2, "unrecognized option", "detokenize --tokenizer byte --allow-special");
    json_decref(meta);
}

/* Other kinds of tokenizer.json are refused by the field that tells; what does not matter for ids may be anything. */
static void other_kinds_refused(void **state)
{
    (void)state;
    static const struct {
        const char *change, *says; /* NULL: it is fine */
    } cases[] = {
        {"{\"model\": {\"type\": \"Unigram\"}}", "model.type: is \"Unigram\", and not \"BPE\": this is another kind"},
        {"{\"model\": {\"dropout\": 0.1}}", "model.dropout: is 0.1"},
        {"{\"model\": {\"continuing_subword_prefix\": \"##\"}}", "model.continuing_subword_prefix: is \"##\""},
        {"{\"model\": {\"end_of_word_suffix\": \"</w>\"}}", "model.end_of_word_suffix: is \"</w>\""},
        {"{\"model\": {\"end_of_word_suffix\": null}}", NULL},
        {"{\"model\": {\"byte_fallback\": true}}", "model.byte_fallback: is true, and not false"},
        {"{\"model\": {\"ignore_merges\": true}}", "model.ignore_merges: is true"},
        {"{\"model\": {\"unk_token\": \"<|endoftext|>\"}}", NULL}, /* every byte is known */
        {"{\"model\": {\"vocab\": null}}", "vocab: is missing"},
        {"{\"model\": {\"merges\": null}}", "merges: a list is needed"},
        {"{\"model\": []}", "model.type: is missing"},
        {"{\"normalizer\": {\"type\": \"NFC\"}}", "normalizer: is {\"type\":\"NFC\"}, and not null"},
        {"{\"pre_tokenizer\": {\"type\": \"Sequence\"}}", "pre_tokenizer.type: is \"Sequence\""},
        {"{\"pre_tokenizer\": null}", "pre_tokenizer.type: is missing"},
        {"{\"pre_tokenizer\": {\"add_prefix_space\": true}}", "pre_tokenizer.add_prefix_space: is true, and not false"},
        {"{\"pre_tokenizer\": {\"use_regex\": false}}", "pre_tokenizer.use_regex: is false"},
        {"{\"post_processor\": {\"type\": \"TemplateProcessing\"}}", "post_processor.type: is \"TemplateProcessing\""},
        {"{\"post_processor\": null}", NULL},
        {"{\"decoder\": {\"type\": \"Metaspace\"}}", "decoder.type: is \"Metaspace\""},
        {"{\"decoder\": null}", "decoder.type: is missing"},
        {"{\"truncation\": {\"max_length\": 3}}", NULL},
        {"{\"added_tokens\": null}", NULL},
        {"{\"added_tokens\": [{\"id\": 0, \"content\": \"x\", \"special\": false}]}", "added_tokens: special: is false"},
        {"{\"added_tokens\": [{\"id\": 0, \"content\": \"x\"}]}", "added_tokens: special: is missing"},
        {"{\"added_tokens\": [{\"content\": \"x\", \"special\": true}]}", "added_tokens: id: is missing"},
        {"{\"added_tokens\": [{\"id\": -1, \"content\": \"x\", \"special\": true}]}", "added_tokens: id: is -1"},
        {"{\"added_tokens\": [{\"id\": 292, \"content\": \"x\", \"special\": true, \"lstrip\": true}]}", "lstrip: is true"},
        {"{\"added_tokens\": [{\"id\": 292, \"content\": \"<a>\", \"special\": true}, "
         "{\"id\": 293, \"content\": \"<a>\", \"special\": true}]}",
         "added_tokens: content: \"<a>\" is there twice"},
        {"{\"added_tokens\": [{\"id\": 292, \"content\": \"<a b>\", \"special\": true}]}",
         "special_tokens: \"<a b>\" has a blank in it"},
        {"{\"added_tokens\": [{\"id\": 292, \"content\": \"\", \"special\": true}]}", "the token of id 292 is an empty text"},
        {"{\"added_tokens\": [{\"id\": 104, \"content\": \"h\", \"special\": true}]}", "\"h\" is also ordinary text"},
        {"{\"added_tokens\": [{\"id\": 104, \"content\": \"new\", \"special\": true}]}",
         "\"new\" has the id 104, which is that of \"h\""},
        {"{\"added_tokens\": [7]}", "added_tokens: id: is missing"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Error e = {0};
        json_t *meta = small_meta(), *root = small_tokenizer_json(meta), *change = json_loads(cases[i].change, 0, NULL);
        assert_non_null(change);
        json_object_update_recursive(root, change);
        tokenizer_json_write("kind", root);
        Tokenizer *t = tokenizer_load("gpt2:kind", &e);
        if (cases[i].says ? t || !strstr(e.text, cases[i].says) || strncmp(e.text, "kind", 4) != 0 : !t)
            fail_msg("%s: wanted \"%s\", got \"%s\"", cases[i].change, cases[i].says ? cases[i].says : "no error", e.text);
        tokenizer_destroy(t);
        json_decref(meta);
        json_decref(root);
        json_decref(change);
    }
}

/* ---- As commands ---- */

/* A data folder and its checkpoints have all of the tokenizer in them: its files may go. */
static void files_may_go(void **state)
{
    (void)state;
    json_t *meta = small_meta();
    pair_write("gone", meta);
    json_decref(meta);
    FILE *f = fopen("text", "w");
    for (int i = 0; i < 500; i++)
        fprintf(f, "hello world<|endoftext|>\n");
    fclose(f);
    const Output *o = works("data prepare text --tokenizer gpt2:gone --allow-special --out data --val-fraction 0.5");
    assert_non_null(strstr(o->out, "train.bin  1000 tokens")); /* hello, world, the end, \n: 250 times */
    o = works("data prepare text --tokenizer gpt2:gone --out data-2 --val-fraction 0.5");
    assert_non_null(strstr(o->out, "train.bin  4000 tokens")); /* 14 for <|endoftext|>\n: |>\n are |, >, \n */
    works("data prepare text --tokenizer gpt2:gone --separator <|endoftext|> --out data-3 --val-fraction 0");
    json_t *facts = json_read("data-3/meta.json", &(Error){0});
    assert_int_equal(json_integer_value(json_object_get(facts, "separator")), SMALL_VOCAB - 1);
    assert_int_equal(json_integer_value(json_object_get(facts, "train_documents")), 501); /* the last is a line end */
    json_decref(facts);
    assert_int_equal(system("rm -r gone"), 0);
    works("train %s --max-iters 2 --out-dir run", TINY);
    assert_int_equal(system("rm -r data"), 0);
    o = works("sample --out-dir run --threads 1 --max-new-tokens 1 --prompt hello<|endoftext|>");
    assert_non_null(strstr(o->out, "hello<|endoftext|>"));
    works("sample --out-dir run --threads 1 --max-new-tokens 1 --allow-special --prompt <|endoftext|>");
    works("tokenize --tokenizer run/step-2 --allow-special");
}

/* ---- GPT-2's own vocabulary ---- */

static Tokenizer *gpt2_tokenizer(void)
{
    char from[PATH_SIZE], to[PATH_SIZE];
    const char *data = getenv("TALLY_TEST_DATA"), *names[] = {"vocab.json", "merges.txt"};
    Error e = {0};
    snprintf(from, sizeof from, "%s/gpt2-vocab.json", data ? data : "");
    if (!data || !file_exists(from)) {
        print_message("SKIPPED: TALLY_TEST_DATA names no folder with gpt2-vocab.json and gpt2-merges.txt\n");
        skip();
    }
    assert_true(dir_make("gpt2", &e));
    for (int i = 0; i < 2; i++) {
        snprintf(from, sizeof from, "%s/gpt2-%s", data, names[i]);
        snprintf(to, sizeof to, "gpt2/%s", names[i]);
        unlink(to);
        assert_int_equal(symlink(from, to), 0);
    }
    return loaded("gpt2:gpt2");
}

/* FIELD-CASES 27 to 35. */
static void published_ids(void **state)
{
    (void)state;
    Tokenizer *t = gpt2_tokenizer();
    static const struct {
        const char *text, *ids;
    } cases[] = {
        {"hello world", "31373 995"},
        {"Hello, world!", "15496 11 995 0"},
        {" this is \xF0\x9F\xA6\x99.cpp", "428 318 12520 99 247 13 20322"},
        {"<|endoftext|>", "27 91 437 1659 5239 91 29"},
        {"\n", "198"},
        {"\n\n", "628"},
        {"\n\n\n", "628 198"},
        {"\t\n", "197 198"},
        {"   ", "220 220 220"},
        {"' era", "6 6980"},
        {"\n =", "198 796"},
        {"ied 4 \xC2\xBD months", "798 604 25208 1933"},
        {"F\xC3\xBChrer", "37 9116 71 11751"},
        {"C\xE1\xBB\xAD"
         "a Vi\xE1\xBB\x87t",
         "34 157 119 255 64 16049 157 119 229 83"},
        {"\xD0\xBD\xD0\xB5\xD1\x89\xD0\xBE \xD0\xBD\xD0\xB0 "
         "\xD0\x91\xD1\x8A\xD0\xBB\xD0\xB3\xD0\xB0\xD1\x80\xD1\x81\xD0\xBA\xD0\xB8",
         "22177 16843 141 231 15166 12466 121 16142 12466 239 141 232 30143 140 111 16142 21169 21727 31583 18849"},
        {"I'M DON'T", "40 6 44 23917 6 51"},
        {"I\xE2\x80\x99m", "40 447 247 76"},
        {" 's", "705 82"},
        {"a\xC2\xA0"
         "b",
         "64 1849 65"},
        {"a\xE3\x80\x80"
         "b",
         "64 5099 222 65"},
        {"a\xE2\x80\x8B"
         "b",
         "64 9525 65"},
        {"a\r\nb", "64 201 198 65"},
        {"a\n b", "64 198 275"},
        {"\x80", "222"},
        {"\xFF\xFE", "187 186"},
    };
    assert_int_equal(tokenizer_vocab_size(t), 50257);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char got[256] = "";
        int32_t *ids;
        size_t n = strlen(cases[i].text);
        int64_t count = encode(t, cases[i].text, n, &ids);
        for (int64_t k = 0; k < count; k++)
            snprintf(got + strlen(got), sizeof got - strlen(got), k ? " %d" : "%d", ids[k]);
        if (strcmp(got, cases[i].ids) != 0)
            fail_msg("\"%s\": %s, not %s", cases[i].text, got, cases[i].ids);
        assert_decodes(t, ids, count, (const uint8_t *)cases[i].text, n);
        free(ids);
    }
    int32_t *ids;
    uint8_t *text = malloc(1000000);
    memset(text, '^', 1000000);
    assert_int_equal(encode(t, text, 1000000, &ids), 250000);
    free(ids);
    memset(text, 0, 1000);
    int64_t count = encode(t, text, 1000, &ids);
    assert_decodes(t, ids, count, text, 1000);
    free(ids);
    free(text);
    Error e = {0};
    assert_int_equal(tokenizer_special(t, "<|endoftext|>"), 50256);
    assert_true(tokenizer_allow_special(t, &e));
    assert_int_equal(encode(t, "<|endoftext|>", 13, &ids), 1);
    assert_int_equal(ids[0], 50256);
    free(ids);
    tokenizer_destroy(t);
}

/* Every token's text is that token, unless it ends or begins inside a character: of that the bytes are no word together. */
static void every_token(void **state)
{
    (void)state;
    Tokenizer *t = gpt2_tokenizer();
    int split = 0;
    for (int32_t id = 0; id < 50256; id++) {
        size_t n;
        int32_t *ids, symbol;
        bool whole = true;
        const uint8_t *piece = tokenizer_piece(t, id, &n);
        for (size_t at = 0; at < n; whole = whole && reference_class(symbol) != 'R')
            at += utf8_next(piece + at, n - at, &symbol);
        int64_t count = encode(t, piece, n, &ids);
        if ((count != 1 || ids[0] != id) && whole)
            fail_msg("token %d", id);
        split += count != 1;
        assert_decodes(t, ids, count, piece, n);
        free(ids);
    }
    assert_int_equal(split, 59);
    tokenizer_destroy(t);
}

/* FIELD-CASES 36. */
static void tinyshakespeare(void **state)
{
    (void)state;
    tokenizer_destroy(gpt2_tokenizer());
    const Output *o =
        works("data prepare %s/tinyshakespeare.txt --tokenizer gpt2:gpt2 --out shakespeare", getenv("TALLY_TEST_DATA"));
    assert_non_null(strstr(o->out, "train.bin  301966 tokens"));
    assert_non_null(strstr(o->out, "val.bin    36059 tokens"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_cases),
        cmocka_unit_test(random_texts),
        cmocka_unit_test(threads),
        cmocka_unit_test(long_words),
        cmocka_unit_test(too_long_a_word),
        cmocka_unit_test(special_tokens),
        cmocka_unit_test(all_files_say_the_same),
        cmocka_unit_test(merges_in_other_clothes),
        cmocka_unit_test(pairs_refused),
        cmocka_unit_test(byte_missing),
        cmocka_unit_test(files_refused),
        cmocka_unit_test(other_kinds_refused),
        cmocka_unit_test(files_may_go),
        cmocka_unit_test(published_ids),
        cmocka_unit_test(every_token),
        cmocka_unit_test(tinyshakespeare),
    };
    return cmocka_run_group_tests(tests, command_begin, command_end);
}
