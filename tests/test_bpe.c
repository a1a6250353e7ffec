/* Byte-pair encoding: against a reference, with a small vocabulary. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <omp.h>
#include <time.h>

#include "tests/bpe_rig.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_cases), cmocka_unit_test(random_texts),    cmocka_unit_test(threads),
        cmocka_unit_test(long_words),  cmocka_unit_test(too_long_a_word), cmocka_unit_test(special_tokens),
    };
    return cmocka_run_group_tests(tests, command_begin, command_end);
}
